"""`pointsman serve` as a process: start, refusal, drain."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import chat, chat_stream
from tests.support.ports import free_port
from tests.support.rig import POLICY, groups
from tests.support.served import serving, write

BODY = {"model": "auto", "messages": [{"role": "user", "content": "hello"}]}


async def test_a_bad_configuration_ends_serve_with_2_and_every_mistake_at_its_place(tmp_path: Path) -> None:
    config = write(
        tmp_path, groups({"a": "http://x/v1"}, {"small": ["a"], "large": ["nobody"]}), POLICY + "colour: red\n"
    )
    argv = [sys.executable, "-m", "router", "serve", "--config", str(config), "--port", "0", "--admin-port", "0"]
    done = await asyncio.to_thread(subprocess.run, argv, capture_output=True, timeout=60)
    assert done.returncode == 2
    said = done.stderr.decode()
    assert "groups.yaml:4:" in said
    assert "nobody" in said
    assert "default.yaml:8:1: colour:" in said


async def test_a_port_that_is_taken_is_said_in_one_sentence(tmp_path: Path) -> None:
    config = write(tmp_path, groups({"a": "http://127.0.0.1:9/v1"}, {"small": ["a"], "large": ["a"]}))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        argv = [sys.executable, "-m", "router", "serve", "--config", str(config), "--port", str(taken.getsockname()[1])]
        done = await asyncio.to_thread(subprocess.run, argv, capture_output=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.decode().strip().count("\n") == 0
    assert "--port" in done.stderr.decode()


@pytest.mark.slow
async def test_F18_L18_a_sigterm_drains_streams_and_keeps_the_listener_open_for_three_seconds(tmp_path: Path) -> None:
    words = [f"w{i} " for i in range(50)]
    async with ScriptedServer(
        lambda seen: chat_stream(words, gap_s=0.1) if seen.json().get("stream") else chat("hi")(seen)
    ) as a:
        config = write(tmp_path, groups({"a": a}, {"small": ["a"], "large": ["a"]}))
        async with serving(tmp_path, config) as (process, client, _):

            async def stream() -> bytes:
                return (await client.post("/v1/chat/completions", json=BODY | {"stream": True})).content

            streams = [asyncio.create_task(stream()) for _ in range(5)]
            await asyncio.sleep(0.5)
            process.send_signal(signal.SIGTERM)
            begun = time.monotonic()
            await asyncio.sleep(1.0)
            assert (await client.get("/readyz")).status_code == 503
            while time.monotonic() - begun < 2.5:
                assert (await client.post("/v1/chat/completions", json=BODY)).status_code == 200
                await asyncio.sleep(0.1)
            for content in await asyncio.gather(*streams):
                assert content.endswith(b"data: [DONE]\n\n")
                assert content.count(b'"content": "w') == 50
            ended = time.monotonic()
            assert await asyncio.to_thread(process.wait, 60) == 0
            assert time.monotonic() - ended < 30


@pytest.mark.parametrize("more", [(), ("--workers", "2")], ids=["one process", "two workers"])
async def test_a_hangup_while_it_starts_ends_nothing_and_a_change_meanwhile_is_taken(
    tmp_path: Path, more: tuple[str, ...]
) -> None:
    config = write(tmp_path, groups({"a": "http://127.0.0.1:9/v1"}, {"small": ["a"], "large": ["a"]}))
    state, port = tmp_path / "state", free_port()
    argv = [sys.executable, "-m", "router", "serve", "--config", str(config), "--port", str(port)]
    argv += ["--admin-port", str(free_port()), "--state", str(state), *more]
    with (tmp_path / "log").open("wb") as out:
        process = subprocess.Popen(argv, stdout=out, stderr=out)
    try:
        async with asyncio.timeout(60), httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            while not state.exists():  # by then the files have been read
                await asyncio.sleep(0.001)
            policy = config / "default.yaml"
            policy.write_text(policy.read_text().replace("[auto]", "[changed]"))
            models: list[str] = []
            while "changed" not in models:
                if not models:
                    process.send_signal(signal.SIGHUP)
                with contextlib.suppress(httpx.TransportError):
                    models = [one["id"] for one in (await client.get("/v1/models")).json()["data"]]
                await asyncio.sleep(0.02)
                assert process.poll() is None
            assert "ended with" not in (tmp_path / "log").read_text()
            process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait, 60) == 0
    finally:
        process.kill()
        process.wait()


async def test_records_outlive_the_gateway_and_can_be_exported(tmp_path: Path) -> None:
    async with ScriptedServer(chat("hi")) as a:
        config = write(tmp_path, groups({"a": a}, {"small": ["a"], "large": ["a"]}))
        async with serving(tmp_path, config) as (process, client, admin):
            reply = await client.post("/v1/chat/completions", json=BODY, headers={"x-score": "0.7"})
            request_id = reply.headers["x-pointsman-request-id"]
            async with httpx.AsyncClient() as asking:
                for _ in range(100):
                    shown = await asking.get(f"{admin}/admin/records/{request_id}")
                    if shown.status_code == 200:
                        break
                    await asyncio.sleep(0.05)
                assert shown.json()["decision"]["group"] == "large"
                metrics = (await asking.get(f"{admin}/metrics")).text
                assert 'pointsman_requests_total{dialect="chat",group="large",outcome="ok"' in metrics
            process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait, 20) == 0
    out = tmp_path / "records.jsonl"
    argv = [sys.executable, "-m", "router", "records", "export", "--out", str(out), "--state", str(tmp_path / "state")]
    done = await asyncio.to_thread(subprocess.run, argv, capture_output=True, timeout=60, env=os.environ)
    assert done.returncode == 0, done.stderr.decode()
    (line,) = [json.loads(text) for text in out.read_text().splitlines()]
    assert line["id"] == request_id
    assert line["scores"] == {"difficulty": 0.7}
    assert "hello" not in out.read_text()
    record = tmp_path / "record.json"
    record.write_text(json.dumps(line))
    argv = [sys.executable, "-m", "router", "explain", str(record), "--config", str(config), "--json"]
    done = await asyncio.to_thread(subprocess.run, argv, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    told = json.loads(done.stdout)
    assert (told["decision"]["group"], told["decision"]["route"]) == (
        line["decision"]["group"],
        line["decision"]["route"],
    )


async def test_a_hangup_takes_the_changed_files_and_the_process_serves_on(tmp_path: Path) -> None:
    async with ScriptedServer(chat("hi")) as server:
        config = write(tmp_path, groups({"a": server}, {"small": ["a"], "large": ["a"]}))
        async with serving(tmp_path, config) as (process, client, admin), httpx.AsyncClient() as other:
            before = (await other.get(f"{admin}/admin/config")).json()["digest"]
            (config / "default.yaml").write_text(POLICY + "# a comment\n")
            process.send_signal(signal.SIGHUP)
            async with asyncio.timeout(10):
                while (await other.get(f"{admin}/admin/config")).json()["digest"] == before:
                    await asyncio.sleep(0.05)
            assert process.poll() is None
            assert (await client.post("/v1/chat/completions", json=BODY)).status_code == 200
