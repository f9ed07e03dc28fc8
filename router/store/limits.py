"""Limits counted in this process's memory. How many counters there are, the configuration bounds: a few for each key.

What a claim is worth and when it is settled is the caller's; here is only the arithmetic.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from router.seams import Claim


class MemoryLimiter:
    """A `Limiter` that answers at once. `clock` is monotonic seconds."""

    errors = 0  # memory does not fail

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._rates: dict[str, float] = {}  # when all of the limit is there again (GCRA: theoretical arrival time)
        self._sums: dict[str, tuple[float, float]] = {}  # so much, forgotten at
        self._slots: dict[str, dict[str, float]] = {}  # by holder: free again at

    def take(self, claims: Sequence[Claim], holder: str) -> Sequence[float | None]:
        now = self._clock()
        waits = [self._wait(claim, now) for claim in claims]
        if any(wait is not None and not claim.optional for wait, claim in zip(waits, claims, strict=True)):
            return waits
        for wait, claim in zip(waits, claims, strict=True):
            if wait is None and claim.amount:
                self._add(claim, holder, now)
        return waits

    def settle(self, claims: Sequence[Claim], holder: str) -> None:
        now = self._clock()
        for claim in claims:
            if claim.kind == "slots":
                self._slots.get(claim.key, {}).pop(holder, None)
            elif claim.amount:
                self._add(claim, holder, now)

    async def aclose(self) -> None:
        self._rates.clear()
        self._sums.clear()
        self._slots.clear()

    def __len__(self) -> int:
        return len(self._rates) + len(self._sums) + len(self._slots)

    def _wait(self, claim: Claim, now: float) -> float | None:
        match claim.kind:
            case "rate":
                used_s = max(0.0, self._rates.get(claim.key, now) - now)
                wanted_s = min(claim.amount / claim.limit, 1.0) * claim.period_s
                over_s = used_s + wanted_s - claim.period_s
                return over_s if over_s > 1e-6 else None
            case "sum":
                used, until = self._sums.get(claim.key, (0.0, now))
                used = used if until > now else 0.0
                full = used >= claim.limit or used + claim.amount > claim.limit
                return (until - now if until > now else claim.period_s) if full else None
            case "slots":
                held = self._slots.get(claim.key, {})
                for holder in [holder for holder, until in held.items() if until <= now]:
                    del held[holder]
                return None if len(held) + max(claim.amount, 1) <= claim.limit else 0.0

    def _add(self, claim: Claim, holder: str, now: float) -> None:
        match claim.kind:
            case "rate":
                full_at = max(self._rates.get(claim.key, now), now) + claim.amount / claim.limit * claim.period_s
                self._rates[claim.key] = full_at
            case "sum":
                if claim.key not in self._sums:
                    self._forget(now)
                used, until = self._sums.get(claim.key, (0.0, now))
                fresh = until <= now
                self._sums[claim.key] = (
                    (0.0 if fresh else used) + claim.amount,
                    now + claim.period_s if fresh else until,
                )
            case "slots":
                self._slots.setdefault(claim.key, {})[holder] = now + claim.period_s

    def _forget(self, now: float) -> None:
        """A new sum comes once a day and key, and takes the old ones' place."""
        for key in [key for key, (_, until) in self._sums.items() if until <= now]:
            del self._sums[key]
