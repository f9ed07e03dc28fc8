"""`pointsman explain`: one request's or one record's decision, told as production would make it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from router import record
from router.cli import main
from router.policy_files import load
from router.types import Abstain, Decision, Load, Record, Score, Session, Signals
from tests.support.config_files import write

BODY = {"model": "auto", "messages": [{"role": "user", "content": "What is the capital of France?"}]}
SCORERS = "version: 1\nscorers: {difficulty: {kind: fixed, value: 0.7}}\n"


def run(folder: Path, content: object, *arguments: str) -> Result:
    path = folder / "request.json"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return CliRunner().invoke(main, ["explain", str(path), "--config", str(folder), *arguments], catch_exceptions=False)


def remembered(**changes: Any) -> Record:
    given: dict[str, Any] = {
        "id": "r1",
        "time": 1000.0,
        "policy": "default",
        "digest": "d" * 64,
        "dialect": "chat",
        "model": "auto",
        "stream": False,
        "signals": Signals(model="auto", turns=1),
        "scores": {"difficulty": Score(scorer="difficulty", value=0.25)},
        "decision": Decision(
            policy="default",
            route="difficulty",
            group="small",
            why="score",
            scorer="difficulty",
            score=0.25,
            threshold=0.5,
        ),
        "load": Load(),
    }
    return Record(**{**given, **changes})


def test_a_request_is_scored_and_its_decision_told(tmp_path: Path) -> None:
    result = run(write(tmp_path, scorers=SCORERS), BODY)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert "route     difficulty: holds -> score difficulty: below 0.5 small, else large" in lines
    assert "decision  group large: score 0.700 of difficulty, threshold 0.5" in lines


def test_json_holds_signals_scores_decision_and_plan(tmp_path: Path) -> None:
    told = json.loads(run(write(tmp_path, scorers=SCORERS), BODY, "--json").stdout)
    assert (told["policy"], told["decision"]["group"], told["decision"]["score"]) == ("default", "large", 0.7)
    assert (told["signals"]["turns"], told["signals"]["language"]) == (1, "en")
    assert set(told["signals"]) == set(Signals.__struct_fields__)
    assert set(told["decision"]) == set(Decision.__struct_fields__)
    assert sorted(one["deployment"] for one in told["deployments"]) == ["large-a", "large-b"]


def test_a_scorer_that_breaks_abstains_as_in_production(tmp_path: Path) -> None:
    scorers = 'version: 1\nscorers: {difficulty: {kind: remote, url: "http://127.0.0.1:1/v1", model: m}}\n'
    result = run(write(tmp_path, scorers=scorers), BODY)
    assert "score     difficulty: abstained (error)" in result.stdout.splitlines()


def test_a_scorer_that_no_gateway_would_start_with_is_told_and_exits_2(tmp_path: Path) -> None:
    scorers = "version: 1\nscorers: {difficulty: {kind: lexical, artifact: /nowhere}}\n"
    result = run(write(tmp_path, scorers=scorers), BODY)
    assert result.exit_code == 2
    assert "scorers.difficulty: artifact: cannot read /nowhere" in result.stderr


def test_headers_that_a_policy_reads_may_be_given(tmp_path: Path) -> None:
    default = """\
        version: 1
        name: default
        models: [auto]
        routes: [{name: gold, when: {headers: {x-tier: gold}}, group: large}]
        default: small
        """
    folder = write(tmp_path, default=default)
    assert json.loads(run(folder, BODY, "--json").stdout)["decision"]["route"] == "default"
    told = json.loads(run(folder, BODY, "--json", "--header", "X-Tier: gold").stdout)
    assert told["decision"]["route"] == "gold"


def test_a_record_is_decided_again_from_its_own_signals_and_scores(tmp_path: Path) -> None:
    result = run(write(tmp_path, scorers=SCORERS), record.encode(remembered()))
    assert "decision  group small: score 0.250 of difficulty, threshold 0.5" in result.stdout.splitlines()
    assert result.stdout.splitlines()[-1] == "recorded  route difficulty, group small: the same decision"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, "score"),
        ({"scores": {"difficulty": Abstain(scorer="difficulty", reason="timeout")}}, "abstain"),
        ({"signals": Signals(model="auto", tool_loop=True), "pinned": Session(id="s", group="small")}, "pin"),
        ({"model": "large", "signals": Signals(model="large"), "policy": "asked", "scores": {}}, "asked"),
    ],
)
def test_a_record_of_the_same_configuration_gives_the_recorded_decision(
    tmp_path: Path, changes: dict[str, Any], why: str
) -> None:
    folder = write(tmp_path, scorers=SCORERS)
    first = json.loads(run(folder, record.encode(remembered(**changes)), "--json").stdout)
    assert first["decision"]["why"] == why
    made = remembered(**changes, decision=msgspec.convert(first["decision"], Decision))
    assert json.loads(run(folder, record.encode(made), "--json").stdout)["same"] is True


def test_a_record_that_the_configuration_now_moves_says_so(tmp_path: Path) -> None:
    folder = write(tmp_path)
    changed = (folder / "default.yaml").read_text().replace("below: 0.5", "below: 0.2")
    (folder / "default.yaml").write_text(changed)
    told = json.loads(run(folder, record.encode(remembered()), "--json").stdout)
    assert (told["decision"]["group"], told["recorded"]["group"], told["same"]) == ("large", "small", False)
    words = run(folder, record.encode(remembered())).stdout
    assert (
        "recorded  route difficulty, group small: another decision (group small -> large, threshold 0.5 -> 0.2)"
        in words
    )


def test_a_record_that_only_another_threshold_led_to_the_same_group_says_that(tmp_path: Path) -> None:
    folder = write(tmp_path)
    changed = (folder / "default.yaml").read_text().replace("below: 0.5", "below: 0.4")
    (folder / "default.yaml").write_text(changed)
    words = run(folder, record.encode(remembered())).stdout
    assert "group small: the same group, decided otherwise (threshold 0.5 -> 0.4)" in words


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", ""),
        (b"[]", ""),
        (b'{"model": "auto"}', "messages"),
        (b'{"model": "nobody", "messages": [{"role": "user", "content": "x"}]}', "nobody"),
        (b'{"signals": 3, "decision": {}, "digest": ""}', "this is not a record"),
    ],
)
def test_what_is_no_request_and_no_record_is_told_and_exits_2(tmp_path: Path, content: bytes, message: str) -> None:
    result = run(write(tmp_path), content)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr
    assert message in result.stderr


def test_a_record_of_a_refused_request_has_nothing_to_explain(tmp_path: Path) -> None:
    result = run(write(tmp_path), record.encode(remembered(signals=None, decision=None, scores={})))
    assert result.exit_code == 2
    assert "has no signals" in result.stderr


def test_a_bad_configuration_is_told_at_its_place_and_exits_2(tmp_path: Path) -> None:
    result = run(write(tmp_path, default="rotues: 1\n"), BODY)
    assert result.exit_code == 2
    assert "default.yaml:1:1: rotues: unknown key" in result.stderr


def test_explaining_changes_nothing(tmp_path: Path) -> None:
    folder = write(tmp_path, scorers=SCORERS)
    before = load(folder)
    run(folder, BODY)
    assert load(folder) == before
    assert sorted(path.name for path in folder.iterdir()) == [
        "default.yaml",
        "groups.yaml",
        "request.json",
        "scorers.yaml",
    ]


KEYS = f"""version: 1
keys:
  ci: {{sha256: {"0" * 64}, tenant: acme, quota: {{large: 500}}, models: [auto]}}
  free: {{sha256: {"1" * 64}, tenant: other}}
tenants: {{acme: {{quota: {{small: 9}}}}}}
"""


def test_who_asks_is_told_by_name_and_so_are_the_quotas_whose_use_only_a_gateway_knows(tmp_path: Path) -> None:
    write(tmp_path, scorers=SCORERS)
    (tmp_path / "keys.yaml").write_text(KEYS)
    assert "quota     not looked at: --key NAME says who asks" in run(tmp_path, BODY).stdout
    told = run(tmp_path, BODY, "--key", "ci").stdout
    assert "tenant='acme' key='ci'" in told
    assert "quota     key ci: 500 requests a day of group large; what is left of them, a gateway knows" in told
    assert "quota     tenant acme: 9 requests a day of group small" in told
    assert "POST /v1/decision" in told
    assert json.loads(run(tmp_path, BODY, "--key", "ci", "--json").stdout)["quotas"] == {
        "key ci": {"large": 500},
        "tenant acme": {"small": 9},
    }
    assert "quota" not in run(tmp_path, BODY, "--key", "free").stdout
    unknown = run(tmp_path, BODY, "--key", "nobody")
    assert (unknown.exit_code, "pointsman keys list" in unknown.stderr) == (2, True)
    refused = run(tmp_path, BODY | {"model": "large"}, "--key", "ci")
    assert (refused.exit_code, "does not exist" in refused.stderr) == (2, True)
