"""What a request costs: prices by model, tokens from the file, and plain words where something is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evals import cases, costs, run
from evals.cases import BadData, Table
from evals.decisions import Scored
from router.types import Score


def table(tmp_path: Path, **more: list[Any]) -> Table:
    n = 40
    columns: dict[str, list[Any]] = {
        "prompt": ["abcd" * 10] * n,
        "correct:small": [i % 2 for i in range(n)],
        "large": [1] * n,
        **more,
    }
    cases.write(tmp_path / "d.jsonl", columns)
    return cases.read(tmp_path / "d.jsonl")


def test_counted_tokens_are_used_where_the_file_has_them(tmp_path: Path):
    t = table(tmp_path, **{"input_tokens:small": [100] * 40, "output_tokens:small": [10, None] * 20})
    found = costs.of_model(t, np.arange(40), "small", costs.prices(["small=1:2"]))
    assert found.source == "output_tokens:small"
    assert found.dollars == pytest.approx(np.full(40, (100 * 1 + 10 * 2) / 1e6))  # a hole takes the mean


def test_lengths_stand_in_for_tokens_and_a_third_number_for_answers(tmp_path: Path):
    t = table(tmp_path, **{"chars:small": [400] * 40})
    given = costs.prices(["correct:small=1:2", "large=10:30:7"])
    assert costs.of_model(t, np.arange(2), "small", given).dollars == pytest.approx([(10 + 200) / 1e6] * 2)
    dear = costs.of_model(t, np.arange(2), "large", given)
    assert (dear.source, dear.dollars[0]) == ("--price", pytest.approx((100 + 210) / 1e6))


@pytest.mark.parametrize(
    "text", ["small", "small=1", "small=a:b", "=1:2", "small=1:-2", "small=nan:1", "small=1:2:3:4"]
)
def test_a_price_that_is_none_is_told(text: str):
    with pytest.raises(BadData, match="--price wants"):
        costs.prices([text])


def test_what_is_missing_for_a_cost_is_named(tmp_path: Path):
    t = table(tmp_path)
    with pytest.raises(BadData, match="no price for 'large'"):
        costs.of_model(t, np.arange(2), "large", costs.prices(["small=1:2"]))
    with pytest.raises(BadData, match="output_tokens:large"):
        costs.of_model(t, np.arange(2), "large", costs.prices(["large=1:2"]))
    pair = cases.pair(t, "small", "large")
    with pytest.raises(BadData, match="the weak model is the cheaper one"):
        costs.priced(pair, "small", "large", costs.prices(["small=9:9:9", "large=1:2:9"]))


def test_the_policys_cost_is_that_of_the_rows_it_sends_up_and_not_of_the_mean(tmp_path: Path):
    t = table(tmp_path, **{"output_tokens:large": [1000 if i % 2 == 0 else 0 for i in range(40)]})
    pair = cases.pair(t, "small", "large")
    priced = costs.priced(pair, "small", "large", costs.prices(["small=0:0:0", "large=0:1"]))
    scored = Scored(answers=[Score(scorer="difficulty", value=0.9 if i % 2 == 0 else 0.1) for i in range(40)])
    result = run.measure(pair, scored, costs=priced, draws=100)
    assert result["at_policy"]["strong_share"] == 0.5
    assert result["dollars"]["per_1k"] == {"weak": 0.0, "strong": 0.5, "policy": 0.5}
    assert result["dollars"]["saved_share"] == 0.0
    assert result["dollars"]["curve"][0] == [0.0, 0.5]
    assert result["at_share"]["0.5"] == 1.0
    assert result["at_share_ci"]["0.5"] == [1.0, 1.0]
    assert result["at_share_against_length"]["0.5"][0] > 0
