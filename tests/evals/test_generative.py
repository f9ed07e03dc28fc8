"""Training the generative scorer on a tiny Llama made here: it learns, and on two processes it learns the same."""

from __future__ import annotations

import asyncio
import csv
import subprocess
import sys
from pathlib import Path

import pytest

from evals import generative as training
from evals.bench.tiny_llama import write_tiny_llama
from evals.cases import BadData
from router.scorers import generative
from router.scorers.generative import Source
from router.types import Abstain, Prompt, Score, Signals

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("peft")

# peft 0.21 reads a property that transformers 5.24 has renamed.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")

SUBJECTS = ("rivers", "trees", "primes", "clouds", "engines", "birds", "rocks", "songs", "cities", "stars", "glass")
EASY = tuple(f"what are {subject}?" for subject in SUBJECTS)
SUMS = "1 + 1 = 2; " * 40  # a random model's last place keeps a trace of much, not of little
HARD = tuple(f"prove about {subject}: {SUMS}" for subject in SUBJECTS)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prompts of which the cheap model solves the easy ones and the dear model all."""
    path = tmp_path_factory.mktemp("data") / "pair.csv"
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["prompt", "cheap", "dear"])
        for easy, hard in zip(EASY, HARD, strict=True):
            rows.writerow([easy, 1, 1])
            rows.writerow([hard, 0, 1])
    return path


def scores(artifact: Path, *texts: str) -> list[float]:
    async def all_of() -> list[Score | Abstain]:
        scorer = generative.offline(artifact)
        try:
            asked = [scorer.score(Prompt(text=text, signals=Signals())) for text in texts]
            return [a if isinstance(a, Score | Abstain) else await a for a in asked]
        finally:
            await scorer.aclose()

    found = asyncio.run(all_of())
    return [answer.value for answer in found if isinstance(answer, Score)]


def test_a_trained_head_tells_apart_what_it_was_trained_to(model: Path, data: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    out = training.train_generative([data], "cheap", "dear", tmp_path / "a", Source(model=str(model)), say=lines.append)
    easy = scores(out, *(f"what are {new}?" for new in ("knives", "ponds", "hats")))
    hard = scores(out, *(f"prove about {new}: {SUMS}" for new in ("knives", "ponds", "hats")))
    assert len(easy) == len(hard) == 3
    assert max(easy) < 0.5 < min(hard)
    assert any("prompts/s" in line for line in lines)
    note = generative.read(out).note
    assert (note.layers, note.adapter, note.notes["rows"]) == ((1,), False, 22)


def test_a_lora_adapter_is_written_and_read(model: Path, data: Path, tmp_path: Path) -> None:
    settings = training.Settings(epochs=2, rank=4, rate=1e-2, layers=(1, 2))
    lines: list[str] = []
    source = Source(model=str(model))
    out = training.train_generative([data], "cheap", "dear", tmp_path / "a", source, settings, lines.append)
    assert (out / generative.ADAPTER / "adapter_model.safetensors").is_file()
    losses = [float(line.split("loss ")[1].split(",")[0]) for line in lines if "loss" in line]
    assert len(losses) == 2
    assert losses[1] < losses[0]
    (easy,) = scores(out, EASY[0])
    (hard,) = scores(out, HARD[0])
    assert easy < 0.5 < hard


@pytest.mark.slow
def test_two_processes_write_the_same_artifact_as_one(model: Path, data: Path, tmp_path: Path) -> None:
    """With an adapter; the head alone is in tests/evals/test_scaling.py."""
    said: list[str] = []
    for processes in (1, 2):
        launched = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
        command = [sys.executable, *(launched if processes > 1 else ())]
        command += ["-m", "evals.generative", "--data", str(data), "--weak", "cheap", "--strong", "dear"]
        command += ["--model", str(model), "--batch", "4", "--lora", "1", "--rate", "0.01", "--step", "3"]
        done = subprocess.run(
            [*command, "--out", str(tmp_path / str(processes))],
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        said.append(done.stderr)
    one, two = (
        {str(p.relative_to(f)): p.read_bytes() for p in f.rglob("*") if p.is_file()}
        for f in map(tmp_path.joinpath, "12")
    )
    assert len(one) == 4
    assert one.keys() == two.keys()
    assert [name for name in one if one[name] != two[name]] == []
    assert "by 1 processes" in said[0]
    assert "by 2 processes" in said[1]


def test_a_pair_that_gains_more_is_pushed_above_one_that_gains_less() -> None:
    torch = generative.library("torch")
    labels = torch.tensor([[1.0, 1.0], [0.0, 1.0]])
    right = torch.tensor([[2.0, 2.0], [-2.0, 2.0]])
    flat, ranked = training.loss(torch, right, labels, 0.0), training.loss(torch, right, labels, 1.0)
    swapped = training.loss(torch, right.flip(0), labels, 1.0) - training.loss(torch, right.flip(0), labels, 0.0)
    assert 0 < float(ranked - flat) < float(swapped)
    same = torch.tensor([[1.0, 1.0], [1.0, 1.0]])
    assert float(training.loss(torch, right, same, 1.0)) == float(training.loss(torch, right, same, 0.0))


def test_layers_that_the_model_does_not_have_are_told(model: Path, data: Path, tmp_path: Path) -> None:
    settings = training.Settings(layers=(3,))
    with pytest.raises(BadData, match=r"1\.\.2"):
        training.train_generative([data], "cheap", "dear", tmp_path, Source(model=str(model)), settings)
    with pytest.raises(BadData, match="commas"):
        training.numbers("1;2")


def test_training_needs_a_pair(model: Path, data: Path, tmp_path: Path) -> None:
    with pytest.raises(BadData, match="--weak"):
        training.train_generative([data], None, None, tmp_path, Source(model=str(model)))
