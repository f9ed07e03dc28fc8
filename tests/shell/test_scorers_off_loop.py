"""A blocking scorer off the loop: batches of what waits, a bounded queue, a deadline, and open failure throughout."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from threading import Event

import pytest

from router.scorers.breaker import Breaker
from router.scorers.off_loop import Answer, Estimate, Limits, OffLoop
from router.types import Abstain, Prompt, Score, Signals

HOUR = 3600.0


class Gated:
    """An estimate that records its batches and computes each only when `go` is set; its answer is the text's number."""

    def __init__(self, *, open_: bool = True) -> None:
        self.batches: list[list[str]] = []
        self.go = Event()
        if open_:
            self.go.set()

    def __call__(self, texts: Sequence[str]) -> Sequence[Answer]:
        self.batches.append(list(texts))
        assert self.go.wait(20.0)
        return [float(text) for text in texts]


def always(*answers: Answer) -> Estimate:
    """An estimate that gives these answers whatever it is asked."""
    return lambda texts: answers


@pytest.fixture
async def made() -> AsyncIterator[Callable[..., OffLoop]]:
    every: list[OffLoop] = []

    def make(estimate: Estimate, breaker: Breaker | None = None, **limits: float) -> OffLoop:
        scorer = OffLoop("s", lambda: estimate, Limits(**{"deadline_s": 10.0, **limits}), breaker)  # type: ignore[arg-type]
        scorer.load()
        every.append(scorer)
        return scorer

    yield make
    for scorer in every:
        await scorer.aclose()


async def say(scorer: OffLoop, text: str) -> Score | Abstain:
    answer = scorer.score(Prompt(text=text, signals=Signals()))
    return answer if isinstance(answer, Score | Abstain) else await answer


def why(answers: Sequence[Score | Abstain]) -> Counter[str]:
    return Counter("score" if isinstance(a, Score) else a.reason for a in answers)


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(2000):
        if holds():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never came to hold")


async def test_what_waits_while_a_batch_is_computed_is_the_next_batch(made: Callable[..., OffLoop]) -> None:
    model = Gated(open_=False)
    scorer = made(model, batch=4)
    asked = [asyncio.ensure_future(say(scorer, f"0.{i}")) for i in range(1, 8)]
    await until(lambda: len(model.batches) == 1)
    model.go.set()
    assert await asyncio.gather(*asked) == [Score(scorer="s", value=i / 10) for i in range(1, 8)]
    assert [len(batch) for batch in model.batches] == [1, 4, 2]
    assert [text for batch in model.batches for text in batch] == [f"0.{i}" for i in range(1, 8)]


async def test_F17_what_does_not_fit_the_queue_fails_open_at_once(made: Callable[..., OffLoop]) -> None:
    model = Gated(open_=False)
    scorer = made(model, queue=8, batch=8)
    first = asyncio.ensure_future(say(scorer, "0.5"))
    await until(lambda: len(model.batches) == 1)
    flood = [asyncio.ensure_future(say(scorer, "0.5")) for _ in range(100)]
    await until(lambda: sum(f.done() for f in flood) == 92)
    model.go.set()
    assert why(await asyncio.gather(first, *flood)) == {"score": 9, "overload": 92}
    assert isinstance(await say(scorer, "0.5"), Score)


async def test_L17_the_loop_goes_on_while_the_model_computes(made: Callable[..., OffLoop]) -> None:
    model = Gated(open_=False)
    asked = asyncio.ensure_future(say(made(model), "0.5"))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not asked.done()
    model.go.set()
    assert isinstance(await asked, Score)


async def test_F16_a_model_that_hangs_is_waited_for_five_times(made: Callable[..., OffLoop]) -> None:
    model = Gated(open_=False)
    scorer = made(model, Breaker(cool_s=HOUR), deadline_s=0.02)
    answers = [await say(scorer, "0.5") for _ in range(100)]
    assert why(answers) == {"timeout": 5, "breaker": 95}
    assert len(model.batches) == 1
    model.go.set()


async def test_what_gave_up_before_its_batch_is_not_computed(made: Callable[..., OffLoop]) -> None:
    model = Gated(open_=False)
    scorer = made(model, Breaker(failures=1000), deadline_s=0.02, queue=4)
    for _ in range(20):
        await say(scorer, "0.5")
    model.go.set()
    await until(lambda: len(model.batches) == 1)
    slow = made(model)
    assert isinstance(await say(slow, "0.7"), Score)
    assert model.batches == [["0.5"], ["0.7"]]


async def test_a_probe_finds_a_model_that_is_back(made: Callable[..., OffLoop]) -> None:
    broken = True

    def estimate(texts: Sequence[str]) -> Sequence[Answer]:
        if broken:
            raise MemoryError
        return [0.5] * len(texts)

    scorer = made(estimate, Breaker(cool_s=0.02))
    assert why([await say(scorer, "x") for _ in range(6)]) == {"error": 5, "breaker": 1}
    broken = False
    await asyncio.sleep(0.03)
    assert isinstance(await say(scorer, "x"), Score)
    assert isinstance(await say(scorer, "x"), Score)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -0.1, 1.1, "hard"])
async def test_F16_an_answer_that_is_no_difficulty_is_an_error(made: Callable[..., OffLoop], wrong: Answer) -> None:
    assert why([await say(made(always(wrong)), "x"), await say(made(always()), "x")]) == {"error": 2}


@pytest.mark.parametrize("reason", ["empty", "unsure"])
async def test_a_model_may_say_that_it_cannot_say(made: Callable[..., OffLoop], reason: Answer) -> None:
    scorer = made(always(reason))
    assert why([await say(scorer, "x") for _ in range(8)]) == {reason: 8}


async def test_while_the_model_loads_nobody_waits() -> None:
    gate = Event()

    def make() -> Estimate:
        assert gate.wait(20.0)
        return lambda texts: [0.5] * len(texts)

    scorer = OffLoop("s", make, Limits(deadline_s=HOUR))
    assert why([await say(scorer, "x") for _ in range(9)]) == {"missing": 9}
    offline = OffLoop("s", make, Limits(deadline_s=None))
    asked = asyncio.ensure_future(say(offline, "x"))
    gate.set()
    assert isinstance(await asked, Score)
    scorer.load()
    assert isinstance(await say(scorer, "x"), Score)
    await asyncio.gather(scorer.aclose(), offline.aclose())


async def test_a_model_that_does_not_load_is_an_error() -> None:
    def make() -> Estimate:
        raise OSError("no such file")

    scorer = OffLoop("s", make, Limits(deadline_s=HOUR))
    with pytest.raises(OSError, match="no such file"):
        scorer.load()
    assert why([await say(scorer, "x")]) == {"error": 1}
    await scorer.aclose()


async def test_a_client_that_leaves_costs_no_place_in_the_queue(made: Callable[..., OffLoop]) -> None:
    model = Gated(open_=False)
    scorer = made(model, queue=1)
    first = asyncio.ensure_future(say(scorer, "0.1"))
    await until(lambda: len(model.batches) == 1)
    leaving = asyncio.ensure_future(say(scorer, "0.2"))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    second = asyncio.ensure_future(say(scorer, "0.3"))
    await asyncio.sleep(0)
    model.go.set()
    assert why(await asyncio.gather(first, second)) == {"score": 2}
    assert model.batches == [["0.1"], ["0.3"]]


async def test_closing_lets_go_of_those_who_wait_and_it_can_be_asked_again(made: Callable[..., OffLoop]) -> None:
    model = Gated(open_=False)
    scorer = made(model)
    first = asyncio.ensure_future(say(scorer, "0.1"))
    await until(lambda: len(model.batches) == 1)
    waiting = asyncio.ensure_future(say(scorer, "0.2"))
    await asyncio.sleep(0)
    await scorer.aclose()
    assert why([await waiting]) == {"missing": 1}
    model.go.set()
    assert isinstance(await first, Score)
    scorer.load()
    assert isinstance(await say(scorer, "0.4"), Score)
