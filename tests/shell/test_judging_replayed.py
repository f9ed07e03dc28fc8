"""A running gateway in front of groups that replay how two models really answered: the true gap is known, and found; a
worse model in the small group's place is noticed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import Seen, Step, chat
from tests.shell.test_judging import PARTS
from tests.support.rig import POLICY, Rig, groups, running

pytest.importorskip("pyarrow")

BEFORE, AFTER = 360, 240
POLICY_JUDGED = POLICY + "judge: {share: 1.0, group: judge, budget_per_day: 100000}\n"
Script = Callable[[Seen], Sequence[Step]]


def rows() -> list[dict[str, float]]:
    """How right three models were on each question: the small one, the large one, and one far worse."""
    from evals.bench.judged import DATA, LARGE, SMALL
    from evals.cases import read

    table = read(DATA).columns
    names = {"small": SMALL, "large": LARGE, "worse": "Llama-2-7b-hf"}
    return [{key: table[f"correct:{name}"][n] for key, name in names.items()} for n in range(BEFORE + AFTER)]


def replaying(known: Sequence[dict[str, float]], name: str) -> Script:
    """Answers question N as the model did: rightly or not."""

    def script(seen: Seen) -> Sequence[Step]:
        number = int(seen.json()["messages"][-1]["content"].split()[-1])
        return chat("the right answer" if known[number][name] else f"a wrong answer of {name}")(seen)

    return script


def judging(seen: Seen) -> Sequence[Step]:
    """Knows right from wrong, and nothing else."""
    first, second = ("right" in answer for *_, answer in PARTS.findall(seen.json()["messages"][1]["content"]))
    return chat("C" if first == second else ("A" if first else "B"))(seen)


async def asked(rig: Rig, numbers: range) -> None:
    """Every third question goes to the large group. As many at a time as there is room to judge."""
    for start in range(numbers.start, numbers.stop, 12):
        some = range(start, min(start + 12, numbers.stop))
        await asyncio.gather(*(rig.ask(f"question {n}", score=0.9 if n % 3 == 0 else 0.1) for n in some))
        for _ in range(1000):
            if len(rig.gateway.judging.ledger.of("default")) >= some.stop:
                break
            await asyncio.sleep(0.02)


async def quality(rig: Rig) -> dict[str, Any]:
    async with httpx.AsyncClient(timeout=30) as client:
        return (await client.get(rig.admin + "/admin/quality")).json()


async def test_the_true_gap_of_replayed_answers_is_found_and_a_swapped_model_is_noticed(tmp_path: Path) -> None:
    known = rows()
    async with (
        ScriptedServer(replaying(known, "small")) as small,
        ScriptedServer(replaying(known, "large")) as large,
        ScriptedServer(judging) as judge,
    ):
        yaml = groups({"s": small, "l": large, "j": judge}, {"small": ["s"], "large": ["l"], "judge": ["j"]})
        async with running(tmp_path, yaml, POLICY_JUDGED) as rig:
            await asked(rig, range(BEFORE))
            shown = await quality(rig)
            every = shown["policies"][0]["estimates"][0]
            gaps = [known[n]["small"] - known[n]["large"] for n in range(BEFORE)]
            served_small = [n % 3 != 0 for n in range(BEFORE)]
            to_large = sum(gap for gap, small_ in zip(gaps, served_small, strict=True) if small_) / BEFORE
            to_small = -sum(gap for gap, small_ in zip(gaps, served_small, strict=True) if not small_) / BEFORE
            assert every["n"] == BEFORE
            for name, truth in (("to_large", to_large), ("to_small", to_small)):
                assert every[name]["difference"] == pytest.approx(truth)  # all were judged, by one that does not err
                assert every[name]["low"] <= truth <= every[name]["high"]
            assert not [one for one in shown["alarms"] if one["kind"] == "quality"]

            small.script = replaying(known, "worse")
            await asked(rig, range(BEFORE, BEFORE + AFTER))
            alarms: list[Any] = []
            for _ in range(400):
                alarms = [one for one in (await quality(rig))["alarms"] if one["kind"] == "quality"]
                if alarms:
                    break
                await asyncio.sleep(0.05)
            assert [one["of"] for one in alarms] == ["default"]
