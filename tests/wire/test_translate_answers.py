"""Answers in every dialect from upstreams of every other: shapes, order, agreement, failure."""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.errors import BadAnswer, Truncated, UpstreamStatus
from router.types import Dialect, Usage
from router.wire import CODECS
from router.wire.translate import Translation, translate
from tests.wire.published import check_answer, check_event, events
from tests.wire.upstreams import ANSWERS, STREAMS, chat_stream, event, messages_stream, responses_stream

TOOLS: dict[Dialect, list[Any]] = {
    "chat": [{"type": "function", "function": {"name": n, "parameters": {"type": "object"}}} for n in "fg"],
    "messages": [{"name": n, "input_schema": {"type": "object"}} for n in "fg"],
    "responses": [{"type": "function", "name": n, "parameters": {"type": "object"}, "strict": False} for n in "fg"],
}
BODIES: dict[Dialect, dict[str, Any]] = {
    "chat": {"model": "a", "messages": [{"role": "user", "content": "hi"}], "tools": TOOLS["chat"]},
    "messages": {
        "model": "a",
        "max_tokens": 9,
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


# --- shape and content -----------------------------------------------------------------------------------


@each_pair
def test_a_buffered_answer_fits_the_published_schema_and_keeps_its_content(client: Dialect, upstream: Dialect) -> None:
    answer = buffered(client, upstream, ANSWERS[upstream])
    check_answer(client, answer)
    assert content(client, answer) == EXPECTED
    assert CODECS[client].usage(json.dumps(answer).encode()) == Usage(input=20, output=7, cached=5)
    assert answer["model"] == "m-up"
    assert answer["id"].endswith("u1")


@each_pair
def test_a_streamed_answer_fits_the_published_schema_and_agrees_with_the_buffered_one(
    client: Dialect, upstream: Dialect
) -> None:
    out = streamed(client, upstream, STREAMS[upstream])
    for name, data in events(out):
        if data != "[DONE]":
            check_event(client, name, data)
    assert content(client, rebuilt(client, out)) == EXPECTED


@each_pair
@settings(max_examples=15)
@given(cuts=st.lists(st.integers(0, 5000), max_size=8))
def test_S01_any_chunking_gives_the_same_translated_stream(client: Dialect, upstream: Dialect, cuts: list[int]) -> None:
    assert streamed(client, upstream, STREAMS[upstream], cuts) == streamed(client, upstream, STREAMS[upstream])


@each_pair
def test_the_meter_counts_and_ends(client: Dialect, upstream: Dialect) -> None:
    meter = asked(client, upstream).meter()
    meter.feed(STREAMS[upstream])
    assert meter.content
    assert meter.done
    assert meter.failed is None
    assert meter.usage == Usage(input=20, output=7, cached=5)
    assert meter.deltas >= 6
    assert meter.feed(STREAMS[upstream]) == meter.close() == b""


@pytest.mark.parametrize("upstream", ["chat", "messages"])
def test_R02_events_of_a_response_come_in_order_with_rising_numbers(upstream: Dialect) -> None:
    found = [e for _, e in events(streamed("responses", upstream, STREAMS[upstream]))]
    assert [e["sequence_number"] for e in found] == list(range(len(found)))
    text = [e["type"].removeprefix("response.") for e in found if e.get("output_index") in (None, 1)]
    assert (
        text
        == (
            "created in_progress output_item.added content_part.added output_text.delta output_text.delta "
            "output_text.done content_part.done output_item.done completed"
        ).split()
    )


def test_R01_one_id_for_each_item() -> None:
    found = [e for _, e in events(streamed("responses", "chat", STREAMS["chat"]))]
    ids: dict[int, set[str]] = {}
    for e in found:
        if "output_index" in e:
            ids.setdefault(e["output_index"], set()).add(e.get("item_id") or e["item"]["id"])
    assert all(len(seen) == 1 for seen in ids.values())
    assert [item["id"] for item in found[-1]["response"]["output"]] == [ids[at].pop() for at in sorted(ids)]


def test_R01_an_upstream_that_changes_ids_within_an_item_is_one_item() -> None:
    assert content("chat", rebuilt("chat", streamed("chat", "responses", STREAMS["responses"]))) == EXPECTED


def test_R06_a_responses_client_gets_responses_events_only() -> None:
    found = events(streamed("responses", "messages", STREAMS["messages"]))
    assert {name.split(".")[0] for name, _ in found} == {"response"}


@pytest.mark.parametrize("upstream", ["messages", "responses"])
def test_S12_usage_comes_last_with_no_choices_and_only_when_asked_for(upstream: Dialect) -> None:
    found = events(streamed("chat", upstream, STREAMS[upstream], stream_options={"include_usage": True}))
    assert found[-1][1] == "[DONE]"
    assert found[-2][1]["choices"] == []
    assert found[-2][1]["usage"]["prompt_tokens"] == 20
    assert found[-3][1]["choices"][0]["finish_reason"] == "tool_calls"
    silent = events(streamed("chat", upstream, STREAMS[upstream]))
    assert not any("usage" in e for _, e in silent if e != "[DONE]")
    assert all(e["choices"] for _, e in silent if e != "[DONE]")


# --- tools -----------------------------------------------------------------------------------------------


def test_T01_parallel_calls_that_interleave_keep_their_own_arguments() -> None:
    for client in ("messages", "responses"):
        assert content(client, rebuilt(client, streamed(client, "chat", STREAMS["chat"]))) == EXPECTED


def test_T01_calls_that_a_server_numbers_alike_are_told_apart_by_id() -> None:
    deltas = [
        {"tool_calls": [{"index": 0, "id": f"call_{n}", "function": {"name": n, "arguments": json.dumps({"n": n})}}]}
        for n in "fg"
    ]
    found = content("messages", rebuilt("messages", streamed("messages", "chat", chat_stream(deltas, "tool_calls"))))
    assert found == [("call", "call_f", "f", '{"n": "f"}'), ("call", "call_g", "g", '{"n": "g"}')]


@pytest.mark.parametrize("upstream", ["messages", "responses"])
def test_T01_T04_chat_deltas_have_stable_indexes_and_string_arguments(upstream: Dialect) -> None:
    calls = [
        call
        for _, e in events(streamed("chat", upstream, STREAMS[upstream]))
        if e != "[DONE]"
        for choice in e["choices"]
        for call in choice["delta"].get("tool_calls", [])
    ]
    assert [(c["index"], c["function"].get("name")) for c in calls if "id" in c] == [(0, "f"), (1, "g")]
    assert all(isinstance(call["function"]["arguments"], str) for call in calls)
    assert calls[0]["function"]["arguments"] == ""


def test_T03_a_call_without_arguments_ends_as_an_empty_object() -> None:
    for client, upstream in PAIRS:
        found = content(client, rebuilt(client, streamed(client, upstream, STREAMS[upstream])))
        assert found[-1] == ("call", "call_2", "g", "{}")


def test_T03_arguments_that_are_no_json_pass_as_they_are_where_the_dialect_can_say_them() -> None:
    stream = chat_stream([{"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": '{"a": '}}]}])
    assert events(streamed("responses", "chat", stream))[-1][1]["response"]["output"][0]["arguments"] == '{"a": '
    partial = [
        e["delta"]["partial_json"]
        for _, e in events(streamed("messages", "chat", stream))
        if e["type"] == "content_block_delta"
    ]
    assert partial == ['{"a": ']
    answer = json.loads(json.dumps(ANSWERS["chat"]))
    answer["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] = '{"a": '
    with pytest.raises(BadAnswer):
        buffered("messages", "chat", answer)


@pytest.mark.parametrize("reason", ["stop", "completed", None])
def test_S15_calls_with_a_plain_stop_ask_for_the_tools_to_be_run(reason: str | None) -> None:
    deltas = [{"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}]}]
    found = events(streamed("messages", "chat", chat_stream(deltas, reason)))
    assert [e["delta"]["stop_reason"] for _, e in found if e["type"] == "message_delta"] == ["tool_use"]


@pytest.mark.parametrize(("reason", "stop"), [("length", "max_tokens"), ("content_filter", "refusal")])
def test_S15_other_reasons_stay(reason: str, stop: str) -> None:
    deltas = [{"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}]}]
    found = events(streamed("messages", "chat", chat_stream(deltas, reason)))
    assert [e["delta"]["stop_reason"] for _, e in found if e["type"] == "message_delta"] == [stop]


def test_a_custom_tools_input_is_free_text_again_for_the_responses_client() -> None:
    tools = [
        {"type": "custom", "name": "apply_patch"},
        {"type": "namespace", "name": "ns", "description": "n", "tools": TOOLS["responses"]},
    ]
    deltas = [
        {"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "apply_patch", "arguments": '{"input":'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": ' "*** Begin\\n"}'}}]},
        {"tool_calls": [{"index": 1, "id": "c2", "function": {"name": "ns__f", "arguments": "{}"}}]},
    ]
    found = events(streamed("responses", "chat", chat_stream(deltas, "tool_calls"), tools=tools))
    for name, e in found:
        check_event("responses", name, e)
    patch, call = found[-1][1]["response"]["output"]
    assert (patch["type"], patch["name"], patch["input"]) == ("custom_tool_call", "apply_patch", "*** Begin\n")
    assert (call["type"], call["namespace"], call["name"]) == ("function_call", "ns", "f")
    assert (
        "".join(e["delta"] for _, e in found if e["type"] == "response.custom_tool_call_input.delta") == "*** Begin\n"
    )


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


KEYS = (
    "choices delta content tool_calls function type index error usage item response output content_block message "
    "summary text arguments name logprobs input"
).split()
KINDS = (
    "message_start content_block_start content_block_delta content_block_stop message_delta response.created "
    "response.output_item.added response.output_item.done response.output_text.delta response.completed error"
).split()
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
