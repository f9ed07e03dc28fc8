"""The litellm upstream: litellm's real code, its HTTP pointed at the wire formats of three providers."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import struct
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from router.config import Deployment
from router.errors import CannotStart
from router.upstreams.litellm import LitellmUpstream, unsaid
from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import JSON, SSE, Head, Seen, Send, Step, Wait, status
from tests.support.dialects import DIALECTS, body_of, post
from tests.support.rig import running
from tests.wire.published import check_answer, check_event, events
from tests.wire.translated import content, rebuilt
from tests.wire.upstreams import ANSWERS, STREAMS, messages_stream

Script = Callable[[Seen], Sequence[Step]]
SAID = [("text", "Hello world"), ("call", "call_1", "f", '{"a": 1}')]
ONE_GROUP = "version: 1\nname: default\nmodels: [auto]\nroutes: []\ndefault: small\n"


def test_what_litellm_is_not_given_is_known_without_litellm() -> None:
    assert unsaid(b'{"model": "m", "messages": [], "seed": 1, "api_base": "x", "own": 1}') == ("api_base", "own")


async def test_options_that_litellm_does_not_have_stop_the_start() -> None:
    made = LitellmUpstream(Deployment(name="a", upstream="litellm", model="m", options={"api_bse": "x"}))
    with pytest.raises(CannotStart, match="api_bse"):
        await made.start()
    made = LitellmUpstream(Deployment(name="a", upstream="litellm", model="m", dialects=("messages",)))
    with pytest.raises(CannotStart, match="chat dialect"):
        await made.start()


# --- three providers as they stand on the wire ---------------------------------------------------------------


def anthropic(seen: Seen) -> Sequence[Step]:
    blocks = [
        {"type": "text", "text": "Hello world"},
        {"type": "tool_use", "id": "call_1", "name": "f", "input": {"a": 1}},
    ]
    if not seen.json().get("stream"):
        answer = {**ANSWERS["messages"], "content": blocks}
        return [Head(200, JSON), Send(json.dumps(answer).encode())]
    stream = messages_stream(
        [
            ({"type": "text", "text": ""}, [{"type": "text_delta", "text": t} for t in ("Hello ", "world")]),
            (
                {"type": "tool_use", "id": "call_1", "name": "f", "input": {}},
                [{"type": "input_json_delta", "partial_json": '{"a": 1}'}],
            ),
        ],
        "tool_use",
    )
    return [Head(200, SSE), Send(stream)]


def gemini(seen: Seen) -> Sequence[Step]:
    def piece(*parts: Any, finish: str | None = None) -> dict[str, Any]:
        made: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
        usage = {"promptTokenCount": 20, "candidatesTokenCount": 7, "totalTokenCount": 27}
        return {"candidates": [made | ({"finishReason": finish} if finish else {})], "usageMetadata": usage}

    call = {"functionCall": {"name": "f", "args": {"a": 1}}}
    if "stream" not in seen.path:
        return [Head(200, JSON), Send(json.dumps(piece({"text": "Hello world"}, call, finish="STOP")).encode())]
    pieces = [piece({"text": "Hello "}), piece({"text": "world"}), piece(call, finish="STOP")]
    return [Head(200, SSE), Send(b"".join(b"data: " + json.dumps(p).encode() + b"\r\n\r\n" for p in pieces))]


def frame(kind: str, payload: dict[str, Any]) -> bytes:
    """One message of AWS's event stream: lengths and a checksum, headers, payload, a checksum."""
    headers = b""
    for name, value in ((":event-type", kind), (":content-type", "application/json"), (":message-type", "event")):
        headers += bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
    body = json.dumps(payload).encode()
    prelude = struct.pack(">II", 16 + len(headers) + len(body), len(headers))
    start = prelude + struct.pack(">I", binascii.crc32(prelude)) + headers + body
    return start + struct.pack(">I", binascii.crc32(start))


def bedrock(seen: Seen) -> Sequence[Step]:
    usage = {"inputTokens": 20, "outputTokens": 7, "totalTokens": 27}
    tool = {"toolUseId": "call_1", "name": "f"}
    if "stream" not in seen.path:
        blocks = [{"text": "Hello world"}, {"toolUse": {**tool, "input": {"a": 1}}}]
        answer = {"output": {"message": {"role": "assistant", "content": blocks}}, "stopReason": "tool_use"}
        return [Head(200, JSON), Send(json.dumps({**answer, "usage": usage, "metrics": {"latencyMs": 1}}).encode())]
    frames = [
        frame("messageStart", {"role": "assistant"}),
        frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "Hello "}}),
        frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "world"}}),
        frame("contentBlockStop", {"contentBlockIndex": 0}),
        frame("contentBlockStart", {"contentBlockIndex": 1, "start": {"toolUse": tool}}),
        frame("contentBlockDelta", {"contentBlockIndex": 1, "delta": {"toolUse": {"input": '{"a": 1}'}}}),
        frame("contentBlockStop", {"contentBlockIndex": 1}),
        frame("messageStop", {"stopReason": "tool_use"}),
        frame("metadata", {"usage": usage, "metrics": {"latencyMs": 1}}),
    ]
    return [Head(200, {"content-type": "application/vnd.amazon.eventstream"}), Send(b"".join(frames))]


PROVIDERS: dict[str, tuple[str, Script]] = {
    "anthropic": ("anthropic/claude-sonnet-4-5", anthropic),
    "gemini": ("gemini/gemini-2.5-flash", gemini),
    "bedrock": ("bedrock/converse/amazon.nova-pro-v1:0", bedrock),
}
KEY = "sk-canary-0123456789"


def config(server: ScriptedServer, provider: str, more: str = "") -> str:
    model = PROVIDERS[provider][0]
    base = server.base_url.removesuffix("/v1")
    region = ", options: {aws_region_name: us-east-1}" if provider == "bedrock" else ""
    return (
        "version: 1\ngroups: {small: {deployments: [d0]}}\ndeployments:\n"
        f'  d0: {{upstream: litellm, base_url: "{base}", model: "{model}", api_key: {KEY}{region}{more}}}\n'
    )


needs_litellm = pytest.mark.skipif(find_spec("litellm") is None, reason="litellm is not installed")
# litellm's own code warns of its own affairs.
pytestmark = pytest.mark.filterwarnings("default")


def ids_of(said: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Gemini's calls have no ids; litellm makes some up."""
    return [("call", "call_1", *rest[2:]) if rest[0] == "call" else rest for rest in said]


@needs_litellm
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_every_dialect_is_answered_by_each_provider(tmp_path: Path, provider: str) -> None:
    async with (
        ScriptedServer(PROVIDERS[provider][1]) as server,
        running(tmp_path, config(server, provider), ONE_GROUP, None) as rig,
    ):
        for client in DIALECTS:
            whole = await post(rig, client, body_of(client))
            assert whole.status_code == 200, whole.text
            check_answer(client, whole.json())
            assert ids_of(content(client, whole.json())) == SAID
            more = {"stream_options": {"include_usage": True}} if client == "chat" else {}
            stream = await post(rig, client, body_of(client, stream=True, **more))
            found = events(stream.content)
            for name, event in found:
                if event != "[DONE]":
                    check_event(client, name, event)
            assert ids_of(content(client, rebuilt(client, stream.content))) == SAID
            if client == "chat":
                assert found[-1][1] == "[DONE]"
                assert found[-2][1]["choices"] == [], "S12: usage stands beside no choice"
        for record in await rig.records(6):
            assert (record.usage.input, record.usage.output, record.usage.estimated) == (20, 7, False)
        assert len(server.visits) == 6


@needs_litellm
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("stream", [False, True])
async def test_L02_an_always_failing_provider_is_called_once_an_attempt(
    tmp_path: Path, provider: str, stream: bool
) -> None:
    for code in (500, 429):
        async with (
            ScriptedServer(lambda _, code=code: status(code, {"retry-after": "7"})) as server,
            running(tmp_path, config(server, provider), ONE_GROUP, None) as rig,
        ):
            reply = await post(rig, "chat", body_of("chat", stream=stream))
            assert len(server.visits) == 1
            assert reply.status_code == 429 if code == 429 else reply.status_code in (500, 503)
            if code == 429:
                assert reply.headers["retry-after"] == "7"


@needs_litellm
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_X01_nothing_in_a_body_changes_where_or_with_which_key_the_provider_is_called(
    tmp_path: Path, provider: str
) -> None:
    asked: list[str] = []

    async def evil_server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readline()).decode())
        writer.close()

    evil = await asyncio.start_server(evil_server, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{evil.sockets[0].getsockname()[1]}"
    fields = {
        "api_base": url,
        "base_url": url,
        "api_key": "x",
        "custom_llm_provider": "openai",
        "extra_headers": {"authorization": "Bearer x"},
        "headers": {"x-a": "b"},
        "aws_bedrock_runtime_endpoint": url,
        "model_list": [{"model_name": "a", "litellm_params": {"api_base": url}}],
        "fallbacks": ["openai/x"],
        "mock_response": "mocked",
        "num_retries": 5,
        "timeout": 0.001,
    }
    async with (
        ScriptedServer(PROVIDERS[provider][1]) as server,
        running(tmp_path, config(server, provider), ONE_GROUP, None) as rig,
    ):
        for more in (fields, {"metadata": fields}, {"extra_body": fields}, {"litellm_params": fields}):
            reply = await post(rig, "chat", body_of("chat", **more))
            assert reply.status_code == 200, reply.text
            assert set(more) <= set(reply.headers["x-pointsman-dropped"].split(", "))
            assert "Hello world" in reply.text
        assert len(server.visits) == 4
        for visit in server.visits:
            assert KEY in str(visit.seen.headers)
            assert "Bearer x'" not in str(visit.seen.headers)
            assert url not in visit.seen.body.decode()
        png = {"type": "image_url", "image_url": {"url": url + "/a.png"}}
        for part in (png, {"type": "image_url", "image_url": url}, {"type": "file", "file": {"file_id": url}}):
            said = [{"role": "user", "content": [{"type": "text", "text": "see"}, part]}]
            reply = await post(rig, "chat", body_of("chat", messages=said))
            assert (reply.status_code, reply.json()["error"]["code"]) == (400, "remote_media")
        inline = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(b"x").decode()}}
        said = [{"role": "user", "content": [{"type": "text", "text": f"see {url}"}, inline]}]
        assert (await post(rig, "chat", body_of("chat", messages=said))).status_code == 200
    evil.close()
    assert asked == []


@needs_litellm
@pytest.mark.parametrize("stream", [False, True])
async def test_X06_a_providers_words_about_the_key_never_reach_the_client(tmp_path: Path, stream: bool) -> None:
    for code in (400, 401, 404):
        async with (
            ScriptedServer(lambda _, code=code: status(code, message=f"bad key {KEY}")) as server,
            running(tmp_path, config(server, "anthropic"), ONE_GROUP, None) as rig,
        ):
            reply = await post(rig, "chat", body_of("chat", stream=stream))
            assert reply.status_code == (502 if code == 401 else code)
            assert "canary" not in reply.text + str(reply.headers)


@needs_litellm
@pytest.mark.parametrize("stream", [False, True])
async def test_S10_S11_the_provider_is_left_with_the_client(tmp_path: Path, stream: bool) -> None:
    start = STREAMS["messages"][: STREAMS["messages"].index(b"world")].rsplit(b"\n\n", 1)[0] + b"\n\n"
    steps = [Head(200, SSE), Send(start), Wait(30)] if stream else [Wait(30)]
    async with (
        ScriptedServer(lambda _: steps) as server,
        running(tmp_path, config(server, "anthropic"), ONE_GROUP, None) as rig,
    ):
        asking = asyncio.create_task(post(rig, "chat", body_of("chat", stream=stream)))
        while not server.visits:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        asking.cancel()
        for _ in range(200):
            if server.in_flight == 0:
                break
            await asyncio.sleep(0.01)
        assert server.in_flight == 0
        (record,) = await rig.records()
        assert record.outcome == "cancelled"
