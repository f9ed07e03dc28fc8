"""The way to Redis: every call bounded in time, failures counted and told of once an outage, and a breaker.

Below the place where failures are swallowed, so that none is taken for a success. What is kept there is `redis`'s.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from redis.asyncio import Redis
from redis.asyncio.connection import BlockingConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

T = TypeVar("T")

log = logging.getLogger("pointsman.store")

BOUND_S = 0.05  # what a request may wait for one call
CONNECT_S = 1.0  # while nothing waits: connect, greet and authenticate
FAILURES = 3  # in a row; then nothing is asked until a probe was answered in time
PROBE_S = 1.0
# uvloop says RuntimeError where a connection was lost before what is written to it.
FAULTS = (RedisError, OSError, TimeoutError, RuntimeError)
CANCEL_AGAIN_S = 0.1
TELL_S = 10.0  # between two lines in the log: a Redis may come and go, or refuse one call and take the next
# What calls do: a replica, a full Redis and a user without rights answer a ping.
PROBE, PROBE_KEY = "return redis.call('SET', KEYS[1], '1', 'PX', 1000)", "pointsman:{probe}"
CONNECTIONS = 16  # a Redis that hangs holds no more sockets than this


class Link:
    """One Redis. Raises ValueError for a URL that names none. Used on one event loop."""

    def __init__(self, url: str, *, bound_s: float, probe_s: float) -> None:
        self.errors = 0  # calls that failed; those that the breaker spared are none
        self._bound_s = bound_s
        self._probe_s = probe_s
        self._failures = 0  # in a row
        self._refusals = 0  # calls that change something and were answered with an error, in a row
        self._told = -TELL_S
        self._owed = False  # whether the log has yet to hear that Redis answers again
        self._up = asyncio.Event()
        self._up.set()
        self._probing: asyncio.Task[None] | None = None
        # RESP2 spares a connection's first calls one round trip; one retry owner, and it is not this library.
        pool_of: Callable[..., Any] = cast(Any, BlockingConnectionPool).from_url
        pool = pool_of(url, max_connections=CONNECTIONS, timeout=bound_s, protocol=2, retry=Retry(NoBackoff(), 0))
        pool.connection_kwargs["decode_responses"] = False  # whatever the URL says
        try:
            pool.connection_class(**pool.connection_kwargs)
        except TypeError:
            raise ValueError("the URL has an option that the Redis client does not know") from None
        self.client: Any = Redis.from_pool(pool)

    @property
    def is_up(self) -> bool:
        return self._up.is_set()

    async def up(self) -> None:
        """Until calls are made again."""
        await self._up.wait()

    async def call(
        self, make: Callable[[Any], Awaitable[T]], *, bound_s: float | None = None, reads: bool = False
    ) -> T:
        """What `make(client)` gives. Raises ConnectionError: at once while the breaker is open, else within the bound.

        Only calls within the usual bound say that Redis is well: a longer one may be answered by a slow Redis. And one
        that only `reads` is answered by a Redis that takes nothing.
        """
        if not self._up.is_set():
            raise ConnectionError("the store does not answer")
        before = _cancels()
        try:
            async with asyncio.timeout(bound_s or self._bound_s):
                got = await make(self.client)
        except FAULTS as error:
            # The client may raise an error of its own in place of a cancel, as it closes its connection.
            if _cancels() > before:
                raise asyncio.CancelledError from None
            self._failed(error)
            raise ConnectionError("the store does not answer") from None
        if _cancels() > before:  # or go on as if there had been none
            raise asyncio.CancelledError
        if bound_s is None:
            self._failures = 0
        if not reads:
            self._refusals = 0
        return got

    def _failed(self, error: Exception) -> None:
        self.errors += 1
        self._failures += 1
        self._refusals += isinstance(error, ResponseError)
        if max(self._failures, self._refusals) >= FAILURES and self._up.is_set():
            self._up.clear()
            self._probing = asyncio.create_task(self._probe())
        elif not isinstance(error, ResponseError):
            return
        self._tell(error)

    def _tell(self, error: Exception) -> None:
        now = asyncio.get_running_loop().time()
        if now < self._told + TELL_S:
            return
        self._told, self._owed = now, True
        what = "refuses a call" if isinstance(error, ResponseError) else "does not answer"
        why = f"{type(error).__name__}: {error}" if isinstance(error, RedisError) else type(error).__name__
        log.error("the shared store %s (%s); this process goes on with what it knows itself", what, why)

    async def _probe(self) -> None:
        """Alone, and beside all requests: two calls, of which the second must be as fast as theirs. Over a new
        connection, as the address may lead to another server by now."""
        while True:
            await asyncio.sleep(self._probe_s)
            try:
                async with asyncio.timeout(CONNECT_S):
                    await self.client.connection_pool.disconnect()
                    await self.client.eval(PROBE, 1, PROBE_KEY)
                async with asyncio.timeout(self._bound_s):
                    await self.client.eval(PROBE, 1, PROBE_KEY)
            except FAULTS:
                self.errors += 1
                continue
            self._failures = self._refusals = 0
            self._up.set()
            if self._owed:
                self._owed = False
                log.warning("the shared store answers again; %d calls failed so far", self.errors)
            return

    async def aclose(self) -> None:
        if self._probing is not None:
            await ended(self._probing)
        try:
            async with asyncio.timeout(CONNECT_S):
                await self.client.aclose(close_connection_pool=True)
        except FAULTS:
            pass  # it is gone already


def _cancels() -> int:
    """How often the running task was cancelled so far."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


async def ended(task: asyncio.Task[None]) -> None:
    """Cancels a task until it ends, in case somebody in between takes a cancel for something else."""
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=CANCEL_AGAIN_S)
