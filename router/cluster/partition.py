"""Every way to part a cluster into groups of models, what each comes to, and in words why it is or cannot be.

The models are given in order: the large group's, those of cheaper groups, and of three or more the classifier's last. A
model has nodes of its own, or shares those of another group where memory is left. Nothing is left idle that could hold
one more copy. Which layout to take is the operator's: those that no other beats in everything are marked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from msgspec import Struct
from msgspec.structs import replace

from router.cluster import estimate
from router.cluster import fit as fits
from router.cluster.values import (
    GIB,
    Cluster,
    Group,
    Impossible,
    Layout,
    Model,
    Parallel,
    Range,
    Refused,
    Replica,
)

ROLES = ("large", "small", "classifier")
PORT = 8000
SEQUENCES = fits.SEQUENCES
SHARED_TOKENS = 65536  # of cache that a model beside another one is given
# Two engines on one node share its memory bandwidth: what is left to each of them while both are busy.
BESIDE = 0.5
HOST = 0.75
HOST_OF_CLASSIFIER = 0.9  # which reads a prompt at a time and writes a token or two
_MOST = 20_000  # layouts looked at; eight nodes and three models make some hundreds


class Choice(Struct, frozen=True, kw_only=True):
    """How one model is placed: so many copies, spread so; or beside the copies of the group `host`."""

    parallel: Parallel
    copies: int
    host: int | None = None

    @property
    def nodes(self) -> int:
        return 0 if self.host is not None else self.parallel.nodes * self.copies


class Parted(Struct, frozen=True, kw_only=True):
    """The layouts, best first, and what was refused."""

    layouts: tuple[Layout, ...]
    refused: tuple[Refused, ...]


def roles(models: Sequence[Model]) -> list[str]:
    """The groups' names: large, small, small-2, ..., classifier."""
    if len(models) < 3:
        return list(ROLES[: len(models)])
    middle = ["small" if i == 0 else f"small-{i + 1}" for i in range(len(models) - 2)]
    return ["large", *middle, "classifier"]


def partition(cluster: Cluster, models: Sequence[Model], *, context: int = fits.CONTEXT) -> Parted:
    """All layouts of a cluster for these models. Raises Impossible where a fact that is needed is unknown."""
    if not models:
        raise Impossible("no models were given; name at least the large group's")
    named = roles(models)
    legal: list[list[Parallel]] = []
    refused: list[Refused] = []
    for name, model in zip(named, models, strict=True):
        good, bad = _spreads(name, model, cluster, context)
        legal.append(good)
        refused.extend(bad)
    layouts: list[Layout] = []
    if legal[0]:
        for choices in _choices(cluster, models, legal):
            made = _layout(cluster, models, named, choices, context)
            if isinstance(made, Layout):
                layouts.append(made)
            else:
                refused.append(made)
    best = _marked(layouts)
    ranked = sorted(best, key=lambda one: (not one.pareto, -one.single_stream, -one.aggregate, one.name))
    return Parted(layouts=tuple(ranked), refused=tuple(dict.fromkeys(refused)))


def _spreads(name: str, model: Model, cluster: Cluster, context: int) -> tuple[list[Parallel], list[Refused]]:
    """How one copy may be spread, and each size that it may not, with the reason. Pipelines where slices do not fit."""
    sliced: list[Parallel] = []
    piped: list[Parallel] = []
    refused: list[Refused] = []
    for parallel in fits.spreads(cluster):
        why = fits.refusal(model, cluster, parallel, context=context, sequences=SEQUENCES)
        if why is None:
            (piped if parallel.pipeline > 1 else sliced).append(parallel)
        elif parallel.pipeline == 1:
            refused.append(Refused(layout=_told(name, parallel, len(cluster.nodes)), why=why))
    return sliced or piped, refused


def _told(name: str, parallel: Parallel, total: int) -> str:
    copies = total // parallel.nodes
    return f"{name}: {'a group' if copies == 1 else f'{copies} groups'} of {parallel.nodes} ({parallel})"


# --- which ways there are --------------------------------------------------------------------------------


def _choices(
    cluster: Cluster, models: Sequence[Model], legal: Sequence[Sequence[Parallel]]
) -> Iterator[tuple[Choice, ...]]:
    """Every way in which no node is left that could hold one more copy."""
    total = len(cluster.nodes)
    options: list[list[Choice]] = []
    for index, spreads in enumerate(legal):
        own = [Choice(parallel=p, copies=c) for p in spreads for c in range(1, total // p.nodes + 1)]
        if index:
            single = Parallel()
            own += [Choice(parallel=single, copies=1, host=host) for host in range(index)]
        options.append(own)
    looked = 0
    for choices in product(*options):
        looked += 1
        if looked > _MOST:
            raise Impossible(f"more than {_MOST:,} layouts; give fewer models, or part the cluster in two by hand")
        left = total - sum(one.nodes for one in choices)
        if left < 0 or any(one.host is not None and choices[one.host].host is not None for one in choices):
            continue
        if any(one.host is None and one.parallel.nodes <= left for one in choices[: 2 if len(models) > 2 else None]):
            continue
        yield choices


def _layout(
    cluster: Cluster, models: Sequence[Model], named: Sequence[str], choices: Sequence[Choice], context: int
) -> Layout | Refused:
    name = "+".join(_slug(role, one, named) for role, one in zip(named, choices, strict=True))
    shares = _shares(cluster, models, named, choices, context)
    if isinstance(shares, str):
        return Refused(layout=name, why=shares)
    groups = _placed(cluster, models, named, choices, shares)
    made: list[Group] = []
    for index, (group, model, one) in enumerate(zip(groups, models, choices, strict=True)):
        single, full = _rates(cluster, model, one, choices, index)
        made.append(replace(group, tokens_per_s=single, aggregate_tokens_per_s=full))
    answering = made if len(models) < 3 else made[:-1]
    aggregate = sum(_mid(group.aggregate_tokens_per_s) for group in answering)
    radius, worst = _radius(answering, aggregate)
    return Layout(
        name=name,
        groups=tuple(made),
        why=tuple(_words(cluster, made, radius, worst)),
        single_stream=_mid(made[0].tokens_per_s),
        aggregate=aggregate,
        kv_tokens=sum(group.kv_tokens * len(group.replicas) for group in answering),
        blast_radius=radius,
    )


def _slug(role: str, choice: Choice, named: Sequence[str]) -> str:
    if choice.host is not None:
        return f"{role}-beside-{named[choice.host]}"
    spread = f"tp{choice.parallel.tensor}" + (f"pp{choice.parallel.pipeline}" if choice.parallel.pipeline > 1 else "")
    return f"{role}-{choice.copies}x{spread}"


# --- memory ----------------------------------------------------------------------------------------------


def _shares(
    cluster: Cluster, models: Sequence[Model], named: Sequence[str], choices: Sequence[Choice], context: int
) -> list[float] | str:
    """The part of a node's usable memory that each group may take, or why there is not enough."""
    usable = cluster.machine.usable_gib
    shares = [1.0] * len(models)
    for index, (model, one) in enumerate(zip(models, choices, strict=True)):
        if one.host is None:
            continue
        needed = fits.need(model, cluster, one.parallel)
        forbidden = fits.shape_forbids(model, one.parallel)
        if forbidden is not None:
            return f"{named[index]}: {forbidden}"
        wanted = needed.per_node_gib + SHARED_TOKENS * needed.token_bytes / GIB
        shares[index] = wanted / usable
        shares[one.host] -= wanted / usable
    for index, (model, one) in enumerate(zip(models, choices, strict=True)):
        guests = [named[i] for i, guest in enumerate(choices) if guest.host == index]
        if guests and shares[index] <= 0:
            return f"{' and '.join(guests)} alone would fill the nodes of {named[index]}"
        if guests:
            why = fits.refusal(model, cluster, one.parallel, context=context, share=shares[index])
            if why is not None:
                return f"beside {' and '.join(guests)}, {named[index]} does not fit: {why}"
    return shares


def _placed(
    cluster: Cluster,
    models: Sequence[Model],
    named: Sequence[str],
    choices: Sequence[Choice],
    shares: Sequence[float],
) -> list[Group]:
    """Nodes dealt out along the cables, so that each copy has neighbours."""
    ids, at = cluster.ids, 0
    groups: list[Group] = []
    for index, (role, model, one) in enumerate(zip(named, models, choices, strict=True)):
        if one.host is None:
            size = one.parallel.nodes
            places = [tuple(ids[at + i * size : at + (i + 1) * size]) for i in range(one.copies)]
            at += size * one.copies
        else:
            held = [node for replica in groups[one.host].replicas for node in replica.nodes]
            held.reverse()  # the leader of a copy has more to do than the others
            places = [(node,) for node in (held[:2] if role == "classifier" else held)]
        replicas = tuple(
            Replica(
                name=f"{role}-{chr(97 + i) if i < 26 else i + 1}",
                nodes=place,
                port=PORT + index,
                shared=one.host is not None,
            )
            for i, place in enumerate(places)
        )
        needed = fits.need(model, cluster, one.parallel, share=shares[index])
        groups.append(
            Group(
                name=role,
                model=model.name,
                served=model.served,
                replicas=replicas,
                tensor=one.parallel.tensor,
                pipeline=one.parallel.pipeline,
                context=int(min(model.context, needed.kv_tokens)),
                sequences=SEQUENCES,
                memory_share=round(cluster.machine.usable * shares[index], 3),
                drafts=model.drafts,
                kv_tokens=needed.kv_tokens,
                per_node_gib=round(needed.per_node_gib, 1),
            )
        )
    return groups


# --- rates -----------------------------------------------------------------------------------------------


def _rates(cluster: Cluster, model: Model, one: Choice, choices: Sequence[Choice], index: int) -> tuple[Range, Range]:
    """Tokens a second of one stream, and of all copies full."""
    copies = one.copies
    factor = 1.0
    if one.host is not None:
        copies, factor = choices[one.host].nodes, BESIDE
    elif guests := [i for i, other in enumerate(choices) if other.host == index]:
        factor = HOST_OF_CLASSIFIER if len(choices) > 2 and guests == [len(choices) - 1] else HOST
    single = estimate.decode(model, cluster, one.parallel, 1)
    full = estimate.decode(model, cluster, one.parallel, SEQUENCES)
    note = "" if factor == 1.0 else f"; x {factor:g}, for it shares its nodes"
    return _times(single, factor, note), _times(full, factor * copies, note)


def _times(of: Range, factor: float, note: str) -> Range:
    return Range(low=of.low * factor, mid=of.mid * factor, high=of.high * factor, source=of.source + note)


def _mid(of: Range | None) -> float:
    return 0.0 if of is None else of.mid


def _radius(groups: Sequence[Group], aggregate: float) -> tuple[float, str]:
    """The largest share of all tokens that one node takes with it, and which node."""
    lost: dict[str, float] = {}
    for group in groups:
        each = _mid(group.aggregate_tokens_per_s) / len(group.replicas)
        for replica in group.replicas:
            for node in replica.nodes:
                lost[node] = lost.get(node, 0.0) + each
    worst = max(lost, key=lambda node: (lost[node], node))
    return (lost[worst] / aggregate if aggregate else 1.0), worst


def _marked(layouts: Sequence[Layout]) -> list[Layout]:
    """With those marked that no other beats: as good in everything, and better in something."""

    def worth(one: Layout) -> tuple[float, ...]:
        return (one.single_stream, one.aggregate, float(one.kv_tokens), -one.blast_radius)

    values = [worth(one) for one in layouts]

    def beaten(mine: tuple[float, ...]) -> bool:
        return any(other != mine and all(a >= b for a, b in zip(other, mine, strict=True)) for other in values)

    return [replace(one, pareto=not beaten(mine)) for one, mine in zip(layouts, values, strict=True)]


# --- words -----------------------------------------------------------------------------------------------


def _words(cluster: Cluster, groups: Sequence[Group], radius: float, worst: str) -> Iterator[str]:
    total = len(cluster.nodes)
    for group in groups:
        spread = f"{len(group.replicas)} x {group.parallel}"
        where = ", ".join("+".join(replica.nodes) for replica in group.replicas)
        beside = " beside another group" if group.replicas[0].shared else ""
        yield f"{group.name}: {group.model}, {spread}{beside} on {where}"
    sizes = [len(replica.nodes) for group in groups for replica in group.replicas if not replica.shared]
    if cluster.fabric.kind == "ring":
        if total in sizes:
            yield f"the ring closes around all {total} nodes, so it is one group"
        elif 2 in sizes:
            yield "each pair of neighbours has a cable of its own; the rest of the ring is not used"
    elif cluster.fabric.kind == "switch" and len(sizes) > 1:
        yield "the switch joins any nodes, so groups stand side by side"
    idle = total - sum(sizes)
    if idle:
        yield f"{idle} node{'s hold' if idle > 1 else ' holds'} nothing: no copy is small enough"
    yield f"the loss of {worst} takes {100 * radius:.0f}% of the tokens a second with it"
