"""How far the formula of `estimate` is from what was measured, row by row of the catalogue, and whether it ranks sizes
of one model as they were measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from router.cluster import estimate
from router.cluster.values import Cluster, Model, Parallel


class Row(Struct, frozen=True, kw_only=True):
    """One measured rate, and what the formula alone says of it."""

    model: str
    nodes: int
    concurrency: int
    note: str
    measured: float
    predicted: float
    low: float
    high: float
    source: str

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1

    @property
    def inside(self) -> bool:
        return self.low <= self.measured <= self.high


class Summary(Struct, frozen=True, kw_only=True):
    """All rows together."""

    rows: int
    median_error: float  # of absolute values
    worst_error: float
    inside: float  # share of the rows in the range
    pairs: int  # of sizes of one model with as many streams
    ranked: int  # of them as they were measured


def rows(models: Iterable[Model], cluster: Cluster) -> list[Row]:
    """A row for each measured rate; the estimate does not see it, nor any other."""
    found: list[Row] = []
    for model in models:
        blind = replace(model, measured=())
        for row in model.measured:
            if row.tokens_per_s is None:
                continue
            fabric = replace(cluster.fabric, collectives=row.collectives)
            held = replace(blind, drafts=model.drafts if row.drafts is None else row.drafts)
            at = estimate.decode(held, replace(cluster, fabric=fabric), Parallel(tensor=row.nodes), row.concurrency)
            found.append(
                Row(
                    model=model.name,
                    nodes=row.nodes,
                    concurrency=row.concurrency,
                    note=row.note,
                    measured=row.tokens_per_s,
                    predicted=at.mid,
                    low=at.low,
                    high=at.high,
                    source=row.source,
                )
            )
    return found


def summary(of: Sequence[Row]) -> Summary:
    """Raises ValueError where there are no rows."""
    if not of:
        raise ValueError("no rows")
    errors = [abs(row.error) for row in of]
    pairs = [
        (a, b) for a in of for b in of if a.model == b.model and a.concurrency == b.concurrency and a.nodes < b.nodes
    ]
    return Summary(
        rows=len(of),
        median_error=float(np.median(errors)),
        worst_error=max(errors),
        inside=sum(row.inside for row in of) / len(of),
        pairs=len(pairs),
        ranked=sum((a.predicted < b.predicted) == (a.measured < b.measured) for a, b in pairs),
    )
