"""The configurations that were in force, kept by digest in the state folder: which there were, what is in them, and
writing one back. The files are kept as they were written, so a `${NAME}` stands there and not its value. keys.yaml is
none of them: a rollback must not let in a key that was revoked.

    STATE/history/applied.jsonl         one line each time another configuration came into force
    STATE/history/versions/DIGEST/      its files, byte for byte

Whether files are sound is `policy_files`' question; when they come into force, `serving`'s.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from router import state
from router.errors import NotFound
from router.policy_files import KEYS, digest, is_config_file, read_directory

How = Literal["start", "reload", "replaced"]  # replaced: what stood in the directory before a rollback
KEPT = 100  # versions; a year of a change every few days
_LINES = 1_000
_SHORTEST = 4  # characters of a digest that tell a version


class Applied(Struct, frozen=True, kw_only=True):
    """One line of the log: `digest` came into force at `time`, Unix seconds."""

    time: float
    digest: str
    how: How


def keep(folder: Path, directory: Path, expected: str | None, how: How, now: float) -> str | None:
    """Keeps the files of a configuration directory as a version of state folder `folder`; its digest.

    `expected` is the digest in force: files that have changed again since are left to the reload that they cause, and
    the answer is None. A configuration that was in force last anyway gives no second line. Raises `OSError`, and
    `ConfigError` where the directory cannot be read.
    """
    files = {name: content for name, content in read_directory(directory).items() if name != KEYS}
    found = digest(files)
    if expected is not None and found != expected:
        return None
    home = _home(folder)
    state.make(folder)
    (home / "versions").mkdir(parents=True, exist_ok=True, mode=0o700)
    if not _version(home, found).is_dir():
        _write_version(home, found, files)
    lines = applied(folder)
    if not lines or lines[-1].digest != found:
        line = Applied(time=now, digest=found, how=how)
        with (home / "applied.jsonl").open("ab") as log:  # one short write: several processes may append
            log.write(msgspec.json.encode(line) + b"\n")
        _forget(home, [*lines, line])
    return found


def applied(folder: Path) -> list[Applied]:
    """Every time that another configuration came into force, oldest first. A line cut short is left out."""
    try:
        content = (_home(folder) / "applied.jsonl").read_bytes()
    except FileNotFoundError:
        return []
    found: list[Applied] = []
    for line in content.splitlines():
        try:
            found.append(msgspec.json.decode(line, type=Applied))
        except msgspec.MsgspecError:
            continue
    return found


def find(folder: Path, prefix: str) -> str:
    """The digest of the one version that begins with `prefix`. Raises NotFound."""
    try:
        names = sorted(path.name for path in (_home(folder) / "versions").iterdir() if not path.name.startswith("."))
    except FileNotFoundError:
        names = []
    fitting = [name for name in names if name.startswith(prefix.lower())]
    if len(fitting) == 1 and len(prefix) >= _SHORTEST:
        return fitting[0]
    if fitting:
        raise NotFound(f"{prefix!r} may be several versions; write more of the digest, as `pointsman history` has it")
    raise NotFound(f"there is no version {prefix!r} in {_home(folder)}; `pointsman history` lists those that are kept")


def files(folder: Path, version: str) -> dict[str, bytes]:
    """The files of one version, by name; empty where it is not kept."""
    place = directory(folder, version)
    return read_directory(place) if place.is_dir() else {}


def directory(folder: Path, version: str) -> Path:
    """Where a version's files lie; a configuration directory like any other."""
    return _version(_home(folder), version)


def changed(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> list[str]:
    """Names of the files that differ, with a sign in front: + new, - gone, ~ another content."""
    signs = {name: "+" if name not in before else "-" if name not in after else "~" for name in {**before, **after}}
    return [f"{sign}{name}" for name, sign in sorted(signs.items()) if before.get(name) != after.get(name)]


def restore(folder: Path, version: str, into: Path) -> None:
    """Makes a configuration directory hold the files of a version and no others. Raises `OSError`.

    Each file is written beside its place and then moved there, so that no reader sees half of one; all are written
    before the first is moved, so that a full disk changes nothing.
    """
    wanted = files(folder, version)
    written: list[tuple[Path, Path]] = []
    try:
        for name, content in wanted.items():
            target = into / name
            beside = target.with_name(f".{name}.{os.getpid()}.tmp")
            written.append((beside, target))
            beside.write_bytes(content)
            if target.exists():
                shutil.copymode(target, beside)
        while written:
            beside, target = written[0]
            beside.replace(target)
            del written[0]
    finally:
        for beside, _ in written:
            with contextlib.suppress(OSError):
                beside.unlink()
    for path in into.iterdir():
        if is_config_file(path) and path.name not in (*wanted, KEYS):
            path.unlink()


def _home(folder: Path) -> Path:
    return folder / "history"


def _version(home: Path, version: str) -> Path:
    return home / "versions" / version


def _write_version(home: Path, version: str, content: Mapping[str, bytes]) -> None:
    """Written under another name first: a version that is there is whole."""
    made = Path(tempfile.mkdtemp(prefix=".", dir=home / "versions"))
    try:
        for name, text in content.items():
            (made / name).write_bytes(text)
        made.rename(_version(home, version))
    except OSError:
        shutil.rmtree(made, ignore_errors=True)
        if not _version(home, version).is_dir():  # else another process has just kept the same
            raise


def _forget(home: Path, lines: list[Applied]) -> None:
    """Only the last `KEPT` versions stay, and the last lines of the log."""
    order = list(dict.fromkeys(line.digest for line in reversed(lines)))
    for path in (home / "versions").iterdir():
        if path.name not in order[:KEPT] and not path.name.startswith("."):
            shutil.rmtree(path, ignore_errors=True)
    if len(lines) > _LINES:
        beside = home / f".applied.{os.getpid()}.tmp"
        beside.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines[-_LINES // 2 :]))
        beside.replace(home / "applied.jsonl")
