"""Writes records to SQL off the hot path: an append for the caller, batches in one thread for the database.

A database that is locked, full, gone or corrupt never blocks or fails a request. The thread retries with
back-off, the queue is bounded, and what it cannot keep is counted in `dropped`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from sqlalchemy import exc

from router.batch import Batcher
from router.quality.estimates import Sample
from router.records import sql
from router.records.reader import SqlReader
from router.records.retention import Retention, Sweep
from router.records.rollups import Rollups
from router.records.sql import Feedback, Row
from router.types import Record

log = logging.getLogger(__name__)


_LAST_TRIES = 3  # while closing, before what the database refuses is given up
_LAST_WAIT_S = 0.2
SUMS_S = 2.0  # how often the sums are written


class SqlRecorder:
    """The `Recorder` over a database. `reader` reads the same database.

    The database is opened by the thread, not here: a server that is down does not keep the gateway from
    starting. `limit` bounds the queue; `busy_s` the wait for a lock; `clock` gives Unix seconds.
    """

    def __init__(
        self,
        url: str,
        *,
        retention: Retention | None = None,
        limit: int = 20_000,
        linger_s: float = 0.1,
        busy_s: float = 5.0,
        back_off_s: tuple[float, float] = (0.1, 5.0),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.written = 0
        self._lost = 0
        self._engine = sql.open_engine(url, busy_s=busy_s)
        self._path = sql.sqlite_path(self._engine)
        self.reader = SqlReader(self._engine)
        self._insert_records = sql.insert_records(self._engine)
        self._sums = Rollups(self._engine)
        self._sums_due = 0.0
        self._upsert_feedback = sql.upsert_feedback(self._engine)
        self._sweep = Sweep(self._engine, retention if retention is not None else Retention())
        self._back_off_s = back_off_s
        self._clock = clock
        self._ready = False
        self._failing = False
        self._insert_samples = sql.insert_samples(self._engine)
        self._batcher = Batcher[Record | Feedback | Sample](
            "records", self._drain, limit=limit, linger_s=linger_s, idle=self._chores, idle_s=SUMS_S
        )
        self.write: Callable[[Record], None] = self._batcher.put
        self.feedback: Callable[[Feedback], None] = self._batcher.put
        self.sample: Callable[[Sample], None] = self._batcher.put
        self._batcher.start()

    @property
    def dropped(self) -> int:
        """Records and feedback that were not kept since the start."""
        return self._lost + self._batcher.dropped

    def flush(self, timeout_s: float = 10.0) -> bool:
        """Waits until everything written before is in the database or counted as dropped."""
        return self._batcher.flush(timeout_s)

    def close(self, timeout_s: float = 5.0) -> None:
        """Writes what is left, within the time; idempotent."""
        if not self._batcher.stop(timeout_s):
            log.error("records: the database did not take the last rows within %g s", timeout_s)
        self._engine.dispose()

    async def aclose(self) -> None:
        await asyncio.to_thread(self.close)

    # --- in the thread -----------------------------------------------------------------------------------

    def _drain(self, batch: list[Record | Feedback | Sample]) -> None:
        rows: list[Row] = []
        records: list[Record] = []
        judged: list[Row] = []
        opinions: dict[tuple[str, str], Row] = {}  # one statement must not touch a row twice
        for item in batch:
            if isinstance(item, Record):  # first: nearly all are, and it is slower to tell that one is not
                try:
                    rows.append(sql.row(item))
                    records.append(item)
                except (ValueError, TypeError) as error:  # msgspec: a value that is not JSON, a lone surrogate
                    self._lose(1, error)
            elif isinstance(item, Feedback):
                opinions[item.request_id, item.tenant] = sql.feedback_row(item)
            else:
                judged.append(sql.sample_row(item))
        if rows:
            kept = self._write(self._insert_records, rows)
            self.written += kept
            if kept:
                self._sums.add(records, rows)
        if judged:
            self._write(self._insert_samples, judged)
        if opinions:
            self._write(self._upsert_feedback, list(opinions.values()))

    def _write(self, statement: sql.Statement, rows: list[Row]) -> int:
        """Writes all rows, or as many as can be before `stopping`; the number that are kept."""
        wait_s, longest_s = self._back_off_s
        left = _LAST_TRIES
        while True:
            try:
                self._execute(statement, rows)
            except sql.ERRORS as error:
                if self._ready and _is_of_a_row(error):
                    return self._one_by_one(statement, rows, error)
                self._failed(error)
                if self._batcher.stopping.wait(wait_s):
                    left -= 1
                    if left < 0:
                        self._lose(len(rows), error)
                        return 0
                    time.sleep(min(wait_s, _LAST_WAIT_S))
                wait_s = min(wait_s * 2, longest_s)
            else:
                if self._failing:
                    self._failing = False
                    log.warning("records: the database takes rows again; %d were dropped so far", self.dropped)
                return len(rows)

    def _one_by_one(self, statement: sql.Statement, rows: list[Row], error: Exception) -> int:
        if len(rows) == 1:
            self._lose(1, error)
            return 0
        return sum(self._write(statement, [row]) for row in rows)

    def _execute(self, statement: sql.Statement, rows: list[Row]) -> None:
        if self._path is not None and self._ready and not self._path.exists():
            self._engine.dispose()  # somebody removed the file: the open one would swallow every row
            self._ready = False
        self._prepare()
        with self._engine.begin() as connection:
            statement.execute(connection, rows)

    def _prepare(self) -> None:
        if not self._ready:
            sql.prepare(self._engine)
            self._ready = True

    def _failed(self, error: Exception) -> None:
        self._ready = False  # the file may be gone or replaced: look again before the next try
        if not self._failing:  # one line an outage, not one a try
            self._failing = True
            log.error(
                "records: the database does not take rows (%s); trying again, and requests are served meanwhile",
                reason(error),
            )
        self._engine.dispose()
        if sql.is_corrupt(error):
            sql.move_aside(self._engine)

    def _lose(self, count: int, error: Exception) -> None:
        self._lost += count
        log.error("records: %d not kept (%s)", count, reason(error))

    def _chores(self) -> None:
        if self._failing:
            return
        try:
            self._prepare()  # at the start, so that there is something to read before the first record
        except sql.ERRORS as error:
            self._failed(error)
            return
        if self._sums and (self._batcher.hurried or time.monotonic() >= self._sums_due):
            self._write_sums()
        try:
            while self._sweep.step(self._clock()) and not len(self._batcher):
                pass
        except sql.ERRORS as error:
            log.warning("records: retention could not run (%s)", reason(error))

    def _write_sums(self) -> None:
        self._sums_due = time.monotonic() + SUMS_S
        try:
            with self._engine.begin() as connection:
                self._sums.execute(connection)
            self._sums.done()
        except sql.ERRORS as error:
            log.warning("records: the sums wait (%s)", reason(error))


def reason(error: Exception) -> str:
    """What went wrong, without the statement, its values or the URL."""
    cause = getattr(error, "orig", None) or error
    code = getattr(cause, "sqlite_errorname", None) or getattr(cause, "sqlstate", None)
    return f"{type(cause).__name__} {code}" if code else type(cause).__name__


def _is_of_a_row(error: Exception) -> bool:
    """The row itself is at fault, so trying again is useless; anything else may pass."""
    if isinstance(error, exc.DBAPIError):
        return isinstance(error, exc.DataError | exc.IntegrityError)
    return isinstance(error, exc.StatementError)
