"""More than two groups: the same decision with more bands, against random, length and each group alone."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from evals import cases, nway
from evals.decisions import Scored
from router.cli import main
from router.types import Abstain, Score

N = 240
WORDS = ("Prove that the sum of primes diverges", "Explain how a lock can deadlock", "What is the capital of France?")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A third each for three groups, of which the dearer knows what the cheaper knows."""
    draw = random.Random(3)
    level = [i % 3 for i in range(N)]
    columns: dict[str, list[Any]] = {
        "prompt": [f"{WORDS[2 - v]} ({i})" for i, v in enumerate(level)],
        "large": [1 for _ in level],
        "correct:small": [int(v == 0) for v in level],
        "score:medium": [int(v <= 1) for v in level],
        "noise": [draw.random() for _ in level],
    }
    cases.write(tmp_path / "d.csv", columns)
    return tmp_path / "d.csv"


def call(data: Path, *args: str) -> Result:
    return CliRunner().invoke(main, ["eval", "run", "--data", str(data), "--draws", "200", *args])


def told(data: Path, *args: str) -> Any:
    done = call(data, *args)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def perfect() -> Scored:
    return Scored(answers=[Score(scorer="difficulty", value=0.1 + 0.3 * (i % 3)) for i in range(N)])


def test_groups_are_ordered_by_cost_and_a_perfect_score_gives_each_row_its_cheapest_right_one(data: Path):
    a = nway.arms(cases.read(data), ["large", "small", "medium"], {}, [10.0, 1.0, 3.0])
    assert a.names == ("small", "medium", "large")
    result = nway.measure(a, perfect(), edges=[0.3, 0.6], shares=None, draws=200)
    at = result["at_policy"]
    assert at["quality"] == result["oracle"]["quality"] == 1.0
    assert at["cost"] == result["oracle"]["cost"] == pytest.approx(14 / 3, abs=1e-4)
    assert result["random_same_shares"] == pytest.approx(2 / 3, abs=1e-4)
    assert at["against_random"][0] > 0.2
    assert at["against"]["large"] == [0.0, 0.0]
    assert result["aiq"] > result["aiq_no_router"]


def test_the_frontier_rises_from_the_cheapest_group_to_the_best_and_its_bands_give_what_it_says(data: Path):
    a = nway.arms(cases.read(data), ["small", "medium", "large"], {}, [1.0, 3.0, 10.0])
    points = nway.measure(a, perfect(), edges=None, shares=None, draws=200)["frontier"]
    costs, qualities = ([p[key] for p in points] for key in ("cost", "quality"))
    assert costs == sorted(costs)
    assert qualities == sorted(qualities)
    assert (points[0]["shares"]["small"], qualities[-1]) == (1.0, 1.0)
    for p in points:
        again = nway.measure(a, perfect(), edges=p["bands"], shares=None, draws=200)["at_policy"]
        assert {key: again[key] for key in ("shares", "quality", "cost")} == {
            key: p[key] for key in ("shares", "quality", "cost")
        }


def test_shares_are_met_and_an_abstention_goes_to_the_dearest(data: Path):
    a = nway.arms(cases.read(data), ["small", "medium", "large"], {}, [1.0, 3.0, 10.0])
    spread = [Score(scorer="difficulty", value=i / N) for i in range(N)]
    result = nway.measure(a, Scored(answers=[*spread]), edges=None, shares=[0.5, 0.3, 0.2], draws=200)
    assert result["at_policy"]["shares"] == {"small": 0.5, "medium": 0.3, "large": 0.2}
    silent = Scored(answers=[Abstain(scorer="difficulty", reason="unsure")] * N)
    assert nway.measure(a, silent, edges=None, shares=None, draws=200)["at_policy"]["shares"]["large"] == 1.0


def test_the_command_takes_costs_prices_bands_and_shares(data: Path):
    by_bands = told(data, "--groups", "small,medium,large", "--costs", "1,3,10", "--bands", "0.2,0.6")
    assert by_bands["at_policy"]["bands"] == [0.2, 0.6]
    priced = [
        v for m, p in (("small", "1:1:9"), ("medium", "2:2:9"), ("large", "9:9:9")) for v in ("--price", f"{m}={p}")
    ]
    in_dollars = told(data, "--groups", "large,medium,small", *priced, "--shares", "0.4,0.4,0.2")
    assert in_dollars["cost_unit"] == "US$ a request"
    assert [g["name"] for g in in_dollars["groups"]] == ["small", "medium", "large"]
    assert in_dollars["at_policy"]["against_random"][0] > 0


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--groups", "small,medium,large"), "needs what a call costs"),
        (("--groups", "small", "--costs", "1"), "two or more different columns"),
        (("--groups", "small,correct:small", "--costs", "1,2"), "two or more different columns"),
        (("--groups", "small,huge", "--costs", "1,2"), "no column 'huge'"),
        (("--groups", "small,medium,large", "--costs", "1,2,3", "--bands", "0.6,0.3"), "2 rising edges"),
        (("--groups", "small,medium,large", "--costs", "1,2,3", "--bands", "0.6"), "2 rising edges"),
        (("--groups", "small,medium,large", "--costs", "1,2,3", "--shares", "0.6,0.3"), "3 shares that sum to 1"),
        (("--groups", "small,medium,large", "--costs", "1,x,3"), "--costs wants numbers"),
        (("--groups", "small,large", "--costs", "1,3", "--live"), "none of --live"),
        (("--weak", "small"), "name two columns"),
    ],
)
def test_a_mistake_is_one_line_and_exit_1(data: Path, args: tuple[str, ...], says: str):
    done = call(data, *args)
    assert done.exit_code == 1
    assert says in done.output
    assert "Traceback" not in done.output


def test_the_sweep_covers_the_corners_and_stays_small():
    for k in (2, 3, 4, 5, 6):
        points = nway.simplex(k)
        assert len(points) == len(set(points)) <= 3000
        assert all(sum(p) == pytest.approx(1.0) and min(p) >= 0 for p in points)
        corners = np.eye(k).tolist()
        assert all(tuple(c) in points for c in corners)
