"""What a plan speaks of, as values: facts, nodes, clusters, models, groups, layouts, plans, ranges. What computes more
than one value off another belongs elsewhere.

Sizes of weights are GB (1e9 bytes) as vendors print them, memory of nodes is GiB (2**30) as machines report it.
Durations end in `_s`. A fact that nobody knows is None, never a guess that looks like one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

GIB = 2.0**30
GB = 1e9

Basis = Literal["measured", "published", "assumed"]
Engine = Literal["vllm", "sglang", "trtllm"]
Fabric = Literal["none", "direct", "ring", "switch"]
Attention = Literal["gqa", "mla"]


class Impossible(ValueError):
    """What is asked cannot be. The message is one line, and says what would make it work."""


class Fact(Struct, frozen=True, kw_only=True):
    """One thing known of a model or a node: its value, on what it rests, and who says so."""

    value: float | int | str | None  # None: nobody says
    basis: Basis
    source: str  # who says so, in words


class Range(Struct, frozen=True, kw_only=True):
    """A number that is not known exactly."""

    low: float
    mid: float
    high: float
    source: str  # "measured ...", "estimated ...": on what `mid` rests


# --- the machines ----------------------------------------------------------------------------------------


class Machine(Struct, frozen=True, kw_only=True):
    """One kind of node."""

    name: str
    memory_gb: float  # as sold
    visible_gib: float  # what the system reports
    bandwidth_gbs: float  # of memory
    efficiency: float  # share of that bandwidth which decoding reaches
    prefill_tflops: float  # dense compute that prefill reaches on one node, in TFLOP/s
    usable: float = 0.85  # share of the visible memory that an engine may take; the rest is the system's
    workspace_gib: float = 6.0  # graphs, collectives and activations, beside weights and cache
    power_w: float | None = None  # while it serves
    idle_w: float | None = None
    price_usd: float | None = None
    facts: Mapping[str, Fact] = {}

    @property
    def usable_gib(self) -> float:
        return self.visible_gib * self.usable


class Node(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One machine of a cluster, and how it is reached."""

    id: str
    address: str = ""  # of the management network: ssh, the gateway, the group's rendezvous
    fabric_address: str = ""  # of the fast network; empty = as `address`


class Wiring(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the nodes are joined by the fast network."""

    kind: Fabric
    link_gbps: float = 200.0
    order: tuple[
        str, ...
    ] = ()  # of a ring: node ids, each cabled to the next and the last to the first; empty = as listed
    collectives: Literal["nccl", "rocenante"] = "nccl"
    interfaces: tuple[str, ...] = ()  # network devices, such as enp1s0f1np1
    hcas: tuple[str, ...] = ()  # RDMA devices, such as rocep1s0f1
    management: str = ""  # the network device of `address`, such as enP7s7: where ranks on a ring meet


class Cluster(Struct, frozen=True, kw_only=True):
    """Nodes of one kind and their wiring."""

    name: str
    machine: Machine
    nodes: tuple[Node, ...]
    fabric: Wiring

    @property
    def ids(self) -> tuple[str, ...]:
        """The nodes in the order of their cables."""
        return self.fabric.order or tuple(node.id for node in self.nodes)


# --- the models ------------------------------------------------------------------------------------------


class Measured(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One benchmark of one model on so many nodes."""

    nodes: int
    concurrency: int
    source: str
    tokens_per_s: float | None = None  # decoded by all streams together
    prefill_tokens_per_s: float | None = None
    collectives: Literal["nccl", "rocenante"] = "nccl"
    drafts: int | None = None  # tokens drafted a step; None = as the model's
    note: str = ""
    fabric: str = ""
    engine: str = ""


class Model(Struct, frozen=True, kw_only=True):
    """One model in one quantisation. None where nobody says."""

    name: str
    served: str  # the id that an engine loads
    family: str
    weights_gb: float | None
    params_b: float | None
    active_b: float | None
    dense_gb: float | None  # weights that every token reads: attention, shared experts, dense layers, head
    layers: int | None
    heads: int | None
    hidden: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    attention: Attention = "gqa"
    cache_layers: int | None = None  # layers that keep a cache for each token; None = all
    cache_bytes: float = 2.0  # of one number in the cache
    latent_bytes: float | None = None  # mla: of one token in one layer
    index_bytes: float = 0.0  # mla: of one token in all indexers together
    state_mb: float = 0.0  # of one sequence, whatever its length: linear attention
    experts: int = 0  # of one layer; 0 = dense
    experts_per_token: int = 0
    expert_layers: int = 0
    expert_width: int = 0  # the intermediate size of one expert, or of the feed-forward where there are none
    expert_mb: float = 0.0  # of one expert in one layer
    drafts: int = 0  # tokens drafted a step
    acceptance: float = 0.75  # chance that a drafted token is taken
    context: int = 32768  # longest that the model is served with
    facts: Mapping[str, Fact] = {}
    measured: tuple[Measured, ...] = ()

    @property
    def kv_bytes_per_token(self) -> float:
        """Of one token in all layers. A latent cache is the same on every rank, a grouped one is shared out."""
        if self.attention == "mla":
            return (self.cache_layers or self.layers or 0) * (self.latent_bytes or 0.0) + self.index_bytes
        numbers = 2 * (self.cache_layers or self.layers or 0) * (self.kv_heads or 0) * (self.head_dim or 0)
        return numbers * self.cache_bytes

    @property
    def sparse(self) -> bool:
        """Decoding is bound by overhead more than by memory: estimates of such models are too high."""
        return self.experts > 0 and (self.active_b or 0.0) < 10.0


# --- what is planned -------------------------------------------------------------------------------------


class Parallel(Struct, frozen=True, kw_only=True, order=True):
    """How one copy of a model is spread: tensor slices, pipeline stages, experts whole on ranks or sliced as well."""

    tensor: int = 1
    pipeline: int = 1
    expert: bool = False

    @property
    def nodes(self) -> int:
        return self.tensor * self.pipeline

    def __str__(self) -> str:
        told = f"TP{self.tensor}" + (f" x PP{self.pipeline}" if self.pipeline > 1 else "")
        return told + (" with EP" if self.expert else "")


class Replica(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One copy of a group's model: a deployment of the gateway, and the nodes it occupies, the first of them leads."""

    name: str
    nodes: tuple[str, ...]
    port: int = 8000
    shared: bool = False  # its nodes serve another group as well


class Group(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Copies of one model, spread alike."""

    name: str  # large, small, classifier
    model: str  # name in the catalogue
    served: str  # the id that an engine loads
    replicas: tuple[Replica, ...]
    tensor: int = 1
    pipeline: int = 1
    expert: bool = False
    context: int = 32768
    sequences: int = 16  # at once, of one replica
    memory_share: float = 0.85  # of the visible memory that one replica may take
    drafts: int = 0
    kv_tokens: int = 0  # of one replica
    per_node_gib: float = 0.0
    tokens_per_s: Range | None = None  # one stream
    aggregate_tokens_per_s: Range | None = None  # all replicas full

    @property
    def parallel(self) -> Parallel:
        return Parallel(tensor=self.tensor, pipeline=self.pipeline, expert=self.expert)


class Layout(Struct, frozen=True, kw_only=True):
    """One way to part a cluster into groups, and what it comes to."""

    name: str
    groups: tuple[Group, ...]
    why: tuple[str, ...]  # in words
    single_stream: float  # tokens/s of one stream of the large group
    aggregate: float  # tokens/s of all generating groups, full
    kv_tokens: int  # of all groups
    blast_radius: float  # share of the aggregate that the worst single node takes down with it
    pareto: bool = False


class Refused(Struct, frozen=True, kw_only=True):
    """A way that cannot be, and why."""

    layout: str
    why: str


class Plan(Struct, frozen=True, kw_only=True):
    """A layout chosen for a cluster: all that launch files and the gateway's own configuration are made of."""

    name: str
    cluster: Cluster
    groups: tuple[Group, ...]
    engine: Engine = "vllm"
    why: tuple[str, ...] = ()
