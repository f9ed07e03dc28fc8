"""The bytes of a configuration directory and their digest. Nothing is parsed here."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path as FilePath

from router.errors import ConfigError, Mistake
from router.policy_files.positions import MAX_BYTES

Stamp = tuple[int, ...]

GROUPS, SCORERS, KEYS = "groups.yaml", "scorers.yaml", "keys.yaml"
TRIES = 5  # of reading a directory while it is written


def read_directory(directory: FilePath) -> dict[str, bytes]:
    """The files that make up the configuration, by name: `*.yaml`, not hidden, not in folders below. Files that changed
    while others were read are read again with them, or a mounted ConfigMap would be half the old and half the new.

    At most one byte more than the limit is read of each. Raises ConfigError when the directory cannot be read.
    """
    tries = TRIES
    while True:
        read: dict[str, Stamp] = {}
        found, tries = _read_once(directory, read), tries - 1
        if stamps(directory) == read or not tries:
            return found


def _read_once(directory: FilePath, read: dict[str, Stamp]) -> dict[str, bytes]:
    """`read`: gets the state that each file was in."""
    found: dict[str, bytes] = {}
    unreadable: list[Mistake] = []
    try:
        paths = sorted(path for path in directory.iterdir() if is_config_file(path))
    except OSError as error:
        hint = "; `pointsman init DIR` writes a first configuration" if error.errno == errno.ENOENT else ""
        raise ConfigError([whole_file(directory, f"cannot read this directory: {error.strerror}{hint}")]) from error
    for path in paths:
        try:
            found[path.name], read[path.name] = _read(path)
        except OSError as error:
            unreadable.append(whole_file(path, f"cannot read this file: {error.strerror}"))
    if unreadable:
        raise ConfigError(unreadable)
    return found


def _read(path: FilePath) -> tuple[bytes, Stamp]:
    """A file's first bytes. A pipe or a device is refused: to wait for its writer would end all reloading."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "a directory" if stat.S_ISDIR(found.st_mode) else "not a regular file")
        return file.read(MAX_BYTES + 1), _stamp(found, inside=True)


def is_config_file(path: FilePath) -> bool:
    """Whether a path's name is one that is loaded; editors' lock and swap files are hidden or end otherwise."""
    return path.suffix == ".yaml" and not path.name.startswith(".")


def misnamed(directory: FilePath) -> list[FilePath]:
    """Files that were likely meant to be read."""
    paths = [path for path in directory.iterdir() if path.suffix.lower() in (".yml", ".yaml")]
    return sorted(path for path in paths if not is_config_file(path) and not path.name.startswith("."))


def digest(files: Mapping[str, bytes]) -> str:
    """sha256 over names and bytes in name order, hex. Variables stand as written, so no secret goes in.

    Who may come in changes nothing of where requests go: keys.yaml is left out.
    """
    total = hashlib.sha256()
    for name in sorted(set(files) - {KEYS}):
        for part in (name.encode(), files[name]):
            total.update(len(part).to_bytes(8, "big"))  # lengths keep ("a", "bc") apart from ("ab", "c")
            total.update(part)
    return total.hexdigest()


def whole_file(path: FilePath, message: str) -> Mistake:
    """A mistake that has no line: a file or directory that is missing, not read or not readable."""
    return Mistake(file=str(path), line=1, column=1, path="(file)", message=message)


def stamps(directory: FilePath) -> dict[str, Stamp]:
    """What tells one state of the files from another without reading them; links are followed."""
    try:
        return {path.name: stamp(path, inside=True) for path in directory.iterdir() if is_config_file(path)}
    except OSError:
        return {}


def stamp(path: FilePath, *, inside: bool) -> Stamp:
    """Which file it is, and with `inside` its state."""
    try:
        return _stamp(path.stat(), inside=inside)
    except OSError:
        return ()


def _stamp(found: os.stat_result, *, inside: bool) -> Stamp:
    return (found.st_dev, found.st_ino, *((found.st_mtime_ns, found.st_size) if inside else ()))
