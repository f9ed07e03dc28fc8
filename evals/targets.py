"""What a scorer is trained to predict: the gain of the strong model over the weak one, with less noise.

One run of one model is a noisy label; where a file has other models, they say how hard a row is. No fitting of
scorers here.
"""

from __future__ import annotations

import numpy as np

from evals import cases
from evals.cases import Pair
from evals.fit import Floats, row_folds

_PEERS = 4  # other models are used from this many on


def smoothed_gain(pair: Pair, own: float = 0.5) -> Floats:
    """Strong minus weak, all but the part `own` replaced by what other models say of the row, if enough.

    One run of one model is a noisy label. How the other models did on the same row predicts the pair's gain
    without that noise; the prediction is made out of fold.
    """
    gain = pair.strong - pair.weak
    names = [c for c in pair.table.columns if c.startswith(("correct:", "score:"))]
    used: list[Floats] = []
    for name in names:
        values = cases.quality(pair.table, name)[pair.rows]
        known = ~np.isnan(values)
        same = np.array_equal(values[known], pair.weak[known]) or np.array_equal(values[known], pair.strong[known])
        if known.mean() > 0.9 and not same:
            used.append(np.where(known, values, np.nanmean(values)))
    if len(used) < _PEERS:
        return gain
    m = np.stack(used, axis=1)
    ease = m.mean(axis=1)
    m = np.column_stack([m, ease, ease**2, ease**3])
    told = np.zeros(len(pair))
    for held in row_folds(len(pair), 5, seed=3):
        rest = np.setdiff1d(np.arange(len(pair)), held)
        centre = m[rest].mean(0)
        a: Floats = m[rest] - centre
        system: Floats = a.T @ a + 20.0 * np.eye(a.shape[1])
        right: Floats = a.T @ (gain[rest] - gain[rest].mean())
        w = np.linalg.solve(system, right)
        told[held] = (m[held] - centre) @ w + gain[rest].mean()
    return own * gain + (1.0 - own) * told
