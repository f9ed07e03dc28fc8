"""What a plan becomes: the files as they were last looked at, and what holds for the files of any plan."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from itertools import groupby
from pathlib import Path

import jsonschema
import pytest
import yaml
from msgspec.structs import replace

from router.cluster import reader
from router.cluster.partition import partition
from router.cluster.values import Impossible, Model, Plan, Replica
from router.launch import TARGETS, network, render
from router.launch.ranks import Rank, ranks
from router.launch.units import ENGINE_UNIT
from router.policy_files.review import review
from tests.support.validators import DEPLOY, ansible, compose, kubernetes, kustomize, schema, shell, unit

HERE = Path(__file__).parent
GOLDEN = HERE / "golden"
MODELS = {name: reader.model(name) for name in reader.names("models")}

# What stands in `golden/`: a plan, an engine and a target each. POINTSMAN_GOLDEN=write writes it anew.
KEPT = [
    *(("switch", "vllm", target) for target in TARGETS),
    ("switch", "sglang", "systemd"),
    ("switch", "trtllm", "systemd"),
    ("ring", "vllm", "systemd"),
]


def planned(name: str, engine: str = "vllm") -> Plan:
    return replace(reader.plan(HERE / f"{name}.yaml"), engine=engine)


def written(files: dict[str, str], folder: Path) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


@pytest.mark.parametrize(("name", "engine", "target"), KEPT)
def test_a_plan_becomes_the_files_that_were_looked_at(name: str, engine: str, target: str):
    files = render(planned(name, engine), target, MODELS)
    folder = GOLDEN / f"{name}-{engine}-{target}"
    if os.environ.get("POINTSMAN_GOLDEN") == "write":
        shutil.rmtree(folder, ignore_errors=True)
        written(files, folder)
    kept = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}
    assert files == kept


@pytest.mark.parametrize(("name", "engine", "target"), KEPT)
def test_the_gateway_takes_its_configuration_with_the_examples_in_it(
    name: str, engine: str, target: str, tmp_path: Path
):
    written(render(planned(name, engine), target, MODELS), tmp_path)
    found = review(tmp_path / "gateway", needs=True)
    assert [str(mistake) for mistake in found.mistakes] == []
    assert found.examples > 0
    assert {path.name for path in (tmp_path / "gateway").iterdir()} == {"groups.yaml", "scorers.yaml", "default.yaml"}


@pytest.mark.parametrize("cluster", ["eight-spark-ring", "eight-spark-switch", "two-spark-direct", "one-spark"])
def test_every_layout_of_a_cluster_becomes_files_that_the_gateway_takes(cluster: str, tmp_path: Path):
    of = reader.cluster(cluster)
    chosen = [MODELS[name] for name in ("gpt-oss-120b", "minicpm5-2b")]
    layouts = partition(of, chosen).layouts[:6]
    assert layouts
    for number, layout in enumerate(layouts):
        plan = Plan(name=layout.name, cluster=of, groups=layout.groups, why=layout.why)
        for target in TARGETS:
            folder = written(render(plan, target, MODELS), tmp_path / f"{number}-{target}")
            assert [str(mistake) for mistake in review(folder / "gateway").mistakes] == []


# --- validators ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "engine"), [(n, e) for n, e, target in KEPT if target == "systemd"])
def test_systemd_and_the_shell_read_what_is_theirs(name: str, engine: str, tmp_path: Path):
    folder = written(render(planned(name, engine), "systemd", MODELS), tmp_path / "out")
    unit(folder / "pointsman-engine@.service", tmp_path / "units")
    scripts = list(folder.rglob("*.sh"))
    assert len(scripts) > 2
    for script in scripts:
        shell(script)
    for path in folder.rglob("*.env"):
        lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
        assert all(line.partition("=")[0].isidentifier() and " " not in line for line in lines)


def test_the_unit_that_is_shipped_is_the_one_that_is_rendered():
    assert (DEPLOY / "systemd" / "pointsman-engine@.service").read_text() == ENGINE_UNIT


@pytest.mark.parametrize("name", ["switch", "ring"])
def test_compose_takes_each_nodes_file(name: str, tmp_path: Path):
    folder = written(render(planned(name), "compose", MODELS), tmp_path)
    files = sorted(folder.glob("*/compose.yaml"))
    assert len(files) == 4
    compose(*files)


@pytest.mark.parametrize("target", ["lws", "rayservice"])
@pytest.mark.parametrize("name", ["switch", "ring"])
def test_kubernetes_takes_the_resources(name: str, target: str, tmp_path: Path):
    folder = written(render(planned(name), target, MODELS), tmp_path)
    resources = kustomize(folder)
    assert kubernetes(resources) == []
    config = next(r for r in resources if r["kind"] == "ConfigMap")
    assert set(config["data"]) == {"groups.yaml", "scorers.yaml", "default.yaml"}
    assert config["metadata"]["name"] == "pointsman-config"


@pytest.mark.parametrize("target", ["lws", "rayservice"])
def test_the_gateways_of_the_base_may_reach_every_address_of_their_configuration(target: str, tmp_path: Path):
    folder = written(render(planned("switch"), target, MODELS), tmp_path)
    base = kustomize(DEPLOY / "kubernetes" / "base")
    policy = next(r for r in base if r["kind"] == "NetworkPolicy" and r["metadata"]["name"] == "pointsman")
    open_ports = [port for rule in policy["spec"]["egress"] for port in rule["ports"] if "protocol" not in port]
    text = "".join(path.read_text() for path in (folder / "gateway").iterdir())
    asked = {int(port) for port in re.findall(r"http://[\w-]+:(\d+)/v1", text)}
    assert asked
    for port in asked:
        assert any(one["port"] <= port <= one.get("endPort", one["port"]) for one in open_ports), port
    assert "store: ${POINTSMAN_REDIS:-redis://redis:6379/0}" in text
    named = set(re.findall(r"http://([\w-]+):", text))
    services = {r["metadata"]["name"] for r in kustomize(folder) if r["kind"] == "Service"}
    services |= {f"{r['metadata']['name']}-serve-svc" for r in kustomize(folder) if r["kind"] == "RayService"}
    assert named <= services


@pytest.mark.parametrize("name", ["switch", "ring"])
def test_ray_serve_takes_the_applications_in_both_files(name: str, tmp_path: Path):
    folder = written(render(planned(name), "rayservice", MODELS), tmp_path)
    for path in (folder / "serve").iterdir():
        application = yaml.safe_load(path.read_text())
        jsonschema.validate(application, schema("serve"))
        resource = yaml.safe_load((folder / path.name).read_text())
        assert yaml.safe_load(resource["spec"]["serveConfigV2"]) == application


@pytest.mark.slow
def test_ansible_takes_the_playbook(tmp_path: Path):
    folder = written(render(planned("switch"), "ansible", MODELS), tmp_path / "out")
    ansible(folder, folder / "inventory.yml", folder / "site.yml")
    hosts = yaml.safe_load((folder / "inventory.yml").read_text())["all"]["children"]["engines"]["hosts"]
    for node, variables in hosts.items():
        assert all((folder / "files" / node / name).is_file() for name in variables["rank_files"])
        assert {f"{rank}.sh" for rank in variables["engine_ranks"]} <= set(variables["rank_files"])


# --- what holds for the ranks of any plan ----------------------------------------------------------------


def options(rank: Rank) -> dict[str, str]:
    return {option[0]: option[-1] for option in rank.command if option[0].startswith("--")}


def of_replicas(plan: Plan) -> list[list[Rank]]:
    found = sorted(ranks(plan, MODELS), key=lambda rank: rank.replica.name)
    return [list(group) for _, group in groupby(found, key=lambda rank: rank.replica.name)]


@pytest.mark.parametrize("name", ["switch", "ring"])
def test_the_ranks_of_a_replica_meet_at_its_first_node_and_only_that_one_answers(name: str):
    plan = planned(name)
    for together in of_replicas(plan):
        leader = together[0]
        assert [rank.number for rank in together] == list(range(len(leader.replica.nodes)))
        assert [rank.node for rank in together] == list(leader.replica.nodes)
        assert [options(rank).get("--port") for rank in together] == [str(leader.replica.port)] + [None] * (
            len(together) - 1
        )
        assert all("--headless" in options(rank) for rank in together[1:])
        if len(together) > 1:
            assert {options(rank)["--master-addr"] for rank in together} == {leader.environment["VLLM_HOST_IP"]}
            addresses = [rank.environment["VLLM_HOST_IP"] for rank in together]
            assert len(set(addresses)) == len(addresses)


def test_no_two_processes_of_a_node_listen_on_one_port():
    taken = [(rank.node, options(rank).get("--port")) for rank in ranks(planned("switch"), MODELS)]
    ports = [one for one in taken if one[1] is not None]
    assert len(ports) == len(set(ports)) == 5


def test_engines_of_one_node_share_its_memory():
    for node in ("spark-3", "spark-4"):
        here = [rank for rank in ranks(planned("switch"), MODELS) if rank.node == node]
        assert len(here) == 2
        assert sum(float(options(rank)["--gpu-memory-utilization"]) for rank in here) < 0.9


def test_a_replica_on_one_node_needs_no_network():
    single = [rank for rank in ranks(planned("switch"), MODELS) if len(rank.replica.nodes) == 1]
    assert single
    assert all(not rank.environment for rank in single)


def test_ranks_on_a_ring_meet_on_the_management_network_and_send_along_the_cables():
    plan = planned("ring")
    environment = ranks(plan, MODELS)[0].environment
    assert environment["NCCL_SOCKET_IFNAME"] == environment["GLOO_SOCKET_IFNAME"] == "enP7s7"
    assert environment["VLLM_HOST_IP"] == plan.cluster.nodes[0].address
    assert environment["NCCL_IB_HCA"].split(",") == list(plan.cluster.fabric.hcas)
    assert environment["NCCL_ALGO"] == "Ring"
    assert environment["VLLM_ENABLE_ROCE_ALLREDUCE"] == "1"


def test_ranks_behind_a_switch_meet_on_the_fast_network_and_choose_their_own_paths():
    environment = ranks(planned("switch"), MODELS)[0].environment
    assert environment["NCCL_SOCKET_IFNAME"] == "enp1s0f1np1"
    assert environment["VLLM_HOST_IP"] == "192.168.100.11"
    assert "NCCL_ALGO" not in environment
    assert "VLLM_ENABLE_ROCE_ALLREDUCE" not in environment


def test_rocenante_is_vllms_alone():
    assert "VLLM_ENABLE_ROCE_ALLREDUCE" not in ranks(planned("ring", "sglang"), MODELS)[0].environment


def test_sglang_shows_its_metrics_which_it_does_not_by_itself():
    assert all("--enable-metrics" in options(rank) for rank in ranks(planned("switch", "sglang"), MODELS))


def test_the_leader_of_a_tensorrt_group_starts_its_ranks_over_ssh():
    found = ranks(planned("switch", "trtllm"), MODELS)
    large = [rank for rank in found if rank.group.name == "large"]
    assert len(large) == 1
    (hosts,) = large[0].files.values()
    assert hosts == "192.168.1.11 slots=1\n192.168.1.12 slots=1\n"
    assert large[0].argv[0] == "mpirun"


def test_the_cache_has_the_type_that_the_plan_counted_with():
    commands = {rank.group.name: options(rank) for rank in ranks(planned("switch"), MODELS)}
    assert commands["large"]["--kv-cache-dtype"] == "fp8"
    assert "--kv-cache-dtype" not in commands["classifier"]
    unknown: dict[str, Model] = {}
    assert all("--kv-cache-dtype" not in options(rank) for rank in ranks(planned("switch"), unknown))


def test_drafts_are_said_in_json_that_no_shell_takes_apart(tmp_path: Path):
    folder = written(render(planned("switch"), "systemd", MODELS), tmp_path)
    script = (folder / "spark-1" / "large-a-0.sh").read_text()
    echo = tmp_path / "vllm"
    echo.write_text('#!/bin/sh\nfor word in "$@"; do printf "%s\\n" "$word"; done\n')
    echo.chmod(0o755)
    said = subprocess.run(
        ["/bin/sh", "-c", script], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    found = json.loads(said[said.index("--speculative-config") + 1])
    assert found == {"method": "mtp", "num_speculative_tokens": 3}


# --- what cannot be --------------------------------------------------------------------------------------


def changed(plan: Plan, **fabric: object) -> Plan:
    return replace(plan, cluster=replace(plan.cluster, fabric=replace(plan.cluster.fabric, **fabric)))


@pytest.mark.parametrize(
    ("plan", "target", "words"),
    [
        (changed(planned("switch"), interfaces=()), "systemd", "fabric.interfaces"),
        (changed(planned("ring"), management=""), "systemd", "fabric.management"),
        (changed(planned("switch"), kind="none"), "compose", "fabric.kind"),
        (planned("switch", "trtllm"), "compose", "--target systemd"),
        (planned("switch", "trtllm"), "lws", "--target systemd"),
        (planned("switch", "sglang"), "rayservice", "another --target"),
    ],
)
def test_what_cannot_be_rendered_is_told_with_what_would_help(plan: Plan, target: str, words: str):
    with pytest.raises(Impossible, match=words):
        render(plan, target, MODELS)


def test_a_node_without_an_address_is_told_by_its_name():
    plan = planned("switch")
    nodes = (replace(plan.cluster.nodes[0], address="", fabric_address=""), *plan.cluster.nodes[1:])
    with pytest.raises(Impossible, match="spark-1 has no address"):
        render(replace(plan, cluster=replace(plan.cluster, nodes=nodes)), "systemd", MODELS)


def test_without_rdma_devices_nccl_is_told_to_use_sockets():
    plan = changed(planned("switch"), hcas=())
    replica = Replica(name="large-a", nodes=("spark-1", "spark-2"))
    environment = network.environment(plan.cluster, replica, "vllm")
    assert environment["NCCL_IB_DISABLE"] == "1"
    assert "NCCL_IB_HCA" not in environment
