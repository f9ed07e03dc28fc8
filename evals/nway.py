"""`pointsman eval run --groups`: one scorer in front of more than two groups, as quality by cost.

The score's bands lead to the groups, cheapest first, by production's own `decide`. Which bands to take is a sweep
over shares of traffic; what is reported of a point is what `decide` makes of its bands.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from evals import cases, metrics
from evals.cases import LEAST_ROWS, BadData, Table
from evals.costs import DOLLARS, Price, of_model
from evals.decisions import Scored, banded, groups
from router.config import Policy
from router.types import Score

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_POINTS = 3000  # of the sweep, at most: 5% steps for three groups, 10% for four


class Arms(Struct, frozen=True, kw_only=True):
    """The rows that every group was run on; groups from cheapest to dearest."""

    table: Table
    rows: Ints
    names: tuple[str, ...]
    quality: Floats  # row, group
    cost: Floats  # the same shape
    unit: str
    sources: Mapping[str, str]

    @property
    def prompts(self) -> list[str]:
        every = self.table.prompts
        return [every[int(i)] for i in self.rows]


def arms(table: Table, names: Sequence[str], given: Mapping[str, Price], flat: Sequence[float] | None) -> Arms:
    """The groups' qualities and costs, put in order of cost. Raises `BadData`."""
    full = [cases.column(table, n) for n in names]
    if len(names) < 2 or len(set(full)) < len(full):
        raise BadData("--groups wants two or more different columns, such as small,medium,large")
    quality = np.stack([cases.quality(table, n) for n in names], axis=1)
    rows = np.flatnonzero(~np.isnan(quality).any(axis=1))
    if len(rows) < LEAST_ROWS:
        raise BadData(
            f"{table.path}: only {len(rows)} rows have all of {', '.join(names)}; at least {LEAST_ROWS} needed"
        )
    sources: dict[str, str] = {}
    if given:
        found = [of_model(table, rows, n, given) for n in names]
        cost, unit = np.stack([f.dollars for f in found], axis=1), DOLLARS
        sources = {n: f.source for n, f in zip(names, found, strict=True)}
    elif flat is not None and len(flat) == len(names):
        cost, unit = np.tile(np.array(flat), (len(rows), 1)), "as given"
    else:
        raise BadData(f"--groups needs what a call costs: --price for each of {', '.join(names)}, or --costs A,B,C")
    order: Ints = np.argsort(cost.mean(axis=0), kind="stable")
    held = quality[rows][:, order]
    if np.ptp(held, axis=1).max() == 0:
        raise BadData(f"{table.path}: the groups are equally good on every row; nothing to rank")
    return Arms(
        table=table,
        rows=rows,
        names=tuple(names[int(i)] for i in order),
        quality=held,
        cost=cost[:, order],
        unit=unit,
        sources=sources,
    )


def _mean(a: Floats, chosen: Ints) -> float:
    return float(a[np.arange(len(a)), chosen].mean())


def _exact(v: float) -> float:
    return float(f"{v:.6g}")


def chosen(a: Arms, policy: Policy, scored: Scored, scorer: str = "difficulty") -> Ints:
    """The group that `decide` gives each row, as its place. Raises `BadData` where the policy names another."""
    place = {name: i for i, name in enumerate(a.names)}
    made = groups(policy, scored, scorer)
    strange = sorted({g for g in made if g not in place})
    if strange:
        raise BadData(f"the policy leads to {strange[0]!r}, which is none of {', '.join(a.names)}")
    return np.array([place[g] for g in made], dtype=np.int64)


def at(a: Arms, picked: Ints) -> dict[str, Any]:
    """What a choice of groups is worth and costs."""
    counts = np.bincount(picked, minlength=len(a.names)) / len(picked)
    return {
        "shares": {name: round(float(c), 5) for name, c in zip(a.names, counts, strict=True)},
        "quality": round(_mean(a.quality, picked), 5),
        "cost": _exact(_mean(a.cost, picked)),
    }


def edges_for(shares: Sequence[float], values: Floats) -> list[float]:
    """Edges that give the groups about these shares of `values`, each above the one before."""
    known = np.sort(values[~np.isnan(values)])
    out: list[float] = []
    for total in np.cumsum(shares)[:-1]:
        i = round(float(total) * len(known))
        edge = 0.0 if i == 0 or not len(known) else 1.01 if i >= len(known) else float(known[i])
        out.append(max(edge, out[-1] + 1e-6) if out else edge)
    return out


def simplex(k: int) -> list[tuple[float, ...]]:
    """Shares of `k` groups that sum to one, in the finest even steps that are not too many."""
    steps = next(
        (s for s in (20, 10, 8, 5, 4, 3, 2) if _count(s, k) <= _POINTS),
        1,
    )
    cuts = itertools.combinations(range(steps + k - 1), k - 1)
    return [tuple((b - a - 1) / steps for a, b in itertools.pairwise((-1, *c, steps + k - 1))) for c in cuts]


def _count(steps: int, k: int) -> int:
    out = 1
    for i in range(1, k):
        out = out * (steps + i) // i
    return out


def frontier(a: Arms, values: Floats) -> list[tuple[float, ...]]:
    """Edges of the bands on the upper hull of quality by cost, cheapest first."""
    last = len(a.names) - 1
    points: dict[tuple[float, float], tuple[float, ...]] = {}
    for shares in simplex(len(a.names)):
        edges = edges_for(shares, values)
        place = np.where(np.isnan(values), last, np.searchsorted(edges, np.nan_to_num(values), side="right"))
        points.setdefault((_mean(a.cost, place), _mean(a.quality, place)), tuple(edges))
    hull = metrics.hull(list(points))
    return [points[p] for p in hull if p in points]


def measure(
    a: Arms,
    scored: Scored,
    *,
    edges: Sequence[float] | None,
    shares: Sequence[float] | None,
    policy: Policy | None = None,
    scorer: str = "difficulty",
    seed: int = 0,
    draws: int = metrics.DRAWS,
) -> dict[str, Any]:
    """Everything that `eval run --groups` reports."""
    k = len(a.names)
    if policy is None:
        wanted = shares if shares is not None else [1.0 / k] * k
        policy = banded(edges if edges is not None else edges_for(_whole(wanted, k), scored.values), a.names)
    picked = chosen(a, policy, scored, scorer)
    length = np.array([float(len(p)) for p in a.prompts])
    by_length = Scored(answers=[Score(scorer="difficulty", value=float(v)) for v in _ranks(length)])
    means = [(float(c), float(q)) for c, q in zip(a.cost.mean(axis=0), a.quality.mean(axis=0), strict=True)]
    routed = _frontier(a, scored)
    bests = a.quality.max(axis=1, keepdims=True)
    return {
        "n": len(a.rows),
        "cost_unit": f"{a.unit} a request",
        "output_tokens_from": dict(a.sources),
        **_at_policy(a, policy, picked, by_length, means, seed, draws),
        "oracle": at(a, np.argmax(a.quality >= bests, axis=1)),  # the cheapest of the best
        "frontier": routed,
        "aiq": round(metrics.aiq(_points(routed) + means), 5),
        "aiq_length": round(metrics.aiq(_points(_frontier(a, by_length)) + means), 5),
        "aiq_no_router": round(metrics.aiq(means), 5),
        "abstained": int(np.isnan(scored.values).sum()),
        "seed": seed,
        "draws": draws,
        "data": {"file": a.table.path.name, "sha256": a.table.digest},
    }


def _at_policy(
    a: Arms,
    policy: Policy,
    picked: Ints,
    by_length: Scored,
    means: list[tuple[float, float]],
    seed: int,
    draws: int,
) -> dict[str, Any]:
    """The groups alone and the policy beside them, with paired intervals; random and length use the policy's shares."""
    n = len(picked)
    counts = np.bincount(picked, minlength=len(a.names)) / n
    same = chosen(a, banded(edges_for(counts.tolist(), by_length.values), a.names), by_length)
    columns = {f"group {name}": a.quality[:, i] for i, name in enumerate(a.names)} | {
        "policy": a.quality[np.arange(n), picked],
        "random": a.quality @ counts,
        "length": a.quality[np.arange(n), same],
    }
    drawn = metrics.bootstrap_means(columns, seed=seed, draws=draws)

    def span(i: metrics.Interval) -> list[float]:
        return [round(i.low, 5), round(i.high, 5)]

    told = at(a, picked)
    return {
        "groups": [
            {
                "name": name,
                "quality": round(quality, 5),
                "quality_ci": span(drawn.interval(f"group {name}")),
                "cost": _exact(cost),
            }
            for name, (cost, quality) in zip(a.names, means, strict=True)
        ],
        "at_policy": {
            "policy": policy.name,
            "bands": _edges_of(policy),
            **told,
            "quality_ci": span(drawn.interval("policy")),
            "against_random": span(drawn.difference("policy", "random")),
            "against_length": span(drawn.difference("policy", "length")),
            "against": {name: span(drawn.difference("policy", f"group {name}")) for name in a.names},
        },
        "random_same_shares": round(float(columns["random"].mean()), 5),
        "length_same_shares": round(float(columns["length"].mean()), 5),
        "mixing_same_cost": round(_mixed(means, told["cost"]), 5),
    }


def _frontier(a: Arms, scored: Scored) -> list[dict[str, Any]]:
    """The best bands of the sweep, each as `decide` applies it."""
    found = frontier(a, scored.values)
    return [{"bands": [round(e, 6) for e in f], **at(a, chosen(a, banded(f, a.names), scored))} for f in found]


def _points(routed: Sequence[Mapping[str, Any]]) -> list[tuple[float, float]]:
    return [(p["cost"], p["quality"]) for p in routed]


def _mixed(points: list[tuple[float, float]], cost: float) -> float:
    """What the best mix of single groups, drawn by chance, is worth at this cost."""
    top = np.array(metrics.hull(points))
    return float(np.interp(cost, top[:, 0], top[:, 1]))


def _whole(shares: Sequence[float], k: int) -> list[float]:
    if len(shares) != k or min(shares) < 0 or abs(sum(shares) - 1.0) > 1e-6:
        raise BadData(f"--shares wants {k} shares that sum to 1, such as 0.5,0.3,0.2, the cheapest group's first")
    return list(shares)


def _ranks(values: Floats) -> Floats:
    """Values as scores in (0, 1) of the same order, equal ones equal."""
    place: Ints = np.unique(values, return_inverse=True)[1]
    return (place + 0.5) / (place.max() + 1.0)


def _edges_of(policy: Policy) -> list[float]:
    rule = next((r.score for r in policy.routes if r.score is not None), None)
    return [] if rule is None else [round(b.below, 6) for b in rule.bands if b.below is not None]
