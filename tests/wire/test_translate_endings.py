"""How translated answers end: reasons, refusals, signatures, failures, and wild input."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.errors import BadAnswer, Truncated, UpstreamStatus
from router.types import Dialect
from router.wire import CODECS
from router.wire.translate import translate
from tests.wire.published import check_answer, check_event, events
from tests.wire.translated import PAIRS, asked, buffered, each_pair, streamed
from tests.wire.upstreams import ANSWERS, STREAMS, chat_stream, event, messages_stream, responses_stream

# --- reasons, refusals, thoughts, logprobs -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("stop", "finish", "status"),
    [
        ("end_turn", "stop", ("completed", None)),
        ("stop_sequence", "stop", ("completed", None)),
        ("max_tokens", "length", ("incomplete", "max_output_tokens")),
        ("model_context_window_exceeded", "length", ("incomplete", "max_output_tokens")),
        ("refusal", "content_filter", ("incomplete", "content_filter")),
        ("pause_turn", "stop", ("completed", None)),
        ("tool_use", "stop", ("completed", None)),
    ],
)
def test_stop_reasons_are_mapped(stop: str, finish: str, status: tuple[str, str | None]) -> None:
    answer = {**ANSWERS["messages"], "content": [{"type": "text", "text": "x"}], "stop_reason": stop}
    assert buffered("chat", "messages", answer)["choices"][0]["finish_reason"] == finish
    response = buffered("responses", "messages", answer)
    check_answer("responses", response)
    assert (response["status"], (response["incomplete_details"] or {}).get("reason")) == status


def test_a_stop_sequence_is_named() -> None:
    answer = {**ANSWERS["messages"], "content": [], "stop_reason": "stop_sequence", "stop_sequence": "END"}
    assert buffered("chat", "messages", answer)["choices"][0]["finish_reason"] == "stop"


def test_an_incomplete_response_is_no_complete_answer() -> None:
    answer = {**ANSWERS["responses"], "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    assert buffered("chat", "responses", answer)["choices"][0]["finish_reason"] == "length"
    assert buffered("messages", "responses", answer)["stop_reason"] == "max_tokens"


def test_a_refusal_stays_one() -> None:
    stream = chat_stream([{"refusal": "I "}, {"refusal": "cannot."}])
    found = events(streamed("responses", "chat", stream))
    for name, e in found:
        check_event("responses", name, e)
    assert found[-1][1]["response"]["output"][0]["content"] == [{"type": "refusal", "refusal": "I cannot."}]
    found = events(streamed("messages", "chat", stream))
    assert found[-2][1]["delta"]["stop_reason"] == "refusal"


def test_T07_signatures_survive_a_journey_through_another_dialect() -> None:
    blocks = [
        ({"type": "thinking", "thinking": "", "signature": ""},
         [{"type": "thinking_delta", "thinking": "Hm"}, {"type": "signature_delta", "signature": "Sig/=="}]),
        ({"type": "redacted_thinking", "data": "Enc/=="}, []),
        ({"type": "text", "text": ""}, [{"type": "text_delta", "text": "x"}]),
    ]  # fmt: skip
    response = events(streamed("responses", "messages", messages_stream(blocks)))[-1][1]["response"]
    check_answer("responses", response)
    again = {"model": "a", "input": [{"role": "user", "content": "hi"}, *response["output"]]}
    request = CODECS["responses"].decode(json.dumps(again).encode())
    sent = json.loads(translate(request, "messages", "m").body)["messages"][1]["content"]
    assert sent == [
        {"type": "thinking", "thinking": "Hm", "signature": "Sig/=="},
        {"type": "redacted_thinking", "data": "Enc/=="},
        {"type": "text", "text": "x"},
    ]
    assert "thinking" in translate(request, "chat", "m").dropped


def test_encrypted_reasoning_survives_a_journey_through_messages() -> None:
    item = {
        "type": "reasoning",
        "id": "rs_9",
        "summary": [{"type": "summary_text", "text": "Hm"}],
        "encrypted_content": "gAAA=",
    }
    answer = {**ANSWERS["responses"], "output": [item, _text_item()]}
    message = buffered("messages", "responses", answer)
    check_answer("messages", message)
    again = {
        "model": "a",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": message["content"]}],
    }
    request = CODECS["messages"].decode(json.dumps(again).encode())
    assert json.loads(translate(request, "responses", "m").body)["input"][1] == item


def _text_item() -> dict[str, Any]:
    return {
        "type": "message",
        "id": "m",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "x", "annotations": []}],
    }


def test_T09_reasoning_without_a_signature_goes_back_to_where_it_came_from() -> None:
    message = buffered("messages", "chat", ANSWERS["chat"])
    again = {
        "model": "a",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": message["content"]}],
    }
    request = CODECS["messages"].decode(json.dumps(again).encode())
    assistant = json.loads(translate(request, "chat", "m").body)["messages"][1]
    assert assistant["reasoning_content"] == "Hm. Well."
    assert [call["id"] for call in assistant["tool_calls"]] == ["call_1", "call_2"]


def test_logprobs_are_carried_between_openais_dialects() -> None:
    entry = {"token": "Hi", "logprob": -0.1, "bytes": [72, 105], "top_logprobs": []}
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    chunk = {
        **head,
        "choices": [
            {"index": 0, "delta": {"content": "Hi"}, "logprobs": {"content": [entry]}, "finish_reason": "stop"}
        ],
    }
    stream = b"data: " + json.dumps(chunk).encode() + b"\n\ndata: [DONE]\n\n"
    found = events(streamed("responses", "chat", stream))
    for name, e in found:
        check_event("responses", name, e)
    response = found[-1][1]["response"]
    assert response["output"][0]["content"][0]["logprobs"] == [entry]
    assert buffered("chat", "responses", response)["choices"][0]["logprobs"]["content"] == [entry]


# --- failure ---------------------------------------------------------------------------------------------

ERRORS: dict[Dialect, bytes] = {
    "chat": b'data: {"error": {"message": "Overloaded", "type": "overloaded_error"}}\n\n',
    "messages": event("error", error={"type": "overloaded_error", "message": "Overloaded"}),
    "responses": event(
        "response.failed", response={"status": "failed", "error": {"code": "server_error", "message": "Overloaded"}}
    ),
}
ENDS: dict[Dialect, str] = {"chat": "[DONE]", "messages": "message_stop", "responses": "response.completed"}


def begun(upstream: Dialect) -> bytes:
    """A stream that stops after some text."""
    if upstream == "chat":
        return chat_stream([{"role": "assistant"}, {"content": "Hel"}], None, usage=False, done=False)
    if upstream == "messages":
        return messages_stream([({"type": "text", "text": ""}, [{"type": "text_delta", "text": "Hel"}])], done=False)
    delta = event("response.output_text.delta", item_id="m", output_index=0, content_index=0, delta="Hel")
    return responses_stream([({"type": "message", "content": []}, [delta], _text_item())], done=False)


@each_pair
def test_S07_S09_an_answer_cut_short_ends_in_one_error_event_and_nothing_that_looks_complete(
    client: Dialect, upstream: Dialect
) -> None:
    meter = asked(client, upstream).meter("req-1", 1700.0)
    out = meter.feed(begun(upstream))
    with pytest.raises(Truncated) as caught:
        meter.close()
    out += meter.fail(caught.value, "req-1")
    found = events(out)
    assert not any(ENDS[client] in (name, data) for name, data in found)
    name, last = found[-1]
    if client == "responses":
        check_event("responses", name, last)
        assert (name, last["response"]["status"]) == ("response.failed", "failed")
        assert last["response"]["id"] == found[0][1]["response"]["id"]
        assert last["sequence_number"] == len(found) - 1
    elif client == "messages":
        assert (name, last["type"]) == ("error", "error")
    else:
        assert "error" in last
    failures = [name for name, e in found if name in ("error", "response.failed") or (not name and "error" in e)]
    assert len(failures) == 1


@each_pair
def test_S07_an_upstreams_error_event_after_content_ends_the_stream(client: Dialect, upstream: Dialect) -> None:
    meter = asked(client, upstream).meter()
    meter.feed(begun(upstream) + ERRORS[upstream] + STREAMS[upstream])
    assert meter.done
    assert isinstance(meter.failed, UpstreamStatus)
    assert meter.close() == b""
    assert b"Overloaded" in meter.fail(meter.failed, "r")


@each_pair
def test_an_upstreams_error_event_before_content_raises(client: Dialect, upstream: Dialect) -> None:
    with pytest.raises(UpstreamStatus) as caught:
        asked(client, upstream).meter().feed(ERRORS[upstream])
    assert caught.value.status >= 500


@each_pair
def test_S04_comments_are_passed_on_as_comments(client: Dialect, upstream: Dialect) -> None:
    assert asked(client, upstream).meter().feed(b": PROCESSING\n\n") == b": PROCESSING\n\n"


@pytest.mark.parametrize(
    "answer", [b"", b"[]", b"{}", b"<html>", b'{"choices":[]}', b'{"content":"x"}', b'{"output":null}', b"[" * 100_000]
)
def test_an_answer_without_content_is_a_bad_answer(answer: bytes) -> None:
    for client, upstream in PAIRS:
        with pytest.raises(BadAnswer):
            asked(client, upstream).answer(answer)


def test_an_upstream_that_ends_without_done_has_ended_when_it_gave_its_reason() -> None:
    out = streamed("messages", "chat", chat_stream([{"content": "x"}], done=False))
    assert events(out)[-1][0] == "message_stop"


KEYS = [
    "choices",
    "delta",
    "content",
    "tool_calls",
    "function",
    "type",
    "index",
    "error",
    "usage",
    "item",
    "response",
    "output",
    "content_block",
    "message",
    "summary",
    "text",
    "arguments",
    "name",
    "logprobs",
    "input",
]
KINDS = [
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "response.created",
    "response.output_item.added",
    "response.output_item.done",
    "response.output_text.delta",
    "response.completed",
    "error",
]
LEAF = (
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.sampled_from(["text", "tool_use", "message"])
)
WILD = st.recursive(
    LEAF,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)


@each_pair
@settings(max_examples=40, deadline=None)
@given(found=WILD, kind=st.sampled_from(["", *KINDS]))
def test_no_event_and_no_answer_crashes_a_translator(client: Dialect, upstream: Dialect, found: Any, kind: str) -> None:
    wild = {**found, "type": kind} if isinstance(found, dict) and kind else found
    meter = asked(client, upstream).meter()
    data = f"event: {kind}\ndata: {json.dumps(wild)}\n\n".encode()
    with suppress(BadAnswer, Truncated, UpstreamStatus):
        meter.feed(begun(upstream) + data)
        meter.close()
    with suppress(BadAnswer):
        asked(client, upstream).answer(json.dumps(wild).encode())
