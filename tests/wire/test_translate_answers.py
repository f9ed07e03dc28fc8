"""Answers in every dialect from upstreams of every other: shapes, order, agreement, failure."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.errors import BadAnswer
from router.types import Dialect, Usage
from router.wire import CODECS
from tests.wire.published import check_answer, check_event, events
from tests.wire.translated import EXPECTED, PAIRS, TOOLS, asked, buffered, content, each_pair, rebuilt, streamed
from tests.wire.upstreams import ANSWERS, STREAMS, chat_stream

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
    assert text == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]


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
