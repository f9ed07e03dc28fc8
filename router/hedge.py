"""A second attempt beside the first, where that gives no content for a while; the first to give some answers.

Nothing here chooses a deployment or sends a byte upstream: which is asked, and how, is the relay's. Each attempt runs
in a task of its own on a copy of the flight, before a `Lane` that stands for the client. The lane that content comes to
first takes the client, and the other attempt is cancelled there and then; so nothing is ever hedged past the commit
point. "The Tail at Scale" (Dean and Barroso, 2013) has the reasons.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from copy import copy
from time import perf_counter

from msgspec.structs import replace

from router.errors import Cancelled, Outrun, PointsmanError
from router.exchange import Exchange, Headers
from router.flight import Flight
from router.types import Attempt, Target, Usage

Run = Callable[[Target, Flight], Coroutine[None, None, None]]
# Of a flight's fields those that are not an attempt's own, or that stand for the whole of it.
_OWN = frozenset(("exchange", "watch", "attempts", "tries", "place"))
_ANSWERS = tuple(name for name in Flight.__struct_fields__ if name not in _OWN)


class Lane(Exchange):
    """The client as one of two attempts sees it."""

    def __init__(self, race: Race, client: Exchange, of: Flight, target: Target) -> None:
        super().__init__()
        self._race = race
        self._client = client
        self.target = target
        self.flight = copy(of)
        self.flight.exchange = self
        self.flight.attempts, self.flight.made = [], []
        self.task: asyncio.Task[None] | None = None
        self.started = client.started

    @property
    def error(self) -> BaseException | None:
        """How the attempt ended; it has ended."""
        task = self.task
        if task is None or task.cancelled():
            return asyncio.CancelledError()
        return task.exception()

    def notice(self, left: Callable[[], None]) -> None:
        """The flight's own watch looks after the client."""

    def ignore(self) -> None:
        """Likewise."""

    async def answer(self, status: int, headers: Headers, body: bytes) -> None:
        self._race.take(self)
        self.started = self.committed = self.ended = True
        await self._client.answer(status, headers, body)

    async def start_stream(self, headers: Headers) -> None:
        self._race.take(self)
        self.started = True
        if not self._client.started:
            await self._client.start_stream(headers)

    async def stream(self, data: bytes) -> None:
        self._race.take(self)
        self.committed = True
        self.writes += 1
        self.sending = True
        try:
            await self._client.stream(data)
        finally:
            self.sending = False

    async def ping(self, headers: Headers) -> None:
        if self._race.winner in (None, self):
            await self._client.ping(headers)

    async def end(self, data: bytes = b"") -> None:
        self.ended = True
        await self._client.end(data)


class Race:
    """The attempts of one flight that run beside each other."""

    def __init__(self, flight: Flight, run: Run) -> None:
        self._flight = flight
        self._run = run
        self.lanes: list[Lane] = []
        self.winner: Lane | None = None
        self._taken = 0.0  # perf_counter, when the winner took the client

    def take(self, lane: Lane) -> None:
        """Content has come to this lane. Ends it where the other one has the client."""
        if self.winner is None:
            self.winner, self._taken = lane, perf_counter()
            for other in self.lanes:
                if other is not lane and other.task is not None:
                    other.task.cancel()
        elif self.winner is not lane:
            raise asyncio.CancelledError

    async def run(self, first: Target, after_s: float, another: Callable[[], Target | None]) -> None:
        """Answer the client from `first`, or from what `another` gives once `after_s` have passed. Raises what ended
        the attempt that had the client, else what ended the last one."""
        flight = self._flight
        try:
            await asyncio.wait({self._begin(flight, first)}, timeout=after_s)
            only = self.lanes[0]
            if self.winner is None and only.task is not None and not only.task.done():
                second = another()
                if second is not None:
                    only.flight.tries += 1  # of both, in the headers of whichever answers
                    self._begin(only.flight, second)
                    self.lanes[1].flight.tries -= 1
            await asyncio.wait({lane.task for lane in self.lanes if lane.task is not None})
        finally:
            await self._end()
        self._conclude()

    def outrun(self) -> tuple[Target, float] | None:
        """Who was outrun, if anybody, and for how many seconds it had been asked by then."""
        if self.winner is None:
            return None
        losers = [lane for lane in self.lanes if lane.task is not None and lane.task.cancelled()]
        return (losers[0].target, losers[0].flight.waited_s(self._taken)) if losers else None

    def _begin(self, of: Flight, target: Target) -> asyncio.Task[None]:
        lane = Lane(self, self._flight.exchange, of, target)
        self.lanes.append(lane)
        lane.task = asyncio.create_task(self._attempt(lane))
        return lane.task

    async def _attempt(self, lane: Lane) -> None:
        watch = lane.flight.watch = self._flight.watch.beside(lane)
        try:
            await self._run(lane.target, lane.flight)
        finally:
            watch.stop()
            if watch.error is not None:
                await watch.settle()

    async def _end(self) -> None:
        """No attempt outlives the flight; what they came to is the flight's."""
        tasks = [lane.task for lane in self.lanes if lane.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        flight, last = self._flight, self.winner or self.lanes[-1]
        for lane in self.lanes:
            if lane is not last:
                flight.attempts += self._outrun(lane) if self.winner is not None else lane.flight.attempts
        if self.winner is not None and len(self.lanes) > 1:
            self.winner.flight.attempts[:] = [
                replace(a, usage=self.winner.flight.tokens()) for a in self.winner.flight.attempts
            ]
        flight.attempts += last.flight.attempts
        flight.tries = max(lane.flight.tries for lane in self.lanes)
        for name in _ANSWERS:
            if hasattr(last.flight, name):
                setattr(flight, name, getattr(last.flight, name))

    def _outrun(self, lane: Lane) -> list[Attempt]:
        """What was asked of it is paid for: its prompt was read, as far as anybody knows."""
        signals = lane.flight.signals
        read = Usage(input=0 if signals is None else signals.input_tokens, estimated=True)
        return [
            replace(a, error=Outrun.code, usage=read) if a.error == Cancelled.code else a for a in lane.flight.attempts
        ]

    def _conclude(self) -> None:
        asked = [lane for lane in self.lanes if lane.flight.attempts] or self.lanes
        errors = [lane.error for lane in ([self.winner] if self.winner is not None else asked)]
        ours = [error for error in errors if error is not None and not isinstance(error, PointsmanError)]
        if (error := ours[0] if ours else errors[-1]) is not None:
            raise error
