"""Fitting the views and heads of `router.scorers.heads`: least squares, kernels, hashed n-grams, trees.

Everything here is deterministic for a seed and runs on one BLAS thread, so that an artifact rebuilds byte
for byte. Deciding what to fit on which rows is `train`'s business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evals.libraries import library
from router.scorers import text
from router.scorers.features import BITS, DENSE, Features, extract
from router.scorers.heads import Hashed, Head, Kernel, Length, Meaning, Semantic, Trees

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
AnyView = Length | Kernel | Hashed | Semantic | Trees | Meaning


class Examples:
    """Prompts with their features as matrices; hashed ones are sparse and made when first asked for."""

    def __init__(self, prompts: Sequence[str], features: Sequence[Features] | None = None) -> None:
        self.prompts = list(prompts)
        self.features = [extract(text.read(p)) for p in prompts] if features is None else list(features)
        width = len(DENSE)
        self.dense = np.stack([f.dense for f in self.features]) if self.features else np.zeros((0, width), np.float32)
        self.options: Ints = np.array([f.options for f in self.features], dtype=np.int64)
        self._sparse: dict[str, Any] = {}

    def __len__(self) -> int:
        return len(self.prompts)

    @property
    def meaning(self) -> Floats:
        """An encoder's vectors, one row per prompt. Raises ValueError where the prompts were read without one."""
        rows = [f.meaning for f in self.features if f.meaning is not None]
        if len(rows) < len(self.features):
            raise ValueError("these prompts were read without an encoder")
        return np.stack(rows).astype(np.float64)

    def take(self, rows: NDArray[Any]) -> Examples:
        """The same examples, some rows only."""
        at = np.flatnonzero(rows) if rows.dtype == bool else rows
        part = Examples([self.prompts[i] for i in at], [self.features[i] for i in at])
        part._sparse = {k: m[at] for k, m in self._sparse.items()}
        return part

    def sparse(self, grams: str) -> Any:
        """A CSR matrix, one row per prompt, as `features.bag` gives it."""
        if grams not in self._sparse:
            rows = [f.words if grams == "words" else f.chars for f in self.features]
            ends = np.cumsum([0, *(len(i) for i, _ in rows)])
            index = np.concatenate([i for i, _ in rows]) if rows else np.zeros(0, np.int32)
            value = np.concatenate([v for _, v in rows]) if rows else np.zeros(0, np.float32)
            csr = library("scipy.sparse").csr_matrix
            self._sparse[grams] = csr((value, index, ends), shape=(len(rows), 1 << BITS))
        return self._sparse[grams]


def predict(view: AnyView, x: Examples) -> Floats:
    """What `view.predict` gives, for many prompts at once."""
    if isinstance(view, Length):
        return x.dense[:, 0].astype(np.float64)
    if isinstance(view, Meaning):
        return x.meaning @ view.weights + view.bias
    if isinstance(view, Hashed):
        return np.asarray(x.sparse(view.grams) @ view.weights, dtype=np.float64) + view.bias
    if isinstance(view, Kernel):
        z = np.clip((x.dense[:, view.columns] - view.mean) * view.scale, -4.0, 4.0)
        out = np.empty(len(x))
        for i in range(0, len(x), 2000):
            part = z[i : i + 2000]
            distance = (part * part).sum(1)[:, None] + view.norms - 2.0 * (part @ view.centres.T)
            out[i : i + 2000] = np.exp(-view.gamma * distance) @ view.weights
        return out + view.bias
    if isinstance(view, Semantic):
        form = np.clip((x.dense[:, view.columns] - view.mean) * view.scale, -0.4, 0.4)
        z = np.hstack([form, _unit(np.asarray(x.sparse("words") @ view.projection)) * view.topics])
        return _radial(z.astype(np.float64), view.centres, view.norms, view.gamma) @ view.weights + view.bias
    at = np.tile(view.roots, (len(x), 1))
    row = np.arange(len(x))[:, None]
    for _ in range(view.depth):
        at = view.children[2 * at + (x.dense[row, view.feature[at]] > view.threshold[at])]
    return view.value[at].sum(1).astype(np.float64) + view.bias


def _unit(z: Floats) -> Floats:
    return z / np.maximum(np.sqrt((z * z).sum(1, keepdims=True)), 1e-9)


def _radial(a: Floats, centres: Any, norms: Any, gamma: float) -> Floats:
    return np.exp(-gamma * ((a * a).sum(1)[:, None] + norms - 2.0 * (a @ centres.T)))


Fit = Callable[[Examples, Floats], AnyView]
Read = Callable[[Sequence[str]], Examples]  # `Examples` itself, or one that gives them an encoder's vectors


def kernel(columns: Ints, *, gamma: float, ridge: float, points: int, seed: int = 0) -> Fit:
    """Kernel ridge regression with `points` reference rows drawn from the examples (Nystroem)."""

    def fit(x: Examples, y: Floats) -> Kernel:
        part = x.dense[:, columns].astype(np.float64)
        mean, scale = part.mean(0), 1.0 / (part.std(0) + 1e-3)
        z = np.clip((part - mean) * scale, -4.0, 4.0)
        rng = np.random.default_rng(seed)
        chosen = np.sort(rng.choice(len(z), min(points, len(z)), replace=False))
        centres = z[chosen].astype(np.float16).astype(np.float64)  # as the artifact keeps them
        norms = (centres * centres).sum(1)

        def between(a: Floats) -> Floats:
            return np.exp(-gamma * ((a * a).sum(1)[:, None] + norms - 2.0 * (a @ centres.T)))

        k = between(z)
        bias = float(y.mean())
        system = k.T @ k + ridge * between(centres) + 1e-6 * np.eye(len(centres))
        weights = np.linalg.solve(system, k.T @ (y - bias))
        return Kernel(
            columns=columns.astype(np.int16),
            mean=mean.astype(np.float32),
            scale=scale.astype(np.float32),
            centres=centres.astype(np.float32),
            norms=norms.astype(np.float32),
            weights=weights.astype(np.float32),
            gamma=gamma,
            bias=bias,
        )

    return fit


def hashed(grams: str, *, ridge: float, rare: int = 2) -> Fit:
    """Ridge regression over hashed n-grams; buckets in fewer than `rare` prompts are left out, rare ones weigh more."""

    def fit(x: Examples, y: Floats) -> Hashed:
        m = x.sparse(grams).astype(np.float64)
        seen = np.asarray((m > 0).sum(0)).ravel()
        idf = np.where(seen >= rare, np.log((1 + len(x)) / (1 + seen)) + 1.0, 0.0)
        bias = float(y.mean())
        model = library("sklearn.linear_model").Ridge(alpha=ridge, fit_intercept=False, solver="sparse_cg", tol=1e-3)
        model.fit(m.multiply(idf).tocsr(), y - bias)
        weights = (np.asarray(model.coef_) * idf).astype(np.float16).astype(np.float32)
        return Hashed(grams="words" if grams == "words" else "chars", weights=weights, bias=bias)

    return fit


def boosted(columns: Ints, *, rounds: int, rate: float, leaves: int, least: int, seed: int = 0) -> Fit:
    """Gradient-boosted small regression trees over the dense features."""

    def fit(x: Examples, y: Floats) -> Trees:
        model = library("sklearn.ensemble").HistGradientBoostingRegressor(
            max_iter=rounds,
            learning_rate=rate,
            max_leaf_nodes=leaves,
            min_samples_leaf=least,
            l2_regularization=10.0,
            early_stopping=False,
            random_state=seed,
        )
        with library("threadpoolctl").threadpool_limits(1):
            model.fit(x.dense[:, columns], y)
        grown = [p[0].nodes for p in model._predictors]
        return _trees(grown, columns, float(np.ravel(model._baseline_prediction)[0]))

    return fit


def _trees(grown: Sequence[Any], columns: Ints, bias: float) -> Trees:
    """scikit-learn's node tables as flat arrays, a leaf being its own child."""
    sizes = [len(nodes) for nodes in grown]
    starts = np.cumsum([0, *sizes])[:-1]
    nodes = np.concatenate(grown)
    base = np.repeat(starts, sizes)
    leaf = nodes["is_leaf"].astype(bool)
    own = np.arange(len(nodes))
    return Trees(
        feature=np.where(leaf, 0, columns[nodes["feature_idx"]]).astype(np.int32),
        threshold=np.where(leaf, np.inf, nodes["num_threshold"]).astype(np.float32),
        children=np.stack([np.where(leaf, own, nodes[side] + base) for side in ("left", "right")], axis=1)
        .ravel()
        .astype(np.int32),
        value=np.where(leaf, nodes["value"], 0.0).astype(np.float32),
        roots=starts.astype(np.int32),
        depth=int(nodes["depth"].max()),
        bias=bias,
    )


def semantic(columns: Ints, *, topics: int, ridge: float, points: int, weight: float = 0.7, seed: int = 0) -> Fit:
    """Kernel ridge regression on form and on the words' projection onto `topics` singular directions."""

    def fit(x: Examples, y: Floats) -> Semantic:
        m = x.sparse("words").astype(np.float64)
        seen = np.asarray((m > 0).sum(0)).ravel()
        idf = np.where(seen >= 2, np.log((1 + len(x)) / (1 + seen)) + 1.0, 0.0)
        k = min(topics, len(x) - 1)
        svd = library("sklearn.decomposition").TruncatedSVD(k, n_iter=3, random_state=seed)
        svd.fit(library("scipy.sparse").csr_matrix(m.multiply(idf)))
        projection: NDArray[np.float32] = (svd.components_.T * idf[:, None]).astype(np.float16).astype(np.float32)
        part = x.dense[:, columns].astype(np.float64)
        mean, scale = part.mean(0), 0.1 / (part.std(0) + 1e-3)
        form = np.clip((part - mean) * scale, -0.4, 0.4)
        z = np.hstack([form, _unit(np.asarray(m @ projection)) * weight])
        chosen = np.sort(np.random.default_rng(seed).choice(len(z), min(points, len(z)), replace=False))
        centres = z[chosen].astype(np.float16).astype(np.float64)
        norms = (centres * centres).sum(1)
        inside, bias = _radial(z, centres, norms, 1.0), float(y.mean())
        system = inside.T @ inside + ridge * _radial(centres, centres, norms, 1.0) + 1e-6 * np.eye(len(centres))
        return Semantic(
            projection=projection,
            columns=columns.astype(np.int16),
            mean=mean.astype(np.float32),
            scale=scale.astype(np.float32),
            topics=weight,
            centres=centres.astype(np.float32),
            norms=norms.astype(np.float32),
            weights=np.linalg.solve(system, inside.T @ (y - bias)).astype(np.float32),
            gamma=1.0,
            bias=bias,
        )

    return fit


def meaning(*, ridge: float) -> Fit:
    """Ridge regression over an encoder's vectors. Kernels over them ranked no better on any shipped set."""

    def fit(x: Examples, y: Floats) -> Meaning:
        centre, bias = x.meaning.mean(0), float(y.mean())
        z = x.meaning - centre
        system: Floats = z.T @ z + ridge * np.eye(z.shape[1])
        weights = np.linalg.solve(system, np.asarray(z.T @ (y - bias))).astype(np.float32)
        return Meaning(weights=weights, bias=bias - float(centre @ weights))

    return fit


def length(_x: Examples, _y: Floats) -> Length:
    """Nothing is fitted."""
    return Length()


# --- stacking and calibration -----------------------------------------------------------------------------


def out_of_fold(fit: Fit, x: Examples, y: Floats, folds: Sequence[Ints]) -> Floats:
    """Predictions for each row by a view fitted without that row's fold; `folds` are the held-out rows."""
    out = np.full(len(x), np.nan)
    for held in folds:
        rest = np.setdiff1d(np.arange(len(x)), held)
        out[held] = predict(fit(x.take(rest), y[rest]), x.take(held))
    return out


def row_folds(n: int, k: int, seed: int) -> list[Ints]:
    """`k` random parts of the rows."""
    order = np.random.default_rng(seed).permutation(n)
    return [np.sort(order[i::k]).astype(np.int64) for i in range(k)]


def group_folds(groups: Sequence[str], k: int) -> list[Ints]:
    """Whole groups to parts, largest first into the emptiest part; at most `k` parts."""
    names, index, counts = np.unique(np.array(groups, dtype=str), return_inverse=True, return_counts=True)
    k = min(k, len(names))
    load = np.zeros(k)
    part = np.zeros(len(names), dtype=np.int64)
    for g in np.argsort(-counts, kind="stable"):
        part[g] = int(np.argmin(load))
        load[part[g]] += counts[g]
    return [np.flatnonzero(part[index] == i).astype(np.int64) for i in range(k)]


def standing(values: Floats) -> tuple[float, float]:
    """Centre and spread, for putting views on one scale."""
    return float(values.mean()), float(values.std()) or 1.0


def isotonic(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Pool adjacent violators: block centres and their means, increasing in both."""
    order = np.argsort(x, kind="stable")
    blocks: list[list[float]] = []  # sum of y, sum of x, count
    for xi, yi in zip(x[order].tolist(), y[order].tolist(), strict=True):
        blocks.append([yi, xi, 1.0])
        while len(blocks) > 1 and blocks[-2][0] * blocks[-1][2] >= blocks[-1][0] * blocks[-2][2]:
            last = blocks.pop()
            for j in range(3):
                blocks[-1][j] += last[j]
    bx = np.array([b[1] / b[2] for b in blocks])
    by = np.array([b[0] / b[2] for b in blocks])
    return bx, by


def sigmoid(v: Floats) -> Floats:
    """1 / (1 + exp(-v)), without overflow."""
    return 1.0 / (1.0 + np.exp(-np.clip(v, -60.0, 60.0)))


def logistic(x: Floats, y: Floats, *, steps: int = 60) -> tuple[float, float]:
    """Platt's scaling: slope and intercept of P(y = 1) = 1 / (1 + exp(-(a x + b))), slope at least 0."""
    centre, spread = standing(x)
    z = (x - centre) / spread
    a, b = 0.0, float(np.log((y.mean() + 1e-3) / (1 - y.mean() + 1e-3)))
    for _ in range(steps):
        p = sigmoid(a * z + b)
        w = p * (1 - p) + 1e-9
        gradient = np.array([((p - y) * z).sum() + 1e-2 * a, (p - y).sum()])
        curve = np.array([[(w * z * z).sum() + 1e-2, (w * z).sum()], [(w * z).sum(), w.sum()]])
        step = np.linalg.solve(curve, gradient)
        a, b = a - float(np.clip(step[0], -1, 1)), b - float(np.clip(step[1], -1, 1))
    a = max(a, 0.05)
    return a / spread, b - a * centre / spread


def curve(x: Floats, y: Floats) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """A calibration curve as knots, strictly increasing so that it never changes the ranking.

    Platt's under 1,000 rows; above, isotonic means of Platt-ordered rows, blended with Platt's curve.
    """
    slope, intercept = logistic(x, y)
    edges = np.unique(np.quantile(x, np.linspace(0.0, 1.0, 41)))
    span = max(float(edges[-1] - edges[0]), 1e-6)
    knots = np.concatenate([[edges[0] - span], edges, [edges[-1] + span]])
    platt = sigmoid(slope * knots + intercept)
    value = platt
    if len(x) >= 1000:
        bx, by = isotonic(x, y)
        value = 0.5 * platt + 0.5 * np.interp(knots, bx, by)
        value[0], value[-1] = min(platt[0], value[1]), max(platt[-1], value[-2])
    value = np.maximum.accumulate(value) + np.arange(len(knots)) * 1e-5
    return knots.astype(np.float32), np.clip(value, 0.0, 1.0).astype(np.float32)


def head(
    name: str,
    x: Examples,
    y: Floats,
    fits: Sequence[Fit],
    parts: Sequence[float],
    oof: Sequence[Floats],
    target: Floats,
) -> Head:
    """Fit every view on all rows; stack by `parts` of the out-of-fold spread; calibrate on `target` out of fold."""
    views = [fit(x, y) for fit in fits]
    weights: list[float] = []
    bias = 0.0
    for part, values in zip(parts, oof, strict=True):
        centre, spread = standing(values)
        weights.append(part / spread)
        bias -= part * centre / spread
    mixed = bias + sum(w * v for w, v in zip(weights, oof, strict=True))
    xs, ys = curve(np.asarray(mixed), target)
    return Head(name=name, views=tuple(views), weights=tuple(weights), bias=bias, knots_x=xs, knots_y=ys)
