"""A passage passes bytes where the deployment speaks the client's dialect, and translates where it does not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from router.types import Adapt, Deployment, Dialect
from router.wire import CODECS
from router.wire.passage import PATHS, Passage, passage
from tests.wire.translated import BODIES, PAIRS, content
from tests.wire.upstreams import ANSWERS, STREAMS


def way(client: Dialect, *dialects: Dialect, fields: dict[str, Any] | None = None, **more: Any) -> Passage:
    deployment = Deployment(name="d", upstream="openai", model="m", dialects=dialects, **more)
    return passage(
        CODECS[client].decode(json.dumps({**BODIES[client], "stream": True}).encode()), deployment, fields or {}
    )


@pytest.mark.parametrize("client", ["chat", "messages", "responses"])
def test_the_clients_own_dialect_passes(client: Dialect) -> None:
    taken = way(client, "completions", client)
    sent = json.dumps({**BODIES[client], "stream": True}).encode()
    assert taken.body == sent.replace(b'"model": "a"', b'"model": "m"')
    assert (taken.dialect, taken.path, taken.dropped) == (client, PATHS[client], ())
    assert b"u1" in taken.meter().feed(STREAMS[client])


@pytest.mark.parametrize(("client", "upstream"), PAIRS)
def test_another_dialect_is_translated_both_ways(client: Dialect, upstream: Dialect) -> None:
    taken = way(client, "embeddings", upstream)
    assert (taken.dialect, taken.path) == (upstream, PATHS[upstream])
    assert json.loads(taken.body)["model"] == "m"
    assert taken.meter("r", 1.0).feed(STREAMS[upstream])
    answer = json.dumps(ANSWERS[upstream]).encode()
    assert content(client, json.loads(taken.answer(answer, "r", 1.0)))[1] == ("text", "Hello \u2028 world")
    assert taken.usage(answer) == CODECS[upstream].usage(answer)


def test_operators_fields_and_adaptations_reach_both_kinds() -> None:
    passed = way("chat", "chat", fields={"temperature": 0, "tools": None}, adapt=Adapt(developer="system"))
    assert json.loads(passed.body) == {
        "model": "m",
        "messages": BODIES["chat"]["messages"],
        "stream": True,
        "temperature": 0,
    }
    translated = way("messages", "chat", fields={"temperature": 0, "tools": None}, adapt=Adapt(max_tokens="max_tokens"))
    body = json.loads(translated.body)
    assert (body["temperature"], body["max_tokens"], "tools" in body) == (0, 99, False)


def test_a_passed_answer_is_mended() -> None:
    answer = b'{"choices":[{"message":{"tool_calls":[{"id":"1"}]},"finish_reason":"stop"}]}'
    assert b'"finish_reason":"tool_calls"' in way("chat", "chat").answer(answer)


def test_usage_is_withheld_only_where_the_gateway_asked_for_it() -> None:
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":1}}\n\n'
    assert way("chat", "chat", stream_usage=True).meter().feed(usage) == b""
    assert way("chat", "chat").meter().feed(usage) == usage


def test_thoughts_that_do_not_go_along_are_listed() -> None:
    thought = {"role": "assistant", "content": [{"type": "thinking", "thinking": "x", "signature": ""}]}
    body = {**BODIES["messages"], "messages": [{"role": "user", "content": "hi"}, thought]}
    deployment = Deployment(name="d", upstream="openai", model="m", dialects=("messages",))
    taken = passage(CODECS["messages"].decode(json.dumps(body).encode()), deployment, {})
    assert taken.dropped == ("thinking",)
    assert len(json.loads(taken.body)["messages"]) == 1


def test_embeddings_always_pass() -> None:
    deployment = Deployment(name="d", upstream="openai", model="m", dialects=("messages",))
    taken = passage(CODECS["embeddings"].decode(b'{"model":"a","input":"x"}'), deployment, {})
    assert (taken.path, taken.body) == ("/embeddings", b'{"model":"m","input":"x"}')
