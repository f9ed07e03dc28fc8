"""Sessions that replicas share, in Redis, and what replicas tell each other: load, cooldowns, configuration.

This process's memory has everything that it has touched itself: it answers while Redis does not, and from it Redis is
filled again. A touch is kept here and sent on in batches, so no request waits for it. Keys that one script reads have
one hash tag. Time is Redis's own where replicas compare it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from router.seams import Others, Presence, Wish
from router.store.link import BOUND_S, CONNECT_S, PROBE_S, Link, ended
from router.store.memory import MemoryStore
from router.store.redis_places import Places
from router.types import Session

SESSION = "pointsman:{sessions}:"
SEEN, TOLD = "pointsman:{replicas}:seen", "pointsman:{replicas}:told"
PRESENCE_S = 5.0  # a replica that says nothing for so long is gone, and so are its calls in flight
BATCH = 200  # sessions sent at once: a few milliseconds of this process's time
PENDING = 100_000  # sessions that wait for Redis; as many as memory holds
AGAIN_S = 0.1

# Says that a replica is there and what it tells; gives Redis's time, whether it knew of it, and what all told.
MEET = """
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
for _, gone in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now)) do
  redis.call('ZREM', KEYS[1], gone)
  redis.call('HDEL', KEYS[2], gone)
end
local known = redis.call('HEXISTS', KEYS[2], ARGV[1])
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], now .. ' ' .. ARGV[3])
redis.call('PEXPIRE', KEYS[1], 86400000)
redis.call('PEXPIRE', KEYS[2], 86400000)
return {now, known, redis.call('HGETALL', KEYS[2])}
"""
LEAVE = "redis.call('ZREM', KEYS[1], ARGV[1]) return redis.call('HDEL', KEYS[2], ARGV[1])"

_sessions = msgspec.json.Decoder(Session)
_presences = msgspec.json.Decoder(Presence)


class _Waiting(Struct, frozen=True):
    """A session that Redis does not have yet. `unless`: only where it has none, since a replica may know better."""

    session: Session
    until: float  # monotonic seconds
    unless: bool


class RedisStore:
    """Raises ValueError for a URL that names no Redis."""

    def __init__(
        self, url: str, *, bound_s: float = BOUND_S, probe_s: float = PROBE_S, presence_s: float = PRESENCE_S
    ) -> None:
        self._link = Link(url, bound_s=bound_s, probe_s=probe_s)
        self._presence_ms = int(presence_s * 1000)
        self._local = MemoryStore(limit=PENDING)
        self._waiting: OrderedDict[str, _Waiting] = OrderedDict()
        self._wake = asyncio.Event()
        self._sending = asyncio.create_task(self._send())
        self._meet: Any = self._link.client.register_script(MEET)
        self._leave: Any = self._link.client.register_script(LEAVE)
        self._places = Places(self._link, SEEN)
        self._replica: str | None = None  # under which name this process has met the others

    @property
    def errors(self) -> int:
        return self._link.errors

    # --- sessions ----------------------------------------------------------------------------------------

    async def session(self, *ids: str) -> Session | None:
        return next((session for session in await self.sessions(*ids) if session is not None), None)

    async def sessions(self, *ids: str) -> list[Session | None]:
        """One call, however many ids. What this process knows stands in where Redis is silent or has lost it, and
        goes first while Redis has not been told of it."""
        mine = await self._local.sessions(*ids)
        if any(id_ in self._waiting for id_ in ids):
            return mine
        try:
            keys = [SESSION + id_ for id_ in ids]
            found: Sequence[bytes | None] = await self._link.call(lambda c: c.mget(keys), reads=True)
        except ConnectionError:
            if not any(mine):
                raise
            return mine
        return [_read(raw) or known for raw, known in zip(found, mine, strict=True)]

    def touch(self, session: Session, ttl_s: float) -> None:
        self._local.touch(session, ttl_s)
        self._queue(_Waiting(session, time.monotonic() + ttl_s, unless=False))

    def _queue(self, waiting: _Waiting) -> None:
        self._waiting[waiting.session.id] = waiting
        if len(self._waiting) > PENDING:
            self._waiting.popitem(last=False)
        self._wake.set()

    async def _send(self) -> None:
        """Sends what waits, a batch after the other; what a silent Redis did not take waits for its return."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                await self._link.up()
                if not await self._send_some():
                    await asyncio.sleep(AGAIN_S)

    async def _send_some(self) -> bool:
        now = time.monotonic()
        some = [waiting for _, waiting in zip(range(BATCH), self._waiting.values(), strict=False)]
        pipe = self._link.client.pipeline(transaction=False)
        for waiting in some:
            left_ms = int((waiting.until - now) * 1000)
            if left_ms > 0:
                value = msgspec.json.encode(waiting.session)
                pipe.set(SESSION + waiting.session.id, value, px=left_ms, nx=waiting.unless)
        try:
            await self._link.call(lambda _: _taken(pipe), bound_s=CONNECT_S)
        except ConnectionError:
            return False
        for waiting in some:
            if self._waiting.get(waiting.session.id) is waiting:  # else it was touched meanwhile
                del self._waiting[waiting.session.id]
        return True

    def _send_all_again(self) -> None:
        """Redis was emptied: give it what this process knows."""
        now = time.monotonic()
        for session, until in self._local.items():
            if until > now and session.id not in self._waiting:
                self._queue(_Waiting(session, until, unless=True))

    # --- replicas ----------------------------------------------------------------------------------------

    async def meet(self, mine: Presence) -> Others:
        args = [mine.replica, self._presence_ms, msgspec.json.encode(mine)]
        # The first time nobody waits, and there is a connection to make.
        bound_s = CONNECT_S if self._replica is None else None
        try:
            now, known, told = await self._link.call(
                lambda _: self._meet(keys=[SEEN, TOLD], args=args), bound_s=bound_s
            )
        except ConnectionError:
            self._places.lost()
            raise
        if not known and self._replica is not None:
            self._places.lost()
            self._send_all_again()
        self._replica = mine.replica
        others = [read for name, raw in _pairs(told) if name != mine.replica.encode() and (read := _told(raw, now))]
        return _together(others)

    async def share(self, replica: str, wishes: Sequence[Wish]) -> dict[str, int]:
        return await self._places.share(replica, wishes)

    async def aclose(self) -> None:
        """Sends what waits, and says goodbye, where that takes no time."""
        await ended(self._sending)
        if self._link.is_up:
            if self._waiting:
                await self._send_some()
            if self._replica is not None:
                args = [self._replica]
                with contextlib.suppress(ConnectionError):  # it is forgotten soon
                    await self._link.call(lambda _: self._leave(keys=[SEEN, TOLD], args=args))
        await self._link.aclose()
        await self._local.aclose()


async def _taken(pipe: Any) -> None:
    """Raises where Redis took none of it; a single one that it refuses must not hold up the others for ever."""
    answers: list[Any] = await pipe.execute(raise_on_error=False)
    refused = [answer for answer in answers if isinstance(answer, Exception)]
    if refused and len(refused) == len(answers):
        raise refused[0]


def _read(raw: bytes | None) -> Session | None:
    try:
        return None if raw is None else _sessions.decode(raw)
    except msgspec.DecodeError:  # written by another version
        return None


def _pairs(told: Any) -> list[tuple[bytes, bytes]]:
    """RESP2 gives a hash as one list."""
    return list(zip(told[::2], told[1::2], strict=True))


def _told(raw: bytes, now_ms: int) -> Presence | None:
    """What a replica told, with its cooldowns as they are now."""
    at_ms, _, text = raw.partition(b" ")
    try:
        told = _presences.decode(text)
    except msgspec.DecodeError:
        return None
    age_s = (now_ms - int(at_ms)) / 1000
    cooling = {name: left_s - age_s for name, left_s in told.cooling.items() if left_s > age_s}
    return msgspec.structs.replace(told, cooling=cooling)


def _together(others: Sequence[Presence]) -> Others:
    in_flight: dict[str, int] = {}
    cooling: dict[str, float] = {}
    limited: set[str] = set()
    for told in others:
        for name, count in told.in_flight.items():
            in_flight[name] = in_flight.get(name, 0) + count
        for name, left_s in told.cooling.items():
            cooling[name] = max(left_s, cooling.get(name, 0.0))
        limited.update(told.limited)
    return Others(told=tuple(others), in_flight=in_flight, cooling=cooling, limited=frozenset(limited))
