"""Whether a model fits on so many nodes, spread how: the memory of one node, and what its shape and the wiring allow.

Each answer that is no carries its reason in words. Rates belong to `estimate`, several groups at once to `partition`.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from router.cluster.values import GB, GIB, Cluster, Impossible, Model, Node, Parallel, Wiring

# Norms, routers and embeddings stand on every rank: 1.05 to 1.07 of an equal share is what ranks were seen to hold.
REPLICATED = 1.06
CONTEXT = 32768  # tokens that a group has to hold at the least, unless asked otherwise
SEQUENCES = 16  # at once, unless asked otherwise


class Need(Struct, frozen=True, kw_only=True):
    """What one node of a group has to hold, in GiB, and the tokens of cache that the rest is good for."""

    weights_gib: float
    state_gib: float
    workspace_gib: float
    usable_gib: float
    token_bytes: float  # of the cache, on one node
    kv_tokens: int  # of the whole group

    @property
    def per_node_gib(self) -> float:
        """Without the cache, which takes what is left."""
        return self.weights_gib + self.state_gib + self.workspace_gib


class Fit(Struct, frozen=True, kw_only=True):
    """A model on a cluster. Where it does not fit, `why` says so and `would` what would make it."""

    model: str
    parallel: Parallel | None
    need: Need | None
    why: tuple[str, ...] = ()
    also: tuple[tuple[Parallel, Need], ...] = ()  # other spreads that fit
    refused: tuple[tuple[Parallel, str], ...] = ()
    would: str = ""

    @property
    def fits(self) -> bool:
        return self.parallel is not None


def need(model: Model, cluster: Cluster, parallel: Parallel, sequences: int = SEQUENCES, share: float = 1.0) -> Need:
    """What each node of one copy has to hold. `share` is the part of a node's usable memory that the copy may take."""
    machine, n = cluster.machine, parallel.nodes
    weights = _known(model, "weights_gb", model.weights_gb) * GB / GIB
    held = weights if n == 1 else REPLICATED * weights / n
    if parallel.pipeline > 1 and model.layers:  # the longest stage
        held *= -(-model.layers // parallel.pipeline) * parallel.pipeline / model.layers
    state = sequences * model.state_mb * 1e6 / GIB / n
    usable = machine.usable_gib * share
    token = token_bytes(model, parallel)
    left = usable - held - state - machine.workspace_gib
    return Need(
        weights_gib=held,
        state_gib=state,
        workspace_gib=machine.workspace_gib,
        usable_gib=usable,
        token_bytes=token,
        kv_tokens=max(0, int(left * GIB / token)) if token > 0 else 0,
    )


def token_bytes(model: Model, parallel: Parallel) -> float:
    """Cache of one token on one node: a latent is the same on every rank, grouped heads are shared out among them."""
    if model.attention == "mla":
        return model.kv_bytes_per_token / parallel.pipeline
    heads = _known(model, "kv_heads", model.kv_heads)
    return model.kv_bytes_per_token * max(1.0, heads / parallel.tensor) / heads / parallel.pipeline


def shape_forbids(model: Model, parallel: Parallel) -> str | None:
    """Why the model cannot be cut so; None where it can."""
    n, heads, layers = parallel.tensor, _known(model, "heads", model.heads), _known(model, "layers", model.layers)
    if heads % n:
        return f"its {heads:.0f} attention heads cannot be shared out evenly among {n} ranks"
    if model.expert_width % n:
        what = "experts" if model.experts else "feed-forward layers"
        return f"its {what} are {model.expert_width} wide, which {n} ranks cannot share evenly"
    if model.kv_heads and model.kv_heads % n and n % model.kv_heads:
        return f"its {model.kv_heads} key-value heads neither divide {n} ranks nor are divided by them"
    if parallel.pipeline > layers:
        return f"it has {layers:.0f} layers, too few for {parallel.pipeline} stages"
    if parallel.expert and not model.experts:
        return "it has no experts that ranks could hold whole"
    if parallel.expert and model.experts % parallel.nodes:
        return f"its {model.experts} experts cannot be dealt evenly to {parallel.nodes} ranks"
    return None


def wiring_forbids(cluster: Cluster, parallel: Parallel) -> str | None:
    """Why no group of this cluster can be spread so; None where one can."""
    n, total, kind = parallel.nodes, len(cluster.nodes), cluster.fabric.kind
    if n > total:
        return f"it takes {n} nodes, and there are {total}"
    if n == 1 or kind == "switch":
        return None
    if kind == "none":
        return "no fast network joins the nodes, so a group is one of them; a cable or a switch would join more"
    if kind == "direct":
        return None  # two nodes, one cable
    if n == 2:
        return None  # neighbours share a cable
    if n == total:
        if parallel.expert and n > 3:
            return "experts whole on ranks send from any to any, and a ring joins only neighbours: that needs a switch"
        return None
    if parallel.tensor == 1:
        return None  # stages send to the next one only
    return (
        f"a ring of {total} closes only around all {total} nodes: {n} of them in one group need a switch, "
        f"or a pipeline of {n} stages along the ring"
    )


def legal(model: Model, cluster: Cluster) -> dict[str, list[int]]:
    """The sizes that the model's shape and the wiring allow, whatever memory says: of slices, of stages, and of slices
    with experts whole on ranks."""
    total = len(cluster.nodes)
    kinds = {
        "tensor": [Parallel(tensor=n) for n in range(1, total + 1) if _whole(n)],
        "pipeline": [Parallel(pipeline=n) for n in range(1, total + 1)],
        "expert": [Parallel(tensor=n, expert=True) for n in range(2, total + 1) if _whole(n)],
    }
    return {
        kind: [one.nodes for one in each if not (shape_forbids(model, one) or wiring_forbids(cluster, one))]
        for kind, each in kinds.items()
    }


def spreads(cluster: Cluster) -> Iterator[Parallel]:
    """Every spread over so many nodes as there are, tensor slices before pipelines, small before large."""
    total = len(cluster.nodes)
    for n in range(1, total + 1):
        for pipeline in range(1, n + 1):
            if n % pipeline == 0 and _whole(n // pipeline):
                yield Parallel(tensor=n // pipeline, pipeline=pipeline)


def fit(
    model: Model, cluster: Cluster, *, context: int = CONTEXT, sequences: int = SEQUENCES, nodes: int | None = None
) -> Fit:
    """The smallest tensor-parallel group that holds the model, or the smallest pipeline where there is none."""
    good: list[tuple[Parallel, Need]] = []
    refused: list[tuple[Parallel, str]] = []
    for parallel in spreads(cluster):
        if nodes is not None and parallel.nodes != nodes:
            continue
        why = refusal(model, cluster, parallel, context=context, sequences=sequences)
        if why is None:
            good.append((parallel, need(model, cluster, parallel, sequences)))
        else:
            refused.append((parallel, why))
    if not good:
        return Fit(
            model=model.name,
            parallel=None,
            need=None,
            refused=tuple(refused),
            why=(f"{model.name} fits on no group of {cluster.name}",),
            would=would(model, cluster, context, sequences),
        )
    chosen = min(good, key=lambda one: (one[0].pipeline > 1, one[0].nodes))
    also = tuple(one for one in good if one is not chosen)
    return Fit(
        model=model.name,
        parallel=chosen[0],
        need=chosen[1],
        also=also,
        refused=tuple(refused),
        why=tuple(_told(model, cluster, chosen, also, refused)),
    )


def refusal(
    model: Model,
    cluster: Cluster,
    parallel: Parallel,
    *,
    context: int = CONTEXT,
    sequences: int = SEQUENCES,
    share: float = 1.0,
) -> str | None:
    """Why a copy cannot be spread so on this cluster; None where it can."""
    forbidden = shape_forbids(model, parallel)
    if forbidden is not None:
        return forbidden
    needed = need(model, cluster, parallel, sequences, share)
    if needed.per_node_gib > needed.usable_gib:
        each = "the node" if parallel.nodes == 1 else f"each of {parallel.nodes} nodes"
        return (
            f"{each} would hold {needed.weights_gib:.0f} GiB of weights and {needed.per_node_gib:.0f} GiB in all, "
            f"of which {needed.usable_gib:.0f} GiB may be used"
        )
    forbidden = wiring_forbids(cluster, parallel)
    if forbidden is not None:
        return forbidden
    if needed.kv_tokens < context:
        return f"{needed.kv_tokens:,} tokens of cache are left, and one conversation of {context:,} has to fit"
    return None


def would(model: Model, cluster: Cluster, context: int, sequences: int) -> str:
    """What would make a model fit that does not: more nodes, a switch, or fewer bytes."""
    for fabric, total in ((cluster.fabric.kind, 64), ("switch", len(cluster.nodes)), ("switch", 64)):
        for n in (1, 2, 4, 8, 16, 32, 64):
            wider = _wider(cluster, "switch" if fabric == "none" and n > 1 else fabric, n)
            parallel = Parallel(tensor=n)
            if n <= total and refusal(model, wider, parallel, context=context, sequences=sequences) is None:
                if n <= len(cluster.nodes):
                    return f"{n} nodes behind a switch would hold it ({parallel})"
                return f"{n} such nodes would hold it ({parallel}), or a smaller quantisation"
    per = cluster.machine.usable_gib * GIB / GB
    return f"nodes with more than the {per:.0f} GB that may be used of each, or a smaller quantisation, would hold it"


def _wider(cluster: Cluster, kind: str, n: int) -> Cluster:
    nodes = tuple(Node(id=f"n{i}") for i in range(n))
    ring = kind == "ring" and n > 2
    fabric = Wiring(kind="ring" if ring else "switch", link_gbps=cluster.fabric.link_gbps)
    return replace(cluster, nodes=nodes, fabric=fabric)


def _told(
    model: Model,
    cluster: Cluster,
    chosen: tuple[Parallel, Need],
    also: tuple[tuple[Parallel, Need], ...],
    refused: list[tuple[Parallel, str]],
) -> Iterator[str]:
    parallel, needed = chosen
    kept = f"{model.kv_bytes_per_token / 1000:.1f} KB a token"
    yield (
        f"{model.name}: {model.weights_gb:,.0f} GB of weights on {_nodes(parallel.nodes)} ({parallel}): "
        f"{needed.per_node_gib:.0f} of {needed.usable_gib:.0f} GiB a node before the cache, which holds "
        f"{needed.kv_tokens:,} tokens at {kept}"
    )
    fewer = [(p, why) for p, why in refused if p.pipeline == 1 and p.nodes < parallel.nodes]
    if fewer:
        last, why = fewer[-1]
        yield f"{_nodes(last.nodes)} would not do: {why}"
    piped = [p for p, _ in also if p.pipeline > 1 and p.nodes < parallel.nodes]
    if piped:
        yield f"a pipeline of {_nodes(piped[0].nodes)} ({piped[0]}) holds it too, at a lower rate for one stream"


def _nodes(n: int) -> str:
    return "one node" if n == 1 else f"{n} nodes"


def _whole(n: int) -> bool:
    """Tensor sizes that engines are run with: powers of two."""
    return n & (n - 1) == 0


def _known(model: Model, field: str, value: float | None) -> float:
    if value is None:
        raise Impossible(
            f"{model.name}: {field} is unknown; add the fact with its source to the model's file in the catalogue"
        )
    return value
