"""Policies as questions: which serves a model name, what holds, how groups stand to each other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router import policy
from router.config import Band, Config, Deployment, Group, Policy, Range, Route, ScoreRule, When
from router.errors import UnknownModel
from router.types import Signals

BANDS = ScoreRule(scorer="d", bands=(Band(group="small", below=0.5), Band(group="large")))
CHAT = Policy(name="chat", models=("auto",), routes=(Route(name="difficulty", score=BANDS),), default="large")


def config(*policies: Policy) -> Config:
    return Config(
        policies={p.name: p for p in policies},
        models={model: p for p in policies for model in p.models},
        groups={
            "small": Group(name="small", deployments=("s1",)),
            "large": Group(name="large", deployments=("l1", "l2")),
            "vision": Group(name="vision", deployments=("v1",)),
        },
        deployments={name: Deployment(name=name, upstream="scripted") for name in ("s1", "l1", "l2", "v1")},
        scorers={},
        digest="d",
    )


# --- selection -------------------------------------------------------------------------------------------


def test_a_policys_model_selects_it():
    assert policy.select(config(CHAT), "auto") is CHAT


def test_a_groups_own_name_is_a_model():
    asked = policy.select(config(CHAT), "large")
    assert isinstance(asked, policy.Asked)
    assert (asked.group, asked.deployment) == ("large", None)


def test_a_deployment_may_be_named_only_where_a_policy_that_leads_to_it_allows():
    with pytest.raises(UnknownModel):
        policy.select(config(CHAT), "l2")
    allowing = config(replace(CHAT, allow_deployments=True))
    asked = policy.select(allowing, "l2")
    assert isinstance(asked, policy.Asked)
    assert (asked.group, asked.deployment) == ("large", "l2")
    with pytest.raises(UnknownModel):
        policy.select(allowing, "v1")


@pytest.mark.parametrize("model", ["router-mf-0.0", "router-x-1.0", "gpt-4o", "", "AUTO"])
def test_K10_an_unknown_model_is_refused_and_forces_nothing(model: str):
    with pytest.raises(UnknownModel) as caught:
        policy.select(config(CHAT), model)
    assert caught.value.status == 404


def test_the_models_that_are_shown_are_those_that_are_served():
    shown = config(replace(CHAT, allow_deployments=True))
    assert policy.visible_models(shown) == ("auto", "small", "large", "vision", "s1", "l1", "l2")
    for model in policy.visible_models(shown):
        policy.select(shown, model)
    assert policy.visible_models(config(CHAT)) == ("auto", "small", "large", "vision")


def test_the_headers_that_conditions_read_are_named_however_deep_they_stand():
    when = When(any=(When(headers={"X-Effort": "high"}), When(all=(When(headers={"x-team": "a"}),))))
    routes = (
        Route(name="a", when=when, group="large"),
        Route(name="b", when=When(headers={"x-b": "1"}), group="large"),
    )
    assert policy.named_headers(config(replace(CHAT, routes=routes))) == {"x-effort", "x-team", "x-b"}


# --- groups ----------------------------------------------------------------------------------------------


def test_L03_a_fallback_cycle_ends_where_it_meets_itself():
    circular = replace(
        CHAT, fallback={"small": ("large",), "large": ("vision", "small"), "vision": ("vision", "large")}
    )
    assert policy.chain_of(circular, "small") == ("small", "large", "vision")
    assert policy.chain_of(circular, "vision") == ("vision", "large", "small")


def test_fallbacks_stand_nearest_first():
    deep = replace(CHAT, fallback={"a": ("b", "c"), "b": ("d",), "c": ("e",)})
    assert policy.chain_of(deep, "a") == ("a", "b", "c", "d", "e")


groups = st.sampled_from("abcdef")


@given(st.dictionaries(groups, st.lists(groups, max_size=4).map(tuple)), groups)
def test_every_chain_of_fallbacks_names_each_group_once(fallback: dict[str, tuple[str, ...]], start: str):
    chain = policy.chain_of(replace(CHAT, fallback=fallback), start)
    assert chain[0] == start
    assert len(set(chain)) == len(chain)
    assert set(chain) == set(chain).union(*(fallback.get(g, ()) for g in chain))


def test_a_group_asked_for_by_name_falls_back_on_nothing():
    assert policy.chain_of(policy.Asked(model="small", group="small"), "small") == ("small",)


def test_the_order_is_the_policys_or_that_of_its_bands_and_then_its_default():
    assert policy.order(CHAT) == ("small", "large")
    three = (Band(group="s", below=0.3), Band(group="m", below=0.6), Band(group="m2"))
    assert policy.order(
        replace(CHAT, routes=(Route(name="d", score=ScoreRule(scorer="d", bands=three)),), default="l")
    ) == ("s", "m", "m2", "l")  # fmt: skip
    assert policy.order(replace(CHAT, order=("large", "small"))) == ("large", "small")


# --- conditions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("when", "signals", "expected"),
    [
        (When(), Signals(), True),
        (When(tools=3), Signals(tools=3), True),
        (When(tools=3), Signals(tools=4), False),
        (When(tools=0), Signals(), True),
        (When(turns=Range(at_least=2)), Signals(turns=2), True),
        (When(turns=Range(above=2)), Signals(turns=2), False),
        (When(turns=Range(at_most=2)), Signals(turns=2), True),
        (When(code_share=Range(below=0.5)), Signals(code_share=0.5), False),
        (When(hour=Range(at_least=9, below=17)), Signals(hour=16), True),
        (When(hour=Range(at_least=9, below=17)), Signals(hour=17), False),
        (When(turns=Range()), Signals(), True),
        (When(stream=False), Signals(stream=False), True),
        (When(stream=False), Signals(stream=True), False),
        (When(language="de"), Signals(language="de"), True),
        (When(language=("de", "fr")), Signals(language="fr"), True),
        (When(language=("de", "fr")), Signals(language=""), False),
        (When(headers={"X-Effort": ("high", "max")}), Signals(headers={"x-effort": "max"}), True),
        (When(headers={"x-effort": "high"}), Signals(), False),
        (When(headers={"a": "1", "b": "2"}), Signals(headers={"a": "1"}), False),
        (When(any=(When(tools=1), When(turns=1))), Signals(turns=1), True),
        (When(any=()), Signals(), False),
        (When(all=(When(tools=1), When(turns=1))), Signals(turns=1), False),
        (When(all=()), Signals(), True),
        (When(stream=True, any=(When(tools=1),)), Signals(tools=1), False),
        (When(stream=True, tools=1, turns=1), Signals(stream=True, tools=1, turns=1), True),
        (When(stream=True, tools=1, turns=1), Signals(stream=True, tools=1, turns=2), False),
    ],
)
def test_a_condition_holds_when_every_field_that_it_gives_holds(when: When, signals: Signals, expected: bool):
    assert policy.holds(when, signals) is expected
    assert all(check.held for check in policy.examine(when, signals)) is expected


numbers = st.one_of(
    st.integers(0, 3).map(float),
    st.builds(Range, at_least=st.none() | st.integers(0, 3), below=st.none() | st.integers(0, 4)),
)
plain: dict[str, Any] = {
    "tools": st.none() | numbers,
    "turns": st.none() | numbers,
    "stream": st.none() | st.booleans(),
    "language": st.none() | st.sampled_from(["", "de", ("de", "en")]),
    "headers": st.none() | st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["1", ("1", "2")]), max_size=2),
}
whens = st.recursive(
    st.builds(When, **plain),
    lambda inner: st.builds(When, **plain, any=st.none() | st.lists(inner, max_size=2).map(tuple),
                            all=st.none() | st.lists(inner, max_size=2).map(tuple)),
    max_leaves=6,
)  # fmt: skip
some_signals = st.builds(
    Signals,
    tools=st.integers(0, 3),
    turns=st.integers(0, 3),
    stream=st.booleans(),
    language=st.sampled_from(["", "de", "en"]),
    headers=st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["1", "2"])),
)


@given(whens, some_signals)
def test_what_people_are_told_agrees_with_what_is_decided(when: When, signals: Signals):
    assert policy.holds(when, signals) == all(check.held for check in policy.examine(when, signals))


def test_every_field_of_a_condition_is_tested():
    covered = {*policy.FLAGS, *policy.NUMBERS, *policy.WORDS, "headers", "any", "all"}
    assert covered == set(When.__dataclass_fields__) - {"__pydantic_config__"}


def test_conditions_are_read_out_in_words():
    checks = policy.examine(
        When(tool_errors=Range(at_least=2), tenant=("a", "b"), has_images=True), Signals(tenant="c")
    )
    assert [(c.field, c.condition, c.value, c.held) for c in checks] == [
        ("has_images", "yes", "no", False),
        ("tool_errors", "at least 2", "0", False),
        ("tenant", "'a' or 'b'", "'c'", False),
    ]


def test_more_conditions_than_are_remembered_still_answer_right():
    for n in range(2000):
        assert policy.holds(When(tools=n), Signals(tools=n))
        assert not policy.holds(When(tools=n), Signals(tools=n + 1))
