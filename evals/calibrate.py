"""`pointsman eval calibrate`: make a score mean what it says for the operator's own cheap model.

The scores are mapped to how often the cheap model fails on labelled prompts: Platt's curve under 1,000 rows,
isotonic means above. The order of prompts never changes. The errors before and after are out of fold.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from evals import metrics
from evals.cases import LEAST_ROWS, BadData, Table
from evals.decisions import score
from evals.fit import Floats, curve, row_folds
from router.scorers import Cached, Signalled, heads
from router.scorers.encoder import Trained
from router.scorers.heads import Head
from router.scorers.lexical import Lexical
from router.seams import Scorer

ISOTONIC_FROM = 1000  # rows; below, isotonic steps follow the noise


def fit(table: Table, quality: Floats, scorer: Scorer, out: Path | None) -> dict[str, Any]:
    """Calibrate `scorer` to `quality` < 0.5; write a recalibrated artifact to `out`. Raises `BadData`."""
    scores = score(scorer, table.prompts).values
    known = ~np.isnan(scores) & ~np.isnan(quality)
    if int(known.sum()) < LEAST_ROWS:
        raise BadData(
            f"{table.path}: only {int(known.sum())} rows have both a score and a quality; {LEAST_ROWS} needed"
        )
    x, y = scores[known], (quality[known] < 0.5).astype(np.float64)
    if y.min() == y.max():
        raise BadData(f"{table.path}: the model {'fails' if y[0] else 'succeeds'} on every row; nothing to calibrate")
    after = np.zeros(len(x))
    for held in row_folds(len(x), 5, seed=0):
        rest = np.setdiff1d(np.arange(len(x)), held)
        after[held] = np.interp(x[held], *curve(x[rest], y[rest]))
    xs, ys = curve(x, y)
    if out is not None:
        _write(_model(scorer), xs.astype(np.float64), ys.astype(np.float64), out)
    return {
        "n": len(x),
        "method": "isotonic" if len(x) >= ISOTONIC_FROM else "platt",
        "fails": round(float(y.mean()), 5),
        "ece_before": round(metrics.calibration_error(x, y), 5),
        "ece_after": round(metrics.calibration_error(after, y), 5),
        "brier_before": round(float(((x - y) ** 2).mean()), 5),
        "brier_after": round(float(((after - y) ** 2).mean()), 5),
        "curve": [[round(float(a), 5), round(float(b), 5)] for a, b in zip(xs, ys, strict=True)],
        "data": {"file": table.path.name, "sha256": table.digest},
    }


def _model(scorer: Scorer) -> heads.Model:
    """The model whose curves can be written anew. Raises `BadData`."""
    while isinstance(scorer, Cached):
        scorer = scorer.scorer
    if isinstance(scorer, Lexical):
        return scorer.model
    if isinstance(scorer, Trained):
        return scorer.heads
    if isinstance(scorer, Signalled):
        raise BadData(f"{scorer.name!r} reads signals, and this data has none: train it anew with --from-records")
    raise BadData(
        f"a scorer like {scorer.name!r} has no curves of its own to write: leave out --out, give --json FILE, and name "
        "that file in its option `calibration` in scorers.yaml"
    )


def _write(model: heads.Model, xs: Floats, ys: Floats, out: Path) -> None:
    mapped: dict[str, Head] = {}
    for name, head in model.heads.items():
        again = np.interp(head.knots_y, xs, ys).astype(np.float32)
        mapped[name] = head if name == "is_problem" else msgspec.structs.replace(head, knots_y=again)
    heads.dump(msgspec.structs.replace(model, heads=mapped), out)
