"""How many requests of each group every replica may have at a time, so that together they have no more than its limit.

Places are given out ahead, beside all requests, a few times a second: who wants few lends the others what it does not
use, and who wants more than there is gets as much as the others. A replica counts for itself which of its places are
taken. The sum of what the replicas have never passes the limit: nobody is given what another one still has.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from router.seams import Wish
from router.store.link import Link

PLACES = "pointsman:{replicas}:places:"
# After Redis was away or emptied, until all replicas have said again what they have. They look for it every other
# second where it hangs.
STILL_S = 4.0

# KEYS: which replicas are there, then what each has of one group after the other. ARGV: this replica, whether it may
# get more than it has, then for each group its limit, and how many places this replica wants and has. Gives how many it
# may use from now on. Those that it is to give up are its own until it says that it has them no more: it may use them
# at this moment.
SHARE = """
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local me, more = ARGV[1], ARGV[2] == '1'
local there, got = {}, {}
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], now, '+inf')) do there[name] = true end

local function wanted_and_had(i)
  local wanted, had = {}, 0
  local told = redis.call('HGETALL', KEYS[i])
  for at = 1, #told, 2 do
    local name = told[at]
    if not there[name] then
      redis.call('HDEL', KEYS[i], name)
    elseif name ~= me then
      local wants, has = string.match(told[at + 1], '^(%d+) (%d+)$')
      table.insert(wanted, tonumber(wants))
      had = had + tonumber(has)
    end
  end
  return wanted, had
end

-- As much as everybody wants, and of what is left the same for each. Where that is too much: the same for all who want
-- as much.
local function fair(limit, wants, wanted)
  table.insert(wanted, wants)
  table.sort(wanted)
  local left = limit
  for i, one in ipairs(wanted) do
    local each = math.ceil(left / (#wanted - i + 1))
    if one > each then return math.min(wants, each) end
    left = left - one
  end
  return wants + math.ceil(left / #wanted)
end

for i = 2, #KEYS do
  local at = 3 + (i - 2) * 3
  local limit, wants, has = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local wanted, had = wanted_and_had(i)
  local mine = math.min(fair(limit, wants, wanted), limit - had)
  if not more then mine = math.min(mine, has) end
  mine = math.max(mine, 0)
  redis.call('HSET', KEYS[i], me, string.format('%d %d', wants, math.max(mine, has)))
  redis.call('PEXPIRE', KEYS[i], 86400000)
  got[i - 1] = mine
end
return got
"""


class Places:
    """What `RedisStore.share` gives; `seen`: the key of the replicas that are there."""

    def __init__(self, link: Link, seen: str) -> None:
        self._link = link
        self._seen = seen
        self._share: Any = link.client.register_script(SHARE)
        self._still_until = 0.0  # monotonic seconds

    def lost(self) -> None:
        """Redis does not answer, or has lost what it knew: others may have places that it does not know of."""
        self._still_until = time.monotonic() + STILL_S

    async def share(self, replica: str, wishes: Sequence[Wish]) -> dict[str, int]:
        """How many places of each group this replica has from now on. Raises ConnectionError."""
        more = int(time.monotonic() >= self._still_until)
        args: list[str | int] = [replica, more]
        for wish in wishes:
            args += [wish.limit, wish.wants, wish.has]
        keys = [self._seen, *[PLACES + wish.group for wish in wishes]]
        got: Sequence[int] = await self._link.call(lambda _: self._share(keys=keys, args=args))
        return {wish.group: has for wish, has in zip(wishes, got, strict=True)}
