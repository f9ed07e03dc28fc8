"""What deployments report of their load and of their health, asked for over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from router.config import Config, Deployment
from router.health import Health
from router.reports import Reports, parse
from router.types import Report
from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import Head, Script, Seen, Send, Step, chat
from tests.support import rig

VLLM = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 2.0
vllm:num_requests_waiting{engine="0",model_name="m"} 4.0
vllm:num_requests_waiting{engine="1",model_name="m"} 0.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 9.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
"""
OLD_VLLM = "vllm:num_requests_running 1\nvllm:num_requests_waiting 0\nvllm:gpu_cache_usage_perc 1.0e-1\n"
SGLANG = """\
sglang:num_running_reqs{model_name="a} b"} 7
sglang:num_queue_reqs{model_name="a} b"} 2
sglang:token_usage{model_name="a} b"} 0.28
"""
LLAMA = "llamacpp:requests_processing 1\nllamacpp:requests_deferred 4\n"


@pytest.mark.parametrize(
    ("text", "report"),
    [
        (VLLM, Report(running=5, waiting=4, kv=0.75)),
        (OLD_VLLM, Report(running=1, waiting=0, kv=0.1)),
        (SGLANG, Report(running=7, waiting=2, kv=0.28)),
        (LLAMA, Report(running=1, waiting=4)),
        (LLAMA + "llamacpp:kv_cache_usage_ratio 0.5\n", Report(running=1, waiting=4, kv=0.5)),
        ("vllm:num_requests_running NaN\nvllm:num_requests_waiting -1\nvllm:kv_cache_usage_perc +Inf\n", Report()),
        ("<html>not metrics</html>", Report()),
    ],
)
def test_the_names_of_each_engine_old_and_new_are_read(text: str, report: Report) -> None:
    assert parse(text) == report


def engine(metrics: Callable[[], str], health: Callable[[], int] = lambda: 200) -> Script:
    def script(seen: Seen) -> list[Step]:
        if seen.path == "/metrics":
            return [Head(headers={"content-type": "text/plain"}), Send(metrics().encode())]
        if seen.path == "/health":
            return [Head(status=health()), Send(b"")]
        return chat("ok")(seen)

    return script


def asked(server: ScriptedServer) -> int:
    return sum(visit.seen.path.startswith("/v1/") for visit in server.visits)


async def until(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not what():
            await asyncio.sleep(0.05)


async def test_a_deployment_with_a_queue_gets_no_requests_while_another_has_none(tmp_path: Path) -> None:
    busy, idle = engine(lambda: VLLM), engine(lambda: OLD_VLLM)
    async with ScriptedServer(busy) as one, ScriptedServer(idle) as two:
        files = rig.groups({"a": one, "b": two}, {"small": ["a", "b"], "large": ["b"]}, ", metrics_url: /metrics")
        async with rig.running(tmp_path, files) as gateway:
            await until(lambda: len(gateway.gateway.health.load(0).reports) == 2)
            for _ in range(10):
                assert (await gateway.ask()).status_code == 200
            assert (asked(one), asked(two)) == (0, 10)
            text = (await gateway.client.get(f"{gateway.admin}/metrics")).text
            assert 'pointsman_queue_depth{deployment="a"} 4.0' in text
            assert 'pointsman_kv_usage{deployment="a"} 0.75' in text
            newest = (await gateway.records())[0]
            assert newest.load is not None
            assert newest.load.reports["a"].waiting == 4


async def test_numbers_that_an_engine_lacks_are_named_once_in_the_log_and_in_the_admin_api(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pointsman.reports")
    async with ScriptedServer(engine(lambda: LLAMA)) as one, ScriptedServer(chat("ok")) as two:
        two.script = engine(lambda: "")
        files = rig.groups({"a": one, "b": two}, {"small": ["a"], "large": ["b"]}, ", metrics_url: /metrics")
        async with rig.running(tmp_path, files) as gateway:
            await until(lambda: sum(v.seen.path == "/metrics" for v in one.visits) >= 3)
            groups = (await gateway.client.get(f"{gateway.admin}/admin/groups")).json()["groups"]
            lacks = {d["deployments"][0]["name"]: d["deployments"][0]["load_lacks"] for d in groups}
            assert lacks["a"] == "the engine does not report kv"
            assert lacks["b"] == "the engine does not report running, waiting, kv"
    assert sum("deployment a" in line for line in caplog.messages) == 1


async def test_a_deployment_that_is_not_to_be_asked_is_not_asked(tmp_path: Path) -> None:
    async with ScriptedServer(chat("ok")) as one:
        async with rig.running(tmp_path, rig.groups({"a": one}, {"small": ["a"], "large": ["a"]})):
            await asyncio.sleep(1.2)
        assert one.visits == []


async def test_M07_a_failing_health_check_takes_a_deployment_out_and_a_passing_one_brings_it_back(
    tmp_path: Path,
) -> None:
    """No generation is asked for to see whether it lives."""
    status = 503
    script = engine(lambda: "", lambda: status)
    async with ScriptedServer(script) as one, ScriptedServer(engine(lambda: "")) as two:
        files = rig.groups({"a": one, "b": two}, {"small": ["a"], "large": ["b"]}, ", health_url: /health")
        async with rig.running(tmp_path, files) as gateway:
            await until(lambda: not gateway.gateway.health.of("a", asyncio.get_running_loop().time())["up"])
            assert (await gateway.ask()).headers["x-pointsman-deployment"] == "b"
            assert asked(one) == 0
            status = 200
            await until(lambda: bool(gateway.gateway.health.of("a", asyncio.get_running_loop().time())["up"]))
            assert (await gateway.ask()).headers["x-pointsman-deployment"] == "a"
    assert {visit.seen.path for visit in one.visits} == {"/health", "/v1/chat/completions"}


async def test_F29_what_is_asked_every_second_is_asked_anew_where_it_is() -> None:
    opened = 0

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal opened
        opened += 1
        with contextlib.suppress(asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    deployment = Deployment(name="a", upstream="openai", base_url=f"{url}/v1", health_url="/health")
    config = Config(policies={}, models={}, groups={}, deployments={"a": deployment}, scorers={}, digest="")
    reports = Reports(Health(), age_s=0.01)
    async with server, asyncio.timeout(20):
        reports.use(config)
        while opened < 2:
            await asyncio.sleep(0.05)
        await reports.aclose()
