"""The records database: what is written is there, and no trouble of the database reaches a request."""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from router import record
from router.errors import Overloaded
from router.records import Feedback, Filter, Retention, SqlReader, SqlRecorder, limits, open_engine
from router.types import Attempt, Decision, Record, Score, Signals, Timing, Usage
from tests.support.rig import groups, running


def begin(path: Path, **given: Any) -> SqlRecorder:
    """A recorder with short waits, at a time at which the records of these tests are new."""
    quick = {"linger_s": 0.01, "busy_s": 0.05, "back_off_s": (0.01, 0.05), "clock": lambda: 1000.0}
    return SqlRecorder(f"sqlite:///{path}", **{**quick, **given})


def make(number: int, *, time: float = 1000.0, group: str = "small", outcome: str = "ok", padding: int = 0) -> Record:
    return Record(
        id=f"r{number:06}",
        time=time + number,
        policy="default",
        digest="d" * 64,
        dialect="chat",
        model="auto",
        stream=True,
        signals=Signals(model="auto", turns=number, language="x" * padding),
        scores={"difficulty": Score(scorer="difficulty", value=0.25)},
        decision=Decision(policy="default", route="difficulty", group=group, why="score", score=0.25, threshold=0.5),
        attempts=(Attempt(deployment=f"{group}-a", group=group, status=200, ttft_s=0.1),),
        usage=Usage(input=10, output=5),
        cost=0.5,
        timing=Timing(ttft_s=0.1, total_s=0.4),
        outcome=outcome,  # type: ignore[arg-type]
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "records.sqlite3"


@pytest.fixture
def recorder(path: Path) -> Iterator[SqlRecorder]:
    begun = begin(path)
    yield begun
    begun.close()


def test_a_record_written_is_read_back_whole(recorder: SqlRecorder):
    recorder.write(make(1))
    assert recorder.flush()
    assert recorder.reader.get("r000001") == make(1)
    assert recorder.reader.get("r000002") is None


def test_the_columns_answer_questions_in_sql(recorder: SqlRecorder, path: Path):
    recorder.write(make(1))
    recorder.flush()
    with sqlite3.connect(path) as db:
        found = db.execute(
            'SELECT policy, route, "group", deployment, outcome, score, input_tokens, output_tokens, cost, ttft_s,'
            " total_s FROM records"
        ).fetchall()
    db.close()
    assert found == [("default", "difficulty", "small", "small-a", "ok", 0.25, 10, 5, 0.5, 0.1, 0.4)]


def test_the_file_and_its_log_are_private_and_written_ahead(recorder: SqlRecorder, path: Path):
    recorder.write(make(1))
    recorder.flush()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    db.close()


def test_recent_records_come_newest_first_and_can_be_filtered(recorder: SqlRecorder):
    for number in range(10):
        recorder.write(
            make(number, group="large" if number % 2 else "small", outcome="timeout" if number == 4 else "ok")
        )
    recorder.flush()
    reader = recorder.reader
    assert [r.id for r in reader.recent(3)] == ["r000009", "r000008", "r000007"]
    assert [r.id for r in reader.recent(2, Filter(group="small"))] == ["r000008", "r000006"]
    assert [r.id for r in reader.recent(9, Filter(outcome="timeout", policy="default"))] == ["r000004"]
    assert [r.id for r in reader.recent(9, Filter(since=1008.0))] == ["r000009", "r000008"]
    assert reader.recent(9, Filter(policy="'; DROP TABLE records; --")) == []


def test_the_export_is_complete_and_in_order_over_many_chunks_with_equal_times(recorder: SqlRecorder):
    for number in range(2500):
        recorder.write(make(number, time=-number))  # all at the same second
    recorder.flush()
    lines = list(recorder.reader.export())
    assert set(json.loads(lines[0])["signals"]) == set(Signals.__struct_fields__)
    assert next(recorder.reader.export(whole=False)) == record.stored(make(0, time=0)).decode()
    assert [json.loads(line)["id"] for line in lines] == [f"r{n:06}" for n in range(2500)]
    assert record.decode(lines[7]).signals == make(7).signals


def test_an_export_since_a_time_starts_there(recorder: SqlRecorder):
    for number in range(5):
        recorder.write(make(number))
    recorder.flush()
    assert [json.loads(line)["time"] for line in recorder.reader.export(1003.0)] == [1003.0, 1004.0]


def test_the_same_record_twice_is_one_row(recorder: SqlRecorder):
    recorder.write(make(1))
    recorder.write(make(1))
    recorder.flush()
    assert len(recorder.reader.recent(10)) == 1
    assert recorder.dropped == 0


def test_a_record_that_cannot_be_written_is_counted_and_the_rest_of_its_batch_kept(recorder: SqlRecorder):
    broken = make(1)
    broken = Record(**{f: getattr(broken, f) for f in broken.__struct_fields__ if f != "model"}, model="\ud800")
    recorder.write(make(0))
    recorder.write(broken)
    recorder.write(make(2))
    recorder.flush()
    assert [r.id for r in recorder.reader.recent(10)] == ["r000002", "r000000"]
    assert recorder.dropped == 1


def test_a_full_queue_drops_and_counts_and_does_not_block(path: Path):
    recorder = begin(path, limit=10, linger_s=60.0)
    for number in range(100):
        recorder.write(make(number))
    assert recorder.dropped >= 80  # the thread may have taken the first few already
    recorder.close()
    assert recorder.written + recorder.dropped == 100


def test_a_locked_database_delays_records_and_loses_none(recorder: SqlRecorder, path: Path):
    recorder.write(make(0))
    recorder.flush()
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN EXCLUSIVE")
    for number in range(1, 50):
        recorder.write(make(number))
    assert not recorder.flush(0.3)
    assert recorder.written == 1
    other.execute("COMMIT")
    other.close()
    assert recorder.flush()
    assert len(recorder.reader.recent(100)) == 50
    assert recorder.dropped == 0


def test_a_failing_database_is_logged_once_and_the_recovery_once(
    recorder: SqlRecorder, path: Path, caplog: pytest.LogCaptureFixture
):
    recorder.write(make(0))
    recorder.flush()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    recorder.write(make(1))
    recorder.flush(0.5)
    other.execute("COMMIT")
    other.close()
    recorder.flush()
    lines = [r.getMessage() for r in caplog.records if r.name.startswith("router.records")]
    assert len(lines) == 2
    assert "SQLITE_BUSY" in lines[0]
    assert "again" in lines[1]


def test_a_database_that_cannot_be_opened_at_the_start_is_used_once_it_can(tmp_path: Path):
    folder = tmp_path / "later"
    recorder = begin(folder / "records.sqlite3")
    recorder.write(make(1))
    assert not recorder.flush(0.2)
    folder.mkdir()
    assert recorder.flush()
    assert recorder.reader.get("r000001") is not None
    recorder.close()


def test_closing_over_a_database_that_refuses_counts_what_is_lost(tmp_path: Path):
    recorder = begin(tmp_path / "missing" / "records.sqlite3", back_off_s=(5.0, 5.0))
    for number in range(3):
        recorder.write(make(number))
    recorder.close()
    assert recorder.dropped == 3


async def test_aclose_writes_what_is_left(path: Path):
    recorder = begin(path, linger_s=60.0)
    recorder.write(make(1))
    await recorder.aclose()
    assert SqlReader(open_engine(f"sqlite:///{path}")).get("r000001") is not None


def test_a_file_that_is_no_database_is_moved_aside_with_a_loud_line(path: Path, caplog: pytest.LogCaptureFixture):
    path.write_bytes(b"this is not a database" * 1000)
    recorder = begin(path)
    recorder.write(make(1))
    assert recorder.flush()
    assert recorder.reader.get("r000001") is not None
    recorder.close()
    (aside,) = [p for p in path.parent.iterdir() if ".corrupt-" in p.name]
    assert aside.read_bytes().startswith(b"this is not")
    assert [r.levelname for r in caplog.records if "moved aside" in r.getMessage()] == ["ERROR"]


def test_a_database_damaged_inside_is_moved_aside_when_a_write_meets_the_damage(path: Path):
    recorder = begin(path)
    for number in range(500):
        recorder.write(make(number))
    recorder.close()
    data = bytearray(path.read_bytes())
    data[4096 * 2 :] = b"\x5a" * (len(data) - 4096 * 2)
    path.write_bytes(data)
    recorder = begin(path)
    recorder.write(make(1000))
    assert recorder.flush()
    assert recorder.reader.get("r001000") is not None
    recorder.close()
    assert [p for p in path.parent.iterdir() if ".corrupt-" in p.name]


def test_a_file_removed_while_running_is_begun_anew(recorder: SqlRecorder, path: Path):
    recorder.write(make(1))
    recorder.flush()
    for part in path.parent.iterdir():
        part.unlink()
    recorder.write(make(2))
    recorder.flush()
    assert [r.id for r in SqlReader(open_engine(f"sqlite:///{path}")).recent(10)] == ["r000002"]


def test_two_recorders_on_one_file_keep_every_record(path: Path):
    recorders = [begin(path, busy_s=5.0) for _ in range(2)]

    def write(which: int):
        for number in range(300):
            recorders[which].write(make(which * 1000 + number))

    threads = [threading.Thread(target=write, args=(which,)) for which in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for each in recorders:
        each.close()
    assert len(SqlReader(open_engine(f"sqlite:///{path}")).recent(1000)) == 600
    assert [r.dropped for r in recorders] == [0, 0]


def keep(path: Path, retention: Retention, records: list[Record], *, now: float) -> list[str]:
    recorder = begin(path, retention=msgspec.structs.replace(retention, every_s=0.0), clock=lambda: now)
    for each in records:
        recorder.write(each)
    recorder.close()
    return [json.loads(line)["id"] for line in SqlReader(open_engine(f"sqlite:///{path}")).export()]


def test_records_past_the_age_go(path: Path):
    kept = keep(path, Retention(max_age_s=5.0), [make(n) for n in range(10)], now=1010.0)
    assert kept == [f"r{n:06}" for n in range(5, 10)]


def test_the_oldest_records_past_the_number_go(path: Path):
    kept = keep(path, Retention(max_age_s=None, max_rows=3), [make(n) for n in range(10)], now=1010.0)
    assert kept == ["r000007", "r000008", "r000009"]


def test_the_oldest_records_go_until_the_size_is_under_the_limit_and_the_file_shrinks(path: Path):
    records = [make(n, padding=1000) for n in range(3000)]
    kept = keep(path, Retention(max_age_s=None, max_bytes=2_000_000), records, now=5000.0)
    assert 0 < len(kept) < 1500
    assert kept[-1] == "r002999"
    assert path.stat().st_size < 2_200_000


@pytest.mark.parametrize(("days", "stay"), [(30.0, False), (None, True)])
async def test_a_gateway_keeps_records_as_long_as_it_is_told(tmp_path: Path, days: float | None, stay: bool):
    path = tmp_path / "state" / "records.sqlite3"
    path.parent.mkdir()
    before = SqlRecorder(f"sqlite:///{path}", retention=limits(None, None))
    for number in range(3):
        before.write(make(number, time=time.time() - 31 * 86_400))
    before.close()
    files = groups({"s": "http://127.0.0.1:9/v1"}, {"small": ["s"], "large": ["s"]})
    async with running(tmp_path, files, records_days=days) as rig:
        assert await asyncio.to_thread(rig.gateway.recorder.flush)
    assert bool(SqlReader(open_engine(f"sqlite:///{path}")).recent()) == stay


def test_limits_are_given_in_days_and_gib():
    assert limits(2.0, 0.5) == Retention(max_age_s=172_800.0, max_bytes=1 << 29)
    assert limits(None, None) == Retention(max_age_s=None, max_bytes=None)


def test_nothing_goes_while_the_limits_hold(path: Path):
    assert len(keep(path, Retention(), [make(n) for n in range(10)], now=1010.0)) == 10


def test_feedback_given_twice_is_one_row_with_the_last_score(recorder: SqlRecorder):
    recorder.feedback(Feedback(request_id="r1", time=1.0, score=0.0))
    recorder.feedback(Feedback(request_id="r1", time=2.0, score=1.0, label="good"))
    recorder.flush()
    recorder.feedback(Feedback(request_id="r1", time=3.0, score=0.5))
    recorder.flush()
    assert recorder.reader.feedback("r1") == [Feedback(request_id="r1", time=3.0, score=0.5)]


def test_one_tenants_feedback_does_not_replace_anothers(recorder: SqlRecorder):
    recorder.feedback(Feedback(request_id="r1", tenant="a", time=1.0, score=0.0))
    recorder.feedback(Feedback(request_id="r1", tenant="b", time=1.0, score=1.0))
    recorder.flush()
    assert sorted(f.score for f in recorder.reader.feedback("r1")) == [0.0, 1.0]


def test_reading_a_database_that_does_not_answer_is_an_overload_not_a_crash(tmp_path: Path):
    reader = SqlReader(open_engine(f"sqlite:///{tmp_path}/missing/records.sqlite3"))
    with pytest.raises(Overloaded):
        reader.recent(1)


def test_no_log_line_holds_a_value_of_a_record(path: Path, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("CREATE TABLE records (id TEXT PRIMARY KEY, time REAL)")  # every insert fails
    other.close()
    recorder = begin(path)
    recorder.write(make(1))
    recorder.close()
    assert recorder.dropped == 1
    assert "not kept" in caplog.text
    assert "r000001" not in caplog.text
