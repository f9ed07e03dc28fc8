"""Metering a stream that is passed on in the dialect it came in: what every dialect's meter shares.

Events are parsed until the first content; from then on a run of events is only searched for the few byte
strings that may change something, and an event is parsed where one of them stands in it. Which strings, and what
an event means, each dialect says in its own module.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from router.errors import BadAnswer, PointsmanError, Truncated
from router.types import Usage
from router.wire import faults, sse
from router.wire.halves import Halves

Verdict = Literal["pass", "drop", "fail", "end"]


class PassMeter:
    """`router.seams.Meter` for equal dialects on both sides. Subclasses say `_see` and `signs`."""

    __slots__ = ("_splitter", "content", "deltas", "done", "failed", "parsing", "usage")

    signs: ClassVar[tuple[bytes, ...]] = ()  # a run without any of these, and with LF line ends, is only deltas
    delta: ClassVar[bytes]  # stands once in every delta; `_see` counts alike, so after the first also empty ones

    def __init__(self) -> None:
        self._splitter = sse.Splitter()
        self.content = False
        self.done = False
        self.parsing = True  # until the first content, and again where a dialect's end is near
        self.deltas = 0
        self.usage: Usage | None = None
        self.failed: PointsmanError | None = None

    def feed(self, data: bytes) -> bytes:
        """See `Meter.feed`. An upstream's error before content raises; after content it sets `failed`."""
        if self.done:
            return b""
        run = self._splitter.feed(data)
        if not run:
            return b""
        passed = 0 if self.parsing else self._pass(run, 0)
        return run if passed == len(run) else self._careful(run, passed)

    def close(self) -> bytes:
        """See `Meter.close`. The last event may lack its empty line; it counts when it is whole otherwise."""
        last = b""
        if not self.done and (rest := self._splitter.rest().strip(b"\r\n")):
            last = self._careful(rest + b"\n\n", 0, lenient=True)
        if self.done:
            return last
        tail = last + self._finish()
        self.done = True
        return tail

    def _careful(self, run: bytes, passed: int, *, lenient: bool = False) -> bytes:
        kept = [run[:passed]]
        for event in sse.split(run[passed:]) if b"\r" in run else self._events(run, passed, kept):
            name, data = sse.fields(event)
            if data is None or not data:
                kept.append(event)
                continue
            try:
                verdict = self._see(name, data)
            except BadAnswer:
                if lenient:
                    break  # the last event is cut short
                if (joined := Halves().joined(data)) == data:
                    raise
                verdict = self._see(name, joined)
            if verdict == "fail":
                error = faults.raised(data)
                if not self.content:
                    raise error
                self.failed, self.done = error, True
                break
            if isinstance(verdict, bytes):
                kept.append(verdict)
            elif verdict != "drop":
                kept.append(event)
            if verdict == "end":
                self.done = True
            if self.done:
                break
        return b"".join(kept)

    def _events(self, run: bytes, at: int, kept: list[bytes]) -> Iterator[bytes]:
        """The events of a run that have to be parsed, one by one; the deltas between them are kept and counted."""
        while at < len(run):
            if not self.parsing and (passed := self._pass(run, at)) > at:
                kept.append(run[at:passed])
                at = passed
                continue
            end = run.find(b"\n\n", at) + 2
            if end < 2:
                end = len(run)
            yield run[at:end]
            at = end

    def _pass(self, run: bytes, at: int) -> int:
        """Counts the events from here on that are only deltas, and says where they end."""
        sign = self._sign(run, at)
        end = len(run) if sign < 0 else sse.begin(run, at, sign)
        self.deltas += run.count(self.delta, at, end)
        return end

    def _sign(self, run: bytes, at: int) -> int:
        """Where the first of the strings stands that ask for a closer look; -1 where none does."""
        first = -1
        for sign in self.signs:  # `sign in run` would cost more: it begins by making an error of no use
            found = run.find(sign, at, first) if first >= 0 else run.find(sign, at)
            if found >= 0:
                first = found
        return first

    def fail(self, error: PointsmanError, request_id: str) -> bytes:
        """See `Meter.fail`."""
        raise NotImplementedError

    def _see(self, name: str, data: bytes) -> Verdict | bytes:
        """Read one event, note what it says, and say what becomes of it, or what is sent instead.

        Raises `BadAnswer` before content.
        """
        raise NotImplementedError

    def _finish(self) -> bytes:
        """What completes a stream that ended without its terminal event, where that is no failure."""
        raise Truncated("the upstream closed the stream before the answer was complete")
