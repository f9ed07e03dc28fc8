"""`pointsman plan`: the commands over the shipped catalogue, and mistakes in files of one's own."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from router.cli import main
from router.cli.examples import EXAMPLES
from router.cluster import reader

CATALOG = Path(__file__).parents[2] / "deploy" / "catalog"


def call(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["plan", *map(str, arguments)])


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    """A copy of the shipped catalogue, to be spoilt."""
    shutil.copytree(CATALOG, tmp_path / "catalog")
    return tmp_path / "catalog"


def spoilt(catalog: Path, file: str, old: str, new: str) -> Path:
    path = catalog / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return catalog


# --- fit -------------------------------------------------------------------------------------------------


def test_fit_tells_nodes_layout_cache_and_a_rate_as_a_range():
    done = call(
        "fit", "--cluster", CATALOG / "clusters" / "eight-spark-ring.yaml", "--model", "glm-5.3-nvfp4", "--json"
    )
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["fits"], told["nodes"], told["layout"]) == (True, 8, "TP8")
    assert told["kv_tokens"] > 700_000
    assert told["per_node_gib"] == pytest.approx(64, abs=1)
    rate = told["decode_tokens_per_s"]
    assert set(rate) == {"low", "mid", "high", "source"}
    assert rate["low"] < rate["mid"] < rate["high"]
    assert told["facts"]["weights_gb"]["basis"] == "published"
    assert told["legal"]["tensor"] == [1, 2, 8]


def test_fit_in_words_names_the_nodes_and_why_fewer_would_not_do():
    done = call("fit", "--cluster", "eight-spark-switch", "--model", "glm-5.3-flash")
    assert done.exit_code == 0, done.output
    assert "181 GB of weights on 2 nodes (TP2)" in done.output
    assert "one node would not do: the node would hold 169 GiB" in done.output


def test_fit_ends_with_1_where_the_model_fits_nowhere_and_says_what_would_hold_it():
    done = call("fit", "--cluster", "two-spark-direct", "--model", "glm-5.3-nvfp4", "--json")
    assert done.exit_code == 1
    told = json.loads(done.stdout)
    assert (told["fits"], told["nodes"], told["decode_tokens_per_s"]) == (False, None, None)
    assert "8 such nodes" in told["would"]
    words = call("fit", "--cluster", "two-spark-direct", "--model", "glm-5.3-nvfp4")
    assert words.exit_code == 1
    assert words.output.splitlines()[0].endswith("8 such nodes would hold it (TP8), or a smaller quantisation")


def test_every_shipped_model_and_cluster_reads_and_every_fact_has_a_source():
    for name in reader.names("models"):
        model = reader.model(name)
        assert all(fact.source and " " in fact.source for fact in model.facts.values()), name
        assert all(" " in row.source or "/" in row.source for row in model.measured), name
    for name in reader.names("clusters"):
        assert reader.cluster(name).nodes


def test_the_shipped_catalogue_covers_the_models_that_are_spoken_of():
    known = " ".join(reader.names("models"))
    for name in ("glm-5.3-nvfp4", "glm-5.3-flash-nvfp4", "qwen3.8-flash-next-nvfp4", "minicpm5-2b", "gpt-oss-120b",
                 "qwen3-235b", "deepseek-v4.1-flash", "llama-3.1-8b"):  # fmt: skip
        assert name in known


def test_the_table_of_predicted_against_measured_in_the_docs_is_what_the_command_says():
    done = call("accuracy")
    assert done.exit_code == 0, done.output
    assert done.stdout in (CATALOG.parents[1] / "docs" / "cluster.md").read_text()
    told = json.loads(call("accuracy", "--json").stdout)
    assert len(told["rows"]) == told["summary"]["rows"] >= 25


def test_fit_takes_a_benchmark_in_and_says_what_it_changed(tmp_path: Path):
    result = {"backend": "vllm", "model_id": "mine/Other", "max_concurrency": 1, "completed": 9, "mean_tpot_ms": 50.0}
    (tmp_path / "two.json").write_text(json.dumps(result))
    (tmp_path / "four.json").write_text(json.dumps(result | {"mean_tpot_ms": 30.0}))
    asked = ("fit", "--cluster", "eight-spark-switch", "--model", "glm-5.3-flash-nvfp4", "--measure")
    done = call(*asked, tmp_path / "two.json", "--measure", f"{tmp_path}/four.json@4", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["decode_tokens_per_s"]["mid"] == 20.0
    assert [(row["nodes"], row["before"]["mid"], row["after"]["mid"]) for row in told["refit"]["rows"]] == [
        (2, 38.0, 20.0),
        (4, 64.0, 33.3),
    ]
    assert told["refit"]["step_ms"] == [{"streams": 1, "shared": 80.0, "paid": 10.0}]
    words = call(*asked, tmp_path / "two.json")
    assert "this is a benchmark of mine/Other; the plan is for nvidia/GLM-5.3-Flash-NVFP4" in words.output


def test_a_benchmark_that_cannot_be_read_ends_in_one_line(tmp_path: Path):
    asked = ("fit", "--cluster", "one-spark", "--model", "minicpm5-2b", "--measure")
    (tmp_path / "no.json").write_text("nothing")
    for given, code, said in ((tmp_path / "no.json", 1, "not JSON"), (tmp_path / "none.json", 2, "cannot be read")):
        done = call(*asked, given)
        assert (done.exit_code, said in done.output, len(done.output.splitlines())) == (code, True, 1)


# --- mistakes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--cluster", "eight-spark-ring", "--model", "glm-5.3-nvfp8"], "did you mean 'glm-5.3-nvfp4'?"),
        (["--cluster", "eight-spark-ring", "--model", "glm-5.3"], "did you mean one of glm-5.3-flash-nvfp4"),
        (["--cluster", "eigth-spark-ring", "--model", "minicpm5-2b"], "did you mean 'eight-spark-ring'?"),
        (["--cluster", "nowhere.yaml", "--model", "minicpm5-2b"], "there is no file nowhere.yaml"),
    ],
)
def test_an_unknown_name_is_told_with_one_that_is_near(arguments: list[str], said: str):
    done = call("fit", *arguments)
    assert done.exit_code == 2
    assert said in done.output
    assert len(done.output.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("nodes: []\nfabric: {kind: switch}", "nodes", "there are no nodes; list each as"),
        ("nodes: [{id: a}, {id: a}]\nfabric: {kind: switch}", "nodes[1].id", "two nodes called a"),
        ("nodes: [{id: a}, {id: b}]\nfabric: {kind: ring}", "fabric.kind", "a ring takes three nodes or more"),
        ("nodes: [{id: a}, {id: b}, {id: c}]\nfabric: {kind: direct}", "fabric.kind", "one cable joins two nodes"),
        (
            "nodes: [{id: a}, {id: b}, {id: c}]\nfabric: {kind: ring, order: [a, b, b]}",
            "fabric.order",
            "passes each node once; look at c",
        ),
        ("nodes: [{id: a}]\nfabric: {kind: mesh}", "fabric.kind", "'mesh' is not one of the words"),
        ("nodes: [{id: a, adress: x}]\nfabric: {kind: none}", "nodes[0]", "unknown key 'adress'"),
        ("nodes: [{address: x}]\nfabric: {kind: none}", "nodes[0]", "the key 'id' is missing"),
        ("nodes: 3\nfabric: {kind: none}", "nodes", "must be a list"),
    ],
)
def test_a_cluster_that_cannot_be_is_told_at_its_place(tmp_path: Path, text: str, place: str, said: str):
    path = tmp_path / "mine.yaml"
    path.write_text(f"version: 1\nmachine: dgx-spark\n{text}\n")
    done = call("fit", "--cluster", path, "--model", "minicpm5-2b")
    assert done.exit_code == 2, done.output
    assert f": {place}: " in done.output
    assert said in done.output
    assert len(done.output.splitlines()) == 1


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("active_b: {value: 40,", "active_b: {value: 4000,", "facts.active_b: 4000B active of 753B in all"),
        ("weights_gb: {value: 470,", "weights_gb: {value: 47000,", "are 499.3 bits each"),
        ("weights_gb: {value: 470,", "weights_gb: {value: 300,", "more than the 300 GB of all weights"),
        ("experts_per_token: {value: 8,", "experts_per_token: {value: 800,", "800 of 256 experts"),
        ("layers: {value: 78,", "layers: {value: -78,", "-78 is not above zero"),
        ("  layers: {value: 78,", "  layers: {value: many,", "facts.layers.value: must be a whole number"),
        ("basis: published, source: card}", "basis: heard, source: card}", "'heard' is not one of the words"),
        ("acceptance: {value: 0.75,", "acceptance: {value: 75,", "a chance lies in 0..1"),
        ("  drafts:", "  draughts:", "unknown fact 'draughts'; did you mean 'drafts'?"),
        ("version: 1", "version: 2", "this reads version 1"),
    ],
)
def test_facts_that_contradict_each_other_are_told_at_their_place(catalog: Path, old: str, new: str, said: str):
    spoilt(catalog, "models/glm-5.3-nvfp4.yaml", old, new)
    done = call("fit", "--cluster", "eight-spark-ring", "--model", "glm-5.3-nvfp4", "--catalog", catalog)
    assert done.exit_code == 2, done.output
    assert said in done.output
    assert "glm-5.3-nvfp4.yaml:" in done.output


def test_an_unknown_fact_that_is_needed_ends_with_what_to_add(catalog: Path):
    spoilt(catalog, "models/minicpm5-2b.yaml", "weights_gb: {value: 5.0,", "weights_gb: {value: unknown,")
    done = call("fit", "--cluster", "one-spark", "--model", "minicpm5-2b", "--catalog", catalog)
    assert done.exit_code == 1
    assert "weights_gb is unknown; add the fact with its source" in done.output


# --- partition -------------------------------------------------------------------------------------------


def test_partition_tells_layouts_and_refusals(tmp_path: Path):
    done = call(
        "partition", "--cluster", "eight-spark-ring", "--models", "glm-5.3-flash-nvfp4,gpt-oss-120b,minicpm5-2b",
        "--json", "--out", tmp_path / "plan.yaml",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["layouts"][0]["pareto"] is True
    assert [g["name"] for g in told["layouts"][0]["groups"]] == ["large", "small", "classifier"]
    assert any("need a switch" in one["why"] for one in told["refused"])
    plan = reader.plan(tmp_path / "plan.yaml")
    assert plan.name == told["layouts"][0]["name"]
    assert [group.name for group in plan.groups] == ["large", "small", "classifier"]


def test_partition_writes_the_layout_that_is_chosen_or_says_which_there_are(tmp_path: Path):
    asked = ("partition", "--cluster", "eight-spark-switch", "--models", "glm-5.3-flash-nvfp4,gpt-oss-120b")
    done = call(*asked, "--choose", "large-2xtp4", "--out", tmp_path / "plan.yaml")
    assert done.exit_code == 1
    assert "there is no layout 'large-2xtp4'" in done.output
    done = call(*asked, "--choose", "large-1xtp4+small-4xtp1", "--out", tmp_path / "plan.yaml")
    assert done.exit_code == 0, done.output
    assert len(reader.plan(tmp_path / "plan.yaml").groups[1].replicas) == 4


def test_partition_ends_with_1_where_nothing_fits():
    done = call("partition", "--cluster", "one-spark", "--models", "glm-5.3-flash-nvfp4,minicpm5-2b")
    assert done.exit_code == 1
    assert "cannot share one-spark" in done.output


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("- spark-1\n", "- spark-11\n", "the cluster has no node spark-11; did you mean 'spark-1'?"),
        ("tensor: 2", "tensor: 4", "2 nodes for TP4, which takes 4"),
        ("- spark-3\n", "- spark-1\n", "spark-1 serves large-a already"),
    ],
)
def test_a_plan_that_does_not_add_up_is_told_at_its_place(tmp_path: Path, old: str, new: str, said: str):
    path = tmp_path / "plan.yaml"
    asked = ("--cluster", "eight-spark-ring", "--models", "glm-5.3-flash-nvfp4,gpt-oss-120b")
    call("partition", *asked, "--choose", "large-1xtp2+small-6xtp1", "--out", path)
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(reader.ConfigError, match=r"groups\[\d\]\.replicas") as raised:
        reader.plan(path)
    assert said in raised.value.message


# --- simulate --------------------------------------------------------------------------------------------


def test_simulate_tells_the_four_ways_with_intervals_and_the_same_seed_the_same(tmp_path: Path):
    asked = ("simulate", "--scenario", "reference", "--seed", 7, "--requests", 2000, "--quick", "--json")
    done, again = call(*asked, "--report", tmp_path / "report.html"), call(*asked)
    assert done.exit_code == 0, done.output
    assert done.stdout == again.stdout
    told = json.loads(done.stdout)
    assert set(told["arms"]) == {"large_only", "small_only", "random", "routed"}
    for arm in told["arms"].values():
        assert {"throughput_tokens_per_s", "goodput_rps", "quality", "quality_ci", "ttft_p95_s", "large_share"} <= set(
            arm
        )
        assert arm["quality_ci"][0] < arm["quality"] < arm["quality_ci"][1]
        assert arm["throughput_tokens_per_s"] > 0
    assert told["routed_minus"]["large_only"]["quality"] < 0
    page = (tmp_path / "report.html").read_text()
    assert page.count("<tr>") == 5
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_the_whole_simulation_says_what_load_each_way_bears_and_draws_it(tmp_path: Path, catalog: Path):
    spoilt(catalog, "scenarios/reference.yaml", "loads: [1, 2, 3, 4, 5, 6, 8]", "loads: [2, 6]")
    spoilt(catalog, "scenarios/reference.yaml", "shares: [0.1, 0.2, 0.4, 0.6]", "shares: []")
    asked = ("simulate", "--scenario", "reference", "--requests", 1000, "--catalog", catalog)
    done = call(*asked, "--report", tmp_path / "report.html")
    assert done.exit_code == 0, done.output
    assert "| routed | `large-2xtp2+small-4xtp1+classifier-beside-small` |" in done.output
    assert "the cluster bears" in done.output
    assert (tmp_path / "report.html").read_text().count("<figure>") == 4


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("large: qwen3.8-flash-next-nvfp4", "large: qwen3.9", "there is no model 'qwen3.9'"),
        ("large_only: large-4xtp2", "large_onley: large-4xtp2", "layouts.large_onley: unknown arm"),
        ("routing: {large_share: 0.4}", "routing: {}", "routing: give either a threshold or a large_share"),
        ("tpot_s: 0.1}", "tpot_s: 0}", "objective.tpot_s: 0 is not above zero"),
        ("process: poisson", "process: steady", "arrivals.process: 'steady' is not one of the words"),
        ("process: poisson", "process: records", "need `file`"),
        ("traces/mmlu-pro-mixtral-gemini.csv", "traces/none.csv", "none.csv cannot be read"),
        ("shares: [0.1,", "shares: [1.1,", "shares[0]: a share lies between 0 and 1"),
        ("streams: {large: 32,", "streams: {larg: 32,", "streams.larg: give large and small"),
    ],
)
def test_a_scenario_with_a_mistake_is_told_in_one_line(catalog: Path, old: str, new: str, said: str):
    spoilt(catalog, "scenarios/reference.yaml", old, new)
    done = call("simulate", "--scenario", "reference", "--requests", 10, "--quick", "--catalog", catalog, "--json")
    assert done.exit_code == 2, done.output
    assert said in done.output
    assert len(done.output.splitlines()) == 1


def test_a_layout_that_cannot_be_ends_a_simulation_with_1(catalog: Path):
    spoilt(catalog, "scenarios/reference.yaml", "large_only: large-4xtp2", "large_only: large-3xtp3")
    done = call("simulate", "--scenario", "reference", "--requests", 10, "--quick", "--catalog", catalog, "--json")
    assert done.exit_code == 1
    assert "no layout 'large-3xtp3' for large_only on eight-spark-switch; did you mean" in done.output


@pytest.mark.parametrize(
    ("line", "said"),
    [("0.5,1,1,1,2,1", "small_quality is 2; it lies in 0..1"), ("0.5,x,1,1,1,1", "prompt_tokens is not a number")],
)
def test_a_trace_with_a_mistake_is_told_at_its_line(catalog: Path, line: str, said: str):
    trace = catalog / "scenarios" / "traces" / "mmlu-pro-mixtral-gemini.csv"
    trace.write_text(trace.read_text() + line + "\n")
    done = call("simulate", "--scenario", "reference", "--requests", 10, "--quick", "--catalog", catalog, "--json")
    assert done.exit_code == 2
    assert f"gemini.csv:4002:1: (file): {said}" in done.output


def test_arrivals_may_be_those_of_exported_records(catalog: Path):
    (catalog / "scenarios" / "mine.jsonl").write_text("".join(f'{{"time": {t}}}\n' for t in (1, 2, 2.5, 9)))
    spoilt(catalog, "scenarios/reference.yaml", "process: poisson", "process: records, file: mine.jsonl")
    done = call("simulate", "--scenario", "reference", "--requests", 400, "--quick", "--catalog", catalog, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["arms"]["routed"]["offered_rps"] == pytest.approx(3.0)


# --- what --help shows -----------------------------------------------------------------------------------

# Of the examples of --help those that need what no test has, and the tests that run such lines.
NEEDS = {
    "my-cluster.yaml --model": "a cluster of the reader's own: the rest of this file",
    "mine.yaml": "a scenario of the reader's own: the rest of this file",
    "spark-1=": "machines: tests/survey/test_command.py",
    "--from": "answers of machines: tests/survey/test_command.py",
    "plan doctor": "machines: tests/survey/test_command.py",
}


def test_the_examples_of_help_run_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [line for name, lines in EXAMPLES.items() if name.startswith("plan ") for line, _ in lines]
    mine = [line.partition(" > ")[0] for line in lines if not any(words in line for words in NEEDS)]
    assert len(mine) >= 8
    for line in mine:
        done = CliRunner().invoke(main, shlex.split(line))
        assert done.exit_code == 0, (line, done.output)
        assert done.output, line
    assert (tmp_path / "out" / "gateway" / "groups.yaml").exists()
