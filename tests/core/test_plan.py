"""Plans: which deployments are tried in which order, and what happens after a failure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.config import Config, Deployment, Group, Policy
from router.errors import (
    BadAnswer,
    BadRequest,
    Cancelled,
    ConnectFailed,
    ContextTooLong,
    Overloaded,
    PointsmanError,
    RateLimited,
    TimedOut,
    Truncated,
    UpstreamStatus,
)
from router.overflow import overflows
from router.plan import COUNTED, MAX_ATTEMPTS, after, fault_of, plan, refused_as
from router.policy import Asked
from router.types import Attempt, Decision, Load, Plan, Report, Signals, Target

POLICY = Policy(name="p", models=("auto",), default="large", fallback={"small": ("large",), "large": ("small",)})
ALONE = replace(POLICY, fallback={})


def config(groups: Mapping[str, tuple[str, ...]], **options: dict[str, Any]) -> Config:
    names = dict.fromkeys(name for deployments in groups.values() for name in deployments)
    return Config(
        policies={"p": POLICY},
        models={"auto": POLICY},
        groups={name: Group(name=name, deployments=deployments) for name, deployments in groups.items()},
        deployments={n: Deployment(name=n, upstream="scripted", **options.get(n, {})) for n in names},
        scorers={},
        digest="d",
    )


TWO = config({"small": ("s1",), "large": ("l1", "l2")})


def to(group: str, **options: Any) -> Decision:
    return Decision(policy="p", route="r", group=group, why="signal", **options)


def order(made: Plan) -> list[str]:
    return [target.deployment for target in made.targets]


def status(code: int, body: str = "") -> UpstreamStatus:
    return UpstreamStatus(code, {}, body.encode(), retry_after_s=None)


def tried(made: Plan, *codes: int | None) -> list[Attempt]:
    return [
        Attempt(deployment=target.deployment, group=target.group, status=code, error="upstream_status")
        for target, code in zip(made.targets, codes, strict=False)
    ]


# --- order -----------------------------------------------------------------------------------------------


def test_K09_the_fallback_group_stands_behind_the_chosen_one():
    made = plan(to("small"), POLICY, TWO, Load(in_flight={"l1": 2, "l2": 1}), Signals(), 0.5)
    assert made.targets == (
        Target(deployment="s1", group="small"),
        Target(deployment="l2", group="large"),
        Target(deployment="l1", group="large"),
    )
    assert (made.refused, made.retry_after_s) == ((), None)


def test_K09_when_the_chosen_group_is_down_the_other_serves():
    made = plan(to("small"), POLICY, TWO, Load(cooling={"s1": 30.0}), Signals(), 0.5)
    assert {target.group for target in made.targets} == {"large"}
    assert made.refused == (("s1", "it failed and is cooling for another 30.0 s"),)


def test_the_least_busy_comes_first():
    four = config({"large": ("a", "b", "c", "d")})
    for draw in (0.0, 0.3, 0.99):
        made = plan(to("large"), POLICY, four, Load(in_flight={"a": 3, "b": 1, "c": 2}), Signals(), draw)
        assert order(made) == ["d", "b", "c", "a"]


def test_L10_ties_are_shared_evenly():
    four = config({"large": ("a", "b", "c", "d")})
    firsts: Counter[str] = Counter()
    seconds: Counter[tuple[str, str]] = Counter()
    for i in range(4000):
        made = order(plan(to("large"), POLICY, four, Load(), Signals(), (i + 0.5) / 4000))
        firsts[made[0]] += 1
        seconds[made[0], made[1]] += 1
    assert all(abs(n / 4000 - 0.25) <= 0.01 for n in firsts.values())
    assert len(seconds) == 12
    assert all(abs(n / 4000 - 1 / 12) <= 0.01 for n in seconds.values())


def test_L10_two_equals_share_evenly():
    firsts = Counter(order(plan(to("large"), ALONE, TWO, Load(), Signals(), i / 100))[0] for i in range(100))
    assert firsts == {"l1": 50, "l2": 50}
    busy = Load(in_flight={"l1": 1})
    assert {order(plan(to("large"), ALONE, TWO, busy, Signals(), i / 100))[0] for i in range(100)} == {"l2"}


def test_L10_shares_stay_even_while_requests_come_and_go_with_cancels_and_a_count_below_zero():
    four = config({"large": ("a", "b", "c", "d")})
    in_flight = {"a": -3, "b": 0, "c": 0, "d": 0}  # a lease lost elsewhere: counts as none in flight
    served: Counter[str] = Counter()
    open_: list[str] = []
    for i in range(4000):
        draw = (i * 0.6180339887) % 1.0
        first = order(plan(to("large"), POLICY, four, Load(in_flight=in_flight), Signals(), draw))[0]
        served[first] += 1
        in_flight[first] = max(0, in_flight[first]) + 1
        open_.append(first)
        if len(open_) > 6:
            done = open_.pop(i % 5)
            in_flight[done] -= 1
    assert all(abs(n / 4000 - 0.25) <= 0.05 for n in served.values())


def test_a_preferred_deployment_comes_first_where_it_can_serve():
    busy = Load(in_flight={"l2": 9})
    assert order(plan(to("large", deployment="l2"), POLICY, TWO, busy, Signals(), 0.1)) == ["l2", "l1", "s1"]
    cooling = Load(cooling={"l2": 9.0})
    assert order(plan(to("large", deployment="l2"), POLICY, TWO, cooling, Signals(), 0.1)) == ["l1", "s1"]


def test_a_deployment_that_the_client_named_is_the_only_one():
    asked = Asked(model="l2", group="large", deployment="l2")
    decision = to("large", deployment="l2", only=True)
    assert order(plan(decision, asked, TWO, Load(), Signals(), 0.1)) == ["l2"]


def test_a_group_that_the_client_named_has_no_fallback():
    asked = Asked(model="large", group="large")
    assert {t.group for t in plan(to("large"), asked, TWO, Load(), Signals(), 0.1).targets} == {"large"}


# --- filters ---------------------------------------------------------------------------------------------

FILTERED = config(
    {"small": ("s1",), "large": ("l1", "l2")},
    s1={"context_window": 8192, "images": False},
    l1={"context_window": 131072, "max_in_flight": 2},
    l2={"context_window": 131072},
)


def test_L14_a_deployment_whose_window_is_too_small_is_left_out():
    signals = Signals(input_tokens=8000, max_output_tokens=2000)
    made = plan(to("large"), POLICY, FILTERED, Load(), signals, 0.1)
    assert set(order(made)) == {"l1", "l2"}
    (refused,) = made.refused
    assert refused == ("s1", "its context window of 8192 is smaller than the 10000 tokens needed (estimated)")


def test_L14_when_the_large_group_fails_its_own_error_ends_the_request():
    signals = Signals(input_tokens=10_000)
    made = plan(to("large"), POLICY, FILTERED, Load(), signals, 0.1)
    assert after(made, tried(made, 503), status(503), FILTERED) == made.targets[1]
    assert after(made, tried(made, 503, 503), status(503), FILTERED) is None


def test_what_cannot_read_images_is_left_out_where_there_are_some():
    made = plan(to("small"), POLICY, FILTERED, Load(), Signals(has_images=True), 0.1)
    assert set(order(made)) == {"l1", "l2"}
    assert made.refused == (("s1", "the request has images and it cannot read them"),)


def test_what_is_full_is_left_out():
    made = plan(to("large"), POLICY, FILTERED, Load(in_flight={"l1": 2, "l2": 5}), Signals(), 0.1)
    assert order(made) == ["l2", "s1"]
    assert made.refused == (("l1", "it is full: 2 of 2 requests in flight"),)


def test_a_cooldown_that_has_ended_refuses_nothing():
    assert len(plan(to("small"), POLICY, TWO, Load(now=10.0, cooling={"s1": 10.0}), Signals(), 0.1).targets) == 3


def test_a_prompt_that_fits_nowhere_by_estimate_gets_one_try_at_the_widest_window():
    only_small = config({"large": ("a", "b")}, a={"context_window": 4096}, b={"context_window": 8192})
    alone = replace(POLICY, fallback={})
    signals = Signals(input_tokens=7000, max_output_tokens=4096)
    assert order(plan(to("large"), alone, only_small, Load(), signals, 0.1)) == ["b"]
    hopeless = Signals(input_tokens=40_000)
    made = plan(to("large"), alone, only_small, Load(), hopeless, 0.1)
    assert (made.targets, made.retry_after_s) == ((), None)
    assert isinstance(refused_as(to("large"), alone, only_small, Load(), hopeless, made), ContextTooLong)


# --- everything is cooling -------------------------------------------------------------------------------

ONE = config({"large": ("a",)})
THREE = config({"large": ("a", "b", "c")})


@pytest.mark.parametrize(("known", "names"), [(ONE, "a"), (THREE, "abc")])
def test_L09_when_all_are_rate_limited_the_client_is_told_the_soonest_return(known: Config, names: str):
    cooling = {name: 102.0 + i for i, name in enumerate(names)}
    load = Load(now=100.0, cooling=cooling, limited=frozenset(names))
    made = plan(to("large"), ALONE, known, load, Signals(), 0.1)
    assert (made.targets, made.retry_after_s) == ((), 2.0)
    told = refused_as(to("large"), ALONE, known, load, Signals(), made)
    assert isinstance(told, RateLimited)
    assert (told.status, told.retry_after_s) == (429, 2.0)


@pytest.mark.parametrize(("known", "names"), [(ONE, "a"), (THREE, "abc")])
def test_L09_when_all_have_failed_the_soonest_is_probed_if_it_is_near(known: Config, names: str):
    near = Load(now=100.0, cooling={name: 104.0 - i for i, name in enumerate(names)})
    assert order(plan(to("large"), ALONE, known, near, Signals(), 0.1)) == [names[-1]]
    far = Load(now=100.0, cooling=dict.fromkeys(names, 130.0))
    made = plan(to("large"), ALONE, known, far, Signals(), 0.1)
    assert (made.targets, made.retry_after_s) == ((), 30.0)
    told = refused_as(to("large"), ALONE, known, far, Signals(), made)
    assert isinstance(told, Overloaded)
    assert (told.status, told.retry_after_s) == (503, 30.0)


def test_a_rate_limited_deployment_is_not_called_before_its_time_but_for_the_clocks():
    limited = Load(now=100.0, cooling={"a": 100.4}, limited=frozenset("a"))
    assert order(plan(to("large"), ALONE, ONE, limited, Signals(), 0.1)) == ["a"]
    earlier = msgspec.structs.replace(limited, now=99.0)
    assert not plan(to("large"), ALONE, ONE, earlier, Signals(), 0.1).targets


def test_a_drained_deployment_is_never_probed():
    drained = Load(cooling={"a": math.inf})
    made = plan(to("large"), ALONE, ONE, drained, Signals(), 0.1)
    assert (made.targets, made.retry_after_s, made.refused) == ((), None, (("a", "it is drained"),))
    assert isinstance(refused_as(to("large"), ALONE, ONE, drained, Signals(), made), Overloaded)


def test_when_all_are_full_the_client_is_told_to_come_back():
    full = config({"large": ("a",)}, a={"max_in_flight": 1})
    load = Load(in_flight={"a": 1})
    made = plan(to("large"), ALONE, full, load, Signals(), 0.1)
    told = refused_as(to("large"), ALONE, full, load, Signals(), made)
    assert isinstance(told, Overloaded)
    assert told.retry_after_s == 1.0


def test_images_that_nobody_can_read_are_the_clients_error():
    blind = config({"large": ("a",)}, a={"images": False})
    signals = Signals(has_images=True)
    made = plan(to("large"), ALONE, blind, Load(), signals, 0.1)
    assert type(refused_as(to("large"), ALONE, blind, Load(), signals, made)) is BadRequest


# --- after a failure -------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [400, 404, 405, 409, 413, 415, 422])
def test_L06_a_clients_error_is_never_retried_and_never_held_against_the_deployment(code: int):
    made = plan(to("large"), POLICY, TWO, Load(), Signals(), 0.1)
    assert after(made, tried(made, code), status(code, '{"error": {"message": "bad field"}}'), TWO) is None
    assert fault_of(status(code)) not in COUNTED


@pytest.mark.parametrize(
    "error",
    [
        *(status(code) for code in (401, 402, 403, 408, 429, 500, 502, 503, 504, 529)),
        ConnectFailed("refused"),
        TimedOut("connect", 5),
        TimedOut("first_byte", 120),
        TimedOut("idle", 120),
        Truncated("cut"),
        BadAnswer("not JSON"),
    ],
)
def test_L06_what_failed_elsewhere_is_tried_at_the_next_and_counted(error: PointsmanError):
    made = plan(to("large"), POLICY, TWO, Load(), Signals(), 0.1)
    assert after(made, tried(made, 0), error, TWO) == made.targets[1]
    assert fault_of(error) in COUNTED


@pytest.mark.parametrize(
    "error",
    [
        TimedOut("total", 3600),
        Cancelled("left"),
        BadRequest("no"),
        PointsmanError("a fault of ours"),
    ],
)
def test_what_would_not_get_better_is_not_retried(error: PointsmanError):
    made = plan(to("large"), POLICY, TWO, Load(), Signals(), 0.1)
    assert after(made, tried(made, 0), error, TWO) is None


def test_L03_a_cycle_of_fallbacks_ends_after_each_was_tried_once():
    made = plan(to("small"), POLICY, TWO, Load(), Signals(), 0.1)
    assert len(made.targets) == 3
    assert after(made, tried(made, 503), status(503), TWO) == made.targets[1]
    assert after(made, tried(made, 503, 503), status(503), TWO) == made.targets[2]
    assert after(made, tried(made, 503, 503, 503), status(503), TWO) is None


def test_L02_no_request_makes_more_than_three_attempts():
    many = config({"large": tuple(f"d{i}" for i in range(9))})
    made = plan(to("large"), POLICY, many, Load(), Signals(), 0.1)
    assert len(made.targets) == 9
    assert after(made, tried(made, 500, 500), status(500), many) == made.targets[2]
    assert after(made, tried(made, 500, 500, 500), status(500), many) is None


PHRASINGS = [
    '{"error":{"message":"This model\'s maximum context length is 8192 tokens. However, you requested 10000",'
    '"code":"context_length_exceeded"}}',
    '{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000"}}',
    "input length and `max_tokens` exceed context limit: 190000 + 21333 > 200000",
    '{"error":{"message":"the request exceeds the available context size. try increasing it",'
    '"type":"exceed_context_size_error"}}',
    "The input (10000 tokens) is longer than the model's context length (8192 tokens).",
    "Requested token count exceeds the model's maximum context length of 8192 tokens.",
    "The decoder prompt (length 9000) is longer than the maximum model length of 8192.",
    "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    "ValidationException: Input is too long for requested model.",
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000",
    "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
    "too many tokens: total number of tokens in the prompt cannot exceed 4081",
    "input length exceeds the context length",
    "The number of tokens to keep from the initial prompt is greater than the context length",
    "This model's maximum prompt length is 131072 but the request contains 200000 tokens.",
    "Please reduce the length of the messages or completion.",
    "Invalid request: Your request exceeded model token limit: 8192",
    "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 30720]",
    "invalid params, context window exceeds limit (2013)",
    "length of prompt_tokens (40000) must be less than max_seq_len (32768).",
    '{"error":{"code":"tokens_limit_reached","message":"Max size: 8000 tokens."}}',
    "Request body too large for gpt-4o model. Max size: 8000 tokens.",
    "the number of input tokens 9000 cannot exceed the total tokens limit 8192 for this model",
    "Prompt sequence length 5000 is greater than 4096. Perhaps consider using `truncate_sequence`",
    "The model is loaded with context length of only 4096 tokens, which is not enough.",
    "The total length of all messages is too long.",
    "Prompt tokens too long",
    "the input token count is 33000 but model only supports up to 32768. Reduce the input token count.",
    "The estimated number of input and maximum output tokens (9000) exceeded this model context window limit (7968).",
    "max_tokens must be at least 1, got -300.",
    "input is too large to process. increase the physical batch size",
    "the sum of prompt length and query length should not exceed max_num_tokens (8192)",
    "Your input exceeds the context window of this model. Please adjust your input and try again.",
]


@pytest.mark.parametrize("words", PHRASINGS)
def test_L13_an_overflow_is_known_by_code_or_words_whoever_says_it(words: str):
    assert fault_of(status(400, words)) == "overflow"
    assert fault_of(BadAnswer(words)) == "overflow"


@pytest.mark.parametrize(
    "words",
    [
        "",
        "max_tokens must be at most 4096",
        "Unknown parameter: context",
        "messages[0].content is too long a list",
        "Invalid value for 'temperature': must be <= 2",
        "tool name exceeds 64 characters",
        "max_tokens is too large: 100000. This model supports at most 16384 completion tokens",
        "Invalid 'max_tokens': integer above maximum value. Expected a value <= 16384, but got 100000 instead.",
        "The maximum tokens you requested exceeds the model limit of 4096",
        "temperature must be less than 2",
    ],
)
def test_another_bad_request_is_not_taken_for_an_overflow(words: str):
    assert not overflows(words)


WINDOWS = config(
    {"small": ("s1", "s2"), "large": ("l1", "l2")},
    s1={"context_window": 8192}, s2={"context_window": 8192},
    l1={"context_window": 131072}, l2={"context_window": 131072},
)  # fmt: skip


def test_L13_after_an_overflow_the_next_larger_window_is_tried_once():
    made = plan(to("small"), POLICY, WINDOWS, Load(), Signals(), 0.1)
    overflow = status(400, PHRASINGS[0])
    first = after(made, tried(made, 400), overflow, WINDOWS)
    assert first is not None
    assert first.group == "large"
    again = [
        Attempt(deployment="s1", group="small", status=400),
        Attempt(deployment=first.deployment, group="large", status=400),
    ]
    assert after(made, again, overflow, WINDOWS) is None


def test_L13_a_second_overflow_ends_the_request_though_a_still_larger_window_is_left():
    growing = config(
        {"large": ("a", "b", "c")},
        a={"context_window": 1000}, b={"context_window": 2000}, c={"context_window": 4000},
    )  # fmt: skip
    made = plan(to("large"), ALONE, growing, Load(in_flight={"b": 1, "c": 2}), Signals(), 0.1)
    overflow = status(400, PHRASINGS[0])
    assert after(made, tried(made, 400), overflow, growing) == made.targets[1]
    assert after(made, tried(made, 400, 400), overflow, growing) is None
    assert after(made, tried(made, 503, 400), overflow, growing) == made.targets[2]


def test_L13_with_no_larger_window_the_overflow_is_the_answer():
    made = plan(to("large"), POLICY, WINDOWS, Load(), Signals(), 0.1)
    assert after(made, tried(made, 400), ContextTooLong("too long"), WINDOWS) is None


def test_an_unstated_window_is_tried_only_in_another_group():
    made = plan(to("large"), POLICY, TWO, Load(), Signals(), 0.1)
    assert after(made, tried(made, 400), ContextTooLong("too long"), TWO) == Target(deployment="s1", group="small")


# --- invariants ------------------------------------------------------------------------------------------

names = st.sampled_from("abcdef")
group_names = st.sampled_from(["g0", "g1", "g2"])
configs = st.builds(
    config,
    st.fixed_dictionaries(
        {g: st.lists(names, max_size=4, unique=True).map(tuple) for g in ("g0", "g1", "g2")}
    ),
)  # fmt: skip
loads = st.builds(
    Load,
    now=st.just(50.0),
    in_flight=st.dictionaries(names, st.integers(-1, 5)),
    cooling=st.dictionaries(names, st.floats(40, 80)),
    limited=st.frozensets(names),
)
policies = st.dictionaries(group_names, st.lists(group_names, max_size=3).map(tuple)).map(
    lambda fallback: replace(POLICY, fallback=fallback)
)
decisions = st.builds(to, group_names, deployment=st.none() | names)
draws = st.floats(0, 1, exclude_max=True)
sizes = st.builds(Signals, input_tokens=st.integers(0, 100))
ERRORS = [status(500), status(429), status(400), status(400, PHRASINGS[0]), ConnectFailed("x"), TimedOut("idle", 1)]


@given(decisions, policies, configs, loads, sizes, draws)
def test_a_plan_names_each_deployment_once_and_only_those_of_its_groups(
    decision: Decision, policy: Policy, known: Config, load: Load, signals: Signals, draw: float
):
    made = plan(decision, policy, known, load, signals, draw)
    assert len(set(order(made))) == len(made.targets)
    assert all(target.deployment in known.groups[target.group].deployments for target in made.targets)
    assert plan(decision, policy, known, load, signals, draw) == made
    if len(made.targets) > 1:
        assert not set(order(made)) & {name for name, _ in made.refused}


@given(decisions, policies, configs, loads, draws, st.lists(st.sampled_from(ERRORS), min_size=9, max_size=9))
def test_no_run_of_failures_makes_more_than_three_attempts_or_tries_one_twice(
    decision: Decision, policy: Policy, known: Config, load: Load, draw: float, errors: list[PointsmanError]
):
    made = plan(decision, policy, known, load, Signals(), draw)
    attempts: list[Attempt] = []
    target: Target | None = made.targets[0] if made.targets else None
    while target is not None:
        error = errors[len(attempts)]
        attempts.append(
            Attempt(deployment=target.deployment, group=target.group, status=error.status, error=error.code)
        )
        target = after(made, attempts, error, known)
    assert len(attempts) <= MAX_ATTEMPTS
    assert len({attempt.deployment for attempt in attempts}) == len(attempts)
    assert sum(attempt.status == 400 for attempt in attempts) <= 2


@given(st.dictionaries(names, st.integers(0, 3)), draws)
def test_within_a_group_nobody_busier_stands_before_somebody_less_busy(in_flight: dict[str, int], draw: float):
    six = config({"large": tuple("abcdef")})
    made = order(plan(to("large"), ALONE, six, Load(in_flight=in_flight), Signals(), draw))
    counts = [in_flight.get(name, 0) for name in made]
    assert counts == sorted(counts)
    assert sorted(made) == list("abcdef")


# --- dialects --------------------------------------------------------------------------------------------


def test_a_deployment_is_asked_in_what_it_lists_what_can_be_translated_and_what_stands_beside_chat():
    listed: dict[str, dict[str, Any]] = {
        "chat": {"dialects": ("chat",)},
        "messages": {"dialects": ("messages",)},
        "embeddings": {"dialects": ("embeddings",)},
        "litellm": {"upstream": "litellm"},
        "local": {"upstream": "local"},
    }
    known = config({"all": tuple(listed)})
    known = replace(
        known, deployments={n: Deployment(**{"name": n, "upstream": "openai"} | d) for n, d in listed.items()}
    )
    expected = {
        "chat": {"chat", "messages", "litellm", "local"},
        "messages": {"chat", "messages", "litellm", "local"},
        "responses": {"chat", "messages", "litellm", "local"},
        "completions": {"chat", "local"},
        "embeddings": {"chat", "embeddings"},
    }
    for dialect, names in expected.items():
        made = plan(to("all"), ALONE, known, Load(), Signals(dialect=dialect), 0.0)
        assert set(order(made)) == names, dialect


def test_a_dialect_that_nothing_serves_is_the_clients_mistake():
    known = config({"small": ("s1",), "large": ("l1",)}, s1={"dialects": ("messages",)}, l1={"dialects": ("messages",)})
    found = Signals(dialect="completions")
    made = plan(to("small"), POLICY, known, Load(), found, 0.0)
    error = refused_as(to("small"), POLICY, known, Load(), found, made)
    assert isinstance(error, BadRequest)
    assert "completions" in error.message


def test_not_implemented_is_no_failure_of_the_deployment():
    assert fault_of(status(501)) == "client"


def test_a_decision_that_stays_has_no_target_elsewhere():
    """Not by fallback, not by a failure, not as a probe: where its groups cannot serve, the request fails."""
    known = config({"eu": ("a",), "large": ("b",)}, a={"context_window": 10})
    policy = Policy(name="p", models=("auto",), default="large", fallback={"eu": ("large",)})
    free = Decision(policy="p", route="r", group="eu", why="signal")
    kept = msgspec.structs.replace(free, within=("eu",))
    for load in (Load(), Load(now=1.0, cooling={"a": 100.0})):
        short, long = Signals(input_tokens=1), Signals(input_tokens=1000)
        assert "b" in [t.deployment for t in plan(free, policy, known, load, short, 0.5).targets]
        for signals in (short, long):
            made = plan(kept, policy, known, load, signals, 0.5)
            assert {t.group for t in made.targets} <= {"eu"}
            if not made.targets:
                assert refused_as(kept, policy, known, load, signals, made).status in (400, 503)


# --- weighing by what deployments report -----------------------------------------------------------------

THREE = config({"large": ("l1", "l2", "l3")})


def planned(load: Load, draw: float = 0.3, of: Config = TWO) -> list[str]:
    return order(plan(to("large"), ALONE, of, load, Signals(), draw))


@pytest.mark.parametrize(
    "worse",
    [
        Report(waiting=1),
        Report(elsewhere=1),
        Report(kv=0.95),
        Report(ttft_s=1.0),
    ],
)
def test_a_deployment_that_reports_to_be_busier_comes_second(worse: Report) -> None:
    for draw in (0.0, 0.3, 0.7, 0.99):
        assert planned(Load(reports={"l1": worse, "l2": Report(ttft_s=0.1)}), draw) == ["l2", "l1"]


def test_a_slower_deployment_is_used_once_the_faster_one_has_its_share() -> None:
    load = Load(in_flight={"l2": 8}, reports={"l1": Report(ttft_s=0.8), "l2": Report(ttft_s=0.1)})
    assert planned(load) == ["l1", "l2"]


def test_small_differences_of_time_leave_ties_even() -> None:
    load = Load(reports={"l1": Report(ttft_s=0.3), "l2": Report(ttft_s=0.1)})
    firsts = Counter(planned(load, n / 100)[0] for n in range(100))
    assert firsts == {"l1": 50, "l2": 50}


def test_of_more_than_two_the_better_of_two_drawn_goes_first_and_never_the_busiest() -> None:
    """Everybody sees the same numbers of a second ago; all would go to the same one."""
    waiting = {"l1": 0.0, "l2": 1.0, "l3": 2.0}
    load = Load(reports={name: Report(waiting=n) for name, n in waiting.items()})
    firsts = Counter(planned(load, n / 600, THREE)[0] for n in range(600))
    assert firsts["l3"] == 0
    assert firsts["l1"] == pytest.approx(400, abs=6)
    assert firsts["l2"] == pytest.approx(200, abs=6)


def test_in_flight_alone_is_exact_and_chooses_the_least_busy_of_all() -> None:
    load = Load(in_flight={"l1": 2, "l2": 1}, reports={"l1": Report(ttft_s=0.1)})
    assert {planned(load, n / 50, THREE)[0] for n in range(50)} == {"l3"}
