"""A plan held against machines that are as it says, and against each way of being otherwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from router.cluster import reader
from router.cluster.values import Plan
from router.launch.ranks import ranks
from router.survey import findings, parse
from router.survey.values import Answered, Facts, Finding, Silent
from tests.support.fake_machine import CABLES, MANAGEMENT, link, mac, spark

PLANS = Path(__file__).parents[1] / "launch"
SWITCH = reader.plan(PLANS / "switch.yaml")


def planned(kind: str) -> Plan:
    """The plan of `tests/launch`, with the devices that the fake machines have."""
    plan = reader.plan(PLANS / f"{kind}.yaml")
    fabric = replace(plan.cluster.fabric, interfaces=CABLES, hcas=("rocep1s0f0", "rocep1s0f1"))
    nodes = tuple(replace(node, fabric_address=f"192.168.101.1{n}") for n, node in enumerate(plan.cluster.nodes, 1))
    return replace(plan, cluster=replace(plan.cluster, fabric=fabric, nodes=nodes))


def environments(plan: Plan, node: str) -> dict[str, Mapping[str, str]]:
    return {rank.name: rank.environment for rank in ranks(plan, {}) if rank.node == node}


def links(number: int, **changes: Any) -> list[dict[str, Any]]:
    """The devices of one machine, with changes to the first cable's."""
    cable = link(CABLES[0], mac(number, 1), f"192.168.101.1{number}/24") | changes
    return [
        link(MANAGEMENT, mac(number, 0), f"192.168.1.1{number}/24", mtu=1500),
        cable,
        link(CABLES[1], mac(number, 2), f"192.168.102.1{number}/24"),
    ]


def machines(plan: Plan, **second: Any) -> list[Facts | Silent]:
    """Machines that are as the plan says, but for what is said of the second one."""
    found: list[Facts | Silent] = []
    for number in (1, 2, 3, 4):
        node = f"spark-{number}"
        given: dict[str, Any] = {"environments": environments(plan, node)}
        given |= second if number == 2 else {}
        found.append(parse.facts(node, f"192.168.1.1{number}", spark(number, **given)))
    return found


def wrong(found: list[Finding]) -> list[str]:
    return [f"{one.level} {one.where}: {one.what} -> {one.do}" for one in found if one.level != "ok"]


@pytest.mark.parametrize("kind", ["switch", "ring"])
def test_machines_that_are_as_planned_are_right_each_by_its_name(kind: str):
    plan = planned(kind)
    found = findings.machines(plan, machines(plan), {})
    assert wrong(found) == []
    assert [one.where for one in found] == ["spark-1", "spark-2", "spark-3", "spark-4"]


def without(environment: Mapping[str, Mapping[str, str]], key: str) -> dict[str, dict[str, str]]:
    return {rank: {k: v for k, v in values.items() if k != key} for rank, values in environment.items()}


def with_(environment: Mapping[str, Mapping[str, str]], **values: str) -> dict[str, dict[str, str]]:
    return {rank: dict(old) | values for rank, old in environment.items()}


MINE = environments(planned("switch"), "spark-2")
CASES: list[tuple[str, dict[str, Any], list[str]]] = [
    (
        "a device of another name",
        {"links": links(2, ifname="enp1s0f0np9")},
        ["error spark-2: has no network device enp1s0f0np0", "did you mean 'enp1s0f0np9'"],
    ),
    (
        "a device that is down",
        {"links": links(2, operstate="DOWN")},
        ["error spark-2: enp1s0f0np0 is down", "ip link set"],
    ),
    (
        "an MTU that differs",
        {"links": links(2, mtu=1500)},
        ["error spark-2: the MTU of enp1s0f0np0 differs", "mtu 9000"],
    ),
    ("a slow link", {"speed": 100_000}, ["warning spark-2: enp1s0f0np0 runs at 100 Gb/s", "200"]),
    ("no RDMA device", {"rdma": {}}, ["error spark-2: has no RDMA device rocep1s0f0", "fabric.hcas"]),
    (
        "an address of another machine",
        {"links": links(2, addr_info=link("x", "y", "192.168.101.11/24")["addr_info"])},
        ["error spark-2: no device holds 192.168.101.12", "share the address 192.168.101.11"],
    ),
    ("too little memory", {"memory_kb": 100_000_000}, ["error spark-2: shows 95.4 GiB", "visible_gib"]),
    (
        "another version",
        {"versions": "vllm 0.17.1\nnvidia-nccl-cu13 2.28.3\n"},
        ["error large-a: vllm differs between its nodes: spark-1 0.18.0, spark-2 0.17.1"],
    ),
    (
        "the same VLLM_HOST_IP twice",
        {"environments": with_(MINE, VLLM_HOST_IP="192.168.101.11")},
        ["error spark-1, spark-2: VLLM_HOST_IP is 192.168.101.11 on each", "which no device of it holds"],
    ),
    (
        "an NCCL setting that is missing",
        {"environments": without(MINE, "NCCL_IB_HCA")},
        ["error spark-2: large-a-1: NCCL_IB_HCA is not set", "add NCCL_IB_HCA=rocep1s0f0,rocep1s0f1"],
    ),
    (
        "an NCCL setting that names network devices",
        {"environments": with_(MINE, NCCL_IB_HCA="enp1s0f0np0")},
        ["warning spark-2: large-a-1: NCCL_IB_HCA is enp1s0f0np0, and the plan says rocep1s0f0,rocep1s0f1"],
    ),
    (
        "no environment at all",
        {"environments": {}},
        ["warning spark-2: /etc/pointsman/engines/large-a-1.env is not there"],
    ),
]


@pytest.mark.parametrize(("change", "words"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_what_is_otherwise_is_told_where_it_is_and_how_to_mend_it(change: dict[str, Any], words: list[str]):
    plan = planned("switch")
    told = "\n".join(wrong(findings.machines(plan, machines(plan, **change), {})))
    for one in words:
        assert one in told
    assert not [line for line in told.splitlines() if "spark-3" in line or "spark-4" in line]


def test_a_plan_that_names_network_devices_for_rdma_is_told_so():
    plan = planned("switch")
    confused = replace(plan, cluster=replace(plan.cluster, fabric=replace(plan.cluster.fabric, hcas=CABLES)))
    told = "\n".join(wrong(findings.machines(confused, machines(plan), {})))
    assert (
        "fabric.hcas names enp1s0f0np0, which is a network device -> name RDMA devices: rocep1s0f0, rocep1s0f1" in told
    )


def test_short_frames_on_every_node_of_a_ring_are_worth_a_look():
    plan = planned("ring")
    all_short = [
        parse.facts(
            f"spark-{n}",
            f"192.168.1.1{n}",
            spark(n, links=links(n, mtu=1500), environments=environments(plan, f"spark-{n}")),
        )
        for n in (1, 2, 3, 4)
    ]
    assert wrong(findings.machines(plan, all_short, {})) == [
        "warning cluster: the MTU of enp1s0f0np0 is 1500 on every node of a ring -> ip link set enp1s0f0np0 mtu 9000"
    ]


def test_machines_alone_on_their_group_need_no_fast_network():
    plan = planned("switch")
    bare = spark(3, links=[link(MANAGEMENT, mac(3, 0), "192.168.1.13/24", mtu=1500)], rdma={}, environments={})
    found = [one for one in machines(plan) if one.id != "spark-3"]
    found.append(parse.facts("spark-3", "192.168.1.13", bare))
    assert wrong(findings.machines(plan, found, {})) == []


def test_a_machine_that_does_not_answer_is_wrong_and_the_others_are_looked_at():
    plan = planned("switch")
    found: list[Facts | Silent] = [
        Silent(id="spark-1", address="192.168.1.11", why="ssh: no route"),
        *machines(plan)[1:],
    ]
    told = findings.machines(plan, found, {})
    assert wrong(told) == ["error spark-1: cannot be asked: ssh: no route -> try: ssh 192.168.1.11 true"]
    assert len(told) == 4


# --- engines ---------------------------------------------------------------------------------------------


def answered(**changes: Any) -> list[Answered]:
    """Every replica as it should be, but for what is said of the large one."""
    served = {replica.name: group.served for group in SWITCH.groups for replica in group.replicas}
    good = [
        Answered(replica=name, url=f"http://{name}", health=200, models=(model,), metrics=40, completed=200)
        for name, model in served.items()
    ]
    return [replace(good[0], **changes), *good[1:]]


def test_engines_that_answer_as_they_should_are_right():
    found = findings.engines(SWITCH, answered())
    assert [one.level for one in found] == ["ok"] * 5


@pytest.mark.parametrize(
    ("change", "level", "words"),
    [
        (
            {"health": "connection refused", "models": None, "metrics": None, "completed": None},
            "error",
            "rank 0 runs on spark-1",
        ),
        ({"health": 503}, "error", "a rank that died shows here too"),
        (
            {"models": ("other/model",)},
            "error",
            "serves other/model, and the gateway asks for nvidia/GLM-5.3-Flash-NVFP4",
        ),
        ({"models": "status 404"}, "error", "whether this is the engine at all"),
        ({"metrics": 0}, "warning", "--disable-log-stats"),
        ({"metrics": "status 404"}, "warning", "the balance goes by calls alone"),
        ({"completed": "no answer within 60 s"}, "error", "restart all ranks"),
        ({"completed": 500}, "error", "a request for one token: 500"),
    ],
)
def test_an_engine_that_answers_otherwise_is_told_with_what_would_mend_it(
    change: dict[str, Any], level: str, words: str
):
    found = findings.engines(SWITCH, answered(**change))
    assert found[0].level == level
    assert found[0].where == "large-a"
    assert words in f"{found[0].what} {found[0].do}"
    assert [one.level for one in found if one.where != "large-a"] == ["ok"] * 4


def test_sglang_without_metrics_is_told_its_flag():
    plan = replace(SWITCH, engine="sglang")
    (found, *_) = findings.engines(plan, answered(metrics=0))
    assert "--enable-metrics" in found.do


def test_an_engine_that_was_not_asked_for_a_token_is_not_blamed():
    made: Callable[..., list[Answered]] = answered
    assert findings.engines(SWITCH, made(completed=None))[0].level == "ok"
