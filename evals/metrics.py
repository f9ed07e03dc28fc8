"""What a ranking of prompts is worth: the cost-quality curve and the numbers read off it.

Pure arithmetic on arrays of scores and qualities; higher scores go to the strong model first and equal scores
go together, half-way through their block (ties averaged). Definitions in docs/quality.md.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Floats = NDArray[np.float64]

DRAWS = 2000  # of the bootstrap, at least
_TINY = 1e-9  # a mean gain below this cannot be divided by


class Blocks(Struct, frozen=True, kw_only=True):
    """Rows in the order they go to the strong model, and which share a score."""

    order: NDArray[np.int64]
    block: NDArray[np.int64]  # block of each ordered row
    starts: NDArray[np.int64]  # first ordered row of each block


def blocks(score: Floats) -> Blocks:
    """Order rows by score, highest first."""
    order = np.argsort(-score, kind="stable")
    changed = np.flatnonzero(np.diff(score[order])) + 1
    starts = np.concatenate([[0], changed]).astype(np.int64)
    block = np.zeros(len(score), dtype=np.int64)
    block[changed] = 1
    return Blocks(order=order, block=np.cumsum(block), starts=starts)


def curve(score: Floats, weak: Floats, strong: Floats) -> tuple[Floats, Floats]:
    """(share to strong, mean quality) at the edge of every block; quality is linear in between."""
    b = blocks(score)
    gain = np.add.reduceat((strong - weak)[b.order], b.starts)
    size = np.diff(np.concatenate([b.starts, [len(score)]]))
    n = len(score)
    share = np.concatenate([[0.0], np.cumsum(size) / n])
    return share, weak.mean() + np.concatenate([[0.0], np.cumsum(gain) / n])


def apgr(score: Floats, weak: Floats, strong: Floats) -> float:
    """Average performance gap recovered: random is 0.5; nan where the models are equally good."""
    share, quality = curve(score, weak, strong)
    gap = strong.mean() - weak.mean()
    return float(np.trapezoid((quality - weak.mean()) / gap, share)) if abs(gap) > _TINY else float("nan")


def share_for(recovered: float, score: Floats, weak: Floats, strong: Floats) -> float | None:
    """CPT(x): the smallest share to strong that recovers `recovered` of the gap; None where none does."""
    share, quality = curve(score, weak, strong)
    gap = strong.mean() - weak.mean()
    if abs(gap) <= _TINY:
        return None
    pgr = (quality - weak.mean()) / gap
    reached = np.flatnonzero(pgr >= recovered)
    if not len(reached):
        return None
    i = int(reached[0])
    if i == 0:
        return float(share[0])
    rise = pgr[i] - pgr[i - 1]
    part = (recovered - pgr[i - 1]) / rise if rise > 0 else 1.0
    return float(share[i - 1] + part * (share[i] - share[i - 1]))


def quality_at(shares: Floats, score: Floats, weak: Floats, strong: Floats) -> Floats:
    """Mean quality when these shares go to strong."""
    share, quality = curve(score, weak, strong)
    return np.interp(shares, share, quality)


def assignment(share: float, score: Floats) -> Floats:
    """How much of each row goes to strong when this share does: the block at the edge goes in part."""
    b = blocks(score)
    size = np.diff(np.concatenate([b.starts, [len(score)]])).astype(np.float64)
    before = np.concatenate([[0.0], np.cumsum(size)[:-1]])
    part = np.clip((share * len(score) - before) / size, 0.0, 1.0)
    out = np.empty(len(score))
    out[b.order] = part[b.block]
    return out


def auroc(score: Floats, positive: NDArray[np.bool_]) -> float | None:
    """Chance that a positive scores above a negative, ties half; None where one kind is missing."""
    p, n = int(positive.sum()), int((~positive).sum())
    if not p or not n:
        return None
    _, inverse, counts = np.unique(score, return_inverse=True, return_counts=True)
    rank = np.cumsum(counts) - (counts - 1) / 2.0
    return float((rank[inverse][positive].sum() - p * (p + 1) / 2.0) / (p * n))


def hull(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points on the non-decreasing upper hull of (cost, quality), cheapest first."""
    out: list[tuple[float, float]] = []
    best = -np.inf
    for cost, quality in sorted(points, key=lambda p: (p[0], -p[1])):
        if quality <= best:
            continue
        best = quality
        while len(out) >= 2 and _below(out[-2], out[-1], (cost, quality)):
            out.pop()
        out.append((cost, quality))
    return out


def aiq(points: list[tuple[float, float]]) -> float:
    """RouterBench's average improvement in quality: area under the non-decreasing hull of (cost, quality), by cost."""
    top = hull(points)
    low, high = min(points)[0], max(points)[0]
    if high <= low * (1.0 + _TINY):
        return top[-1][1]
    x, y = np.array([*top, (high, top[-1][1])]).T
    return float(np.trapezoid(y, x) / (high - low))


def _below(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
    return (b[1] - a[1]) * (c[0] - a[0]) <= (c[1] - a[1]) * (b[0] - a[0])


def calibration_error(score: Floats, outcome: Floats, bins: int = 15) -> float:
    """Expected calibration error over bins with equally many rows."""
    order = np.argsort(score, kind="stable")
    parts = [p for p in np.array_split(order, min(bins, len(order))) if len(p)]
    return float(sum(len(p) * abs(score[p].mean() - outcome[p].mean()) for p in parts) / len(score))


class Interval(Struct, frozen=True, kw_only=True):
    """95% of the bootstrap draws lie between."""

    low: float
    high: float


class Bootstrap(Struct, frozen=True, kw_only=True):
    """Draws of one figure per name, paired: draw i of each used the same rows."""

    draws: Mapping[str, Floats]

    def interval(self, name: str) -> Interval:
        return _interval(self.draws[name])

    def difference(self, name: str, other: str) -> Interval:
        return _interval(self.draws[name] - self.draws[other])


def _interval(draws: Floats) -> Interval:
    finite = draws[np.isfinite(draws)]
    if not len(finite):
        return Interval(low=float("nan"), high=float("nan"))
    low, high = np.quantile(finite, [0.025, 0.975])
    return Interval(low=float(low), high=float(high))


def bootstrap(
    rankings: Mapping[str, Floats], weak: Floats, strong: Floats, *, seed: int, draws: int = DRAWS
) -> Bootstrap:
    """Resample rows with replacement, `draws` times, and measure every ranking on the same rows."""
    n = len(weak)
    gain = strong - weak
    ready = {name: blocks(score) for name, score in rankings.items()}
    out = {name: np.empty(draws) for name in rankings}
    rng = np.random.default_rng(seed)
    step = max(1, min(draws, 2_000_000 // n))
    for first in range(0, draws, step):
        size = min(step, draws - first)
        rows = rng.integers(0, n, size=(size, n))
        counts = np.stack([np.bincount(r, minlength=n) for r in rows]).astype(np.float64)
        for name, b in ready.items():
            taken = counts[:, b.order]
            won = taken * gain[b.order]
            if len(b.starts) < n:
                taken = np.add.reduceat(taken, b.starts, axis=1)
                won = np.add.reduceat(won, b.starts, axis=1)
            before = np.cumsum(won, axis=1) - won / 2.0  # gain recovered half-way through each block
            total = won.sum(axis=1)
            with np.errstate(divide="ignore", invalid="ignore"):
                value = (taken * before).sum(axis=1) / (n * total)
            value[np.abs(total) <= _TINY * n] = np.nan
            out[name][first : first + size] = value
    return Bootstrap(draws=out)


def bootstrap_means(columns: Mapping[str, Floats], *, seed: int, draws: int = DRAWS) -> Bootstrap:
    """Draws of each column's mean over rows resampled with replacement, the same rows for all."""
    names = list(columns)
    values = np.stack([columns[n] for n in names], axis=1)
    n = len(values)
    out = np.empty((draws, len(names)))
    rng = np.random.default_rng(seed)
    step = max(1, min(draws, 2_000_000 // n))
    for first in range(0, draws, step):
        rows = rng.integers(0, n, size=(min(step, draws - first), n))
        counts = np.stack([np.bincount(r, minlength=n) for r in rows]).astype(np.float64)
        out[first : first + len(rows)] = counts @ values / n
    return Bootstrap(draws={name: out[:, i] for i, name in enumerate(names)})
