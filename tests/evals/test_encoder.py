"""Training the encoder scorer for a pair, on a tiny encoder made here: the artifact is written, used and repeated."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from evals import cases, decisions, general, quality
from evals.cases import BadData
from evals.encoded import Reader, reader
from evals.fit import Examples, meaning, predict
from router import scorers
from router.cli import main
from router.config import ScorerSpec
from router.scorers import encoder, heads
from router.scorers.signalled import FEATURES, Part, vector
from router.seams import Scorer
from router.types import Abstain, Prompt, Score, Signals
from tests.support.tiny_onnx import write_tiny_encoder

pytest.importorskip("onnxruntime")
pytest.importorskip("tokenizers")

LETTERS = "abcdefghijklmnopqrstuvw"


def call(*args: str) -> Result:
    return CliRunner().invoke(main, ["eval", *args])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prompts of one shape and length: only which letters they are made of tells the weak model's failures."""
    draw = np.random.default_rng(5)
    prompts: list[str] = []
    weak: list[int] = []
    for i in range(240):
        hard = i % 2
        letters = draw.choice(list(LETTERS[12:] if hard else LETTERS[:12]), size=(6, 5))
        prompts.append(" ".join("".join(word) for word in letters))
        weak.append(int(draw.random() < (0.1 if hard else 0.95)))
    path = tmp_path_factory.mktemp("data") / "d.parquet"
    cases.write(
        path, {"prompt": prompts, "small": weak, "large": [1] * 240, "subject": [f"s{i // 2 % 4}" for i in range(240)]}
    )
    return path


def pair(data: Path) -> tuple[str, ...]:
    return ("--data", str(data), "--weak", "small", "--strong", "large")


@pytest.fixture(scope="module")
def artifact(data: Path, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("artifact")
    done = call("train", *pair(data), "--scorer", "encoder", "--model", str(model), "--out", str(out))
    assert done.exit_code == 0, done.output
    return out


def test_the_artifact_reads_the_encoders_vector_and_names_the_encoder(artifact: Path, model: Path) -> None:
    made, encoded = encoder.read(artifact)
    assert encoded.model == str(model)
    assert "Meaning" in {type(view).__name__ for view in made.heads["open"].views}


def test_the_artifact_is_measured_by_run_and_score(artifact: Path, data: Path, tmp_path: Path) -> None:
    done = call("run", *pair(data), "--scorer", str(artifact), "--draws", "100")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["apgr"] > 0.7
    assert json.loads(done.stdout)["abstained"] == 0
    out = tmp_path / "scored.csv"
    assert call("score", "--data", str(data), "--scorer", str(artifact), "--out", str(out)).exit_code == 0
    scores = cases.read(out).columns["score"]
    assert all(0.0 <= float(s) <= 1.0 for s in scores)


def test_the_same_data_gives_the_same_bytes_and_kept_vectors_change_nothing(
    artifact: Path, data: Path, model: Path, tmp_path: Path
) -> None:
    keep = tmp_path / "kept"
    for name in ("b", "c"):
        done = call(
            "train", *pair(data), "--scorer", "encoder", "--model", str(model), "--keep", str(keep),
            "--out", str(tmp_path / name),
        )  # fmt: skip
        assert done.exit_code == 0, done.output
        assert ("encoded" in done.output) == (name == "b")
        assert (tmp_path / name / "model.npz").read_bytes() == (artifact / "model.npz").read_bytes()


def test_folds_train_an_encoders_heads_where_the_scorer_has_one(artifact: Path, data: Path) -> None:
    done = call("run", *pair(data), "--scorer", str(artifact), "--folds", "2", "--holdout", "subject", "--draws", "100")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["apgr"] > 0.65
    assert reader("lexical") is None


def test_an_encoder_that_cannot_be_used_ends_in_one_line(data: Path, tmp_path: Path) -> None:
    done = call("train", *pair(data), "--scorer", "encoder", "--model", str(tmp_path), "--out", str(tmp_path / "a"))
    assert done.exit_code == 1
    assert "has no model.onnx" in done.output
    assert done.output.count("\n") == 1


def test_an_encoders_artifact_is_recalibrated_in_its_own_order(artifact: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "c"
    done = call("calibrate", "--data", str(data), "--weak", "large", "--scorer", str(artifact), "--out", str(out))
    assert "succeeds on every row" in done.output
    turned = cases.read(data)
    cases.write(tmp_path / "t.csv", {"prompt": turned.prompts, "small": [i % 3 > 0 for i in range(240)]})
    told = ("--data", str(tmp_path / "t.csv"), "--weak", "small", "--scorer", str(artifact), "--out", str(out))
    done = call("calibrate", *told)
    assert done.exit_code == 0, done.output
    before, after = (decisions.score(decisions.find(str(a), None), turned.prompts).values for a in (artifact, out))
    assert np.argsort(before, kind="stable").tolist() == np.argsort(after, kind="stable").tolist()
    assert abs(float(after.mean()) - 1 / 3) < abs(float(before.mean()) - 1 / 3)
    assert encoder.is_artifact(out)


def test_a_scorer_without_curves_of_its_own_is_told_the_option_that_calibrates_it(data: Path, tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    for file in Path("policies").glob("*.yaml"):
        (tmp_path / "p" / file.name).write_text(file.read_text())
    (tmp_path / "p" / "scorers.yaml").write_text("version: 1\nscorers: {difficulty: {kind: fixed, value: 0.5}}\n")
    scorer = ("--scorer", "difficulty", "--config", str(tmp_path / "p"), "--out", str(tmp_path / "c"))
    done = call("calibrate", "--data", str(data), "--weak", "small", *scorer)
    assert done.exit_code == 1
    assert "option `calibration`" in done.output


def test_signals_that_an_artifact_knows_move_an_encoders_score_alike_in_production(
    artifact: Path, data: Path, tmp_path: Path
) -> None:
    part = Part(
        features=tuple(FEATURES), weights=(2.0, *(0.0,) * 13), least=(0.0,) * 14, most=(9.0,) * 14, slope=1.0, bias=0.1
    )
    heads.dump(replace(heads.load(artifact), signals=part), tmp_path / "a")
    asked = Prompt(text="abc def", signals=Signals(tool_errors=3))

    async def ask(scorer: Scorer, prompt: Prompt) -> float:
        answer = scorer.score(prompt)
        answer = answer if isinstance(answer, Score | Abstain) else await answer
        assert isinstance(answer, Score)
        return answer.value

    async def both() -> list[float]:
        spec = ScorerSpec(name="e", kind="encoder", options={"artifact": str(tmp_path / "a")})
        made = (decisions.find(str(tmp_path / "a"), None), scorers.offline(spec), decisions.find(str(artifact), None))
        try:
            return [await ask(scorer, asked) for scorer in made]
        finally:
            for scorer in made:
                await scorer.aclose()

    offline, production, bare = asyncio.run(both())
    assert offline == production == pytest.approx(part.value(bare, vector(asked.signals)))
    refused = ("--scorer", str(tmp_path / "a"), "--out", str(tmp_path / "c"))
    assert "reads signals" in call("calibrate", "--data", str(data), "--weak", "small", *refused).output


def test_a_head_over_vectors_learns_what_they_tell_and_needs_them(model: Path) -> None:
    prompts = [letter * 8 for letter in LETTERS]
    x = Reader(str(model))(prompts)
    target = x.meaning @ np.arange(8.0)
    view = meaning(ridge=1e-3)(x, target)
    assert np.corrcoef(predict(view, x), target)[0, 1] > 0.99
    assert predict(view, x)[3] == pytest.approx(view.predict(x.features[3]), abs=1e-4)
    with pytest.raises(ValueError, match="without an encoder"):
        predict(view, Examples(prompts))


def test_a_reader_gives_each_prompt_the_vector_that_production_gives_it(model: Path) -> None:
    prompts = ["Please PROVE it", "prove it", "", "a" * 5000]
    x = Reader(str(model))(prompts)
    assert x.prompts == prompts
    assert np.array_equal(x.meaning[0], x.meaning[1])
    with pytest.raises(BadData, match=r"model\.onnx"):
        Reader("/nowhere")


def test_only_the_heads_that_gain_from_it_get_the_encoders_view() -> None:
    assert set(general.open_views(lambda _: Examples([]))) == {*general.open_views(), "meaning"}
    found = {"prompts": {"auroc": 0.9, "ci": [0.8, 1.0]}}
    text = quality.table({"everyday": found, "everyday-encoder": found})
    assert "| prompts held out | 0.900 [0.800, 1.000] | 0.900 [0.800, 1.000] |" in text
