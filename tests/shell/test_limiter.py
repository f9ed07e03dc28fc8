"""Limits counted in memory: what is let through, what waits and how long, and that nothing is kept for ever."""

from __future__ import annotations

from typing import Any

import pytest

from router.seams import Claim
from router.store import limiter
from router.store.limits import MemoryLimiter


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def rate(amount: float = 1.0, **fields: Any) -> Claim:
    given: dict[str, Any] = {"key": "r", "kind": "rate", "limit": 3.0, "period_s": 60.0, "amount": amount}
    return Claim(**given | fields)


def sum_(amount: float = 1.0, **fields: Any) -> Claim:
    given: dict[str, Any] = {"key": "s", "kind": "sum", "limit": 10.0, "period_s": 100.0, "amount": amount}
    return Claim(**given | fields)


def slots(**fields: Any) -> Claim:
    given: dict[str, Any] = {"key": "c", "kind": "slots", "limit": 2.0, "period_s": 50.0}
    return Claim(**given | fields)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def limits(clock: Clock) -> MemoryLimiter:
    return MemoryLimiter(clock=clock)


def test_a_rate_lets_its_limit_through_at_once_and_then_one_each_share_of_the_period(
    limits: MemoryLimiter, clock: Clock
) -> None:
    assert [limits.take([rate()], "h")[0] for _ in range(3)] == [None, None, None]
    assert limits.take([rate()], "h") == [pytest.approx(20.0)]
    clock.now = 20.0
    assert limits.take([rate()], "h") == [None]
    assert limits.take([rate()], "h") == [pytest.approx(20.0)]


def test_a_rate_that_rested_is_whole_again_and_no_more_than_whole(limits: MemoryLimiter, clock: Clock) -> None:
    limits.take([rate(3.0)], "h")
    clock.now = 10_000.0
    assert limits.take([rate(3.0)], "h") == [None]
    assert limits.take([rate(0.1)], "h") == [pytest.approx(2.0)]


def test_a_claim_larger_than_its_rate_is_had_when_nothing_is_used_and_later_ones_wait_for_it(
    limits: MemoryLimiter, clock: Clock
) -> None:
    assert limits.take([rate(6.0)], "h") == [None]
    assert limits.take([rate()], "h") == [pytest.approx(80.0)]
    clock.now = 80.0
    assert limits.take([rate()], "h") == [None]


def test_what_was_reserved_and_not_used_is_given_back(limits: MemoryLimiter) -> None:
    limits.take([rate(3.0), sum_(9.0)], "h")
    limits.settle([rate(-2.0), sum_(-8.0)], "h")
    assert limits.take([rate(2.0), sum_(9.0)], "h") == [None, None]
    assert limits.take([rate(), sum_()], "h") == [pytest.approx(20.0), 100.0]


def test_more_used_than_reserved_is_owed(limits: MemoryLimiter, clock: Clock) -> None:
    limits.take([rate(), sum_()], "h")
    limits.settle([rate(5.0), sum_(12.0)], "h")
    assert limits.take([rate(), sum_()], "h") == [pytest.approx(80.0), 100.0]
    clock.now = 100.0
    assert limits.take([rate(), sum_()], "h") == [None, None]


def test_a_sum_ends_with_its_key(limits: MemoryLimiter, clock: Clock) -> None:
    assert limits.take([sum_(10.0)], "h") == [None]
    clock.now = 40.0
    assert limits.take([sum_(0.5)], "h") == [60.0]
    clock.now = 100.0
    assert limits.take([sum_(10.0)], "h") == [None]


def test_asking_for_nothing_says_whether_anything_is_left(limits: MemoryLimiter) -> None:
    assert limits.take([sum_(0.0)], "h") == [None]
    limits.take([sum_(10.0)], "h")
    assert limits.take([sum_(0.0)], "h") == [100.0]


def test_slots_are_held_until_they_are_given_back_or_run_out(limits: MemoryLimiter, clock: Clock) -> None:
    assert [limits.take([slots()], holder)[0] for holder in "abc"] == [None, None, 0.0]
    limits.settle([slots()], "a")
    limits.settle([slots()], "a")
    assert [limits.take([slots()], holder)[0] for holder in "cd"] == [None, 0.0]
    clock.now = 50.0
    assert limits.take([slots()], "d") == [None]


def test_where_one_claim_is_short_none_is_taken(limits: MemoryLimiter) -> None:
    limits.take([sum_(10.0)], "h")
    assert limits.take([rate(), slots(), sum_()], "h") == [None, None, 100.0]
    assert limits.take([rate(3.0)], "h") == [None]
    assert [limits.take([slots()], holder)[0] for holder in "ab"] == [None, None]


def test_an_optional_claim_that_is_short_keeps_no_other_from_being_taken(limits: MemoryLimiter) -> None:
    limits.take([sum_(10.0)], "h")
    assert limits.take([rate(3.0), sum_(optional=True)], "h") == [None, 100.0]
    assert limits.take([rate()], "h") == [pytest.approx(20.0)]


def test_sums_that_have_ended_are_forgotten(limits: MemoryLimiter, clock: Clock) -> None:
    for day in range(1_000):
        clock.now = day * 100.0
        limits.take([sum_(key=f"s:{day}")], "h")
    assert len(limits) == 1


async def test_without_a_store_limits_are_counted_in_memory() -> None:
    made = limiter(None)
    assert isinstance(made, MemoryLimiter)
    made.take([rate()], "h")
    await made.aclose()
    assert len(made) == 0
