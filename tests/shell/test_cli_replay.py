"""`pointsman replay`: records from a file or the state folder, decided again by another configuration."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from router import history, record, records
from router.cli import main
from router.policy_files import load
from router.records import Feedback
from router.types import Attempt, Decision, Record, Score, Signals, Usage
from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import chat
from tests.support.config_files import GROUPS, POLICY, write
from tests.support.rig import groups, running

PRICED = GROUPS.replace('"${SMALL_KEY:-none}"}', "none, price: {input: 0.1, output: 0.1}}").replace(
    "model: m-large, api_key: none}", "model: m-large, api_key: none, price: {input: 1.0, output: 3.0}}"
)
LOWER = POLICY.replace("0.5", "0.3")


@pytest.fixture
def new(tmp_path: Path) -> Path:
    (tmp_path / "new").mkdir()
    return write(tmp_path / "new", groups=PRICED, default=LOWER)


def made(number: int, score: float | None, **more: Any) -> Record:
    group = "small" if score is None or score < 0.5 else "large"
    fields: dict[str, Any] = {
        "id": f"r{number}",
        "time": 1_700_000_000.0 + number,
        "policy": "default",
        "digest": "0" * 64,
        "dialect": "chat",
        "model": "auto",
        "stream": False,
        "signals": Signals(model="auto"),
        "scores": {} if score is None else {"difficulty": Score(scorer="difficulty", value=score)},
        "decision": Decision(policy="default", route="difficulty", group=group, why="score", score=score),
        "attempts": (Attempt(deployment=f"{group}-a", group=group, status=200),),
        "usage": Usage(input=100, output=100),
    }
    return Record(**fields | more)


def file(folder: Path, of: Iterable[Record]) -> Path:
    path = folder / "records.jsonl"
    path.write_bytes(b"\n".join(record.encode(one) for one in of) + b"\n")
    return path


def call(*arguments: object, state: Path | None = None, stdin: bytes | None = None) -> Result:
    env = {"POINTSMAN_STATE": str(state) if state is not None else "/nonexistent"}
    return CliRunner().invoke(main, ["replay", *map(str, arguments)], env=env, input=stdin)


FOUR = [made(0, 0.2), made(1, 0.4), made(2, 0.7), made(3, None, signals=None, decision=None)]


def test_the_report_says_what_moves_what_it_costs_and_that_quality_is_not_known(tmp_path: Path, new: Path):
    done = call(file(tmp_path, FOUR), "--config", new, "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["n"], told["moved"], told["moved_share"]) == (3, 1, pytest.approx(1 / 3))
    assert told["large_share"] == {"old": pytest.approx(1 / 3), "new": pytest.approx(2 / 3)}
    assert told["cost"]["old"] == pytest.approx((20 + 20 + 400) / 1e6)
    assert told["cost"]["new"] == pytest.approx((20 + 400 + 400) / 1e6)
    assert told["quality"] is None
    assert told["undecided"]["refused"] == 1
    assert told["examples"][0]["id"] == "r1"


def test_people_get_the_same_as_text(tmp_path: Path, new: Path):
    text = call(file(tmp_path, FOUR), "--config", new).stdout
    assert "3 decided again, 1 move (33.33%)" in text
    assert "small -> large: 1" in text
    assert "r1: difficulty (score) -> difficulty (score), score 0.400" in text
    assert "not enough evidence" in text
    assert "pins:" in text


@pytest.mark.parametrize(
    ("limit", "code"),
    [
        (("--max-moved", "0.3"), 3),
        (("--max-moved", "0.34"), 0),
        (("--max-cost", "1.8"), 3),
        (("--max-cost", "1.9"), 0),
        (("--min-quality", "-1"), 3),
    ],
)
def test_a_limit_that_is_passed_or_cannot_be_told_is_exit_code_3(
    tmp_path: Path, new: Path, limit: tuple[str, str], code: int
):
    done = call(file(tmp_path, FOUR), "--config", new, *limit)
    assert done.exit_code == code
    assert ("REFUSED" in done.stdout) == (code == 3)


def test_with_judged_answers_by_chance_a_least_quality_can_be_shown(tmp_path: Path, new: Path):
    """Half of the requests at 0.4 went to each group by chance, and the large group's answers were better."""
    lines = []
    for i in range(400):
        group, other = ("small", "large") if i % 2 else ("large", "small")
        decision = Decision(policy="default", route="difficulty", group=group, why="score", propensity=0.5, other=other)
        attempts = (Attempt(deployment=f"{group}-a", group=group, status=200),)
        line = record.encode(made(i, 0.4, decision=decision, attempts=attempts))
        lines.append(line[:-1] + b',"quality":%d}' % (group == "large" or i % 3 == 0))
    source = tmp_path / "judged.jsonl"
    source.write_bytes(b"\n".join(lines))
    done = call(source, "--config", new, "--json", "--min-quality", "0.1")
    told = json.loads(done.stdout)
    assert done.exit_code == 0, told
    assert 0.1 < told["quality"]["low"] < told["quality"]["difference"] < told["quality"]["high"]
    assert told["quality"]["evidence"]["method"] == "doubly robust"


def test_standard_input_and_times_since(tmp_path: Path, new: Path):
    content = file(tmp_path, FOUR).read_bytes()
    assert json.loads(call("-", "--config", new, "--json", stdin=content).stdout)["n"] == 3
    done = call("-", "--config", new, "--json", "--since", "1700000002", stdin=content)
    assert json.loads(done.stdout)["n"] == 1


# --- scores ----------------------------------------------------------------------------------------------

SCORERS = "version: 1\nscorers: {difficulty: {kind: lexical}}\n"
FIXED = "version: 1\nscorers: {difficulty: {kind: fixed, value: 0.9}}\n"


def old_and(tmp_path: Path, new: Path, scorers: str) -> Path:
    """The old configuration, and the new one with these scorers."""
    (tmp_path / "old").mkdir()
    write(new, groups=PRICED, default=LOWER, scorers=scorers)
    return write(tmp_path / "old", groups=PRICED, default=POLICY)


def test_a_scorer_that_is_as_it_was_is_not_asked_again(tmp_path: Path, new: Path):
    old = old_and(tmp_path, new, SCORERS)
    told = json.loads(call(file(tmp_path, FOUR), "--config", new, "--against", old, "--json").stdout)
    assert (told["n"], told["moved"]) == (3, 1)


def test_a_scorer_that_changed_scores_the_recorded_prompts_and_others_are_left_out_and_counted(
    tmp_path: Path, new: Path
):
    old = old_and(tmp_path, new, SCORERS)
    write(old, groups=PRICED, default=POLICY, scorers=FIXED)
    hard = "Prove that every continuous function on a compact interval is uniformly continuous, and derive a bound."
    pasts = [made(0, 0.2, prompt="hi"), made(1, 0.4, prompt=hard), made(2, 0.7)]
    # The records' configuration is the old one: --against stands for it.
    done = call(file(tmp_path, pasts), "--config", new, "--against", old, "--json")
    told = json.loads(done.stdout)
    assert told["undecided"]["no_score"] == {"difficulty": 1}
    assert told["n"] == 2
    assert told["large_share"]["new"] == 0.5


def test_a_scorer_that_reads_no_prompt_is_asked_without_one(tmp_path: Path, new: Path):
    old = old_and(tmp_path, new, FIXED)
    told = json.loads(call(file(tmp_path, FOUR), "--config", new, "--against", old, "--json").stdout)
    assert (told["n"], told["large_share"]["new"]) == (3, 1.0)


def test_the_history_tells_which_scorers_a_record_was_made_with(tmp_path: Path, new: Path):
    old = old_and(tmp_path, new, FIXED)
    digest = history.keep(tmp_path / "state", old, None, "start", 1.0)
    pasts = file(tmp_path, [made(0, 0.2, digest=digest), made(1, 0.4, digest=digest)])
    known = json.loads(call(pasts, "--config", new, "--json", state=tmp_path / "state").stdout)
    assert known["large_share"]["new"] == 1.0
    assert not any("not in the history" in note for note in known["notes"])
    unknown = json.loads(call(pasts, "--config", new, "--json").stdout)
    assert unknown["large_share"]["new"] == 0.5
    assert any("not in the history" in note for note in unknown["notes"])


def test_a_configuration_may_be_named_by_its_digest(tmp_path: Path, new: Path):
    old = old_and(tmp_path, new, SCORERS)
    state = tmp_path / "state"
    digest = history.keep(state, old, None, "start", 1.0)
    assert digest is not None
    done = call(file(tmp_path, FOUR), "--config", new, "--against", digest[:12], "--json", state=state)
    assert json.loads(done.stdout)["moved"] == 1
    assert call(file(tmp_path, FOUR), "--config", "abcdef12", state=state).exit_code == 2


# --- where records come from -----------------------------------------------------------------------------


def test_without_a_file_the_state_folder_is_read_with_the_feedback_in_it(tmp_path: Path, new: Path):
    recorder = records.open_recorder(tmp_path / "state", records.Retention(max_age_s=None))
    for one in FOUR:
        recorder.write(one)
    recorder.feedback(Feedback(request_id="r0", time=1.0, score=0.5))
    recorder.close()
    for given in ([], [tmp_path / "state"]):
        told = json.loads(call(*given, "--config", new, "--json", state=tmp_path / "state").stdout)
        assert (told["n"], told["not_enough_evidence"]["judged"]) == (3, 1)


async def test_yesterdays_traffic_of_a_gateway_moves_nothing_with_its_own_files(tmp_path: Path):
    async with ScriptedServer(chat("hi")) as upstream:
        files = groups({"a": upstream, "b": upstream}, {"small": ["a"], "large": ["b"]})
        async with running(tmp_path, files) as rig:
            for number in range(6):
                await rig.ask(f"question {number}", score=number / 6)
            await rig.records(6)
    state, config = tmp_path / "state", tmp_path / "config"
    same = json.loads((await asyncio.to_thread(call, "--config", config, "--json", state=state)).stdout)
    assert (same["n"], same["moved"]) == (6, 0)
    policy = config / "default.yaml"
    policy.write_text(policy.read_text().replace("0.5", "0.3"))
    other = json.loads((await asyncio.to_thread(call, "--config", config, "--json", state=state)).stdout)
    assert other["moves"]["groups"] == [{"from": "small", "to": "large", "n": 1}]
    assert not any("not in the history" in note for note in other["notes"])


def test_what_is_no_record_is_told_with_its_line(tmp_path: Path, new: Path):
    source = file(tmp_path, FOUR[:1])
    source.write_bytes(source.read_bytes() + b'\n{"id": 7}\n')
    done = call(source, "--config", new)
    assert done.exit_code == 1
    assert "records.jsonl:3: not a record" in done.output


def test_no_records_and_no_configuration_are_errors_that_say_where_it_looked(tmp_path: Path, new: Path):
    done = call("--config", new, state=tmp_path / "empty")
    assert (done.exit_code, "empty" in done.output) == (1, True)
    assert call(tmp_path / "none.jsonl", "--config", new).exit_code == 1
    (new / "default.yaml").write_text("routes: [")
    refused = call(file(tmp_path, FOUR), "--config", new)
    assert refused.exit_code == 2
    assert "default.yaml" in refused.output


def test_the_digest_of_a_record_is_that_of_its_files(tmp_path: Path, new: Path):
    """A replay by the records' own configuration needs no history to know that nothing changed."""
    digest = load(new).digest
    told = json.loads(call(file(tmp_path, [made(0, 0.2, digest=digest)]), "--config", new, "--json").stdout)
    assert not any("not in the history" in note for note in told["notes"])
