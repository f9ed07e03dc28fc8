"""Limits that replicas count together, in Redis, by its clock: all claims of a request in one script, one call.

Without Redis each replica counts alone, in memory, with the limits divided by how many there last were; what is used
meanwhile is not counted afterwards. A slot is leased for a minute and renewed while its request runs, so that what a
replica held which died is free again soon.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from itertools import islice
from typing import Any

from msgspec.structs import replace

from router.seams import Claim
from router.store.limits import MemoryLimiter
from router.store.link import BOUND_S, PROBE_S, Link, ended
from router.store.redis import SEEN

LIMIT = "pointsman:{limits}:"
LEASE_S = 60.0
BATCH = 500  # slots renewed by one script: about a millisecond of Redis's time

# ARGV: take or settle, the holder, then five values for each claim: kind, limit, period, amount, optional. The last key
# counts the replicas. Gives their number and a wait for each claim, "" for none. Waits are text: Redis cuts
# fractions.
COUNT = """
local t = redis.call('TIME')
local now = t[1] + t[2] / 1000000
local op, holder, n = ARGV[1], ARGV[2], #KEYS - 1

local function claim(i)
  local at = 3 + (i - 1) * 5
  return KEYS[i], ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]), ARGV[at + 4] == '1'
end
local function ms(seconds) return math.max(1, math.ceil(seconds * 1000)) end

local function wait(i)
  local key, kind, limit, period, amount = claim(i)
  if kind == 'rate' then
    local used = math.max(0, tonumber(redis.call('GET', key) or now) - now)
    local over = used + math.min(amount / limit, 1) * period - period
    if over > 0.000001 then return over end
  elseif kind == 'sum' then
    local used = tonumber(redis.call('GET', key) or 0)
    local left = redis.call('PTTL', key)
    if used >= limit or used + amount > limit then return left > 0 and left / 1000 or period end
  else
    redis.call('ZREMRANGEBYSCORE', key, '-inf', now)
    if redis.call('ZCARD', key) + math.max(amount, 1) > limit then return 0 end
  end
  return nil
end

local function add(i)
  local key, kind, limit, period, amount = claim(i)
  if kind == 'rate' then
    local full = math.max(tonumber(redis.call('GET', key) or now), now) + amount / limit * period
    if full > now then
      redis.call('SET', key, string.format('%.6f', full), 'PX', ms(full - now))
    else
      redis.call('DEL', key)
    end
  elseif kind == 'sum' then
    if redis.call('EXISTS', key) == 1 then
      if tonumber(redis.call('INCRBYFLOAT', key, amount)) < 0 then redis.call('SET', key, '0', 'KEEPTTL') end
    elseif amount > 0 then
      redis.call('SET', key, tostring(amount), 'PX', ms(period))
    end
  elseif op == 'settle' then
    redis.call('ZREM', key, holder)
  else
    redis.call('ZADD', key, now + period, holder)
    redis.call('PEXPIRE', key, ms(period))
  end
end

local said, short, waits = {}, false, {}
if op == 'take' then
  for i = 1, n do
    waits[i] = wait(i)
    local _, _, _, _, _, optional = claim(i)
    if waits[i] and not optional then short = true end
    said[i] = waits[i] and string.format('%.6f', waits[i]) or ''
  end
end
if not short then
  for i = 1, n do
    local _, kind, _, _, amount = claim(i)
    if not waits[i] and (amount ~= 0 or (op == 'settle' and kind == 'slots')) then add(i) end
  end
end
return {redis.call('ZCOUNT', KEYS[n + 1], string.format('%.0f', now * 1000), '+inf'), said}
"""

# KEYS: of slots. ARGV: the lease in seconds, and the holder of each. What Redis lost meanwhile is there again.
RENEW = """
local t = redis.call('TIME')
local now = t[1] + t[2] / 1000000
for i, key in ipairs(KEYS) do
  redis.call('ZADD', key, now + ARGV[1], ARGV[i + 1])
  redis.call('PEXPIRE', key, math.ceil(ARGV[1] * 1000))
end
"""


class RedisLimiter:
    """A `Limiter`. Raises ValueError for a URL that names no Redis."""

    def __init__(
        self, url: str, *, bound_s: float = BOUND_S, probe_s: float = PROBE_S, lease_s: float = LEASE_S
    ) -> None:
        self._link = Link(url, bound_s=bound_s, probe_s=probe_s)
        self._count: Any = self._link.client.register_script(COUNT)
        self._renew: Any = self._link.client.register_script(RENEW)
        self._lease_s = lease_s
        self._held: dict[tuple[str, str], None] = {}  # slots by key and holder, in the order they were taken
        self._renewing: asyncio.Task[None] | None = None
        self._alone = MemoryLimiter()
        self._replicas = 1

    @property
    def errors(self) -> int:
        return self._link.errors

    async def take(self, claims: Sequence[Claim], holder: str) -> Sequence[float | None]:
        try:
            said = await self._ask("take", claims, holder)
        except ConnectionError:
            return self._alone.take([self._share(claim) for claim in claims], holder)
        waits = [float(wait) if wait else None for wait in said]
        if all(wait is None or claim.optional for wait, claim in zip(waits, claims, strict=True)):
            taken = [c for c, wait in zip(claims, waits, strict=True) if wait is None and c.amount]
            self._hold([claim for claim in taken if claim.kind == "slots"], holder)
        return waits

    def _hold(self, slots: Sequence[Claim], holder: str) -> None:
        self._held.update({(slot.key, holder): None for slot in slots})
        if self._held and (self._renewing is None or self._renewing.done()):
            self._renewing = asyncio.create_task(self._keep())

    async def _keep(self) -> None:
        """Renews what is held, while anything is."""
        while self._held:
            await asyncio.sleep(self._lease_s / 3)
            held = list(self._held)
            for start in range(0, len(held), BATCH):
                some = [one for one in islice(held, start, start + BATCH) if one in self._held]
                keys = [LIMIT + key for key, _ in some]
                args = [self._lease_s, *[holder for _, holder in some]]
                with contextlib.suppress(ConnectionError):  # counted; two more times it can fail
                    await self._link.call(lambda _, keys=keys, args=args: self._renew(keys=keys, args=args))

    async def settle(self, claims: Sequence[Claim], holder: str) -> None:
        for claim in claims:
            self._held.pop((claim.key, holder), None)
        self._alone.settle([c for c in map(self._share, claims) if c.kind == "slots"], holder)
        try:
            await self._ask("settle", claims, holder)
        except ConnectionError:
            self._alone.settle([self._share(claim) for claim in claims], holder)

    async def _ask(self, op: str, claims: Sequence[Claim], holder: str) -> Sequence[bytes]:
        args: list[str | float] = [op, holder]
        for claim in claims:
            period_s = min(claim.period_s, self._lease_s) if claim.kind == "slots" else claim.period_s
            args += [claim.kind, claim.limit, period_s, claim.amount, int(claim.optional)]
        keys = [*[LIMIT + claim.key for claim in claims], SEEN]
        replicas, said = await self._link.call(lambda _: self._count(keys=keys, args=args))
        self._replicas = max(1, int(replicas))
        return said

    def _share(self, claim: Claim) -> Claim:
        """This replica's part; one slot is the least."""
        part = claim.limit / self._replicas
        return replace(claim, limit=max(1.0, part) if claim.kind == "slots" else part)

    async def aclose(self) -> None:
        if self._renewing is not None:
            await ended(self._renewing)
        await self._link.aclose()
        await self._alone.aclose()
