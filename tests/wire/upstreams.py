"""Answers as upstreams of each dialect send them, buffered and streamed: one content in three shapes."""

from __future__ import annotations

import json
from typing import Any

from router.types import Dialect

USAGE = {"input": 20, "output": 7, "cached": 5}


def chat_stream(
    deltas: list[dict[str, Any]], finish: str | None = "stop", *, usage: bool = True, done: bool = True
) -> bytes:
    head = {"id": "chatcmpl-u1", "object": "chat.completion.chunk", "created": 1700, "model": "m-up"}
    chunks = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    if finish:
        chunks.append({"index": 0, "delta": {}, "finish_reason": finish})
    out = [{**head, "choices": [choice]} for choice in chunks]
    if usage:
        counts = {
            "prompt_tokens": 20,
            "completion_tokens": 7,
            "total_tokens": 27,
            "prompt_tokens_details": {"cached_tokens": 5},
        }
        out.append({**head, "choices": [], "usage": counts})
    data = b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in out)
    return data + b"data: [DONE]\n\n" if done else data


def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def messages_stream(
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]], stop: str = "end_turn", *, done: bool = True
) -> bytes:
    usage = {"input_tokens": 15, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 0, "output_tokens": 1}
    message = {"id": "msg_u1", "type": "message", "role": "assistant", "model": "m-up", "content": []}
    message |= {"stop_reason": None, "stop_sequence": None, "usage": usage}
    out = event("message_start", message=message) + event("ping")
    for index, (block, deltas) in enumerate(blocks):
        out += event("content_block_start", index=index, content_block=block)
        out += b"".join(event("content_block_delta", index=index, delta=delta) for delta in deltas)
        out += event("content_block_stop", index=index)
    if not done:
        return out
    out += event("message_delta", delta={"stop_reason": stop, "stop_sequence": None}, usage={"output_tokens": 7})
    return out + event("message_stop")


def responses_stream(items: list[tuple[dict[str, Any], list[bytes], dict[str, Any]]], *, done: bool = True) -> bytes:
    """Items as (added, events between, done)."""
    response = {
        "id": "resp_u1",
        "object": "response",
        "created_at": 1700,
        "model": "m-up",
        "status": "in_progress",
        "output": [],
    }
    out = event("response.created", response=response) + event("response.in_progress", response=response)
    for at, (added, between, ended) in enumerate(items):
        out += event("response.output_item.added", output_index=at, item=added) + b"".join(between)
        out += event("response.output_item.done", output_index=at, item=ended)
    if not done:
        return out
    counts = {"input_tokens": 20, "input_tokens_details": {"cached_tokens": 5}, "output_tokens": 7,
              "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 27}  # fmt: skip
    ended = {**response, "status": "completed", "output": [item[2] for item in items], "usage": counts}
    return out + event("response.completed", response=ended)


# --- one content: a thought, a text, two calls of which the second has no arguments ------------------------

_MESSAGE = {"type": "message", "id": "msg_0", "role": "assistant", "status": "completed"}
_TEXT = [{"type": "output_text", "text": "Hello \u2028 world", "annotations": [], "logprobs": []}]
_CALL_F = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "f",
    "arguments": '{"a": "ü"}',
    "status": "completed",
}
_CALL_G = {
    "type": "function_call",
    "id": "fc_2",
    "call_id": "call_2",
    "name": "g",
    "arguments": "{}",
    "status": "completed",
}
_REASONING = {"type": "reasoning", "id": "rs_0", "summary": [{"type": "summary_text", "text": "Hm. Well."}]}

STREAMS: dict[Dialect, bytes] = {
    "chat": chat_stream(
        [
            {"role": "assistant", "content": ""},
            {"reasoning_content": "Hm. "},
            {"reasoning_content": "Well."},
            {"content": "Hello "},
            {"content": "\u2028 world"},
            {
                "tool_calls": [
                    {"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": None}}
                ]
            },
            {"tool_calls": [{"index": 0, "function": {"arguments": '{"a":'}}]},
            {
                "tool_calls": [
                    {"index": 1, "id": "call_2", "type": "function", "function": {"name": "g", "arguments": ""}}
                ]
            },
            {"tool_calls": [{"index": 0, "function": {"arguments": ' "ü"}'}}]},
        ],
        finish="stop",
    ),
    "messages": messages_stream(
        [
            (
                {"type": "thinking", "thinking": "", "signature": ""},
                [{"type": "thinking_delta", "thinking": "Hm. "}, {"type": "thinking_delta", "thinking": "Well."}],
            ),
            (
                {"type": "text", "text": ""},
                [{"type": "text_delta", "text": "Hello "}, {"type": "text_delta", "text": "\u2028 world"}],
            ),
            (
                {"type": "tool_use", "id": "call_1", "name": "f", "input": {}},
                [
                    {"type": "input_json_delta", "partial_json": '{"a":'},
                    {"type": "input_json_delta", "partial_json": ' "ü"}'},
                ],
            ),
            (
                {"type": "tool_use", "id": "call_2", "name": "g", "input": {}},
                [{"type": "input_json_delta", "partial_json": ""}],
            ),
        ],
        stop="tool_use",
    ),
    "responses": responses_stream(
        [
            (
                {**_REASONING, "summary": []},
                [
                    event(
                        "response.reasoning_summary_text.delta",
                        item_id="rs_0",
                        output_index=0,
                        summary_index=0,
                        delta="Hm. ",
                    ),
                    event(
                        "response.reasoning_summary_text.delta",
                        item_id="rs_0",
                        output_index=0,
                        summary_index=0,
                        delta="Well.",
                    ),
                ],
                _REASONING,
            ),
            (
                {**_MESSAGE, "content": []},
                [
                    event(
                        "response.output_text.delta", item_id="msg_0", output_index=1, content_index=0, delta="Hello "
                    ),
                    event(
                        "response.output_text.delta",
                        item_id="other",
                        output_index=1,
                        content_index=0,
                        delta="\u2028 world",
                    ),
                ],
                {**_MESSAGE, "content": _TEXT},
            ),
            (
                {**_CALL_F, "arguments": ""},
                [
                    event("response.function_call_arguments.delta", item_id="fc_1", output_index=2, delta='{"a":'),
                    event("response.function_call_arguments.delta", item_id="fc_1", output_index=2, delta=' "ü"}'),
                ],
                _CALL_F,
            ),
            ({**_CALL_G, "arguments": ""}, [], _CALL_G),
        ]
    ),
}

ANSWERS: dict[Dialect, dict[str, Any]] = {
    "chat": {
        "id": "chatcmpl-u1",
        "object": "chat.completion",
        "created": 1700,
        "model": "m-up",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "reasoning_content": "Hm. Well.",
                    "content": "Hello \u2028 world",
                    "tool_calls": [
                        {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a": "ü"}'}},
                        {"id": "call_2", "type": "function", "function": {"name": "g", "arguments": ""}},
                    ],
                },
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 20, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 5}},
    },
    "messages": {
        "id": "msg_u1",
        "type": "message",
        "role": "assistant",
        "model": "m-up",
        "content": [
            {"type": "thinking", "thinking": "Hm. Well.", "signature": ""},
            {"type": "text", "text": "Hello \u2028 world"},
            {"type": "tool_use", "id": "call_1", "name": "f", "input": {"a": "ü"}},
            {"type": "tool_use", "id": "call_2", "name": "g", "input": {}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 15, "cache_read_input_tokens": 5, "output_tokens": 7},
    },
    "responses": {
        "id": "resp_u1",
        "object": "response",
        "created_at": 1700,
        "model": "m-up",
        "status": "completed",
        "output": [_REASONING, {**_MESSAGE, "content": _TEXT}, _CALL_F, _CALL_G],
        "usage": {"input_tokens": 20, "input_tokens_details": {"cached_tokens": 5}, "output_tokens": 7},
    },
}
