"""Upstreams whose status says something else than their words, and addresses that cannot be called."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import JSON, Head, Script, Seen, Send, Step, chat, chat_answer, status
from tests.support.rig import Rig, groups, running

APART = {"small": ["a"], "large": ["b"]}


def said(code: int, told: Any) -> Script:
    return lambda _: [Head(code, JSON), Send(json.dumps(told).encode())]


def view(rig: Rig) -> tuple[int, bool]:
    seen = rig.gateway.health.of("a", asyncio.get_running_loop().time())
    return int(seen["failures"]), bool(seen["up"])


OUR_ACCOUNT = {
    "xAI": {"code": "invalid argument", "error": "Incorrect API key provided: sk***42. Get one from our console."},
    "Gemini": [
        {
            "error": {
                "code": 400,
                "message": "API key not valid. Please pass a valid API key: sk***42",
                "status": "INVALID_ARGUMENT",
                "details": [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}],
            }
        }
    ],
    "Anthropic": {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": "Your credit balance is too low to use sk***42"},
    },
    "DashScope": {"error": {"code": "Arrearage", "message": "Access denied for sk***42"}},
}


@pytest.mark.parametrize("who", OUR_ACCOUNT)
async def test_L06_X06_a_400_about_our_key_or_account_is_the_deployments_and_its_words_are_not_told(
    tmp_path: Path, who: str
) -> None:
    async with (
        ScriptedServer(said(400, OUR_ACCOUNT[who])) as a,
        ScriptedServer(chat("from b")) as b,
        running(tmp_path, groups({"a": a, "b": b}, APART)) as rig,
    ):
        first, second = await rig.ask(), await rig.ask()
        assert [(r.status_code, r.headers["x-pointsman-attempts"]) for r in (first, second)] == [(200, "2"), (200, "1")]
        assert view(rig) == (1, False)
        b.script = said(400, OUR_ACCOUNT[who])
        last = await rig.ask()
        assert last.status_code == 502
        assert "sk***42" not in last.text


@pytest.mark.parametrize(
    "told",
    [
        {"error": {"message": "Invalid value for 'x': 'Incorrect API key provided'", "code": "invalid_value"}},
        {"error": {"message": "the tool's description says: API key not valid", "code": 400}},
        "Incorrect API key provided",
    ],
)
async def test_L06_a_caller_who_has_such_words_quoted_takes_no_deployment_out(tmp_path: Path, told: Any) -> None:
    async with (
        ScriptedServer(said(400, told)) as a,
        ScriptedServer(chat("from b")) as b,
        running(tmp_path, groups({"a": a, "b": b}, APART)) as rig,
    ):
        assert (await rig.ask()).status_code == 400
        assert (view(rig), b.visits) == ((0, True), [])


@pytest.mark.parametrize("code", [407, 421, 424, 425, 499])
async def test_L06_a_status_of_the_way_there_or_of_the_model_is_no_clients_mistake(tmp_path: Path, code: int) -> None:
    async with (
        ScriptedServer(lambda _: status(code)) as a,
        ScriptedServer(chat("from b")) as b,
        running(tmp_path, groups({"a": a, "b": b}, APART)) as rig,
    ):
        reply = await rig.ask()
        assert (reply.status_code, reply.headers["x-pointsman-attempts"]) == (200, "2")
        assert view(rig)[0] == 1


@pytest.mark.parametrize("code", [400, 413, 422, 500])
async def test_L13_an_overflow_that_no_window_holds_is_told_with_its_code_whatever_the_upstream_called_it(
    tmp_path: Path, code: int
) -> None:
    words = "The input (9000 tokens) is longer than the model's context length (8192 tokens)."
    async with (
        ScriptedServer(said(code, {"object": "error", "message": words, "code": code})) as a,
        running(tmp_path, groups({"a": a}, {"small": ["a"], "large": ["a"]})) as rig,
    ):
        for _ in range(4):
            reply = await rig.ask()
            error = reply.json()["error"]
            assert (reply.status_code, error["code"], error["message"]) == (400, "context_length_exceeded", words)
            assert error["type"] == "invalid_request_error"
        assert view(rig) == (0, True)
        assert {record.outcome for record in await rig.records(4)} == {"client_error"}


PATHS: Mapping[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "chat/completions": ({"messages": [{"role": "user", "content": "x"}]}, {"choices": []}),
    "messages": ({"messages": [{"role": "user", "content": "x"}], "max_tokens": 9}, {"content": []}),
    "responses": ({"input": "x"}, {"output": []}),
    "completions": ({"prompt": "x"}, {"choices": []}),
    "embeddings": ({"input": "x"}, {"data": []}),
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("told", [{}, {"detail": "Not Found"}, {"error": {"message": "no engine", "code": 503}}])
async def test_L07_an_answer_with_status_200_that_answers_nothing_is_a_failure(
    tmp_path: Path, path: str, told: Any
) -> None:
    body, answer = PATHS[path]
    more = ", dialects: [chat, messages, responses, completions, embeddings]"
    async with (
        ScriptedServer(said(200, told)) as a,
        ScriptedServer(said(200, answer)) as b,
        running(tmp_path, groups({"a": a, "b": b}, APART, more)) as rig,
    ):
        reply = await rig.client.post(f"/v1/{path}", json={"model": "auto", **body}, headers={"x-score": "0.1"})
        assert (reply.status_code, reply.headers["x-pointsman-deployment"]) == (200, "b")
        assert view(rig)[0] == 1


@pytest.mark.parametrize("value", ["Fri, 31 Dec 1999 23:59:59 +" + "9" * 23, "31 Dec 99999 23:59:59 GMT", "soon", ""])
async def test_H03_a_retry_after_that_is_no_time_is_none(tmp_path: Path, value: str) -> None:
    async with (
        ScriptedServer(lambda _: status(429, {"retry-after": value})) as a,
        ScriptedServer(chat("from b")) as b,
        running(tmp_path, groups({"a": a, "b": b}, APART)) as rig,
    ):
        reply = await rig.ask()
        assert (reply.status_code, reply.headers["x-pointsman-deployment"]) == (200, "b")


async def test_the_query_and_the_password_of_an_address_are_sent_and_never_told(tmp_path: Path) -> None:
    seen: list[Seen] = []

    def script(request: Seen) -> Sequence[Step]:
        seen.append(request)
        return status(404, message=f"no {request.path}, pass%word") if len(seen) > 1 else chat_answer("ok")

    async with ScriptedServer(script) as a:
        url = a.base_url.replace("http://", "http://ann:pass%25word@") + "?api-version=7&key=s3cret-in-query"
        async with running(tmp_path, groups({"a": url}, {"small": ["a"], "large": ["a"]})) as rig:
            assert (await rig.ask()).status_code == 200
            refused = await rig.ask()
    assert seen[0].path == "/v1/chat/completions?api-version=7&key=s3cret-in-query"
    assert seen[0].headers["authorization"] == "Basic " + base64.b64encode(b"ann:pass%word").decode()
    assert refused.status_code == 404
    assert "s3cret" not in refused.text
    assert "pass" not in refused.text


async def test_L07_X06_a_whole_response_that_failed_is_a_failure_and_tells_nothing_of_our_key(tmp_path: Path) -> None:
    told = {"code": "server_error", "message": "no engine for sk-our-own-key"}
    failed = {"id": "r", "object": "response", "status": "failed", "output": [], "error": told}
    done = {"id": "r", "object": "response", "status": "completed", "output": [], "error": None, "x": "failed"}
    body = {"model": "auto", "input": "x"}
    async with ScriptedServer(said(200, failed)) as a, ScriptedServer(said(200, done)) as b:
        files = groups({"a": a, "b": b}, APART, ", dialects: [responses]").replace("none", "sk-our-own-key")
        async with running(tmp_path, files) as rig:
            reply = await rig.client.post("/v1/responses", json=body, headers={"x-score": "0.1"})
            assert (reply.status_code, reply.headers["x-pointsman-deployment"]) == (200, "b")
            b.script = said(200, failed)
            reply = await rig.client.post("/v1/responses", json=body, headers={"x-score": "0.1"})
            assert reply.status_code >= 500
            assert "sk-our" not in reply.text
