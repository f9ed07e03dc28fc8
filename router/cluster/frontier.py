"""How much load and how much quality each share of the large group comes to, routed and at random, each share with the
layout that suits it: what a cluster can be made to do, and what routing adds to chance.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from router.cluster.partition import ROLES
from router.cluster.scenario import Ready, Routing, Scenario, Which, bearable, candidates, cut_at, ready, share_of
from router.cluster.values import Impossible, Layout

TRIED = 6  # layouts of a share that are simulated
SHORT = 3000  # requests of one look at each of them


class Point(Struct, frozen=True, kw_only=True):
    """One share of the large group."""

    share: float  # of the requests, to the large group
    layout: str
    capacity_rps: float  # borne within the objective, routed
    quality: float
    random_capacity_rps: float
    random_quality: float


def frontier(
    of: Scenario, seed: int, shares: tuple[float, ...], which: Which = "mid", step: Callable[[], None] = lambda: None
) -> tuple[Point, ...]:
    """A point for each share; `step` is called after each. Raises Impossible."""
    points: list[Point] = []
    held = of.recorded
    for wanted in shares:
        one = replace(of, routing=Routing(large_share=wanted))
        one, made = _suited(one, seed, which)
        share = share_of(one, made)
        large = np.nan_to_num(held.scores, nan=2.0) >= made.threshold
        routed = np.where(large, held.quality["large"], held.quality["small"])
        mixed = share * held.quality["large"] + (1 - share) * held.quality["small"]
        points.append(
            Point(
                share=share,
                layout=made.names["routed"],
                capacity_rps=bearable(one, made, "routed", seed),
                quality=float(routed.mean()),
                random_capacity_rps=bearable(one, made, "random", seed),
                random_quality=float(mixed.mean()),
            )
        )
        step()
    return tuple(points)


def _suited(of: Scenario, seed: int, which: Which) -> tuple[Scenario, Ready]:
    """The scenario with the layout that bears the most, of those that promise it."""
    models = [of.models[role] for role in ROLES if role in of.models]
    best: tuple[float, Scenario, Ready] | None = None
    tried: dict[str, Layout] = {}  # one of those that differ only in where the classifier is
    for layout in candidates(of, "routed", models, cut_at(of), which):
        tried.setdefault(layout.name.partition("+classifier")[0], layout)
    for layout in list(tried.values())[:TRIED]:
        one = replace(of, layouts={**of.layouts, "routed": layout.name})
        made = ready(one, which)
        borne = bearable(one, made, "routed", seed, SHORT)
        if best is None or borne > best[0]:
            best = (borne, one, made)
    if best is None:
        raise Impossible(f"{of.name}: no layout holds its models; see `pointsman plan partition`")
    return best[1], best[2]
