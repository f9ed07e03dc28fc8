"""Requests in every other dialect: what is mapped, what is refused, what is listed as dropped."""

from __future__ import annotations

import json
from typing import Any

import pytest

from router.types import Dialect
from router.wire import CODECS
from router.wire.translate import translate
from tests.wire.translated import BODIES, HI, PDF, PNG, chat, each_pair, messages, refusal, responses, sent, tools


@each_pair
def test_a_plain_request_is_valid_in_the_other_dialect_and_loses_nothing(client: Dialect, upstream: Dialect) -> None:
    body, dropped = sent(client, upstream, {**BODIES[client], "stream": True})
    assert dropped == ()
    assert body["model"] == "m-up"
    assert body["stream"] is True
    assert "hi" in json.dumps(body.get("messages", body.get("input")))
    assert len(body["tools"]) == 2


@each_pair
def test_T12_equal_requests_give_equal_bytes(client: Dialect, upstream: Dialect) -> None:
    request = CODECS[client].decode(json.dumps(BODIES[client]).encode())
    assert translate(request, upstream, "m").body == translate(request, upstream, "m").body


# --- messages in -----------------------------------------------------------------------------------------


def test_T05_tool_results_come_first_and_the_users_words_after_them() -> None:
    calls = [{"type": "tool_use", "id": i, "name": "f", "input": {}} for i in "AB"]
    turn = [
        {"type": "text", "text": "one"},
        {"type": "tool_result", "tool_use_id": "A", "content": "a"},
        {"type": "text", "text": "two"},
        {"type": "tool_result", "tool_use_id": "B", "content": [{"type": "text", "text": "b"}]},
    ]
    body, dropped = messages("chat", HI, {"role": "assistant", "content": calls}, {"role": "user", "content": turn})
    assert [m["role"] for m in body["messages"]] == ["user", "assistant", "tool", "tool", "user"]
    assert [(m["tool_call_id"], m["content"]) for m in body["messages"][2:4]] == [("A", "a"), ("B", "b")]
    assert [part["text"] for part in body["messages"][4]["content"]] == ["one", "two"]
    assert dropped == ()
    items = messages("responses", HI, {"role": "assistant", "content": calls}, {"role": "user", "content": turn})[0][
        "input"
    ]
    assert [i["type"] for i in items] == ["message", "function_call", "function_call", "function_call_output",
                                          "function_call_output", "message"]  # fmt: skip


def test_T08_thinking_goes_only_where_it_was_signed() -> None:
    thought = {"type": "thinking", "thinking": "Hm", "signature": "Sig=="}
    redacted = {"type": "redacted_thinking", "data": "Enc=="}
    turn = {"role": "assistant", "content": [thought, redacted, {"type": "text", "text": "x"}]}
    for upstream in ("chat", "responses"):
        body, dropped = messages(upstream, HI, turn)
        assert dropped == ("thinking",)
        assert "Sig" not in json.dumps(body)
        assert "Hm" not in json.dumps(body)


def test_T10_cache_control_survives_where_the_dialect_has_it() -> None:
    mark = {"type": "ephemeral", "ttl": "1h"}
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}, "cache_control": mark}
    system = {"role": "system", "content": [{"type": "text", "text": "s", "cache_control": mark}]}
    body, dropped = chat("messages", system, HI, tools=[tool])
    assert body["system"] == [{"type": "text", "text": "s", "cache_control": mark}]
    assert body["tools"][0]["cache_control"] == mark
    assert dropped == ()


def test_T11_cache_control_is_taken_out_everywhere_but_in_the_clients_own_data() -> None:
    mark = {"type": "ephemeral", "ttl": "1h"}
    schema = {"type": "object", "properties": {"cache_control": {"type": "string"}}}
    given = {"type": "tool_use", "id": "A", "name": "f", "input": {"cache_control": 1}, "cache_control": mark}
    result = {
        "type": "tool_result",
        "tool_use_id": "A",
        "content": [{"type": "text", "text": "r", "cache_control": mark}],
    }
    for upstream in ("chat", "responses"):
        body, dropped = messages(
            upstream,
            {"role": "user", "content": [{"type": "text", "text": "x", "cache_control": mark}]},
            {"role": "assistant", "content": [given]},
            {"role": "user", "content": [{**result, "cache_control": mark}]},
            system=[{"type": "text", "text": "s", "cache_control": mark}],
            tools=[{"name": "f", "input_schema": schema, "cache_control": mark}],
        )
        assert dropped == ("cache_control",)
        assert "ephemeral" not in json.dumps(body)
        assert json.dumps(body).count("cache_control") == 2


@pytest.mark.parametrize(
    ("choice", "chat_choice", "responses_choice"),
    [
        (None, None, None),
        ({"type": "auto"}, "auto", "auto"),
        ({"type": "any"}, "required", "required"),
        ({"type": "none"}, "none", "none"),
        (
            {"type": "tool", "name": "f"},
            {"type": "function", "function": {"name": "f"}},
            {"type": "function", "name": "f"},
        ),
    ],
)
def test_T15_tool_choice_in_every_direction(choice: Any, chat_choice: Any, responses_choice: Any) -> None:
    bodies: dict[Dialect, Any] = {"messages": choice, "chat": chat_choice, "responses": responses_choice}
    for client, given in bodies.items():
        for upstream in bodies:
            if client != upstream:
                more = {} if given is None else {"tool_choice": given}
                body, dropped = sent(client, upstream, {**BODIES[client], **more})
                assert body.get("tool_choice") == bodies[upstream]
                assert dropped == ()


def test_T15_parallel_calls_are_switched_off_in_every_direction() -> None:
    assert (
        messages("chat", **tools("messages"), tool_choice={"type": "auto", "disable_parallel_tool_use": True})[0][
            "parallel_tool_calls"
        ]
        is False
    )
    assert chat("messages", **tools("chat"), parallel_tool_calls=False)[0]["tool_choice"] == {
        "type": "auto",
        "disable_parallel_tool_use": True,
    }
    assert (
        responses("messages", **tools("responses"), parallel_tool_calls=False)[0]["tool_choice"][
            "disable_parallel_tool_use"
        ]
        is True
    )
    assert "tool_choice" not in responses("messages", **tools("responses"), parallel_tool_calls=True)[0]


def test_T16_images_are_carried_also_out_of_tool_results() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    remote = {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}}
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "A", "name": "f", "input": {}}]}
    turn = {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "A", "content": [{"type": "text", "text": "t"}, image]},
            remote,
        ],
    }
    body, dropped = messages("chat", HI, call, turn)
    tool, user = body["messages"][2:]
    assert tool["content"] == "t"
    assert [p["image_url"]["url"] for p in user["content"] if p["type"] == "image_url"] == [PNG, "https://x/y.png"]
    assert dropped == ()
    items = messages("responses", HI, call, turn)[0]["input"]
    assert items[2]["output"][1] == {"type": "input_image", "image_url": PNG, "detail": "auto"}


def test_T16_parts_that_the_target_cannot_say_are_refused_by_name() -> None:
    audio = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
    body = {"model": "a", "messages": [{"role": "user", "content": [audio]}]}
    error = refusal("chat", "messages", body)
    assert "input_audio" in error.message
    assert "messages API" in error.message
    unknown = {"model": "a", "max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "hologram"}]}]}
    assert refusal("messages", "chat", unknown).param == "messages[0].content[0]"
    strange = {"model": "a", "max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "SECRET WORDS"}]}]}
    assert "SECRET" not in refusal("messages", "chat", strange).message
    kept = {"model": "a", "input": [{"role": "user", "content": [{"type": "input_image", "file_id": "file_1"}]}]}
    assert refusal("responses", "messages", kept).param == "input[0].content[0].file_id"


def test_T16_files_are_carried() -> None:
    body, _ = chat(
        "messages", {"role": "user", "content": [{"type": "file", "file": {"filename": "a.pdf", "file_data": PDF}}]}
    )
    assert body["messages"][0]["content"][0]["source"] == {
        "type": "base64",
        "media_type": "application/pdf",
        "data": "JVBERi0=",
    }
    body, _ = responses(
        "messages",
        {
            "role": "user",
            "content": [{"type": "input_file", "filename": "a", "file_data": "data:text/plain;base64,aGk="}],
        },
    )
    assert body["messages"][0]["content"][0]["source"] == {"type": "text", "media_type": "text/plain", "data": "hi"}
    document = {
        "type": "document",
        "title": "T",
        "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
    }
    body, _ = messages("chat", {"role": "user", "content": [document]})
    assert body["messages"][0]["content"] == [{"type": "file", "file": {"filename": "T", "file_data": PDF}}]


@pytest.mark.parametrize("upstream", ["chat", "responses"])
def test_Q07_objects_with_properties_are_closed_and_maps_stay_open(upstream: Dialect) -> None:
    inner = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    schema = {"type": "object", "properties": {"a": inner, "m": {"type": "object"}}, "required": ["a", "m"]}
    given = {"output_config": {"format": {"type": "json_schema", "schema": schema}}}
    body, _ = messages(upstream, **given)
    found = body["response_format"]["json_schema"] if upstream == "chat" else body["text"]["format"]
    assert found["schema"]["additionalProperties"] is False
    assert found["schema"]["properties"]["a"]["additionalProperties"] is False
    assert found["schema"]["properties"]["m"] == {"type": "object"}
    assert found["strict"] is False  # OpenAI's strict mode has no open maps
    closed, _ = messages("chat", output_config={"format": {"type": "json_schema", "schema": inner}})
    assert closed["response_format"]["json_schema"]["strict"] is True


def test_a_claude_code_like_body_reaches_chat_whole() -> None:
    body, dropped = messages(
        "chat",
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "<system-reminder>x</system-reminder>"},
                {"type": "text", "text": "do it"},
            ],
        },
        {"role": "system", "content": "late notes"},
        system=[{"type": "text", "text": "one"}, {"type": "text", "text": "two"}],
        thinking={"type": "adaptive"},
        output_config={"effort": "high"},
        context_management={"edits": []},
        metadata={"user_id": "u" * 200},
        stream=True,
    )
    assert [m["role"] for m in body["messages"]] == ["system", "user", "system"]
    assert body["messages"][0]["content"] == "one\n\ntwo"
    assert body["reasoning_effort"] == "high"
    assert body["max_completion_tokens"] == 99
    assert body["stream_options"] == {"include_usage": True}
    assert set(dropped) == {"context_management", "metadata.user_id"}


def test_an_error_flag_on_a_tool_result_is_listed() -> None:
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "A", "name": "f", "input": {}}]}
    result = {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "A", "is_error": True, "content": "no"}],
    }
    assert messages("chat", HI, call, result)[1] == ("tool_result.is_error",)


def test_thinking_budgets_become_efforts() -> None:
    for budget, effort in ((1024, "low"), (8000, "medium"), (32000, "high")):
        assert messages("chat", thinking={"type": "enabled", "budget_tokens": budget})[0]["reasoning_effort"] == effort
    assert messages("chat", thinking={"type": "disabled"})[0]["reasoning_effort"] == "none"
    assert "reasoning_effort" not in messages("chat", thinking={"type": "adaptive"})[0]
    assert chat("messages", reasoning_effort="none")[0]["thinking"] == {"type": "disabled"}
    body, dropped = chat("messages", reasoning_effort="minimal", temperature=0.5)
    assert (body["output_config"], body["thinking"]) == ({"effort": "low"}, {"type": "adaptive"})
    assert dropped == ("temperature",)


def test_a_tools_name_that_is_too_long_for_openai_is_cut_and_comes_back_whole() -> None:
    name = "mcp__a_server_with_a_long_name__" + "a_tool_with_a_long_name_" * 3
    tool = {"name": name, "input_schema": {"type": "object"}}
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "A", "name": name, "input": {}}]}
    asked = {"model": "a", "max_tokens": 99, "messages": [HI, call], "tools": [tool, {**tool, "name": name + "2"}]}
    asked["tool_choice"] = {"type": "tool", "name": name}
    done = translate(CODECS["messages"].decode(json.dumps(asked).encode()), "chat", "m")
    body = json.loads(done.body)
    names = [t["function"]["name"] for t in body["tools"]]
    assert all(len(n) <= 64 for n in names)
    assert len(set(names)) == 2
    assert body["messages"][1]["tool_calls"][0]["function"]["name"] == names[0]
    assert body["tool_choice"]["function"]["name"] == names[0]
    reply = {"role": "assistant", "tool_calls": [{"id": "B", "function": {"name": names[0], "arguments": "{}"}}]}
    answer = json.loads(done.answer(json.dumps({"choices": [{"message": reply}]}).encode()))
    assert answer["content"][0]["name"] == name


def test_what_anthropics_own_tools_did_is_listed_and_what_the_client_found_is_carried() -> None:
    earlier = [
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
        {"type": "text", "text": "found"},
        {"type": "tool_use", "id": "A", "name": "ToolSearch", "input": {}},
    ]
    found = [{"type": "tool_reference", "tool_name": "mcp__x"}]
    result = {"type": "search_result", "title": "T", "source": "S", "content": [{"type": "text", "text": "W"}]}
    turn = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "A", "content": found}, result]}
    body, dropped = messages("chat", HI, {"role": "assistant", "content": earlier}, turn)
    assert set(dropped) == {"content.server_tool_use", "content.web_search_tool_result"}
    assert body["messages"][1]["content"] == "found"
    assert "mcp__x" in body["messages"][2]["content"]
    assert body["messages"][3]["content"] == "T\nS\nW"
