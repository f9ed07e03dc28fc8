"""Asking a scorer for a flight: at once where its answer is at hand, else something to wait for.

The seam to scorers: none of their faults may fail a request. What follows from a score is `decide`'s.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from time import perf_counter

from router.flight import Flight
from router.metrics import Metrics
from router.types import Abstain, Prompt, Score, Signals

log = logging.getLogger("pointsman.service")

_ANSWERS = (Score, Abstain)
_NOTHING_KNOWN = Signals()


class Scoring:
    """Asks and counts. One per process; holds nothing of a flight."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def at_hand(self, flight: Flight, name: str) -> Score | Abstain | None:
        """A scorer's answer for `decide`; None where it has to be waited for, which is then `flight.asked`."""
        answer = self._ask(flight, name, Prompt(flight.text, flight.signals or _NOTHING_KNOWN))
        if isinstance(answer, _ANSWERS):
            flight.scores[name] = answer
            return answer
        flight.asked = answer
        return None

    async def score(self, flight: Flight, name: str, prompt: Prompt) -> Score | Abstain:
        answer = self._ask(flight, name, prompt)
        return answer if isinstance(answer, _ANSWERS) else await answer

    def _ask(self, flight: Flight, name: str, prompt: Prompt) -> Score | Abstain | Awaitable[Score | Abstain]:
        """One scorer's answer. A scorer that is missing or breaks abstains: the policy's default serves."""
        scorer = flight.snapshot.scorers.get(name)
        begun = perf_counter()
        answer: Score | Abstain | Awaitable[Score | Abstain]
        if scorer is None:
            answer = Abstain(scorer=name, reason="missing")
        else:
            try:
                answer = scorer.score(prompt)
            except Exception as error:  # noqa: BLE001  the seam to scorers: none of their faults may fail a request
                answer = _broken(flight, name, error)
        if not isinstance(answer, _ANSWERS):
            return self._wait(flight, name, begun, answer)
        self._metrics.score(name, perf_counter() - begun, answer)
        return answer

    async def _wait(
        self, flight: Flight, name: str, begun: float, answer: Awaitable[Score | Abstain]
    ) -> Score | Abstain:
        try:
            got = await answer
        except Exception as error:  # noqa: BLE001  likewise
            got = _broken(flight, name, error)
        self._metrics.score(name, perf_counter() - begun, got)
        return got


def _broken(flight: Flight, name: str, error: Exception) -> Abstain:
    log.warning(
        "scorer %s failed, so the policy's default serves: %s",
        name,
        type(error).__name__,
        extra={"request_id": flight.caller.id},
    )
    return Abstain(scorer=name, reason="error")
