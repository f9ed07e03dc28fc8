"""Bodies made to break a gateway: the right 4xx or an answer, never a 5xx, and the next request is served."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import chat
from tests.support.rig import groups, running

COUNT = 200 if "POINTSMAN_SOAK" not in os.environ else 10_000
ASK = b'"messages":[{"role":"user","content":"x"}]'
BODIES = {
    "nested": (b'{"model":"auto",%b,"x":' % ASK + b"[" * 100_000 + b"]" * 100_000 + b"}", 400),
    "nested and escaped": (b'{"model":"auto",%b,"y":"\\u0041","x":' % ASK + b"[" * 5000 + b"]" * 5000 + b"}", 400),
    "only brackets": (b"[" * 1_000_000, 400),
    "lone surrogate": (b'{"model":"auto","messages":[{"role":"user","content":"\\ud800"}]}', 400),
    "raw surrogate": (b'{"model":"auto","messages":[{"role":"user","content":"\xed\xa0\x80"}]}', 400),
    "NaN": (b'{"model":"auto","temperature":NaN,%b}' % ASK, 400),
    "1e400": (b'{"model":"auto","temperature":1e400,%b}' % ASK, 200),
    "a second model in escapes": (b'{"model":"auto","mod\\u0065l":"small",%b}' % ASK, 400),
    "compressed": (b"\x1f\x8b\x08\x00" + b"x" * 100, 400),
    "33 MB": (b'{"model":"auto",%b,"x":"' % ASK + b"x" * (33 << 20) + b'"}', 413),
    "31 MB": (b'{"model":"auto",%b,"x":"' % ASK + b"x" * (31 << 20) + b'"}', 200),
    "ten million tools": (b'{"model":"auto",%b,"tools":[' % ASK + b"{}," * 10_000_000 + b"{}]}", 400),
    "CSV": (b'{"model":"auto","messages":[{"role":"user","content":"' + b"1,2,3\\n" * 4_000_000 + b'"}]}', 200),
    "many messages": (
        b'{"model":"auto","messages":[' + b",".join([b'{"role":"user","content":"x"}'] * 20_000) + b"]}",
        200,
    ),
}


@pytest.mark.parametrize("name", BODIES)
async def test_F25_a_hostile_body_gets_its_status_and_harms_nobody(tmp_path: Path, name: str) -> None:
    body, expected = BODIES[name]
    async with (
        ScriptedServer(chat("hi")) as a,
        running(tmp_path, groups({"a": a}, {"small": ["a"], "large": ["a"]})) as rig,
    ):
        reply = await rig.client.post("/v1/chat/completions", content=body)
        assert reply.status_code == expected, reply.text[:200]
        if expected != 200:
            assert reply.json()["error"]["type"] == "invalid_request_error"
        assert (await rig.ask()).status_code == 200


async def test_F28_names_of_the_clients_own_choosing_add_no_series(tmp_path: Path) -> None:
    async with (
        ScriptedServer(chat("hi")) as a,
        running(tmp_path, groups({"a": a}, {"small": ["a"], "large": ["a"]})) as rig,
    ):
        metrics = rig.gateway.metrics
        await rig.ask()
        await rig.ask(model="nobody")
        before = metrics.render().count(b"\n")
        for i in range(COUNT):
            headers = {"user-agent": f"agent-{i}", "x-session-id": f"session-{i}"}
            body = {"model": f"model-{i}", "user": f"user-{i}", "messages": [{"role": "user", "content": "hello"}]}
            reply = await rig.client.post("/v1/chat/completions", json=body, headers=headers)
            assert reply.status_code == 404
            reply = await rig.client.get(f"/path-{i}", headers=headers)
            assert reply.status_code == 404
        assert metrics.render().count(b"\n") == before
        assert len(metrics.render()) < 2_000_000
