"""A plan held against its machines: what is wrong, what may be, what was looked at and is right, each with what would
mend it. Facts and answers come from `ask` and `probe`; nothing is asked here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from router.cluster.values import Group, Model, Plan, Replica
from router.launch.ranks import Rank, ranks
from router.policy_files.onto import suggestion
from router.survey.values import Answered, Facts, Finding, Silent

SEEN = 0.93  # of the memory that the catalogue takes a node to show
RING_MTU = 9000
# Where ranks differ by nature; all else in an environment is the same on every node of a replica.
OWN = ("VLLM_HOST_IP", "PATH")


def error(where: str, what: str, do: str) -> Finding:
    return Finding(level="error", where=where, what=what, do=do)


def warning(where: str, what: str, do: str) -> Finding:
    return Finding(level="warning", where=where, what=what, do=do)


def machines(plan: Plan, found: Sequence[Facts | Silent], models: Mapping[str, Model]) -> list[Finding]:
    """What the machines of a plan have to say to it."""
    findings: list[Finding] = []
    facts: dict[str, Facts] = {}
    for one in found:
        if isinstance(one, Silent):
            findings.append(error(one.id, f"cannot be asked: {one.why}", f"try: ssh {one.address} true"))
        else:
            facts[one.id] = one
    spread = [(group, one) for group in plan.groups for one in group.replicas if len(one.nodes) > 1]
    joined = {node for _, replica in spread for node in replica.nodes}
    for node, one in facts.items():
        mine = [*_itself(plan, one), *(_network(plan, one) if node in joined else ())]
        findings += mine or [Finding(level="ok", where=node, what=f"{one.gpu}, {one.memory_gib:.0f} GiB")]
    findings += _mtu(plan, [facts[node] for node in sorted(joined) if node in facts])
    findings += _addresses(facts)
    launched = {rank.name: rank for rank in ranks(plan, models)}
    for _, replica in spread:
        findings += _versions(replica, facts)
    for rank in launched.values():
        if len(rank.replica.nodes) > 1 and rank.node in facts:
            findings += _environment(rank, facts[rank.node])
    return findings


def _itself(plan: Plan, one: Facts) -> Iterator[Finding]:
    machine = plan.cluster.machine
    if not one.gpu:
        yield error(one.id, "nvidia-smi tells of no GPU", "install the driver, and look at `nvidia-smi`")
    if one.memory_gib is None:
        yield warning(one.id, "does not tell its memory", "look at /proc/meminfo")
    elif one.memory_gib < SEEN * machine.visible_gib:
        told = f"shows {one.memory_gib:.1f} GiB of memory, and the plan counts on {machine.visible_gib:g}"
        yield error(one.id, told, "plan with `visible_gib` as it is, or find what holds the rest")


def _network(plan: Plan, one: Facts) -> Iterator[Finding]:
    """Names of devices that the plan writes into every rank's environment."""
    fabric = plan.cluster.fabric
    names = [device.name for device in one.interfaces]
    wanted = [("fabric.interfaces", name) for name in fabric.interfaces]
    wanted += [("fabric.management", fabric.management)] if fabric.management else []
    for key, name in wanted:
        device = one.interface(name)
        if device is None:
            there = ", ".join(names) or "none"
            hint = suggestion(name, names) or f"; it has {there}"
            yield error(one.id, f"has no network device {name}{hint}", f"set {key} in the plan")
        elif not device.up:
            yield error(one.id, f"{name} is down", f"ip link set {name} up, and look at its cable")
        elif key == "fabric.interfaces" and (device.speed_mbps or 10**9) < fabric.link_gbps * 1000 * 0.9:
            told = (
                f"{name} runs at {(device.speed_mbps or 0) / 1000:g} Gb/s, and the plan counts on {fabric.link_gbps:g}"
            )
            yield warning(one.id, told, "look at the cable and the port, or set fabric.link_gbps")
    hcas = [device.hca for device in one.interfaces if device.hca]
    for name in fabric.hcas:
        if name in names:
            what = f"fabric.hcas names {name}, which is a network device"
            yield error(one.id, what, f"name RDMA devices: {', '.join(hcas) or 'none is there'}")
        elif name not in hcas:
            there = ", ".join(hcas) or "none"
            yield error(
                one.id, f"has no RDMA device {name}; it has {there}", "set fabric.hcas, and look at `rdma link`"
            )
    node = next(node for node in plan.cluster.nodes if node.id == one.id)
    if node.fabric_address and one.holds(node.fabric_address) is None:
        have = ", ".join(address for device in one.interfaces for address in device.addresses)
        told = f"no device holds {node.fabric_address}; it has {have or 'no address'}"
        yield error(one.id, told, "set fabric_address of this node, or give the device that address")


def _mtu(plan: Plan, found: Sequence[Facts]) -> Iterator[Finding]:
    """Frames are as long at both ends of every cable, and on a ring 9000 long."""
    for name in plan.cluster.fabric.interfaces:
        sizes = {one.id: device.mtu for one in found if (device := one.interface(name)) is not None}
        if len(set(sizes.values())) > 1:
            told = ", ".join(f"{node} {size}" for node, size in sizes.items())
            most = Counter(sizes.values()).most_common(1)[0][0]
            odd = [node for node, size in sizes.items() if size != most]
            yield error(
                ", ".join(odd), f"the MTU of {name} differs: {told}", f"ip link set {name} mtu {max(sizes.values())}"
            )
        elif plan.cluster.fabric.kind == "ring" and sizes and max(sizes.values()) < RING_MTU:
            told = f"the MTU of {name} is {max(sizes.values())} on every node of a ring"
            yield warning("cluster", told, f"ip link set {name} mtu {RING_MTU}")


def _addresses(facts: Mapping[str, Facts]) -> Iterator[Finding]:
    """No address twice, on devices or in what ranks call themselves."""
    held: dict[str, set[str]] = {}
    named: dict[str, set[str]] = {}
    for node, one in facts.items():
        for device in one.interfaces:
            for address in device.addresses if device.physical else ():
                held.setdefault(address.partition("/")[0], set()).add(node)
        for environment in one.environments.values():
            if (own := environment.get("VLLM_HOST_IP")) is not None:
                named.setdefault(own, set()).add(node)
    for address, nodes in held.items():
        if len(nodes) > 1:
            yield error(", ".join(sorted(nodes)), f"share the address {address}", "give each machine one of its own")
    for address, nodes in named.items():
        if len(nodes) > 1:
            told = f"VLLM_HOST_IP is {address} on each of them"
            yield error(", ".join(sorted(nodes)), told, "render the plan again, and install each node's own files")


def _versions(replica: Replica, facts: Mapping[str, Facts]) -> Iterator[Finding]:
    """Ranks of one replica speak a protocol that has no version."""
    here = [facts[node] for node in replica.nodes if node in facts]
    for name in sorted({name for one in here for name in one.versions}):
        found = {one.id: one.versions.get(name, "none") for one in here}
        if len(set(found.values())) > 1:
            told = ", ".join(f"{node} {version}" for node, version in found.items())
            yield error(replica.name, f"{name} differs between its nodes: {told}", "install one version on all of them")


def _environment(rank: Rank, one: Facts) -> Iterator[Finding]:
    """What a rank's file says of the network, against what the plan gives it."""
    path = f"/etc/pointsman/engines/{rank.name}.env"
    written = one.environments.get(rank.name)
    if written is None:
        yield warning(
            one.id, f"{path} is not there, or not to be read", "install what `plan render` writes; ask as root"
        )
        return
    own = written.get("VLLM_HOST_IP")
    if own is not None and one.holds(own) is None:
        yield error(one.id, f"{rank.name}: VLLM_HOST_IP is {own}, which no device of it holds", f"mend {path}")
    for key, value in rank.environment.items():
        if key in OWN:
            continue
        if key not in written:
            yield error(one.id, f"{rank.name}: {key} is not set", f"add {key}={value} to {path}")
        elif written[key] != value:
            told = f"{rank.name}: {key} is {written[key]}, and the plan says {value}"
            yield warning(one.id, told, f"mend {path}, or the plan")


# --- engines ---------------------------------------------------------------------------------------------


def engines(plan: Plan, answers: Sequence[Answered]) -> list[Finding]:
    """What the replicas' first ranks answered, against what the gateway will ask of them."""
    by_name = {one.replica: one for one in answers}
    found: list[Finding] = []
    for group in plan.groups:
        for replica in group.replicas:
            if (one := by_name.get(replica.name)) is not None:
                found += list(_engine(plan, group, replica, one)) or [_well(one)]
    return found


def _well(one: Answered) -> Finding:
    return Finding(level="ok", where=one.replica, what=f"{one.url} answers, serves its model and shows its load")


def _engine(plan: Plan, group: Group, replica: Replica, one: Answered) -> Iterator[Finding]:
    if one.health != 200:
        last = f"rank 0 runs on {replica.nodes[0]}"
        many = ", and a rank that died shows here too" if len(replica.nodes) > 1 else ""
        logs = " ".join(f"{node}:pointsman-engine@{replica.name}-{n}" for n, node in enumerate(replica.nodes))
        yield error(replica.name, f"{one.url}/health: {one.health}; {last}{many}", f"journalctl of {logs}")
        if not isinstance(one.health, int):
            return
    if isinstance(one.models, str):
        yield error(replica.name, f"{one.url}/v1/models: {one.models}", "look whether this is the engine at all")
    elif one.models is not None and group.served not in one.models:
        served = ", ".join(one.models) or "none"
        yield error(
            replica.name,
            f"serves {served}, and the gateway asks for {group.served}",
            "start it with that name, or mend the plan",
        )
    if plan.engine != "trtllm" and (isinstance(one.metrics, str) or not one.metrics):
        told = one.metrics if isinstance(one.metrics, str) else "no number of its load"
        flag = (
            "start SGLang with --enable-metrics"
            if plan.engine == "sglang"
            else "do not start it with --disable-log-stats"
        )
        yield warning(replica.name, f"{one.url}/metrics: {told}; the balance goes by calls alone", flag)
    if one.completed is not None and one.completed != 200:
        told = f"a request for one token: {one.completed}"
        yield error(replica.name, told, "a rank may have died or hang; restart all ranks of this replica")
