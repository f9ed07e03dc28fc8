"""The clocks of a request: its limits, its client's presence, and the comments that keep a silent stream open.

One ticker looks at every request in flight forty times a second. A timer of the event loop's own for each request
costs more than all of the request's other bookkeeping: libuv opens and closes a handle for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from router.config import Timeouts
from router.errors import Cancelled, TimedOut
from router.exchange import Exchange, Headers

TICK_S = 0.025  # how late a limit may be noticed
QUIET_S = 7.0  # a stream that sent nothing for one whole period gets a comment: at least one every 14 s
NEVER = float("inf")


class Ticker:
    """Wakes the watches whose time has come. One per event loop; runs only while there are any."""

    def __init__(self) -> None:
        self._watches: set[Watch] = set()
        self.loop = asyncio.get_running_loop()
        self._running = False

    def __len__(self) -> int:
        return len(self._watches)

    def add(self, watch: Watch) -> None:
        self._watches.add(watch)
        if not self._running:
            self._running = True
            self.loop.call_later(TICK_S, self._tick)

    def discard(self, watch: Watch) -> None:
        self._watches.discard(watch)

    def _tick(self) -> None:
        now = self.loop.time()
        for watch in [watch for watch in self._watches if watch.due <= now]:
            watch.look(now)
        if self._watches:
            self.loop.call_later(TICK_S, self._tick)
        else:
            self._running = False


class Watch(Struct, eq=False):
    """When a limit passes, or the client leaves, the request's task is cancelled and `error` says why; the code that
    is cancelled calls `reason()` to turn that back into an error."""

    _exchange: Exchange
    _ticker: Ticker
    _loop: asyncio.AbstractEventLoop
    _task: asyncio.Task[Any] | None
    started: float
    _quiet_at: float
    content: bool = False  # set by the relay: the first content has arrived
    error: Exception | None = None
    due: float = 0.0  # the next tick has a look, but a quick request is over by then
    _limits: Timeouts | None = None  # None = no clock runs
    _began: float = 0.0  # the attempt
    _last: float | None = None
    _noticing: bool = False
    _pings: set[asyncio.Task[None]] | None = None
    _ping_headers: Callable[[], Headers] | None = None
    _writes: int = 0

    def beside(self, exchange: Exchange) -> Watch:
        """The watch of an attempt that the calling task makes beside others of the same request."""
        other = watching(exchange, self._ticker)
        other.started = self.started
        return other

    def attempt(self, timeouts: Timeouts, ping_headers: Callable[[], Headers] | None) -> None:
        """A new attempt begins: its clocks start now, but `total_s` counts from the request's start.

        Idleness starts with the first byte: before it `first_byte_s` holds. `ping_headers` is None where the answer
        is not a stream: then only the whole of it counts.
        """
        self._limits = timeouts
        self._began = self._loop.time()
        self._last = None
        self.content = False
        self._ping_headers = ping_headers
        self.due = 0.0

    def left_s(self, timeouts: Timeouts) -> float:
        """Seconds of the whole request's time that an attempt which began now would have."""
        return self.started + timeouts.total_s - self._loop.time()

    def alive(self) -> None:
        """Any byte of the upstream has arrived."""
        self._last = self._loop.time()

    def rest(self, ping_headers: Callable[[], Headers] | None = None) -> None:
        """Between attempts no clock runs. With `ping_headers` a silent stream is kept open all the same."""
        self._limits = None
        if ping_headers is not None:
            self._ping_headers = ping_headers

    def look(self, now: float) -> None:
        """Called by the ticker once `due` has come: at the first tick, and then when something may be due."""
        if not self._noticing:
            self._noticing = True
            self._exchange.notice(self._left)
        if now >= self._quiet_at:
            self._quiet_at = now + QUIET_S
            self._ping()
        self.due = self._quiet_at
        if self._limits is not None:
            at, clock, seconds, idle_s = self._soonest(self._limits)
            if at <= now:
                self._stop_with(TimedOut(clock, seconds))
                self.due = NEVER
            else:
                self.due = min(self.due, at, now + idle_s)

    def _soonest(self, limits: Timeouts) -> tuple[float, str, float, float]:
        """When the next limit falls, which it is, its seconds, and those of silence that are borne. A client that reads
        slowly is not the upstream's silence."""
        idle_s = limits.total_s if self._ping_headers is None else limits.idle_s
        clocks = [(self.started + limits.total_s, "total", limits.total_s)]
        if not self.content:
            clocks.append((self._began + limits.first_byte_s, "first_byte", limits.first_byte_s))
        if self._last is not None and not self._exchange.sending:
            clocks.append((self._last + idle_s, "idle", idle_s))
        return (*min(clocks), idle_s)

    def _ping(self) -> None:
        if self._ping_headers is not None and self._writes == self._exchange.writes:
            ping = self._loop.create_task(self._exchange.ping(self._ping_headers()))
            self._pings = self._pings or set()
            self._pings.add(ping)
            ping.add_done_callback(self._pings.discard)
        self._writes = self._exchange.writes

    def _left(self) -> None:
        self._stop_with(Cancelled("the client left"))

    def _stop_with(self, error: Exception) -> None:
        if self.error is None and self._task is not None:
            self.error = error
            self._task.cancel()

    def reason(self) -> Exception | None:
        """After a CancelledError: the watch's own reason, taken once, or None for somebody else's cancel."""
        error, self.error = self.error, None
        if error is not None and self._task is not None:
            self._task.uncancel()
        return error

    def stop(self) -> None:
        """The request is over. `settle` afterwards when `error` is set."""
        self._ticker.discard(self)
        if self._noticing:
            self._exchange.ignore()
        for ping in self._pings or ():
            ping.cancel()

    async def settle(self) -> None:
        """A limit passed after the request's last await: let its cancel land here, harmlessly."""
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.reason()


def watching(exchange: Exchange, ticker: Ticker) -> Watch:
    """The clocks of a request that begins now, in the task that serves it."""
    loop = ticker.loop
    now = loop.time()
    watch = Watch(exchange, ticker, loop, asyncio.current_task(loop), now, now + QUIET_S)
    ticker.add(watch)
    return watch
