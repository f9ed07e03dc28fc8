"""A breaker: after failures in a row, a scorer is not asked for a while, then by one probe at a time.

Time is an argument, in monotonic seconds. Who asks says how it went with `conclude`, once per pass; `guarded` does
that for a question that is awaited.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal

FAILURES = 5  # in a row; a dead classifier costs this many deadlines and no more (K02)
COOL_S = 2.0  # first pause; a restarted server is found again about this soon
COOL_MOST_S = 30.0  # each failed probe doubles the pause up to this

Pass = Literal["plain", "probe"]
Reason = Literal["timeout", "error", "overload", "breaker", "empty", "unsure", "missing"]  # as in `Abstain`
Verdict = Literal["good", "bad", "none"]  # none: given up by the asker, which says nothing about the scorer


class Breaker:
    """Closed: everyone passes. Open: nobody, until the pause is over; then one probe, whose verdict decides."""

    def __init__(self, *, failures: int = FAILURES, cool_s: float = COOL_S) -> None:
        self._most = failures
        self._cool_s = cool_s
        self._pause_s = cool_s
        self._failed = 0
        self._until: float | None = None  # open: when the next probe may go
        self._probing = False

    @property
    def open(self) -> bool:
        return self._until is not None

    def admit(self, now: float) -> Pass | None:
        """A pass to ask the scorer, or None where it is not to be asked."""
        if self._until is None:
            return "plain"
        if self._probing or now < self._until:
            return None
        self._probing = True
        return "probe"

    def conclude(self, ticket: Pass, verdict: Verdict, now: float) -> None:
        """How a passage ended. While open, only the probe's verdict counts: others set out before it opened."""
        if ticket == "probe":
            self._probing = False
            if verdict == "good":
                self._until, self._failed, self._pause_s = None, 0, self._cool_s
            elif verdict == "bad":
                self._pause_s = min(2 * self._pause_s, COOL_MOST_S)
                self._until = now + self._pause_s
        elif self._until is None and verdict != "none":
            self._failed = 0 if verdict == "good" else self._failed + 1
            if self._failed >= self._most:
                self._until = now + self._pause_s


async def guarded(
    breaker: Breaker, ask: Callable[[], Awaitable[float | Reason]], bad: frozenset[Reason]
) -> float | Reason:
    """What `ask` gives, or "breaker" where it is not to be asked. `bad` are the reasons that count as failures."""
    clock = asyncio.get_running_loop().time
    ticket = breaker.admit(clock())
    if ticket is None:
        return "breaker"
    verdict: Verdict = "none"  # stays so when the client leaves and this task is cancelled
    try:
        answer = await ask()
        verdict = "good" if not isinstance(answer, str) else "bad" if answer in bad else "none"
        return answer
    finally:
        breaker.conclude(ticket, verdict, clock())
