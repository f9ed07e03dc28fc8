"""What a machine would print to the script of `plan inventory`, for machines that are not there."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from router.survey.script import MARK

MANAGEMENT, CABLES = "enP7s7", ("enp1s0f0np0", "enp1s0f1np1")
RDMA = {"enp1s0f0np0": "rocep1s0f0", "enp1s0f1np1": "rocep1s0f1"}


def mac(node: int, device: int) -> str:
    return f"02:00:00:00:{node:02x}:{device:02x}"


def link(name: str, mac_address: str, *addresses: str, mtu: int = 9000, up: bool = True) -> dict[str, Any]:
    """One device, as `ip -json address` shows it."""
    shown = [
        {"family": "inet", "local": one.split("/")[0], "prefixlen": int(one.split("/")[1]), "scope": "global"}
        for one in addresses
    ]
    shown.append({"family": "inet6", "local": "fe80::1", "prefixlen": 64, "scope": "link"})
    state = "UP" if up else "DOWN"
    return {
        "ifname": name,
        "mtu": mtu,
        "operstate": state,
        "link_type": "ether",
        "address": mac_address,
        "flags": ["UP"],
        "addr_info": shown,
    }


def lldp(*seen: tuple[str, str, str, str]) -> str:
    """(device, the other's name, its MAC, its port) as `lldpctl -f json0` shows them."""
    interfaces = [
        {
            "name": device,
            "via": "LLDP",
            "chassis": [{"id": [{"type": "mac", "value": other_mac}], "name": [{"value": name}]}],
            "port": [{"id": [{"type": "ifname", "value": port}]}],
        }
        for device, name, other_mac, port in seen
    ]
    return json.dumps({"lldp": [{"interface": interfaces}]})


def output(**parts: str) -> str:
    """The script's output with these answers."""
    return "".join(f"{MARK}{name}\n{text.rstrip()}\n" for name, text in parts.items()) + f"{MARK}end\n"


def spark(
    number: int,
    *,
    links: Sequence[dict[str, Any]] | None = None,
    told: str = "",
    resolved: Sequence[tuple[str, str]] = (),
    memory_kb: int = 126_353_408,
    versions: str = "vllm 0.18.0\nnvidia-nccl-cu13 2.28.3\n",
    environments: Mapping[str, Mapping[str, str]] | None = None,
    rdma: Mapping[str, str] = RDMA,
    speed: int = 200_000,
) -> str:
    """A DGX Spark called spark-NUMBER: a management network, and two ports of the fast one."""
    if links is None:
        links = [
            link(MANAGEMENT, mac(number, 0), f"192.168.1.1{number}/24", mtu=1500),
            *(link(d, mac(number, i), f"192.168.10{i}.1{number}/24") for i, d in enumerate(CABLES, 1)),
        ]
    written = environments or {}
    neighbours = [{"dst": "x", "dev": device, "lladdr": other, "state": ["REACHABLE"]} for device, other in resolved]
    loopback = {"ifname": "lo", "mtu": 65536, "operstate": "UNKNOWN", "link_type": "loopback", "addr_info": []}
    fast = "\n".join(f"{one['ifname']} {speed} device" for one in links if one["ifname"] in CABLES)
    return output(
        hostname=f"spark-{number}",
        system="Ubuntu 24.04.3 LTS, 6.14.0-1013-nvidia aarch64",
        gpu="NVIDIA GB10, 580.95.05",
        memory=f"MemTotal:       {memory_kb} kB",
        links=json.dumps([loopback, *links]),
        speeds=f"lo -\n{MANAGEMENT} 10000 device\n{fast}",
        rdma="\n".join(f"{hca} {device}" for device, hca in rdma.items()),
        neighbours=json.dumps(neighbours),
        lldp=told,
        versions=versions,
        environments="\n".join(
            f"# {rank}\n" + "\n".join(f"{k}={v}" for k, v in values.items()) for rank, values in written.items()
        ),
    )
