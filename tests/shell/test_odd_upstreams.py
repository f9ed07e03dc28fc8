"""Upstreams that answer otherwise than their API's document says, through a whole gateway."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from router.types import Dialect
from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import JSON, SSE, Head, Reset, Send, Step, Wait, chunk
from tests.support.dialects import DIALECTS, ONE_GROUP, body_of, config, listed, post
from tests.support.rig import Rig, running
from tests.wire.upstreams import messages_stream

PRICE = ", price: {input: 1, output: 2}"
OVERFLOW = {"error": {"message": "This model's maximum context length is 10 tokens", "code": "context_length_exceeded"}}


async def answered(
    folder: Path, client: Dialect, upstream: Dialect, steps: Sequence[Step], then: Any = None, **more: Any
) -> Any:
    """The answer to one request, or what `then` makes of the gateway after it."""
    async with (
        ScriptedServer(lambda _: steps) as server,
        running(folder, config((server, listed(upstream) + PRICE)), ONE_GROUP, None) as rig,
    ):
        reply = await post(rig, client, body_of(client, **more))
        return reply if then is None else await then(rig)


async def newest(rig: Rig) -> Any:
    (record,) = await rig.records()
    return record


@pytest.mark.parametrize("client", DIALECTS)
@pytest.mark.parametrize("upstream", DIALECTS)
async def test_S08_an_error_in_place_of_a_stream_is_the_error_that_it_is(
    tmp_path: Path, client: Dialect, upstream: Dialect
) -> None:
    steps = [Head(200, JSON), Send(json.dumps(OVERFLOW).encode())]
    reply = await answered(tmp_path, client, upstream, steps, stream=True)
    assert reply.status_code == 400
    assert reply.json()["error"]["message"] == OVERFLOW["error"]["message"]


@pytest.mark.parametrize("client", DIALECTS)
@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (JSON, b'[{"error": {"message": "slow down", "code": 429}}]'),
        (JSON, b'{"object": "error", "message": "slow down", "code": 429}'),
        (JSON, b'{"error": "slow down"}'),
        (JSON, b'{"error": {"message": "slow down"}}'),
        (SSE, b'data: {"error": {"message": "slow down"}}\n\n'),
    ],
)
async def test_H03_an_error_of_any_shape_has_that_of_the_dialect_that_was_called(
    tmp_path: Path, client: Dialect, kind: Mapping[str, str], body: bytes
) -> None:
    reply = await answered(tmp_path, client, client, [Head(429, {**kind, "retry-after": "7"}), Send(body)])
    told = reply.json()
    assert (reply.status_code, reply.headers["retry-after"]) == (429, "7")
    assert told["error"]["message"] == "slow down"
    assert told.get("type") == ("error" if client == "messages" else None)


@pytest.mark.parametrize("client", DIALECTS)
@pytest.mark.parametrize("stream", [True, False])
async def test_H03_the_limits_of_an_upstream_are_told_with_its_refusal_and_nothing_else_of_its_headers(
    tmp_path: Path, client: Dialect, stream: bool
) -> None:
    limits = {"x-ratelimit-remaining-requests": "0", "anthropic-ratelimit-tokens-reset": "2026-01-01T00:00:00Z"}
    head = Head(429, {**JSON, **limits, "retry-after": "7", "set-cookie": "a=b", "x-request-id": "theirs"})
    steps = [head, Send(b'{"error": {"message": "slow down"}}')]
    reply = await answered(tmp_path, client, client, steps, stream=stream)
    assert {name: reply.headers.get(name) for name in limits} == limits
    assert reply.headers.get_list("retry-after") == ["7"]
    assert not {"set-cookie", "x-request-id"} & {*reply.headers}
    key = await answered(tmp_path, client, client, [Head(401, {**JSON, **limits}), Send(b"{}")])
    assert (key.status_code, set(limits) & {*key.headers}) == (502, set())


@pytest.mark.parametrize("client", ["chat", "messages"])
async def test_S19_a_messages_stream_that_breaks_off_has_cost_what_came_of_it(tmp_path: Path, client: Dialect) -> None:
    deltas = [{"type": "text_delta", "text": f"w{i} "} for i in range(10)]
    stream = messages_stream([({"type": "text", "text": ""}, deltas)], done=False)
    steps = [Head(200, SSE), Send(stream), Wait(0.05), Reset()]
    record = await answered(tmp_path, client, "messages", steps, newest, stream=True)
    assert (record.outcome, record.partial) == ("upstream_truncated", True)
    assert (record.usage.input, record.usage.output, record.usage.cached) == (20, 10, 5)
    assert record.cost == pytest.approx((20 * 1 + 10 * 2) / 1e6)


@pytest.mark.parametrize("client", ["chat", "messages"])
async def test_S19_the_count_of_a_whole_stream_holds_where_it_ends_without_done(
    tmp_path: Path, client: Dialect
) -> None:
    words = [Send(chunk({"role": "assistant", "content": "a"})) for _ in range(5)]
    usage = {"id": "x", "choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 2}}
    end = [Send(chunk({}, "stop")), Send(f"data: {json.dumps(usage)}\n\n".encode())]
    record = await answered(tmp_path, client, "chat", [Head(200, SSE), *words, *end], newest, stream=True)
    assert (record.outcome, record.partial) == ("ok", False)
    assert (record.usage.input, record.usage.output, record.usage.estimated) == (4, 2, False)


@pytest.mark.parametrize("client", ["chat", "messages"])
async def test_S19_an_answer_without_a_count_has_cost_something(tmp_path: Path, client: Dialect) -> None:
    message = {"role": "assistant", "content": "word " * 40}
    answer = {"id": "x", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    record = await answered(tmp_path, client, "chat", [Head(200, JSON), Send(json.dumps(answer).encode())], newest)
    assert (record.outcome, record.usage.output, record.usage.estimated) == ("ok", 50, True)
    assert record.usage.input > 0
    assert record.cost == pytest.approx((record.usage.input + 50 * 2) / 1e6)


async def test_S07_an_answer_that_never_began_is_not_cut_short_and_costs_nothing(tmp_path: Path) -> None:
    record = await answered(tmp_path, "chat", "chat", [Head(200, JSON), Send(b"[1]")], newest)
    assert (record.outcome, record.partial, record.cost) == ("upstream_error", False, None)


async def test_S08_completions_and_embeddings_tell_an_error_with_status_200_too(tmp_path: Path) -> None:
    steps = [Head(200, JSON), Send(json.dumps(OVERFLOW).encode())]
    async with (
        ScriptedServer(lambda _: steps) as server,
        running(tmp_path, config((server, listed("chat"))), ONE_GROUP, None) as rig,
    ):
        for path, more in (("completions", {"prompt": "p"}), ("embeddings", {"input": "i"})):
            reply = await rig.client.post(f"/v1/{path}", json={"model": "auto", **more})
            assert (reply.status_code, reply.json()["error"]["code"]) == (400, "context_length_exceeded")
