"""A data file is read as it is, and one that cannot be used says why."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from evals import cases
from evals.cases import BadData


def rows(n: int = 40) -> dict[str, list[object]]:
    return {
        "prompt": [f"question number {i}" for i in range(n)],
        "correct:small": [i % 2 for i in range(n)],
        "large": [1 if i % 3 else 0 for i in range(n)],
        "subject": [f"s{i % 4}" for i in range(n)],
    }


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
def test_every_kind_of_file_gives_the_same_pair(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"d.{kind}"
    cases.write(path, rows())
    pair = cases.pair(cases.read(path), "small", "large")
    assert len(pair) == 40
    assert pair.weak.tolist() == [float(i % 2) for i in range(40)]
    assert pair.domain() == [f"s{i % 4}" for i in range(40)]


@pytest.mark.parametrize("name", ["small", "correct:small"])
def test_a_column_may_be_named_with_or_without_its_prefix(tmp_path: Path, name: str) -> None:
    path = tmp_path / "d.csv"
    cases.write(path, rows())
    assert cases.column(cases.read(path), name) == "correct:small"
    assert cases.column(cases.read(path), "correct:large") == "large"


def test_negative_and_empty_values_mean_not_run(tmp_path: Path) -> None:
    data = rows()
    data["correct:small"][:3] = [-1, None, -1.0]
    path = tmp_path / "d.jsonl"
    cases.write(path, data)
    pair = cases.pair(cases.read(path), "small", "large")
    assert pair.rows.tolist() == list(range(3, 40))


def test_nan_means_not_run_and_words_for_truth_are_numbers(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_text(
        "prompt,a\n" + "".join(f"q{i},{v}\n" for i, v in enumerate(("nan", "True", "false", "", "-1", "0.5")))
    )
    found = cases.quality(cases.read(path), "a")
    assert np.nan_to_num(found, nan=-1.0).tolist() == [-1.0, 1.0, 0.0, -1.0, -1.0, 0.5]


def test_a_long_prompt_in_a_csv_is_read(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    cases.write(path, {"prompt": ["x" * 300_000], "a": [1]})
    assert len(cases.read(path).prompts[0]) == 300_000


def test_a_column_of_text_may_not_have_holes(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_text("prompt,right\na,1\nb,\n")
    with pytest.raises(BadData, match="'right' is empty on 1 rows, the first is row 2"):
        cases.texts(cases.read(path), "right")


def broken(tmp_path: Path, change: str) -> Path:
    data = rows(3 if change == "three rows" else 40)
    if change == "no prompt column":
        del data["prompt"]
    if change == "hole":
        data["prompt"][7] = "  "
    if change == "constant":
        data["large"] = list(data["correct:small"])
    if change == "above":
        data["large"][5] = 7
    if change == "word":
        data["large"][5] = "good"
    path = tmp_path / "d.jsonl"
    cases.write(path, data)
    return path


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("no prompt column", "no `prompt` column"),
        ("hole", "row 8"),
        ("constant", "nothing to rank"),
        ("above", "row 6: 7 is above 1"),
        ("word", "row 6: 'good' is not a number"),
        ("three rows", "only 3 rows"),
    ],
)
def test_data_that_cannot_be_used_says_why(tmp_path: Path, change: str, says: str) -> None:
    with pytest.raises(BadData, match=says):
        cases.pair(cases.read(broken(tmp_path, change)), "small", "large")


def test_a_wrong_column_is_answered_with_what_is_near(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    cases.write(path, rows())
    with pytest.raises(BadData, match="did you mean correct:small"):
        cases.quality(cases.read(path), "SMALL")
    with pytest.raises(BadData, match="it has prompt"):
        cases.quality(cases.read(path), "gpt")


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("d.txt", "x", "unknown kind"),
        ("d.jsonl", "{]", "d.jsonl:1: not JSON"),
        ("d.jsonl", "[1]", "must be an object"),
        ("d.parquet", "not parquet", "not a parquet file"),
        ("d.csv", "prompt,a\n", "no rows"),
        ("d.csv", "", "empty"),
        ("d.jsonl", "\n\n", "empty"),
        ("d.csv", "prompt,a,a\nx,1,2\n", "two columns are called 'a'"),
        ("d.csv", "prompt,a\nx,1\ny,1,2\n", "d.csv:3: 3 fields under 2 column names"),
        ("d.csv", b"prompt,a\nna\xefve,1\n", "not UTF-8 text, at byte 11"),
        ("d.jsonl", b'{"prompt": "na\xefve"}\n', "not UTF-8 text, at byte 14"),
        ("d.jsonl", '{"prompt": "x"}\n{"prompt": \n', "d.jsonl:2: not JSON"),
        ("d.jsonl", '{"prompt": ' + "[" * 100_000 + "\n", "d.jsonl:1: not JSON"),
        ("d.jsonl", '{"prompt": "x", "a": ' + "9" * 5_000 + "}\n", "d.jsonl:1: not JSON"),
        ("d.jsonl", '{"prompt": 3}\n', "1 rows have no prompt, the first is row 1"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(tmp_path: Path, name: str, content: str | bytes, says: str) -> None:
    (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(BadData, match=says):
        cases.read(tmp_path / name)
    with pytest.raises(BadData, match="no such file"):
        cases.read(tmp_path / "absent.csv")


def test_missing_values_are_written_as_empty(tmp_path: Path) -> None:
    cases.write(tmp_path / "d.csv", {"prompt": ["a"], "score": [None]})
    assert (tmp_path / "d.csv").read_text() == "prompt,score\na,\n"
    cases.write(tmp_path / "d.jsonl", {"prompt": ["a"], "score": [None]})
    assert json.loads((tmp_path / "d.jsonl").read_text()) == {"prompt": "a", "score": None}


def test_rows_can_be_taken_from_a_pair(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    cases.write(path, rows())
    part = cases.pair(cases.read(path), "small", "large").take(np.array([5, 1]))
    assert part.prompts == ["question number 5", "question number 1"]
    assert part.values("subject") == ["s1", "s1"]
