"""Answers that servers send and no document has: what they say is told all the same."""

from __future__ import annotations

import json
from typing import Any

import pytest

from router.types import Dialect
from tests.wire.published import events
from tests.wire.translated import EXPECTED, buffered, chat, content, rebuilt, streamed
from tests.wire.upstreams import ANSWERS, chat_stream, event

CALLS = [("call", "call_u1_0", "f", '{"n": "f"}'), ("call", "call_u1_1", "g", '{"n": "g"}')]


def call(name: str, arguments: str, **more: Any) -> dict[str, Any]:
    return {"tool_calls": [{**more, "type": "function", "function": {"name": name, "arguments": arguments}}]}


@pytest.mark.parametrize("numbered", [{"index": 0, "id": ""}, {"index": 0}, {}])
@pytest.mark.parametrize("client", ["messages", "responses"])
def test_T01_calls_that_a_server_neither_numbers_nor_names_are_told_apart_by_being_whole(
    client: Dialect, numbered: dict[str, Any]
) -> None:
    deltas = [call(name, json.dumps({"n": name}), **numbered) for name in "fg"]
    assert content(client, rebuilt(client, streamed(client, "chat", chat_stream(deltas, "tool_calls")))) == CALLS


def test_T01_a_server_that_says_the_name_in_each_delta_makes_one_call() -> None:
    deltas = [call("f", part, index=0) for part in ('{"n"', ': "f"}', "")]
    found = content("messages", rebuilt("messages", streamed("messages", "chat", chat_stream(deltas, "tool_calls"))))
    assert found == CALLS[:1]


@pytest.mark.parametrize("client", ["chat", "messages"])
@pytest.mark.parametrize("told", [0, 1])
def test_R02_what_a_response_holds_only_at_its_end_is_told(client: Dialect, told: int) -> None:
    whole = ANSWERS["responses"]
    response = {**whole, "status": "in_progress", "output": []}
    stream = event("response.created", response=response)
    for at in range(told):
        stream += event("response.output_item.done", output_index=at, item=whole["output"][at])
    stream += event("response.completed", response=whole)
    assert content(client, rebuilt(client, streamed(client, "responses", stream))) == EXPECTED


@pytest.mark.parametrize("client", ["messages", "responses"])
def test_T09_a_thought_among_the_parts_of_what_is_said_is_a_thought(client: Dialect) -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "Hm. "}, {"type": "text", "text": "Well."}]},
        {"type": "text", "text": "Hello"},
    ]
    answer = {**ANSWERS["chat"], "choices": [{"index": None, "message": {"content": parts}, "finish_reason": "stop"}]}
    expected = [("thinking", "Hm. Well."), ("text", "Hello")]
    assert content(client, buffered(client, "chat", answer)) == expected
    deltas = [{"content": [part]} for part in parts]
    assert content(client, rebuilt(client, streamed(client, "chat", chat_stream(deltas)))) == expected
    assert chat("messages", {"role": "user", "content": "q"}, {"role": "assistant", "content": parts})[1] == (
        "thinking",
    )


def test_a_chunk_of_filters_before_the_answer_does_not_name_it() -> None:
    filters = {"choices": [], "created": 0, "id": "", "model": "", "prompt_filter_results": [{"prompt_index": 0}]}
    stream = b"data: %b\n\n" % json.dumps(filters).encode() + chat_stream([{"content": "x"}])
    response = events(streamed("responses", "chat", stream))[-1][1]["response"]
    assert (response["id"], response["model"], response["created_at"]) == ("resp_u1", "m-up", 1700)
