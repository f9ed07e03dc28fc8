"""Comparing a policy with the one it is tried for: on evidence, with intervals that clustering widens."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from router.canary import Conversation, Side, digest, failed, judge, looks, place
from router.config import Canary, Policy, Until, Worse
from router.types import Record

ERRORS = Worse(error_rate=0.02)


def canary(limits: Worse = ERRORS, until: int = 1000) -> Canary:
    return Canary(policy="next", share=0.1, until=Until(requests=until), rollback_if=limits)


def failures(conversations: int, failing: int, size: int = 1) -> Side:
    """Conversations of one size, of which some fail throughout."""
    each = tuple(Conversation(count=size, total=size * (n < failing)) for n in range(conversations))
    return Side(requests=conversations * size, failures=each)


# --- who gets it -----------------------------------------------------------------------------------------


def test_a_share_of_the_conversations_gets_the_tried_policy_and_keeps_it_as_the_share_grows():
    places = [place("p", "next", f"conversation {n}") for n in range(4000)]
    assert abs(sum(one < 0.1 for one in places) / 4000 - 0.1) < 0.02
    assert places == [place("p", "next", f"conversation {n}") for n in range(4000)]
    assert all(0 <= one < 1 for one in places)


def test_another_trial_draws_other_conversations():
    first = {n for n in range(4000) if place("p", "next", str(n)) < 0.1}
    second = {n for n in range(4000) if place("p", "other", str(n)) < 0.1}
    assert len(first & second) < 100


def test_a_verdict_holds_for_two_policies_as_they_are_written():
    one = Policy(name="p", models=("auto",), default="large", canary=canary())
    two = Policy(name="next", models=("x",), default="small")
    assert digest(one, two) == digest(replace(one), replace(two))
    assert digest(one, two) != digest(one, replace(two, default="large"))
    assert digest(one, two) != digest(replace(one, canary=replace(canary(), share=0.2)), two)


# --- when ------------------------------------------------------------------------------------------------


def test_it_is_looked_at_after_50_requests_and_twice_as_many_each_time_and_at_its_end():
    due = [now for now in range(1, 2001) if looks(now - 1, now, 300)]
    assert due == [50, 100, 200, 300, 400, 800, 1600]


OUTCOMES = {
    **dict.fromkeys(("upstream_error", "upstream_truncated", "timeout", "refused"), True),
    **dict.fromkeys(("ok", "client_error", "cancelled"), False),
}


@pytest.mark.parametrize(("outcome", "counts"), OUTCOMES.items())
def test_a_failure_is_ours_or_the_upstreams(outcome: Any, counts: bool):
    record = Record(
        id="r", time=0.0, policy="p", digest="", dialect="chat", model="auto", stream=False, signals=None,
        outcome=outcome,
    )  # fmt: skip
    assert failed(record) is counts


# --- errors ----------------------------------------------------------------------------------------------


def test_a_policy_that_fails_is_rolled_back_at_the_first_look():
    verdict = judge(canary(), failures(900, 5), failures(50, 20))
    assert verdict.state == "rolled_back"
    assert "error_rate is worse by 0.39" in verdict.reason


def test_a_few_failures_are_no_evidence():
    assert judge(canary(), failures(900, 5), failures(50, 2)).state == "running"


def test_failures_that_sit_in_one_conversation_are_less_evidence_than_as_many_apart():
    apart = Side(requests=200, failures=tuple(Conversation(count=1, total=float(n < 20)) for n in range(200)))
    together = Side(
        requests=200,
        failures=(Conversation(count=20, total=20.0), *(Conversation(count=1, total=0.0) for _ in range(180))),
    )
    assert judge(canary(), failures(2000, 10), apart).state == "rolled_back"
    assert judge(canary(), failures(2000, 10), together).state == "running"


def test_too_few_conversations_say_nothing_whatever_their_size():
    verdict = judge(canary(), failures(900, 5), failures(9, 9, size=20))
    assert verdict.state == "running"
    assert verdict.comparisons[0].worse is None


def test_a_policy_that_is_no_worse_is_promoted_once_it_has_served_enough():
    assert judge(canary(), failures(9000, 45), failures(999, 5)).state == "running"
    verdict = judge(canary(), failures(9000, 45), failures(1000, 5))
    assert verdict.state == "promoted"
    assert "without evidence of being worse" in verdict.reason


def test_a_policy_that_looks_worse_and_may_be_so_by_chance_stays_a_canary():
    verdict = judge(canary(until=100), failures(900, 5), failures(100, 4))
    assert verdict.state == "running"
    assert "may be chance" in verdict.reason


# --- time to first token ---------------------------------------------------------------------------------


def times(count: int, slow: int, size: int = 1, slow_s: float = 5.0) -> Side:
    seconds = tuple((f"c{n // size}", slow_s if n < slow else 0.1 + n / count / 10) for n in range(count))
    return Side(requests=count, times=seconds)


SLOWER = Worse(ttft_p95=0.5)


def test_a_slow_end_that_grew_is_rolled_back():
    verdict = judge(canary(SLOWER), times(2000, 10), times(400, 80))
    assert verdict.state == "rolled_back"
    assert verdict.comparisons[0].stable is not None
    assert verdict.comparisons[0].stable < 0.3
    assert verdict.comparisons[0].tried == 5.0


def test_one_slow_conversation_is_no_evidence():
    lone = Side(requests=100, times=tuple(("slow" if n < 20 else f"c{n}", 5.0 if n < 20 else 0.1) for n in range(100)))
    assert judge(canary(SLOWER), times(2000, 10), lone).state == "running"


def test_few_times_say_nothing_of_their_slow_end():
    verdict = judge(canary(SLOWER, until=40), times(2000, 10), times(40, 40))
    assert verdict.state == "running"
    assert "not enough evidence of ttft_p95" in verdict.reason


# --- feedback --------------------------------------------------------------------------------------------


def opinions(count: int, mean: float, seed: int = 1) -> Side:
    rng = Random(seed)
    each = tuple(Conversation(count=1, total=min(1.0, max(0.0, rng.gauss(mean, 0.1)))) for _ in range(count))
    return Side(requests=10 * count, opinions=each)


LIKED = Worse(quality_difference=0.05)


def test_feedback_that_is_clearly_lower_rolls_back_and_feedback_alike_promotes():
    assert judge(canary(LIKED), opinions(500, 0.8), opinions(100, 0.6, seed=2)).state == "rolled_back"
    assert judge(canary(LIKED), opinions(500, 0.8), opinions(100, 0.8, seed=2)).state == "promoted"


def test_without_feedback_a_canary_with_a_limit_on_it_is_never_promoted():
    verdict = judge(canary(LIKED), opinions(500, 0.8), Side(requests=5000))
    assert verdict.state == "running"
    assert "not enough evidence of quality_difference" in verdict.reason
