"""What clients of each dialect send beside the body, and what they ask beside an answer."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import brotli
import pytest
import zstandard

from router.app import PINGS
from router.config import Deployment
from router.exchange import PING, AsgiExchange
from router.types import Dialect
from router.upstreams.openai import OpenAIUpstream
from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import JSON, Head, Seen, Send, Step, chat, status
from tests.support.dialects import DIALECTS, ONE_GROUP, PATHS, body_of, config, listed, post, speaks
from tests.support.rig import running
from tests.wire.published import events

ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "GZIP": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstandard.compress,
    "identity": bytes,
    "gzip, zstd": lambda body: zstandard.compress(gzip.compress(body)),
}


# --- encoded bodies --------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ENCODERS)
async def test_an_encoded_body_is_decoded_and_goes_out_plain(tmp_path: Path, encoding: str) -> None:
    body = json.dumps(body_of("chat")).encode()
    async with (
        ScriptedServer(speaks("chat")) as server,
        running(tmp_path, config((server, listed("chat"))), ONE_GROUP, None) as rig,
    ):
        headers = {"content-encoding": encoding, "content-type": "application/json"}
        for path in ("/v1/chat/completions", "/v1/decision"):
            reply = await rig.client.post(path, content=ENCODERS[encoding](body), headers=headers)
            assert reply.status_code == 200
        (visit,) = server.visits
        assert visit.seen.json() == {**body_of("chat"), "model": "m-up"}
        assert "content-encoding" not in visit.seen.headers


async def test_Q09_an_encoded_body_is_held_to_the_limit_of_a_plain_one(tmp_path: Path) -> None:
    bomb = b'{"model": "auto", "messages": [{"role": "user", "content": "' + b"x" * (33 << 20) + b'"}]}'
    async with (
        ScriptedServer(speaks("chat")) as server,
        running(tmp_path, config((server, listed("chat"))), ONE_GROUP, None) as rig,
    ):
        for encoding in ("gzip", "deflate", "br", "zstd"):
            small = brotli.compress(bomb, quality=1) if encoding == "br" else ENCODERS[encoding](bomb)
            reply = await rig.client.post("/v1/chat/completions", content=small, headers={"content-encoding": encoding})
            assert (reply.status_code, reply.json()["error"]["code"]) == (413, "request_too_large")
        assert server.visits == []


@pytest.mark.parametrize(
    ("encoding", "body", "code"),
    [
        ("lzma", b"x", 415),
        ("gzip, gzip, gzip, gzip", b"x", 415),
        ("gzip", b"no gzip", 400),
        pytest.param("gzip", gzip.compress(b"{}" * 100)[:-9], 400, id="gzip cut"),  # its bytes hold the time of day
        pytest.param("gzip", gzip.compress(b"") * 100_000, 400, id="gzip of 100,000 members"),
        ("br", b"\xff\xff\xff", 400),
        ("br", brotli.compress(b"{}" * 100)[:-3], 400),
        ("br", b"", 400),
        ("zstd", b"\x28\xb5\x2f\xfd\xff\xff", 400),
        ("zstd", zstandard.compress(b'{"model": "auto"}' * 100)[:-5], 400),
        ("deflate", b"\x78\x9c\x00", 400),
    ],
    ids=lambda value: repr(value)[:24],
)
async def test_F25_a_broken_encoding_is_a_4xx(tmp_path: Path, encoding: str, body: bytes, code: int) -> None:
    async with (
        ScriptedServer(speaks("chat")) as server,
        running(tmp_path, config((server, listed("chat"))), ONE_GROUP, None) as rig,
    ):
        reply = await rig.client.post("/v1/messages", content=body, headers={"content-encoding": encoding})
        assert (reply.status_code, reply.json()["type"]) == (code, "error")
        assert server.visits == []


# --- paths -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_query_strings_and_a_trailing_slash_change_nothing(tmp_path: Path, dialect: Dialect) -> None:
    async with (
        ScriptedServer(speaks(dialect)) as server,
        running(tmp_path, config((server, listed(dialect))), ONE_GROUP, None) as rig,
    ):
        for path in (PATHS[dialect] + "?beta=true", PATHS[dialect] + "/", PATHS[dialect] + "/?beta=true"):
            assert (await rig.client.post("/v1" + path, json=body_of(dialect))).status_code == 200
        assert {visit.seen.path for visit in server.visits} == {"/v1" + PATHS[dialect]}
        assert (await rig.client.get("/v1/models/")).json()["object"] == "list"


async def test_errors_beside_inference_have_the_shape_that_the_client_reads(tmp_path: Path) -> None:
    async with (
        ScriptedServer(speaks("chat")) as server,
        running(tmp_path, config((server, listed("chat"))), ONE_GROUP, None) as rig,
    ):
        for method, path, code in (("GET", "/v1/messages", 405), ("GET", "/v1/messages/batches", 404)):
            reply = await rig.client.request(method, path)
            assert (reply.status_code, reply.json()["type"]) == (code, "error")
        told = (await rig.client.get("/v1/models/none", headers={"anthropic-version": "2023-06-01"})).json()
        assert (told["type"], told["error"]["type"]) == ("error", "not_found_error")
        assert "type" not in (await rig.client.get("/v1/models/none")).json()


# --- headers ---------------------------------------------------------------------------------------------


async def test_H01_each_header_reaches_only_the_apis_that_it_belongs_to(tmp_path: Path) -> None:
    given = {
        "anthropic-beta": "b-1",
        "anthropic-version": "2099-01-01",
        "openai-beta": "o-1",
        "traceparent": "00-1-2-01",
        "idempotency-key": "k-1",
    }
    canaries = dict.fromkeys(("authorization", "x-api-key", "x-goog-api-key", "cookie", "x-internal-a"), "canary")
    for upstream in DIALECTS:
        for client in DIALECTS:
            async with (
                ScriptedServer(speaks(upstream)) as server,
                running(tmp_path, config((server, listed(upstream))), ONE_GROUP, None) as rig,
            ):
                assert (await post(rig, client, body_of(client), **given, **canaries)).status_code == 200
                seen = server.visits[0].seen.headers
                assert "canary" not in str(seen)
                own = {"anthropic-beta", "anthropic-version"} if upstream == "messages" else {"openai-beta"}
                assert {name for name in given if name in seen} == own | {"traceparent", "idempotency-key"}
                assert all(seen[name] == given[name] for name in own)


async def test_H02_a_messages_upstream_gets_its_key_and_version_and_no_key_of_the_clients(tmp_path: Path) -> None:
    keyed = "dialects: [messages, chat], api_key: sk-upstream"
    async with (
        ScriptedServer(speaks("messages")) as server,
        running(tmp_path, config((server, keyed)), ONE_GROUP, None) as rig,
    ):
        assert (await post(rig, "messages", body_of("messages"), **{"x-api-key": "canary"})).status_code == 200
        seen = server.visits[0].seen.headers
        assert (seen["x-api-key"], seen["authorization"]) == ("sk-upstream", "Bearer sk-upstream")
        assert seen["anthropic-version"] == "2023-06-01"
        server.script = speaks("chat")
        await post(rig, "chat", body_of("chat"))
        assert "x-api-key" not in server.visits[1].seen.headers
        assert "anthropic-version" not in server.visits[1].seen.headers


@pytest.mark.parametrize("host", ["api.anthropic.com", "anthropic.com"])
def test_anthropic_itself_gets_its_key_in_x_api_key_alone(host: str) -> None:
    made = OpenAIUpstream(Deployment(name="a", upstream="openai", base_url=f"https://{host}/v1", api_key="sk-ant"))
    assert made.keys("/messages") == [("x-api-key", "sk-ant")]
    assert made.keys("/chat/completions") == [("authorization", "Bearer sk-ant")]


# --- silence ---------------------------------------------------------------------------------------------


async def test_S06_a_silent_stream_is_kept_open_in_a_way_that_its_client_knows() -> None:
    for dialect in DIALECTS:
        sent: list[Any] = []

        async def send(message: Any, sent: list[Any] = sent) -> None:
            sent.append(message)

        exchange = AsgiExchange(_never, send, PINGS.get(dialect, PING))
        await exchange.ping([b"content-type: text/event-stream"])
        assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
        if dialect == "messages":
            assert events(sent[1]["body"]) == [("ping", {"type": "ping"})]
        else:
            assert sent[1]["body"].startswith(b":")
            assert events(sent[1]["body"]) == []


async def _never() -> Any:
    raise AssertionError("nothing is read here")


# --- counting --------------------------------------------------------------------------------------------

COUNT = "/v1/messages/count_tokens"


def counts(answer: bytes, code: int = 200) -> Callable[[Seen], Sequence[Step]]:
    return lambda seen: [Head(code, JSON), Send(answer)] if seen.path.endswith("/count_tokens") else status(500)


async def test_a_deployment_that_speaks_messages_counts_itself(tmp_path: Path) -> None:
    async with (
        ScriptedServer(counts(b'{"input_tokens": 1234}')) as server,
        running(tmp_path, config((server, listed("messages"))), ONE_GROUP, None) as rig,
    ):
        body = body_of("messages")
        del body["max_tokens"]
        reply = await rig.client.post(COUNT + "?beta=true", json=body, headers={"anthropic-beta": "b-1"})
        assert reply.json() == {"input_tokens": 1234}
        assert (reply.headers["x-pointsman-count"], reply.headers["x-pointsman-deployment"]) == ("upstream", "d0")
        (visit,) = server.visits
        assert visit.seen.path == COUNT
        assert visit.seen.json() == {**body, "model": "m-up"}
        assert (visit.seen.headers["anthropic-version"], visit.seen.headers["anthropic-beta"]) == ("2023-06-01", "b-1")
        server.script = counts(b'{"type": "error", "error": {"type": "invalid_request_error", "message": "no"}}', 400)
        reply = await rig.client.post(COUNT, json=body)
        assert (reply.status_code, reply.json()["error"]["message"]) == (400, "no")


@pytest.mark.parametrize(
    ("dialect", "script"),
    [
        ("chat", chat("hi")),
        ("messages", lambda _: status(404)),
        ("messages", lambda _: status(500)),
        ("messages", counts(b"[]")),
        ("messages", counts(b'{"input_tokens": "many"}')),
    ],
)
async def test_where_no_deployment_counts_the_gateway_estimates(tmp_path: Path, dialect: str, script: Any) -> None:
    async with (
        ScriptedServer(script) as server,
        running(tmp_path, config((server, listed(dialect))), ONE_GROUP, None) as rig,
    ):
        text = "word " * 4000
        reply = await rig.client.post(COUNT, json={"model": "auto", "messages": [{"role": "user", "content": text}]})
        assert 4000 <= reply.json()["input_tokens"] <= 6000
        assert reply.headers["x-pointsman-count"] == "estimate"
        for body, code in ((b"{", 400), (b'{"model": "no", "messages": []}', 404)):
            reply = await rig.client.post(COUNT, content=body)
            assert (reply.status_code, reply.json()["type"]) == (code, "error")


# --- completions and embeddings --------------------------------------------------------------------------


async def test_completions_and_embeddings_pass_unchanged_and_are_never_translated(tmp_path: Path) -> None:
    answers = {
        "/v1/completions": b'{"choices": [{"text": "x"}],  "usage": {"prompt_tokens": 3, "completion_tokens": 2}}',
        "/v1/embeddings": b'{"data": [{"embedding": [0.1]}],  "usage": {"prompt_tokens": 3}}',
    }
    asked = {
        "/v1/completions": b'{"model" : "auto", "prompt": ["a", "b"], "own": 1}',
        "/v1/embeddings": b'{"model" : "auto", "input": [1, 2], "dimensions": 8}',
    }
    async with (
        ScriptedServer(lambda seen: [Head(200, JSON), Send(answers[seen.path])]) as server,
        running(tmp_path, config((server, listed("chat"))), ONE_GROUP, None) as rig,
    ):
        for path, body in asked.items():
            reply = await rig.client.post(path, content=body)
            assert (reply.status_code, reply.content) == (200, answers[path])
            assert server.visits[-1].seen.body == body.replace(b'"auto"', b'"m-up"')
        found = {record.dialect: record.usage.input for record in await rig.records(2)}
        assert found == {"completions": 3, "embeddings": 3}
    async with (
        ScriptedServer(speaks("messages")) as server,
        running(tmp_path, config((server, listed("messages"))), ONE_GROUP, None) as rig,
    ):
        for path, body in asked.items():
            reply = await rig.client.post(path, content=body)
            assert (reply.status_code, reply.json()["error"]["param"]) == (400, "model")
        assert server.visits == []


# --- decisions -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        ("chat", {"messages": [{"role": "user", "content": "hi"}]}),
        ("messages", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1, "system": "s"}),
        ("responses", {"input": "hi"}),
        ("completions", {"prompt": "hi"}),
        ("embeddings", {"input": "hi"}),
    ],
)
async def test_a_decision_is_told_for_every_dialect(tmp_path: Path, dialect: str, body: dict[str, Any]) -> None:
    policy = (
        "version: 1\nname: default\nmodels: [auto]\ndefault: small\nroutes:\n"
        f"  - {{name: seen, when: {{dialect: {dialect}, prompt_chars: 2}}, group: small}}\n"
    )
    async with (
        ScriptedServer(speaks("chat")) as server,
        running(tmp_path, config((server, listed("chat"))), policy, None) as rig,
    ):
        query = "?dialect=embeddings" if dialect == "embeddings" else ""
        told = (await rig.client.post("/v1/decision" + query, json={"model": "auto", **body})).json()
        assert told["route"] == "seen"
        assert (await rig.client.post("/v1/decision?dialect=soap", json={"model": "auto"})).status_code == 400
        assert server.visits == []
