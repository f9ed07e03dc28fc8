"""`pointsman records export` writes what the gateway kept, and says so when there is nothing to read."""

from __future__ import annotations

import json
import time
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from router import record, records, state
from router.cli import main
from router.types import Attempt, Decision, Record, Signals, Timing, Usage


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
    for tenant, when, score, label in (("a", 9.0, 0.25, "poor"), ("b", 5.0, 1.0, None)):
        recorder.feedback(records.Feedback(request_id="r1", tenant=tenant, time=when, score=score, label=label))
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


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["records", *map(str, arguments)])


@pytest.fixture
def served(tmp_path: Path) -> Path:
    recorder = records.open_recorder(tmp_path / "served", records.Retention(max_age_s=None))
    for number in range(6):
        group = "large" if number % 3 == 0 else "small"
        decision = Decision(policy="default", route="difficulty", group=group, why="score", score=0.25, threshold=0.5)
        recorder.write(
            msgspec.structs.replace(
                make(number),
                time=time.time() - number,
                signals=Signals(tenant="acme" if number < 2 else "other"),
                decision=decision,
                attempts=(Attempt(deployment=f"{group}-a", group=group, status=200),),
                usage=Usage(input=10, output=5),
                timing=Timing(ttft_s=0.1, tpot_s=0.01, total_s=0.4),
                cost=0.5,
                cost_large=1.0,
                prompt="my key is sk-abcdefghijklmnop0123 ok" if number == 0 else None,
            )
        )
    recorder.feedback(records.Feedback(request_id="r0", time=9.0, score=0.25, label="poor"))
    recorder.close()
    return tmp_path / "served"


def test_records_are_listed_newest_first_by_every_filter(served: Path):
    lines = run("list", "--state", served).stdout.splitlines()
    assert [line.split()[2] for line in lines] == [f"r{n}" for n in range(6)]
    assert "small/small-a  default/difficulty score 0.250  10+5 tokens 0.40 s $0.500000" in lines[1]
    found = run("list", "--state", served, "--group", "small", "--tenant", "acme", "--json").stdout.splitlines()
    assert [json.loads(line)["id"] for line in found] == ["r1"]
    assert run("list", "--state", served, "--deployment", "nowhere").stdout == ""
    assert run("list", "--state", served, "--since", "never").exit_code == 2


def test_one_record_is_shown_with_its_feedback_and_a_kept_prompt_without_its_key(served: Path):
    shown = json.loads(run("show", "r0", "--state", served, "--json").stdout)
    assert (shown["prompt"], shown["feedback"]) == ("my key is [key] ok", [{"score": 0.25, "label": "poor"}])
    assert "poor" in run("show", "r0", "--state", served).stdout
    missing = run("show", "nobody", "--state", served)
    assert (missing.exit_code, "no record nobody" in missing.output) == (1, True)


def test_a_summary_says_what_the_window_came_to(served: Path):
    said = run("summary", "--state", served, "--window", "1h").stdout
    assert "6 requests, 0 failed; 60+30 tokens" in said
    assert "saved $3.0000" in said
    assert json.loads(run("summary", "--state", served, "--json").stdout)["totals"]["requests"] == 6
    for window in ("1", "1s", "x", "900d"):
        assert run("summary", "--state", served, "--window", window).exit_code == 2


def test_a_parquet_file_has_a_column_for_each_and_the_whole_record(served: Path, tmp_path: Path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="the extra `evals` is not installed")
    done = run("export", "--out", tmp_path / "r.parquet", "--state", served)
    assert (done.exit_code, done.stderr) == (0, "6 records\n")
    table = parquet.read_table(tmp_path / "r.parquet").to_pydict()
    assert table["id"] == [f"r{n}" for n in reversed(range(6))]
    assert set(table["group"]) == {"small", "large"}
    assert table["feedback"][-1] == 0.25
    assert record.decode(table["record"][0]).id == "r5"
    assert run("export", "--out", "-", "--format", "parquet", "--state", served).exit_code == 2
