"""How long records stay: by age, by number and by size, oldest out first, a small step at a time.

`Sweep.step` runs in the recorder's thread between two batches, so one step stays short.
"""

from __future__ import annotations

from msgspec import Struct
from sqlalchemy import Connection, Engine, delete, func, select, text

from router.records.rollups import WIDTHS
from router.records.schema import feedback, measures, records, samples, traffic

_STEP_ROWS = 2_000  # about 20 ms of SQLite
_SLACK = 0.9  # a size limit is undercut by a tenth, not to sweep again at once


class Retention(Struct, frozen=True, kw_only=True):
    """Limits; None is no limit. `max_bytes` counts rows and indexes; a SQLite file and its WAL may be a bit larger."""

    max_age_s: float | None = 30 * 86_400.0
    max_bytes: int | None = 1 << 30
    max_rows: int | None = None
    every_s: float = 300.0
    # Of each width of sums (rollups.WIDTHS); the last outlive the records that they are of.
    sums_s: tuple[float, ...] = (3_600.0, 86_400.0, 2 * 86_400.0, 7 * 86_400.0, 400 * 86_400.0)


def limits(days: float | None, gib: float | None) -> Retention:
    """Retention as operators give it."""
    return Retention(
        max_age_s=days * 86_400.0 if days is not None else None,
        max_bytes=int(gib * (1 << 30)) if gib is not None else None,
    )


class Sweep:
    """Deletes what is past the limits. Not for use by two threads at once."""

    def __init__(self, engine: Engine, retention: Retention) -> None:
        self._engine = engine
        self._retention = retention
        self._next = 0.0
        self._before: float | None = None  # rows older than this Unix time are on their way out

    def step(self, now: float) -> bool:
        """Deletes at most a few thousand rows; True while there is more to do. Raises `sql.ERRORS`."""
        if self._before is None:
            if now < self._next:
                return False
            self._next = now + self._retention.every_s
            with self._engine.begin() as connection:
                self._sums(connection, now)
                self._before = self._cut(connection, now)
            if self._before is None:
                return False
        oldest = select(records.c.id).where(records.c.time < self._before).order_by(records.c.time).limit(_STEP_ROWS)
        with self._engine.begin() as connection:
            gone = connection.execute(delete(records).where(records.c.id.in_(oldest.scalar_subquery()))).rowcount
            connection.execute(delete(feedback).where(feedback.c.time < self._before))
            connection.execute(delete(samples).where(samples.c.time < self._before))
        if gone < _STEP_ROWS:
            self._before = None
            self._give_back()
        return self._before is not None

    def _sums(self, connection: Connection, now: float) -> None:
        for table in (traffic, measures):
            for width, age_s in zip(WIDTHS, self._retention.sums_s, strict=True):
                connection.execute(delete(table).where(table.c.width == width, table.c.start < now - age_s))

    def _cut(self, connection: Connection, now: float) -> float | None:
        limits = self._retention
        cuts: list[float] = []
        if limits.max_age_s is not None:
            cuts.append(now - limits.max_age_s)
        if limits.max_rows is not None:
            newest = select(records.c.time).order_by(records.c.time.desc())
            last_kept = connection.scalar(newest.offset(limits.max_rows - 1).limit(1))
            if last_kept is not None:
                cuts.append(last_kept)
        if limits.max_bytes is not None:
            size, rows = _size(connection)
            if size > limits.max_bytes:
                gone = int(rows * (1 - _SLACK * limits.max_bytes / size))
                first_kept = connection.scalar(select(records.c.time).order_by(records.c.time).offset(gone).limit(1))
                if first_kept is not None:
                    cuts.append(first_kept)
        cut = max(cuts, default=None)
        oldest = connection.scalar(select(func.min(records.c.time)))
        return cut if cut is not None and oldest is not None and oldest < cut else None

    def _give_back(self) -> None:
        """Returns freed pages to the file system; PostgreSQL's autovacuum does it there."""
        if self._engine.dialect.name != "sqlite":
            return
        with self._engine.connect() as connection:
            cursor = connection.connection.cursor()
            # executescript steps to the end; execute would stop after the first page that is given back
            cursor.executescript("PRAGMA incremental_vacuum; PRAGMA wal_checkpoint(TRUNCATE);")  # pyright: ignore
            cursor.close()


def _size(connection: Connection) -> tuple[int, int]:
    """Bytes that live rows take, indexes included, and how many rows there are."""
    if connection.dialect.name == "sqlite":
        pages, free, size = (
            int(connection.exec_driver_sql(f"PRAGMA {name}").scalar_one())
            for name in ("page_count", "freelist_count", "page_size")
        )
        return (pages - free) * size, connection.scalar(select(func.count()).select_from(records)) or 0
    # A table of PostgreSQL does not shrink when rows go, so its size on disk would say "delete more" for ever.
    rows = int(connection.scalar(select(func.count()).select_from(records)) or 0)
    newest = "SELECT * FROM records ORDER BY time DESC LIMIT 500"
    width = connection.scalar(text(f"SELECT avg(pg_column_size(r.*)) FROM ({newest}) AS r")) or 0  # noqa: S608
    return int(rows * (float(width) + 250)), rows  # 250: two index entries and the row's head
