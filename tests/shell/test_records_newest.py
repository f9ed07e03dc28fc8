"""Newest records by a filter: what is found through the sums is what a look at every record finds."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from msgspec.structs import replace
from sqlalchemy import Engine, delete, event, text

from router.records import Filter, Retention, SqlRecorder, open_engine
from router.records.newest import newest
from router.records.schema import traffic
from router.types import Attempt, Decision, Outcome, Record, Signals, Timing

NOW = 1_700_000_000.0
DAY_S = 86_400.0
OUTCOMES: tuple[Outcome, ...] = ("ok", "timeout", "refused")
KEEP = Retention(max_age_s=None, every_s=0.0)


def make(number: int, chance: random.Random, *, outcome: Outcome | None = None) -> Record:
    """One of the last three weeks, most of one kind."""
    group = chance.choices(("small", "large", "vision"), (90, 9, 1))[0]
    placed = replace(PLAIN, route=chance.choices(("d", "stuck"), (95, 5))[0], group=group)
    kind = outcome or chance.choices(OUTCOMES, (960, 35, 5))[0]
    return Record(
        id=f"r{number:06}",
        time=NOW - chance.random() ** 2 * 21 * DAY_S,
        policy=chance.choices(("default", "agents"), (98, 2))[0],
        digest="d",
        dialect="chat",
        model="auto",
        stream=True,
        signals=Signals(tenant=f"tenant-{chance.randrange(30)}"),
        decision=placed if kind != "refused" else None,
        attempts=(Attempt(deployment=f"{group}-a", group=group, status=200),) if kind == "ok" else (),
        timing=Timing(total_s=0.4),
        outcome=kind,
    )


PLAIN = Decision(policy="default", route="d", group="small", why="default")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Engine, list[Record]]]:
    """A database of which the half hours before a week ago are gone, as after a while; and all its records."""
    chance = random.Random(3)
    url = f"sqlite:///{tmp_path_factory.mktemp('records') / 'records.sqlite3'}"
    recorder = SqlRecorder(url, linger_s=0.01, retention=KEEP, clock=lambda: NOW)
    made = [make(number, chance) for number in range(4000)]
    for one in made:
        recorder.write(one)
    assert recorder.flush()
    recorder.close()
    engine = open_engine(url)
    with engine.begin() as connection:
        connection.execute(delete(traffic).where(traffic.c.width == 1800, traffic.c.start < NOW - 7 * DAY_S))
    yield engine, made
    engine.dispose()


def passing(of: list[Record], where: Filter, limit: int) -> list[str]:
    def passes(one: Record) -> bool:
        served = one.attempts[-1] if one.attempts else None
        made, tenant = one.decision, one.signals.tenant if one.signals is not None else None
        group = served.group if served is not None else made.group if made is not None else None
        has = {
            "policy": one.policy,
            "route": made.route if made is not None else None,
            "group": group,
            "deployment": served.deployment if served is not None else None,
            "outcome": one.outcome,
            "tenant": tenant,
        }
        late = where.since is None or one.time >= where.since
        return late and all(getattr(where, name) in (None, value) for name, value in has.items())

    found = [one for one in of if passes(one)]
    return [one.id for one in sorted(found, key=lambda one: (one.time, one.id), reverse=True)][:limit]


FILTERS = (
    Filter(),
    Filter(policy="agents"),
    Filter(outcome="refused"),
    Filter(group="vision", outcome="timeout"),
    Filter(deployment="vision-a", route="stuck"),
    Filter(deployment="nowhere"),
    Filter(policy="agents", tenant="tenant-7"),
    Filter(policy="default", tenant="tenant-7"),
    Filter(tenant="tenant-7"),
    Filter(tenant="nobody", outcome="ok"),
)


@pytest.mark.parametrize("where", FILTERS, ids=lambda where: str(where).removeprefix("Filter"))
@pytest.mark.parametrize("since", [None, NOW - 3600.0, NOW - 9 * DAY_S])
def test_a_filter_finds_what_a_look_at_every_record_finds(
    kept: tuple[Engine, list[Record]], where: Filter, since: float | None
):
    engine, made = kept
    where = replace(where, since=since)
    with engine.connect() as connection:
        for limit, near in ((25, 200), (3, 50), (500, 100), (25, 20_000)):
            assert newest(connection, limit, where, near) == set(passing(made, where, limit))


def test_records_from_before_there_were_sums_are_found_too(kept: tuple[Engine, list[Record]]):
    engine, made = kept
    with engine.connect() as connection:  # and nothing of it stays
        connection.execute(delete(traffic).where(traffic.c.start < NOW - 2 * DAY_S))
        for where in FILTERS:
            assert newest(connection, 40, where, 50) == set(passing(made, where, 40))
        connection.execute(delete(traffic))
        for where in FILTERS:
            assert newest(connection, 40, where, 50) == set(passing(made, where, 40))


def test_what_no_record_has_is_asked_of_the_newest_and_of_the_sums_alone(kept: tuple[Engine, list[Record]]):
    engine, _ = kept
    asked: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda c, k, sql, *rest: asked.append(sql))
    with engine.connect() as connection:
        assert newest(connection, 25, Filter(deployment="nowhere"), 100) == set()
        searched = [sql for sql in asked if "JOIN" in sql]
        assert len(searched) == 1, "the one stretch in which sums may have begun"
        plan = connection.execute(text(f"EXPLAIN QUERY PLAN {_plain(searched[0])}")).all()
    assert any("records_newest" in str(row) and "COVERING" in str(row) for row in plan)


def _plain(sql: str) -> str:
    return sql.replace("?", "1")
