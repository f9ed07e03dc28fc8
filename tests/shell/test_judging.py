"""Answers judged beside the traffic, on a running gateway: who is asked, what comes of it, and who never notices."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import Head, Seen, Step, Wait, chat
from tests.support.rig import POLICY, Rig, groups, running, text

PARTS = re.compile(r"<(\S+) (first answer|second answer)>\n(.*?)\n</\1 \2>", re.DOTALL)


def wants(better: str) -> Callable[[Seen], Sequence[Step]]:
    """A judge that finds the answer with `better` in it better, wherever it stands; C where that tells nothing."""

    def script(seen: Seen) -> Sequence[Step]:
        shown = {name: answer for _, name, answer in PARTS.findall(seen.json()["messages"][1]["content"])}
        first, second = better in shown["first answer"], better in shown["second answer"]
        verdict = "C" if first == second else ("A" if first else "B")
        return chat(verdict)(seen)

    return script


class Servers:
    """A small group, a large one and a judge."""

    def __init__(self, small: Any, large: Any, judge: Any) -> None:
        self.small, self.large, self.judge = ScriptedServer(small), ScriptedServer(large), ScriptedServer(judge)

    async def __aenter__(self) -> Servers:
        for server in (self.small, self.large, self.judge):
            await server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in (self.small, self.large, self.judge):
            await server.stop()

    @property
    def yaml(self) -> str:
        members = {"small": ["s"], "large": ["l"], "judge": ["j"]}
        priced = ", price: {input: 1.0, output: 1.0}"
        return groups({"s": self.small, "l": self.large, "j": self.judge}, members, priced)


def judged(more: str = "group: judge", share: float = 1.0) -> str:
    return POLICY + f"judge: {{share: {share}, {more}}}\n"


async def quality(rig: Rig, samples: int) -> dict[str, Any]:
    """What the admin port says, once so much has been judged."""
    async with httpx.AsyncClient() as client:
        for _ in range(400):
            shown: dict[str, Any] = (await client.get(rig.admin + "/admin/quality")).json()
            done = sum(sum(one["estimates"][0]["verdicts"].values()) for one in shown["policies"])
            if done >= samples:
                return shown
            await asyncio.sleep(0.05)
    raise AssertionError(shown)


async def metrics(rig: Rig) -> str:
    async with httpx.AsyncClient() as client:
        return (await client.get(rig.admin + "/metrics")).text


async def until(holds: Callable[[], Any]) -> None:
    for _ in range(400):
        if holds():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it did not come to that")


# --- what comes of it ------------------------------------------------------------------------------------


async def test_both_directions_are_judged_and_told(tmp_path: Path) -> None:
    async with (
        Servers(chat("cheap words"), chat("dear words"), wants("dear")) as servers,
        running(tmp_path, servers.yaml, judged()) as rig,
    ):
        for n in range(4):
            assert "cheap" in (await rig.ask(f"easy {n}", score=0.1)).text
        for n in range(2):
            assert "dear" in (await rig.ask(f"hard {n}", score=0.9)).text
        (shown,) = (await quality(rig, 6))["policies"]
        every, route = shown["estimates"][:2]
        assert (every["route"], route["route"], every["n"], every["small_served"]) == (None, "difficulty", 6, 4)
        assert every["verdicts"] == {"small_worse": 6, "same": 0, "small_better": 0, "invalid": 0}
        assert every["to_large"]["difference"] == pytest.approx(-4 / 6)
        assert every["to_small"]["difference"] == pytest.approx(2 / 6)
        assert every["to_large"]["low"] <= -4 / 6 <= every["to_large"]["high"]
        assert every["to_large"]["needed"] > 0
        assert shown["sampling"]["might"] == shown["sampling"]["judged"] == 6
        assert shown["sampling"]["cost"] > 0
        assert len(servers.judge.visits) == 12, "both orders each time"
        assert (len(servers.small.visits), len(servers.large.visits)) == (6, 6)
        of_all = b'pointsman_quality_difference{policy="default",route="difficulty"} -0.66'
        await until(lambda: of_all in rig.gateway.metrics.render())  # the first was told of fewer answers
        told = await metrics(rig)
        assert 'pointsman_quality_samples_total{policy="default",verdict="small_worse"} 6.0' in told
        for end in ("low", "high"):
            assert f'pointsman_quality_difference_{end}{{policy="default",route="difficulty"}}' in told


async def test_the_judge_is_told_neither_whose_answers_they_are_nor_which_comes_from_where(tmp_path: Path) -> None:
    async with (
        Servers(chat("cheap words"), chat("dear words"), chat("C")) as servers,
        running(tmp_path, servers.yaml, judged()) as rig,
    ):
        await rig.ask("what is asked", score=0.1)
        (shown,) = (await quality(rig, 1))["policies"]
        assert shown["estimates"][0]["verdicts"]["same"] == 1
        first, second = (visit.seen.json()["messages"][1]["content"] for visit in servers.judge.visits)
        assert [answer for *_, answer in PARTS.findall(first)] == ["cheap words", "dear words"]
        assert [answer for *_, answer in PARTS.findall(second)] == ["dear words", "cheap words"]
        for name in ("small", "large", "m-s", "m-l", "default"):
            assert name not in first.replace("smaller", "")
        assert "what is asked" in first


async def test_a_judge_that_likes_a_place_finds_neither_better(tmp_path: Path) -> None:
    async with (
        Servers(chat("one"), chat("two"), chat("A")) as servers,
        running(tmp_path, servers.yaml, judged()) as rig,
    ):
        await rig.ask("x", score=0.1)
        (shown,) = (await quality(rig, 1))["policies"]
        assert shown["estimates"][0]["verdicts"]["same"] == 1


async def test_a_reply_that_is_no_verdict_is_counted_and_not_estimated_from(tmp_path: Path) -> None:
    async with (
        Servers(chat("one"), chat("two"), chat("It depends.")) as servers,
        running(tmp_path, servers.yaml, judged()) as rig,
    ):
        await rig.ask("x", score=0.1)
        shown = await quality(rig, 1)
        assert shown["policies"][0]["estimates"][0]["verdicts"]["invalid"] == 1
        assert shown["samples"] == 0
        assert "No samples yet" in shown["note"]


async def test_equal_answers_and_checkers_need_no_judge(tmp_path: Path) -> None:
    async with (
        Servers(chat("The answer is 4."), chat("So I think the answer is 4."), chat("A")) as servers,
        running(tmp_path, servers.yaml, judged("checker: same_answer")) as rig,
    ):
        await rig.ask("2 + 2?", score=0.1)
        (shown,) = (await quality(rig, 1))["policies"]
        assert shown["estimates"][0]["verdicts"]["same"] == 1
        servers.small.script = chat("The answer is 5.")
        await rig.ask("2 + 2 again?", score=0.1)
        (shown,) = (await quality(rig, 2))["policies"]
        assert shown["estimates"][0]["verdicts"]["small_worse"] == 1
        assert not servers.judge.visits


async def test_form_is_checked_where_that_is_asked_for(tmp_path: Path) -> None:
    async with (
        Servers(chat("no json"), chat('{"a": 1}'), chat("A")) as servers,
        running(tmp_path, servers.yaml, judged("checker: well_formed")) as rig,
    ):
        await rig.ask("give me json", score=0.1, response_format={"type": "json_object"})
        (shown,) = (await quality(rig, 1))["policies"]
        assert shown["estimates"][0]["verdicts"]["small_worse"] == 1


async def test_a_streamed_answer_is_judged_as_it_was_streamed(tmp_path: Path) -> None:
    async with (
        Servers(chat("cheap words"), chat("dear words"), wants("dear")) as servers,
        running(tmp_path, servers.yaml, judged()) as rig,
    ):
        assert text(await rig.events(score=0.1)).split() == ["cheap", "words"]
        await quality(rig, 1)
        shown = PARTS.findall(servers.judge.visits[0].seen.json()["messages"][1]["content"])
        assert shown[0][2].split() == ["cheap", "words"]
        assert "stream" not in servers.large.visits[0].seen.json()


async def test_samples_outlive_a_restart_and_a_change_of_models_voids_them(tmp_path: Path) -> None:
    async with Servers(chat("cheap words"), chat("dear words"), wants("dear")) as servers:
        async with running(tmp_path, servers.yaml, judged()) as rig:
            await rig.ask("x", score=0.1)
            await quality(rig, 1)
            await rig.records(1)
        async with running(tmp_path, servers.yaml, judged()) as rig:
            assert (await quality(rig, 1))["samples"] == 1
            (rig.config / "groups.yaml").write_text(servers.yaml.replace("m-s,", "m-other,"))
            assert await rig.gateway.reload()
            async with httpx.AsyncClient() as client:
                assert (await client.get(rig.admin + "/admin/quality")).json()["samples"] == 0


async def test_a_target_on_quality_moves_by_judged_answers(tmp_path: Path) -> None:
    target = "target: {quality_loss: {at_most: 0.02}, bounds: [0.3, 0.7]}\n"
    async with Servers(chat("cheap words"), chat("dear words"), wants("dear")) as servers:
        policy = judged("group: judge, budget_per_day: 10000", share=0.3) + target
        async with running(tmp_path, servers.yaml, policy) as rig:
            for start in range(0, 2000, 20):
                await asyncio.gather(*(rig.ask(f"q {n}", score=(n % 100) / 100) for n in range(start, start + 20)))
                if rig.gateway.steering.view()[0]["at"] < 0.5:
                    break
            (told,) = rig.gateway.steering.view()
            assert told["at"] < 0.5
            assert "quality loss" in told["reason"]


# --- who never notices -----------------------------------------------------------------------------------


async def test_shadow_calls_reach_neither_records_nor_savings_nor_pins_nor_limits(tmp_path: Path) -> None:
    async with (
        Servers(chat("cheap words"), chat("dear words"), wants("dear")) as servers,
        running(tmp_path, servers.yaml, judged()) as rig,
    ):
        first = await rig.ask("x", score=0.1)
        await quality(rig, 1)
        (record,) = await rig.records(1)
        assert [attempt.group for attempt in record.attempts] == ["small"]
        told = await metrics(rig)
        assert 'group="large"' not in "".join(
            line for line in told.splitlines(True) if line.startswith(("pointsman_requests", "pointsman_cost"))
        )
        assert 'pointsman_attempts_total{deployment="l"' not in told
        assert first.headers["x-pointsman-attempts"] == "1"
        assert rig.gateway.health.load(0.0).in_flight.get("l", 0) == 0


async def test_the_caller_has_its_answer_while_the_other_group_still_thinks(tmp_path: Path) -> None:
    def slow(seen: Seen) -> Sequence[Step]:
        return [Wait(30.0), *chat("dear words")(seen)]

    async with (
        Servers(chat("cheap words"), slow, wants("dear")) as servers,
        running(tmp_path, servers.yaml, judged()) as rig,
    ):
        assert (await rig.ask("x", score=0.1)).status_code == 200
        await until(lambda: servers.large.in_flight == 1)
        await rig.gateway.judging.aclose()
        await until(lambda: servers.large.in_flight == 0)
        assert not rig.gateway.judging.on, "nothing begins once the gateway drains"
        assert (await rig.ask("y", score=0.1)).status_code == 200
        assert len(servers.large.visits) == 1


@pytest.mark.parametrize("broken", ["large", "judge"])
async def test_K01_a_judge_or_a_group_that_fails_is_counted_and_costs_callers_nothing(
    tmp_path: Path, broken: str
) -> None:
    def down(seen: Seen) -> Sequence[Step]:
        return [Head(500)]

    async with Servers(chat("one"), chat("two"), chat("C")) as servers:
        getattr(servers, broken).script = down
        async with running(tmp_path, servers.yaml, judged()) as rig:
            assert (await rig.ask("x", score=0.1)).status_code == 200
            await until(lambda: rig.gateway.judging.count("default").dropped["failed"] == 1)
            told = await metrics(rig)
            assert 'pointsman_quality_dropped_total{policy="default",reason="failed"} 1.0' in told


async def test_a_budget_is_kept_and_said(tmp_path: Path) -> None:
    async with Servers(chat("one"), chat("two"), chat("C")) as servers:
        async with running(tmp_path, servers.yaml, judged("group: judge, budget_per_day: 2")) as rig:
            for n in range(5):
                await rig.ask(f"x {n}", score=0.1)
            shown = await quality(rig, 2)
            assert shown["policies"][0]["sampling"]["dropped"]["budget"] == 3
        async with running(tmp_path, servers.yaml, judged("group: judge, budget_per_day: 2")) as rig:
            await quality(rig, 2)
            await rig.ask("y", score=0.1)
            assert rig.gateway.judging.count("default").dropped["budget"] == 1, "a restart is no new day"


async def test_gateways_that_share_their_records_share_the_budget(tmp_path: Path) -> None:
    async with Servers(chat("one"), chat("two"), chat("C")) as servers:
        policy = judged("group: judge, budget_per_day: 4")
        async with running(tmp_path, servers.yaml, policy) as one, running(tmp_path, servers.yaml, policy) as other:
            for n in range(3):
                await one.ask(f"x {n}", score=0.1)
            await quality(one, 3)
            await until(lambda: other.gateway.judging.count("default").elsewhere == 3)
            for n in range(3):
                await other.ask(f"y {n}", score=0.1)
            shown = await quality(other, 4)
            assert shown["policies"][0]["sampling"]["today"] == 4
            assert shown["policies"][0]["sampling"]["dropped"]["budget"] == 2


async def test_only_requests_that_the_policy_names_are_judged(tmp_path: Path) -> None:
    async with Servers(chat("one"), chat("two"), chat("C")) as servers:
        policy = judged('group: judge, when: {headers: {x-judge: "yes"}}')
        async with running(tmp_path, servers.yaml, policy) as rig:
            body = {"model": "auto", "messages": [{"role": "user", "content": "x"}]}
            await rig.client.post("/v1/chat/completions", json=body, headers={"x-score": "0.1"})
            await rig.client.post("/v1/chat/completions", json=body, headers={"x-score": "0.1", "x-judge": "yes"})
            shown = await quality(rig, 1)
            assert shown["policies"][0]["sampling"]["might"] == 1


async def test_nothing_is_judged_while_the_other_group_is_busy(tmp_path: Path) -> None:
    async with (
        Servers(chat("one"), chat("two"), chat("C")) as servers,
        running(tmp_path, servers.yaml, judged("group: judge, idle: 1")) as rig,
    ):
        probe = rig.gateway.health.begin("l")
        await rig.ask("x", score=0.1)
        assert rig.gateway.judging.count("default").might == 0
        rig.gateway.health.end("l", probe)
        await rig.ask("y", score=0.1)
        await quality(rig, 1)


async def test_a_group_by_its_name_an_image_and_an_embedding_are_not_judged(tmp_path: Path) -> None:
    async with (
        Servers(chat("one"), chat("two"), chat("C")) as servers,
        running(tmp_path, servers.yaml, judged()) as rig,
    ):
        await rig.ask("x", model="small")
        image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
        await rig.ask(messages=[{"role": "user", "content": [{"type": "text", "text": "x"}, image]}])
        assert rig.gateway.judging.count("default").might == 0


# --- the judge's own error -------------------------------------------------------------------------------


async def test_a_judge_is_put_the_labelled_pairs_once_and_corrected_by_them(tmp_path: Path) -> None:
    rows = [
        {"prompt": f"p{n}", "small": small, "large": large, "better": better}
        for n in range(6)
        for small, large, better in (
            ("dear", "cheap", "small"),
            ("cheap", "dear", "large"),
            ("cheap", "cheap!", "same"),
        )
    ]
    file = tmp_path / "pairs.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    async with Servers(chat("cheap words"), chat("dear words"), wants("dear")) as servers:
        policy = judged(f"group: judge, calibration: {file}")
        async with running(tmp_path, servers.yaml, policy) as rig:
            await until(lambda: "default" in rig.gateway.judging.measured)
            await rig.ask("x", score=0.1)
            (shown,) = (await quality(rig, 1))["policies"]
            assert (shown["judge"]["labelled_pairs"], shown["judge"]["agreement"]) == (18, 1.0)
            asked = len(servers.judge.visits)
            assert asked == 36 + 2
            await rig.records(1)
        async with running(tmp_path, servers.yaml, policy) as rig:
            await until(lambda: "default" in rig.gateway.judging.measured)
            assert rig.gateway.judging.measured["default"].correction is not None
            assert len(servers.judge.visits) == asked, "what it said is kept"


async def test_a_file_of_labels_that_is_none_leaves_the_judge_at_its_word(tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    file.write_text('{"prompt": "p", "small": "a", "large": "b", "better": "mine"}\n')
    async with (
        Servers(chat("one"), chat("two"), chat("C")) as servers,
        running(tmp_path, servers.yaml, judged(f"group: judge, calibration: {file}")) as rig,
    ):
        await rig.ask("x", score=0.1)
        (shown,) = (await quality(rig, 1))["policies"]
        assert "pairs.jsonl:1" in shown["judge"]["why_uncorrected"]
        assert shown["judge"]["worth"] is None


async def test_no_text_of_a_judged_request_is_kept_or_told(tmp_path: Path) -> None:
    async with (
        Servers(chat("cheap words"), chat("costly words"), wants("costly")) as servers,
        running(tmp_path, servers.yaml, judged()) as rig,
    ):
        await rig.ask("the secret question", score=0.1)
        shown = json.dumps(await quality(rig, 1)) + await metrics(rig)
        await rig.records(1)
        rows = rig.gateway.recorder.reader.samples()
        for word in ("secret", "cheap", "costly"):
            assert word not in shown + repr(rows)
