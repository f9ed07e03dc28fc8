"""OpenAI's and Anthropic's own SDKs against a whole gateway: plain, streamed, and a tool called and answered.

Runs everywhere; frameworks and command lines, which are large, run by `make test-clients`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from router.types import Dialect
from router.upstreams.scripted_server import ScriptedServer
from tests.support.agent import DONE, works
from tests.support.dialects import DIALECTS, ONE_GROUP, config, listed
from tests.support.rig import Rig, running

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}
ASK: dict[str, Any] = {"role": "user", "content": "What is 2 + 3?"}


class Gateway:
    """A gateway in front of one upstream of one dialect."""

    def __init__(self, rig: Rig, server: ScriptedServer) -> None:
        self.rig = rig
        self.server = server
        self.openai = openai.AsyncOpenAI(api_key="k", base_url=rig.base_url, max_retries=0)
        self.anthropic = anthropic.AsyncAnthropic(api_key="k", base_url=f"http://127.0.0.1:{rig.port}", max_retries=0)


@pytest.fixture(params=DIALECTS)
async def gateway(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Gateway]:
    dialect: Dialect = request.param
    async with (
        ScriptedServer(works(dialect)) as server,
        running(tmp_path, config((server, listed(dialect))), ONE_GROUP, None) as rig,
    ):
        made = Gateway(rig, server)
        async with made.openai, made.anthropic:
            yield made


async def test_openais_sdk_holds_a_chat(gateway: Gateway) -> None:
    chat = gateway.openai.chat.completions
    answer = await chat.create(model="auto", messages=[ASK])  # type: ignore[arg-type]
    assert answer.choices[0].message.content is not None
    assert answer.choices[0].message.content.strip() == DONE
    assert answer.usage is not None
    words, usage = "", None
    stream = await chat.create(model="auto", messages=[ASK], stream=True, stream_options={"include_usage": True})  # type: ignore[arg-type]
    async for chunk in stream:
        words += "".join(choice.delta.content or "" for choice in chunk.choices)
        usage = chunk.usage or usage
    assert (words.strip(), usage and usage.completion_tokens) == (DONE, 7)


@pytest.mark.parametrize("stream", [False, True])
async def test_openais_sdk_runs_a_tool_in_a_chat(gateway: Gateway, stream: bool) -> None:
    chat = gateway.openai.chat.completions
    tools: Any = [{"type": "function", "function": {"name": "add", "parameters": SCHEMA}}]
    said: list[Any] = [ASK]
    if stream:
        async with chat.stream(model="auto", messages=said, tools=tools) as events:
            message = (await events.get_final_completion()).choices[0].message
    else:
        message = (await chat.create(model="auto", messages=said, tools=tools)).choices[0].message
    assert message.tool_calls is not None
    (call,) = message.tool_calls
    assert call.type == "function"
    assert (call.function.name, json.loads(call.function.arguments)) == ("add", {"a": 2, "b": 3})
    said += [message, {"role": "tool", "tool_call_id": call.id, "content": "5"}]
    final = await chat.create(model="auto", messages=said, tools=tools)
    assert (final.choices[0].message.content or "").strip() == DONE
    assert len(gateway.server.visits) == 2


async def test_openais_sdk_gets_a_response(gateway: Gateway) -> None:
    answer = await gateway.openai.responses.create(model="auto", input="What is 2 + 3?")
    assert answer.output_text.strip() == DONE
    async with gateway.openai.responses.stream(model="auto", input="What is 2 + 3?") as events:
        kinds = [event.type async for event in events]
        final = await events.get_final_response()
    assert final.output_text.strip() == DONE
    assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")


@pytest.mark.parametrize("stream", [False, True])
async def test_openais_sdk_runs_a_tool_in_a_response(gateway: Gateway, stream: bool) -> None:
    responses = gateway.openai.responses
    tools: Any = [{"type": "function", "name": "add", "parameters": SCHEMA, "strict": False}]
    said: list[Any] = [ASK]
    more: Any = {"include": ["reasoning.encrypted_content"], "store": False}
    if stream:
        async with responses.stream(model="auto", input=said, tools=tools, **more) as events:
            answer: Any = await events.get_final_response()
    else:
        answer = await responses.create(model="auto", input=said, tools=tools, **more)
    (call,) = [item for item in answer.output if item.type == "function_call"]
    assert (call.name, json.loads(call.arguments)) == ("add", {"a": 2, "b": 3})
    said += [item.to_dict() for item in answer.output]
    said.append({"type": "function_call_output", "call_id": call.call_id, "output": "5"})
    final = await responses.create(model="auto", input=said, tools=tools, **more)
    assert final.output_text.strip() == DONE


async def test_anthropics_sdk_gets_a_message(gateway: Gateway) -> None:
    messages = gateway.anthropic.messages
    answer = await messages.create(model="auto", max_tokens=99, messages=[ASK])  # type: ignore[arg-type]
    assert "".join(block.text for block in answer.content if block.type == "text").strip() == DONE
    assert answer.usage.output_tokens == 7
    async with messages.stream(model="auto", max_tokens=99, messages=[ASK]) as stream:  # type: ignore[arg-type]
        words = "".join([word async for word in stream.text_stream])
        final = await stream.get_final_message()
    assert (words.strip(), final.stop_reason, final.usage.output_tokens) == (DONE, "end_turn", 7)
    counted = await messages.count_tokens(model="auto", messages=[ASK])  # type: ignore[arg-type]
    assert counted.input_tokens > 0


@pytest.mark.parametrize("stream", [False, True])
async def test_anthropics_sdk_runs_a_tool(gateway: Gateway, stream: bool) -> None:
    messages = gateway.anthropic.messages
    tools: Any = [{"name": "add", "input_schema": SCHEMA}]
    said: list[Any] = [ASK]
    thinking: Any = {"type": "enabled", "budget_tokens": 1024}
    asked: Any = {"model": "auto", "max_tokens": 4096, "tools": tools, "thinking": thinking}
    if stream:
        async with messages.stream(messages=said, **asked) as events:
            answer: Any = await events.get_final_message()
    else:
        answer = await messages.create(messages=said, **asked)
    assert (answer.stop_reason, answer.content[0].type) == ("tool_use", "thinking")
    (call,) = [block for block in answer.content if block.type == "tool_use"]
    assert (call.name, call.input) == ("add", {"a": 2, "b": 3})
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "5"}
    said += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": [result]}]
    final = await messages.create(messages=said, **asked)
    assert "".join(block.text for block in final.content if block.type == "text").strip() == DONE


async def test_errors_have_the_class_that_each_sdk_expects(gateway: Gateway) -> None:
    with pytest.raises(openai.NotFoundError):
        await gateway.openai.chat.completions.create(model="none", messages=[ASK])  # type: ignore[arg-type]
    with pytest.raises(openai.NotFoundError):
        await gateway.openai.models.retrieve("none")
    with pytest.raises(anthropic.NotFoundError) as caught:
        await gateway.anthropic.messages.create(model="none", max_tokens=9, messages=[ASK])  # type: ignore[arg-type]
    assert caught.value.type == "not_found_error"
    with pytest.raises(anthropic.BadRequestError):
        await gateway.anthropic.messages.create(model="auto", max_tokens=9, messages=[5])  # type: ignore[list-item]


async def test_C02_both_sdks_list_and_retrieve_the_models(gateway: Gateway) -> None:
    assert [model.id async for model in gateway.openai.models.list()] == ["auto", "small"]
    assert [model.id async for model in gateway.anthropic.models.list()] == ["auto", "small"]
    assert (await gateway.openai.models.retrieve("auto")).id == "auto"
    assert (await gateway.anthropic.models.retrieve("auto")).id == "auto"
