"""`pointsman bench --scorer`: what one prompt costs a scorer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from evals.bench import scorers
from router.cli import main


def call(*args: str) -> Result:
    return CliRunner().invoke(main, ["bench", *args])


def test_a_scorer_is_measured_on_prompts_of_every_shape() -> None:
    done = call("--scorer", "lexical", "--count", "5", "--json")
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert (result["scorer"], result["count"]) == ("lexical", 5)
    assert list(result["rows"]) == list(scorers.SHAPES)
    assert all(row["ms"] > 0 and row["ms_p95"] >= row["ms"] for row in result["rows"].values())


def test_a_configured_scorer_is_looked_up_by_name_and_an_unknown_one_told(tmp_path: Path) -> None:
    assert call("--scorer", "difficulty", "--config", "policies", "--count", "5").stdout.count("\n") == 7
    unknown = call("--scorer", "nothing", "--count", "5")
    assert unknown.exit_code == 1
    assert "no scorer 'nothing'" in unknown.output


@pytest.mark.parametrize("shape", scorers.SHAPES)
def test_no_prompt_is_asked_twice(shape: str) -> None:
    assert len(set(scorers.prompts(shape, 20))) == 20


def test_fifty_words_are_about_fifty() -> None:
    assert all(45 <= len(text.split()) <= 55 for text in scorers.prompts("50 words", 20))


def test_the_command_line_keeps_numpy_to_one_thread() -> None:
    code = (
        "import os, sys\n"
        "from router.cli import main\n"
        "assert 'numpy' not in sys.modules\n"
        "try: main(['check', '--help'])\n"
        "except SystemExit: print(os.environ['OPENBLAS_NUM_THREADS'])\n"
    )
    env = {"PYTHONPATH": str(Path.cwd()), "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert done.stdout.splitlines()[-1] == "1"
