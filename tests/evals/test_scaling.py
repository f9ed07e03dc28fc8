"""The measurement of training on several processes: it trains for real and reports what both runs came to."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from evals.bench import scaling

pytest.importorskip("torch")
pytest.importorskip("transformers")


@pytest.mark.slow
def test_one_and_two_processes_write_the_same_artifact_and_their_speeds_are_reported() -> None:
    done = CliRunner().invoke(scaling.command, ["--rows", "24", "--hidden", "32", "--layers", "2"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["same_bytes"]
    assert found["ratio"] == round(found["prompts_s_many"] / found["prompts_s_one"], 2)
