"""`plan inventory` and `plan doctor` as a person runs them: recorded machines, namespaces of this one, live engines."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from msgspec.structs import replace

from router.cli import main
from router.cluster import reader
from router.cluster.values import Cluster, Node, Plan, Replica, Wiring
from router.survey import ask, probe, wiring
from router.survey.script import SCRIPT
from router.survey.values import Facts, Silent
from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import JSON, Head, Script, Seen, Send, Step, chat_answer, status
from tests.support.fake_machine import CABLES, lldp, mac, spark

PLANS = Path(__file__).parents[1] / "launch"


def run(*argv: str) -> Result:
    return CliRunner().invoke(main, ["plan", *argv])


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Four machines of a ring, as they were recorded."""
    folder = tmp_path / "recorded"
    folder.mkdir()
    for n in (1, 2, 3, 4):
        ahead, behind = n % 4 + 1, (n - 2) % 4 + 1
        seen = [(CABLES[0], f"spark-{ahead}", mac(ahead, 0), "x"), (CABLES[1], f"spark-{behind}", mac(behind, 0), "x")]
        (folder / f"spark-{n}@192.168.1.1{n}.txt").write_text(spark(n, told=lldp(*seen)))
    return folder


def test_recorded_machines_become_a_cluster_file_that_plan_fit_reads(recorded: Path, tmp_path: Path):
    out = tmp_path / "cluster.yaml"
    done = run("inventory", "--from", str(recorded), "--out", str(out))
    assert done.exit_code == 0
    assert "ring: each machine sees two others" in done.stdout
    assert "order: spark-1 - spark-2 - spark-3 - spark-4" in done.stdout
    assert run("fit", "--cluster", str(out), "--model", "gpt-oss-120b").exit_code == 0
    assert yaml.safe_load(out.read_text())["fabric"]["management"] == "enP7s7"


def test_inventory_as_json_has_machines_and_the_cluster(recorded: Path):
    shown = json.loads(run("inventory", "--from", str(recorded), "--json").stdout)
    assert [one["gpu"] for one in shown["machines"]] == ["NVIDIA GB10"] * 4
    assert shown["cluster"]["fabric"]["order"] == ["spark-1", "spark-2", "spark-3", "spark-4"]
    assert shown["silent"] == []


def test_a_recording_that_is_none_is_told_by_its_file_and_no_cluster_is_written(recorded: Path, tmp_path: Path):
    (recorded / "spark-2@192.168.1.12.txt").write_text("ssh: connect to host: No route to host\n")
    done = run("inventory", "--from", str(recorded), "--out", str(tmp_path / "cluster.yaml"))
    assert done.exit_code == 1
    assert "spark-2@192.168.1.12.txt" in done.stderr
    assert not (tmp_path / "cluster.yaml").exists()


def test_the_script_can_be_printed_and_run_by_hand(tmp_path: Path):
    printed = run("inventory", "--script").stdout
    assert printed == SCRIPT
    (tmp_path / "here.txt").write_text(
        subprocess.run(["/bin/sh", "-s"], input=printed, capture_output=True, text=True, check=True).stdout
    )
    done = run("inventory", "--from", str(tmp_path))
    assert done.exit_code == 0
    assert "here (here):" in done.stdout


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ((), "--hosts"),
        (("a=1", "a=2"), "two machines called a"),
    ],
)
def test_machines_that_are_not_named_well_are_a_mistake_in_words(argv: tuple[str, ...], words: str):
    done = run("inventory", *argv)
    assert done.exit_code == 2
    assert words in done.stderr


def test_a_file_of_hosts_may_have_comments_and_users():
    listed = ask.hosts("# racks\nspark-1 10.0.0.1\n\nubuntu@10.0.0.2  # the second\n")
    assert listed == [("spark-1", "10.0.0.1"), ("ubuntu@10.0.0.2", "10.0.0.2")]
    with pytest.raises(ValueError, match="line 1"):
        ask.hosts("a b c\n")


def test_a_machine_that_cannot_be_reached_is_silent_with_the_commands_own_words():
    found = ask.ask([("a", "h")], "sh -c 'echo no route to {host} >&2; exit 255'")
    assert found == [Silent(id="a", address="h", why="sh: no route to h")]
    (slow,) = ask.ask([("a", "h")], "sleep 30", within_s=0.2)
    assert isinstance(slow, Silent)
    assert "0.2 s" in slow.why
    (lost,) = ask.ask([("a", "h")], "no-such-program {host}")
    assert isinstance(lost, Silent)
    assert "no-such-program" in lost.why


def test_doctor_reads_what_was_recorded_and_ends_with_1_where_something_is_wrong(recorded: Path):
    done = run("doctor", "--plan", str(PLANS / "ring.yaml"), "--from", str(recorded), "--no-engines", "--json")
    assert done.exit_code == 1
    shown = json.loads(done.stdout)
    told = [one["what"] for one in shown["findings"]]
    assert any("has no network device enP2p1s0f0np0" in what for what in told)
    assert shown["ok"] is False


# --- namespaces: real devices, real neighbours, the real script ------------------------------------------


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def namespaces() -> Iterator[list[str]]:
    """Four network namespaces, which the test cables; gone when it ends."""
    if shutil.which("ip") is None:
        pytest.skip("no ip (apt package iproute2)")
    names = [f"pm-t{n}" for n in (1, 2, 3, 4)]
    made: list[str] = []
    try:
        for name in names:
            done = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
            if done.returncode:
                pytest.skip(f"network namespaces are not permitted: {done.stderr.strip()}")
            made.append(name)
        yield names
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def cable(one: str, other: str, device: str, its: str, subnet: int, mtu: int = 9000) -> list[tuple[str, str]]:
    """A cable between two namespaces with an address at each end. Returns who may speak to which address."""
    ip("link", "add", device, "netns", one, "type", "veth", "peer", "name", its, "netns", other)
    for name, end, host in ((one, device, 1), (other, its, 2)):
        ip("-n", name, "address", "add", f"10.77.{subnet}.{host}/24", "dev", end)
        ip("-n", name, "link", "set", end, "mtu", str(mtu), "up")
    return [(one, f"10.77.{subnet}.2"), (other, f"10.77.{subnet}.1")]


def speak(name: str, address: str) -> None:
    """Send a datagram, so that the kernel resolves the address."""
    code = f"import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('{address}', 9))"
    subprocess.run(["ip", "netns", "exec", name, "python3", "-c", code], check=True)


def inventory(names: list[str]) -> list[Facts]:
    found = ask.ask([(name, name) for name in names], "ip netns exec {host} sh -s")
    facts = [one for one in found if isinstance(one, Facts)]
    assert len(facts) == len(names)
    return facts


def settled(names: list[str], kind: str, speaking: list[tuple[str, str]], devices: int = 0) -> Any:
    """The cluster as it looks once neighbours are resolved, which takes the kernel a moment, and may fail at first."""
    until = time.monotonic() + 30
    while True:
        for name, address in speaking:
            speak(name, address)
        drawn = wiring.draw(inventory(names))
        found = drawn.fabric.kind == kind and len(drawn.fabric.interfaces) >= devices
        if found or time.monotonic() > until:
            return drawn
        time.sleep(0.2)


def test_namespaces_cabled_in_a_ring_are_found_to_be_one(namespaces: list[str]):
    order = [namespaces[i] for i in (0, 2, 1, 3)]
    speaking: list[tuple[str, str]] = []
    for at, one in enumerate(order):
        speaking += cable(one, order[(at + 1) % 4], "port0", "port1", 10 + at)
    drawn = settled(namespaces, "ring", speaking, devices=2)
    assert drawn.fabric.kind == "ring", drawn.why
    assert list(drawn.fabric.order) in (order, [order[0], *reversed(order[1:])])
    assert set(drawn.fabric.interfaces) == {"port0", "port1"}


def test_namespaces_on_a_bridge_are_found_to_be_behind_a_switch(namespaces: list[str]):
    *nodes, switch = namespaces
    ip("-n", switch, "link", "add", "br0", "type", "bridge")
    ip("-n", switch, "link", "set", "br0", "up")
    for number, name in enumerate(nodes, 1):
        ip("link", "add", "port0", "netns", name, "type", "veth", "peer", "name", f"sw{number}", "netns", switch)
        ip("-n", switch, "link", "set", f"sw{number}", "master", "br0", "up")
        ip("-n", name, "address", "add", f"10.77.1.{number}/24", "dev", "port0")
        ip("-n", name, "link", "set", "port0", "up")
    pairs = [(one, other) for one in range(1, 4) for other in range(1, 4) if one != other]
    drawn = settled(nodes, "switch", [(nodes[one - 1], f"10.77.1.{other}") for one, other in pairs])
    assert drawn.fabric.kind == "switch", drawn.why


def test_doctor_finds_a_short_mtu_and_a_wrong_name_on_a_real_device(namespaces: list[str], tmp_path: Path):
    one, other = namespaces[:2]
    cable(one, other, "fast0", "fast0", 5)
    ip("-n", other, "link", "set", "fast0", "mtu", "1500")
    plan = reader.plan(PLANS / "switch.yaml")
    nodes = (
        Node(id=one, address=one, fabric_address="10.77.5.1"),
        Node(id=other, address=other, fabric_address="10.77.5.99"),
    )
    fabric = Wiring(kind="direct", interfaces=("fast0", "fast1"))
    large = replace(plan.groups[0], replicas=(Replica(name="large-a", nodes=(one, other)),))
    made = Plan(
        name="two",
        cluster=Cluster(name="two", machine=plan.cluster.machine, nodes=nodes, fabric=fabric),
        groups=(large,),
    )
    reader.write_plan(made, tmp_path / "plan.yaml")
    argv = ("doctor", "--plan", str(tmp_path / "plan.yaml"), "--no-engines", "--json")
    done = run(*argv, "--through", "ip netns exec {host} sh -s")
    assert done.exit_code == 1
    told = {f"{one['where']}: {one['what']}" for one in json.loads(done.stdout)["findings"]}
    assert f"{other}: the MTU of fast0 differs: {one} 9000, {other} 1500" in told
    assert any(line.startswith(f"{one}: has no network device fast1") for line in told)
    assert any(line.startswith(f"{other}: no device holds 10.77.5.99") for line in told)


# --- live engines ----------------------------------------------------------------------------------------


def engine(model: str, *, metrics: bool = True, tokens: int = 200) -> Script:
    """What vLLM answers, as far as the doctor asks."""

    def script(seen: Seen) -> Sequence[Step]:
        if seen.path.endswith("/health"):
            return [Head(200, JSON), Send(b"{}")]
        if seen.path.endswith("/models"):
            return [Head(200, JSON), Send(json.dumps({"data": [{"id": model}]}).encode())]
        if seen.path.endswith("/metrics"):
            return [Head(200), Send(b"vllm:num_requests_running 0\n" if metrics else b"python_info 1\n")]
        return chat_answer("yes") if tokens == 200 else status(tokens)

    return script


def local(ports: list[int]) -> Plan:
    """The plan of `tests/launch`, with every replica on this machine."""
    plan = reader.plan(PLANS / "switch.yaml")
    nodes = tuple(replace(node, address="127.0.0.1") for node in plan.cluster.nodes)
    waiting = iter(ports)
    groups = tuple(
        replace(group, replicas=tuple(replace(one, port=next(waiting)) for one in group.replicas))
        for group in plan.groups
    )
    return replace(plan, cluster=replace(plan.cluster, nodes=nodes), groups=groups)


async def test_doctor_asks_live_engines_what_the_gateway_will_ask_of_them(tmp_path: Path):
    served = [group.served for group in reader.plan(PLANS / "switch.yaml").groups for _ in group.replicas]
    scripts = [
        engine(served[0]),
        engine("other/model"),
        engine(served[2], metrics=False),
        engine(served[3], tokens=500),
    ]
    servers = [ScriptedServer(script) for script in scripts]
    for server in servers:
        await server.start()
    try:
        plan = local([*(server.port for server in servers), 9])
        reader.write_plan(plan, tmp_path / "plan.yaml")
        argv = ("doctor", "--plan", str(tmp_path / "plan.yaml"), "--no-machines", "--json")
        done = await asyncio.to_thread(run, *argv)
        answers = await probe.probe(plan, token=False)
    finally:
        for server in servers:
            await server.stop()
    assert done.exit_code == 1
    found = {one["where"]: (one["level"], one["what"]) for one in json.loads(done.stdout)["findings"]}
    assert found["large-a"][0] == "ok"
    assert "serves other/model" in found["small-a"][1]
    assert found["small-b"][0] == "warning"
    assert "a request for one token: 500" in found["classifier-a"][1]
    assert "/health" in found["classifier-b"][1]
    assert [one.completed for one in answers] == [None] * 5
