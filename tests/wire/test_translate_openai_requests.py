"""Requests of OpenAI's dialects for upstreams of the others: mapped, refused, or listed as dropped."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest

from router.errors import BadAnswer, BadRequest
from router.types import Dialect
from router.wire import CODECS
from router.wire.translate import translate
from tests.wire.translated import BODIES, HI, chat, messages, refusal, responses, tools

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
    body, _ = responses("chat", **tools("responses"), tool_choice=choice)
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


def test_call_ids_with_characters_that_anthropic_refuses_are_written_in_those_it_takes() -> None:
    call = {"id": "functions.f:0", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    output = {"role": "tool", "tool_call_id": "functions.f:0", "content": "r"}
    body, _ = chat("messages", HI, {"role": "assistant", "tool_calls": [call]}, output)
    made, told = body["messages"][1]["content"][0], body["messages"][2]["content"][0]
    assert made["id"] == told["tool_use_id"] == "functions_f_0"


@pytest.mark.parametrize("depth", [200, 400, 600, 800, 950])
def test_a_deeply_nested_schema_is_translated_or_400(depth: int) -> None:
    schema = '{"type":"object","properties":{"a":' * depth + "{}" + "}}" * depth
    for client, field in (
        ("messages", f'"max_tokens":9,"output_config":{{"format":{{"type":"json_schema","schema":{schema}}}}}'),
        ("messages", f'"max_tokens":9,"tools":[{{"name":"f","input_schema":{schema}}}]'),
        ("chat", f'"tools":[{{"type":"function","function":{{"name":"f","parameters":{schema}}}}}]'),
    ):
        body = f'{{"model":"a","messages":[{{"role":"user","content":"x"}}],{field}}}'.encode()
        for upstream in {"chat", "messages", "responses"} - {client}:
            with suppress(BadRequest):
                assert translate(CODECS[client].decode(body), upstream, "m").body


@pytest.mark.parametrize("depth", [400, 950, 100_000])
def test_a_deeply_nested_answer_is_translated_or_a_bad_answer(depth: int) -> None:
    nested = '{"a":' * depth + "1" + "}" * depth
    asked = translate(CODECS["chat"].decode(b'{"model":"a","messages":[],"stream":true}'), "messages", "m")
    answer = f'{{"content":[{{"type":"tool_use","id":"1","name":"f","input":{nested}}}]}}'.encode()
    with suppress(BadAnswer):
        assert asked.answer(answer)
    start = (
        f'{{"type":"content_block_start","index":0,"content_block":{{"type":"tool_use","name":"f","input":{nested}}}}}'
    )
    with suppress(BadAnswer):
        assert asked.meter().feed(f"data: {start}\n\n".encode())
