"""The outputs of the script, read: text to facts. An output that is missing or is not what it should be becomes an
`unknown`, never an error: machines differ, and the rest still tells something.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from router.survey.script import MARK, SECTIONS
from router.survey.values import Facts, Interface, Neighbour

# Of one package several interpreters may tell; the first is an engine's own.
_VERSION = re.compile(r"^([\w-]+) (\S+)$", re.MULTILINE)


class _Address(msgspec.Struct):
    local: str = ""
    prefixlen: int = 0
    scope: str = ""


class _Link(msgspec.Struct):
    ifname: str
    mtu: int = 0
    operstate: str = ""
    link_type: str = ""
    address: str = ""
    flags: list[str] = []
    addr_info: list[_Address] = []


class _Neighbour(msgspec.Struct):
    dev: str = ""
    lladdr: str = ""
    state: list[str] = []


class _Value(msgspec.Struct):
    value: str = ""


class _Id(msgspec.Struct):
    type: str = ""
    value: str = ""


class _Chassis(msgspec.Struct):
    id: list[_Id] = []
    name: list[_Value] = []


class _Port(msgspec.Struct):
    id: list[_Id] = []


class _Seen(msgspec.Struct):
    name: str
    chassis: list[_Chassis] = []
    port: list[_Port] = []


class _Lldp(msgspec.Struct):
    interface: list[_Seen] = []


class _Told(msgspec.Struct):
    lldp: list[_Lldp] = []


def facts(node: str, address: str, output: str) -> Facts:
    """What one machine printed. Raises ValueError where that is not the script's output at all."""
    parts = sections(output)
    if not parts:
        raise ValueError("what it printed is not the script's output")
    links: list[_Link] = _decoded(parts.get("links", ""), list[_Link]) or []
    neighbours: list[_Neighbour] = _decoded(parts.get("neighbours", ""), list[_Neighbour]) or []
    told: _Told | None = _decoded(parts.get("lldp", ""), _Told)
    gpu = [part.strip() for part in parts.get("gpu", "").partition("\n")[0].split(",")]
    memory = re.search(r"MemTotal:\s+(\d+) kB", parts.get("memory", ""))
    found = Facts(
        id=node,
        address=address,
        hostname=parts.get("hostname", "").strip(),
        system=parts.get("system", "").strip(" ,\n"),
        gpu=gpu[0],
        driver=gpu[1] if len(gpu) > 1 else "",
        memory_gib=int(memory[1]) / 2**20 if memory else None,
        interfaces=tuple(_interfaces(links, parts.get("speeds", ""), parts.get("rdma", ""))),
        lldp=tuple(_lldp(told)),
        resolved=tuple(
            Neighbour(device=one.dev, mac=one.lladdr.lower())
            for one in neighbours
            if one.lladdr and "FAILED" not in one.state
        ),
        versions=_versions(parts.get("versions", "")),
        environments=_environments(parts.get("environments", "")),
    )
    return msgspec.structs.replace(found, unknown=tuple(_unknown(found, parts)))


def sections(output: str) -> dict[str, str]:
    """The script's answers by name; those that are cut short are left out."""
    found: dict[str, str] = {}
    name, lines = "", list[str]()
    for line in output.splitlines():
        if line.startswith(MARK):
            if name:
                found[name] = "\n".join(lines)
            name, lines = line.removeprefix(MARK).strip(), []
        else:
            lines.append(line)
    return {key: value for key, value in found.items() if key in SECTIONS}


def _decoded(text: str, kind: Any) -> Any:
    """JSON of a shape, or None."""
    try:
        return msgspec.json.decode(text.strip() or "null", type=kind | None)
    except (msgspec.DecodeError, RecursionError):
        return None


def _interfaces(links: list[_Link], speeds: str, rdma: str) -> Iterator[Interface]:
    rows = [line.split() for line in speeds.splitlines()]
    speed = {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}
    devices = {row[0] for row in rows if row[-1] == "device"}
    hcas = {pair[1]: pair[0] for line in rdma.splitlines() if len(pair := line.split()) == 2}
    for link in links:
        if link.link_type == "loopback":
            continue
        yield Interface(
            name=link.ifname,
            mac=link.address.lower(),
            up=link.operstate == "UP" or (link.operstate == "UNKNOWN" and "LOWER_UP" in link.flags),
            mtu=link.mtu,
            speed_mbps=speed.get(link.ifname),
            addresses=tuple(f"{one.local}/{one.prefixlen}" for one in link.addr_info if one.scope != "link"),
            hca=hcas.get(link.ifname, ""),
            physical=link.ifname in devices,
        )


def _lldp(told: _Told | None) -> Iterator[Neighbour]:
    for seen in (one for part in (told.lldp if told else ()) for one in part.interface):
        for chassis in seen.chassis:
            macs = [one.value.lower() for one in chassis.id if one.type == "mac"]
            ports = [one.value for port in seen.port for one in port.id]
            names = [one.value for one in chassis.name]
            yield Neighbour(
                device=seen.name,
                name=names[0] if names else "",
                mac=macs[0] if macs else "",
                port=ports[0] if ports else "",
            )


def _versions(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, version in _VERSION.findall(text):
        found.setdefault("nccl" if name.startswith("nvidia-nccl") else name, version)
    return found


def _environments(text: str) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    rank = ""
    for line in text.splitlines():
        if line.startswith("# "):
            rank = line[2:].strip()
            found[rank] = {}
        elif rank and "=" in line:
            key, _, value = line.partition("=")
            found[rank][key] = value.strip().strip("\"'")
    return found


def _unknown(found: Facts, parts: Mapping[str, str]) -> Iterator[str]:
    if not found.gpu:
        yield "its GPU: nvidia-smi says nothing"
    if found.memory_gib is None:
        yield "its memory"
    if not found.interfaces:
        yield "its network devices: `ip -json address` says nothing"
    if not found.lldp and not found.resolved:
        yield "who is at the other end of its cables: neither LLDP (apt package lldpd) nor resolved addresses"
    if "environments" not in parts:
        yield "the rest: what it printed was cut short"
