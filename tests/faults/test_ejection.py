"""Deployments that fail often or stop answering: who is taken out, who is tried, and what trying again may cost."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from pathlib import Path

from router.config import Config, Deployment, Group, Policy
from router.errors import ConnectFailed, Truncated
from router.health import Health, same_model
from router.plan import plan
from router.retries import MOST, Retries
from router.types import Decision, Signals
from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import SSE, Close, Head, Seen, Send, Step, Wait, chat, chat_answer, chunk, status
from tests.support.rig import groups, running

SMALL_ONLY = "version: 1\nname: default\nmodels: [auto]\ndefault: small\n"


def config(*names: str, max_ejected: float = 0.5) -> Config:
    policy = Policy(name="p", models=("auto",), default="g")
    return Config(
        policies={"p": policy},
        models={"auto": policy},
        groups={"g": Group(name="g", deployments=names, max_ejected=max_ejected)},
        deployments={name: Deployment(name=name, upstream="scripted") for name in names},
        scorers={},
        digest="d",
    )


def known(*names: str, max_ejected: float = 0.5) -> Health:
    health = Health()
    health.use(config(*names, max_ejected=max_ejected))
    return health


def fail_often(health: Health, name: str, now: float) -> None:
    """Two calls in five fail, never three in a row."""
    for i in range(25):
        if i % 5 in (0, 1):
            health.failed(name, "deployment", Truncated("cut"), now)
        else:
            health.succeeded(name)


def out(health: Health, now: float) -> set[str]:
    return set(health.load(now).cooling)


def test_a_deployment_that_fails_often_but_not_in_a_row_is_taken_out() -> None:
    health = known("a", "b", "c", "d")
    fail_often(health, "a", 100.0)
    assert out(health, 101.0) == {"a"}
    assert out(health, 111.0) == set()


def test_F09_one_failure_in_a_hundred_takes_nothing_out() -> None:
    health = known("a", "b")
    for i in range(1000):
        if i % 100 == 0:
            health.failed("a", "deployment", Truncated("cut"), 100.0)
        else:
            health.succeeded("a")
    assert out(health, 100.0) == set()


def test_of_a_group_that_fails_often_as_a_whole_half_stays_in() -> None:
    health = known("a", "b", "c", "d")
    for name in "abcd":
        fail_often(health, name, 100.0)
    assert out(health, 101.0) == {"a", "b"}
    health = known("a", "b", "c", "d", max_ejected=0.25)
    for name in "abcd":
        fail_often(health, name, 100.0)
    assert out(health, 101.0) == {"a"}


def test_when_the_rest_of_its_group_dies_one_that_merely_fails_often_is_let_back_in() -> None:
    health = known("a", "b")
    fail_often(health, "a", 100.0)
    health.failed("b", "deployment", ConnectFailed("refused"), 101.0)
    assert out(health, 101.5) == {"b"}


def test_F03_a_deployment_that_returns_is_tried_with_one_request_at_a_time() -> None:
    known_, health = config("a", "b"), known("a", "b")
    health.failed("a", "deployment", ConnectFailed("refused"), 100.0)
    policy, to = known_.policies["p"], Decision(policy="p", route="r", group="g", why="signal")

    def targets(now: float) -> list[str]:
        load = health.load(now)
        return sorted(t.deployment for t in plan(to, policy, known_, load, Signals(), 0.5).targets)

    assert targets(100.5) == ["b"]
    assert targets(101.5) == ["a", "b"]
    probe = health.begin("a")
    assert probe
    assert targets(101.6) == targets(300.0) == ["b"]
    health.end("a", probe)
    assert targets(300.1) == ["a", "b"]
    probe = health.begin("a")
    health.answering("a")
    assert targets(300.2) == ["a", "b"]
    health.end("a", probe)
    assert health.of("a", 300.3)["in_flight"] == 0


def test_where_nothing_else_can_serve_another_probe_goes_after_a_second() -> None:
    known_, health = config("a"), known("a")
    health.failed("a", "deployment", ConnectFailed("refused"), 100.0)
    policy, to = known_.policies["p"], Decision(policy="p", route="r", group="g", why="signal")
    health.load(101.5)
    health.begin("a")
    waiting = plan(to, policy, known_, health.load(102.0), Signals(), 0.5)
    assert (waiting.targets, waiting.retry_after_s) == ((), 0.5)
    assert len(plan(to, policy, known_, health.load(102.6), Signals(), 0.5).targets) == 1


def test_a_group_tries_again_at_most_a_tenth_of_its_requests_beyond_what_it_saved() -> None:
    retries = Retries()
    paid = 0
    for _ in range(1000):
        retries.request("g")
        paid += retries.take("g", 100.0)
    assert MOST <= paid <= MOST + 100
    assert retries.refused == 1000 - paid
    assert retries.take("other", 100.0)
    assert [retries.take("g", 102.0) for _ in range(3)].count(True) == 2, "a quiet group saves one a second"


async def test_F11_a_group_that_answers_503_as_a_whole_gets_little_more_than_its_requests(tmp_path: Path) -> None:
    turn = itertools.count()

    def broken(seen: Seen) -> Sequence[Step]:
        return chat_answer("ok") if next(turn) % 5 == 0 else status(503)  # never out for long

    async with ScriptedServer(broken) as a, ScriptedServer(broken) as b, ScriptedServer(broken) as c:
        files = groups({"a": a, "b": b, "c": c}, {"small": ["a", "b", "c"]})
        async with running(tmp_path, files, SMALL_ONLY) as rig:
            replies = [await rig.ask() for _ in range(200)]
            attempts = sum(len(server.visits) for server in (a, b, c))
            assert attempts <= 200 * 1.1 + MOST + 5
            failed = [reply for reply in replies if reply.status_code != 200]
            assert {reply.status_code for reply in failed} == {503}
            text = (await rig.client.get(f"{rig.admin}/metrics")).text
            assert "pointsman_retries_refused_total" in text


async def test_F03_a_black_hole_holds_three_requests_and_then_one(tmp_path: Path) -> None:
    async with ScriptedServer(lambda _: [Wait(30)]) as hole, ScriptedServer(chat("ok")) as good:
        files = groups({"a": hole, "b": good}, {"small": ["a", "b"]}, ", timeouts: {first_byte_s: 1.0}")
        async with running(tmp_path, files, SMALL_ONLY) as rig:
            clock = asyncio.get_running_loop().time
            async with asyncio.timeout(60):
                while rig.gateway.health.of("a", clock())["up"]:  # which of the two is asked is chance
                    assert (await rig.ask()).status_code == 200
            for _ in range(5):
                assert (await rig.ask()).status_code == 200
            before = len(hole.visits)
            assert before <= 5
            await asyncio.sleep(1.1)
            assert {r.status_code for r in await asyncio.gather(*[rig.ask() for _ in range(20)])} == {200}
            assert len(hole.visits) - before <= 1


async def test_L07_streams_that_open_well_and_then_die_take_a_deployment_out(tmp_path: Path) -> None:
    dying: list[Step] = [Head(200, SSE), Send(chunk({"content": "half"})), Close()]
    async with (
        ScriptedServer(lambda _: dying) as a,
        running(tmp_path, groups({"a": a, "b": a}, {"small": ["a"], "large": ["b"]})) as rig,
    ):
        for _ in range(3):
            assert (await rig.events())[-1]["error"]["code"] == "upstream_truncated"
        view = rig.gateway.health.of("a", asyncio.get_running_loop().time())
        assert (view["failures"], view["up"]) == (3, False)


async def test_answers_of_another_model_are_counted_and_shown(tmp_path: Path) -> None:
    async with ScriptedServer(chat("ok")) as a:
        files = groups({"a": a, "b": a}, {"small": ["a"], "large": ["b"]}).replace("model: m-b", "model: scripted")
        async with running(tmp_path, files) as rig:
            await rig.ask()
            await rig.events()
            await rig.ask(score=0.9)
            found = (await rig.client.get(f"{rig.admin}/admin/groups")).json()["groups"]
            of = {d["name"]: (d["served_model"], d["other_models"]) for g in found for d in g["deployments"]}
            assert of == {"a": ("scripted", 2), "b": ("scripted", 0)}
            metrics = (await rig.client.get(f"{rig.admin}/metrics")).text
            assert 'pointsman_other_model_total{deployment="a"} 2.0' in metrics


def test_a_version_an_owner_or_a_path_does_not_make_it_another_model() -> None:
    for asked, reported in (
        ("gpt-4o", "gpt-4o-2024-08-06"),
        ("meta-llama/Llama-3.1-8B", "Llama-3.1-8B"),
        ("small", "/models/small.gguf"),
        ("openai/gpt-4o", "GPT-4o"),
    ):
        assert same_model(asked, reported)
    for asked, reported in (("gpt-4o", "gpt-3.5-turbo"), ("big", "small")):
        assert not same_model(asked, reported)


def test_times_to_the_first_token_are_weighed_where_they_differ_much_and_forgotten_where_nothing_comes() -> None:
    health = known("a", "b")
    for _ in range(5):
        health.succeeded("a", 0.1)
        health.succeeded("b", 0.15)
    health.publish()
    assert health.load(100.0).reports == {}
    for _ in range(100):
        health.succeeded("b", 2.0)
    health.publish()
    reports = health.load(100.0).reports
    assert reports["a"].ttft_s is not None
    assert reports["b"].ttft_s is not None
    assert reports["b"].ttft_s > 10 * reports["a"].ttft_s
    for _ in range(40):
        health.publish()
    assert health.load(100.0).reports == {}
