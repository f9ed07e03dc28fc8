"""The files for machines without Kubernetes: the configuration, compose, HAProxy, systemd, ansible."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shlex
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from router import __version__
from router.cli.serve import command
from router.serving import DRAIN_S, PRE_STOP_S
from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import chat, chat_stream
from tests.support.ports import free_port
from tests.support.rig import groups
from tests.support.served import serving, write
from tests.support.validators import DEPLOY, ansible, compose, gateway, program, said, unit

COMPOSE = DEPLOY / "compose"
SYSTEMD = DEPLOY / "systemd"


def test_the_gateway_takes_the_configuration_that_all_of_them_mount():
    assert gateway(DEPLOY / "config")["examples"] == 3


def services() -> dict[str, dict[str, Any]]:
    return yaml.safe_load((COMPOSE / "compose.yaml").read_text())["services"]


def test_the_compose_file_is_one_and_a_typing_mistake_in_it_is_found(tmp_path: Path):
    compose(COMPOSE / "compose.yaml")
    wrong = tmp_path / "compose.yaml"
    wrong.write_text((COMPOSE / "compose.yaml").read_text().replace("restart:", "restrat:"))
    with pytest.raises(AssertionError, match="restrat"):
        compose(wrong)


def test_what_compose_mounts_is_there():
    for service in services().values():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert not source.startswith(".") or (COMPOSE / source).exists(), source


def test_every_variable_that_compose_demands_stands_in_the_example():
    demanded = set(re.findall(r"\$\{(\w+):\?", (COMPOSE / "compose.yaml").read_text()))
    assert len(demanded) == 3
    assert demanded <= set(re.findall(r"^(\w+)=", (COMPOSE / "env.example").read_text(), re.MULTILINE))


def test_compose_asks_the_gateway_for_what_it_understands_and_lets_it_drain():
    one = services()["gateway"]
    assert one["image"] == f"pointsman:{__version__}"
    assert one["deploy"]["replicas"] == 2
    options = command.make_context("serve", one["command"][1:]).params
    assert str(options["config"]) in (volume.split(":")[1] for volume in one["volumes"])
    assert float(one["stop_grace_period"].rstrip("s")) >= PRE_STOP_S + DRAIN_S + 5
    used = set(re.findall(r"\$\{(\w+)", (DEPLOY / "config" / "groups.yaml").read_text()))
    assert used <= set(one["environment"])


def test_prometheus_asks_the_admin_port_of_every_gateway_with_the_token_it_is_given():
    (job,) = [j for j in scrapes() if j["job_name"] == "pointsman"]
    assert job["dns_sd_configs"][0]["names"] == ["gateway"]
    assert job["authorization"]["credentials_file"] == f"/run/secrets/{services()['prometheus']['secrets'][0]}"


def test_prometheus_and_grafana_are_given_the_rules_and_the_dashboard_that_they_look_for():
    """Each file that a mounted file names is mounted there as well."""
    mounted = {
        name: {v.split(":")[1]: COMPOSE / v.split(":")[0] for v in services()[name]["volumes"]}
        for name in ("prometheus", "grafana")
    }
    rules = yaml.safe_load((COMPOSE / "prometheus.yml").read_text())["rule_files"]
    assert all(mounted["prometheus"][path].is_file() for path in rules)
    provider = yaml.safe_load((COMPOSE / "grafana" / "dashboards.yaml").read_text())["providers"][0]
    assert list(mounted["grafana"][provider["options"]["path"]].glob("*.json"))
    source = yaml.safe_load((COMPOSE / "grafana" / "datasources.yaml").read_text())["datasources"][0]
    assert source["url"].split("/")[2].split(":")[0] in services()


def scrapes() -> list[dict[str, Any]]:
    return yaml.safe_load((COMPOSE / "prometheus.yml").read_text())["scrape_configs"]


def test_promtool_takes_the_prometheus_file():
    code, text = said(
        [
            program("promtool", "apt package prometheus"),
            "check",
            "config",
            "--syntax-only",
            str(COMPOSE / "prometheus.yml"),
        ]
    )
    assert code == 0, text


def test_haproxy_takes_its_file():
    code, text = said([program("haproxy", "apt package haproxy"), "-c", "-f", str(COMPOSE / "haproxy.cfg")])
    assert (code, "WARNING" in text, "ALERT" in text) == (0, False, False), text


@contextlib.asynccontextmanager
async def balancing(folder: Path, *gateways: int):
    """HAProxy with the shipped file, in front of gateways on these ports of this machine. Yields its port."""
    haproxy, port = program("haproxy", "apt package haproxy"), free_port()
    text = (COMPOSE / "haproxy.cfg").read_text().replace("bind :8080", f"bind 127.0.0.1:{port}")
    text = text.replace("bind :8404", f"bind 127.0.0.1:{free_port()}")
    lines = [f"    server g{at} 127.0.0.1:{at} check" for at in gateways]
    text, count = re.subn(r"^ +server-template .*$", "\n".join(lines), text, flags=re.MULTILINE)
    assert count == 1
    (folder / "haproxy.cfg").write_text(text)
    with (folder / "haproxy.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            haproxy, "-db", "-f", str(folder / "haproxy.cfg"), stdout=log, stderr=log
        )
    try:
        yield port
        assert process.returncode is None, (folder / "haproxy.log").read_text()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@pytest.mark.slow
async def test_F19_behind_the_shipped_haproxy_a_gateway_stops_without_a_failed_request(tmp_path: Path):
    words = [f"w{i} " for i in range(20)]
    script = lambda seen: chat_stream(words, gap_s=0.1) if seen.json().get("stream") else chat("hi")(seen)  # noqa: E731
    body = {"model": "auto", "messages": [{"role": "user", "content": "hello"}]}
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    async with ScriptedServer(script) as upstream, contextlib.AsyncExitStack() as stack:
        running = []
        for folder in (first, second):
            config = write(folder, groups({"a": upstream}, {"small": ["a"], "large": ["a"]}))
            running.append(await stack.enter_async_context(serving(folder, config)))
        ports = [client.base_url.port for _, client, _ in running]
        port = await stack.enter_async_context(balancing(tmp_path, *ports))
        url = f"http://127.0.0.1:{port}"
        client = await stack.enter_async_context(httpx.AsyncClient(base_url=url, timeout=60))
        async with asyncio.timeout(20):
            while not await _served(client):
                await asyncio.sleep(0.1)
        streams = [
            asyncio.create_task(client.post("/v1/chat/completions", json=body | {"stream": True})) for _ in range(6)
        ]
        await asyncio.sleep(0.5)
        running[0][0].send_signal(signal.SIGTERM)
        replies = [
            await client.post("/v1/chat/completions", json=body) for _ in range(120) if not await asyncio.sleep(0.05)
        ]
        ended = await asyncio.gather(*streams)
    assert {reply.status_code for reply in (*replies, *ended)} == {200}
    assert all(stream.content.endswith(b"data: [DONE]\n\n") for stream in ended)
    assert running[0][0].wait(20) == 0
    assert running[1][0].poll() is None or running[1][0].returncode == -signal.SIGKILL


async def _served(client: httpx.AsyncClient) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return (await client.get("/readyz")).status_code == 200
    return False


@pytest.mark.parametrize("name", ["pointsman.service", "pointsman-engine@.service"])
def test_systemd_has_nothing_to_say_about_a_unit(name: str, tmp_path: Path):
    unit(SYSTEMD / name, tmp_path / "units")


def test_a_typing_mistake_in_a_unit_is_found(tmp_path: Path):
    wrong = tmp_path / "pointsman.service"
    wrong.write_text((SYSTEMD / wrong.name).read_text().replace("NoNewPrivileges", "NoNewPriveleges"))
    with pytest.raises(AssertionError, match="NoNewPriveleges"):
        unit(wrong, tmp_path / "units")


@pytest.mark.parametrize(("name", "most"), [("pointsman.service", 15), ("pointsman-engine@.service", 60)])
def test_a_unit_is_exposed_no_more_than_it_has_to_be(name: str, most: int, tmp_path: Path):
    copy = tmp_path / name.replace("@.", "@one.")
    copy.write_text((SYSTEMD / name).read_text())
    analyze = program("systemd-analyze", "apt package systemd")
    code, text = said([analyze, "security", "--offline=true", "--no-pager", f"--threshold={most}", str(copy)])
    assert code == 0, text


def test_the_unit_asks_the_gateway_for_what_it_understands_and_lets_it_drain():
    text = (SYSTEMD / "pointsman.service").read_text()
    values = dict(re.findall(r"^(\w+)=(.*)$", (SYSTEMD / "gateway.env.example").read_text(), re.MULTILINE))
    (start,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    argv = shlex.split(start.replace("$POINTSMAN_SERVE", values["POINTSMAN_SERVE"]))
    assert argv[1] == "serve"
    assert command.make_context("serve", argv[2:]).params["workers"] == 2
    (stop,) = re.findall(r"^TimeoutStopSec=(\d+)$", text, re.MULTILINE)
    assert int(stop) >= PRE_STOP_S + DRAIN_S + 5


@pytest.mark.slow
def test_ansible_takes_the_playbook():
    folder = DEPLOY / "ansible"
    ansible(folder, folder / "inventory.example.yml", folder / "site.yml")
