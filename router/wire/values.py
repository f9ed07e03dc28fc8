"""How many values a JSON text has, before anything is made of it.

A decoder makes an object of each, and holds the interpreter's lock until it has made the last: ten million of them, in
20 MB, would stop every stream for a second. Looked at in blocks, by operations that let go of the lock.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

# A prompt of a million tokens, written as numbers, has less. So many take some 50 ms of the lock.
MOST = 1 << 20

_BLOCK = 256 * 1024  # bytes
_COMMA, _OPEN, _QUOTE, _BACKSLASH = b',{"\\'
_CASE = 0x20  # what `[` and `{` differ in

Bytes = NDArray[np.uint8]
Bools = NDArray[np.bool_]


def too_many(body: bytes, most: int = MOST) -> bool:
    """Whether a JSON text has more values than that: commas and opening brackets, of which each begins one."""
    if len(body) <= most:
        return False
    marks = 0
    for block in _blocks(body):
        marks += int(np.count_nonzero(_marks(block)))
        if marks > most:
            return _outside(body, most)  # most of them may be punctuation in texts
    return False


def _blocks(body: bytes) -> Iterator[Bytes]:
    whole = np.frombuffer(body, np.uint8)
    return (whole[at : at + _BLOCK] for at in range(0, len(whole), _BLOCK))


def _marks(block: Bytes) -> Bools:
    found: Bools = (block == _COMMA) | ((block | _CASE) == _OPEN)
    return found


def _outside(body: bytes, most: int) -> bool:
    """The same, of what stands outside of strings."""
    marks = 0
    inside = escaped = False  # whether a block begins within a string, and after a backslash that counts
    for block in _blocks(body):
        quotes: Bools = block == _QUOTE
        slashes: Bools = block == _BACKSLASH
        if escaped or slashes.any():
            after, escaped = _escaped(slashes, escaped)
            quotes &= ~after
        within: Any = np.logical_xor.accumulate(quotes)
        if inside:
            within = ~within
        marks += int(np.count_nonzero(_marks(block) & ~within))
        if marks > most:
            return True
        inside = bool(within[-1])
    return False


def _escaped(slashes: Bools, before: bool) -> tuple[Bools, bool]:
    """Which bytes an odd number of backslashes precedes, and whether the byte after the block is one of them. `before`:
    whether the block's first byte is."""
    places = np.arange(1, len(slashes) + 1)
    # The place after the last byte that is no backslash; 0, or -1 where the block goes on from one, if there is none.
    start = np.maximum.accumulate(np.where(slashes, -1 if before else 0, places))
    odd: Bools = ((places - start) & 1).astype(np.bool_)
    return np.concatenate(([before], odd[:-1])), bool(odd[-1])
