"""What the gateway changed by itself, one JSON object a line, in the state folder: every move of a threshold and every
turn of a canary, with its reason.

The newest line about a thing is its state, so that a restart goes on where the process stopped. Deciding what changes
belongs to `steering` and `trials`; a thread writes, because a disk may take its time.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from router.batch import Batcher

log = logging.getLogger("pointsman.changes")

MOST_BYTES = 4 * 1024 * 1024  # about twenty thousand moves; then only the newest lines are kept
KEPT = 2000  # lines

Kind = Literal["threshold", "canary"]


class Change(Struct, frozen=True, kw_only=True):
    """One change. `of` is the route or the canary's policy; `stands_for` what it holds for: once that is another, the
    change is void."""

    time: float  # Unix seconds
    kind: Kind
    policy: str
    of: str
    stands_for: str
    now: float | str
    before: float | str
    why: str


Key = tuple[Kind, str, str, str]


def key(of: Change) -> Key:
    return (of.kind, of.policy, of.of, of.stands_for)


class Changes:
    """The file, or nothing where `path` is None. What cannot be written is logged and forgotten."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.last: dict[Key, Change] = {}
        if path is not None:
            self.last = {key(one): one for one in _read(path)}
            self._batcher = Batcher[Change]("changes", self._write, limit=10_000, linger_s=0.05)
            self._batcher.start()

    def note(self, change: Change) -> None:
        self.last[key(change)] = change
        if self._path is not None:
            self._batcher.put(change)

    async def aclose(self) -> None:
        if self._path is not None:
            await asyncio.to_thread(self._batcher.stop)

    def _write(self, lines: Sequence[Change]) -> None:
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with open(descriptor, "ab") as file:  # noqa: PTH123 - the mode of a new file has to be given
                file.write(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
                size = file.tell()
            if size > MOST_BYTES:
                _shorten(self._path)
        except OSError as error:
            log.warning("%s is not written: %s; after a restart thresholds begin as written", self._path, error)


def _read(path: Path) -> list[Change]:
    """The changes in a file, oldest first; a line that is none, as a crash may leave, is passed over."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return []
    found: list[Change] = []
    for line in lines:
        try:
            found.append(msgspec.json.decode(line, type=Change))
        except msgspec.MsgspecError:
            continue
    return found


def _shorten(path: Path) -> None:
    """Keep the newest lines, and the newest about each thing."""
    every = _read(path)
    newest = {key(one): one for one in every[:-KEPT]}
    kept = [*newest.values(), *every[-KEPT:]]
    fresh = path.with_suffix(".new")
    fresh.write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in kept))
    fresh.chmod(0o600)
    fresh.replace(path)
