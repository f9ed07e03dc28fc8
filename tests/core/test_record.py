"""What a record says of a request: what it cost, what it leaves out, and that its JSON reads back."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from router import record
from router.config import Band, Config, Deployment, Group, Policy, Price, Route, ScoreRule
from router.types import (
    Abstain,
    Attempt,
    Caller,
    Decision,
    Load,
    Record,
    Request,
    Score,
    Session,
    Signals,
    Timing,
    Usage,
)

SMALL = Price(input=1.0, output=2.0, cached=0.5)
LARGE = Price(input=10.0, output=30.0)
LARGE_B = Price(input=8.0, output=24.0)


def config(**prices: Price | None) -> Config:
    prices = {
        "small-a": SMALL,
        "large-a": LARGE,
        "large-b": LARGE_B,
        **{k.replace("_", "-"): v for k, v in prices.items()},
    }
    policy = Policy(
        name="default",
        models=("auto",),
        routes=(
            Route(
                name="difficulty",
                score=ScoreRule(scorer="difficulty", bands=(Band(group="small", below=0.5), Band(group="large"))),
            ),
        ),
        default="large",
        fallback={"small": ("large",)},
    )
    return Config(
        policies={"default": policy},
        models={"auto": policy},
        groups={
            "small": Group(name="small", deployments=("small-a",)),
            "large": Group(name="large", deployments=("large-a", "large-b")),
        },
        deployments={
            name: Deployment(name=name, upstream="openai", base_url="http://127.0.0.1:1/v1", price=price)
            for name, price in prices.items()
        },
        scorers={},
        digest="d" * 64,
    )


def request(model: str = "auto") -> Request:
    return Request(dialect="chat", body=b'{"model":"auto"}', model=model, model_span=(9, 15), stream=True)


DECISION = Decision(
    policy="default", route="difficulty", group="small", why="score", scorer="difficulty", score=0.2, threshold=0.5
)


def build(of: Config | None = None, **given: Any):
    given = {
        "caller": Caller(id="r1"),
        "time": 1_700_000_000.0,
        "dialect": "chat",
        "outcome": "ok",
        "request": request(),
        "decision": DECISION,
        "attempts": (Attempt(deployment="small-a", group="small", status=200, ttft_s=0.1),),
        **given,
    }
    return record.build(book=record.book(of if of is not None else config()), **given)


def test_a_request_costs_its_tokens_at_the_serving_deployments_price_with_cached_tokens_at_theirs():
    built = build(usage=Usage(input=1_000_000, cached=400_000, output=500_000))
    assert built.cost == pytest.approx(0.6 * 1.0 + 0.4 * 0.5 + 0.5 * 2.0)


def test_cached_tokens_cost_as_input_where_no_cached_price_is_given():
    attempts = (Attempt(deployment="large-a", group="large", status=200),)
    built = build(usage=Usage(input=1_000_000, cached=1_000_000), attempts=attempts)
    assert built.cost == pytest.approx(10.0)


def test_the_failed_attempt_does_not_set_the_price_but_the_one_that_served_does():
    attempts = (
        Attempt(deployment="small-a", group="small", error="upstream_unreachable"),
        Attempt(deployment="large-b", group="large", status=200),
    )
    built = build(usage=Usage(input=1_000_000), attempts=attempts)
    assert built.cost == pytest.approx(8.0)
    assert record.group(built) == "large"
    served = record.served(built)
    assert served is not None
    assert served.deployment == "large-b"


def test_the_comparison_price_is_the_dearest_groups_cheapest_deployment():
    built = build(usage=Usage(input=1_000_000, output=1_000_000))
    assert built.cost_large == pytest.approx(8.0 + 24.0)


def test_the_dearest_group_may_depend_on_the_tokens():
    of = config(small_a=Price(input=1.0, output=50.0), large_a=Price(input=10.0, output=30.0), large_b=None)
    reading = build(of, usage=Usage(input=1_000_000))
    writing = build(of, usage=Usage(output=1_000_000))
    assert (reading.cost_large, writing.cost_large) == (pytest.approx(10.0), pytest.approx(50.0))


def test_the_comparison_price_is_unknown_when_any_group_of_the_policy_has_no_price():
    built = build(config(large_a=None, large_b=None), usage=Usage(input=1_000_000))
    assert built.cost == pytest.approx(1.0)
    assert built.cost_large is None


def test_a_deployment_without_a_price_has_no_known_cost_rather_than_a_cost_of_nothing():
    assert build(config(small_a=None), usage=Usage(input=5)).cost is None


def test_an_answer_cut_short_is_priced_and_belongs_to_the_deployment_that_began_it():
    attempts = (Attempt(deployment="small-a", group="small", status=200, error="upstream_truncated"),)
    built = build(attempts=attempts, outcome="upstream_truncated", partial=True, usage=Usage(output=1_000_000))
    assert built.cost == pytest.approx(2.0)
    assert record.group(built) == "small"


def test_a_request_that_nothing_served_has_no_cost_and_the_group_that_was_decided():
    attempts = (Attempt(deployment="small-a", group="small", error="upstream_unreachable"),)
    built = build(attempts=attempts, outcome="upstream_error")
    assert (built.cost, built.cost_large, record.served(built), record.group(built)) == (None, None, None, "small")


def test_a_body_that_could_not_be_read_still_has_a_record():
    built = build(request=None, decision=None, attempts=(), outcome="client_error")
    assert (built.policy, built.model, built.signals, record.group(built)) == ("", "other", None, None)


def test_M01_an_unknown_model_name_is_recorded_as_other_everywhere():
    built = build(request=request("gpt-9-" + "x" * 50), decision=None, attempts=(), signals=Signals(model="gpt-9-x"))
    assert built.model == "other"
    assert b"gpt-9" not in record.encode(built)


def test_names_of_policies_groups_and_deployments_are_known_models():
    assert [build(request=request(name)).model for name in ("auto", "large", "large-b")] == ["auto", "large", "large-b"]


def test_a_credential_in_a_header_that_a_policy_names_is_not_kept():
    signals = Signals(model="auto", headers={"authorization": "Bearer canary", "x-team": "blue"})
    built = build(signals=signals)
    assert built.signals is not None
    assert built.signals.headers == {"x-team": "blue"}


def test_the_load_is_narrowed_to_the_deployments_the_plan_could_choose_from():
    load = Load(now=5.0, in_flight={"small-a": 1, "large-a": 2, "vision-a": 3}, cooling={"vision-a": 9.0})
    built = build(load=load)
    assert built.load == Load(now=5.0, in_flight={"small-a": 1, "large-a": 2})


def test_the_load_of_a_draining_deployment_reads_back():
    load = Load(now=5.0, cooling={"small-a": float("inf")}, limited=frozenset({"small-a", "vision-a"}))
    read = record.decode(record.encode(build(load=load)))
    assert read.load is not None
    assert read.load.cooling["small-a"] > 1e9
    assert read.load.limited == {"small-a"}


def full() -> Any:
    return build(
        signals=Signals(model="auto", turns=3, language="de", headers={"x-team": "blue"}),
        scores={
            "difficulty": Score(scorer="difficulty", value=0.2),
            "judge": Abstain(scorer="judge", reason="timeout"),
        },
        usage=Usage(input=10, output=5, cached=2, reasoning=1),
        timing=Timing(ttft_s=0.1, tpot_s=0.01, total_s=0.5, overhead_s=0.0001),
        session="s" * 64,
        draw=0.25,
        pinned=Session(id="s" * 64, group="small", route="difficulty"),
        load=Load(now=1.5, in_flight={"small-a": 1}),
    )


def test_the_exported_line_has_every_field_of_the_contract():
    line = json.loads(record.encode(full()))
    assert set(line) >= {
        "id", "time", "policy", "digest", "dialect", "model", "signals", "scores", "decision", "attempts", "usage",
        "cost", "timing", "outcome",
    }  # fmt: skip
    assert set(line["decision"]) >= {"route", "group", "threshold", "why"}
    assert set(line["attempts"][0]) >= {"deployment", "status", "error", "ttft_s"}
    assert set(line["usage"]) >= {"input", "output", "cached"}
    assert set(line["timing"]) >= {"ttft_s", "tpot_s", "total_s", "overhead_s"}
    assert line["scores"] == {"difficulty": 0.2, "judge": None}
    assert line["abstained"] == {"judge": "timeout"}


def test_a_record_reads_back_from_its_line_and_from_its_plain_values():
    original = full()
    assert record.decode(record.encode(original)) == original
    assert record.decode(json.dumps(record.to_contract(original))) == original


def test_a_stored_line_lacks_what_has_its_default_and_reads_back_to_the_same_record_and_line():
    for made in (
        build(),
        full(),
        build(signals=Signals(), load=Load(), attempts=(Attempt("a", "small", usage=Usage()),)),
    ):
        line = record.stored(made)
        assert len(line) < len(record.encode(made))
        assert record.decode(line) == made
        assert record.whole(line) == record.whole(record.encode(made)) == record.encode(made)


def test_a_whole_line_has_every_member_of_every_part_also_those_with_their_default():
    attempt = Attempt("small-a", "small", usage=Usage())
    made = build(signals=Signals(model="auto"), load=Load(), timing=Timing(), usage=Usage(), attempts=(attempt,))
    for line in (json.loads(record.encode(made)), json.loads(json.dumps(record.to_contract(made)))):
        assert set(line) - {"abstained"} == set(Record.__struct_fields__)
        parts = {"signals": Signals, "decision": Decision, "load": Load, "timing": Timing, "usage": Usage}
        for name, kind in parts.items():
            assert set(line[name]) == set(kind.__struct_fields__)
        assert set(line["attempts"][0]) == set(Attempt.__struct_fields__)
        assert set(line["attempts"][0]["usage"]) == set(Usage.__struct_fields__)


def test_a_line_with_only_the_contracts_fields_reads_and_keys_of_a_later_version_are_left_out():
    line = {
        "id": "x", "time": 1.0, "policy": "p", "digest": "d", "dialect": "chat", "model": "auto",
        "signals": {"turns": 1}, "scores": {"difficulty": None}, "outcome": "ok", "later": {"a": 1},
    }  # fmt: skip
    read = record.decode(json.dumps(line))
    assert read.scores == {"difficulty": Abstain(scorer="difficulty", reason="missing")}


def test_a_line_that_is_not_a_record_says_which_key():
    with pytest.raises(msgspec.ValidationError, match="time"):
        record.decode(b'{"id": "x", "time": "yesterday"}')


def test_no_prompt_text_is_in_a_record_of_a_request_full_of_it():
    body = b'{"model":"auto","messages":[{"role":"user","content":"canary-prompt"}],"user":"canary-user"}'
    asked = msgspec.structs.replace(request(), body=body, user="canary-user")
    assert b"canary" not in record.encode(build(request=asked))


def test_a_prompt_that_is_to_be_kept_is_bounded_and_reads_back():
    assert build().prompt is None
    kept = record.with_rest(build(), "head " + "x" * 100_000 + "\ud800 tail", None, None).prompt
    assert kept is not None
    assert len(kept) < 17_000
    assert (kept[:5], kept[-6:]) == ("head ", "? tail")
    assert record.decode(record.encode(record.with_rest(build(), kept, None, None))).prompt == kept
