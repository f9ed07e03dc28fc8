"""Reading the records database: the newest, one, all since a time, and the feedback on one.

Every call blocks and is safe from any thread; callers on an event loop use a worker thread.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from math import isfinite
from typing import Any

import msgspec
from sqlalchemy import Connection, Engine, select, tuple_

from router import record
from router.errors import Overloaded
from router.quality.estimates import Sample
from router.records import summary
from router.records.newest import Filter, newest
from router.records.schema import feedback, records, samples
from router.records.sql import ERRORS, Feedback
from router.types import Record

_CHUNK = 1_000


class SqlReader:
    """Raises `Overloaded` when the database does not answer."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def recent(self, limit: int = 50, where: Filter | None = None) -> list[Record]:
        """The newest records that pass the filter, newest first."""
        whole = select(records.c.record).order_by(records.c.time.desc(), records.c.id.desc())
        with self._connection() as connection:
            ids = newest(connection, limit, where if where is not None else Filter())
            return [record.decode(line) for line in connection.scalars(whole.where(records.c.id.in_(ids)))]

    def summary(self, now: float, window_s: float) -> dict[str, Any]:
        """What the last `window_s` seconds before `now` (Unix seconds) came to."""
        with self._connection() as connection:
            return summary.summary(connection, summary.stretch(now, window_s))

    def get(self, request_id: str) -> Record | None:
        with self._connection() as connection:
            line = connection.scalar(select(records.c.record).where(records.c.id == request_id))
        return record.decode(line) if line is not None else None

    def export(self, since: float | None = None, *, whole: bool = True) -> Iterator[str]:
        """JSON lines of the contract, oldest first, without line ends; with `feedback` where there is any. Not `whole`:
        as they are stored, for readers that know what was left out.

        Read in chunks, each in its own short transaction: one long read would keep the write-ahead log growing.
        """
        key = (since if since is not None else float("-inf"), "")
        query = select(records.c.time, records.c.id, records.c.record).order_by(records.c.time, records.c.id)
        while True:
            after = query.where(tuple_(records.c.time, records.c.id) > tuple_(*key)).limit(_CHUNK)
            with self._connection() as connection:
                rows = connection.execute(after).all()
                given = _feedback(connection, [row.id for row in rows])
            for _, identity, line in rows:
                if whole:
                    line = record.whole(line).decode()
                yield line if identity not in given else f'{line[:-1]},"feedback":{given[identity]}}}'
            if len(rows) < _CHUNK:
                return
            key = (rows[-1].time, rows[-1].id)

    def feedback(self, request_id: str) -> list[Feedback]:
        with self._connection() as connection:
            rows = connection.execute(select(feedback).where(feedback.c.request_id == request_id)).all()
        return [
            Feedback(request_id=r.request_id, tenant=r.tenant, time=r.time, score=r.score, label=r.label) for r in rows
        ]

    def samples(self, since: float = 0.0, limit: int = 20_000) -> list[Sample]:
        """The newest judged requests from `since` (Unix seconds) on, oldest first."""
        query = select(samples.c.sample).where(samples.c.time >= since)
        query = query.order_by(samples.c.time.desc(), samples.c.id.desc()).limit(limit)
        with self._connection() as connection:
            found = [msgspec.json.decode(line, type=Sample) for line in connection.scalars(query)]
        return found[::-1]

    def opinions(self, since: float = 0.0, limit: int = 5_000) -> list[tuple[Feedback, Record]]:
        """The newest feedback from `since` (Unix seconds) on with the records that it is of, oldest first."""
        query = select(feedback, records.c.record).join(records, records.c.id == feedback.c.request_id)
        query = query.where(feedback.c.time >= since).order_by(feedback.c.time.desc()).limit(limit)
        with self._connection() as connection:
            rows = connection.execute(query).all()
        return [
            (
                Feedback(request_id=r.request_id, tenant=r.tenant, time=r.time, score=r.score, label=r.label),
                record.decode(r.record),
            )
            for r in reversed(rows)
        ]

    @contextmanager
    def _connection(self) -> Generator[Connection, None, None]:
        try:
            with self._engine.connect() as connection:
                yield connection
        except ERRORS as error:
            raise Overloaded("the records database does not answer", retry_after_s=5.0) from error


def _feedback(connection: Connection, ids: Sequence[str]) -> dict[str, str]:
    """The newest feedback on each request that has any, whoever gave it, as JSON."""
    query = select(feedback).where(feedback.c.request_id.in_(ids)).order_by(feedback.c.time)
    rows = connection.execute(query).all()
    return {r.request_id: msgspec.json.encode({"score": r.score, "label": r.label}).decode() for r in rows}


def instant(text: str) -> float:
    """Unix seconds from Unix seconds or ISO 8601 (without a zone it is UTC). Raises `ValueError`."""
    try:
        seconds = float(text)
    except ValueError:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise ValueError("a time is Unix seconds or ISO 8601, as 2026-11-30T12:00:00Z") from None
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
    if not isfinite(seconds):
        raise ValueError("a time is a finite number of seconds")
    return seconds
