"""Sums of records: what they say of a stretch of time is what the records of it say, on both databases' one schema."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from router import record
from router.records import Retention, SqlReader, SqlRecorder, open_engine, rollups, schema
from router.records.summary import stretch
from router.types import Attempt, Decision, Outcome, Record, Score, Signals, Timing, Usage
from tests.support.first_schema import FIRST

NOW = 1_700_000_000.0


def make(
    number: int, *, ago: float = 0.0, group: str = "small", outcome: Outcome = "ok", ttft_s: float = 0.1
) -> Record:
    error = None if outcome == "ok" else "upstream_status"
    return Record(
        id=f"r{number:06}",
        time=NOW - ago,
        policy="default",
        digest="d",
        dialect="chat",
        model="auto",
        stream=True,
        signals=Signals(tenant="acme" if number % 2 else "other"),
        scores={"difficulty": Score(scorer="difficulty", value=0.25)},
        decision=Decision(policy="default", route="difficulty", group=group, why="score", score=0.25, threshold=0.5),
        attempts=(Attempt(deployment=f"{group}-a", group=group, status=200, error=error),),
        usage=Usage(input=10, output=5),
        cost=0.5,
        cost_large=2.0,
        timing=Timing(ttft_s=ttft_s, tpot_s=0.01, total_s=0.4, overhead_s=0.001),
        outcome=outcome,
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "records.sqlite3"


def begin(path: Path, retention: Retention | None = None) -> SqlRecorder:
    return SqlRecorder(f"sqlite:///{path}", linger_s=0.01, clock=lambda: NOW, retention=retention)


@pytest.fixture
def recorder(path: Path) -> Iterator[SqlRecorder]:
    begun = begin(path)
    yield begun
    begun.close()


def written(recorder: SqlRecorder, *records: Record) -> SqlReader:
    for one in records:
        recorder.write(one)
    assert recorder.flush()
    return recorder.reader


@pytest.mark.parametrize("window", [900, 3600, 86_400, 30 * 86_400])
def test_a_window_says_what_its_records_say_whatever_rows_it_is_told_from(recorder: SqlRecorder, window: int):
    chance = random.Random(7)
    every = [
        make(n, ago=chance.uniform(0, 800), group=chance.choice(["small", "large"]), ttft_s=chance.uniform(0.01, 2))
        for n in range(500)
    ]
    failed = [make(1000 + n, outcome="timeout") for n in range(20)]
    shown = written(recorder, *every, *failed).summary(NOW, window)
    assert (shown["totals"]["requests"], shown["totals"]["failed"]) == (520, 20)
    assert shown["totals"]["outcomes"] == {"ok": 500, "timeout": 20}
    assert shown["totals"]["cost"] == pytest.approx(260)
    assert (shown["totals"]["saved"], shown["totals"]["compared"]) == (pytest.approx(780), 520)
    by_group = {one["group"]: one for one in shown["groups"]}
    for group, one in by_group.items():
        times = sorted(r.timing.ttft_s or 0 for r in [*every, *failed] if r.decision and r.decision.group == group)
        assert one["ttft"]["n"] == len(times)
        for name, share in (("p50", 0.5), ("p95", 0.95)):
            assert one["ttft"][name] == pytest.approx(times[int(share * len(times)) - 1], rel=0.13)
    series = shown["series"]["groups"]
    assert sum(sum(of["requests"]) for of in series.values()) == 520
    assert sum(sum(of["failed"]) for of in series.values()) == 20
    (scores,) = shown["scores"]
    assert (scores["scorer"], scores["buckets"][5]) == ("difficulty", 520)
    assert {one["deployment"] for one in shown["deployments"]} == {"small-a", "large-a"}


def test_what_is_older_than_the_window_is_not_in_it(recorder: SqlRecorder):
    reader = written(recorder, make(1, ago=5), make(2, ago=2000), make(3, ago=90_000))
    assert [reader.summary(NOW, window)["totals"]["requests"] for window in (900, 3600, 604_800)] == [1, 2, 3]


def test_a_request_that_was_refused_before_it_was_decided_is_counted_without_a_group(recorder: SqlRecorder):
    refused = Record(
        id="x", time=NOW, policy="", digest="d", dialect="chat", model="other", stream=False, signals=None,
        outcome="client_error",
    )  # fmt: skip
    shown = written(recorder, refused).summary(NOW, 900)
    assert [(one["policy"], one["group"], one["requests"]) for one in shown["routes"]] == [("", "", 1)]
    assert shown["totals"]["failed"] == 0


@pytest.mark.parametrize("window", [60, 900, 3600, 7200, 86_400, 7 * 86_400, 30 * 86_400])
def test_a_stretch_ends_now_and_has_a_bounded_number_of_points(window: int):
    over = stretch(NOW + 3, window)
    assert over.end - over.step_s <= NOW + 3 < over.end
    assert window <= over.end - over.start < window + 2 * over.step_s
    assert (over.end - over.start) / over.step_s <= 193
    assert over.step_s % over.width == 0


def test_buckets_of_times_are_a_sixth_of_an_octave_and_hold_what_falls_into_them():
    for seconds in (1e-7, 0.00035, 0.1, 1.0, 33.0, 5000.0):
        ((bucket, _),) = rollups.buckets([seconds])
        assert rollups.seconds_of(bucket) == pytest.approx(max(seconds, 1e-6), rel=0.065)
    assert rollups.percentile({}, 0.5) is None


def test_sums_of_a_record_that_could_not_be_kept_are_not_kept_either(recorder: SqlRecorder):
    broken = Record(**{f: getattr(make(1), f) for f in make(1).__struct_fields__ if f != "model"}, model="\ud800")
    reader = written(recorder, make(0), broken, make(2))
    assert reader.summary(NOW, 900)["totals"]["requests"] == 2


def test_fine_sums_go_after_an_hour_and_coarse_ones_stay_longer_than_their_records(path: Path):
    recorder = begin(path, Retention(max_age_s=86_400.0, every_s=0.0))
    reader = written(recorder, make(1), make(2, ago=3 * 86_400.0), make(3, ago=200 * 86_400.0))
    recorder.flush()
    assert [r.id for r in reader.recent()] == ["r000001"]
    assert reader.summary(NOW, 7 * 86_400)["totals"]["requests"] == 2
    with sqlite3.connect(path) as db:
        widths = db.execute("SELECT width, count(DISTINCT start) FROM traffic GROUP BY width ORDER BY 1").fetchall()
    db.close()
    assert widths == list(zip(rollups.WIDTHS, (1, 1, 1, 2, 3), strict=True))
    recorder.close()


# --- databases of a version before -----------------------------------------------------------------------


def test_a_database_of_the_first_version_is_brought_up_to_date_and_keeps_its_records(path: Path):
    old = make(1, ago=60)
    with sqlite3.connect(path) as db:
        db.executescript(FIRST)
        line = record.encode(old).decode()
        values = (
            old.id,
            old.time,
            "default",
            "d",
            "chat",
            "auto",
            None,
            None,
            None,
            "ok",
            None,
            10,
            5,
            None,
            None,
            0.4,
        )
        db.execute(f"INSERT INTO records VALUES ({','.join('?' * 17)})", (*values, line))
    db.close()
    recorder = begin(path)
    reader = written(recorder, make(2))
    assert [r.id for r in reader.recent()] == ["r000002", "r000001"]
    assert reader.get(old.id) == old
    recorder.close()
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT version FROM schema_version").fetchall() == [(schema.VERSION,)]
        indexes = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'index'")}
        assert db.execute("SELECT tenant FROM records ORDER BY id").fetchall() == [(None,), ("other",)]
    db.close()
    assert "records_newest" in indexes
    assert "records_time" not in indexes


def test_a_new_database_and_one_brought_up_to_date_have_the_same_tables_columns_and_indexes(tmp_path: Path):
    fresh, older = tmp_path / "fresh.sqlite3", tmp_path / "older.sqlite3"
    with sqlite3.connect(older) as db:
        db.executescript(FIRST)
    db.close()

    def shape(path: Path) -> object:
        recorder = begin(path)
        recorder.flush()
        recorder.close()
        with sqlite3.connect(path) as db:
            names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'index')")]
            columns = {name: {row[1] for row in db.execute(f"PRAGMA table_info({name})")} for name in names}
        db.close()
        return columns

    assert shape(fresh) == shape(older)


def test_a_database_that_a_later_version_has_brought_further_is_written_to_all_the_same(path: Path):
    begin(path).close()
    with sqlite3.connect(path) as db:
        db.execute("ALTER TABLE records ADD COLUMN later TEXT")
        db.execute("INSERT INTO schema_version VALUES (?, ?)", (schema.VERSION + 1, NOW))
    db.close()
    recorder = begin(path)
    assert [r.id for r in written(recorder, make(1)).recent()] == ["r000001"]
    recorder.close()


def test_workers_that_begin_at_once_on_a_database_of_the_first_version_do_not_get_in_each_others_way(path: Path):
    with sqlite3.connect(path) as db:
        db.executescript(FIRST)
    db.close()
    recorders = [begin(path) for _ in range(4)]
    for number, recorder in enumerate(recorders):
        recorder.write(make(number))
    assert all(recorder.flush() for recorder in recorders)
    assert sum(recorder.dropped for recorder in recorders) == 0
    assert recorders[0].reader.summary(NOW, 900)["totals"]["requests"] == 4
    for recorder in recorders:
        recorder.close()


def test_a_filter_that_few_records_pass_reads_the_index_alone(recorder: SqlRecorder, path: Path):
    written(recorder, make(1))
    engine = open_engine(f"sqlite:///{path}")
    with engine.connect() as connection:
        plan = connection.exec_driver_sql(
            "EXPLAIN QUERY PLAN SELECT id FROM records WHERE outcome = 'timeout' ORDER BY time DESC, id DESC LIMIT 50"
        ).all()
    engine.dispose()
    assert "USING COVERING INDEX records_newest" in str(plan)
