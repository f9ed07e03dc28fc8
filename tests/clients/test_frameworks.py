"""Agent frameworks on top of the SDKs against a whole gateway: plain, streamed, and a tool called and answered.

`make test-clients` installs them beside the environment of the other tests.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import openai
import pytest

from router.types import Dialect
from router.upstreams.scripted_server import ScriptedServer
from tests.support.agent import DONE, works
from tests.support.dialects import DIALECTS, ONE_GROUP, config, listed
from tests.support.rig import Rig, running

# The frameworks warn of their own affairs.
pytestmark = [pytest.mark.clients, pytest.mark.slow, pytest.mark.filterwarnings("default")]


def installed(module: str) -> Any:
    if find_spec(module.split(".")[0]) is None:
        pytest.skip(f"{module} is not installed; make test-clients installs it")
    return import_module(module)


@pytest.fixture(params=DIALECTS)
async def gateway(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Rig, ScriptedServer]]:
    dialect: Dialect = request.param
    async with (
        ScriptedServer(works(dialect)) as server,
        running(tmp_path, config((server, listed(dialect))), ONE_GROUP, None) as rig,
    ):
        yield rig, server


def add(a: int, b: int) -> int:
    """The sum of two numbers."""
    return a + b


def came_back(server: ScriptedServer) -> bool:
    """Whether the tool's result reached the upstream."""
    marks = ('"tool_result"', '"role": "tool"', "_call_output")
    return any(mark in json.dumps(visit.seen.json()) for visit in server.visits for mark in marks)


@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_openais_agents(gateway: tuple[Rig, ScriptedServer], api: str) -> None:
    agents = installed("agents")
    rig, server = gateway
    agents.set_tracing_disabled(True)
    async with openai.AsyncOpenAI(api_key="k", base_url=rig.base_url, max_retries=0) as sdk:
        kind = agents.OpenAIChatCompletionsModel if api == "chat" else agents.OpenAIResponsesModel
        model = kind(model="auto", openai_client=sdk)
        agent = agents.Agent(name="adds", model=model, tools=[agents.function_tool(add)])
        plain = await agents.Runner.run(agents.Agent(name="talks", model=model), "hi")
        assert plain.final_output.strip() == DONE
        done = await agents.Runner.run(agent, "What is 2 + 3?")
        assert done.final_output.strip() == DONE
        assert came_back(server)
        streamed = agents.Runner.run_streamed(agent, "What is 2 + 3?")
        kinds = [event.type async for event in streamed.stream_events()]
        assert "raw_response_event" in kinds
        assert streamed.final_output.strip() == DONE


@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_langchain(gateway: tuple[Rig, ScriptedServer], api: str) -> None:
    langchain = installed("langchain_openai")
    core = installed("langchain_core.messages")
    rig, server = gateway
    model = langchain.ChatOpenAI(
        model="auto", api_key="k", base_url=rig.base_url, max_retries=0, use_responses_api=api == "responses"
    )
    assert _text(await model.ainvoke("hi")) == DONE
    whole: Any = None
    async for chunk in model.astream("hi"):
        whole = chunk if whole is None else whole + chunk
    assert _text(whole) == DONE
    tools = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}]
    bound = model.bind_tools(tools)
    said: list[Any] = [core.HumanMessage("What is 2 + 3?")]
    answer = await bound.ainvoke(said)
    (call,) = answer.tool_calls
    assert (call["name"], call["args"]) == ("add", {"a": 2, "b": 3})
    said += [answer, core.ToolMessage("5", tool_call_id=call["id"])]
    assert _text(await bound.ainvoke(said)) == DONE
    assert came_back(server)


def _text(message: Any) -> str:
    text = message.text
    return str(text() if callable(text) and not isinstance(text, str) else text).strip()


@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
async def test_pydantic_ai(gateway: tuple[Rig, ScriptedServer], api: str) -> None:
    ai = installed("pydantic_ai")
    rig, server = gateway
    if api == "messages":
        import anthropic

        sdk = anthropic.AsyncAnthropic(api_key="k", base_url=f"http://127.0.0.1:{rig.port}", max_retries=0)
        provider = import_module("pydantic_ai.providers.anthropic").AnthropicProvider(anthropic_client=sdk)
        model = import_module("pydantic_ai.models.anthropic").AnthropicModel("auto", provider=provider)
    else:
        provider = import_module("pydantic_ai.providers.openai").OpenAIProvider(base_url=rig.base_url, api_key="k")
        models = import_module("pydantic_ai.models.openai")
        kind = models.OpenAIChatModel if api == "chat" else models.OpenAIResponsesModel
        model = kind("auto", provider=provider)
    assert (await ai.Agent(model).run("hi")).output.strip() == DONE
    async with ai.Agent(model).run_stream("hi") as streamed:
        assert (await streamed.get_output()).strip() == DONE
    agent = ai.Agent(model, tools=[add])
    assert (await agent.run("What is 2 + 3?")).output.strip() == DONE
    assert came_back(server)


async def test_litellm_as_a_client(gateway: tuple[Rig, ScriptedServer]) -> None:
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    litellm = installed("litellm")
    rig, server = gateway
    asked: dict[str, Any] = {"model": "openai/auto", "api_base": rig.base_url, "api_key": "k", "max_retries": 0}
    said: list[Any] = [{"role": "user", "content": "What is 2 + 3?"}]
    plain = await litellm.acompletion(messages=said, **asked)
    assert plain.choices[0].message.content.strip() == DONE
    stream = await litellm.acompletion(messages=said, stream=True, **asked)
    assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]).strip() == DONE
    asked["tools"] = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
    message = (await litellm.acompletion(messages=said, **asked)).choices[0].message
    (call,) = message.tool_calls
    said += [message.model_dump(), {"role": "tool", "tool_call_id": call.id, "content": "5"}]
    assert (await litellm.acompletion(messages=said, **asked)).choices[0].message.content.strip() == DONE
    assert came_back(server)


async def test_llm(gateway: tuple[Rig, ScriptedServer], tmp_path: Path) -> None:
    installed("llm")
    rig, server = gateway
    home = tmp_path / "llm"
    home.mkdir()
    known = f"- model_id: gw\n  model_name: auto\n  api_base: {rig.base_url}\n  supports_tools: true\n"
    (home / "extra-openai-models.yaml").write_text(known)
    tools = "def add(a: int, b: int) -> int:\n    'The sum of two numbers.'\n    return a + b\n"
    for more in (["--no-stream"], [], ["--functions", tools, "--no-stream"], ["--functions", tools]):
        environ = {**os.environ, "LLM_USER_PATH": str(home), "HOME": str(home), "OPENAI_API_KEY": "k"}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "llm", "-m", "gw", "--key", "k", "--no-log", *more, "What is 2 + 3?"),
            env=environ,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(120):
            out, err = await process.communicate()
        assert process.returncode == 0, err.decode()[-2000:]
        assert DONE in out.decode()
    assert came_back(server)
