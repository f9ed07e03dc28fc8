"""What a key and its tenant may use: reserved before a request is served, settled by what it came to.

Estimates are the gateway's own: the signals' count of the prompt, and of the answer what the client allows for, within
bounds. Counting is the limiter's; which deployments a used-up quota bars is `plan`'s.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from time import time
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from router.config import Allowance
from router.errors import RateLimited
from router.keys import Grant, Ring
from router.seams import Claim, Limiter
from router.types import Record, Signals

DAY_S = 86400.0
ANSWER_TOKENS = 1024  # reserved for an answer that the client sets no limit to
ANSWER_MOST = 4096  # and where it does: clients allow for far more than they get
SLOT_S = 7200.0  # a request that never ended, because its process died, frees its slot then
BUSY_RETRY_S = 1.0  # Retry-After where a slot is awaited: it frees with any answer that ends

What = Literal["requests", "tokens", "concurrent", "dollars", "quota"]
_LIMIT: Mapping[What, str] = {
    "requests": "requests a minute",
    "tokens": "tokens a minute",
    "concurrent": "requests at the same time",
    "dollars": "US dollars a day",
}


class Charge(Struct, frozen=True, kw_only=True, gc=False):
    """A claim and what it stands for."""

    claim: Claim
    what: What
    whose: str  # "key ci", "tenant acme"
    group: str = ""  # of a quota


class Limits:
    """Charges requests to keys. One per process; what is counted lives in the limiter. `clock` is Unix seconds."""

    def __init__(self, limiter: Limiter, refused: Callable[[What], None], clock: Callable[[], float] = time) -> None:
        self._limiter = limiter
        self._refused = refused
        self._clock = clock
        self._settling: set[asyncio.Future[None]] = set()

    async def knock(self, grant: Grant, holder: str) -> None:
        """Counts a request that asks no model: by its number alone. Raises RateLimited."""
        charges = [charge for whose, allowed in _both(grant) for charge in _requests(whose, allowed)]
        if charges:
            await self._take(charges, holder)

    async def enter(
        self, grant: Grant, ring: Ring, found: Signals, holder: str
    ) -> tuple[tuple[Charge, ...], Mapping[str, float]]:
        """Reserves what a request may use: what was taken, for `leave`, and the groups of which no quota is left, with
        the seconds until there is. Raises RateLimited; then nothing was taken."""
        now = self._clock()
        answer = min(found.max_output_tokens, ANSWER_MOST) or ANSWER_TOKENS
        dollars = (found.input_tokens * ring.dearest_input + answer * ring.dearest_output) / 1e6
        charges = [
            charge
            for whose, allowed in _both(grant)
            for charge in _charges(whose, allowed, float(found.input_tokens + answer), dollars, now)
        ]
        waits = await self._take(charges, holder) if charges else ()
        taken = tuple([c for c, wait in zip(charges, waits, strict=True) if wait is None])
        return taken, _spent(charges, waits)

    async def look(self, grant: Grant, holder: str) -> Mapping[str, float]:
        """The groups of which no quota is left, as `enter` gives them; nothing is taken."""
        now = self._clock()
        charges = [charge for whose, allowed in _both(grant) for charge in _quotas(whose, allowed, now)]
        asked = [replace(charge, claim=replace(charge.claim, amount=0.0)) for charge in charges]
        return _spent(asked, await self._take(asked, holder)) if asked else {}

    def leave(self, taken: Sequence[Charge], record: Record) -> None:
        """Corrects what was reserved to what was used, and frees the slots."""
        asked = {attempt.group for attempt in record.attempts}
        due: list[Claim] = []
        for charge in taken:
            match charge.what:
                case "requests":
                    continue
                case "concurrent":
                    used = 0.0
                case "tokens":
                    used = float(_tokens(record))
                case "dollars":
                    used = record.cost or 0.0
                case "quota":
                    used = 1.0 if charge.group in asked else 0.0
            if used != charge.claim.amount:
                due.append(replace(charge.claim, amount=used - charge.claim.amount))
        settled = self._limiter.settle(due, record.id) if due else None
        if settled is not None:
            task = asyncio.ensure_future(_quietly(settled))
            self._settling.add(task)
            task.add_done_callback(self._settling.discard)

    async def aclose(self) -> None:
        """Settles what is left to settle, and closes the limiter."""
        await asyncio.gather(*self._settling)
        await self._limiter.aclose()

    async def _take(self, charges: Sequence[Charge], holder: str) -> Sequence[float | None]:
        try:
            got = self._limiter.take([charge.claim for charge in charges], holder)
            waits = got if isinstance(got, Sequence) else await got
        except ConnectionError:  # counted by the limiter; an answer is worth more than an exact count
            return [None] * len(charges)
        short = [
            (wait or BUSY_RETRY_S, charge) for wait, charge in zip(waits, charges, strict=True) if wait is not None
        ]
        firm = [one for one in short if one[1].what != "quota"]
        if firm:
            wait_s, charge = max(firm, key=lambda one: one[0])
            self._refused(charge.what)
            message = f"the {charge.whose} is at its limit of {charge.claim.limit:g} {_LIMIT[charge.what]}"
            raise RateLimited(message, retry_after_s=wait_s)
        return waits


async def _quietly(settled: Awaitable[None]) -> None:
    with contextlib.suppress(ConnectionError):  # what cannot be settled now, time settles
        await settled


def _tokens(record: Record) -> int:
    """Of a cascade those of all its calls."""
    each = [attempt.usage for attempt in record.attempts if attempt.usage is not None] or [record.usage]
    return sum(usage.input + usage.output for usage in each)


def _spent(charges: Sequence[Charge], waits: Sequence[float | None]) -> Mapping[str, float]:
    spent: dict[str, float] = {}
    for charge, wait in zip(charges, waits, strict=True):
        if wait is not None:
            spent[charge.group] = max(wait, spent.get(charge.group, 0.0))
    return spent


def _both(grant: Grant) -> Iterator[tuple[str, Allowance]]:
    yield f"key {grant.key.name}", grant.key
    if grant.tenant is not None:
        yield f"tenant {grant.tenant.name}", grant.tenant


def _requests(whose: str, allowed: Allowance) -> Iterator[Charge]:
    limit = allowed.requests_per_minute
    if limit is not None:
        claim = Claim(key=f"requests:{whose}", kind="rate", limit=limit, period_s=60.0)
        yield Charge(claim=claim, what="requests", whose=whose)


def _quotas(whose: str, allowed: Allowance, now: float) -> Iterator[Charge]:
    day, into_s = divmod(now, DAY_S)
    for group, most in allowed.quota.items():
        key = f"quota:{day:.0f}:{whose} {group}"  # no name holds a space
        claim = Claim(key=key, kind="sum", limit=most, period_s=DAY_S - into_s, optional=True)
        yield Charge(claim=claim, what="quota", whose=whose, group=group)


def _charges(whose: str, allowed: Allowance, tokens: float, dollars: float, now: float) -> Iterator[Charge]:
    yield from _requests(whose, allowed)
    if (limit := allowed.tokens_per_minute) is not None:
        claim = Claim(key=f"tokens:{whose}", kind="rate", limit=limit, period_s=60.0, amount=tokens)
        yield Charge(claim=claim, what="tokens", whose=whose)
    if (limit := allowed.concurrent) is not None:
        claim = Claim(key=f"concurrent:{whose}", kind="slots", limit=limit, period_s=SLOT_S)
        yield Charge(claim=claim, what="concurrent", whose=whose)
    if (most := allowed.dollars_per_day) is not None:
        day, into_s = divmod(now, DAY_S)
        amount = min(dollars, most)  # the day's first request is served, whatever it may cost
        key, left_s = f"dollars:{day:.0f}:{whose}", DAY_S - into_s
        claim = Claim(key=key, kind="sum", limit=most, period_s=left_s, amount=amount)
        yield Charge(claim=claim, what="dollars", whose=whose)
    yield from _quotas(whose, allowed, now)
