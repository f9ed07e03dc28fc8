"""What contradicts itself in the files of a catalogue: facts that cannot all be true, clusters that cannot be wired,
plans that do not add up. Each finding is a place and a sentence that says what would make it work.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from router.cluster.values import Cluster, Machine, Model, Plan
from router.policy_files.onto import suggestion

Place = tuple[str | int, ...]


def contradictions(of: Model) -> Iterator[tuple[str, str]]:
    """Facts of a model that cannot all be true: at which, and why."""
    for key in ("weights_gb", "params_b", "active_b", "dense_gb", "layers", "heads", "kv_heads", "head_dim", "context"):
        value = getattr(of, key)
        if value is not None and not (value > 0 and math.isfinite(value)):
            yield key, f"{value:g} is not above zero"
            return
    if not 0.0 <= of.acceptance <= 1.0:
        yield "acceptance", f"a chance lies in 0..1, and this is {of.acceptance:g}"
    if of.params_b and of.active_b and of.active_b > of.params_b:
        yield "active_b", f"{of.active_b:g}B active of {of.params_b:g}B in all; one of the two is wrong"
    if of.params_b and of.weights_gb:
        bits = 8 * of.weights_gb / of.params_b
        if not 1.0 <= bits <= 34.0:
            told = f"{of.weights_gb:g} GB for {of.params_b:g}B parameters are {bits:.1f} bits each"
            yield "weights_gb", f"{told}; between 1 and 34 is possible, so one of the two is wrong"
    if of.experts_per_token > of.experts:
        yield (
            "experts_per_token",
            f"{of.experts_per_token} of {of.experts} experts; at most all of them are reached",
        )
    if of.layers and of.expert_layers > of.layers:
        yield "expert_layers", f"{of.expert_layers} of {of.layers} layers; it has at most all of them"
    held = of.experts * of.expert_layers * of.expert_mb / 1e3
    if of.weights_gb and held > 1.02 * of.weights_gb:
        told = f"{of.experts} x {of.expert_layers} experts of {of.expert_mb:g} MB are {held:.0f} GB"
        yield "expert_mb", f"{told}, more than the {of.weights_gb:g} GB of all weights; one of them is wrong"
    if of.weights_gb and of.dense_gb and of.dense_gb > of.weights_gb:
        yield "dense_gb", f"{of.dense_gb:g} GB of {of.weights_gb:g} GB in all; one of the two is wrong"
    if of.heads and of.kv_heads and of.heads % of.kv_heads:
        yield "kv_heads", f"{of.heads} heads cannot share {of.kv_heads} key-value heads evenly"
    if of.attention == "mla" and of.latent_bytes is None:
        yield "attention", "a latent cache needs latent_bytes, what one layer keeps of one token"
    if of.attention == "gqa" and of.layers and (of.kv_heads is None or of.head_dim is None):
        yield "attention", "a grouped cache needs kv_heads and head_dim"


def impossible(of: Cluster) -> Iterator[tuple[Place, str]]:
    """What cannot be in a cluster: at which key, and what would make it work."""
    total, kind = len(of.nodes), of.fabric.kind
    ids = [node.id for node in of.nodes]
    if not ids:
        yield ("nodes",), "there are no nodes; list each as {id: NAME, address: IP}"
        return
    for index, one in enumerate(ids):
        if not one:
            yield ("nodes", index, "id"), "a node needs a name"
        elif one in ids[:index]:
            yield ("nodes", index, "id"), f"there are two nodes called {one}; rename one"
    if kind == "ring" and total < 3:
        two = "two nodes and a cable are `kind: direct`" if total == 2 else "one node is `kind: none`"
        yield ("fabric", "kind"), f"a ring takes three nodes or more, and there are {total}; {two}"
    if kind == "direct" and total != 2:
        yield ("fabric", "kind"), f"one cable joins two nodes, and there are {total}; use `ring` or `switch`"
    if of.fabric.order and kind != "ring":
        yield ("fabric", "order"), f"only a ring has an order of cables; this is `{kind}`"
    elif of.fabric.order and sorted(of.fabric.order) != sorted(ids):
        odd = sorted(set(of.fabric.order) ^ set(ids)) or sorted({i for i in ids if of.fabric.order.count(i) > 1})
        yield ("fabric", "order"), f"a ring passes each node once; look at {', '.join(odd)}"
    if not of.fabric.link_gbps > 0:
        yield ("fabric", "link_gbps"), "a link carries more than nothing"


def odd(of: Machine) -> Iterator[tuple[str, str]]:
    """Facts of a kind of node that cannot all be true."""
    for key in ("memory_gb", "visible_gib", "bandwidth_gbs", "efficiency", "prefill_tflops", "usable"):
        if not getattr(of, key) > 0:
            yield key, f"{getattr(of, key):g} is not above zero"
    # 128 GB are sold, and 119.2 GiB would be exactly that; machines that report 121 have a little more.
    if of.visible_gib * 1.073741824 > of.memory_gb * 1.08:
        yield "visible_gib", f"{of.visible_gib:g} GiB are seen of {of.memory_gb:g} GB; one of the two is wrong"
    for key in ("efficiency", "usable"):
        if getattr(of, key) > 1:
            yield key, "a share lies in 0..1"


def misplaced(of: Plan) -> Iterator[tuple[Place, str]]:
    """What does not add up in a plan: groups without replicas, replicas on other nodes than there are, or too few."""
    known = sorted(node.id for node in of.cluster.nodes)
    if not of.groups:
        yield ("groups",), "a plan has at least one group"
    alone: dict[str, str] = {}
    for g, group in enumerate(of.groups):
        if not group.replicas:
            yield ("groups", g, "replicas"), "a group has at least one replica"
        for r, replica in enumerate(group.replicas):
            place = ("groups", g, "replicas", r, "nodes")
            for one in replica.nodes:
                if one not in known:
                    yield place, f"the cluster has no node {one}{suggestion(one, known)}"
                elif not replica.shared and alone.setdefault(one, replica.name) != replica.name:
                    yield place, f"{one} serves {alone[one]} already; say `shared: true`, or choose another node"
            if len(replica.nodes) != group.parallel.nodes:
                yield place, f"{len(replica.nodes)} nodes for {group.parallel}, which takes {group.parallel.nodes}"
