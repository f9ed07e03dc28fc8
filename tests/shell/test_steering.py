"""Thresholds that a target moves, on a running gateway: what requests, records, metrics and a restart see of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from router import explain
from router.changes import KEPT, Change, Changes, key
from router.config import Config, Goal, Limit, Policy
from router.decide import decide
from router.metrics import Metrics
from router.steering import EVERY, Steering
from router.types import Cut, Decision, Record
from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import chat
from tests.core.test_steer import TWO, policy
from tests.support.rig import POLICY, Rig, groups, running

TARGET = "target: {large_share: {at_most: 0.2}, bounds: [0.4, 0.55]}\n"


@pytest.fixture
async def upstream():
    async with ScriptedServer(chat("hi")) as server:
        yield server


def yaml(server: ScriptedServer) -> str:
    return groups({"a": server, "b": server}, {"small": ["a"], "large": ["b"]})


async def shown(rig: Rig, path: str) -> httpx.Response:
    async with httpx.AsyncClient() as client:
        return await client.get(rig.admin + path)


async def drift(rig: Rig, count: int = 300) -> None:
    """Traffic that the threshold as written sends large, half of it."""
    for start in range(0, count, 25):
        asked = (rig.ask(f"question {n}", score=0.9 if n % 2 else 0.1) for n in range(start, start + 25))
        await asyncio.gather(*asked)


async def test_a_threshold_moves_for_its_target_and_everyone_is_told(tmp_path: Path, upstream: ScriptedServer) -> None:
    async with running(tmp_path, yaml(upstream), POLICY + TARGET) as rig:
        assert (await rig.ask("x", score=0.52)).headers["x-pointsman-group"] == "large"
        await drift(rig)
        rig.gateway.steering.look()
        moved = await rig.ask("y", score=0.52)
        assert (moved.headers["x-pointsman-group"], moved.headers["x-pointsman-policy"][:8]) == ("small", "default@")
        (record,) = await rig.records()
        assert record.decision is not None
        assert record.decision.cut == Cut(base=0.5, at=record.decision.threshold or 0.0)
        text = (await shown(rig, "/metrics")).text
        assert 'pointsman_threshold{policy="default",route="difficulty"} 0.55' in text
        (told,) = (await shown(rig, "/admin/config")).json()["thresholds"]
        assert (told["base"], told["at"], told["bounds"], told["moves"]) == (0.5, 0.55, [0.4, 0.55], 1)
        answer = await rig.client.post(
            "/v1/decision",
            json={"model": "auto", "messages": [{"role": "user", "content": "z"}]},
            headers={"x-score": "0.52"},
        )
        assert "threshold 0.55 (base 0.5, target +0.0500)" in answer.json()["explanation"]["because"]


async def test_a_recorded_decision_under_a_moved_threshold_replays(tmp_path: Path, upstream: ScriptedServer) -> None:
    async with running(tmp_path, yaml(upstream), POLICY + TARGET) as rig:
        await drift(rig)
        rig.gateway.steering.look()
        await rig.ask("y", score=0.52)
        (record,) = await rig.records()
        config = rig.gateway.snapshot.config
        assert record.signals is not None
        assert record.load is not None
        chosen = config.policies[record.policy]
        assert decide(chosen, record.signals, record.scores, record.pinned, record.load) == record.decision
        told = explain.explain(config, chosen, record.signals, record.scores, record.pinned, record.load, record.draw)
        assert "below 0.55 (base 0.5, target +0.0500) small" in told.routes[0].leads


async def test_a_restart_goes_on_from_where_the_threshold_stood(tmp_path: Path, upstream: ScriptedServer) -> None:
    async with running(tmp_path, yaml(upstream), POLICY + TARGET) as rig:
        await drift(rig)
        rig.gateway.steering.look()
    async with running(tmp_path, yaml(upstream), POLICY + TARGET) as rig:
        assert (await rig.ask("x", score=0.52)).headers["x-pointsman-group"] == "small"
    async with running(tmp_path, yaml(upstream), POLICY + TARGET.replace("0.2}", "0.3}")) as rig:
        assert (await rig.ask("x", score=0.52)).headers["x-pointsman-group"] == "large", "another target begins anew"


async def test_a_reload_keeps_the_threshold_of_a_policy_that_stays_and_forgets_that_of_one_that_changed(
    tmp_path: Path, upstream: ScriptedServer
) -> None:
    async with running(tmp_path, yaml(upstream), POLICY + TARGET) as rig:
        await drift(rig)
        rig.gateway.steering.look()
        (rig.config / "groups.yaml").write_text(yaml(upstream) + "# a comment\n")
        assert await rig.gateway.reload()
        assert (await rig.ask("x", score=0.52)).headers["x-pointsman-group"] == "small"
        assert 'pointsman_threshold{policy="default",route="difficulty"} 0.55' in (await shown(rig, "/metrics")).text
        (rig.config / "default.yaml").write_text(POLICY)
        assert await rig.gateway.reload()
        assert (await rig.ask("x", score=0.52)).headers["x-pointsman-group"] == "large"
        assert (await shown(rig, "/admin/config")).json()["thresholds"] == []


# --- without sockets -------------------------------------------------------------------------------------


def config(*policies: Policy) -> Config:
    named = {one.name: one for one in policies}
    return Config(policies=named, models={}, groups={}, deployments={}, scorers={}, digest="d" * 64)


def decided(score: float, **more: Any) -> Record:
    large = score >= 0.5
    made = Decision(policy="p", route="d", group="large" if large else "small", why="score", scorer="s", score=score)
    return Record(
        id="r", time=0.0, policy="p", digest="", dialect="chat", model="auto", stream=False, signals=None, decision=made
    )


def test_nothing_moves_before_enough_has_come_since_the_last_look() -> None:
    steering = Steering(Metrics(config()), Changes(None), clock=lambda: 1.0)
    steering.use(config(policy(TWO)))
    for n in range(EVERY - 1):
        steering.observe(decided(n / EVERY))
    assert steering.look() == []
    assert steering.view()[0]["reason"] == "nothing seen yet"
    steering.observe(decided(0.9))
    assert steering.look() == []
    assert steering.view()[0]["state"] == "frozen"


def test_a_policy_without_a_target_is_not_watched() -> None:
    steering = Steering(Metrics(config()), Changes(None))
    steering.use(config(policy(TWO, None)))
    steering.observe(decided(0.9))
    assert (steering.view(), steering.look(), steering.cuts) == ([], [], {})


def test_judged_answers_move_a_quality_target() -> None:
    from router.steer import Judged

    steering = Steering(Metrics(config()), Changes(None))
    steering.use(config(policy(TWO, Goal(quality_loss=Limit(at_most=0.02), bounds=(0.2, 0.8)))))
    for n in range(300):
        steering.observe(decided(n / 300))
    assert steering.look() == []
    assert "judged" in steering.view()[0]["reason"]
    compared = [Judged(score=n / 200, loss=0.3) for n in range(100)]
    steering.judged("p", "d", compared)
    steering.judged("p", "other", compared)
    for n in range(100):
        steering.observe(decided(n / 100))
    (change,) = steering.look()
    assert change.now == pytest.approx(0.45)


def change(number: int, of: str = "d") -> Change:
    return Change(
        time=float(number),
        kind="threshold",
        policy="p",
        of=of,
        stands_for="x",
        now=number / 1e6,
        before=0.5,
        why="w" * 80,
    )


async def test_the_file_of_changes_is_read_back_private_and_shortened(tmp_path: Path) -> None:
    path = tmp_path / "state" / "changes.jsonl"
    first = Changes(path)
    first.note(change(0, of="old"))
    for n in range(30_000):
        if n % 5_000 == 0:
            await first.aclose()
            first = Changes(path)
        first.note(change(n))
    await first.aclose()
    assert path.stat().st_mode & 0o777 == 0o600
    lines = path.read_bytes().splitlines()
    assert len(lines) < 30_000
    assert len(lines) >= KEPT
    path.write_bytes(path.read_bytes() + b'{"time": 1, "ki')
    again = Changes(path)
    assert again.last[key(change(0))].now == pytest.approx(29_999 / 1e6)
    assert again.last[key(change(0, of="old"))].now == 0.0
    await again.aclose()


async def test_a_state_folder_that_cannot_be_written_costs_the_memory_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    changes = Changes(tmp_path / "file" / "changes.jsonl")
    changes.note(change(1))
    await changes.aclose()
    assert changes.last[key(change(1))].now == 1e-6
