"""How fast a group would be: decode by batch, prefill, time to the first token, always as a range.

One step reads the weights that its tokens need from memory, joins the ranks' parts in two collectives a layer, pays a
fixed time a layer, and drafts; what a draft is worth is its acceptance. That is a roofline, and it is wrong by a third
and more: a measured row of the catalogue is taken as it stands, and near ones scale the rest. How wrong stands in
docs/cluster.md, row by row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from router.cluster.values import Cluster, Impossible, Machine, Measured, Model, Parallel, Range

LAYER_S = 0.12e-3  # of launches a layer, whatever the batch
DRAFT_S = 3e-3  # of drafting a step
# One all-reduce of a decode step, by ranks. Four are measured (48 KB: 59 us with NCCL, 23 us one-shot over RDMA); two
# and eight are read off its shape.
ALL_REDUCE_S: Final[Mapping[str, Mapping[int, float]]] = {
    "nccl": {2: 45e-6, 4: 59e-6, 8: 80e-6},
    "rocenante": {2: 15e-6, 4: 23e-6, 8: 45e-6},
}
# Ranks spend a growing part of prefill on each other: 2,419 tok/s on two nodes became 3,644 on four, not 4,838.
PREFILL_LOSS = 0.5
CONTEXT = 2048  # tokens that each stream is taken to have read

MEASURED = (0.9, 1.1)  # of a measured value: what runs on one cluster differ by
NEAR = (0.8, 1.25)  # of a value scaled by measurements at the same size
FAR = (0.7, 1.35)  # of one scaled by measurements at another size
GUESSED = (0.6, 1.5)  # of the roofline alone; holds nine of ten rows of the published table
GUESSED_SPARSE = (0.5, 1.2)  # very sparse models are bound by overhead that the roofline does not see
PREFILL_GUESSED = (0.5, 1.6)


def hit(model: Model, rows: float) -> float:
    """Experts of one layer that so many tokens reach together."""
    if not model.experts:
        return 0.0
    return model.experts * (1.0 - (1.0 - model.experts_per_token / model.experts) ** rows)


def taken(drafts: int, acceptance: float) -> float:
    """Tokens that a step yields: the first, and each draft for as long as all before it were taken."""
    return sum(acceptance**i for i in range(drafts + 1))


def step_s(
    model: Model, machine: Machine, parallel: Parallel, batch: float, *, collectives: str = "nccl", drafts: int | None
) -> float:
    """Seconds from one token of a stream to its next, before drafts are counted, with `batch` streams at once.

    A pipeline's stages each serve a part of the batch at a time, so one stream waits for all of them.
    """
    k = model.drafts if drafts is None else drafts
    if model.layers is None or model.dense_gb is None:
        lacking = "layers" if model.layers is None else "dense_gb"
        raise Impossible(f"{model.name}: {lacking} is unknown, so its rate cannot be estimated; measure it instead")
    part = max(1.0, batch / parallel.pipeline)
    gb = model.dense_gb + model.expert_layers * hit(model, part * (k + 1)) * model.expert_mb / 1e3
    gb += part * CONTEXT * model.kv_bytes_per_token / 1e9
    seconds = gb / parallel.tensor / (machine.bandwidth_gbs * machine.efficiency)
    if parallel.tensor > 1:
        seconds += 2 * model.layers * all_reduce_s(parallel.tensor, collectives)
    seconds += model.layers * LAYER_S
    return seconds + (DRAFT_S if k else 0.0)


def all_reduce_s(ranks: int, collectives: str) -> float:
    """Between the sizes that are known, and beyond them, in proportion to the logarithm."""
    known = ALL_REDUCE_S[collectives]
    if ranks in known:
        return known[ranks]
    sizes = sorted(known)
    low, high = (sizes[0], sizes[1]) if ranks < sizes[1] else (sizes[-2], sizes[-1])
    slope = (known[high] - known[low]) / (math.log2(high) - math.log2(low))
    return known[low] + slope * (math.log2(ranks) - math.log2(low))


def roofline(
    model: Model,
    machine: Machine,
    parallel: Parallel,
    batch: float = 1,
    *,
    collectives: str = "nccl",
    drafts: int | None = None,
) -> float:
    """Tokens per second of all streams together, by the formula alone."""
    k = model.drafts if drafts is None else drafts
    step = step_s(model, machine, parallel, batch, collectives=collectives, drafts=drafts)
    return batch * taken(k, model.acceptance) / step


def decode(model: Model, cluster: Cluster, parallel: Parallel, batch: float = 1) -> Range:
    """Tokens per second of all streams of one copy together."""
    rows = [row for row in model.measured if row.tokens_per_s is not None]
    if parallel.pipeline > 1:
        rows = []  # every row of the catalogue is of tensor slices
    exact = [row for row in rows if row.nodes == parallel.nodes and row.concurrency == batch]
    if exact:
        at = _preferred(exact, cluster)
        return _range(at.tokens_per_s or 0.0, MEASURED, f"measured: {at.source}")
    raw = roofline(model, cluster.machine, parallel, batch, collectives=cluster.fabric.collectives)
    if not rows:
        return _range(raw, GUESSED_SPARSE if model.sparse else GUESSED, "estimated: roofline, nothing was measured")
    sizes = {row.nodes for row in rows}
    size = min(sizes, key=lambda n: (abs(math.log2(n / parallel.nodes)), n))
    factor = _scale(model, cluster, [row for row in rows if row.nodes == size], batch)
    near = size == parallel.nodes
    told = f"estimated: roofline x {factor:.2f}, as measured on {size} node{'s' if size > 1 else ''}"
    return _range(raw * factor, NEAR if near else FAR, told)


def _scale(model: Model, cluster: Cluster, rows: Iterable[Measured], batch: float) -> float:
    """Measured by formula, between the measured batches in proportion to their logarithm, and level outside."""
    known: dict[int, float] = {}
    for size in sorted({row.concurrency for row in rows}):
        row = _preferred([one for one in rows if one.concurrency == size], cluster)
        parallel = Parallel(tensor=row.nodes)
        formula = roofline(model, cluster.machine, parallel, size, collectives=row.collectives, drafts=row.drafts)
        known[size] = (row.tokens_per_s or 0.0) / formula
    below = max((size for size in known if size <= batch), default=min(known))
    above = min((size for size in known if size >= batch), default=max(known))
    if below == above or not below < batch < above:
        return known[below if below <= batch else above]
    share = math.log(batch / below) / math.log(above / below)
    return known[below] * (1 - share) + known[above] * share


def _preferred(rows: list[Measured], cluster: Cluster) -> Measured:
    """Of several rows of one size and batch: one of the cluster's own wiring, else the last written."""
    own = [row for row in rows if row.fabric == cluster.fabric.kind]
    return (own or rows)[-1]


def prefill(model: Model, cluster: Cluster, parallel: Parallel) -> Range:
    """Prompt tokens per second of one copy."""
    rows = [row for row in model.measured if row.prefill_tokens_per_s is not None]
    exact = [row for row in rows if row.nodes == parallel.nodes and parallel.pipeline == 1]
    if exact:
        at = _preferred(exact, cluster)
        return _range(at.prefill_tokens_per_s or 0.0, MEASURED, f"measured: {at.source}")
    if rows:
        at = min(rows, key=lambda row: abs(math.log2(row.nodes / parallel.nodes)))
        factor = _ranks(parallel.nodes) / _ranks(at.nodes)
        told = f"estimated: as measured on {at.nodes} nodes, scaled"
        return _range((at.prefill_tokens_per_s or 0.0) * factor, FAR, told)
    if model.active_b is None:
        raise Impossible(f"{model.name}: active_b is unknown, so its prefill cannot be estimated; measure it instead")
    rate = cluster.machine.prefill_tflops * 1e12 * _ranks(parallel.nodes) / (2e9 * model.active_b)
    return _range(rate, PREFILL_GUESSED, "estimated: compute alone, nothing was measured")


def ttft_s(model: Model, cluster: Cluster, parallel: Parallel, prompt: int) -> Range:
    """Seconds to the first token of a prompt that nothing stands before."""
    rate, one = prefill(model, cluster, parallel), decode(model, cluster, parallel)
    source = rate.source
    return Range(
        low=prompt / rate.high + 1 / one.high,
        mid=prompt / rate.mid + 1 / one.mid,
        high=prompt / rate.low + 1 / one.low,
        source=source,
    )


def _ranks(n: int) -> float:
    """What so many nodes are worth in prefill, in nodes."""
    return n / (1 + PREFILL_LOSS * math.log2(n))


def _range(mid: float, factors: tuple[float, float], source: str) -> Range:
    return Range(low=mid * factors[0], mid=mid, high=mid * factors[1], source=source)


def with_rows(model: Model, rows: Iterable[Measured]) -> Model:
    """The model with measurements of one's own, in place of the catalogue's of groups of the same size."""
    own = tuple(rows)
    sizes = {row.nodes for row in own}
    return replace(model, measured=(*(row for row in model.measured if row.nodes not in sizes), *own))
