"""Sums of records, so that a page that looks at a million of them reads some thousand rows: counts, tokens and dollars
in `traffic`, distributions of times and scores in `measures`.

Gathered in the recorder's thread from the records that were written, and added to the tables every two seconds: a
process that is killed loses that much of its sums, and none of its records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import log10
from typing import Any, Literal

from sqlalchemy import Connection, Engine, Table

from router import record
from router.records.schema import measures, traffic
from router.records.sql import LARGEST, Statement, insert_into
from router.types import Record, Score

Measure = Literal["ttft", "tpot", "total", "overhead", "score"]

# Seconds that one row is of, each right for some dozen rows: 15 minutes, an hour, six, a day, a week or month.
WIDTHS = (10, 60, 300, 1_800, 14_400)
FINE_S = WIDTHS[0]
PER_DECADE = 20  # buckets of a time; the middle of one is at most 6% off
SCORE_BUCKETS = 20  # of [0, 1]
_TINY_S = 1e-6
_ADDED = ("requests", "input_tokens", "output_tokens", "cost", "compared", "saved")

_Traffic = dict[tuple[Any, ...], list[float]]
_Measures = dict[tuple[Any, ...], int]
_MEASURED: tuple[Measure, ...] = ("ttft", "tpot", "total", "overhead")
_Times = dict[tuple[int, str, str], tuple[list[float], list[float], list[float], list[float]]]  # seconds, as measured


def bucket_of(seconds: float) -> int:
    return int(log10(seconds) * PER_DECADE // 1) if seconds > _TINY_S else -6 * PER_DECADE


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
        self._traffic: _Traffic = {}
        self._measures: _Measures = {}
        self._times: _Times = {}

    def __bool__(self) -> bool:
        return bool(self._traffic)

    def add(self, of: Iterable[Record]) -> None:
        for one in of:
            _add(self._traffic, self._measures, self._times, one)

    def execute(self, connection: Connection) -> None:
        # In order of their keys: two gateways that add to the same rows of one server never wait for each other.
        counted, spread = _widths(self._traffic, _joined), _widths(self._spread(), int.__add__)
        self._insert_traffic.execute(connection, sorted((*key, *cell) for key, cell in counted.items()))
        if spread:
            self._insert_measures.execute(connection, sorted((*key, count) for key, count in spread.items()))

    def _spread(self) -> _Measures:
        """Of each measure how many lie in each bucket; of the overhead, which is asked for as a whole, over all."""
        spread = dict(self._measures)
        for (start, group, deployment), cells in self._times.items():
            places = ((group, deployment),) * 3 + (("", ""),)
            for measure, place, seconds in zip(_MEASURED, places, cells, strict=True):
                for bucket, count in Counter(map(bucket_of, seconds)).items():
                    key = (start, measure, *place, bucket)
                    spread[key] = spread.get(key, 0) + count
        return spread

    def done(self) -> None:
        """They were added, and the transaction is over."""
        self._traffic, self._measures, self._times = {}, {}, {}


def _joined(cell: list[float], more: list[float]) -> list[float]:
    return [a + b for a, b in zip(cell, more, strict=True)]


def _add(fine: _Traffic, spread: _Measures, times: _Times, one: Record) -> None:
    start = int(one.time) // FINE_S * FINE_S
    decision, served, timing = one.decision, record.served(one), one.timing
    group, deployment, route = "", "", ""
    if served is not None:
        group, deployment = served.group, served.deployment
    if decision is not None:
        group, route = group or decision.group, decision.route
    key = (start, one.policy, route, group, deployment, one.outcome)
    cell = fine.get(key)
    if cell is None:
        cell = fine[key] = [0, 0, 0, 0.0, 0, 0.0]
    cell[0] += 1
    cell[1] += min(one.usage.input, LARGEST)
    cell[2] += min(one.usage.output, LARGEST)
    if one.cost is not None:
        cell[3] += one.cost
        if one.cost_large is not None:
            cell[4] += 1
            cell[5] += one.cost_large - one.cost
    if decision is None:
        return
    took = times.get((start, group, deployment))
    if took is None:
        took = times[start, group, deployment] = ([], [], [], [])
    if timing.ttft_s is not None:
        took[0].append(timing.ttft_s)
    if timing.tpot_s is not None:
        took[1].append(timing.tpot_s)
    took[2].append(timing.total_s)
    took[3].append(timing.overhead_s)
    for name, score in one.scores.items():
        if isinstance(score, Score):
            place = (start, "score", name, "", min(int(score.value * SCORE_BUCKETS), SCORE_BUCKETS - 1))
            spread[place] = spread.get(place, 0) + 1


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
