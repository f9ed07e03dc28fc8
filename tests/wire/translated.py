"""Translations at work: requests of each dialect, their answers, and what an answer says without its dialect."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from router.errors import BadRequest
from router.types import Dialect
from router.wire import CODECS
from router.wire.translate import Translation, translate
from tests.wire.published import check_request, events

TOOLS: dict[Dialect, list[Any]] = {
    "chat": [{"type": "function", "function": {"name": n, "parameters": {"type": "object"}}} for n in "fg"],
    "messages": [{"name": n, "input_schema": {"type": "object"}} for n in "fg"],
    "responses": [{"type": "function", "name": n, "parameters": {"type": "object"}, "strict": False} for n in "fg"],
}
BODIES: dict[Dialect, dict[str, Any]] = {
    "chat": {"model": "a", "messages": [{"role": "user", "content": "hi"}], "tools": TOOLS["chat"]},
    "messages": {
        "model": "a",
        "max_tokens": 99,
        "messages": [{"role": "user", "content": "hi"}],
        "tools": TOOLS["messages"],
    },
    "responses": {"model": "a", "input": "hi", "tools": TOOLS["responses"]},
}
PAIRS = [(a, b) for a in BODIES for b in BODIES if a != b]
each_pair = pytest.mark.parametrize(("client", "upstream"), PAIRS)


def asked(client: Dialect, upstream: Dialect, **more: Any) -> Translation:
    body = {**BODIES[client], "stream": True, **more}
    return translate(CODECS[client].decode(json.dumps(body).encode()), upstream, "m-up")


def streamed(client: Dialect, upstream: Dialect, data: bytes, cuts: list[int] | None = None, **more: Any) -> bytes:
    meter = asked(client, upstream, **more).meter("req-1", 1700.0)
    at = [0, *sorted(c % (len(data) + 1) for c in cuts or []), len(data)]
    return b"".join([meter.feed(data[a:b]) for a, b in pairwise(at)]) + meter.close()


def buffered(client: Dialect, upstream: Dialect, answer: dict[str, Any], **more: Any) -> dict[str, Any]:
    return json.loads(
        asked(client, upstream, stream=False, **more).answer(json.dumps(answer).encode(), "req-1", 1700.0)
    )


def same(arguments: str) -> str:
    """Arguments without the spacing that a dialect without JSON text loses."""
    return json.dumps(json.loads(arguments), ensure_ascii=False)


def content(dialect: Dialect, answer: dict[str, Any]) -> list[tuple[str, ...]]:
    """What an answer says, without its dialect."""
    if dialect == "chat":
        message = answer["choices"][0]["message"]
        calls = [
            ("call", c["id"], c["function"]["name"], same(c["function"]["arguments"]))
            for c in message.get("tool_calls", [])
        ]
        words = [("thinking", message.get("reasoning_content")), ("text", message.get("content"))]
        return [w for w in words if w[1]] + calls
    if dialect == "messages":
        out: list[tuple[str, ...]] = []
        for block in answer["content"]:
            if block["type"] == "tool_use":
                arguments = same(json.dumps(block["input"]))
                out.append(("call", block["id"], block["name"], arguments))
            else:
                out.append((block["type"], block[block["type"]]))
        return out
    out = []
    for item in answer["output"]:
        if item["type"] == "function_call":
            out.append(("call", item["call_id"], item["name"], same(item["arguments"])))
        elif item["type"] == "reasoning":
            out.append(("thinking", "".join(part["text"] for part in item["summary"])))
        else:
            out.append(("text", "".join(part["text"] for part in item["content"])))
    return out


EXPECTED = [
    ("thinking", "Hm. Well."),
    ("text", "Hello \u2028 world"),
    ("call", "call_1", "f", '{"a": "ü"}'),
    ("call", "call_2", "g", "{}"),
]


def rebuilt(dialect: Dialect, stream: bytes) -> dict[str, Any]:
    """A buffered answer from a stream, as a client's SDK puts it together."""
    found = events(stream)
    if dialect == "responses":
        return found[-1][1]["response"]
    if dialect == "messages":
        blocks: list[dict[str, Any]] = []
        for _, e in found:
            if e["type"] == "content_block_start":
                assert e["index"] == len(blocks)
                blocks.append({**e["content_block"], "json": ""})
            if e["type"] == "content_block_delta":
                block, delta = blocks[e["index"]], e["delta"]
                kind = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}.get(
                    delta["type"]
                )
                block[kind or "json"] += delta[kind or "partial_json"]
        for block in blocks:
            if block["type"] == "tool_use":
                block["input"] = json.loads(block["json"])
        return {"content": blocks}
    message: dict[str, Any] = {"content": "", "reasoning_content": "", "tool_calls": []}
    for _, e in found:
        for choice in e["choices"] if e != "[DONE]" else []:
            delta = choice["delta"]
            message["content"] += delta.get("content") or ""
            message["reasoning_content"] += delta.get("reasoning_content") or ""
            for call in delta.get("tool_calls", []):
                if call["index"] == len(message["tool_calls"]):
                    message["tool_calls"].append(
                        {"id": call["id"], "function": {"name": call["function"]["name"], "arguments": ""}}
                    )
                assert isinstance(call["function"]["arguments"], str)
                message["tool_calls"][call["index"]]["function"]["arguments"] += call["function"]["arguments"]
    return {"choices": [{"message": message}]}


# --- requests -----------------------------------------------------------------------------------------

PNG = "data:image/png;base64,iVBORw0KGgo="
PDF = "data:application/pdf;base64,JVBERi0="
HI = {"role": "user", "content": "hi"}


def sent(client: Dialect, upstream: Dialect, body: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    out = translate(CODECS[client].decode(json.dumps(body).encode()), upstream, "m-up")
    decoded = json.loads(out.body)
    check_request(upstream, decoded)
    return decoded, out.dropped


def chat(upstream: Dialect, *messages: Any, **more: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    return sent("chat", upstream, {"model": "a", "messages": list(messages) or [HI], **more})


def messages(upstream: Dialect, *given: Any, **more: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    return sent("messages", upstream, {"model": "a", "max_tokens": 99, "messages": list(given) or [HI], **more})


def responses(upstream: Dialect, *items: Any, **more: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    return sent("responses", upstream, {"model": "a", "input": list(items) or "hi", **more})


def refusal(client: Dialect, upstream: Dialect, body: dict[str, Any]) -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        translate(CODECS[client].decode(json.dumps(body).encode()), upstream, "m-up")
    return caught.value


def tools(dialect: Dialect) -> dict[str, Any]:
    return {"tools": BODIES[dialect]["tools"]}
