"""Requests in every other dialect: what is mapped, what is refused, what is listed as dropped."""

from __future__ import annotations

import json
from typing import Any

import pytest

from router.errors import BadRequest
from router.types import Dialect
from router.wire import CODECS
from router.wire.translate import translate
from tests.wire.published import check_request
from tests.wire.translated import BODIES, each_pair

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
        messages("chat", **_tools("messages"), tool_choice={"type": "auto", "disable_parallel_tool_use": True})[0][
            "parallel_tool_calls"
        ]
        is False
    )
    assert chat("messages", **_tools("chat"), parallel_tool_calls=False)[0]["tool_choice"] == {
        "type": "auto",
        "disable_parallel_tool_use": True,
    }
    assert (
        responses("messages", **_tools("responses"), parallel_tool_calls=False)[0]["tool_choice"][
            "disable_parallel_tool_use"
        ]
        is True
    )
    assert "tool_choice" not in responses("messages", **_tools("responses"), parallel_tool_calls=True)[0]


def _tools(dialect: Dialect) -> dict[str, Any]:
    return {"tools": BODIES[dialect]["tools"]}


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


# --- chat in ---------------------------------------------------------------------------------------------


def test_a_chat_tool_loop_becomes_a_messages_one() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    bare = {"id": "c2", "type": "function", "function": {"name": "g", "arguments": ""}}
    body, dropped = chat(
        "messages",
        {"role": "developer", "content": "d"},
        {"role": "system", "content": "s"},
        HI,
        {"role": "assistant", "content": None, "tool_calls": [call, bare]},
        {"role": "tool", "tool_call_id": "c1", "content": "r1"},
        {"role": "tool", "tool_call_id": "c2", "content": ""},
        {"role": "user", "content": "go on"},
        {"role": "assistant", "content": ""},
    )
    assert [b["text"] for b in body["system"]] == ["d", "s"]
    assert [m["role"] for m in body["messages"]] == ["user", "assistant", "user"]
    assert [b["input"] for b in body["messages"][1]["content"]] == [{"a": 1}, {}]  # T03
    assert [b["type"] for b in body["messages"][2]["content"]] == ["tool_result", "tool_result", "text"]
    assert body["max_tokens"] == 8192
    assert dropped == ()


@pytest.mark.parametrize("arguments", ['{"a": ', "[1]", '"x"', "null"])
def test_T03_arguments_that_are_no_object_are_refused_by_an_api_that_demands_one(arguments: str) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    body = {"model": "a", "messages": [HI, {"role": "assistant", "tool_calls": [call]}]}
    assert refusal("chat", "messages", body).status == 400
    assert chat("responses", HI, {"role": "assistant", "tool_calls": [call]})[0]["input"][1]["arguments"] == arguments


def test_Q03_a_developer_message_becomes_what_the_target_knows() -> None:
    developer, system = {"role": "developer", "content": "d"}, {"role": "system", "content": "s"}
    assert chat("messages", developer, HI)[0]["system"] == "d"
    assert chat("responses", developer, HI)[0]["input"][0]["role"] == "developer"
    assert chat("responses", system, HI)[0]["instructions"] == "s"
    assert responses("chat", {"role": "developer", "content": "d"}, {"role": "developer", "content": "e"}, HI)[0][
        "messages"
    ] == [
        {"role": "system", "content": "d\n\ne"},
        HI,
    ]


def test_Q06_both_names_of_the_token_limit_give_the_smaller() -> None:
    assert chat("messages", max_tokens=5)[0]["max_tokens"] == 5
    assert chat("messages", max_completion_tokens=5)[0]["max_tokens"] == 5
    assert chat("responses", max_completion_tokens=50, max_tokens=20)[0]["max_output_tokens"] == 20


def test_Q04_every_chat_parameter_is_mapped_or_listed() -> None:
    body, dropped = chat(
        "messages", temperature=0.2, top_p=0.9, stop=["a"], seed=7, logprobs=True, top_logprobs=2, logit_bias={"1": 1},
        frequency_penalty=0.5, presence_penalty=0.5, user="u", metadata={"a": "b"}, store=True, service_tier="flex",
        verbosity="low", chat_template_kwargs={"x": 1}, prompt_cache_key="k", n=1,
        prediction={"type": "content", "content": ""},
    )  # fmt: skip
    assert body["temperature"] == 0.2
    assert body["top_p"] == 0.9
    assert body["stop_sequences"] == ["a"]
    assert body["metadata"] == {"user_id": "u"}
    listed = "seed logprobs top_logprobs logit_bias frequency_penalty presence_penalty metadata store service_tier"
    assert set(dropped) == {*listed.split(), "verbosity", "chat_template_kwargs", "prompt_cache_key", "prediction"}


def test_Q05_fields_that_ask_for_nothing_are_not_sent_on() -> None:
    body, dropped = responses(
        "chat", store=False, service_tier="auto", background=False, truncation="disabled", metadata={}
    )
    assert set(body) == {"model", "messages"}
    assert dropped == ()


def test_a_temperature_above_anthropics_range_is_cut_and_listed() -> None:
    body, dropped = chat("messages", temperature=1.7)
    assert body["temperature"] == 1
    assert dropped == ("temperature",)


@pytest.mark.parametrize("field", [{"n": 2}, {"modalities": ["text", "audio"]}])
def test_what_would_change_the_answer_is_refused(field: dict[str, Any]) -> None:
    name = next(iter(field))
    assert refusal("chat", "messages", {"model": "a", "messages": [HI], **field}).param == name


def test_a_limit_below_what_responses_takes_is_raised_and_listed() -> None:
    body, dropped = messages("responses", max_tokens=1)
    assert body["max_output_tokens"] == 16
    assert dropped == ("max_tokens",)


def test_the_old_function_fields_are_understood() -> None:
    function = {"name": "f", "parameters": {"type": "object"}}
    body, _ = chat(
        "messages",
        HI,
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "r"},
        functions=[function],
        function_call={"name": "f"},
    )
    assert body["tools"][0]["name"] == "f"
    assert body["tool_choice"] == {"type": "tool", "name": "f"}
    assert body["messages"][2]["content"][0]["tool_use_id"] == body["messages"][1]["content"][0]["id"]


def test_a_chat_stop_that_responses_does_not_have_is_listed() -> None:
    assert chat("responses", stop="x")[1] == ("stop",)


# --- responses in ----------------------------------------------------------------------------------------


def test_R05_state_that_another_api_holds_is_refused() -> None:
    for field in ({"previous_response_id": "resp_1"}, {"conversation": "conv_1"}, {"background": True}):
        error = refusal("responses", "chat", {"model": "a", "input": "hi", **field})
        assert error.param == next(iter(field))
    assert (
        refusal("responses", "chat", {"model": "a", "input": [{"type": "item_reference", "id": "x"}]}).param
        == "input[0]"
    )


def test_R08_a_codex_like_body_reaches_the_other_dialects() -> None:
    custom = {
        "type": "custom",
        "name": "apply_patch",
        "description": "Patch.",
        "format": {"type": "grammar", "syntax": "lark", "definition": "start: x"},
    }
    shell = {"type": "function", "name": "exec", "parameters": {"type": "object"}, "strict": False}
    space = {"type": "namespace", "name": "agents", "description": "a", "tools": [{**shell, "name": "close"}]}
    items = [
        {"type": "additional_tools", "role": "developer", "tools": [custom]},
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "d"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "do it"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
        {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": "*** Begin"},
        {"type": "function_call", "call_id": "c2", "name": "close", "namespace": "agents", "arguments": "{}"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "ok"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "closed"}]},
    ]
    more = {
        "instructions": "",
        "tools": [shell, space, {"type": "web_search", "external_web_access": False}],
        "include": ["reasoning.encrypted_content"],
        "client_metadata": {"a": "b"},
    }
    body, dropped = responses("chat", *items, **more)
    assert {t["function"]["name"] for t in body["tools"]} == {"apply_patch", "exec", "agents__close"}
    assistant = body["messages"][2]
    assert [c["function"]["name"] for c in assistant["tool_calls"]] == ["apply_patch", "agents__close"]
    assert json.loads(assistant["tool_calls"][0]["function"]["arguments"]) == {"input": "*** Begin"}
    assert [m["content"] for m in body["messages"][3:]] == ["ok", "closed"]
    assert set(dropped) == {"thinking", "include", "client_metadata", "tools.web_search"}
    assert any("grammar" in t["function"].get("description", "") for t in body["tools"])
    body, _ = responses("messages", *items, **more)
    assert [b["type"] for b in body["messages"][1]["content"]] == ["tool_use", "tool_use"]
    assert [b["type"] for b in body["messages"][2]["content"]] == ["tool_result", "tool_result"]


def test_R08_items_of_unknown_types_are_refused_by_name_and_pass_in_their_own_dialect() -> None:
    body = {"model": "a", "input": [{"type": "hologram_call", "id": "x"}]}
    assert "hologram_call" in refusal("responses", "chat", body).message
    assert CODECS["responses"].decode(json.dumps(body).encode()).body == json.dumps(body).encode()


def test_allowed_tools_become_the_only_tools() -> None:
    choice = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "g"}]}
    body, _ = responses("chat", **_tools("responses"), tool_choice=choice)
    assert [t["function"]["name"] for t in body["tools"]] == ["g"]
    assert body["tool_choice"] == "required"


def test_structured_output_between_openais_dialects() -> None:
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    shape = {"type": "json_schema", "name": "n", "schema": schema, "strict": True}
    body, dropped = responses("chat", text={"format": shape, "verbosity": "low"})
    assert body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "n", "schema": schema, "strict": True},
    }
    assert body["verbosity"] == "low"
    back, _ = chat("responses", response_format=body["response_format"], verbosity="low")
    assert back["text"] == {"format": shape, "verbosity": "low"}
    assert dropped == ()
    assert chat("messages", response_format={"type": "json_object"})[1] == ("response_format",)


@pytest.mark.parametrize(
    "value",
    [
        "null",
        '[{"role":"user","content":[null]}]',
        '[{"role":"user","content":[[]]}]',
        '[{"role":9}]',
        "[[]]",
        "[1e400]",
    ],
)
def test_hostile_bodies_are_400_in_every_direction(value: str) -> None:
    bodies: dict[Dialect, str] = {
        "chat": f'{{"model":"a","messages":{value}}}',
        "messages": f'{{"model":"a","max_tokens":1,"messages":{value}}}',
        "responses": f'{{"model":"a","input":{value}}}',
    }
    for client, body in bodies.items():
        for upstream in bodies:
            if client == upstream or (client == "responses" and value == "null"):
                continue
            with pytest.raises(BadRequest):
                translate(CODECS[client].decode(body.encode()), upstream, "m")


def test_integers_beyond_53_bits_in_schemas_are_kept() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "integer", "maximum": 2**63 + 1}}}
    body, _ = messages("chat", tools=[{"name": "f", "input_schema": schema}])
    assert body["tools"][0]["function"]["parameters"] == schema


def test_fields_that_the_operator_sets_win_and_null_removes() -> None:
    request = CODECS["messages"].decode(
        json.dumps({**BODIES["messages"], "output_config": {"effort": "high"}}).encode()
    )
    body = json.loads(translate(request, "chat", "m", set_fields={"temperature": 0, "reasoning_effort": None}).body)
    assert body["temperature"] == 0
    assert "reasoning_effort" not in body
