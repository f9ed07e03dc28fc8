"""What the sums of records say of a stretch of time: traffic by group and route, cost, times, scores.

Every call blocks; what it costs hangs on the length of the stretch, not on the number of records (docs/performance.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from sqlalchemy import ColumnElement, Connection, Row, Select, case, func, select

from router.records.rollups import SCORE_BUCKETS, WIDTHS, percentile, times
from router.records.schema import measures, traffic

MOST_TIMED = 64  # stretches of which percentiles are told; each is told for all of its points
MOST_POINTS = 192  # more are not seen apart; a month is 180 stretches of four hours
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
    width = next((one for one in WIDTHS if window_s <= one * MOST_POINTS), WIDTHS[-1])
    step_s = width * -(-int(window_s) // (width * MOST_POINTS))
    end = int(now) // step_s * step_s + step_s
    return Stretch(start=end - -(-int(window_s) // step_s) * step_s, end=end, step_s=step_s, width=width, now=now)


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
    found: dict[str, dict[str, list[Any]]] = {}
    at = t.start - t.start % over.step_s
    failed = func.sum(case((t.outcome.in_(FAILED), t.requests), else_=0))
    sums = (failed if name == "failed" else func.sum(t[name]) for name in _SERIES)
    query: Select[*tuple[Any, ...]] = select(at, t.group, *sums).where(*_within(over, traffic)).group_by(at, t.group)
    for row in connection.execute(query).all():
        when, group, *values = tuple[Any, ...](row)
        place = (when - over.start) // over.step_s
        lines = found.get(group)
        if lines is None:
            lines = found[group] = {name: [0] * len(points) for name in _SERIES}
            lines |= {name: [None] * len(points) for name in _TIMED}
        for name, value in zip(_SERIES, values, strict=True):
            lines[name][place] = _plain(value)
    wide_s = over.step_s * -(-len(points) // MOST_TIMED)
    at = m.start - m.start % wide_s
    keys = (at, m.measure, m.subject, m.bucket)
    kinds = m.measure.in_(("ttft", "tpot"))
    counted: dict[tuple[int, str, str], dict[int, int]] = {}
    timed: Select[*tuple[Any, ...]] = select(*keys, func.sum(m.count))
    timed = timed.where(*_within(over, measures), kinds).group_by(*keys)
    for when, measure, group, bucket, count in connection.execute(timed).all():
        cell = counted.get((when, measure, group))
        if cell is None:
            cell = counted[when, measure, group] = {}
        cell[bucket] = int(count)
    for (when, measure, group), counts in counted.items():
        first, last = (max(0, (edge - over.start) // over.step_s) for edge in (when, when + wide_s))
        for name, share in (("p50", 0.5), ("p95", 0.95)):
            line = found[group][f"{measure}_{name}"]
            line[first:last] = [_rounded(percentile(counts, share))] * len(line[first:last])
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
