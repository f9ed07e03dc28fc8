"""Hostile bodies and answers in every dialect: never a 5xx of the gateway's own making, never a crash."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from router.types import Dialect
from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import JSON, SSE, Head, Send
from tests.support.dialects import DIALECTS, ONE_GROUP, PATHS, body_of, config, listed, post, speaks
from tests.support.rig import running

each_way = pytest.mark.parametrize(("client", "upstream"), [(a, b) for a in DIALECTS for b in DIALECTS])
FIELD = {"chat": "messages", "messages": "messages", "responses": "input"}
DEEP = b"[" * 100_000 + b"]" * 100_000
VALUES: list[bytes] = [
    DEEP,
    b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
    b"1e400",
    b"-1e400",
    b"NaN",
    b"Infinity",
    b'"\\ud800"',
    b'"\xff"',
    b"123456789012345678901234567890",
    b"null",
    b"{}",
    b"[null]",
    b"[[]]",
    b"true",
    b'[{"role":"user"}]',
    b'[{"role":"user","content":null}]',
    b'[{"role":"alien","content":"x"}]',
    b'[{"role":"user","content":[{"type":"alien","x":1}]}]',
    b'[{"role":"user","content":[null]}]',
    b'[{"role":"user","content":[{"type":"text","text":5}]}]',
    b'[{"role":"user","content":[{"type":"image_url","image_url":{"url":"\\ud83d"}}]}]',
    b'[{"role":"assistant","content":null,"tool_calls":[{}]}]',
    b'[{"role":"assistant","tool_calls":null}]',
    b'[{"role":"tool","content":"x"}]',
    b'[{"type":"function_call"}]',
    b'[{"type":"function_call_output","output":5}]',
    b'[{"type":"reasoning","encrypted_content":5}]',
    b'[{"role":"assistant","content":[{"type":"thinking","signature":5}]}]',
    b'[{"role":"assistant","content":[{"type":"tool_use"}]}]',
    b'[{"role":"user","content":[{"type":"tool_result","content":[{"type":"image"}]}]}]',
]
FIELDS = ("tools", "tool_choice", "max_tokens", "temperature", "stop", "metadata", "thinking", "reasoning", "system")


@each_way
async def test_F25_a_hostile_body_is_never_a_fault_of_the_gateways(
    tmp_path: Path, client: Dialect, upstream: Dialect
) -> None:
    own = {k: v for k, v in body_of(client).items() if k not in ("tools", FIELD[client])}
    async with (
        ScriptedServer(speaks(upstream)) as server,
        running(tmp_path, config((server, listed(upstream))), ONE_GROUP, None) as rig,
    ):
        head = json.dumps(own).encode()[:-1]
        said = b'"%b":[{"role":"user","content":"hi"}]' % FIELD[client].encode()
        bodies = [head + b',"%b":%b}' % (FIELD[client].encode(), value) for value in VALUES]
        bodies += [head + b"," + said + b',"%b":%b}' % (f.encode(), v) for f in FIELDS for v in VALUES[2:13]]
        bodies += [head + b"," + said + b',"own":%b}' % value for value in VALUES[:10]]
        for body in bodies:
            reply = await rig.client.post("/v1" + PATHS[client], content=body)
            assert reply.status_code in (200, 400), (body[:200], reply.text[:200])
            if reply.status_code == 400:
                assert reply.json()["error"]["message"]
        assert (await post(rig, client, body_of(client))).status_code == 200


ANSWERS: list[bytes] = [
    b"{}",
    b'{"choices":[]}',
    b'{"choices":[{}]}',
    b'{"choices":null,"content":null,"output":null}',
    b'{"choices":[{"message":{"content":5,"tool_calls":[{}]}}],"usage":5}',
    b'{"content":[{"type":"alien"}],"usage":{"input_tokens":"many"}}',
    b'{"output":[{"type":"alien"},{"type":"message","content":[null]}],"status":"odd"}',
    b'{"choices":[{"message":{"role":"assistant","content":"' + b"x" * 100_000 + b'"}}]}',
    b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
    b'{"usage":{"prompt_tokens":-5,"completion_tokens":1e400}}',
    b'{"error":{"message":"no"}}',
    b'{"error":"no"}',
    b'{"type":"error","error":null}',
]


@each_way
async def test_a_hostile_answer_is_passed_on_or_a_bad_gateway(
    tmp_path: Path, client: Dialect, upstream: Dialect
) -> None:
    async with (
        ScriptedServer(speaks(upstream)) as server,
        running(tmp_path, config((server, listed(upstream))), ONE_GROUP, None) as rig,
    ):
        for answer in ANSWERS:
            for stream in (False, True):
                whole = [Head(200, JSON), Send(answer)]
                steps = [Head(200, SSE), Send(b"data: " + answer + b"\n\n")] if stream else whole
                server.script = lambda _, steps=steps: steps
                seen = len(server.visits)
                reply = await post(rig, client, body_of(client, stream=stream))
                assert reply.status_code in (200, 400, 502, 503), (answer[:100], reply.text[:300])
                assert "internal" not in reply.text, (answer[:100], reply.text[:300])
                assert len(server.visits) == seen + 1
                rig.gateway.health.succeeded("d0")  # a cooling deployment would not be asked again
