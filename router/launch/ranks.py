"""The processes of a plan: one engine process on each node of each replica, its command line and its environment.
Each engine's own words stand in one function of `ENGINES`. How processes are started belongs to the targets.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from router.cluster.values import Engine, Group, Impossible, Model, Plan, Replica
from router.launch import network

IMAGES: Final[Mapping[Engine, str]] = {
    "vllm": "vllm/vllm-openai:v0.18.0",
    "sglang": "lmsysorg/sglang:v0.5.12",
    "trtllm": "nvcr.io/nvidia/tensorrt-llm/release:1.2.0",
}
RENDEZVOUS = 21500  # above a replica's own port: 29500 for 8000

Option = tuple[str, ...]  # a flag and its values


class Place(Struct, frozen=True, kw_only=True):
    """Where one process stands in its replica. Number and address are text: a launcher may fill them in."""

    size: int
    number: str
    head: str
    leads: bool


class Rank(Struct, frozen=True, kw_only=True):
    """One engine process."""

    name: str  # large-a-0
    group: Group
    replica: Replica
    node: str
    number: int
    command: tuple[Option, ...]
    environment: Mapping[str, str]
    files: Mapping[str, str] = {}  # what the command reads beside it, by name

    @property
    def argv(self) -> list[str]:
        return [word for option in self.command for word in option]

    @property
    def told(self) -> str:
        """The rank in words."""
        return f"{self.replica.name}: rank {self.number} of {len(self.replica.nodes)}, on {self.node}"


def ranks(plan: Plan, models: Mapping[str, Model]) -> list[Rank]:
    """Every process that somebody has to start. Raises Impossible."""
    found: list[Rank] = []
    for group in plan.groups:
        for replica in group.replicas:
            found += _launched(plan, group, replica, models.get(group.model))
    return found


def _launched(plan: Plan, group: Group, replica: Replica, model: Model | None) -> Iterator[Rank]:
    size = len(replica.nodes)
    common = network.environment(plan.cluster, replica, plan.engine)
    for number, node in enumerate(replica.nodes):
        head = network.meeting(plan.cluster, replica.nodes[0])
        place = Place(size=size, number=str(number), head=head, leads=number == 0)
        own = {"VLLM_HOST_IP": network.meeting(plan.cluster, node)} if plan.engine == "vllm" and size > 1 else {}
        rank = Rank(
            name=f"{replica.name}-{number}",
            group=group,
            replica=replica,
            node=node,
            number=number,
            command=tuple(ENGINES[plan.engine](group, replica, place, model)),
            environment=common | own,
        )
        if plan.engine != "trtllm":
            yield rank
        elif number == 0:  # it starts the others itself
            yield _over_mpi(plan, rank)


def _over_mpi(plan: Plan, rank: Rank) -> Rank:
    """The leader of a TensorRT-LLM group, which starts a process on each node over ssh."""
    nodes = rank.replica.nodes
    if len(nodes) == 1:
        return rank
    hosts = "".join(f"{network.address(plan.cluster, one)} slots=1\n" for one in nodes)
    name = f"{rank.name}.hosts"
    start: list[Option] = [
        ("mpirun",),
        ("--hostfile", f"/etc/pointsman/engines/{name}"),
        ("-np", str(len(nodes))),
        *(("-x", key) for key in rank.environment),
        ("trtllm-llmapi-launch",),
    ]
    return Rank(
        name=rank.name,
        group=rank.group,
        replica=rank.replica,
        node=rank.node,
        number=0,
        command=(*start, *rank.command),
        environment=rank.environment,
        files={name: hosts},
    )


# --- the engines -----------------------------------------------------------------------------------------


def cache_type(model: Model | None) -> str | None:
    """The number format that the plan took the cache to have, where it is not the weights' own."""
    if model is None:
        return None
    eight = model.cache_bytes == 1 if model.attention == "gqa" else (model.latent_bytes or 0) < 1000
    return "fp8" if eight else None


def _vllm(group: Group, replica: Replica, place: Place, model: Model | None) -> Iterator[Option]:
    yield "vllm", "serve", group.served
    yield "--tensor-parallel-size", str(group.tensor)
    if group.pipeline > 1:
        yield "--pipeline-parallel-size", str(group.pipeline)
    if group.expert:
        yield ("--enable-expert-parallel",)
    yield "--max-model-len", str(group.context)
    yield "--max-num-seqs", str(group.sequences)
    yield "--gpu-memory-utilization", f"{group.memory_share:g}"
    if (cache := cache_type(model)) is not None:
        yield "--kv-cache-dtype", cache
    yield ("--enable-prefix-caching",)
    if group.drafts:
        yield "--speculative-config", json.dumps(drafting(group), separators=(",", ":"))
    if place.size > 1:
        yield "--nnodes", str(place.size)
        yield "--node-rank", place.number
        yield "--master-addr", place.head
        yield "--master-port", str(replica.port + RENDEZVOUS)
    if place.leads:
        yield "--host", "0.0.0.0"  # noqa: S104  the gateway is on another node
        yield "--port", str(replica.port)
    else:
        yield ("--headless",)


def drafting(group: Group) -> dict[str, str | int]:
    return {"method": "mtp", "num_speculative_tokens": group.drafts}


def _sglang(group: Group, replica: Replica, place: Place, model: Model | None) -> Iterator[Option]:
    yield "python3", "-m", "sglang.launch_server"
    yield "--model-path", group.served
    yield "--tp-size", str(group.tensor)
    if group.pipeline > 1:
        yield "--pp-size", str(group.pipeline)
    if group.expert:
        yield "--ep-size", str(group.tensor)
    yield "--context-length", str(group.context)
    yield "--max-running-requests", str(group.sequences)
    yield "--mem-fraction-static", f"{group.memory_share:g}"
    if cache_type(model) is not None:
        yield "--kv-cache-dtype", "fp8_e4m3"
    if group.drafts:
        yield "--speculative-algorithm", "NEXTN"
        yield "--speculative-num-steps", str(group.drafts)
        yield "--speculative-eagle-topk", "1"
        yield "--speculative-num-draft-tokens", str(group.drafts + 1)
    yield ("--enable-metrics",)
    if place.size > 1:
        yield "--nnodes", str(place.size)
        yield "--node-rank", place.number
        yield "--dist-init-addr", f"{place.head}:{replica.port + RENDEZVOUS}"
    yield "--host", "0.0.0.0"  # noqa: S104
    yield "--port", str(replica.port)


def _trtllm(group: Group, replica: Replica, place: Place, model: Model | None) -> Iterator[Option]:
    del place, model  # its launcher tells each process where it stands; the cache's format is in the checkpoint
    yield "trtllm-serve", group.served
    yield "--tp_size", str(group.tensor)
    if group.pipeline > 1:
        yield "--pp_size", str(group.pipeline)
    if group.expert:
        yield "--ep_size", str(group.tensor)
    yield "--max_seq_len", str(group.context)
    yield "--max_batch_size", str(group.sequences)
    yield "--kv_cache_free_gpu_memory_fraction", f"{group.memory_share:g}"
    yield "--host", "0.0.0.0"  # noqa: S104
    yield "--port", str(replica.port)


ENGINES: Final[Mapping[Engine, Callable[[Group, Replica, Place, Model | None], Iterator[Option]]]] = {
    "vllm": _vllm,
    "sglang": _sglang,
    "trtllm": _trtllm,
}


def in_pods(plan: Plan) -> None:
    """Raises Impossible where an engine cannot start its ranks in containers of their own."""
    spread = any(len(replica.nodes) > 1 for group in plan.groups for replica in group.replicas)
    if plan.engine == "trtllm" and spread:
        raise Impossible(
            "TensorRT-LLM starts the ranks of a group over ssh, which containers do not have;"
            " use --target systemd or ansible, or `engine: vllm` or `sglang` in the plan"
        )
