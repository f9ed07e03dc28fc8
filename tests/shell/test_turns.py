"""Large requests begin a few in each round of the loop, and the largest are worked on one at a time beside it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from threading import Event, Lock
from time import perf_counter

from router.turns import BIG, HUGE, SLICE_S, Turns, aside
from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import chat
from tests.support.rig import groups, running


async def begin(turns: Turns, told: list[str], name: str) -> None:
    if (turn := turns.take()) is not None:
        await turn
    told.append(name)
    until = perf_counter() + SLICE_S
    while perf_counter() < until:
        pass


async def test_F17_what_comes_together_begins_in_rounds_with_others_in_between():
    turns, told = Turns(), list[str]()
    loop = asyncio.get_running_loop()

    def beat() -> None:
        told.append("-")
        if told.count("-") < 20:
            loop.call_soon(beat)

    loop.call_soon(beat)
    await asyncio.gather(*[begin(turns, told, name) for name in "abcd"])
    said = "".join(told)
    assert said.replace("-", "") == "abcd"
    assert not any(together in said for together in ("ab", "bc", "cd"))


async def test_what_is_quick_begins_at_once():
    turns, begun = Turns(), perf_counter()
    assert turns.take() is None
    assert turns.take() is None or perf_counter() - begun >= SLICE_S


async def test_a_turn_that_was_given_up_goes_to_the_next():
    turns, told = Turns(), list[str]()
    first, second, third = [asyncio.create_task(begin(turns, told, name)) for name in "abc"]
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.gather(first, third)
    assert told == ["a", "c"]


async def test_small_work_is_done_at_once_and_large_work_while_the_loop_goes_on():
    went_on = Event()
    assert await aside(BIG, went_on.is_set) is False
    for size in (BIG + 1, HUGE + 1):
        went_on.clear()
        asyncio.get_running_loop().call_later(0.01, went_on.set)
        assert await aside(size, went_on.wait, 10.0)


async def test_the_largest_are_worked_on_one_at_a_time():
    alone = Lock()

    def work(number: int) -> int:
        assert alone.acquire(blocking=False)
        Event().wait(0.01)
        alone.release()
        return number

    assert await asyncio.gather(*[aside(HUGE + 1, work, number) for number in range(4)]) == [0, 1, 2, 3]


async def test_F17_long_prompts_at_once_are_all_scored_and_answered(tmp_path: Path):
    async with (
        ScriptedServer(chat("hi")) as a,
        running(tmp_path, groups({"a": a}, {"small": ["a"], "large": ["a"]})) as rig,
    ):
        asked = [
            rig.ask(messages=[{"role": "user", "content": f"Prove that {i} is no prime. " * 1000}]) for i in range(40)
        ]
        replies = await asyncio.gather(*asked)
        assert {reply.status_code for reply in replies} == {200}
