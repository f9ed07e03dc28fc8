"""`pointsman records export` writes what the gateway kept, and says so when there is nothing to read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from router import record, records, state
from router.cli import main
from router.types import Record


def make(number: int) -> Record:
    return Record(
        id=f"r{number}", time=1_700_000_000.0 + number, policy="default", digest="d", dialect="chat", model="auto",
        stream=False, signals=None,
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    recorder = records.open_recorder(tmp_path / "state", records.Retention(max_age_s=None))
    for number in range(3):
        recorder.write(make(number))
    recorder.close()
    return tmp_path / "state"


def export(*arguments: object, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(main, ["records", "export", *map(str, arguments)], env=env)


def test_each_record_is_one_line_that_reads_back(folder: Path, tmp_path: Path):
    done = export("--out", tmp_path / "out.jsonl", "--state", folder)
    assert done.exit_code == 0, done.output
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert [record.decode(line) for line in lines] == [make(n) for n in range(3)]


def test_the_newest_feedback_on_a_request_stands_in_its_line(tmp_path: Path):
    recorder = records.open_recorder(tmp_path / "state", records.Retention(max_age_s=None))
    recorder.write(make(0))
    recorder.write(make(1))
    for tenant, time, score, label in (("a", 9.0, 0.25, "poor"), ("b", 5.0, 1.0, None)):
        recorder.feedback(records.Feedback(request_id="r1", tenant=tenant, time=time, score=score, label=label))
    recorder.close()
    lines = [json.loads(line) for line in export("--out", "-", "--state", tmp_path / "state").stdout.splitlines()]
    assert [line.get("feedback") for line in lines] == [None, {"score": 0.25, "label": "poor"}]
    assert record.decode(json.dumps(lines[1])) == make(1)


def test_since_takes_iso_times_and_unix_seconds(folder: Path):
    for since in ("2023-11-14T22:13:22Z", "1700000002"):
        done = export("--out", "-", "--state", folder, "--since", since)
        assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == ["r2"]


def test_the_state_folder_may_come_from_the_environment(folder: Path, tmp_path: Path):
    done = export("--out", tmp_path / "out.jsonl", env={state.FOLDER_VARIABLE: str(folder)})
    assert done.exit_code == 0
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 3


def test_a_folder_without_records_is_an_error_that_names_it_and_makes_nothing(tmp_path: Path):
    done = export("--out", tmp_path / "out.jsonl", "--state", tmp_path / "empty")
    assert done.exit_code == 1
    assert "empty" in done.output
    assert not (tmp_path / "out.jsonl").exists()
    assert not (tmp_path / "empty").exists()


def test_a_time_that_is_none_is_a_usage_error(folder: Path):
    done = export("--out", "-", "--state", folder, "--since", "yesterday")
    assert (done.exit_code, "ISO 8601" in done.output) == (2, True)


def test_a_file_that_cannot_be_written_is_an_error_without_a_trace(folder: Path, tmp_path: Path):
    done = export("--out", tmp_path / "no" / "out.jsonl", "--state", folder)
    assert done.exit_code == 1
    assert "cannot write" in done.output


def test_the_state_folder_is_private(folder: Path):
    assert folder.stat().st_mode & 0o077 == 0
    assert state.records_file(folder).stat().st_mode & 0o077 == 0


def test_state_lives_where_it_is_told_then_in_the_environment_then_with_the_user():
    assert state.folder("/a", {state.FOLDER_VARIABLE: "/b"}) == Path("/a")
    assert state.folder(None, {state.FOLDER_VARIABLE: "/b"}) == Path("/b")
    assert state.folder(None, {}).name == "pointsman"
    assert state.records_url(Path("/a"), {}) == "sqlite:////a/records.sqlite3"
    assert state.records_url(Path("/a"), {state.RECORDS_VARIABLE: "postgresql://h/d"}) == "postgresql://h/d"
