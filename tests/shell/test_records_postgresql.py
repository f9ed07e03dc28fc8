"""The same records code on a real PostgreSQL server, started privately in a temporary folder."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import text

from router.records import Feedback, Filter, Retention, SqlRecorder, open_engine
from router.records.newest import newest
from router.types import Attempt, Decision, Record, Signals, Timing, Usage
from tests.support.first_schema import FIRST
from tests.support.ports import free_port

pytest.importorskip("psycopg", reason="the postgres extra is not installed")


def binaries() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if found:
        return found[-1].parent
    initdb = shutil.which("initdb")
    return Path(initdb).resolve().parent if initdb else None


class Server:
    """One private cluster; PostgreSQL refuses to run as root, so root starts it as `postgres`."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self.programs, self.data = programs, folder / "data"
        self.port = free_port()
        self.url = f"postgresql://postgres:secret@127.0.0.1:{self.port}/postgres"
        self.run("initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "--no-sync")

    def run(self, program: str, *arguments: object) -> None:
        command = [str(self.programs / program), *map(str, arguments)]
        if Path("/root").stat().st_uid == 0 and _is_root():
            command = ["runuser", "-u", "postgres", "--", *command]
        subprocess.run(command, check=True, capture_output=True, timeout=60, cwd="/tmp")

    def start(self) -> None:
        options = f"-p {self.port} -k {self.data} -c listen_addresses=127.0.0.1 -c fsync=off"
        self.run("pg_ctl", "-D", self.data, "-w", "-o", options, "-l", self.data / "log", "start")

    def stop(self) -> None:
        self.run("pg_ctl", "-D", self.data, "-w", "-m", "immediate", "stop")


def _is_root() -> bool:
    import os

    return os.geteuid() == 0


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    programs = binaries()
    if programs is None:
        pytest.skip("no PostgreSQL binaries (apt package postgresql)")
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        if _is_root():
            if shutil.which("runuser") is None:
                pytest.skip("root without runuser cannot start PostgreSQL")
            shutil.chown(folder, "postgres")
        server = Server(programs, folder)
        server.start()
        yield server
        server.stop()


@pytest.fixture
def empty(server: Server) -> Server:
    engine = open_engine(server.url)
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE IF EXISTS records, feedback, traffic, measures, schema_version"))
    engine.dispose()
    return server


def begin(server: Server, **given: Any) -> SqlRecorder:
    quick = {"linger_s": 0.01, "busy_s": 2.0, "back_off_s": (0.05, 0.2), "clock": lambda: 1000.0}
    return SqlRecorder(server.url, **{**quick, **given})


def make(number: int, *, padding: int = 0) -> Record:
    return Record(
        id=f"r{number:06}",
        time=1000.0 + number,
        policy="default",
        digest="d",
        dialect="chat",
        model="auto",
        stream=False,
        signals=Signals(turns=number, language="\0" + "x" * padding),  # NUL: PostgreSQL's text refuses it bare
    )


def decided(number: int) -> Record:
    return Record(
        id=f"r{number:06}",
        time=1000.0 + number,
        policy="default",
        digest="d",
        dialect="chat",
        model="auto",
        stream=True,
        signals=Signals(),
        decision=Decision(policy="default", route="default", group="small", why="default"),
        attempts=(Attempt(deployment="small-a", group="small", status=200),),
        usage=Usage(input=10, output=5),
        timing=Timing(ttft_s=0.1, total_s=0.4),
    )


def test_records_are_written_once_read_and_exported(empty: Server):
    recorder = begin(empty)
    for number in [*range(1200), 7]:
        recorder.write(make(number))
    assert recorder.flush()
    assert recorder.dropped == 0
    assert recorder.reader.get("r000007") == make(7)
    assert [r.id for r in recorder.reader.recent(2)] == ["r001199", "r001198"]
    assert len(list(recorder.reader.export())) == 1200
    assert len(list(recorder.reader.export(2000.0))) == 200
    recorder.close()


def test_two_recorders_begin_at_once_on_an_empty_database(empty: Server):
    recorders = [begin(empty) for _ in range(3)]
    for number, recorder in enumerate(recorders):
        recorder.write(make(number))
    assert all(recorder.flush() for recorder in recorders)
    assert len(recorders[0].reader.recent(10)) == 3
    for recorder in recorders:
        recorder.close()


def test_sums_of_several_gateways_are_one_and_a_window_says_what_they_say(empty: Server):
    recorders = [begin(empty) for _ in range(2)]
    for number in range(400):
        recorders[number % 2].write(decided(number))
    assert all(recorder.flush() for recorder in recorders)
    for window in (900, 86_400):
        shown = recorders[0].reader.summary(1400.0, window)
        assert shown["totals"]["requests"] == 400
        assert shown["groups"][0]["ttft"]["n"] == 400
        assert sum(sum(of["output_tokens"]) for of in shown["series"]["groups"].values()) == 2000
    for recorder in recorders:
        recorder.close()


def test_a_database_of_the_first_version_is_brought_up_to_date(empty: Server):
    engine = open_engine(empty.url)
    with engine.begin() as connection:
        for statement in FIRST.replace("DOUBLE", "DOUBLE PRECISION").strip().split(";")[:-1]:
            connection.execute(text(statement))
    engine.dispose()
    recorders = [begin(empty) for _ in range(3)]
    for number, recorder in enumerate(recorders):
        recorder.write(decided(number))
    assert all(recorder.flush() for recorder in recorders)
    assert [r.id for r in recorders[0].reader.recent()] == ["r000002", "r000001", "r000000"]
    for recorder in recorders:
        recorder.close()


def test_a_filter_that_few_records_pass_finds_them_through_the_sums(empty: Server):
    recorder = begin(empty)
    for number in range(600):
        one = decided(number * 60)
        recorder.write(replace(one, outcome="timeout") if number in (7, 300, 599) else one)
    assert recorder.flush()
    recorder.close()
    engine = open_engine(empty.url)
    with engine.connect() as connection:
        for near in (10, 400, 20_000):
            assert newest(connection, 25, Filter(outcome="timeout"), near) == {"r000420", "r018000", "r035940"}
            assert newest(connection, 2, Filter(outcome="timeout"), near) == {"r018000", "r035940"}
            assert newest(connection, 25, Filter(deployment="nowhere"), near) == set()
    engine.dispose()


def test_feedback_is_upserted(empty: Server):
    recorder = begin(empty)
    for score in (0.0, 1.0):
        recorder.feedback(Feedback(request_id="r1", time=1.0, score=score))
        recorder.flush()
    assert [f.score for f in recorder.reader.feedback("r1")] == [1.0]
    recorder.close()


def test_the_oldest_go_by_size_and_not_all_of_them(empty: Server):
    recorder = begin(empty, retention=Retention(max_age_s=None, max_bytes=500_000, every_s=0.0))
    for number in range(1500):
        recorder.write(make(number, padding=1000))
    for _ in range(5):  # every further sweep sees a table that has not shrunk on disk
        recorder.flush()
    kept = list(recorder.reader.export())
    assert 100 < len(kept) < 1000
    recorder.close()


def test_a_server_that_restarts_loses_no_record(empty: Server):
    recorder = begin(empty)
    recorder.write(make(0))
    assert recorder.flush()
    empty.stop()
    recorder.write(make(1))
    assert not recorder.flush(0.5)
    empty.start()
    deadline = time.monotonic() + 20
    while recorder.reader.get("r000000") is None and time.monotonic() < deadline:
        time.sleep(0.1)
    assert recorder.flush()
    assert [r.id for r in recorder.reader.recent(10)] == ["r000001", "r000000"]
    assert recorder.dropped == 0
    recorder.close()
