"""What the sums of records say of a stretch of time: traffic by group and route, cost, times, scores.

Every call blocks; what it costs hangs on the length of the stretch, not on the number of records (docs/performance.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from sqlalchemy import ColumnElement, Connection, Row, Select, case, func, select

from router.records.rollups import COARSE_S, FINE_S, SCORE_BUCKETS, percentile, times
from router.records.schema import measures, traffic

FINE_MOST_S = 2 * 3600  # a longer stretch is told from the coarse rows
MOST_POINTS = 360
SHARES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
_SERIES = ("requests", "failed", "input_tokens", "output_tokens", "cost")
# Outcomes that are the gateway's or its upstreams' fault; a client's mistake and a client that leaves are not.
FAILED = ("upstream_error", "upstream_truncated", "timeout", "refused")


class Stretch(Struct, frozen=True, kw_only=True):
    """From when to when, in Unix seconds, in points of `step_s` seconds; `width` of the rows that are read."""

    start: int
    end: int
    step_s: int
    width: int
    now: float  # before `end`: the last point is not over yet


def stretch(now: float, window_s: float) -> Stretch:
    """The last `window_s` seconds, up to the point that is not over yet."""
    width = FINE_S if window_s <= FINE_MOST_S else COARSE_S
    steps = max(1, -(-int(window_s) // (width * MOST_POINTS)))
    step_s = width * steps
    end = int(now) // step_s * step_s + step_s
    return Stretch(
        start=end - max(1, -(-int(window_s) // step_s)) * step_s, end=end, step_s=step_s, width=width, now=now
    )


def summary(connection: Connection, over: Stretch) -> dict[str, Any]:
    """Everything that the page shows of a stretch."""
    totals = connection.execute(_totals(over)).all()
    spread = dict(times(connection.execute(_spread(over)).all()))
    seconds = over.now - over.start
    return {
        "start": over.start,
        "end": over.end,
        "step_s": over.step_s,
        "now": over.now,
        "totals": _summed(totals),
        "routes": _by(totals, "policy", "route", "group"),
        "groups": [one | _rates(one, seconds) | _times(spread, one["group"]) for one in _by(totals, "group")],
        "deployments": [
            one | _rates(one, seconds) | _times(spread, one["group"], one["deployment"])
            for one in _by(totals, "group", "deployment")
            if one["deployment"]
        ],
        "overhead": _percentiles(_gathered(spread, "overhead")),
        "series": _series(connection, over),
        "scores": [
            {"scorer": name, "buckets": [counts.get(n, 0) for n in range(SCORE_BUCKETS)]}
            for (measure, name, _), counts in sorted(spread.items())
            if measure == "score"
        ],
    }


def _within(over: Stretch, table: Any) -> tuple[ColumnElement[bool], ...]:
    return table.c.width == over.width, table.c.start >= over.start, table.c.start < over.end


def _totals(over: Stretch) -> Select[*tuple[Any, ...]]:
    t = traffic.c
    keys = (t.policy, t.route, t.group, t.deployment, t.outcome)
    sums = (t.requests, t.input_tokens, t.output_tokens, t.cost, t.compared, t.saved)
    return (
        select(*keys, *(func.sum(one).label(one.name) for one in sums)).where(*_within(over, traffic)).group_by(*keys)
    )


def _spread(over: Stretch) -> Select[*tuple[Any, ...]]:
    m = measures.c
    keys = (m.measure, m.subject, m.deployment, m.bucket)
    return select(*keys, func.sum(m.count)).where(*_within(over, measures)).group_by(*keys)


def _series(connection: Connection, over: Stretch) -> dict[str, Any]:
    """By group, a number for every point; of times the median and the 95th percentile, None where there are none."""
    t, m = traffic.c, measures.c
    points = range(over.start, over.end, over.step_s)
    place = {at: index for index, at in enumerate(points)}
    found: dict[str, dict[str, list[Any]]] = {}

    def of(group: str) -> dict[str, list[Any]]:
        empty: dict[str, list[Any]] = {name: [0] * len(points) for name in _SERIES}
        return found.setdefault(group, empty | {name: [None] * len(points) for name in _TIMED})

    at = (t.start - t.start % over.step_s).label("at")
    failed = func.sum(case((t.outcome.in_(FAILED), t.requests), else_=0)).label("failed")
    sums = (func.sum(t[name]).label(name) for name in _SERIES if name != "failed")
    for row in connection.execute(
        select(at, t.group, failed, *sums).where(*_within(over, traffic)).group_by(at, t.group)
    ):
        for name in _SERIES:
            of(row.group)[name][place[row.at]] = _plain(getattr(row, name))
    at = (m.start - m.start % over.step_s).label("at")
    keys = (at, m.measure, m.subject, m.bucket)
    kinds = m.measure.in_(("ttft", "tpot"))
    counted: dict[tuple[int, str, str], dict[int, int]] = {}
    query = select(*keys, func.sum(m.count).label("n")).where(*_within(over, measures), kinds).group_by(*keys)
    for row in connection.execute(query):
        counted.setdefault((row.at, row.measure, row.subject), {})[row.bucket] = int(row.n)
    for (when, measure, group), counts in counted.items():
        for name, share in (("p50", 0.5), ("p95", 0.95)):
            of(group)[f"{measure}_{name}"][place[when]] = _rounded(percentile(counts, share))
    return {"times": list(points), "groups": found}


_TIMED = tuple(f"{measure}_{name}" for measure in ("ttft", "tpot") for name in ("p50", "p95"))


def _summed(rows: Any) -> dict[str, Any]:
    """Of rows of `_totals`; `failed` are those that were not the client's doing."""
    return {
        "requests": sum(int(row.requests) for row in rows),
        "failed": sum(int(row.requests) for row in rows if row.outcome in FAILED),
        "input_tokens": sum(int(row.input_tokens) for row in rows),
        "output_tokens": sum(int(row.output_tokens) for row in rows),
        "cost": sum(float(row.cost) for row in rows),
        "saved": sum(float(row.saved) for row in rows),
        "compared": sum(int(row.compared) for row in rows),
        "outcomes": _outcomes(rows),
    }


def _outcomes(rows: Any) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in rows:
        found[row.outcome] = found.get(row.outcome, 0) + int(row.requests)
    return found


def _by(rows: Any, *names: str) -> list[dict[str, Any]]:
    """Rows of `_totals` gathered by some of their keys, the busiest first."""
    gathered: dict[tuple[str, ...], list[Row[Any]]] = {}
    for row in rows:
        gathered.setdefault(tuple(getattr(row, name) for name in names), []).append(row)
    found = [dict(zip(names, key, strict=True)) | _summed(of) for key, of in gathered.items()]
    return sorted(found, key=lambda one: -one["requests"])


def _rates(one: Mapping[str, Any], seconds: float) -> dict[str, float]:
    return {
        "requests_per_s": round(one["requests"] / seconds, 4),
        "output_tokens_per_s": round(one["output_tokens"] / seconds, 3),
    }


_Spread = Mapping[tuple[str, str, str], Mapping[int, int]]


def _times(spread: _Spread, group: str, deployment: str | None = None) -> dict[str, Any]:
    return {name: _percentiles(_gathered(spread, name, group, deployment)) for name in ("ttft", "tpot", "total")}


def _gathered(spread: _Spread, measure: str, group: str | None = None, deployment: str | None = None) -> dict[int, int]:
    found: dict[int, int] = {}
    for (kind, subject, place), counts in spread.items():
        if kind == measure and group in (None, subject) and deployment in (None, place):
            for bucket, count in counts.items():
                found[bucket] = found.get(bucket, 0) + count
    return found


def _percentiles(counts: Mapping[int, int]) -> dict[str, Any]:
    return {"n": sum(counts.values())} | {name: _rounded(percentile(counts, share)) for name, share in SHARES.items()}


def _rounded(seconds: float | None) -> float | None:
    """To three digits, as exact as buckets are."""
    return float(f"{seconds:.3g}") if seconds is not None else None


def _plain(value: Any) -> float:
    """PostgreSQL gives sums of integers as decimals."""
    return float(value) if isinstance(value, float) else int(value)
