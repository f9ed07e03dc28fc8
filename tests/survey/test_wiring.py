"""What machines print becomes facts, and facts become a cluster: a pair, a ring, a switch, or an open question."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from router.cluster import reader
from router.launch.gateway import text
from router.survey import parse, wiring
from router.survey.script import MARK, SCRIPT
from router.survey.values import Facts
from tests.support.fake_machine import CABLES, link, lldp, mac, output, spark
from tests.support.validators import shell


def read(*outputs: str) -> list[Facts]:
    return [parse.facts(f"spark-{n}", f"192.168.1.1{n}", one) for n, one in enumerate(outputs, 1)]


def ring(size: int, order: list[int], *, by: str = "lldp") -> list[str]:
    """Machines 1 to `size`, cabled in this order: port 0 of each to port 1 of the next."""
    out: list[str] = []
    for number in range(1, size + 1):
        at = order.index(number)
        ahead, behind = order[(at + 1) % size], order[at - 1]
        if by == "lldp":
            seen = [
                (CABLES[0], f"spark-{ahead}", mac(ahead, 0), CABLES[1]),
                (CABLES[1], f"spark-{behind}", mac(behind, 0), CABLES[0]),
            ]
            out.append(spark(number, told=lldp(*seen)))
        else:
            out.append(spark(number, resolved=[(CABLES[0], mac(ahead, 2)), (CABLES[1], mac(behind, 1))]))
    return out


def test_a_machine_tells_what_it_is():
    (one,) = read(spark(1))
    assert (one.gpu, one.driver) == ("NVIDIA GB10", "580.95.05")
    assert one.memory_gib == pytest.approx(120.5, abs=0.1)
    assert one.versions == {"vllm": "0.18.0", "nccl": "2.28.3"}
    device = one.interface(CABLES[0])
    assert device is not None
    assert (device.mtu, device.speed_mbps, device.hca, device.up) == (9000, 200_000, "rocep1s0f0", True)
    assert device.addresses == ("192.168.101.11/24",)
    assert one.interface("lo") is None


@pytest.mark.parametrize("by", ["lldp", "resolved"])
@pytest.mark.parametrize("order", [[1, 2, 3], [1, 3, 2, 4], [1, 2, 3, 4, 5, 6, 7, 8]])
def test_machines_that_each_see_two_others_are_a_ring_in_the_order_of_its_cables(order: list[int], by: str):
    drawn = wiring.draw(read(*ring(len(order), order, by=by)))
    assert drawn.fabric.kind == "ring"
    found = [int(name.removeprefix("spark-")) for name in drawn.fabric.order]
    assert found in (order, [order[0], *reversed(order[1:])])
    assert drawn.fabric.interfaces == CABLES
    assert drawn.fabric.hcas == ("rocep1s0f0", "rocep1s0f1")
    assert drawn.fabric.management == "enP7s7"
    assert drawn.fabric.link_gbps == 200
    assert drawn.open == ()


def test_machines_cabled_to_one_stranger_are_behind_a_switch():
    told = lldp((CABLES[1], "sw-1", "02:aa:00:00:00:01", "Ethernet1"))
    drawn = wiring.draw(read(*(spark(n, told=told) for n in range(1, 5))))
    assert drawn.fabric.kind == "switch"
    assert "sw-1" in drawn.why


def test_a_machine_that_sees_several_through_one_device_is_behind_a_switch_though_nobody_speaks_lldp():
    outputs = [spark(n, resolved=[(CABLES[0], mac(o, 1)) for o in range(1, 4) if o != n]) for n in range(1, 4)]
    assert wiring.draw(read(*outputs)).fabric.kind == "switch"


def test_a_switch_of_the_management_network_is_none_of_the_fast_one():
    told = lldp(("enP7s7", "office", "02:aa:00:00:00:09", "7"))
    resolved = [[("enP7s7", mac(o, 0)) for o in range(1, 4) if o != n] for n in range(1, 4)]
    drawn = wiring.draw(read(*(spark(n, told=told, resolved=resolved[n - 1]) for n in range(1, 4))))
    assert drawn.fabric.kind == "none"
    assert "spark-1 sees nobody" in drawn.why
    assert "lldpd" in drawn.why


def test_two_machines_and_a_cable_are_direct_and_one_end_is_enough():
    told = lldp((CABLES[0], "spark-2", mac(2, 0), CABLES[0]))
    assert wiring.draw(read(spark(1, told=told), spark(2))).fabric.kind == "direct"


def test_a_chain_is_no_ring_and_says_who_sees_whom():
    outputs = ring(4, [1, 2, 3, 4])
    chain = [spark(1, told=lldp((CABLES[0], "spark-2", mac(2, 0), CABLES[1]))), outputs[1], outputs[2]]
    drawn = wiring.draw(read(*chain))
    assert drawn.fabric.kind == "none"
    assert "spark-2 sees" in drawn.why


def test_two_rings_are_no_ring():
    both = [*ring(3, [1, 2, 3]), *(one.replace("x", "x") for one in ring(3, [1, 2, 3]))]
    facts = read(*both)
    second = [
        parse.facts(f"spark-{n}", f"192.168.1.1{n}", spark(n, told=lldp(*seen)))
        for n, seen in (
            (4, [(CABLES[0], "spark-5", mac(5, 0), "x"), (CABLES[1], "spark-6", mac(6, 0), "x")]),
            (5, [(CABLES[0], "spark-6", mac(6, 0), "x"), (CABLES[1], "spark-4", mac(4, 0), "x")]),
            (6, [(CABLES[0], "spark-4", mac(4, 0), "x"), (CABLES[1], "spark-5", mac(5, 0), "x")]),
        )
    ]
    assert wiring.draw([*facts[:3], *second]).fabric.kind == "none"


def test_what_is_drawn_is_a_cluster_file_that_the_planner_reads(tmp_path: Path):
    drawn = wiring.draw(read(*ring(8, list(range(1, 9)))))
    path = tmp_path / "found.yaml"
    path.write_text(text(drawn.document()))
    cluster = reader.cluster(str(path))
    assert cluster.fabric == drawn.fabric
    assert cluster.nodes == drawn.nodes
    assert cluster.machine.name == "dgx-spark"
    assert yaml.safe_load(path.read_text())["fabric"]["kind"] == "ring"


def test_what_machines_do_not_have_in_common_is_left_open_in_words():
    other = spark(
        2, links=[link("eth9", mac(2, 1), "192.168.101.12/24")], rdma={}, told=lldp(("eth9", "spark-1", mac(1, 0), "x"))
    )
    drawn = wiring.draw(read(spark(1), other))
    assert drawn.fabric.kind == "direct"
    assert any("fabric.interfaces" in line for line in drawn.open)
    assert any("fabric.hcas" in line for line in drawn.open)


def test_a_machine_that_says_nothing_but_its_name_is_read_and_its_gaps_are_named():
    (one,) = read(output(hostname="box"))
    assert one.hostname == "box"
    assert len(one.unknown) == 5


def test_what_is_not_the_scripts_output_is_refused():
    with pytest.raises(ValueError, match="not the script's output"):
        parse.facts("a", "b", "Permission denied (publickey).\n")


@given(
    st.lists(
        st.sampled_from([MARK + "links", MARK + "lldp", MARK + "gpu", "{", '[{"ifname": 3}]', "null", "a,b", "[[[["])
    )
)
def test_no_output_makes_the_reading_fail(lines: list[str]):
    try:
        found = parse.facts("a", "b", "\n".join([MARK + "hostname", *lines, MARK + "end"]))
    except ValueError:
        return
    assert found.id == "a"


def test_only_what_concerns_the_network_is_read_of_an_engines_environment(tmp_path: Path):
    """The script itself, with a folder of its own in the place of /etc/pointsman/engines."""
    (tmp_path / "large-a-0.env").write_text(
        "HF_TOKEN=secret\nNCCL_IB_HCA=rocep1s0f1\nVLLM_HOST_IP=10.0.0.1\nVLLM_API_KEY=secret\n"
    )
    script = SCRIPT.replace("/etc/pointsman/engines", str(tmp_path))
    done = subprocess.run(["/bin/sh", "-s"], input=script, capture_output=True, text=True, check=True)
    assert "secret" not in done.stdout
    facts = parse.facts("here", "127.0.0.1", done.stdout)
    assert facts.environments == {"large-a-0": {"NCCL_IB_HCA": "rocep1s0f1", "VLLM_HOST_IP": "10.0.0.1"}}
    assert facts.memory_gib is not None


def test_the_script_is_one_that_any_shell_reads(tmp_path: Path):
    path = tmp_path / "script.sh"
    path.write_text(SCRIPT)
    shell(path)
