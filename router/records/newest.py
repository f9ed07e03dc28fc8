"""The newest records that pass a filter: where they are looked for.

The newest of all are searched as they stand. Before these, a filter that few records pass would have the whole index
read, a hundred bytes a record, from the disk where nobody has asked for long. The sums (rollups) say in which half
hours there is something to find, and only those are searched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain

from msgspec import Struct
from sqlalchemy import Connection, and_, func, literal, select, union_all

from router.records.rollups import WIDTHS
from router.records.schema import records, traffic

NEAR = 20_000  # newest records, among them those that the sums have not counted yet
_WIDTHS = WIDTHS[-2:]  # of the sums: half hours, which stay a week, and before these four hours
_TOGETHER = 100  # stretches of one statement
_UNKNOWN = 1 << 40  # requests of a stretch without sums
_SUMMED = ("policy", "route", "group", "deployment", "outcome")
_ORDER = (records.c.time.desc(), records.c.id.desc())


class Filter(Struct, frozen=True, kw_only=True):
    """Which records; None does not restrict. `since` is Unix seconds, inclusive."""

    since: float | None = None
    policy: str | None = None
    route: str | None = None
    group: str | None = None
    deployment: str | None = None
    outcome: str | None = None
    tenant: str | None = None


def newest(connection: Connection, limit: int, where: Filter, near: int = NEAR) -> set[str]:
    """Ids of the newest records that pass the filter. The newest `near` of all are searched as they stand."""
    wanted = {name: getattr(where, name) for name in (*_SUMMED, "tenant") if getattr(where, name) is not None}
    since = where.since if where.since is not None else 0.0
    if not wanted.keys() & set(_SUMMED):
        equal = [records.c[name] == value for name, value in wanted.items()]
        query = select(records.c.id).where(*equal, records.c.time >= since).order_by(*_ORDER).limit(limit)
        return set(connection.scalars(query).all())
    # From the index alone, whatever the filter: it has all these columns.
    columns = [records.c[name] for name in ("id", "time", *wanted)]
    last = select(*columns).where(records.c.time >= since).order_by(*_ORDER).limit(near).subquery()
    query = select(last.c.id).where(*(last.c[name] == value for name, value in wanted.items())).limit(limit)
    found = set(connection.scalars(query).all())
    if len(found) < limit:
        edge = connection.scalar(select(records.c.time).order_by(*_ORDER).offset(near).limit(1))
        oldest = connection.scalar(select(func.min(records.c.time)))
        if edge is not None and oldest is not None and edge >= max(since, oldest):
            found |= _before(connection, limit - len(found), wanted, max(since, oldest), edge)
    return found


def _before(connection: Connection, limit: int, wanted: Mapping[str, str], since: float, edge: float) -> set[str]:
    """From `since` until `edge`, the newest first: as many stretches at once as have what is wanted, by the sums."""
    equal = [records.c[name] == value for name, value in wanted.items()]
    found: set[str] = set()
    together: list[_Stretch] = []
    asked, expected, more = limit, 0, 1
    for stretch in chain(_stretches(connection, wanted, since, edge), (None,)):
        if stretch is not None:
            together.append(stretch)
            expected += stretch.requests
            if expected < asked and len(together) < _TOGETHER:
                continue
        if together:
            within = union_all(
                *(select(literal(one.start).label("low"), literal(one.end).label("high")) for one in together)
            )
            part = within.cte("stretch")
            query = select(records.c.id).join(part, and_(records.c.time >= part.c.low, records.c.time < part.c.high))
            found |= set(connection.scalars(query.where(*equal).order_by(*_ORDER).limit(limit - len(found))).all())
        if len(found) >= limit:
            break
        # Fewer than the sums say pass where a tenant is asked for too: then more and more are searched at once.
        more, together, expected = more * 2, [], 0
        asked = (limit - len(found)) * more
    return found


class _Stretch(Struct, frozen=True, kw_only=True):
    """Unix seconds, and how many requests in it pass as far as the sums know."""

    start: float
    end: float
    requests: int


def _stretches(connection: Connection, wanted: Mapping[str, str], since: float, edge: float) -> Iterator[_Stretch]:
    """Those that may have records that pass, newest first; apart from each other."""
    summed = [traffic.c[name] == value for name, value in wanted.items() if name in _SUMMED]
    end = edge
    for width in _WIDTHS:
        first = connection.scalar(select(func.min(traffic.c.start)).where(traffic.c.width == width))
        if first is None or first >= end:
            continue
        # What lies in the first stretch may be from before there were sums.
        within = (traffic.c.width == width, traffic.c.start > max(first, since - width), traffic.c.start < end)
        query = select(traffic.c.start, func.sum(traffic.c.requests)).where(*within, *summed)
        for start, requests in connection.execute(query.group_by(traffic.c.start).order_by(traffic.c.start.desc())):
            yield _Stretch(start=max(float(start), since), end=min(float(start + width), end), requests=int(requests))
        end = max(since, min(end, float(first + width)))
    if since < end:
        yield _Stretch(start=since, end=end, requests=_UNKNOWN)  # older than the sums
