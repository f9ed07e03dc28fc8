"""The `eval` commands on small files: what they write, what they refuse, and that training repeats byte for byte."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from evals import cascade, cases, decisions, general
from router import scorers
from router.cli import main
from router.config import ScorerSpec
from router.scorers import heads
from router.scorers.lexical import Lexical
from router.types import Abstain, Prompt, Score, Signals

HARD = (
    "Prove that there are infinitely many primes",
    "Design a distributed lock",
    "Why does this deadlock under load?",
)
EASY = ("What is the capital of France?", "Tidy up this sentence: helo world", "Translate good night to Spanish")


def call(*args: str) -> Result:
    return CliRunner().invoke(main, ["eval", *args])


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two hundred and forty prompts; the weak model mostly fails the hard half. Beside them two scouts' answers."""
    draw = random.Random(7)
    columns: dict[str, list[Any]] = {
        k: [] for k in ("prompt", "correct:small", "large", "subject", "answer:small", "s1", "s2")
    }
    for i in range(240):
        hard = i % 2 == 0
        right = draw.random() < (0.2 if hard else 0.9)
        columns["prompt"].append(f"{draw.choice(HARD if hard else EASY)} ({draw.choice('abcdef')}{i})")
        columns["correct:small"].append(int(right))
        columns["large"].append(int(draw.random() < 0.9))
        columns["subject"].append(f"s{i % 5}")
        columns["answer:small"].append("A" if right else draw.choice("BCD"))
        for scout in ("s1", "s2"):
            columns[scout].append("A" if draw.random() < (0.5 if hard else 0.95) else draw.choice("BCD"))
    path = tmp_path_factory.mktemp("data") / "d.parquet"
    cases.write(path, columns)
    return path


@pytest.fixture(scope="module")
def artifact(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("artifact")
    done = call("train", "--data", str(data), "--weak", "small", "--strong", "large", "--out", str(out))
    assert done.exit_code == 0, done.output
    return out


def test_run_writes_what_the_contract_names(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.json"
    done = call("run", "--data", str(data), "--weak", "small", "--strong", "correct:large", "--json", str(out))
    assert done.exit_code == 0, done.output
    result = json.loads(out.read_text())
    named = {"n", "weak", "strong", "apgr", "apgr_ci", "cpt50", "cpt80", "random", "length", "oracle", "auroc", "curve"}
    assert named <= set(result)
    assert result["n"] == 240
    assert result["random"] == 0.5
    assert result["apgr_ci"][0] <= result["apgr"] <= result["apgr_ci"][1]
    assert 0.6 < result["apgr"] <= result["oracle"]
    assert result["curve"][0] == [0.0, result["weak"]]
    assert result["curve"][-1] == [1.0, result["strong"]]
    assert result["draws"] >= 2000


def test_models_that_are_equally_good_have_no_gap_and_that_is_said(tmp_path: Path) -> None:
    cases.write(
        tmp_path / "d.csv",
        {"prompt": [f"q{i}" for i in range(60)], "a": [i % 2 for i in range(60)], "b": [i // 2 % 2 for i in range(60)]},
    )
    done = call("run", "--data", str(tmp_path / "d.csv"), "--weak", "a", "--strong", "b", "--draws", "100")
    assert done.exit_code == 0, done.output
    assert "no gap to recover" in done.stderr
    assert json.loads(done.stdout)["apgr"] is None


def test_costs_are_counted_in_the_callers_unit(data: Path) -> None:
    pair = ("run", "--data", str(data), "--weak", "small", "--strong", "large", "--draws", "100")
    result = json.loads(call(*pair, "--costs", "0.02,0.60").stdout)
    at = result["at_policy"]
    assert at["cost"] == pytest.approx(0.02 + at["strong_share"] * 0.58, abs=1e-4)
    assert result["aiq_no_router"] == pytest.approx((result["weak"] + result["strong"]) / 2, abs=1e-4)
    wrong = call(*pair, "--costs", "1,0.5")
    assert wrong.exit_code == 1
    assert "lower than the strong" in wrong.output


def test_a_configuration_names_scorer_policy_and_digest(data: Path) -> None:
    pair = ("run", "--data", str(data), "--weak", "small", "--strong", "large", "--draws", "100")
    done = call(*pair, "--config", "policies", "--scorer", "difficulty")
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert result["at_policy"]["policy"] == "default"
    assert len(result["config"]["sha256"]) == 64
    assert "has no scorer 'other'" in call(*pair, "--config", "policies", "--scorer", "other").output


def test_a_seed_gives_the_same_result_twice(data: Path) -> None:
    first, second = (
        call("run", "--data", str(data), "--weak", "small", "--strong", "large", "--draws", "200") for _ in "ab"
    )
    a, b = (json.loads(r.stdout) for r in (first, second))
    a.pop("seconds"), b.pop("seconds")
    assert a == b


def test_folds_train_for_the_pair_and_hold_groups_out(data: Path) -> None:
    done = call(
        "run", "--data", str(data), "--weak", "small", "--strong", "large", "--folds", "2", "--holdout", "subject",
        "--draws", "200",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert result["apgr"] > 0.6
    assert {d["domain"] for d in result["by_domain"]} == {f"s{i}" for i in range(5)}


def test_sweep_uses_the_production_decision_from_all_strong_to_all_weak(data: Path) -> None:
    done = call("sweep", "--data", str(data), "--weak", "small", "--strong", "large", "--points", "20")
    points = json.loads(done.stdout)["points"]
    shares = [p["strong_share"] for p in points]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] == 1.0
    assert shares[-1] == 0.0


def test_a_trained_artifact_scores_and_can_be_named_in_scorers_yaml(data: Path, artifact: Path, tmp_path: Path) -> None:
    out = tmp_path / "scored.csv"
    done = call("score", "--data", str(data), "--scorer", str(artifact), "--out", str(out))
    assert done.exit_code == 0, done.output
    table = cases.read(out)
    scores = np.array([float(v) for v in table.columns["score"]])
    hard = np.arange(240) % 2 == 0
    assert scores[hard].mean() > scores[~hard].mean() + 0.3
    one = Lexical("x", artifact).score(Prompt(text=table.prompts[0], signals=Signals()))
    assert isinstance(one, Score)
    assert one.value == pytest.approx(scores[0], abs=1e-6)


def test_a_run_on_what_a_scorer_learned_from_is_said_to_be_no_test_of_it(
    data: Path, artifact: Path, tmp_path: Path
) -> None:
    table = cases.read(data)
    cases.write(tmp_path / "other.csv", {**table.columns, "prompt": [f"{text} " for text in table.prompts]})
    for file, learned in ((data, True), (tmp_path / "other.csv", False)):
        done = call(
            "run", "--data", str(file), "--weak", "small", "--strong", "large", "--scorer", str(artifact),
            "--draws", "100", "--json", str(tmp_path / "out.json"),
        )  # fmt: skip
        assert done.exit_code == 0, done.output
        assert ("learned from this very file" in done.output) is learned
        assert json.loads((tmp_path / "out.json").read_text())["scorer"]["learned_from_this_file"] is learned
        call("report", "--result", str(tmp_path / "out.json"), "--out", str(tmp_path / "out.html"))
        assert ("this is no test of it" in (tmp_path / "out.html").read_text()) is learned


def test_the_shipped_scorers_say_which_of_the_shipped_files_they_learned_from() -> None:
    files = {cases.read(general.BENCHMARKS / name).digest for name in general.FILES}
    for name in ("lexical", "encoder"):
        assert decisions.learned_from(decisions.find(name, None)) == files


def test_training_twice_gives_the_same_bytes(data: Path, artifact: Path, tmp_path: Path) -> None:
    done = call("train", "--data", str(data), "--weak", "small", "--strong", "large", "--out", str(tmp_path))
    assert done.exit_code == 0, done.output
    assert (tmp_path / heads.MODEL_FILE).read_bytes() == (artifact / heads.MODEL_FILE).read_bytes()


def test_an_abstention_is_an_empty_score(tmp_path: Path) -> None:
    cases.write(tmp_path / "d.csv", {"prompt": ["...", "What is the capital of France?"]})
    done = call("score", "--data", str(tmp_path / "d.csv"), "--out", str(tmp_path / "o.csv"))
    assert done.exit_code == 0, done.output
    scores = cases.read(tmp_path / "o.csv").columns["score"]
    assert scores[0] == ""
    assert 0.0 <= float(scores[1]) < 0.5


def test_a_cascade_uses_the_answers_and_counts_its_calls(data: Path, tmp_path: Path) -> None:
    pair = ("--data", str(data), "--weak", "small", "--strong", "large")
    told = ("--cascade", "--answer", "answer:small", "--scouts", "s1,s2")
    done = call("run", *pair, *told, "--folds", "2", "--draws", "200")
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert result["calls"] == {"weak": 1, "scouts": 2, "strong": result["at_policy"]["strong_share"]}
    assert result["apgr"] > 0.65
    assert call("train", *pair, *told, "--out", str(tmp_path / "c")).exit_code == 0
    scored = call(
        "score", "--data", str(data), "--scorer", str(tmp_path / "c"), *told, "--out", str(tmp_path / "o.jsonl")
    )
    assert scored.exit_code == 0, scored.output
    values = [float(v) for v in cases.read(tmp_path / "o.jsonl").columns["score"]]
    assert all(0.0 <= v <= 1.0 for v in values)


def test_the_scorer_that_serves_gives_a_cascade_the_scores_that_were_evaluated(data: Path, tmp_path: Path) -> None:
    told = ("--cascade", "--answer", "answer:small", "--scouts", "s1,s2")
    out = tmp_path / "c"
    done = call("train", "--data", str(data), "--weak", "small", "--strong", "large", *told, "--out", str(out))
    assert done.exit_code == 0, done.output
    table = cases.read(data)
    offline = cascade.read(out).scores(table.prompts, cascade.told_of(table, "answer:small", ["s1", "s2"]))
    scorer = scorers.build(ScorerSpec(name="c", kind="cascade", options={"artifact": str(out)}))
    columns = [table.columns[name] for name in ("answer:small", "s1", "s2")]
    for words, score, answer, *scouts in zip(table.prompts, offline, *columns, strict=True):
        given = Prompt(text=words, signals=Signals(), answer=answer.lower(), scouts=tuple(s.lower() for s in scouts))
        served = scorer.score(given)
        assert isinstance(served, Score)
        assert served.value == pytest.approx(float(score), abs=1e-4)
    for prompt, reason in (
        (Prompt(text="a", signals=Signals()), "missing"),
        (Prompt(text="a", signals=Signals(), scouts=("a", "b")), "empty"),
        (Prompt(text="a", signals=Signals(), answer="a", scouts=("a",)), "unsure"),
    ):
        assert scorer.score(prompt) == Abstain(scorer="c", reason=reason)  # pyright: ignore[reportArgumentType]


def test_calibration_lowers_the_error_and_writes_an_artifact_with_the_same_order(data: Path, tmp_path: Path) -> None:
    artifact = Lexical("x").artifact
    done = call(
        "calibrate", "--data", str(data), "--weak", "small", "--scorer", "lexical", "--out", str(tmp_path / "c")
    )
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert result["method"] == "platt"
    assert result["ece_after"] < result["ece_before"]
    assert result["brier_after"] < result["brier_before"]
    prompts = [Prompt(text=p, signals=Signals()) for p in (*HARD, *EASY)]
    before, after = (
        [s.value for p in prompts if isinstance(s := Lexical("x", a).score(p), Score)]
        for a in (artifact, tmp_path / "c")
    )
    assert np.argsort(before).tolist() == np.argsort(after).tolist()


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--weak", "small", "--strong", "huge"), "no column 'huge'"),
        (("--weak", "small", "--strong", "small"), "same column"),
        (("--weak", "small", "--strong", "large", "--scorer", "absent"), "no scorer 'absent'"),
        (("--weak", "small", "--strong", "large", "--folds", "1"), "at least 2"),
        (("--weak", "small", "--strong", "large", "--folds", "3", "--holdout", "era"), "no column 'era'"),
        (("--weak", "small", "--strong", "large", "--cascade"), "needs --answer"),
    ],
)
def test_a_mistake_is_one_line_and_exit_1(data: Path, args: tuple[str, ...], says: str) -> None:
    done = call("run", "--data", str(data), *args)
    assert done.exit_code == 1
    assert says in done.output
    assert "Traceback" not in done.output
