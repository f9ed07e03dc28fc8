"""Fitting what signals add to a score of the text (`router.scorers.signalled`), from records of judged answers.

Each judged answer of the cheap group is a row: one text may have failed early in a conversation and again when the
agent was stuck. Kept is only what makes held-out answers more likely; text scores come in out of fold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from evals.fit import Floats, Ints, group_folds, sigmoid
from router.scorers.signalled import FEATURES, Part, logit

FOLDS = 5
LEAST = 100  # judged answers; fewer cannot tell fourteen weights from chance
_PENALTY = 4.0  # on standardised weights; several features say almost the same
_STEPS = 30  # of Newton's method, which is done after about eight


class Occasions(Struct, frozen=True, kw_only=True):
    """Judged answers of the cheap group, one row each."""

    place: Ints  # of its prompt among the prompts
    features: Floats
    failed: Floats  # 1 - the judgement


def fit(told: Floats, seen: Occasions, chance: Floats, say: Callable[[str], None]) -> Part | None:
    """The part, or None where signals do not help. `told` is each prompt's text score, out of fold; `chance` how likely
    each prompt was to be answered by the cheap group: rows that it rarely got stand for more."""
    x = seen.features
    varied = np.flatnonzero(np.ptp(x, axis=0) > 1e-9) if len(x) else np.zeros(0, np.int64)
    if len(x) < LEAST or not len(varied):
        why = "no signal varies" if len(x) >= LEAST else f"{len(x)} judged answers of the cheap group, {LEAST} needed"
        say(f"signals: left out, {why}")
        return None
    weigh = 1.0 / chance[seen.place]
    weigh = weigh / weigh.mean()
    text = np.array([logit(float(v)) for v in told[seen.place]])[:, None]
    full = np.hstack([text, x[:, varied]])
    losses: list[Floats] = [np.zeros(len(x)), np.zeros(len(x))]
    for held in group_folds([str(i) for i in seen.place], FOLDS):
        rest = np.setdiff1d(np.arange(len(x)), held)
        for loss, columns in zip(losses, (text, full), strict=True):
            p = _chance(_logistic(columns[rest], seen.failed[rest], weigh[rest]), columns[held])
            loss[held] = -(seen.failed[held] * np.log(p) + (1 - seen.failed[held]) * np.log(1 - p))
    better, unsure = _gain((losses[0] - losses[1]) * weigh, seen.place)
    before, after = (float((loss * weigh).mean()) for loss in losses)
    said = f"held-out log-loss {before:.4f} by the text, {after:.4f} with signals"
    if better <= 2.0 * unsure:
        say(f"signals: left out, {said}: not better beyond chance")
        return None
    made = _part(_logistic(full, seen.failed, weigh), x, varied)
    strongest = sorted(zip(made.features, made.weights, strict=True), key=lambda w: -abs(w[1]))[:3]
    say(f"signals: kept, {said}; most by " + ", ".join(f"{n} {w:+.2f}" for n, w in strongest))
    return made


def _gain(gains: Floats, place: Ints) -> tuple[float, float]:
    """The mean gain of a row and its standard error; rows of one prompt are no independent evidence."""
    sums = np.bincount(place, weights=gains - gains.mean())
    return float(gains.mean()), float(np.sqrt((sums * sums).sum()) / len(gains))


def _part(fitted: Sequence[float], x: Floats, varied: Ints) -> Part:
    weights = np.zeros(len(FEATURES))
    weights[varied] = fitted[2:]
    return Part(
        features=tuple(FEATURES),
        weights=tuple(round(float(w), 6) for w in weights),
        least=tuple(float(v) for v in x.min(0)),
        most=tuple(float(v) for v in x.max(0)),
        slope=round(float(fitted[1]), 6),
        bias=round(float(fitted[0]), 6),
    )


def _logistic(columns: Floats, y: Floats, weigh: Floats) -> list[float]:
    """Bias and weights of a logistic regression by Newton's method; only the weights after the first are held small."""
    mean, spread = columns.mean(0), columns.std(0) + 1e-9
    z = np.hstack([np.ones((len(columns), 1)), (columns - mean) / spread])
    penalty = np.diag([1e-3, 1e-1, *[_PENALTY] * (columns.shape[1] - 1)])
    found = np.zeros(z.shape[1])
    for _ in range(_STEPS):
        p = sigmoid(z @ found)
        gradient = z.T @ (weigh * (p - y)) + penalty @ found
        bend = (z * (weigh * p * (1 - p) + 1e-9)[:, None]).T @ z + penalty
        found = found - np.clip(np.linalg.solve(bend, gradient), -2.0, 2.0)
    slopes = found[1:] / spread
    return [float(found[0] - slopes @ mean), *(float(s) for s in slopes)]


def _chance(fitted: Sequence[float], columns: Floats) -> Floats:
    return np.clip(sigmoid(fitted[0] + columns @ np.array(fitted[1:])), 1e-6, 1 - 1e-6)
