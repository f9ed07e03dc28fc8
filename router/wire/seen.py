"""Bodies seen before. An agent sends its whole conversation with every step: the body begins as the one before it did
and ends in the same fields, and only what stands between is new. `Seen` reads what is new, and takes the rest from
what it read then.

Nothing is taken for the same that was not compared byte for byte, so what is kept of one caller's body tells another
nothing that is not in its own. A body that is anything but a continuation is read whole by its codec, which also finds
what is wrong with it.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from threading import Lock
from typing import Protocol

from msgspec import MsgspecError, Raw, Struct
from msgspec.json import Decoder
from msgspec.structs import replace

from router.types import Dialect, Noted, Request, Turn

Span = tuple[int, int]  # byte offsets, end exclusive

# Bytes of all that is kept. With it a thousand open streams of agents stay below 60 KB each (docs/performance.md); it
# holds some 140 conversations of 77 KB. More of them at once share what their agents have in common.
KEPT = 32 * 1024 * 1024
_WEIGHT = (
    3  # a body counts so many times: its texts are kept beside it, and text beyond ASCII takes more than its bytes
)
_SHARE = 8  # of what is kept one body may take so much
_SHORTEST = 1024  # bytes of a conversation that is kept
_SAMPLE = 64  # bytes by which a conversation is looked up
_SPACE = b" \t\r\n"
_GAP = re.compile(rb"[ \t\r\n,]*")  # between messages
_EACH = Decoder(list[Raw])


class Reader(Protocol):
    """What a codec does for `Seen`."""

    @property
    def dialect(self) -> Dialect: ...

    def whole(self, body: bytes) -> tuple[Request, Span | None]:
        """A body read whole, and where its array of messages stands; None where it is not to be gone on from.
        Raises `BadRequest`."""
        ...

    def more(self, array: bytes) -> list[Turn | None]:
        """The turn of each message of an array, None for one that makes none. Raises `MsgspecError` or
        `RecursionError` where anything about it is unusual."""
        ...


class Kept(Struct, gc=False):
    """One body with what was read of it. Its array of messages ends at `end`, and the last message in it at `last`."""

    request: Request
    start: int  # of the first message
    last: int
    end: int  # the bracket that closes the array; what follows it is the tail
    marks: list[Span]  # where messages end, and the number of turns up to there: those that were looked up so far


class Seen:
    """What was read of the newest bodies. Its methods may be called from several threads."""

    def __init__(self, kept: int = KEPT) -> None:
        self._most = kept  # bytes
        self._kept: OrderedDict[tuple[Dialect, int, bytes], Kept] = OrderedDict()  # the longest unused first
        self._sizes: dict[int, int] = {}  # how many of them are of which size
        self._descending: list[int] = []
        self.weight = 0  # bytes that what is kept counts for
        self._lock = Lock()

    def read(self, body: bytes, reader: Reader) -> Request:
        """The request in `body`. Raises `BadRequest`."""
        found = self._find(reader.dialect, body)
        read = None if found is None else _continued(found[1], body, reader)
        if read is None:
            request, span = reader.whole(body)
            read = None if span is None else _kept(request, span)
            if read is None:
                return request
        self._keep(read, None if found is None else found[0])
        return read.request

    def __len__(self) -> int:
        return len(self._kept)

    def _find(self, dialect: Dialect, body: bytes) -> tuple[tuple[Dialect, int, bytes], Kept] | None:
        length = len(body)
        for size in self._descending:
            if size > length:
                continue
            key = (dialect, size, body[size - _SAMPLE : size])
            found = self._kept.get(key)
            if found is not None:
                return key, found
        return None

    def _keep(self, read: Kept, before: tuple[Dialect, int, bytes] | None) -> None:
        """Keeps what was read in place of what it goes on from."""
        size = _size(read.last)
        body = read.request.body
        if size < _SHORTEST or _WEIGHT * len(body) > self._most // _SHARE:
            return
        key = (read.request.dialect, size, body[size - _SAMPLE : size])
        with self._lock:
            if before is not None and before != key:
                self._drop(before)
            if (old := self._kept.get(key)) is None:
                self._count(size, 1)
            else:
                self.weight -= _WEIGHT * len(old.request.body)
            self._kept[key] = read
            self._kept.move_to_end(key)
            self.weight += _WEIGHT * len(body)
            while self.weight > self._most:
                self._drop(next(iter(self._kept)))

    def _drop(self, key: tuple[Dialect, int, bytes]) -> None:
        gone = self._kept.pop(key, None)
        if gone is not None:
            self.weight -= _WEIGHT * len(gone.request.body)
            self._count(key[1], -1)

    def _count(self, size: int, by: int) -> None:
        count = self._sizes.get(size, 0) + by
        if count == 0:
            del self._sizes[size]
        else:
            self._sizes[size] = count
        if count == 0 or count == by:
            self._descending = sorted(self._sizes, reverse=True)


SEEN = Seen()  # every dialect's: the bound is the process's


def _size(length: int) -> int:
    """The largest power of two, or one and a half times one, that is not above `length`."""
    power = 1 << (length.bit_length() - 1) if length else 0
    return power + power // 2 if length >= power + power // 2 else power


def _kept(request: Request, span: Span) -> Kept | None:
    start, end = span[0] + 1, span[1] - 1
    last = _before(request.body, end)
    if not request.body.startswith(b"}", last - 1):
        return None  # there is no message
    return Kept(replace(request, noted=Noted()), start, last, end, [])


def _continued(kept: Kept, body: bytes, reader: Reader) -> Kept | None:
    """What `body` comes to, where it goes on from what is kept."""
    old = kept.request
    shared = _shared(kept, body, reader)
    tail = memoryview(old.body)[kept.end :]
    end = len(body) - len(tail)
    if shared is None or shared[0] > end or not body.endswith(tail):
        return None
    at, count = shared
    new = _new(body[at:end], reader)
    if new is None:
        return None
    moved = end - kept.end
    known = old.turns if count == len(old.turns) else old.turns[:count]
    options = old.stream_options_span
    request = replace(
        old,
        body=body,
        model_span=_moved(old.model_span, kept.end, moved),
        stream_options_span=None if options is None else _moved(options, kept.end, moved),
        turns=known + tuple([turn for turn in new if turn is not None]),
        noted=None if old.noted is None else old.noted.up_to(count, at, (kept.end, end)),
    )
    marks = kept.marks if at == kept.last else [mark for mark in kept.marks if mark[0] <= at]
    return Kept(request, kept.start, _before(body, end), end, marks)


def _moved(span: Span, end: int, by: int) -> Span:
    return span if span[1] <= end else (span[0] + by, span[1] + by)


def _new(between: bytes, reader: Reader) -> list[Turn | None] | None:
    """The turns between messages that are known and the bracket that ends the array."""
    rest = between.lstrip(_SPACE)
    if not rest:
        return []
    if not rest.startswith(b","):
        return None
    try:
        if not rest.isascii():
            rest.decode()  # what the codec does not read is not checked
        return reader.more(b"[%b]" % rest[1:]) or None
    except (MsgspecError, RecursionError, UnicodeDecodeError):
        return None


def _shared(kept: Kept, body: bytes, reader: Reader) -> Span | None:
    """Up to where the messages are the same, and the turns that these make; None where not even the first is."""
    old = memoryview(kept.request.body)
    if body.startswith(old[: kept.last]):
        return kept.last, len(kept.request.turns)
    if not body.startswith(old[: _size(kept.last)]):
        return None  # alike only where it was looked up
    _mark(kept, reader)
    marks, least, most, at = kept.marks, 0, len(kept.marks), 0
    while least < most:  # `least` messages are known to be the same, up to `at`
        middle = (least + most + 1) // 2
        to = marks[middle - 1][0]
        if body.startswith(old[at:to], at):
            least, at = middle, to
        else:
            most = middle - 1
    return marks[least - 1] if least else None


def _mark(kept: Kept, reader: Reader) -> None:
    """Look up where each message ends, as far as that was not done; not at all where one of them is unusual."""
    body, marks = kept.request.body, list(kept.marks)
    rest = body[marks[-1][0] if marks else kept.start : kept.last].lstrip(_SPACE + b",")
    array = b"[%b]" % rest
    try:
        each, turns = _EACH.decode(array), reader.more(array)
    except (MsgspecError, RecursionError):
        return
    made = [turn is not None for turn in turns]
    count = marks[-1][1] if marks else len(kept.request.turns) - sum(made)
    at = kept.last - len(rest)
    for raw, one in zip(each, made, strict=True):
        at += len(memoryview(raw))
        count += one
        marks.append((at, count))
        if (gap := _GAP.match(body, at)) is not None:
            at = gap.end()
    kept.marks = marks


def _before(body: bytes, end: int) -> int:
    """Where the white space before `end` begins; of very much of it, somewhere within."""
    near = body[max(0, end - _SAMPLE) : end]
    return end - len(near) + len(near.rstrip(_SPACE))
