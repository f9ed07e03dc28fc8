"""`pointsman doctor`: each part of a set-up that is not as it should be has its line, and what to do about it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from router.doctor import Finding, Options, examine
from router.upstreams.scripted_server import ScriptedServer
from tests.support import engines
from tests.support.engines import answering
from tests.support.ports import free_port
from tests.support.redis_server import RedisServer, redis_server
from tests.support.rig import POLICY, SCORERS, running

GROUPS = """\
version: 1
groups: {{small: {{deployments: [small-a]}}, large: {{deployments: [large-a, large-b]}}}}
deployments:
  small-a: {{upstream: openai, base_url: "{small}", model: "{model}", api_key: "{key}"}}
  large-a: {{upstream: openai, base_url: "{large}", model: Qwen/Qwen3-235B-A22B, health_url: /health}}
  large-b: {{upstream: openai, base_url: "{other}", model: Qwen/Qwen3-235B-A22B}}
"""
NOWHERE = "http://127.0.0.1:9/v1"


def files(folder: Path, small: str, large: str, other: str, *, model: str = "qwen3:8b", key: str = "none") -> Path:
    config = folder / "config"
    config.mkdir(exist_ok=True)
    (config / "groups.yaml").write_text(GROUPS.format(small=small, large=large, other=other, model=model, key=key))
    (config / "default.yaml").write_text(POLICY + "examples: [{scores: {difficulty: 0.1}, expect: {group: small}}]\n")
    (config / "scorers.yaml").write_text(SCORERS.replace("kind: header, header: x-score", "kind: lexical"))
    return config


async def look(folder: Path, config: Path, **more: object) -> dict[str, Finding]:
    """Findings by what they are about; the worst of several."""
    ports = {"port": free_port(), "admin_port": free_port()} | more
    options = Options(config=config, state=folder / "state", **ports)  # pyright: ignore[reportArgumentType]
    found = await examine(options, {})
    return {one.about: one for level in ("ok", "warn", "fail") for one in found if one.level == level}


async def test_a_set_up_whose_servers_serve_its_models_is_well(tmp_path: Path) -> None:
    async with ScriptedServer(answering(engines.OLLAMA)) as small, ScriptedServer(answering(engines.VLLM)) as large:
        found = await look(tmp_path, files(tmp_path, small.base_url, large.base_url, large.base_url))
    assert {one.level for one in found.values()} == {"ok"}
    assert found["deployment small-a"].found == f"127.0.0.1:{small.port} serves qwen3:8b"
    assert set(found) >= {"program", "configuration", "scorer difficulty", "data port", "admin port", "state folder"}


async def test_a_server_that_is_down_is_a_fail_where_nothing_else_serves_its_group_and_else_a_warning(
    tmp_path: Path,
) -> None:
    async with ScriptedServer(answering(engines.VLLM)) as large:
        found = await look(tmp_path, files(tmp_path, NOWHERE, large.base_url, NOWHERE))
    small, other = found["deployment small-a"], found["deployment large-b"]
    assert (small.level, other.level) == ("fail", "warn")
    assert small.found == "127.0.0.1:9 cannot be reached (ConnectError)"
    assert small.todo == "start the server, or correct base_url in groups.yaml"
    assert other.found.endswith("; large is served by others")
    assert found["group small"].level == "fail"
    assert "group large" not in found


async def test_a_model_that_a_server_does_not_have_is_told_with_those_that_it_has(tmp_path: Path) -> None:
    async with ScriptedServer(answering(engines.OLLAMA)) as small, ScriptedServer(answering(engines.VLLM)) as large:
        config = files(tmp_path, small.base_url, large.base_url, large.base_url, model="qwen3:80b")
        found = await look(tmp_path, config)
    one = found["deployment small-a"]
    assert (one.level, one.found) == ("fail", f"127.0.0.1:{small.port} does not serve qwen3:80b")
    assert (
        one.todo
        == "correct `model` in groups.yaml; it serves gemma3:latest, llama3.2:1b, nomic-embed-text:latest, qwen3:8b"
    )


async def test_a_key_that_is_missing_or_wrong_is_told_and_never_shown(tmp_path: Path) -> None:
    async with (
        ScriptedServer(answering(engines.OLLAMA, key="right")) as small,
        ScriptedServer(answering(engines.VLLM)) as large,
    ):
        without = await look(tmp_path, files(tmp_path, small.base_url, large.base_url, large.base_url))
        config = files(tmp_path, small.base_url, large.base_url, large.base_url, key="wrong-and-secret")
        wrong = await look(tmp_path, config)
        config = files(tmp_path, small.base_url, large.base_url, large.base_url, key="right")
        right = await look(tmp_path, config)
    assert "it wants a key" in without["deployment small-a"].todo
    assert wrong["deployment small-a"].found == f"127.0.0.1:{small.port} refuses the key with 401"
    assert "secret" not in str([(one.found, one.todo) for one in wrong.values()])
    assert right["deployment small-a"].level == "ok"


async def test_a_server_that_says_that_it_is_not_well_is_told(tmp_path: Path) -> None:
    ill = {**engines.VLLM, "/health": None}
    async with ScriptedServer(answering(engines.OLLAMA)) as small, ScriptedServer(answering(ill)) as large:
        found = await look(tmp_path, files(tmp_path, small.base_url, large.base_url, NOWHERE))
    assert found["deployment large-a"].found == f"http://127.0.0.1:{large.port}/health answers with 404"
    assert found["group large"].level == "fail"


async def test_mistakes_in_the_files_are_told_at_their_places_and_the_rest_is_looked_at_all_the_same(
    tmp_path: Path,
) -> None:
    config = files(tmp_path, NOWHERE, NOWHERE, NOWHERE)
    (config / "default.yaml").write_text(POLICY.replace("default: large", "default: huge"))
    found = await look(tmp_path, config)
    assert found["configuration"].level == "fail"
    assert "default.yaml:6:10: default: there is no group 'huge'" in found["configuration"].found
    assert found["state folder"].level == "ok"
    assert "deployment small-a" not in found


async def test_a_running_gateway_is_known_and_its_configuration_compared(tmp_path: Path) -> None:
    async with ScriptedServer(answering(engines.OLLAMA)) as small, ScriptedServer(answering(engines.VLLM)) as large:
        config = files(tmp_path, small.base_url, large.base_url, large.base_url)
        texts = [(config / name).read_text() for name in ("groups.yaml", "default.yaml", "scorers.yaml")]
        async with running(tmp_path, texts[0], texts[1], texts[2]) as rig:
            admin = int(rig.admin.rpartition(":")[2])
            same = await look(tmp_path, config, port=rig.port, admin_port=admin)
            other = tmp_path / "other"
            shutil.copytree(config, other)
            (other / "default.yaml").write_text(texts[1] + "priority: high\n")
            differs = await look(tmp_path, other, port=rig.port, admin_port=admin)
    assert same["data port"].found == f"a gateway serves on http://127.0.0.1:{rig.port}"
    assert same["admin port"].found.endswith("the running gateway has these files in force")
    assert differs["configuration"].level == "warn"
    assert "the running gateway has" in differs["configuration"].found


async def test_a_port_that_something_else_has_is_told(tmp_path: Path) -> None:
    async with ScriptedServer(answering(engines.OLLAMA)) as small, ScriptedServer(answering(engines.VLLM)) as large:
        config = files(tmp_path, small.base_url, large.base_url, large.base_url)
        found = await look(tmp_path, config, port=small.port)
    assert found["data port"].level == "fail"
    assert found["data port"].found == f"something else listens on 127.0.0.1:{small.port}"


async def test_a_state_folder_that_others_can_read_and_a_broken_database_are_told(tmp_path: Path) -> None:
    config = files(tmp_path, NOWHERE, NOWHERE, NOWHERE)
    (tmp_path / "state").mkdir(mode=0o755)
    (tmp_path / "state").chmod(0o755)
    (tmp_path / "state" / "records.sqlite3").write_bytes(b"no database at all" * 1000)
    found = await look(tmp_path, config)
    assert found["state folder"].todo == f"chmod 700 {tmp_path}/state"
    assert found["records"].level == "fail"
    assert "not a database" in found["records"].found


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
async def test_a_state_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o500)
    found = await look(tmp_path, files(tmp_path, NOWHERE, NOWHERE, NOWHERE))
    assert found["state folder"].level == "fail"


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    pytest.importorskip("redis", reason="the redis extra is not installed")
    with redis_server(tmp_path) as server:
        yield server


async def test_redis_is_asked_and_its_absence_told(tmp_path: Path, redis: RedisServer) -> None:
    config = files(tmp_path, NOWHERE, NOWHERE, NOWHERE)
    there = await look(tmp_path, config, redis=redis.url)
    redis.kill()
    gone = await look(tmp_path, config, redis=redis.url)
    assert (there["redis"].level, gone["redis"].level) == ("ok", "fail")
    assert gone["redis"].todo == "start it, or correct `store` in groups.yaml or --redis"


async def test_a_key_in_a_file_that_others_can_read_is_told(tmp_path: Path) -> None:
    config = files(tmp_path, NOWHERE, NOWHERE, NOWHERE, key="sk-0123456789")
    (config / "groups.yaml").chmod(0o644)
    found = await look(tmp_path, config)
    assert found["permissions"].todo == f"chmod 600 {config}/groups.yaml"
    assert "sk-01" not in found["permissions"].found


async def test_the_command_exits_1_with_a_fail_and_0_without_and_json_holds_the_same(tmp_path: Path) -> None:
    def doctor(*arguments: str) -> subprocess.CompletedProcess[str]:
        ports = ("--port", str(free_port()), "--admin-port", str(free_port()), "--state", str(tmp_path / "state"))
        argv = [sys.executable, "-m", "router", "doctor", *ports, *arguments]
        return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)

    async with ScriptedServer(answering(engines.OLLAMA)) as small, ScriptedServer(answering(engines.VLLM)) as large:
        config = files(tmp_path, small.base_url, large.base_url, large.base_url)
        well = await asyncio.to_thread(doctor, "--config", str(config))
    ill = await asyncio.to_thread(doctor, "--config", str(config), "--json")
    assert (well.returncode, well.stderr) == (0, "")
    assert well.stdout.splitlines()[-1] == "all is well"
    assert "\x1b" not in well.stdout
    told = json.loads(ill.stdout)
    assert (ill.returncode, told["ok"]) == (1, False)
    assert [one["about"] for one in told["findings"] if one["level"] == "fail"][:1] == ["deployment small-a"]
