"""What a group may spend on trying again: a purse that requests fill and retries empty.

Without it a group that fails as a whole would get three times its load just when it can bear least. Whether a failure
may be tried again at all is `plan.after`'s to say.
"""

from __future__ import annotations

SHARE = 0.1  # of its requests that a group may try again; Google SRE's figure for a client
MOST = 20.0  # held at once: what a deployment that dies under load costs until it is seen to be dead
PER_S = 1.0  # a quiet group may always try again a little


class Retries:
    """One purse for each group. One per process."""

    def __init__(self) -> None:
        self._purses: dict[str, float] = {}
        self._filled: dict[str, float] = {}  # when time was last paid for
        self.refused = 0

    def request(self, group: str) -> None:
        """A request begins."""
        purse = self._purses.get(group, MOST)
        if purse < MOST:
            self._purses[group] = min(MOST, purse + SHARE)

    def take(self, group: str, now: float) -> bool:
        """Pay for one retry, or say that there is nothing left. `now` is monotonic seconds."""
        waited = now - self._filled.get(group, now)
        self._filled[group] = now
        purse = min(MOST, self._purses.get(group, MOST) + waited * PER_S)
        paid = purse >= 1.0
        self._purses[group] = purse - 1.0 if paid else purse
        self.refused += not paid
        return paid
