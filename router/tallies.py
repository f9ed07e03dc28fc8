"""What `metrics` adds up: histograms, and what is kept of one group or one scorer.

Values are added many at a time, which numpy does for a small part of what one after the other costs. Names and labels
are `metrics`'.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TypeVar

import numpy

T = TypeVar("T")

# Bucket edges in seconds. TTFT reaches from a cached local answer to a long prompt on a busy cluster.
TTFT_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
TPOT_S = (0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0)
REQUEST_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
OVERHEAD_S = (50e-6, 100e-6, 250e-6, 500e-6, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
SCORER_S = (10e-6, 25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
DECILES = tuple(n / 10 for n in range(1, 11))


class Histogram:
    """Counts between edges; `le` is inclusive as Prometheus has it."""

    __slots__ = ("_counts", "_edges", "_names", "total")

    def __init__(self, edges: tuple[float, ...]) -> None:
        self._names = (*map(repr, edges), "+Inf")
        self._edges = numpy.array(edges)
        self._counts = numpy.zeros(len(edges) + 1, numpy.int64)
        self.total = 0.0

    def add(self, values: list[float]) -> None:
        if values:
            self._counts += numpy.bincount(self._edges.searchsorted(values), minlength=len(self._counts))
            self.total += sum(values)

    def counts(self) -> list[int]:
        """By bucket, not summed up."""
        return self._counts.tolist()

    def buckets(self) -> list[tuple[str, float]]:
        rows: list[tuple[str, float]] = []
        sum_so_far = 0
        for edge, count in zip(self._names, self._counts.tolist(), strict=True):
            sum_so_far += count
            rows.append((edge, sum_so_far))
        return rows


class Group:
    """What is kept of one group."""

    __slots__ = ("cost", "input", "output", "request", "tpot", "ttft")

    def __init__(self) -> None:
        self.ttft = Histogram(TTFT_S)
        self.tpot = Histogram(TPOT_S)
        self.request = Histogram(REQUEST_S)
        self.input = 0
        self.output = 0
        self.cost = 0.0


class Savings:
    """Dollars saved against the dearest group. A single request may cost more than that (a failover to a dearer
    deployment); a Prometheus counter must not fall, so what is shown is the highest the true sum has been."""

    __slots__ = ("shown", "true")

    def __init__(self) -> None:
        self.true = 0.0
        self.shown = 0.0

    def add(self, dollars: list[float]) -> None:
        sums = list(accumulate(dollars, initial=self.true))
        self.true = sums[-1]
        self.shown = max(self.shown, *sums)


class Scorer:
    """What is kept of one scorer; the first two are not counted yet."""

    __slots__ = ("score", "scores", "seconds", "took")

    def __init__(self) -> None:
        self.scores: list[float] = []
        self.took: list[float] = []
        self.score = Histogram(DECILES)
        self.seconds = Histogram(SCORER_S)


def taken(some: list[T]) -> list[T]:
    """What a list holds, taken out of it; what another thread appends meanwhile stays in."""
    values = some[:]
    del some[: len(values)]
    return values
