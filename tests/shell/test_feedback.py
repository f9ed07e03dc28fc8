"""Feedback on answers: what may be said, by whom, and what it counts for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import chat
from tests.support.keyed import bearer, keyed
from tests.support.rig import POLICY, Rig, groups, running


@pytest.fixture
async def upstream():
    async with ScriptedServer(chat("hi")) as server:
        yield server


def yaml(server: ScriptedServer) -> str:
    return groups({"a": server, "b": server}, {"small": ["a"], "large": ["b"]})


async def say(rig: Rig, request_id: str, **said: Any) -> httpx.Response:
    return await rig.client.post("/v1/feedback", json={"request_id": request_id, **said})


async def told(rig: Rig) -> dict[str, Any]:
    async with httpx.AsyncClient() as client:
        return (await client.get(rig.admin + "/admin/quality")).json()


async def test_a_score_thumbs_or_an_outcome_may_be_given_and_one_of_them_must(
    tmp_path: Path, upstream: ScriptedServer
) -> None:
    async with running(tmp_path, yaml(upstream)) as rig:
        ids = [(await rig.ask(f"q {n}")).headers["x-pointsman-request-id"] for n in range(3)]
        for given in ({"score": 0.25, "label": "meh"}, {"thumbs": "up"}, {"resolved": False}):
            assert (await say(rig, ids.pop(0), **given)).status_code == 200
        for wrong in ({}, {"score": 1, "thumbs": "up"}, {"thumbs": "sideways"}, {"score": 1.5}, {"resolved": "no"}):
            reply = await say(rig, "req_x", **wrong)
            assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_request")
            assert "thumbs" in reply.json()["error"]["message"]
        (shown,) = (await told(rig))["policies"]
        assert shown["feedback"]["n"] == 3
        assert shown["feedback"]["groups"]["small"]["mean"] == pytest.approx((0.25 + 1.0) / 3)
        assert shown["feedback"]["explored"] is None
        await asyncio.to_thread(rig.gateway.recorder.flush)
        found = rig.gateway.recorder.reader.opinions()
        assert [said.label for said, _ in found] == ["meh", "thumbs: yes", "resolved: no"]


async def test_feedback_given_twice_counts_once_with_the_last_score_and_outlives_a_restart(
    tmp_path: Path, upstream: ScriptedServer
) -> None:
    policy = POLICY + "explore: {share: 0.5, within: 1.0}\n"
    async with running(tmp_path, yaml(upstream), policy) as rig:
        request_id = (await rig.ask("q")).headers["x-pointsman-request-id"]
        for score in (0.0, 1.0, 0.5):
            assert (await say(rig, request_id, score=score)).status_code == 200
        (shown,) = (await told(rig))["policies"]
        assert shown["feedback"]["n"] == 1
        await asyncio.to_thread(rig.gateway.recorder.flush)
    async with running(tmp_path, yaml(upstream), policy) as rig:
        for _ in range(400):
            if policies := (await told(rig))["policies"]:
                break
            await asyncio.sleep(0.05)
        ((_, mean),) = [(name, one["mean"]) for name, one in policies[0]["feedback"]["groups"].items()]
        assert mean == 0.5


async def test_a_tenant_judges_its_own_requests_alone(tmp_path: Path, upstream: ScriptedServer) -> None:
    async with keyed(tmp_path, yaml(upstream), {"one": "tenant: acme", "two": "tenant: other"}) as rig:
        body = {"model": "auto", "messages": [{"role": "user", "content": "hello"}]}
        mine = bearer("one") | {"x-score": "0.1"}
        request_id = (await rig.client.post("/v1/chat/completions", json=body, headers=mine)).headers[
            "x-pointsman-request-id"
        ]
        said = {"request_id": request_id, "score": 1.0}
        theirs = await rig.client.post("/v1/feedback", json=said, headers=bearer("two"))
        unknown = await rig.client.post("/v1/feedback", json={**said, "request_id": "req_0"}, headers=bearer("two"))
        assert (theirs.status_code, unknown.status_code) == (404, 404)
        assert theirs.json()["error"]["message"] == unknown.json()["error"]["message"], "nothing tells that it exists"
        assert (await rig.client.post("/v1/feedback", json=said, headers=mine)).status_code == 200
        await asyncio.to_thread(rig.gateway.recorder.flush)
        (kept,) = rig.gateway.recorder.reader.feedback(request_id)
        assert (kept.tenant, kept.score) == ("acme", 1.0)


async def test_feedback_on_explored_requests_moves_a_target_on_quality(
    tmp_path: Path, upstream: ScriptedServer
) -> None:
    policy = (
        POLICY + "explore: {share: 0.5, within: 1.0}\ntarget: {quality_loss: {at_most: 0.02}, bounds: [0.3, 0.7]}\n"
    )
    async with running(tmp_path, yaml(upstream), policy) as rig:
        for start in range(0, 3000, 20):
            asked = (rig.ask(f"q {n}", score=(n % 50) / 100) for n in range(start, start + 20))
            for reply in await asyncio.gather(*asked):
                liked = 1.0 if reply.headers["x-pointsman-group"] == "large" else 0.5
                await say(rig, reply.headers["x-pointsman-request-id"], score=liked)
            if rig.gateway.steering.view()[0]["at"] < 0.5:
                break
        (standing,) = rig.gateway.steering.view()
        assert standing["at"] < 0.5
        (shown,) = (await told(rig))["policies"]
        assert shown["feedback"]["explored"]["high"] < 0.0
