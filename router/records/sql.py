"""How the records database is opened and written to: SQLite embedded, PostgreSQL through a URL.

SQLAlchemy Core, one set of statements for both. What belongs here: connections, rows, what an error means.
What does not: the tables (schema), when rows are written (recorder) and read (reader).
"""

from __future__ import annotations

import logging
import sqlite3
import time
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import Connection, Engine, Table, create_engine, event, exc, make_url
from sqlalchemy.dialects import postgresql, sqlite

from router import record
from router.quality.estimates import Sample
from router.records.schema import feedback, metadata, migrate, records, samples
from router.redact import redact
from router.types import Abstain, Record

__all__ = ["Feedback", "feedback", "metadata", "records"]

log = logging.getLogger(__name__)

# What a database may raise: sqlite3's own errors come unwrapped out of the listener that tunes a connection.
ERRORS = (exc.SQLAlchemyError, sqlite3.Error)

LARGEST = 2**31 - 1  # of a column: an upstream may report any number, and one row must not spoil its batch


class Feedback(Struct, frozen=True, kw_only=True):
    """What somebody thought of an answer: `score` in [0, 1]."""

    request_id: str
    tenant: str = ""
    time: float  # Unix seconds
    score: float
    label: str | None = None


Row = tuple[Any, ...]  # the values of one row, in its table's order of columns


def row(of: Record) -> Row:
    """One record as the values of `records`, in its columns' order.

    Raises `UnicodeEncodeError` when it holds a lone surrogate.
    """
    if of.prompt is not None:
        of = replace(of, prompt=redact(of.prompt))  # here, in the recorder's thread: a long prompt takes milliseconds
    decision, served, usage, timing = of.decision, record.served(of), of.usage, of.timing
    route = group = deployment = score = None
    if decision is not None:
        route, group, score = decision.route, decision.group, decision.score
    if served is not None:
        group, deployment = served.group, served.deployment
    if score is None and of.scores:  # a score that was taken and did not decide is still worth a query
        score = next((s.value for s in of.scores.values() if not isinstance(s, Abstain)), None)
    return (
        of.id,
        of.time,
        of.policy,
        of.digest,
        of.dialect,
        of.model,
        route,
        group,
        deployment,
        of.outcome,
        score,
        usage.input if usage.input <= LARGEST else LARGEST,
        usage.output if usage.output <= LARGEST else LARGEST,
        of.cost,
        timing.ttft_s,
        timing.total_s,
        record.stored(of).decode(),
        of.signals.tenant if of.signals is not None else None,
        timing.tpot_s,
    )


def feedback_row(of: Feedback) -> Row:
    return (of.request_id, of.tenant, of.time, of.score, of.label)


def sample_row(of: Sample) -> Row:
    return (of.id, of.time, of.policy, msgspec.json.encode(of).decode())


_TOGETHER = 50  # rows of one statement; SQLite's oldest limit is 999 parameters


class Statement:
    """An insert compiled once, because SQLAlchemy's handling of each row's parameters costs as much as SQLite.

    SQLite gets many rows in one statement: Python gives its lock up around each, and under load taking it back means
    two threads waking one another for every row.
    """

    def __init__(self, engine: Engine, insert: sqlite.Insert | postgresql.Insert, table: Table) -> None:
        compiled = insert.compile(dialect=engine.dialect)
        names = list(table.columns.keys())
        self._sql = str(compiled)
        self._names = None if compiled.positional and compiled.positiontup == names else names
        one = f"({', '.join('?' * len(names))})"
        self._many = self._sql.replace(one, ", ".join([one] * _TOGETHER)) if one in self._sql else ""

    def execute(self, connection: Connection, rows: list[Row]) -> None:
        if self._names is None:
            while self._many and len(rows) >= _TOGETHER:
                connection.exec_driver_sql(self._many, tuple(chain.from_iterable(rows[:_TOGETHER])))
                rows = rows[_TOGETHER:]
            if rows:
                connection.exec_driver_sql(self._sql, rows)
        else:
            connection.exec_driver_sql(self._sql, [dict(zip(self._names, row, strict=True)) for row in rows])


def insert_records(engine: Engine) -> Statement:
    """One row a record; a row that is there already stays, so that a batch may be written again."""
    return Statement(engine, insert_into(engine, records).on_conflict_do_nothing(), records)


def insert_samples(engine: Engine) -> Statement:
    """One row a judged request; the first verdict stays."""
    return Statement(engine, insert_into(engine, samples).on_conflict_do_nothing(), samples)


def upsert_feedback(engine: Engine) -> Statement:
    """One row a request and tenant; the last score given wins."""
    insert = insert_into(engine, feedback)
    new = insert.excluded
    insert = insert.on_conflict_do_update(
        index_elements=["request_id", "tenant"], set_={"time": new.time, "score": new.score, "label": new.label}
    )
    return Statement(engine, insert, feedback)


def insert_into(engine: Engine, table: Table) -> sqlite.Insert | postgresql.Insert:
    return postgresql.insert(table) if engine.dialect.name == "postgresql" else sqlite.insert(table)


def open_engine(url: str, *, busy_s: float = 5.0) -> Engine:
    """An engine for `url`, not yet connected. `busy_s` bounds the wait for another process's lock.

    `postgresql://` means the psycopg driver. Raises `sqlalchemy.exc.ArgumentError` on a malformed URL.
    """
    parsed = make_url(url)
    if parsed.drivername in ("postgresql", "postgres"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.get_backend_name() == "sqlite":
        engine = create_engine(parsed, connect_args={"timeout": busy_s, "check_same_thread": False})
        event.listen(engine, "connect", _tune_sqlite)
        return engine
    wait_ms = int(busy_s * 1000)
    return create_engine(
        parsed,
        pool_size=2,
        pool_pre_ping=True,
        connect_args={
            "connect_timeout": max(2, int(busy_s)),
            "options": f"-c statement_timeout={wait_ms * 6} -c lock_timeout={wait_ms}",
            "tcp_user_timeout": wait_ms * 2,  # a server that vanished is noticed
        },
    )


def _tune_sqlite(connection: sqlite3.Connection, _: object) -> None:
    # The first two take effect only before the first table; a row is about 1 KB, and large pages hold many. WAL
    # lets readers and other workers go on during a write; NORMAL may lose the last batch when the machine (not the
    # process) dies.
    for pragma in ("page_size=16384", "auto_vacuum=INCREMENTAL", "journal_mode=WAL", "synchronous=NORMAL"):
        connection.execute(f"PRAGMA {pragma}")


def prepare(engine: Engine) -> None:
    """Creates what is missing. A SQLite file that is corrupt is moved aside and a new one begun."""
    try:
        _create(engine)
    except ERRORS as error:
        if not is_corrupt(error) or not move_aside(engine):
            raise
        _create(engine)
    path = sqlite_path(engine)
    if path is not None:
        path.chmod(0o600)


def _create(engine: Engine) -> None:
    with engine.begin() as connection:
        migrate(connection, time.time())


def is_corrupt(error: Exception) -> bool:
    """True for SQLite's NOTADB and CORRUPT; False for a lock, a full disk and everything of PostgreSQL."""
    code = getattr(getattr(error, "orig", error), "sqlite_errorcode", None)
    return code is not None and (code & 0xFF) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def move_aside(engine: Engine) -> bool:
    """Renames a corrupt SQLite file to NAME.corrupt-<Unix time>; False when it is sound after all.

    It looks again through a new connection first: another worker may have moved it already.
    """
    path = sqlite_path(engine)
    if path is None:
        return False
    engine.dispose()
    if path.exists() and _is_sound(path):
        return True
    aside = f"{path.name}.corrupt-{int(time.time())}"
    for suffix in ("", "-wal", "-shm"):
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.rename(path.with_name(aside + suffix))
    log.error("the records database %s is corrupt: moved aside to %s, and a new one begun", path, aside)
    return True


def _is_sound(path: Path) -> bool:
    connection = sqlite3.connect(path, timeout=5.0)
    try:
        return connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",)
    except sqlite3.DatabaseError:
        return False
    finally:
        connection.close()


def sqlite_path(engine: Engine) -> Path | None:
    """The file of an embedded database, or None for a server."""
    database = engine.url.database
    return Path(database) if engine.dialect.name == "sqlite" and database else None
