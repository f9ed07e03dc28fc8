"""Whose turn it is: how requests that cost much time leave the event loop to the others.

Requests that come together would be read, measured and scored one after the other without a break, and streams would
stand still meanwhile: `Turns` lets them begin a few in each round of the loop. What is too large for that goes `aside`,
into a thread. As reading JSON holds the interpreter's lock, the largest go one at a time: for several, the loop would
wait in turn. What is done with a request is not known here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

MUCH = 4 * 1024  # bytes of a body; a smaller one takes less than it costs to wait
BIG = 256 * 1024  # a larger one is read in a thread, so that streams go on meanwhile
HUGE = 2 * 1024 * 1024  # a larger one is in no hurry
SLICE_S = 0.005  # of a round of the loop for what begins in it

_one = ThreadPoolExecutor(1, "huge-body")


async def aside(size: int, function: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """What `function` gives, which works on so many bytes: at once up to `BIG`, else from a thread."""
    if size <= BIG:
        return function(*args, **named)
    if size <= HUGE:
        return await asyncio.to_thread(function, *args, **named)
    return await asyncio.get_running_loop().run_in_executor(_one, lambda: function(*args, **named))


class Turns:
    """The requests that begin in one round of the loop, and those that wait for a later one. One per loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._begun = 0.0  # when the first began
        self._new = True  # nothing has begun in this round

    def take(self) -> asyncio.Future[None] | None:
        """What to wait for before something begins that takes a while; None: it may begin now."""
        if self._new:
            self._new = False
            self._begun = perf_counter()
            self._loop.call_soon(self._next)
            return None
        if not self._waiting and perf_counter() - self._begun < SLICE_S:
            return None
        turn = self._loop.create_future()
        self._waiting.append(turn)
        return turn

    def _next(self) -> None:
        """Another round: the one that has waited longest begins."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # else its client has left
                self._begun = perf_counter()
                self._loop.call_soon(self._next)
                turn.set_result(None)
                return
        self._new = True
