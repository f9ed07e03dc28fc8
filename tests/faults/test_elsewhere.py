"""Requests that have to be served by another deployment than the first: the prompt does not fit, the one that a
conversation stays with dies, a name or a certificate is wrong."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from evals.bench.moved import NAME, NEW, OLD, Hosts
from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import SSE, Head, Seen, Send, Step, chat, chunk, status
from tests.support.rig import Rig, groups, running, text
from tests.support.served import serving, write

PINNED = """\
version: 1
name: default
models: [auto]
default: small
pin: {scope: conversation, ttl: 1h}
"""
PHRASES = (
    "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens.",  # OpenAI, vLLM
    "prompt is too long: 210000 tokens > 200000 maximum",  # Anthropic
    "the request exceeds the available context size, try increasing it",  # llama.cpp
    "The input (9000 tokens) is longer than the model's context length (8192 tokens).",  # SGLang
    "Input is too long for requested model.",  # Bedrock
    "input length exceeds the context length",  # Ollama
)


@pytest.mark.parametrize("phrase", PHRASES)
async def test_F26_a_prompt_that_is_too_long_is_served_by_a_larger_window_with_one_more_attempt(
    tmp_path: Path, phrase: str
) -> None:
    async with (
        ScriptedServer(lambda _: status(400, message=phrase)) as a,
        ScriptedServer(chat("it fits")) as b,
        running(tmp_path, groups({"a": a, "b": b}, {"small": ["a"], "large": ["b"]})) as rig,
    ):
        for _ in range(5):
            reply = await rig.ask()
            assert (reply.status_code, reply.headers["x-pointsman-attempts"]) == (200, "2")
        view = rig.gateway.health.of("a", asyncio.get_running_loop().time())
        assert (view["failures"], view["up"]) == (0, True)


async def test_F26_the_same_told_inside_a_stream_before_any_content(tmp_path: Path) -> None:
    event = b'data: {"error": {"message": "%b", "code": "context_length_exceeded"}}\n\n' % PHRASES[0].encode()
    steps: list[Step] = [Head(200, SSE), Send(chunk({"role": "assistant", "content": ""})), Send(event)]
    async with (
        ScriptedServer(lambda _: steps) as a,
        ScriptedServer(chat("it fits")) as b,
        running(tmp_path, groups({"a": a, "b": b}, {"small": ["a"], "large": ["b"]})) as rig,
    ):
        assert text(await rig.events()) == "it fits "
        assert (len(a.visits), len(b.visits)) == (1, 1)


async def test_F26_where_no_window_is_large_enough_the_caller_is_told_so(tmp_path: Path) -> None:
    async with (
        ScriptedServer(chat("never asked")) as a,
        running(tmp_path, groups({"a": a}, {"small": ["a"], "large": ["a"]}, ", context_window: 100")) as rig,
    ):
        reply = await rig.ask("word " * 2000)
        assert reply.status_code == 400
        assert reply.json()["error"]["code"] == "context_length_exceeded"
        assert a.visits == []


CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


async def ask_in_loop(rig: Rig, talk: list[dict[str, Any]]) -> str:
    """One more step of the tool loop; the deployment that served it."""
    talk += [
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c", "content": "ok"},
    ]
    body = {"model": "auto", "messages": talk}
    reply = await rig.client.post("/v1/chat/completions", json=body, headers={"x-session-id": "one"})
    assert reply.status_code == 200
    return reply.headers["x-pointsman-deployment"]


async def test_F27_a_tool_loop_whose_deployment_dies_moves_once_and_stays_there(tmp_path: Path) -> None:
    async with ScriptedServer(chat("a")) as a, ScriptedServer(chat("b")) as b:
        files = groups({"a": a, "b": b}, {"small": ["a", "b"]})
        async with running(tmp_path, files, PINNED) as rig:
            talk: list[dict[str, Any]] = [{"role": "user", "content": "do it"}]
            first = await ask_in_loop(rig, talk)
            assert {await ask_in_loop(rig, talk) for _ in range(8)} == {first}, "no change while it lives"
            dead, other = (a, "b") if first == "a" else (b, "a")
            await dead.stop()
            assert [await ask_in_loop(rig, talk) for _ in range(8)] == [other] * 8
            await dead.start()
            dead.script = chat("back")
            await asyncio.sleep(1.1)
            assert [await ask_in_loop(rig, talk) for _ in range(4)] == [other] * 4, "and not back"


async def test_F29_a_name_that_does_not_resolve_is_one_attempt_and_another_serves(tmp_path: Path) -> None:
    async with ScriptedServer(chat("from b")) as b:
        files = groups({"a": "http://no-such-host.invalid/v1", "b": b}, {"small": ["a"], "large": ["b"]})
        async with running(tmp_path, files) as rig:
            reply = await rig.ask()
            assert (reply.status_code, reply.headers["x-pointsman-deployment"]) == (200, "b")
            assert not rig.gateway.health.of("a", asyncio.get_running_loop().time())["up"]


async def test_F29_a_name_whose_server_has_stopped_is_called_at_its_new_address(tmp_path: Path) -> None:
    hosts = Hosts(tmp_path)
    if not await asyncio.to_thread(hosts.permitted):
        pytest.skip("no hosts file of its own can be mounted here")
    async with (
        ScriptedServer(chat("old"), host=OLD) as old,
        ScriptedServer(chat("new"), old.port, NEW) as new,
        ScriptedServer(chat("other")) as other,
    ):
        hosts.say(OLD)
        named = f"http://{NAME}:{old.port}/v1"
        config = write(tmp_path, groups({"a": named, "b": other}, {"small": ["a"], "large": ["b"]}))
        async with serving(tmp_path, config, before=hosts.before) as (_, client, _):

            async def ask() -> str:
                body = {"model": "auto", "messages": [{"role": "user", "content": "hello"}]}
                reply = await client.post("/v1/chat/completions", json=body, headers={"x-score": "0.1"})
                assert reply.status_code == 200
                return reply.json()["choices"][0]["message"]["content"]

            assert {await ask() for _ in range(5)} == {"old"}
            hosts.say(NEW)
            assert new.visits == []
            await old.stop()
            assert {await ask() for _ in range(5)} == {"new"}


async def test_F29_a_certificate_that_is_not_trusted_gets_no_key_and_another_serves(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    made += ["-keyout", str(key), "-out", str(certificate), "-days", "1", "-subj", "/CN=elsewhere"]
    await asyncio.to_thread(subprocess.run, made, check=True, capture_output=True)
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(certificate, key)
    seen: list[bytes] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.read(65536))
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=own)
    async with server, ScriptedServer(chat("from b")) as b:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        files = groups({"a": url, "b": b}, {"small": ["a"], "large": ["b"]}).replace("none", "sk-not-for-strangers")
        async with running(tmp_path, files) as rig:
            reply = await rig.ask()
            assert (reply.status_code, reply.headers["x-pointsman-deployment"]) == (200, "b")
    assert b"sk-not-for-strangers" not in b"".join(seen)


async def test_F02_one_of_four_that_always_dies_before_content_costs_nobody_an_answer(tmp_path: Path) -> None:
    def dying(seen: Seen) -> Sequence[Step]:
        return status(500)

    async with ScriptedServer(dying) as bad, ScriptedServer(chat("ok")) as good:
        servers = {"a": bad, "b": good, "c": good, "d": good}
        async with running(tmp_path, groups(servers, {"small": list(servers)}), PINNED) as rig:
            replies = await asyncio.gather(*[rig.ask(f"question {i}") for i in range(20)])
            replies += [await rig.ask(f"other question {i}") for i in range(200)]
            assert {reply.status_code for reply in replies} == {200}
            assert max(int(reply.headers["x-pointsman-attempts"]) for reply in replies) <= 3
            assert len(bad.visits) <= 0.1 * len(replies)
