"""What one API takes and another refuses: requests are told so that a strict upstream takes them, or refused."""

from __future__ import annotations

from typing import Any

import pytest

from router.types import Dialect
from tests.wire.translated import HI, PNG, chat, messages, refusal, responses

IMAGE = {"type": "image_url", "image_url": {"url": PNG}}
BLOCK = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
AUDIO = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}


def call(call_id: str = "c") -> dict[str, Any]:
    function = {"name": "f", "arguments": "{}"}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }


# --- parts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("upstream", ["messages", "responses"])
@pytest.mark.parametrize("role", ["system", "developer", "assistant"])
def test_T16_an_image_that_only_a_user_may_show_is_refused_with_its_place(upstream: Dialect, role: str) -> None:
    shown = {"role": role, "content": [{"type": "text", "text": "t"}, IMAGE]}
    error = refusal("chat", upstream, {"model": "a", "messages": [shown, HI]})
    assert (error.param, "image" in error.message) == ("messages[0].content", True)


def test_T16_no_image_is_lost_from_a_system_text_or_an_earlier_answer() -> None:
    body = {"model": "a", "max_tokens": 1, "messages": [HI]}
    assert refusal("messages", "chat", {**body, "system": [BLOCK]}).param == "system"
    earlier = {"role": "assistant", "content": [{"type": "text", "text": "t"}, BLOCK]}
    assert refusal("messages", "chat", {**body, "messages": [HI, earlier]}).param == "messages[1].content"
    item = {"role": "assistant", "content": [{"type": "input_image", "image_url": PNG}]}
    assert refusal("responses", "chat", {"model": "a", "input": [item]}).param == "input[0].content"


def test_T16_what_a_tool_returns_is_carried_or_refused() -> None:
    result = {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "t"}, AUDIO]}
    assert refusal("chat", "messages", {"model": "a", "messages": [HI, call(), result]}).param == "messages[2].content"
    items = [
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [AUDIO]},
    ]
    assert refusal("responses", "chat", {"model": "a", "input": items}).param == "input[1].output"


def test_T16_a_file_in_bare_base64_is_a_file() -> None:
    file = {"type": "file", "file": {"filename": "a.pdf", "file_data": "JVBERi0="}}
    source = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}
    assert chat("messages", {"role": "user", "content": [file]})[0]["messages"][0]["content"][0]["source"] == source
    item = {"type": "input_file", "filename": "notes.txt", "file_data": "aGk="}
    told = responses("messages", {"role": "user", "content": [item]})[0]["messages"][0]["content"][0]["source"]
    assert told == {"type": "text", "media_type": "text/plain", "data": "hi"}


def test_T16_a_jpeg_is_called_what_apis_call_it() -> None:
    shown = {"type": "image_url", "image_url": {"url": "data:image/jpg;base64,AAAA"}}
    block = chat("messages", {"role": "user", "content": [shown]})[0]["messages"][0]["content"][0]
    assert block["source"]["media_type"] == "image/jpeg"


# --- text that says nothing ------------------------------------------------------------------------------


def test_Q01_white_space_is_left_out_where_it_would_be_refused() -> None:
    body, _ = chat(
        "messages", HI, {"role": "assistant", "content": "\n"}, call(), {"role": "tool", "tool_call_id": "c"}
    )
    assert [[b["type"] for b in m["content"]] for m in body["messages"]] == [["text"], ["tool_use"], ["tool_result"]]
    body, _ = chat("messages", HI, {"role": "assistant", "content": "Sure: \n"})
    assert body["messages"][1]["content"] == [{"type": "text", "text": "Sure:"}]


def test_Q01_a_system_text_alone_is_what_there_is_to_answer() -> None:
    for rest in ([], [{"role": "user", "content": ""}]):
        body, _ = chat("messages", {"role": "system", "content": "s"}, *rest)
        assert (body["messages"], "system" in body) == (
            [{"role": "user", "content": [{"type": "text", "text": "s"}]}],
            False,
        )
    body, _ = chat("responses", {"role": "system", "content": "s"})
    assert ([item["role"] for item in body["input"]], "instructions" in body) == (["system"], False)


def test_Q04_a_stop_sequence_of_white_space_is_left_out_and_listed() -> None:
    body, dropped = chat("messages", stop=["\n", "END"])
    assert (body["stop_sequences"], dropped) == (["END"], ("stop",))


# --- tools -----------------------------------------------------------------------------------------------


def test_T05_what_a_call_returned_follows_it_whatever_stands_between() -> None:
    items = [
        {"role": "user", "content": "q"},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "b", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "A"},
        {"role": "user", "content": "hurry"},
        {"type": "function_call_output", "call_id": "b", "output": "B"},
        {"role": "assistant", "content": "done"},
    ]
    told = responses("chat", *items)[0]["messages"]
    assert [m["role"] for m in told] == ["user", "assistant", "tool", "tool", "user", "assistant"]
    assert [m["content"] for m in told[2:5]] == ["A", "B", "hurry"]
    told = responses("messages", *items)[0]["messages"]
    assert [b["type"] for b in told[2]["content"]] == ["tool_result", "tool_result", "text"]


def test_T05_calls_and_what_they_returned_in_turns_are_turns() -> None:
    items = [
        item
        for name in "ab"
        for item in (
            {"type": "function_call", "call_id": name, "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": name, "output": name},
        )
    ]
    orphan = {"type": "function_call_output", "call_id": "of an earlier answer", "output": "o"}
    told = responses("chat", {"role": "user", "content": "q"}, *items, orphan)[0]["messages"]
    assert [m["role"] for m in told] == ["user", "assistant", "tool", "assistant", "tool", "tool"]


@pytest.mark.parametrize(("upstream", "limit"), [("chat", 40), ("responses", 64)])
def test_T05_the_id_of_a_call_is_no_longer_than_the_upstream_takes_and_the_same_in_both_places(
    upstream: Dialect, limit: int
) -> None:
    ids = ["c" * 80, "c" * 80 + "d"]
    used = {"role": "assistant", "content": [{"type": "tool_use", "id": i, "name": "f", "input": {}} for i in ids]}
    results = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": i, "content": "r"} for i in ids]}
    body, _ = messages(upstream, HI, used, results)
    if upstream == "chat":
        made = [c["id"] for c in body["messages"][1]["tool_calls"]]
        returned = [m["tool_call_id"] for m in body["messages"][2:]]
    else:
        made = [item["call_id"] for item in body["input"] if item["type"] == "function_call"]
        returned = [item["call_id"] for item in body["input"] if item["type"] == "function_call_output"]
    assert made == returned
    assert len({*made}) == 2
    assert {len(i) for i in made} == {limit}


def test_Q07_a_tools_schema_has_the_type_that_anthropic_demands() -> None:
    function = {"name": "f", "parameters": {"properties": {"a": {}}}}
    body, _ = chat("messages", tools=[{"type": "function", "function": function}])
    assert body["tools"][0]["input_schema"] == {"type": "object", "properties": {"a": {}}}


def test_Q07_a_strict_tool_is_strict_where_its_schema_allows_it() -> None:
    given = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    open_ = {**given, "required": []}
    tools = [{"name": n, "strict": True, "input_schema": s} for n, s in (("f", given), ("g", open_))]
    body, dropped = messages("chat", tools=tools)
    f, g = [tool["function"] for tool in body["tools"]]
    assert (f["strict"], f["parameters"]["additionalProperties"]) == (True, False)
    assert (g["strict"], dropped) == (False, ("tools.strict",))
    body, dropped = messages("responses", tools=tools[:1])
    assert (body["tools"][0]["strict"], dropped) == (True, ())


def test_Q07_a_schema_is_closed_for_anthropic_too_and_a_map_stays_open() -> None:
    inner = {"type": "object", "properties": {"b": {"type": "string"}}}
    schema = {"type": "object", "properties": {"a": inner, "m": {"type": "object", "properties": {}}}}
    shape = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    told = chat("messages", response_format=shape)[0]["output_config"]["format"]["schema"]
    assert told["additionalProperties"] is told["properties"]["a"]["additionalProperties"] is False
    assert told["properties"]["m"] == {"type": "object", "properties": {}}


@pytest.mark.parametrize("upstream", ["chat", "responses"])
def test_T05_a_turn_in_several_messages_is_one_where_results_must_follow_their_calls(upstream: Dialect) -> None:
    def used(call_id: str) -> dict[str, Any]:
        return {"role": "assistant", "content": [{"type": "tool_use", "id": call_id, "name": "f", "input": {}}]}

    def returned(call_id: str, *more: Any) -> dict[str, Any]:
        return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id, "content": [BLOCK]}, *more]}

    body, _ = messages(
        upstream, HI, used("a"), used("b"), returned("a"), returned("b", {"type": "text", "text": "go"}), HI
    )
    if upstream == "chat":
        assert [m["role"] for m in body["messages"]] == ["user", "assistant", "tool", "tool", "user", "user"]
        assert [c["id"] for c in body["messages"][1]["tool_calls"]] == ["a", "b"]
        assert [p["type"] for p in body["messages"][4]["content"]] == ["text", "image_url", "text", "image_url", "text"]
    else:
        kinds = [item["type"] for item in body["input"]]
        assert kinds == ["message", *["function_call"] * 2, *["function_call_output"] * 2, "message", "message"]


def test_T10_a_mark_for_the_cache_on_a_chat_message_goes_to_its_last_part() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    body, dropped = chat(
        "messages",
        {"role": "system", "content": "s", **mark},
        {"role": "user", "content": [{"type": "text", "text": "a"}, IMAGE], **mark},
        {**call(), **mark},
        {"role": "tool", "tool_call_id": "c", "content": "r", **mark},
    )
    last = [body["system"][-1], *[m["content"][-1] for m in body["messages"]]]
    assert [block["type"] for block in last] == ["text", "image", "tool_use", "tool_result"]
    assert all(block["cache_control"] == mark["cache_control"] for block in last)
    assert dropped == ()
    assert chat("responses", {**HI, **mark})[1] == ("cache_control",)


def test_T15_another_word_for_required_is_understood_and_an_unknown_one_refused() -> None:
    offered = {"tools": [{"type": "function", "function": {"name": "f"}}]}
    assert chat("messages", **offered, tool_choice="any")[0]["tool_choice"] == {"type": "any"}
    assert chat("responses", **offered, tool_choice="any")[0]["tool_choice"] == "required"
    asked = {"model": "a", "messages": [HI], **offered, "tool_choice": "sometimes"}
    assert refusal("chat", "messages", asked).param == "tool_choice"
    assert refusal("responses", "chat", {"model": "a", "input": "q", "tool_choice": "sometimes"}).param == "tool_choice"


def test_T05_calls_that_their_server_gave_no_ids_have_them_where_they_are_demanded() -> None:
    one = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
    used = {"role": "assistant", "content": None, "tool_calls": [{**one, "id": ""}, {**one, "id": ""}]}
    results = [{"role": "tool", "tool_call_id": "", "content": c} for c in "ab"]
    body, _ = chat("messages", HI, used, *results, HI, used, *results)
    ids = [b["id"] for m in body["messages"] for b in m["content"] if b["type"] == "tool_use"]
    returned = [b["tool_use_id"] for m in body["messages"] for b in m["content"] if b["type"] == "tool_result"]
    assert ids == returned
    assert len({*ids}) == 4
    assert all(ids)
