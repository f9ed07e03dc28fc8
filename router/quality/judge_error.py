"""What a judge's own mistakes come to, from pairs of answers that people have labelled.

The judge gives each labelled pair a verdict as it gives live ones. The shares of verdicts by label, turned around, say
what each verdict is worth (Rogan and Gladen 1978, for three outcomes): a value with which the mean over verdicts is, on
average, the mean over the truth. How badly the few labels know these shares goes into the interval (the delta method;
Lang and Reiczigel 2014 for two outcomes).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final, Literal, cast

import numpy as np
from msgspec import Struct

from router.quality.intervals import Floats

Outcome = Literal["small_worse", "same", "small_better"]
OUTCOMES: Final[tuple[Outcome, ...]] = ("small_worse", "same", "small_better")
WORTH: Final[Mapping[Outcome, float]] = {"small_worse": -1.0, "same": 0.0, "small_better": 1.0}
LEAST = 5  # labelled pairs of a kind; fewer say nothing of it
MOST_WORTH = 4.0  # a verdict worth more comes from a judge that hardly tells answers apart


class Correction(Struct, frozen=True, kw_only=True):
    """What each verdict is worth, and how well that is known.

    `shares` are verdicts by label, both in the order of `OUTCOMES`; `labels` how many pairs each row comes from.
    """

    worth: Mapping[Outcome, float]
    shares: tuple[tuple[float, ...], ...] = ()
    labels: tuple[int, ...] = ()

    @property
    def agreement(self) -> float | None:
        """Share of labelled pairs on which judge and label agree."""
        total = sum(self.labels)
        if not total:
            return None
        return sum(self.shares[i][i] * n for i, n in enumerate(self.labels)) / total

    def error(self, verdicts: Mapping[Outcome, float]) -> float:
        """The standard error that the labels leave in a mean over verdicts with these shares."""
        if not self.labels:
            return 0.0
        matrix = np.array(self.shares)
        seen = np.array([verdicts.get(outcome, 0.0) for outcome in OUTCOMES])
        truth = np.clip(seen @ np.linalg.inv(matrix), 0.0, 1.0)
        worth = np.array([self.worth[outcome] for outcome in OUTCOMES])
        # One more pair of each verdict, so that a row in which the judge never erred is not taken to be known exactly.
        smooth = np.array(
            [(np.array(row) * n + 1 / 3) / (n + 1) for row, n in zip(self.shares, self.labels, strict=True)]
        )
        spread = smooth @ worth**2 - (smooth @ worth) ** 2
        return math.sqrt(float((truth**2 * spread / np.array(self.labels)).sum()))


UNCORRECTED: Final = Correction(worth=WORTH)  # a judge that is taken at its word


def correction(pairs: Iterable[tuple[Outcome, Outcome]]) -> Correction | str:
    """From (label, verdict) of each pair; why there is none, where they do not allow one."""
    counts = np.zeros((3, 3))
    for label, verdict in pairs:
        counts[OUTCOMES.index(label), OUTCOMES.index(verdict)] += 1
    labels = counts.sum(axis=1)
    short = [name for name, n in zip(OUTCOMES, labels, strict=True) if n < LEAST]
    if short:
        return f"at least {LEAST} labelled pairs of each kind are needed; there are fewer of {', '.join(short)}"
    shares = counts / labels[:, None]
    try:
        worth = [float(w) for w in cast(Floats, np.linalg.solve(shares, np.array([WORTH[o] for o in OUTCOMES])))]
    except np.linalg.LinAlgError:
        worth = [math.inf] * 3
    if max(abs(w) for w in worth) > MOST_WORTH or not worth[0] < worth[2]:
        return "the judge hardly tells the labelled answers apart, so its verdicts say nothing"
    return Correction(
        worth=dict(zip(OUTCOMES, worth, strict=True)),
        shares=tuple(tuple(float(share) for share in row) for row in shares),
        labels=tuple(int(n) for n in labels),
    )
