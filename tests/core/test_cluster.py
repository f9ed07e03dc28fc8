"""Planning a cluster, on the shipped catalogue and on made-up clusters: what fits, how fast, how it parts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from router.cluster import accuracy, estimate, fit, measure, partition, reader
from router.cluster.values import Cluster, Impossible, Measured, Model, Node, Parallel, Wiring

MODELS = {name: reader.model(name) for name in reader.names("models")}
RING = reader.cluster("eight-spark-ring")
SWITCH = reader.cluster("eight-spark-switch")


def nodes(kind: str, count: int) -> Cluster:
    """A cluster of so many nodes, joined so."""
    made = tuple(Node(id=f"n{i}") for i in range(1, count + 1))
    return replace(SWITCH, name=f"{kind}-{count}", nodes=made, fabric=Wiring(kind=kind))  # type: ignore[arg-type]


# --- fit -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cluster", [RING, SWITCH], ids=["ring", "switch"])
@pytest.mark.parametrize(
    ("name", "needed"),
    [("glm-5.3-nvfp4", 8), ("glm-5.3-flash-nvfp4", 2), ("minicpm5-2b", 1), ("gpt-oss-120b", 1), ("qwen3-235b", 2)],
)
def test_a_model_needs_so_many_nodes(cluster: Cluster, name: str, needed: int):
    found = fit.fit(reader.model(name), cluster)
    assert found.parallel == Parallel(tensor=needed)


def test_the_weights_of_glm_5_3_leave_no_room_on_four_nodes_and_much_on_eight():
    model = MODELS["glm-5.3-nvfp4"]
    four, eight = (fit.need(model, SWITCH, Parallel(tensor=n)) for n in (4, 8))
    assert four.weights_gib == pytest.approx(116, abs=0.5)
    assert eight.weights_gib == pytest.approx(58, abs=0.5)
    assert four.usable_gib == eight.usable_gib == pytest.approx(102)
    assert (four.kv_tokens, eight.kv_tokens > 264_640) == (0, True)


def test_a_token_of_glm_5_3_takes_54_6_kb_which_is_what_was_measured_within_a_percent():
    kept = MODELS["glm-5.3-nvfp4"].kv_bytes_per_token
    assert kept == pytest.approx(54_600, rel=0.001)
    assert kept == pytest.approx(4 * 1.81e9 / 132_096, rel=0.01)  # a pool of four ranks that share it out


def test_the_cache_of_grouped_heads_follows_from_the_shape():
    assert MODELS["minicpm5-2b"].kv_bytes_per_token == 2 * 42 * 2 * 128 * 2
    assert MODELS["qwen3.8-flash-next-nvfp4"].kv_bytes_per_token == pytest.approx(12_300, rel=0.01)


def test_a_latent_cache_is_whole_on_every_rank_and_grouped_heads_are_shared_out():
    latent, grouped = MODELS["glm-5.3-nvfp4"], MODELS["gpt-oss-120b"]
    assert fit.token_bytes(latent, Parallel(tensor=8)) == latent.kv_bytes_per_token
    assert fit.token_bytes(grouped, Parallel(tensor=4)) == grouped.kv_bytes_per_token / 4
    assert fit.token_bytes(grouped, Parallel(tensor=16)) == grouped.kv_bytes_per_token / 8  # no less than one head
    assert fit.token_bytes(latent, Parallel(pipeline=2)) == latent.kv_bytes_per_token / 2


@pytest.mark.parametrize(
    ("parallel", "why"),
    [
        (Parallel(tensor=16), "24 attention heads"),
        (Parallel(tensor=256), "24 attention heads"),
        (Parallel(tensor=1, pipeline=64), "48 layers, too few for 64"),
        (Parallel(tensor=3, expert=True), "3 ranks"),
    ],
)
def test_a_spread_that_the_shape_forbids_is_refused_with_the_reason(parallel: Parallel, why: str):
    assert why in str(fit.shape_forbids(MODELS["qwen3.8-flash-next-nvfp4"], parallel))


def test_the_legal_sizes_of_a_model_are_listed_by_kind_and_follow_the_wiring():
    model = MODELS["glm-5.3-flash-nvfp4"]
    whole = list(range(1, 9))
    assert fit.legal(model, SWITCH) == {"tensor": [1, 2, 4, 8], "pipeline": whole, "expert": [2, 4, 8]}
    assert fit.legal(model, RING) == {"tensor": [1, 2, 8], "pipeline": whole, "expert": [2]}
    assert fit.legal(MODELS["llama-3.1-8b-nvfp4"], SWITCH)["expert"] == []


def test_experts_are_dealt_whole_only_where_any_rank_reaches_any_other():
    whole = Parallel(tensor=8, expert=True)
    assert fit.wiring_forbids(SWITCH, whole) is None
    assert "needs a switch" in str(fit.wiring_forbids(RING, whole))
    assert fit.wiring_forbids(nodes("ring", 3), Parallel(tensor=3, expert=True)) is None
    assert "no experts" in str(fit.shape_forbids(MODELS["llama-3.1-8b-nvfp4"], Parallel(tensor=2, expert=True)))


@pytest.mark.parametrize(
    ("kind", "count", "parallel", "legal"),
    [
        ("none", 4, Parallel(), True),
        ("none", 4, Parallel(tensor=2), False),
        ("direct", 2, Parallel(tensor=2), True),
        ("ring", 8, Parallel(tensor=8), True),
        ("ring", 8, Parallel(tensor=4), False),
        ("ring", 8, Parallel(tensor=2), True),
        ("ring", 8, Parallel(pipeline=5), True),
        ("ring", 8, Parallel(tensor=2, pipeline=2), False),
        ("ring", 4, Parallel(tensor=4), True),
        ("switch", 8, Parallel(tensor=4), True),
        ("switch", 4, Parallel(tensor=8), False),
    ],
)
def test_the_wiring_allows_a_group_or_says_what_it_takes(kind: str, count: int, parallel: Parallel, legal: bool):
    why = fit.wiring_forbids(nodes(kind, count), parallel)
    assert (why is None) == legal
    if why is not None:
        assert any(word in why for word in ("switch", "cable", "nodes, and there are"))


def test_what_fits_nowhere_says_what_would_hold_it():
    found = fit.fit(MODELS["glm-5.3-nvfp4"], nodes("switch", 4))
    # A pipeline cannot help either: the weights are more than four nodes hold.
    assert not found.fits
    assert "8 such nodes would hold it (TP8)" in found.would
    assert "116 GiB of weights" in {str(p): why for p, why in found.refused}["TP4"]


def test_a_longer_context_than_the_cache_holds_is_refused():
    model = MODELS["glm-5.3-nvfp4"]
    eight = Parallel(tensor=8)
    assert fit.refusal(model, SWITCH, eight, context=700_000) is None
    assert "one conversation of 800,000" in str(fit.refusal(model, SWITCH, eight, context=800_000))
    assert fit.fit(model, SWITCH, context=800_000).parallel == Parallel(tensor=2, pipeline=3)  # stages share the cache


def test_three_nodes_hold_as_a_pipeline_what_their_heads_cannot_share():
    found = fit.fit(MODELS["glm-5.3-flash-nvfp4"], nodes("ring", 3))
    assert found.parallel == Parallel(tensor=2)
    assert fit.fit(MODELS["qwen3.5-397b-a17b-int4"], nodes("ring", 3)).parallel == Parallel(pipeline=3)


def test_a_fact_that_nobody_knows_is_named_instead_of_guessed():
    unknown = replace(MODELS["deepseek-v4.1-flash"], weights_gb=None)
    with pytest.raises(Impossible, match="weights_gb is unknown; add the fact with its source"):
        fit.fit(unknown, SWITCH)


@given(st.sampled_from(sorted(MODELS)), st.integers(1, 8), st.sampled_from(["switch", "none"]))
def test_more_nodes_never_hold_less(name: str, count: int, kind: str):
    fewer, more = (fit.fit(MODELS[name], nodes(kind, n)).fits for n in (count, count + 1))
    assert more or not fewer


# --- estimates -------------------------------------------------------------------------------------------


def rows() -> list[tuple[Model, Measured, float]]:
    """Every measured rate of the catalogue with what the formula alone says of it."""
    found: list[tuple[Model, Measured, float]] = []
    for model in MODELS.values():
        for row in model.measured:
            if row.tokens_per_s is not None:
                spread = Parallel(tensor=row.nodes)
                predicted = estimate.roofline(
                    model, SWITCH.machine, spread, row.concurrency, collectives=row.collectives, drafts=row.drafts
                )
                found.append((model, row, predicted))
    return found


def test_the_catalogue_holds_at_least_25_measured_rates():
    assert len(rows()) >= 25


def test_the_summary_counts_rows_pairs_and_ranges_as_they_stand():
    found = accuracy.rows(MODELS.values(), SWITCH)
    assert [(row.model, row.predicted) for row in found] == [(m.name, pytest.approx(p)) for m, _, p in rows()]
    total = accuracy.summary(found)
    assert (total.rows, total.ranked) == (len(rows()), total.pairs)
    assert total.inside >= 0.9
    assert total.median_error < 0.25


def test_the_formula_ranks_sizes_of_one_model_as_they_were_measured_in_every_pair():
    pairs = [
        (a, b, pa, pb)
        for model, a, pa in rows()
        for other, b, pb in rows()
        if model is other and a.concurrency == b.concurrency and a.nodes < b.nodes
    ]
    assert len(pairs) >= 5
    for a, b, predicted, wider in pairs:
        assert (predicted < wider) == ((a.tokens_per_s or 0) < (b.tokens_per_s or 0)), (a, b)


def test_nine_of_ten_measured_rates_lie_in_the_range_of_the_formula_alone():
    inside = 0
    for model, row, _ in rows():
        blind = replace(model, measured=())
        at = estimate.decode(blind, SWITCH, Parallel(tensor=row.nodes), row.concurrency)
        inside += at.low <= (row.tokens_per_s or 0) <= at.high
    assert inside / len(rows()) >= 0.9


def test_a_measured_rate_is_taken_as_it_stands_and_says_so():
    at = estimate.decode(MODELS["qwen3.8-flash-next-nvfp4"], RING, Parallel(tensor=4), 8)
    assert at.mid == 276
    assert at.low < 276 < at.high
    assert at.source.startswith("measured: github.com/FujitsuPolycom/sparkring")


def test_between_measured_batches_the_rate_lies_between_and_is_called_an_estimate():
    model = MODELS["gpt-oss-120b"]
    at = estimate.decode(model, SWITCH, Parallel(), 8)
    assert 57.5 < at.mid < 318.7
    assert at.source.startswith("estimated")
    assert at.low < at.mid < at.high


@given(st.sampled_from(sorted(MODELS)), st.sampled_from([1, 2, 4, 8]), st.integers(1, 31))
def test_more_streams_never_yield_fewer_tokens_in_all(name: str, size: int, batch: int):
    machine = SWITCH.machine
    fewer, more = (estimate.roofline(MODELS[name], machine, Parallel(tensor=size), b) for b in (batch, batch + 1))
    assert more >= fewer * 0.999


def test_a_model_without_any_measurement_has_the_widest_range_and_says_why():
    at = estimate.decode(MODELS["glm-5.3-nvfp4"], RING, Parallel(tensor=8))
    assert at.source == "estimated: roofline, nothing was measured"
    assert at.high / at.low > 2


def test_the_first_token_takes_longer_behind_a_longer_prompt_and_is_a_range():
    model = MODELS["glm-5.3-flash-nvfp4"]
    short, long = (estimate.ttft_s(model, RING, Parallel(tensor=2), prompt) for prompt in (1_000, 64_000))
    assert long.mid == pytest.approx(64_000 / 2419, rel=0.02)
    assert short.low < short.mid < short.high < long.low


def test_one_stream_waits_for_every_stage_of_a_pipeline():
    model, machine = MODELS["qwen3.5-397b-a17b-int4"], SWITCH.machine
    piped, sliced = (estimate.roofline(model, machine, p) for p in (Parallel(pipeline=4), Parallel(tensor=4)))
    assert piped < sliced


# --- benchmarks of one's own -----------------------------------------------------------------------------

VLLM = {
    "backend": "vllm", "model_id": "nvidia/GLM-5.3-Flash-NVFP4", "max_concurrency": 1, "completed": 32,
    "duration": 900.0, "total_input_tokens": 131072, "total_output_tokens": 32768, "output_throughput": 36.4,
    "mean_ttft_ms": 1625.0, "mean_tpot_ms": 25.0, "median_tpot_ms": 24.9,
}  # fmt: skip
SGLANG = {
    "backend": "sglang-oai", "max_concurrency": 8, "completed": 64, "duration": 90.0, "total_input_tokens": 65536,
    "total_output_tokens": 65536, "concurrency": 7.6, "mean_ttft_ms": 900.0, "mean_tpot_ms": 40.0, "accept_length": 2.9,
}  # fmt: skip


def text(*results: dict[str, object]) -> str:
    return "\n".join(json.dumps(one) for one in results)


def test_a_benchmark_of_vllm_tells_decoding_and_with_one_stream_prefill():
    (row,) = measure.rows(text(VLLM), "mine.json", 2)
    assert (row.nodes, row.concurrency, row.engine) == (2, 1, "vllm")
    assert row.tokens_per_s == pytest.approx(40.0)
    assert row.prefill_tokens_per_s == pytest.approx(4096 / 1.6)


def test_a_benchmark_of_sglang_is_a_line_a_run():
    rows_ = measure.rows(text(SGLANG, SGLANG | {"max_concurrency": 16, "mean_tpot_ms": 60.0}), "mine.jsonl", 4)
    assert [(row.concurrency, round(row.tokens_per_s or 0)) for row in rows_] == [(8, 200), (16, 267)]
    assert all(row.prefill_tokens_per_s is None and row.engine == "sglang" for row in rows_)


def test_a_file_that_says_its_size_is_believed():
    assert measure.rows(text(VLLM | {"tensor_parallel_size": "4"}), "mine.json", 2)[0].nodes == 4


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "there is no result in it"),
        ("Successful requests: 32", "mine.json:1: not JSON"),
        ("[1, 2]", "a benchmark's result is an object"),
        (text(VLLM | {"completed": 0}), "no request was completed"),
        (text(VLLM | {"max_concurrency": None}), "run it with --max-concurrency"),
        (text(VLLM | {"mean_tpot_ms": 0, "median_tpot_ms": None}), "run it against a streaming endpoint"),
    ],
)
def test_a_file_that_is_no_benchmark_says_what_to_do(content: str, said: str):
    with pytest.raises(Impossible, match=said):
        measure.rows(content, "mine.json", 2)


def test_a_benchmark_of_ones_own_replaces_the_catalogues_of_that_size_and_scales_what_stands_beside_it():
    model = MODELS["glm-5.3-flash-nvfp4"]
    refitted = estimate.with_rows(model, measure.rows(text(VLLM | {"mean_tpot_ms": 50.0}), "mine.json", 2))
    at = estimate.decode(refitted, SWITCH, Parallel(tensor=2), 1)
    assert (at.mid, at.source) == (pytest.approx(20.0), "measured: mine.json, a benchmark with vLLM")
    eight = estimate.decode(refitted, SWITCH, Parallel(tensor=2), 8)
    assert eight.mid == pytest.approx(
        estimate.roofline(model, SWITCH.machine, Parallel(tensor=2), 8) * 20.0 / 37.4, rel=0.01
    )
    assert estimate.decode(refitted, SWITCH, Parallel(tensor=4), 1).mid == 64.0  # another size is left as it was


def test_two_sizes_tell_what_nodes_share_and_what_each_of_them_pays():
    two, four = (measure.rows(text(VLLM | {"mean_tpot_ms": ms}), "m.json", n)[0] for n, ms in ((2, 50.0), (4, 30.0)))
    (found,) = measure.halves([two, four])
    assert (found.shared_ms, found.paid_ms) == (pytest.approx(80.0), pytest.approx(10.0))
    assert measure.halves([two]) == []


# --- partition -------------------------------------------------------------------------------------------

THREE = [MODELS["glm-5.3-flash-nvfp4"], MODELS["gpt-oss-120b"], MODELS["minicpm5-2b"]]


@pytest.mark.parametrize("cluster", [RING, SWITCH], ids=["ring", "switch"])
def test_every_layout_is_legal_and_uses_each_node_once(cluster: Cluster):
    found = partition.partition(cluster, THREE)
    assert found.layouts
    for layout in found.layouts:
        own = [n for g in layout.groups for r in g.replicas if not r.shared for n in r.nodes]
        assert len(own) == len(set(own)) <= 8
        for group in layout.groups:
            assert fit.wiring_forbids(cluster, group.parallel) is None
            for replica in group.replicas:
                assert len(replica.nodes) == group.parallel.nodes
                if cluster is RING and len(replica.nodes) == 2:
                    first, second = (cluster.ids.index(n) for n in replica.nodes)
                    assert second == first + 1


def test_two_groups_of_four_need_a_switch_and_the_ring_says_so():
    told = {one.layout: one.why for one in partition.partition(RING, THREE).refused}
    assert "a ring of 8 closes only around all 8 nodes" in told["large: 2 groups of 4 (TP4)"]
    assert "need a switch" in told["large: 2 groups of 4 (TP4)"]
    names = [one.name for one in partition.partition(SWITCH, THREE).layouts]
    assert any(name.startswith("large-1xtp4+small-4xtp1") for name in names)


def test_a_whole_ring_is_one_group_and_others_share_its_nodes():
    found = partition.partition(RING, [MODELS["glm-5.3-nvfp4"], MODELS["llama-3.1-8b-nvfp4"], MODELS["minicpm5-2b"]])
    assert [one.name for one in found.layouts] == ["large-1xtp8+small-beside-large+classifier-beside-large"]
    layout = found.layouts[0]
    assert "the ring closes around all 8 nodes, so it is one group" in layout.why
    assert sum(group.memory_share for group in layout.groups) == pytest.approx(0.85, abs=0.01)


def test_a_layout_is_marked_where_no_other_beats_it_in_everything():
    found = partition.partition(SWITCH, THREE).layouts

    def worth(one: object) -> tuple[float, ...]:
        return (one.single_stream, one.aggregate, one.kv_tokens, -one.blast_radius)  # type: ignore[attr-defined]

    for one in found:
        better = [
            o
            for o in found
            if worth(o) != worth(one) and all(map(float.__ge__, map(float, worth(o)), map(float, worth(one))))
        ]
        assert one.pareto == (not better)
    assert [one.pareto for one in found] == sorted((one.pareto for one in found), reverse=True)


def test_the_blast_radius_is_the_share_that_the_worst_node_takes_with_it():
    model = MODELS["gpt-oss-120b"]
    eight = next(one for one in partition.partition(SWITCH, [model]).layouts if one.name == "large-8xtp1")
    assert eight.blast_radius == pytest.approx(1 / 8)
    one = next(one for one in partition.partition(SWITCH, [model]).layouts if one.name == "large-1xtp8")
    assert one.blast_radius == 1.0


def test_what_no_layout_can_hold_is_refused_with_reasons():
    found = partition.partition(nodes("switch", 2), [MODELS["glm-5.3-nvfp4"], MODELS["minicpm5-2b"]])
    assert not found.layouts
    assert any("GiB of weights" in one.why for one in found.refused)


def test_a_plan_survives_its_file(tmp_path: Path):
    from router.cluster.values import Plan

    layout = partition.partition(SWITCH, THREE).layouts[0]
    made = Plan(name="mine", cluster=SWITCH, groups=layout.groups, why=layout.why)
    reader.write_plan(made, tmp_path / "plan.yaml")
    back = reader.plan(tmp_path / "plan.yaml")
    assert back.cluster.nodes == made.cluster.nodes
    assert back.cluster.fabric == made.cluster.fabric
    assert [(g.name, g.replicas, g.parallel, g.kv_tokens) for g in back.groups] == [
        (g.name, g.replicas, g.parallel, g.kv_tokens) for g in made.groups
    ]
