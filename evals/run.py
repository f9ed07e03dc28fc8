"""`pointsman eval run` and `eval sweep`: one scorer on one labelled file, against length, domain and oracle.

Takes read cases and a scorer, gives one JSON-ready result. Fitting for cross-validation is `train`'s; drawing
is `report`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evals import metrics
from evals.cases import BadData, Pair
from evals.costs import DOLLARS, Costs, flat
from evals.decisions import Scored, groups, one_cut, to_strong
from evals.fit import Examples, Read, group_folds, row_folds
from router.config import Policy
from router.scorers import heads
from router.scorers.lexical import judged

Floats = NDArray[np.float64]

SHARES = np.linspace(0.0, 1.0, 101)
FIXED_SHARES = (0.1, 0.2, 0.3, 0.5, 0.8)
CUT = 0.5  # the shipped policy's

Trainer = Callable[[Pair], heads.Model]
Progress = Callable[[str], None]


def folds(pair: Pair, k: int, holdout: str | None) -> list[NDArray[np.int64]]:
    """Held-out rows of each fold: whole values of the `holdout` column, else random rows. Raises `BadData`."""
    if k < 2:
        raise BadData(f"--folds must be at least 2, not {k}")
    if holdout is not None:
        parts = group_folds(pair.values(holdout), k)
        if len(parts) < 2:
            raise BadData(f"column {holdout!r} holds one value only; nothing can be held out")
        return parts
    return row_folds(len(pair), k, seed=0)


def cross_validated(
    pair: Pair, parts: Sequence[NDArray[np.int64]], fit: Trainer, say: Progress, read: Read | None = None
) -> Scored:
    """Scores of each row by a model trained without its fold."""
    answers: list[Any] = [None] * len(pair)
    read = read or Examples
    for i, held in enumerate(parts, 1):
        started = perf_counter()
        model = fit(pair.take(np.setdiff1d(np.arange(len(pair)), held)))
        for row, x in zip(held, read([pair.prompts[int(r)] for r in held]).features, strict=True):
            answers[int(row)] = judged("difficulty", model, x)
        say(f"fold {i} of {len(parts)}: {len(held)} rows held out, {perf_counter() - started:.0f} s")
    return Scored(answers=answers)


def domain_prior(pair: Pair, domain: Sequence[str]) -> Floats:
    """The mean gain of each row's domain on the other rows of five folds: what knowing the domain is worth."""
    gain = pair.strong - pair.weak
    names, index = np.unique(np.array(domain, dtype=str), return_inverse=True)
    out = np.zeros(len(pair))
    for held in row_folds(len(pair), 5, seed=0):
        rest = np.setdiff1d(np.arange(len(pair)), held)
        total = np.bincount(index[rest], gain[rest], minlength=len(names))
        count = np.bincount(index[rest], minlength=len(names))
        mean = (total + 20.0 * gain[rest].mean()) / (count + 20.0)
        out[held] = mean[index[held]]
    return out


def _span(i: metrics.Interval) -> list[float]:
    return [_short(i.low), _short(i.high)]


def _short(v: float | None) -> Any:
    return None if v is None or not np.isfinite(v) else round(float(v), 5)


def measure(
    pair: Pair,
    scored: Scored,
    *,
    holdout: str | None = None,
    seed: int = 0,
    draws: int = metrics.DRAWS,
    policy: Policy | None = None,
    scorer: str = "difficulty",
    costs: Costs | None = None,
    scouts: int = 0,
) -> dict[str, Any]:
    """Everything `eval run` reports on one scorer.

    `costs` are in strong calls when absent. With `scouts` the scorer is a cascade: every request pays for the weak
    answer and that many scouts, each at the weak model's cost.
    """
    weak, strong, ranking = pair.weak, pair.strong, scored.ranking
    length = np.array([float(len(p)) for p in pair.prompts])
    rankings = {"scorer": ranking, "length": length}
    domain = pair.values(holdout) if holdout else pair.domain()
    if domain is not None:
        rankings["domain_prior"] = domain_prior(pair, domain)
    drawn = metrics.bootstrap(rankings, weak, strong, seed=seed, draws=draws)
    policy = one_cut(CUT) if policy is None else policy
    chosen = to_strong(policy, scored, scorer)
    out: dict[str, Any] = {
        "n": len(pair),
        "weak": _short(weak.mean()),
        "strong": _short(strong.mean()),
        "apgr": _short(metrics.apgr(ranking, weak, strong)),
        "apgr_ci": _span(drawn.interval("scorer")),
        "cpt50": _short(metrics.share_for(0.5, ranking, weak, strong)),
        "cpt80": _short(metrics.share_for(0.8, ranking, weak, strong)),
        "random": 0.5,
        "length": _short(metrics.apgr(length, weak, strong)),
        "length_ci": _span(drawn.interval("length")),
        "oracle": _short(metrics.apgr(strong - weak, weak, strong)),
        "auroc": _short(metrics.auroc(ranking, weak < 0.5)),
        "auroc_gain": _short(metrics.auroc(ranking, strong > weak)),
        "against_length": _span(drawn.difference("scorer", "length")),
        "abstained": int(np.isnan(scored.values).sum()),
        "ece": _short(_ece(scored, weak)),
        **_at_shares(pair, rankings, seed, draws),
        **_costed(pair, ranking, chosen, costs, scouts, policy.name),
        "curve": _curve(ranking, weak, strong),
        "seed": seed,
        "draws": draws,
        "data": {"file": pair.table.path.name, "sha256": pair.table.digest},
        **_drawn(pair, scored, chosen, {**rankings, "oracle": strong - weak}),
    }
    if scouts:
        out["calls"] = {"weak": 1, "scouts": scouts, "strong": out["at_policy"]["strong_share"]}
    if domain is not None:
        out["domain_prior"] = _short(metrics.apgr(rankings["domain_prior"], weak, strong))
        out["domain_prior_ci"] = _span(drawn.interval("domain_prior"))
        out["against_domain_prior"] = _span(drawn.difference("scorer", "domain_prior"))
        out["by_domain"] = by_domain(pair, ranking, domain, chosen)
    return out


def _curve(ranking: Floats, weak: Floats, strong: Floats) -> list[list[Any]]:
    found = metrics.quality_at(SHARES, ranking, weak, strong)
    return [[_short(s), _short(q)] for s, q in zip(SHARES, found, strict=True)]


def _at_shares(pair: Pair, rankings: Mapping[str, Floats], seed: int, draws: int) -> dict[str, Any]:
    """Quality where a fixed share goes to strong, with intervals, and how much that is above length's."""
    gain = pair.strong - pair.weak
    columns = {
        f"{name} {share:g}": pair.weak + metrics.assignment(share, ranking) * gain
        for name, ranking in rankings.items()
        for share in FIXED_SHARES
    }
    drawn = metrics.bootstrap_means(columns, seed=seed, draws=draws)
    shares = [f"{s:g}" for s in FIXED_SHARES]
    return {
        "at_share": {s: _short(columns[f"scorer {s}"].mean()) for s in shares},
        "at_share_ci": {s: _span(drawn.interval(f"scorer {s}")) for s in shares},
        "at_share_against_length": {s: _span(drawn.difference(f"scorer {s}", f"length {s}")) for s in shares},
    }


def _costed(
    pair: Pair, ranking: Floats, chosen: NDArray[np.bool_], costs: Costs | None, scouts: int, policy: str
) -> dict[str, Any]:
    """What the policy does and costs, and quality by cost along the curve."""
    costs = flat(len(pair), 0.0, 1.0, "strong calls") if costs is None else costs
    first = (1 + scouts) * costs.weak
    last = first + costs.strong if scouts else costs.strong
    quality = metrics.quality_at(SHARES, ranking, pair.weak, pair.strong)
    cost = metrics.quality_at(SHARES, ranking, first, last)
    spent = float(np.where(chosen, last, first).mean())
    means = costs.means
    out: dict[str, Any] = {
        "at_policy": {
            "policy": policy,
            "strong_share": _short(chosen.mean()),
            "quality": _short(np.where(chosen, pair.strong, pair.weak).mean()),
            "cost": _exact(spent),
        },
        "aiq": _short(metrics.aiq(list(zip(cost.tolist(), quality.tolist(), strict=True)))),
        "costs": [_exact(c) for c in means],
        "cost_unit": costs.unit,
        "aiq_no_router": _short(
            metrics.aiq([(means[0], float(pair.weak.mean())), (means[1], float(pair.strong.mean()))])
        ),
    }
    if costs.unit == DOLLARS:
        out["dollars"] = {
            "per_1k": {"weak": _exact(1e3 * means[0]), "strong": _exact(1e3 * means[1]), "policy": _exact(1e3 * spent)},
            "saved_share": _short(1.0 - spent / means[1]),
            "output_tokens_from": dict(costs.sources),
            "curve": [[_exact(1e3 * c), _short(q)] for c, q in zip(cost, quality, strict=True)],
        }
    return out


def _exact(v: float) -> float:
    """Six digits, wherever the point is: a cheap call costs millionths of a dollar."""
    return float(f"{v:.6g}")


def _drawn(pair: Pair, scored: Scored, chosen: NDArray[np.bool_], rankings: dict[str, Floats]) -> dict[str, Any]:
    """What the report draws beside the numbers: other curves, calibration, scores by group, the dearest mistakes."""
    values = scored.values
    known = np.flatnonzero(~np.isnan(values))
    order = known[np.argsort(values[known], kind="stable")]
    parts = [p for p in np.array_split(order, min(12, max(1, len(order)))) if len(p)]
    edges = np.linspace(0.0, 1.0, 21)
    weak = np.histogram(values[known][~chosen[known]], edges)[0]
    strong = np.histogram(values[known][chosen[known]], edges)[0]
    lost = np.where(chosen, pair.weak - pair.strong, pair.strong - pair.weak)
    worst = sorted(known.tolist(), key=lambda i: (-lost[i], -abs(values[i] - CUT)))[:12]
    return {
        "curves": {name: _curve(r, pair.weak, pair.strong) for name, r in rankings.items() if name != "scorer"},
        "calibration": [[_short(values[p].mean()), _short(1.0 - pair.weak[p].mean()), len(p)] for p in parts],
        "histogram": [
            {"from": _short(a), "to": _short(b), "weak": int(w), "strong": int(s)}
            for a, b, w, s in zip(edges, edges[1:], weak, strong, strict=False)
        ],
        "costly": [
            {
                "prompt": pair.prompts[i][:200],
                "score": _short(values[i]),
                "why": "strong call made it worse" if chosen[i] else "weak answer, strong was better",
            }
            for i in worst
            if lost[i] > 0
        ],
    }


def _ece(scored: Scored, weak: Floats) -> float | None:
    known = ~np.isnan(scored.values)
    if int(known.sum()) < 2:
        return None
    return metrics.calibration_error(scored.values[known], 1.0 - weak[known])


def by_domain(pair: Pair, ranking: Floats, domain: Sequence[str], chosen: NDArray[np.bool_]) -> list[dict[str, Any]]:
    """One row per domain, largest first."""
    names = np.array(domain, dtype=str)
    out: list[dict[str, Any]] = []
    for name in sorted(set(names.tolist()), key=lambda v: (-int((names == v).sum()), v)):
        at = names == name
        w, s = pair.weak[at], pair.strong[at]
        value = metrics.apgr(ranking[at], w, s)
        out.append(
            {
                "domain": name,
                "n": int(at.sum()),
                "weak": _short(w.mean()),
                "strong": _short(s.mean()),
                "strong_share": _short(chosen[at].mean()),
                "quality": _short(np.where(chosen[at], s, w).mean()),
                "apgr": _short(value),
            }
        )
    return out


def sweep(pair: Pair, scored: Scored, points: int = 100) -> list[dict[str, Any]]:
    """What each cut on the score would do, by `decide`; the scores are computed once and reused."""
    values = scored.values
    known = values[~np.isnan(values)]
    inner = np.quantile(known, np.linspace(0.0, 1.0, max(2, points - 1))) if len(known) else np.array([0.5])
    out: list[dict[str, Any]] = []
    for cut in [*np.unique(inner), 1.01]:
        strong = np.array(groups(one_cut(float(cut)), scored)) != "weak"
        quality = np.where(strong, pair.strong, pair.weak).mean()
        out.append({"threshold": _short(cut), "strong_share": _short(strong.mean()), "quality": _short(quality)})
    return out
