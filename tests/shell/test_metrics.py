"""The numbers: every one of the contract, right, and never a label that a caller can choose."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from router.config import Band, Config, Deployment, Group, Policy, Route, ScoreRule
from router.metrics import Metrics
from router.types import Abstain, Attempt, Checked, Decision, Record, Report, Score, Timing, Usage

CONTRACT = {
    "pointsman_requests": {"policy", "route", "group", "dialect", "outcome"},
    "pointsman_attempts": {"deployment", "outcome"},
    "pointsman_time_to_first_token_seconds": {"group"},
    "pointsman_time_per_output_token_seconds": {"group"},
    "pointsman_request_seconds": {"group"},
    "pointsman_input_tokens": {"group"},
    "pointsman_output_tokens": {"group"},
    "pointsman_cost_dollars": {"group"},
    "pointsman_savings_dollars": {"policy"},
    "pointsman_in_flight": {"deployment"},
    "pointsman_deployment_up": {"deployment"},
    "pointsman_queue_depth": {"deployment"},
    "pointsman_kv_usage": {"deployment"},
    "pointsman_other_model": {"deployment"},
    "pointsman_waiting": {"group"},
    "pointsman_score": {"scorer"},
    "pointsman_score_seconds": {"scorer"},
    "pointsman_abstain": {"scorer", "reason"},
    "pointsman_overhead_seconds": set(),
    "pointsman_threshold": {"policy", "route"},
    "pointsman_quality_difference": {"policy", "route"},
    "pointsman_quality_difference_low": {"policy", "route"},
    "pointsman_quality_difference_high": {"policy", "route"},
    "pointsman_quality_samples": {"policy", "verdict"},
    "pointsman_quality_dropped": {"policy", "reason"},
    "pointsman_judging_dollars": {"policy"},
    "pointsman_alarm": {"kind", "of"},
    "pointsman_config_generation": set(),
    "pointsman_config_reload_ok": set(),
}


def config(policy: str = "default", deployments: tuple[str, ...] = ("small-a", "large-a")) -> Config:
    bands = (Band(group="small", below=0.3), Band(group="small", below=0.5), Band(group="large"))
    route = Route(name="difficulty", score=ScoreRule(scorer="difficulty", bands=bands))
    made = Policy(name=policy, models=("auto",), routes=(route,), default="large")
    return Config(
        policies={policy: made},
        models={"auto": made},
        groups={name: Group(name=name, deployments=(f"{name}-a",)) for name in ("small", "large")},
        deployments={name: Deployment(name=name, upstream="scripted") for name in deployments},
        scorers={},
        digest="d",
    )


def make(**given: Any) -> Record:
    base = Record(
        id="r1",
        time=1.0,
        policy="default",
        digest="d",
        dialect="chat",
        model="auto",
        stream=True,
        signals=None,
        decision=Decision(policy="default", route="difficulty", group="small", why="score", score=0.2, threshold=0.5),
        attempts=(Attempt(deployment="small-a", group="small", status=200),),
        usage=Usage(input=100, output=20),
        cost=0.25,
        cost_large=1.0,
        timing=Timing(ttft_s=0.1, tpot_s=0.02, total_s=0.5, overhead_s=0.0002),
    )
    return msgspec.structs.replace(base, **given)


def parsed(metrics: Metrics) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(metrics.render().decode())}


def values(metrics: Metrics, name: str) -> dict[tuple[str, ...], float]:
    """Samples of that exact name by their label values, labels in alphabetical order."""
    found: dict[tuple[str, ...], float] = {}
    for family in parsed(metrics).values():
        for sample in family.samples:
            if sample.name == name:
                found[tuple(v for _, v in sorted(sample.labels.items()))] = sample.value
    return found


def used() -> Metrics:
    metrics = Metrics(config())
    metrics.observe(make(checked=Checked()))
    metrics.score("difficulty", 0.0001, Score(scorer="difficulty", value=0.2))
    metrics.score("difficulty", 0.15, Abstain(scorer="difficulty", reason="timeout"))
    metrics.dropped("chat", ["seed"])
    metrics.limited("requests")
    metrics.in_flight("small-a", 1)
    metrics.deployment_up("small-a", True)
    metrics.other_models({"small-a": 1})
    metrics.waiting({"small": 2})
    metrics.reports({"small-a": Report(waiting=3, kv=0.5)})
    metrics.canary("default", "default", 0.05)
    metrics.canary_difference("default", "error_rate", 0.01, -0.02, 0.03)
    metrics.quality("default", "difficulty", -0.01, -0.03, 0.01)
    metrics.quality_sample("default", "same")
    metrics.quality_dropped("default", "busy")
    metrics.judging_cost("default", 0.5)
    metrics.alarm("quality", "default", True)
    metrics.config(2, True)
    return metrics


def test_every_metric_of_the_contract_is_there_with_its_labels():
    families = parsed(used())
    for name, labels in CONTRACT.items():
        assert name in families, name
        assert families[name].samples, name
        for sample in families[name].samples:
            assert set(sample.labels) - {"le"} == labels, name
        assert families[name].documentation


def test_counters_end_in_total_and_no_name_comes_twice():
    text = used().render().decode()
    kinds = [line.split()[2:4] for line in text.splitlines() if line.startswith("# TYPE pointsman_")]
    names = [name for name, _ in kinds]
    assert len(names) == len(set(names))
    assert all(name.endswith("_total") == (kind == "counter") for name, kind in kinds)


def test_histograms_add_up_and_end_at_infinity():
    families = parsed(used())
    for family in families.values():
        if family.type != "histogram":
            continue
        series: dict[tuple[tuple[str, str], ...], list[tuple[str, float]]] = {}
        counts: dict[tuple[tuple[str, str], ...], float] = {}
        for sample in family.samples:
            key = tuple(sorted((k, v) for k, v in sample.labels.items() if k != "le"))
            if sample.name.endswith("_bucket"):
                series.setdefault(key, []).append((sample.labels["le"], sample.value))
            elif sample.name.endswith("_count"):
                counts[key] = sample.value
        for key, buckets in series.items():
            assert buckets[-1] == ("+Inf", counts[key])
            assert [v for _, v in buckets] == sorted(v for _, v in buckets)
            edges = [float(le) for le, _ in buckets]
            assert edges == sorted(set(edges))


def test_a_metric_without_a_source_yet_has_no_samples():
    families = parsed(Metrics(config()))
    for name in ("pointsman_kv_usage", "pointsman_queue_depth", "pointsman_quality_difference", "pointsman_requests"):
        assert families[name].samples == []


def test_one_record_counts_in_each_of_its_metrics():
    metrics = Metrics(config())
    for _ in range(3):
        metrics.observe(make())
    assert values(metrics, "pointsman_requests_total") == {("chat", "small", "ok", "default", "difficulty"): 3}
    assert values(metrics, "pointsman_attempts_total") == {("small-a", "ok"): 3}
    assert values(metrics, "pointsman_input_tokens_total") == {("small",): 300}
    assert values(metrics, "pointsman_output_tokens_total") == {("small",): 60}
    assert values(metrics, "pointsman_cost_dollars_total") == {("small",): 0.75}
    assert values(metrics, "pointsman_savings_dollars_total") == {("default",): 2.25}
    assert values(metrics, "pointsman_request_seconds_sum") == {("small",): 1.5}
    assert values(metrics, "pointsman_overhead_seconds_count") == {(): 3}


def test_each_first_answer_of_a_cascade_counts_by_what_became_of_it():
    metrics = Metrics(config())
    led = Decision(policy="default", route="difficulty", group="small", why="verified")
    metrics.observe(make(decision=led, checked=Checked()))
    metrics.observe(make(decision=msgspec.structs.replace(led, why="escalated", check="not_empty"), checked=Checked()))
    metrics.observe(make(decision=msgspec.structs.replace(led, why="cascade")))  # none was there to judge
    assert values(metrics, "pointsman_verified_total") == {
        ("default", "not_empty", "difficulty"): 1,
        ("default", "passed", "difficulty"): 1,
    }


def test_a_value_on_an_edge_is_in_the_bucket_of_that_edge():
    metrics = Metrics(config())
    metrics.observe(make(timing=Timing(ttft_s=0.1, total_s=1.0)))
    buckets = values(metrics, "pointsman_time_to_first_token_seconds_bucket")
    assert (buckets["small", "0.05"], buckets["small", "0.1"]) == (0, 1)


def test_after_a_failover_the_group_that_served_is_counted_and_both_attempts_are():
    metrics = Metrics(config())
    attempts = (
        Attempt(deployment="small-a", group="small", error="upstream_unreachable"),
        Attempt(deployment="large-a", group="large", status=200),
    )
    metrics.observe(make(attempts=attempts))
    assert values(metrics, "pointsman_requests_total") == {("chat", "large", "ok", "default", "difficulty"): 1}
    assert values(metrics, "pointsman_attempts_total") == {("small-a", "upstream_unreachable"): 1, ("large-a", "ok"): 1}
    assert values(metrics, "pointsman_output_tokens_total") == {("large",): 20}


def test_a_request_refused_before_a_decision_is_counted_under_none():
    metrics = Metrics(config())
    metrics.observe(make(policy="", decision=None, attempts=(), outcome="client_error", cost=None, cost_large=None))
    assert values(metrics, "pointsman_requests_total") == {("chat", "none", "client_error", "none", "none"): 1}
    assert values(metrics, "pointsman_request_seconds_count") == {}


def test_savings_never_fall_when_one_request_costs_more_than_the_large_group():
    metrics = Metrics(config())
    metrics.observe(make(cost=0.0, cost_large=1.0))
    metrics.observe(make(cost=2.0, cost_large=1.0))
    assert values(metrics, "pointsman_savings_dollars_total") == {("default",): 1.0}
    metrics.observe(make(cost=0.0, cost_large=1.5))
    assert values(metrics, "pointsman_savings_dollars_total") == {("default",): 1.5}


def test_a_scorer_that_was_not_asked_is_an_abstention_without_a_time():
    metrics = Metrics(config())
    metrics.score("difficulty", None, Abstain(scorer="difficulty", reason="breaker"))
    assert values(metrics, "pointsman_abstain_total") == {("breaker", "difficulty"): 1}
    assert values(metrics, "pointsman_score_seconds_count") == {("difficulty",): 0}


def test_the_threshold_is_the_cut_before_the_last_band_until_it_is_moved():
    metrics = Metrics(config())
    assert values(metrics, "pointsman_threshold") == {("default", "difficulty"): 0.5}
    metrics.threshold("default", "difficulty", 0.4)
    assert values(metrics, "pointsman_threshold") == {("default", "difficulty"): 0.4}


def series(metrics: Metrics) -> int:
    return sum(1 for line in metrics.render().splitlines() if line and not line.startswith(b"#"))


def strange(count: int) -> Iterable[Record]:
    for n in range(count):
        name = f"made-up-{n}"
        yield make(
            policy=name,
            dialect=name,
            outcome=name,
            model=name,
            decision=Decision(policy=name, route=name, group=name, why="score"),
            attempts=(Attempt(deployment=name, group=name, error=name),),
        )


@pytest.mark.parametrize("count", [10_000])
def test_M01_M03_made_up_names_do_not_add_series(count: int):
    metrics = used()
    for record in strange(1):
        metrics.observe(record)
    before = series(metrics)
    for record in strange(count):
        metrics.observe(record)
        name = record.policy
        metrics.score(name, 0.1, Score(scorer=name, value=0.1))
        metrics.in_flight(name, 1)
        metrics.deployment_up(name, True)
    assert b"made-up" not in metrics.render()
    assert series(metrics) - before <= 40  # one "other" scorer, in-flight and up, histogram buckets included
    assert series(metrics) < 5_000


def test_a_new_configuration_brings_new_names_and_drops_the_gauges_of_old_ones():
    metrics = used()
    metrics.config(3, True, config(policy="agents", deployments=("small-b",)))
    metrics.observe(make(policy="agents", attempts=(Attempt(deployment="small-b", group="small"),)))
    assert values(metrics, "pointsman_in_flight") == {}
    assert values(metrics, "pointsman_threshold") == {("agents", "difficulty"): 0.5}
    assert ("chat", "small", "ok", "agents", "difficulty") in values(metrics, "pointsman_requests_total")
    assert ("chat", "small", "ok", "default", "difficulty") in values(metrics, "pointsman_requests_total")


def test_a_refused_reload_shows_and_keeps_the_generation():
    metrics = Metrics(config())
    metrics.config(1, True)
    metrics.config(1, False)
    assert values(metrics, "pointsman_config_reload_ok") == {(): 0}
    assert values(metrics, "pointsman_config_generation") == {(): 1}


def test_totals_kept_elsewhere_are_read_at_the_scrape():
    metrics = Metrics(config())
    dropped = [0]
    metrics.count("records_dropped", lambda: dropped[0])
    dropped[0] = 7
    assert values(metrics, "pointsman_records_dropped_total") == {(): 7}


def test_the_operators_table_lists_every_metric_with_its_labels():
    metrics = used()
    metrics.count("records_written", lambda: 0)
    metrics.count("records_dropped", lambda: 0)
    metrics.count("store_errors", lambda: 0)
    metrics.count("retries_refused", lambda: 0)
    metrics.count("unauthorized", lambda: 0)
    metrics.count("spans_dropped", lambda: 0)
    page = (Path(__file__).parents[2] / "docs" / "operating.md").read_text()
    rows = re.findall(r"^\| `(pointsman_\w+)` \| ([\w, ]*)\|", page, re.MULTILINE)
    listed = {name: {label.strip() for label in labels.split(",") if label.strip()} for name, labels in rows}
    rendered = {
        f"{name}_total" if family.type == "counter" else name: {label for s in family.samples for label in s.labels}
        - {"le"}
        for name, family in parsed(metrics).items()
        if name.startswith("pointsman_")
    }
    assert listed == rendered
