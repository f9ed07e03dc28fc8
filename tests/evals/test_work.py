"""Long work goes on where it stopped, takes nothing old for new, and leaves nothing behind once it is done."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from evals import cases, train
from evals.cases import BadData
from evals.console import progress
from evals.journal import Journal
from evals.work import Work, beside, current, going
from router.scorers import heads


def test_a_finished_part_is_taken_from_the_folder_and_other_work_is_not(tmp_path: Path) -> None:
    made: list[int] = []

    def make() -> np.ndarray[Any, np.dtype[np.float64]]:
        made.append(1)
        return np.array([1.5, np.nan])

    for _ in range(2):
        assert Work(tmp_path).floats(("a", np.arange(3)), make).tolist()[0] == 1.5
    assert len(made) == 1
    for other in (("b", np.arange(3)), ("a", np.arange(4)), ("a", np.arange(3.0)), ("a", "0", "1", "2")):
        Work(tmp_path).floats(other, make)
    assert len(made) == 5


def test_parts_wait_after_a_stop_and_go_when_all_is_done(tmp_path: Path) -> None:
    folder = beside(tmp_path / "artifact")

    def stopped() -> None:
        with going(folder):
            current().floats(("a",), lambda: np.zeros(1))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert len(list(folder.iterdir())) == 1
    with going(folder) as work:
        current().floats(("a",), lambda: np.ones(1))
        assert work.reused == 1
    assert not folder.exists()
    assert current().folder is None


def test_training_that_was_stopped_goes_on_and_gives_the_same_bytes(tmp_path: Path) -> None:
    draw = random.Random(2)
    columns: dict[str, list[Any]] = {
        "prompt": [f"{'Prove it' if i % 2 else 'Say hi'} to {i}" for i in range(200)],
        "weak": [int(draw.random() < (0.2 if i % 2 else 0.9)) for i in range(200)],
        "strong": [1] * 200,
    }
    data = tmp_path / "d.csv"
    cases.write(data, columns)
    out = tmp_path / "a"
    command = ["eval", "train", "--data", str(data), "--weak", "weak", "--strong", "strong", "--out"]
    from router.cli import main

    whole = CliRunner().invoke(main, [*command, str(out)])
    assert whole.exit_code == 0, whole.output
    assert not beside(out).exists()

    def stop(line: str) -> None:
        raise KeyboardInterrupt

    again = tmp_path / "b"
    with pytest.raises(KeyboardInterrupt), going(beside(again)):
        train.model([data], "weak", "strong", stop)
    kept = len(list(beside(again).iterdir()))
    assert kept > 0
    with going(beside(again)) as work:
        heads.dump(train.model([data], "weak", "strong", lambda line: None), again)
        assert work.reused == kept
    assert (again / heads.MODEL_FILE).read_bytes() == (out / heads.MODEL_FILE).read_bytes()


def test_progress_that_is_piped_is_lines_and_its_last_says_that_all_is_done(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with progress("rows", 1000, 998) as step:
        step()
        step()
    assert capsys.readouterr().err.splitlines() == ["rows: 998 of 1000 are there", "rows: 1000 of 1000"]


def test_a_journal_drops_a_torn_last_line_and_refuses_what_is_no_journal(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    first = Journal(path, "d")
    first.add({"row": 1})
    first.close()
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"row": 2')
    again = Journal(path, "d")
    again.close()
    assert (again.entries, path.read_bytes()) == ([{"row": 1}], whole)
    for content, says in ((b"[1]\n", "j.jsonl:1: not a line"), (b"{\n", "j.jsonl:1: not a line")):
        path.write_bytes(content)
        with pytest.raises(BadData, match=says):
            Journal(path, "d")
    path.write_bytes(whole)
    with pytest.raises(BadData, match="other data or settings"):
        Journal(path, "e")
