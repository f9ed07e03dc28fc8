"""Server-sent events as bytes: cutting a stream into whole events and reading one event's fields.

Line ends are LF, CR and CRLF, in any mixture, and nothing else: text libraries also split on U+2028 and its
like, which JSON may hold raw (https://html.spec.whatwg.org/multipage/server-sent-events.html). What the data
of an event means is the dialect's.
"""

from __future__ import annotations

import re

from router.errors import BadAnswer

EVENT_LIMIT = 16 * 1024 * 1024  # bytes of one event; an image in base64 fits, an endless line does not

# Two line ends in a row. Atomic groups, so that one CRLF is never taken for a CR and an LF.
_END = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_LINE = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


class Splitter:
    """Holds back the tail of an unfinished event.

    An event that ends in CR at the end of a chunk is complete at once; the LF that may follow then stands
    before the next event, where it is an empty line without meaning.
    """

    __slots__ = ("_searched", "held")

    def __init__(self) -> None:
        self.held = bytearray()
        self._searched = 0  # no event ends before this offset of `held`

    def feed(self, data: bytes) -> bytes:
        """The whole events that `data` completes, as one run of bytes. Raises `BadAnswer` past EVENT_LIMIT."""
        held = self.held
        if not held:
            if data.endswith(b"\n\n"):
                return data
            end = _last_end(data, 0)
            if end != len(data):
                held += data[end:]
                self._check()
            return data[:end]
        held += data
        end = _last_end(held, self._searched)
        if not end:
            self._check()
            return b""
        run = bytes(held[:end])
        del held[:end]
        self._check()
        return run

    def _check(self) -> None:
        # An end may begin up to three bytes before what has been searched: CR LF CR | LF.
        self._searched = max(0, len(self.held) - 3)
        if len(self.held) > EVENT_LIMIT:
            raise BadAnswer(f"the upstream sent an event of more than {EVENT_LIMIT >> 20} MiB")

    def rest(self) -> bytes:
        """What is held back: an event without its end."""
        return bytes(self.held)


def _last_end(data: bytes | bytearray, start: int) -> int:
    """Offset after the last event end in `data`, 0 if there is none at or after `start`."""
    if data.find(b"\r", start) < 0:
        at = data.rfind(b"\n\n", start)
        return at + 2 if at >= 0 else 0
    end = 0
    for found in _END.finditer(data, start):
        end = found.end()
    return end


def split(run: bytes) -> list[bytes]:
    """The single events of a run that ends at an event's end, each with its line ends."""
    if b"\r" not in run:
        cut = run.split(b"\n\n")
        whole = [part + b"\n\n" for part in cut[:-1]]
        return [*whole, cut[-1]] if cut[-1] else whole
    events: list[bytes] = []
    at = 0
    for found in _END.finditer(run):
        events.append(run[at : found.end()])
        at = found.end()
    if at < len(run):
        events.append(run[at:])
    return events


def fields(event: bytes) -> tuple[str, bytes | None]:
    """The event's name ("" when it has none) and its data, or None for comments and empty events."""
    if event.startswith(b"data: ") and event.find(b"\n") == len(event) - 2 and event.find(b"\r") < 0:
        return "", event[6:-2]  # what nearly all are: one line, and an empty one
    name = b""
    data: bytes | None = None
    for line in _LINE.split(event.removeprefix(_BOM)) if b"\r" in event else event.removeprefix(_BOM).split(b"\n"):
        if line.startswith(b"data"):
            value = _value(line, b"data")
            if value is not None:
                data = value if data is None else data + b"\n" + value
        elif line.startswith(b"event"):
            name = _value(line, b"event") or name
    return name.decode("utf-8", "replace"), data


def _value(line: bytes, field: bytes) -> bytes | None:
    rest = line[len(field) :]
    if not rest:
        return b""
    if rest[:1] != b":":
        return None  # another field that begins alike
    return rest[2:] if rest[1:2] == b" " else rest[1:]


def begin(run: bytes, at: int, end: int) -> int:
    """Where the event begins that `end` is in, of a run with LF line ends that begins at `at`."""
    before = run.rfind(b"\n\n", at, end)
    return at if before < 0 else before + 2


def event(data: bytes, name: str = "") -> bytes:
    """One event around data that holds no line end."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), data) if name else b"data: %s\n\n" % data
