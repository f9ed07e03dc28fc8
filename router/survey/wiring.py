"""Several machines' facts to a cluster: which devices are the fast network, and whether cables make a pair, a ring, or
lead to a switch. LLDP is believed first; addresses that were resolved tell the same where machines have spoken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from router.cluster.values import Fabric, Node, Wiring
from router.survey.values import Facts, Interface

FAST_MBPS = 25_000  # slower devices are the management network
SPARK = "GB10"


class Drawn(Struct, frozen=True, kw_only=True):
    """The cluster as it looks from its machines, and what had to be left open, in words."""

    machine: str | None
    nodes: tuple[Node, ...]
    fabric: Wiring
    why: str
    open: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """A cluster file."""
        fabric: dict[str, Any] = {"kind": self.fabric.kind}
        for key in ("order", "interfaces", "hcas"):
            if value := getattr(self.fabric, key):
                fabric[key] = list(value)
        if self.fabric.kind != "none":
            fabric["link_gbps"] = self.fabric.link_gbps
        if self.fabric.management:
            fabric["management"] = self.fabric.management
        nodes = [
            {key: value for key in ("id", "address", "fabric_address") if (value := getattr(node, key))}
            for node in self.nodes
        ]
        return {"version": 1, "machine": self.machine or "dgx-spark", "nodes": nodes, "fabric": fabric}


def draw(found: Sequence[Facts]) -> Drawn:
    """The cluster that these machines are."""
    fast = {one.id: fabric_devices(one, found) for one in found}
    kind, order, why = _kind(found, fast)
    names = _common([[device.name for device in fast[one.id]] for one in found])
    hcas = _common([[device.hca for device in fast[one.id] if device.hca] for one in found])
    speeds = [device.speed_mbps for one in found for device in fast[one.id] if device.speed_mbps]
    gpus = {one.gpu for one in found}
    machine = "dgx-spark" if gpus and all(SPARK in gpu for gpu in gpus) else None
    management = _common([[device.name] if (device := one.holds(one.address)) else [] for one in found])
    nodes = tuple(Node(id=one.id, address=one.address, fabric_address=_address(one, fast[one.id])) for one in found)
    left: list[str] = []
    if machine is None:
        left.append(
            f"the kind of machine: GPUs are {', '.join(sorted(gpu or 'unknown' for gpu in gpus))}; set `machine`"
        )
    if kind != "none" and not names:
        left.append("fabric.interfaces: the machines' fast devices have no name in common")
    if kind != "none" and not hcas:
        left.append("fabric.hcas: no RDMA devices in common; without them NCCL uses sockets")
    if kind == "ring" and not management:
        left.append("fabric.management: no device holds the address that its machine was asked at; give IP addresses")
    if not speeds and kind != "none":
        left.append("fabric.link_gbps: no device tells its speed; 200 is assumed")
    fabric = Wiring(
        kind=kind,
        order=order,
        interfaces=tuple(names),
        hcas=tuple(hcas),
        link_gbps=min(speeds) / 1000 if speeds else 200.0,
        management=management[0] if management else "",
    )
    return Drawn(machine=machine, nodes=nodes, fabric=fabric, why=why, open=tuple(left))


def fabric_devices(of: Facts, everyone: Sequence[Facts]) -> list[Interface]:
    """Its devices of the fast network: those with RDMA or speed, else those at whose other end another machine is."""
    own = of.holds(of.address)
    candidates = [one for one in of.interfaces if one.up and one is not own]
    fast = [one for one in candidates if one.hca or (one.speed_mbps or 0) >= FAST_MBPS]
    if fast:
        return fast
    seen = peers(of, everyone)
    return [one for one in candidates if seen.get(one.name)]


def peers(of: Facts, everyone: Sequence[Facts]) -> dict[str, set[str]]:
    """By device, the other machines of the cluster that are seen there."""
    names = {one.hostname: one.id for one in everyone if one.hostname}
    macs = {device.mac: one.id for one in everyone for device in one.interfaces if device.mac}
    found: dict[str, set[str]] = {}
    for neighbour in (*of.lldp, *of.resolved):
        other = macs.get(neighbour.mac) or (names.get(neighbour.name) if neighbour.name else None)
        if other is not None and other != of.id:
            found.setdefault(neighbour.device, set()).add(other)
    return found


def _kind(found: Sequence[Facts], fast: Mapping[str, Sequence[Interface]]) -> tuple[Fabric, tuple[str, ...], str]:
    """What joins the machines, in which order, and what says so."""
    if len(found) == 1:
        return "none", (), "there is one machine"
    switches, strangers = _switches(found, fast)
    if switches:
        return "switch", (), f"LLDP: every machine is cabled to {', '.join(sorted(switches))}"
    edges: dict[str, set[str]] = {one.id: set() for one in found}
    crowded: set[str] = set()  # machines that see more than one other through one device
    for one in found:
        seen = peers(one, found)
        for device in fast[one.id]:
            others = seen.get(device.name, set())
            edges[one.id] |= others
            if len(others) > 1:
                crowded.add(one.id)
    for one, others in list(edges.items()):
        for other in others:
            edges[other].add(one)  # one end is enough
    if crowded:
        return "switch", (), f"{sorted(crowded)[0]} sees several machines through one device"
    if len(found) == 2 and all(edges.values()):
        return "direct", (), "each of the two machines sees the other at the end of a cable"
    order = _cycle(edges)
    if order is not None:
        return "ring", order, "each machine sees two others, each through devices of its own, and they close a ring"
    told = "; ".join(f"{one} sees {', '.join(sorted(others)) or 'nobody'}" for one, others in edges.items())
    strange = f"; LLDP also names {', '.join(sorted(strangers))}" if strangers else ""
    hint = "run lldpd on them, or let them speak to each other over the fast network, and ask again"
    return "none", (), f"what joins the machines is not clear: {told}{strange}; {hint}, or set fabric.kind by hand"


def _switches(found: Sequence[Facts], fast: Mapping[str, Sequence[Interface]]) -> tuple[set[str], set[str]]:
    """Systems that every machine is cabled to and that are none of them; and those that only some are."""
    own = {one.hostname for one in found} | {device.mac for one in found for device in one.interfaces if device.mac}
    seen: list[set[str]] = []
    for one in found:
        devices = {device.name for device in fast[one.id]}
        others = {n.name or n.mac for n in one.lldp if n.device in devices and n.name not in own and n.mac not in own}
        seen.append(others - {""})
    common: set[str] = set[str].intersection(*seen)
    return common, set[str]().union(*seen) - common


def _cycle(edges: Mapping[str, set[str]]) -> tuple[str, ...] | None:
    """The order of a ring through all machines, from the first named; None where there is none."""
    if len(edges) < 3 or any(len(others) != 2 for others in edges.values()):
        return None
    first = next(iter(edges))
    order = [first]
    while True:
        ahead = sorted((other for other in edges[order[-1]] if other not in order), key=list(edges).index)
        if not ahead:
            return tuple(order) if len(order) == len(edges) and first in edges[order[-1]] else None
        order.append(ahead[0])


def _common(lists: Sequence[Sequence[str]]) -> list[str]:
    """What all have, in the first one's order."""
    return [name for name in lists[0] if all(name in other for other in lists)] if lists else []


def _address(of: Facts, fast: Sequence[Interface]) -> str:
    """Its first IPv4 address on the fast network."""
    addresses = [one.partition("/")[0] for device in fast for one in device.addresses]
    return next((one for one in addresses if "." in one), "")
