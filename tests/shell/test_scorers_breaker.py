"""The breaker opens after failures in a row, lets one probe at a time through, and believes only the probe."""

from __future__ import annotations

import asyncio

import pytest

from router.scorers.breaker import COOL_MOST_S, Breaker, Reason, guarded

BAD: frozenset[Reason] = frozenset(("timeout", "error"))


def opened(failures: int = 5, cool_s: float = 2.0) -> Breaker:
    """A breaker that has just opened, at time 0."""
    breaker = Breaker(failures=failures, cool_s=cool_s)
    for _ in range(failures):
        assert breaker.admit(0.0) == "plain"
        breaker.conclude("plain", "bad", 0.0)
    return breaker


def test_K02_it_opens_at_the_fifth_failure_in_a_row_and_not_before() -> None:
    breaker = Breaker()
    for verdict in ("bad", "bad", "bad", "bad", "good", "bad", "none", "bad", "bad", "bad"):
        breaker.conclude("plain", verdict, 0.0)
        assert not breaker.open
    breaker.conclude("plain", "bad", 0.0)
    assert breaker.open
    assert breaker.admit(1.0) is None


def test_K02_one_probe_goes_when_the_pause_is_over_and_none_beside_it() -> None:
    breaker = opened()
    assert [breaker.admit(t) for t in (1.9, 2.0, 2.0, 50.0)] == [None, "probe", None, None]
    breaker.conclude("probe", "good", 50.1)
    assert [breaker.admit(50.1) for _ in range(3)] == ["plain"] * 3


def test_each_probe_that_fails_doubles_the_pause_up_to_a_limit() -> None:
    breaker, now = opened(), 0.0
    pauses: list[float] = []
    pause = 2.0
    for _ in range(7):
        now += pause
        assert breaker.admit(now - 0.01) is None
        assert breaker.admit(now) == "probe"
        breaker.conclude("probe", "bad", now)
        pause = min(2 * pause, COOL_MOST_S)
        pauses.append(pause)
    assert pauses[-2:] == [COOL_MOST_S] * 2
    now += pause
    assert breaker.admit(now) == "probe"
    breaker.conclude("probe", "good", now)
    for _ in range(5):
        breaker.conclude("plain", "bad", now)
    assert breaker.admit(now + 2.0) == "probe"  # back to the first pause


@pytest.mark.parametrize("verdict", ["good", "bad", "none"])
def test_what_set_out_before_it_opened_neither_closes_it_nor_keeps_it_open(verdict: str) -> None:
    breaker = opened()
    breaker.conclude("plain", verdict, 1.0)  # type: ignore[arg-type]
    assert breaker.open
    assert breaker.admit(2.0) == "probe"


def test_a_probe_that_is_given_up_lets_another_go() -> None:
    breaker = opened()
    assert breaker.admit(2.0) == "probe"
    breaker.conclude("probe", "none", 2.0)
    assert breaker.open
    assert breaker.admit(2.0) == "probe"


async def test_a_question_that_is_cancelled_or_overflows_is_no_failure() -> None:
    breaker = Breaker(failures=1)

    async def full() -> float | Reason:
        return "overload"

    async def stuck() -> float | Reason:
        await asyncio.sleep(3600.0)
        return 0.5

    assert await guarded(breaker, full, BAD) == "overload"
    asking = asyncio.ensure_future(guarded(breaker, stuck, BAD))
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert not breaker.open


async def test_while_it_is_open_nothing_is_asked() -> None:
    breaker = Breaker(failures=2, cool_s=3600.0)
    asked = 0

    async def fail() -> float | Reason:
        nonlocal asked
        asked += 1
        return "error"

    assert [await guarded(breaker, fail, BAD) for _ in range(50)] == ["error"] * 2 + ["breaker"] * 48
    assert asked == 2
