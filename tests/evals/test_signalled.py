"""What a conversation shows beside its words: learnt from records, kept where it helps, and used alike everywhere."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

from evals import decisions, signalled, train
from router import scorers
from router.cli import main
from router.config import ScorerSpec
from router.scorers import heads
from router.scorers.calibration import Curve
from router.scorers.fixed import Fixed
from router.scorers.signalled import FEATURES, Part, Signalled, logit, vector
from router.types import Abstain, Prompt, Score, Signals
from tests.evals.test_recorded import lines, write

NONE = (0.0,) * len(FEATURES)
TASK = "Rename the field in every module and run the tests"


def part(**weights: float) -> Part:
    return Part(
        features=tuple(FEATURES),
        weights=tuple(weights.get(name, 0.0) for name in FEATURES),
        least=NONE,
        most=(9.0,) * len(FEATURES),
        slope=1.0,
        bias=0.0,
    )


def agents(draw: Callable[[random.Random], int], n: int = 600) -> list[dict[str, Any]]:
    """Records of tasks alike in words, of which the small group fails those in which tools have failed."""
    rng, rows = random.Random(3), lines(n)
    for i, row in enumerate(rows):
        errors = draw(rng)
        row["prompt"] = f"{TASK} ({i})"
        row["signals"] |= {"tool_errors": errors, "tool_loop": True, "turns": 1 + i % 3, "input_tokens": 900 + i}
        fails = row["decision"]["group"] == "small" and rng.random() < (0.85 if errors else 0.1)
        row["feedback"] = {"score": float(not fails), "label": None}
    return rows


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    folder, said = tmp_path_factory.mktemp("signalled"), list[str]()
    records = write(folder / "r.jsonl", agents(lambda rng: rng.choice([0, 0, 1, 4])))
    heads.dump(train.from_records([records], None, None, said.append), folder / "a")
    return folder / "a", said


def ask(scorer: Any, errors: int, text: str = TASK) -> float:
    prompt = Prompt(text=text, signals=Signals(tool_errors=errors, tool_loop=True, turns=1, input_tokens=1000))
    answer = scorer.score(prompt)
    assert isinstance(answer, Score)
    return answer.value


def test_tool_errors_that_foretell_failure_are_learnt(trained: tuple[Path, list[str]]) -> None:
    artifact, said = trained
    scorer = decisions.find(str(artifact), None)
    assert ask(scorer, 0) < 0.35
    assert ask(scorer, 3) > 0.6
    assert any(line.startswith("signals: kept") and "tool_errors" in line for line in said)


def test_production_says_what_the_evals_say_although_the_text_is_remembered(trained: tuple[Path, list[str]]) -> None:
    artifact, _ = trained
    production = scorers.build(ScorerSpec(name="d", kind="lexical", options={"artifact": str(artifact)}))
    offline = decisions.find(str(artifact), None)
    for errors in (0, 4, 1, 0):
        assert ask(production, errors) == ask(offline, errors)
    assert isinstance(production, Signalled)
    assert isinstance(production.scorer, scorers.Cached)
    assert production.scorer.hits == 3


def test_data_without_signals_is_scored_as_a_first_message_without_tools(trained: tuple[Path, list[str]]) -> None:
    artifact, _ = trained
    found = decisions.score(decisions.find(str(artifact), None), [TASK]).values
    answer = decisions.find(str(artifact), None).score(Prompt(text=TASK, signals=Signals()))
    assert isinstance(answer, Score)
    assert found.tolist() == [answer.value]


def test_an_artifact_with_the_part_is_written_as_it_was_read(trained: tuple[Path, list[str]], tmp_path: Path) -> None:
    artifact, _ = trained
    read = heads.load(artifact)
    assert read.signals is not None
    assert heads.dump(read, tmp_path).read_bytes() == (artifact / heads.MODEL_FILE).read_bytes()


@pytest.mark.parametrize(
    ("draw", "why"), [(lambda rng: 2, "not better beyond chance"), (lambda rng: rng.choice([0, 3]), "not better")]
)
def test_signals_that_foretell_nothing_are_left_out(
    tmp_path: Path, draw: Callable[[random.Random], int], why: str
) -> None:
    rows, rng, said = agents(draw), random.Random(8), list[str]()
    for row in rows:
        row["feedback"]["score"] = float(row["decision"]["group"] == "large" or rng.random() < 0.6)
    made = train.from_records([write(tmp_path / "r.jsonl", rows)], None, None, said.append)
    assert made.signals is None
    assert any(line.startswith("signals: left out") and why in line for line in said)


def test_records_whose_signals_never_vary_leave_them_out(tmp_path: Path) -> None:
    said: list[str] = []
    made = train.from_records([write(tmp_path / "r.jsonl", lines(400))], None, None, said.append)
    assert made.signals is None
    assert "signals: left out, no signal varies" in said
    bare = heads.dump(made, tmp_path / "a").read_bytes()
    assert b'"signals"' not in bare


def test_rows_of_one_conversation_are_no_independent_evidence() -> None:
    rng = np.random.default_rng(0)
    place, x = np.repeat(np.arange(8), 40), np.zeros((320, len(FEATURES)))
    x[:, 0] = place % 2
    failed = np.where(place % 2 == 1, rng.random(320) < 0.55, rng.random(320) < 0.45).astype(float)
    seen = signalled.Occasions(place=place, features=x, failed=failed)
    assert signalled.fit(np.full(8, 0.5), seen, np.full(8, 0.5), lambda line: None) is None


def test_a_span_that_training_never_saw_counts_as_its_nearest_end() -> None:
    made = msgspec.structs.replace(part(tool_errors=1.0), least=(1.0, *NONE[1:]), most=(2.0, *NONE[1:]))
    at = [logit(made.value(0.5, (x, *NONE[1:]))) for x in (0.0, 1.0, 1.5, 2.0, 50.0)]
    assert at == pytest.approx([1.0, 1.0, 1.5, 2.0, 2.0], abs=1e-6)


def test_an_abstention_stays_one_and_a_calibration_maps_the_whole() -> None:
    asked = Prompt(text="x", signals=Signals(tool_errors=3))
    assert isinstance(Signalled(Fixed("f", None), part(tool_errors=2.0)).score(asked), Abstain)
    halved = Signalled(Fixed("f", 0.5), part(tool_errors=2.0), Curve((0.0, 1.0), (0.0, 0.5))).score(asked)
    whole = Signalled(Fixed("f", 0.5), part(tool_errors=2.0)).score(asked)
    assert isinstance(halved, Score)
    assert isinstance(whole, Score)
    assert halved.value == pytest.approx(whole.value / 2)
    assert whole.value > 0.9


def test_a_scorer_that_is_waited_for_gets_its_part_too() -> None:
    class Late(Fixed):
        async def later(self, prompt: Prompt) -> Score | Abstain:
            return super().score(prompt)

        def score(self, prompt: Prompt) -> Any:
            return self.later(prompt)

    async def asked() -> Score | Abstain:
        scorer = Signalled(Late("f", 0.5), part(spinning=2.0))
        return await scorer.score(Prompt(text="x", signals=Signals(spinning=4)))  # type: ignore[misc]

    answer = asyncio.run(asked())
    assert isinstance(answer, Score)
    assert answer.value > 0.9


def test_a_first_message_without_tools_is_zero_throughout() -> None:
    assert vector(Signals(prompt_chars=900, model="auto", dialect="messages")) == NONE


def test_an_artifact_of_other_signals_is_refused(trained: tuple[Path, list[str]], tmp_path: Path) -> None:
    made = heads.load(trained[0])
    assert made.signals is not None
    other = msgspec.structs.replace(made.signals, features=("tool_errors",))
    heads.dump(msgspec.structs.replace(made, signals=other), tmp_path)
    with pytest.raises(heads.Incompatible, match="other signals"):
        heads.load(tmp_path)


def test_explain_names_the_signals_that_moved_the_score(trained: tuple[Path, list[str]], tmp_path: Path) -> None:
    policies = tmp_path / "policies"
    policies.mkdir()
    (policies / "groups.yaml").write_text(
        "version: 1\ngroups: {small: {deployments: [a]}, large: {deployments: [a]}}\n"
        "deployments: {a: {upstream: scripted, options: {text: x}}}\n"
    )
    (policies / "scorers.yaml").write_text(
        f"version: 1\nscorers: {{difficulty: {{kind: lexical, artifact: '{trained[0]}'}}}}\n"
    )
    (policies / "default.yaml").write_text(
        "version: 1\nname: default\nmodels: [auto]\ndefault: large\nroutes:\n- name: r\n  score:\n"
        "    scorer: difficulty\n    bands: [{below: 0.5, group: small}, {group: large}]\n"
    )
    call = {"id": "c", "type": "function", "function": {"name": "test", "arguments": "{}"}}
    turns: list[dict[str, Any]] = [{"role": "user", "content": TASK}]
    for _ in range(3):
        turns += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "Error: 3 tests failed"},
        ]
    request = tmp_path / "request.json"
    request.write_text(json.dumps({"model": "auto", "messages": turns}))
    done = CliRunner().invoke(main, ["explain", str(request), "--config", str(policies)])
    assert done.exit_code == 0, done.output
    features = next(line for line in done.output.splitlines() if line.startswith("features"))
    assert "signals.tool_errors +" in features
