"""The tables of the records database, and the steps by which an older database becomes this one.

What belongs here: tables, and `migrate`. What does not: opening a database and its rows (sql), sums (rollups). Steps
only add: while a fleet on one PostgreSQL is upgraded, gateways of the version before go on writing into the new tables.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Double,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    func,
    insert,
    inspect,
    select,
    text,
)
from sqlalchemy.schema import CreateIndex, CreateTable

metadata = MetaData()

records = Table(
    "records",
    metadata,
    Column("id", String(128), primary_key=True),
    Column("time", Double, nullable=False),  # Unix seconds
    Column("policy", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("dialect", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("route", Text),
    Column("group", Text),  # the group that served, else the one decided on
    Column("deployment", Text),  # the deployment that served
    Column("outcome", Text, nullable=False),
    Column("score", Double),
    Column("input_tokens", Integer, nullable=False),
    Column("output_tokens", Integer, nullable=False),
    Column("cost", Double),
    Column("ttft_s", Double),
    Column("total_s", Double, nullable=False),
    Column("record", Text, nullable=False),  # the whole record as JSON, without members that have their default
    Column("tenant", Text),  # version 2
    Column("tpot_s", Double),  # version 2
    # A filter that few records pass is answered from the index alone: a row of 1 KB is read only where it passes.
    Index("records_newest", "time", "id", "policy", "route", "group", "deployment", "outcome", "tenant"),
)

feedback = Table(
    "feedback",
    metadata,
    Column("request_id", String(128), primary_key=True),
    Column("tenant", String(128), primary_key=True),  # one tenant never overwrites another's
    Column("time", Double, nullable=False),
    Column("score", Double, nullable=False),
    Column("label", Text),
)

# Answers judged beside the traffic (judging).
samples = Table(
    "samples",
    metadata,
    Column("id", String(128), primary_key=True),  # of the request
    Column("time", Double, nullable=False),
    Column("policy", Text, nullable=False),
    Column("sample", Text, nullable=False),  # the whole sample as JSON
    Index("samples_time", "time", "id"),
)

# Sums of records, for pages that look at many (rollups). "" stands for what a record does not have.
traffic = Table(
    "traffic",
    metadata,
    Column("width", Integer, primary_key=True),  # seconds
    Column("start", BigInteger, primary_key=True),  # Unix seconds, a multiple of the width
    Column("policy", String, primary_key=True),
    Column("route", String, primary_key=True),
    Column("group", String, primary_key=True),
    Column("deployment", String, primary_key=True),
    Column("outcome", String, primary_key=True),
    Column("requests", BigInteger, nullable=False),
    Column("input_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("cost", Double, nullable=False),  # US dollars, of requests with a known price
    Column("compared", BigInteger, nullable=False),  # requests whose cost and cost at the dearest group are known
    Column("saved", Double, nullable=False),  # US dollars, of those
    sqlite_with_rowid=False,
)

measures = Table(
    "measures",
    metadata,
    Column("width", Integer, primary_key=True),
    Column("start", BigInteger, primary_key=True),
    Column("measure", String, primary_key=True),
    Column("subject", String, primary_key=True),  # a group; of scores the scorer
    Column("deployment", String, primary_key=True),
    Column("bucket", Integer, primary_key=True, autoincrement=False),
    Column("count", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

versions = Table(
    "schema_version",
    metadata,
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("since", Double, nullable=False),  # Unix seconds
)

# What a database of the version before lacks beyond whole tables and indexes, which are made wherever they are missing.
STEPS: Sequence[tuple[int, Sequence[str]]] = (
    (
        2,
        (
            "ALTER TABLE records ADD COLUMN tenant TEXT",
            "ALTER TABLE records ADD COLUMN tpot_s DOUBLE PRECISION",
            "DROP INDEX IF EXISTS records_time",
        ),
    ),
)
VERSION = STEPS[-1][0]
_LOCK = 7046029254386353131  # of PostgreSQL: gateways that begin at the same time migrate one after another


def migrate(connection: Connection, now: float) -> None:
    """Creates what is missing and takes the steps that are due, all or none; `now` is Unix seconds."""
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
    else:
        connection.exec_driver_sql("BEGIN IMMEDIATE")  # the driver begins nothing by itself before a CREATE or ALTER
    tables = set(inspect(connection).get_table_names())
    if versions.name in tables and version(connection) >= VERSION and tables.issuperset(metadata.tables):
        return
    if records.name in tables:
        done = version(connection) if versions.name in tables else 1
        for number, statements in STEPS:
            if number > done:
                for statement in statements:
                    connection.exec_driver_sql(statement)
    for table in metadata.sorted_tables:
        connection.execute(CreateTable(table, if_not_exists=True))
        for index in table.indexes:
            connection.execute(CreateIndex(index, if_not_exists=True))
    if version(connection) < VERSION:
        connection.execute(insert(versions).values(version=VERSION, since=now))


def version(connection: Connection) -> int:
    """Of the database; 0 where it has none yet."""
    return int(connection.scalar(select(func.max(versions.c.version))) or 0)
