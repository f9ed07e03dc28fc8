"""The benchmark's table: what counts as met, what counts as worse than before, and the peer that may be missing."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from evals.bench import peers, steps, table
from evals.bench.command import command


def turns(**cpu_us: list[float]) -> dict[str, list[dict[str, Any]]]:
    return {name: [{"cpu_us": us} for us in values] for name, values in cpu_us.items()}


def row(of: dict[str, list[dict[str, Any]]], work: str = "plain request") -> table.Row:
    return table._ratios(work, of)  # pyright: ignore[reportPrivateUsage]


def test_a_ratio_is_the_median_of_the_rounds_and_met_where_every_aim_is() -> None:
    made = row(turns(pointsman=[60.0, 50.0, 900.0], bare=[100.0, 100.0, 100.0], switchyard=[100.0, 100.0, 1800.0]))
    assert made.ratios == {"x bare": 0.6, "x switchyard": 0.5}
    assert made.met is True
    assert row(turns(pointsman=[70.0], bare=[100.0], switchyard=[200.0])).met is False


def test_without_switchyard_the_bare_proxy_alone_is_compared_with_and_the_table_says_so() -> None:
    made = row(turns(pointsman=[60.0], bare=[100.0]))
    assert made.met is True
    assert "switchyard is not installed (--peers)" in made.measured


def test_a_figure_over_its_target_is_shown_as_failed() -> None:
    made = table._most("memory idle", 140.0, 120, "MB")  # pyright: ignore[reportPrivateUsage]
    shown = table.render({"rows": [table.plain(made)], "recorded": 7})
    assert "memory idle  at most 120 MB  140 MB    FAIL" in shown
    assert "7 requests recorded and counted" in shown


def test_only_a_ratio_that_is_worse_by_more_than_15_percent_is_named() -> None:
    def of(ratio: float) -> dict[str, Any]:
        return {"rows": [{"work": "plain request", "ratios": {"x bare": ratio}}]}

    assert table.compare(of(1.14), of(1.0)) == []
    assert table.compare(of(1.16), of(1.0)) == ["plain request: 1.16 x bare, was 1"]
    assert table.compare(of(9.0), {"rows": []}) == []


def test_a_baseline_that_is_no_table_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    for content in ("nonsense", "[]", json.dumps({"rows": [{}]})):
        (tmp_path / "base.json").write_text(content)
        result = CliRunner().invoke(command, ["--compare", str(tmp_path / "base.json")])
        assert result.exit_code == 1
        assert "is not a table that `bench --out` wrote" in result.output


def test_the_committed_baseline_has_every_ratio() -> None:
    base = json.loads((Path(table.__file__).parent / "baseline.json").read_text())
    ratios = {row["work"]: row["ratios"] for row in base["rows"]}
    for work in table.AIMS:
        assert {"x bare", "x switchyard"} <= ratios[work].keys()


def test_switchyard_gets_a_stage_route_to_the_same_upstream(tmp_path: Path) -> None:
    assert peers.command(tmp_path, 1, "http://127.0.0.1:9", tmp_path / "none") is None
    (tmp_path / "peers" / "bin").mkdir(parents=True)
    for name in ("bin/python", "ready"):
        (tmp_path / "peers" / name).touch()
    assert peers.command(tmp_path, 1, "http://127.0.0.1:9", tmp_path / "peers") is not None
    routes = tomllib.loads((tmp_path / "routes.toml").read_text())
    assert routes["routes"]["auto"]["type"] == "stage_router"
    assert routes["llm_clients"]["mock"]["base_url"] == "http://127.0.0.1:9/v1"


def test_every_step_of_the_budget_can_be_taken(tmp_path: Path) -> None:
    for step in steps.steps(tmp_path / "config").values():
        assert step() is not False
