"""Sums of records, so that a page that looks at a million of them reads some thousand rows: counts, tokens and dollars
in `traffic`, distributions of times and scores in `measures`.

Gathered in the recorder's thread from the records that were written, and added to the tables every two seconds: a
process that is killed loses that much of its sums, and none of its records.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Literal

import numpy
from numpy.typing import NDArray
from sqlalchemy import Connection, Engine, Table

from router.records.schema import measures, records, traffic
from router.records.sql import Row, Statement, insert_into
from router.types import Record, Score

Measure = Literal["ttft", "tpot", "total", "overhead", "score"]

# Seconds that one row is of, each right for some dozen rows: 15 minutes, an hour, six, a day, a week or month.
WIDTHS = (10, 60, 300, 1_800, 14_400)
FINE_S = WIDTHS[0]
PER_DECADE = 20  # buckets of a time; the middle of one is at most 6% off
SCORE_BUCKETS = 20  # of [0, 1]
_TINY_S = 1e-6
_ADDED = ("requests", "input_tokens", "output_tokens", "cost", "compared", "saved")

# Where a row of `records` has what sums are kept by: all but the first two stand beside each other.
_COLUMNS = tuple(records.columns.keys())
_TIME, _POLICY = _COLUMNS.index("time"), _COLUMNS.index("policy")
_PLACE = slice(_COLUMNS.index("route"), _COLUMNS.index("outcome") + 1)


def buckets(seconds: Sequence[float]) -> Iterator[tuple[int, int]]:
    """How many times lie in each bucket."""
    return _counted(numpy.floor(numpy.log10(numpy.maximum(seconds, _TINY_S)) * PER_DECADE))


def _by_score(scores: Sequence[float]) -> Iterator[tuple[int, int]]:
    return _counted(numpy.minimum(numpy.floor(numpy.multiply(scores, SCORE_BUCKETS)), SCORE_BUCKETS - 1))


def _counted(found: NDArray[numpy.float64]) -> Iterator[tuple[int, int]]:
    values, counts = numpy.unique(found.astype(numpy.int64), return_counts=True)
    return zip(values.tolist(), counts.tolist(), strict=True)


def seconds_of(bucket: int) -> float:
    """The middle of a bucket of times."""
    return 10 ** ((bucket + 0.5) / PER_DECADE)


def percentile(counts: Mapping[int, int], share: float) -> float | None:
    """Seconds below which a share of the observations lie; None without any."""
    wanted = share * sum(counts.values())
    below = 0
    for bucket in sorted(counts):
        below += counts[bucket]
        if below >= wanted and below:
            return seconds_of(bucket)
    return None


class Rollups:
    """What is to be added to the sums of one database."""

    def __init__(self, engine: Engine) -> None:
        self._insert_traffic = _adding(engine, traffic, _ADDED)
        self._insert_measures = _adding(engine, measures, ("count",))
        self.done()

    def __bool__(self) -> bool:
        return bool(self._traffic)

    def add(self, of: Sequence[Record], rows: Sequence[Row]) -> None:
        """These records, and each one's row."""
        alike: defaultdict[tuple[Any, ...], list[int]] = defaultdict(list)
        for n, row in enumerate(rows):  # then a few calls add up all that are alike
            alike[row[_TIME] // FINE_S, row[_POLICY], row[_PLACE]].append(n)
        for (time, policy, place), found in alike.items():
            start = int(time) * FINE_S
            some = [of[n] for n in found]
            column = dict(zip(_COLUMNS, zip(*[rows[n] for n in found], strict=True), strict=True))
            self._add_traffic((start, policy, *(name or "" for name in place)), some, column)
            if column["route"][0] is not None:
                self._add_measures(start, some, column)

    def _add_traffic(self, key: tuple[Any, ...], some: list[Record], column: Mapping[str, Sequence[Any]]) -> None:
        costs = [cost for cost in column["cost"] if cost is not None]
        saved = [one.cost_large - one.cost for one in some if one.cost is not None and one.cost_large is not None]
        tokens = (sum(column["input_tokens"]), sum(column["output_tokens"]))
        more = [len(some), *tokens, sum(costs), len(saved), sum(saved)]
        before = self._traffic.get(key)
        self._traffic[key] = more if before is None else _joined(before, more)

    def _add_measures(self, start: int, some: list[Record], column: Mapping[str, Sequence[Any]]) -> None:
        group, deployment = column["group"][0], column["deployment"][0] or ""
        for measure in ("ttft", "tpot", "total"):
            times = [seconds for seconds in column[f"{measure}_s"] if seconds is not None]
            self._measured[start, measure, group, deployment] += times
        self._measured[start, "overhead", "", ""] += [one.timing.overhead_s for one in some]
        for name, score in chain.from_iterable([one.scores.items() for one in some]):
            if isinstance(score, Score):
                self._measured[start, "score", name, ""].append(score.value)

    def execute(self, connection: Connection) -> None:
        # In order of their keys: two gateways that add to the same rows of one server never wait for each other.
        counted, spread = _widths(self._traffic, _joined), _widths(self._spread(), int.__add__)
        self._insert_traffic.execute(connection, sorted((*key, *cell) for key, cell in counted.items()))
        if spread:
            self._insert_measures.execute(connection, sorted((*key, count) for key, count in spread.items()))

    def _spread(self) -> dict[tuple[Any, ...], int]:
        """Of each measure how many lie in each bucket; of the overhead, which is asked for as a whole, over all."""
        return {
            (*key, bucket): count
            for key, values in self._measured.items()
            for bucket, count in (_by_score(values) if key[1] == "score" else buckets(values))
        }

    def done(self) -> None:
        """They were added, and the transaction is over."""
        self._traffic: dict[tuple[Any, ...], list[float]] = {}
        self._measured: defaultdict[tuple[int, Measure, str, str], list[float]] = defaultdict(list)


def _joined(cell: list[float], more: list[float]) -> list[float]:
    return [a + b for a, b in zip(cell, more, strict=True)]


def _widths(fine: Mapping[tuple[Any, ...], Any], add: Any) -> dict[tuple[Any, ...], Any]:
    all_: dict[tuple[Any, ...], Any] = {}
    for (start, *rest), value in fine.items():
        for width in WIDTHS:
            key = (width, start // width * width, *rest)
            all_[key] = add(all_[key], value) if key in all_ else value
    return all_


def _adding(engine: Engine, table: Table, added: Sequence[str]) -> Statement:
    """An insert that adds to the row that is there."""
    insert = insert_into(engine, table)
    keys = [column.name for column in table.primary_key.columns]
    sums = {name: table.c[name] + insert.excluded[name] for name in added}
    return Statement(engine, insert.on_conflict_do_update(index_elements=keys, set_=sums), table)


def times(rows: Iterable[Sequence[Any]]) -> Iterator[tuple[tuple[str, str, str], dict[int, int]]]:
    """Rows of (measure, subject, deployment, bucket, count), gathered by all but the bucket."""
    found: dict[tuple[str, str, str], dict[int, int]] = {}
    for measure, subject, deployment, bucket, count in rows:
        cell = found.setdefault((measure, subject, deployment), {})
        cell[bucket] = cell.get(bucket, 0) + int(count)
    yield from found.items()
