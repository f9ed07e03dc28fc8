"""One experiment on one cluster: the same requests to a large group only, a small one only, at random and routed, on
the same nodes; what each comes to, and how much load each bears within an objective.

Takes a `Scenario` with everything in it; reading one from files belongs to `reader`, drawing it to the evals.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from router.cluster import estimate, partition, traffic
from router.cluster.simulate import (
    Floats,
    Judge,
    Pool,
    Rates,
    Recorded,
    Routed,
    Served,
    Workload,
    by_chance,
    everything,
    routed,
    serve,
)
from router.cluster.traffic import Arrivals
from router.cluster.values import Cluster, Group, Impossible, Layout, Model, Range
from router.config import Band, Policy, Route, ScoreRule
from router.policy_files.onto import suggestion

ARMS: Final = ("large_only", "small_only", "random", "routed")
DRAWS = 1000  # of the bootstrap over prompts
STREAMS: Final = 16  # at once of one copy, unless said otherwise
KEPT = 0.9  # of the requests have to meet the objective for a load to count as borne
PROBE: Final = 6_000  # requests of one look at a load
_LOOKS = 12
_LEAST = 0.01  # requests a second; less is none

Which = Literal["low", "mid", "high"]


class Objective(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a request has to keep to count as served well."""

    ttft_s: float
    tpot_s: float


class Routing(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the cut on the score stands: at a threshold, or where a share of the recorded prompts lies above it."""

    threshold: float | None = None
    large_share: float | None = None


class Reading(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the classifier is asked."""

    deadline_s: float = 0.15
    reads: int = 2048  # tokens of a prompt at the most


class Scenario(Struct, frozen=True, kw_only=True):
    """Everything that one experiment is made of."""

    name: str
    cluster: Cluster
    models: Mapping[str, Model]  # large, small and, where scores cost time, classifier
    layouts: Mapping[str, str]  # large_only, small_only, routed -> a layout's name; the best where none is named
    recorded: Recorded
    objective: Objective
    routing: Routing
    arrivals: Arrivals
    requests: int
    streams: Mapping[str, int] = {}  # at once of one copy, by group
    classifier: Reading = Reading()
    times: tuple[float, ...] = ()  # of records, where arrivals are as recorded
    loads: tuple[float, ...] = ()  # requests a second to look at besides
    shares: tuple[float, ...] = ()  # of the large group, to look at besides, each with the layout that suits it
    about: str = ""
    sources: tuple[str, ...] = ()


class Arm(Struct, frozen=True, kw_only=True):
    """What became of the requests one way. Rates per second, durations in seconds."""

    layout: str
    offered_rps: float
    throughput_tokens_per_s: float
    goodput_rps: float  # requests within the objective, a second of arrivals
    within: float  # share of the requests within the objective
    quality: float
    quality_ci: tuple[float, float]  # 95 %, over prompts
    ttft_p50_s: float
    ttft_p95_s: float
    tpot_p95_s: float
    large_share: float
    abstained_share: float
    wh_per_request: float | None
    busy: Mapping[str, float]  # share of the time that a group's copies work
    capacity_rps: float | None = None  # the load that is borne within the objective


class Outcome(Struct, frozen=True, kw_only=True):
    """All arms, and quality differences of routing to the others as (value, low, high)."""

    scenario: str
    seed: int
    requests: int
    per_s: float
    rates: Which
    threshold: float
    arms: Mapping[str, Arm]
    differences: Mapping[str, tuple[float, float, float]]


class Ready(Struct, frozen=True, kw_only=True):
    """A scenario with its pools built."""

    pools: Mapping[str, tuple[Pool, ...]]
    names: Mapping[str, str]
    judge: Judge | None
    policy: Policy
    threshold: float


# --- made ready ------------------------------------------------------------------------------------------


def ready(of: Scenario, which: Which = "mid") -> Ready:
    """Layouts looked up, rates taken from the low, middle or high end of their ranges. Raises Impossible."""
    lacking = [role for role in ("large", "small") if role not in of.models]
    if lacking:
        raise Impossible(f"{of.name}: the scenario names no {lacking[0]} model; add it under `models`")
    threshold = cut_at(of)
    together = [of.models[role] for role in partition.ROLES if role in of.models]
    mixed = _layout(of, "routed", together, threshold, which)
    large = _layout(of, "large_only", [of.models["large"]], None, which)
    small = _layout(of, "small_only", [of.models["small"]], None, which)
    pools = {
        "large_only": _pools(of, large, which),
        "small_only": _pools(of, _renamed(small), which),
        "routed": _pools(of, mixed, which),
    }
    judges = [group for group in mixed.groups if group.name == "classifier"]
    names = {"large_only": large.name, "small_only": small.name, "random": mixed.name, "routed": mixed.name}
    return Ready(
        pools=pools | {"random": pools["routed"]},
        names=names,
        judge=_judge(of, judges[0], which) if judges else None,
        policy=_policy(threshold),
        threshold=threshold,
    )


def _layout(of: Scenario, arm: str, models: Sequence[Model], threshold: float | None, which: Which) -> Layout:
    """The layout that is named for an arm; where none is, the one that promises the most."""
    if arm not in of.layouts:
        return candidates(of, arm, models, threshold, which)[0]
    named, wanted = {one.name: one for one in _layouts(of, arm, models)}, of.layouts[arm]
    if wanted not in named:
        raise Impossible(
            f"{of.name}: no layout '{wanted}' for {arm} on {of.cluster.name}{suggestion(wanted, list(named)[:20])}"
        )
    return named[wanted]


def _layouts(of: Scenario, arm: str, models: Sequence[Model]) -> tuple[Layout, ...]:
    found = partition.partition(of.cluster, models).layouts
    if not found:
        names = ", ".join(one.name for one in models)
        raise Impossible(f"{of.name}: {names} cannot share {of.cluster.name}; see `pointsman plan partition`")
    if arm == "small_only":
        return tuple(replace(one, name=one.name.replace("large-", "small-", 1)) for one in found)
    return found


def candidates(
    of: Scenario, arm: str, models: Sequence[Model], threshold: float | None, which: Which
) -> Sequence[Layout]:
    """The layouts of an arm, those first that promise the most requests a second."""
    found = _apart(_layouts(of, arm, models))
    return sorted(found, key=lambda one: (-_bears(of, one, threshold, which, arm), -one.single_stream))


def _apart(layouts: Sequence[Layout]) -> Sequence[Layout]:
    """Those in which no two answering groups share nodes, where there are any: what sharing costs is not measured."""
    own = [one for one in layouts if not any(g.replicas[0].shared for g in one.groups if g.name != "classifier")]
    return own or layouts


def _bears(of: Scenario, layout: Layout, threshold: float | None, which: Which, arm: str) -> float:
    """Requests a second until the first group is full, or its streams are slower than the objective allows."""
    held = of.recorded
    least = float("inf")
    for pool in _pools(of, _renamed(layout) if arm == "small_only" else layout, which):
        rates, name = pool.rates, pool.name
        mine = np.ones(len(held), dtype=np.bool_)
        if threshold is not None:
            mine = (np.nan_to_num(held.scores, nan=2.0) >= threshold) == (name == "large")
        if not mine.any():
            continue
        # About half of its time a stream is beside a prompt, and then has half the steps.
        kept = [i for i, rate in enumerate(rates.stream) if i and 0.75 * rate * of.objective.tpot_s >= 1]
        streams = max(kept, default=1)
        prompt, output = float(held.prompt[mine].mean()), float(held.output[name][mine].mean())
        seconds = prompt / rates.prefill + output / (rates.stream[streams] * streams)
        least = min(least, pool.copies / seconds / float(mine.mean()))
    return least


def _renamed(layout: Layout) -> Layout:
    """A layout of one model, as the small group's."""
    return replace(layout, groups=tuple(replace(group, name="small") for group in layout.groups))


def _pools(of: Scenario, layout: Layout, which: Which) -> tuple[Pool, ...]:
    return tuple(_pool(of, group, which) for group in layout.groups if group.name in ("large", "small"))


def _at(of: Range, which: Which) -> float:
    return {"low": of.low, "mid": of.mid, "high": of.high}[which]


def _pool(of: Scenario, group: Group, which: Which) -> Pool:
    name, model = group.name, of.models[group.name]
    alone = estimate.decode(model, of.cluster, group.parallel, 1)
    factor = group.tokens_per_s.mid / alone.mid if group.tokens_per_s is not None else 1.0
    streams: list[float] = []
    most = 0.0
    for batch in range(1, of.streams.get(name, STREAMS) + 1):
        most = max(most, _at(estimate.decode(model, of.cluster, group.parallel, batch), which) * factor)
        streams.append(most / batch)
    prefill = _at(estimate.prefill(model, of.cluster, group.parallel), which) * factor
    rates = Rates(stream=(streams[0], *streams), prefill=prefill, nodes=group.parallel.nodes)
    return Pool(name=name, copies=len(group.replicas), rates=rates)


def _judge(of: Scenario, group: Group, which: Which) -> Judge:
    model = of.models["classifier"]
    alone = estimate.decode(model, of.cluster, group.parallel, 1)
    factor = group.tokens_per_s.mid / alone.mid if group.tokens_per_s is not None else 1.0
    return Judge(
        copies=len(group.replicas),
        prefill=_at(estimate.prefill(model, of.cluster, group.parallel), which) * factor,
        overhead_s=(model.layers or 0) * estimate.LAYER_S,  # its answer is what prefill ends with
        deadline_s=of.classifier.deadline_s,
        reads=of.classifier.reads,
    )


def cut_at(of: Scenario) -> float:
    """The threshold in force. Raises Impossible."""
    if of.routing.threshold is not None:
        return of.routing.threshold
    if of.routing.large_share is None or not 0 <= of.routing.large_share <= 1:
        raise Impossible(f"{of.name}: `routing` needs a threshold, or a large_share in 0..1")
    known = of.recorded.scores[~np.isnan(of.recorded.scores)]
    if not len(known):
        raise Impossible(f"{of.name}: its trace holds no scores")
    return float(np.quantile(known, 1 - of.routing.large_share))


def _policy(threshold: float) -> Policy:
    """One cut on the score; an abstention goes to the large group."""
    bands = (Band(group="small", below=threshold), Band(group="large"))
    route = Route(name="difficulty", score=ScoreRule(scorer="difficulty", bands=bands))
    return Policy(name="simulated", models=("auto",), default="large", routes=(route,))


# --- run -------------------------------------------------------------------------------------------------


def run(
    of: Scenario,
    seed: int,
    *,
    per_s: float | None = None,
    requests: int | None = None,
    which: Which = "mid",
    capacity: bool = False,
) -> Outcome:
    """All four arms over the same requests. Raises Impossible."""
    made = ready(of, which)
    arrivals = of.arrivals if per_s is None else replace(of.arrivals, per_s=per_s)
    work = traffic.drawn(arrivals, requests or of.requests, len(of.recorded), seed, of.times)
    sent = dict(arms_of(of, made, work, ARMS))
    n = len(of.recorded)
    resampled = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=DRAWS).astype(np.float64)
    means = {arm: qualities(of, work, served, resampled) for arm, served in sent.items()}
    arms: dict[str, Arm] = {}
    for arm, served in sent.items():
        one = _told(of, made, arm, work, served, means[arm])
        arms[arm] = replace(one, capacity_rps=bearable(of, made, arm, seed)) if capacity else one
    return Outcome(
        scenario=of.name,
        seed=seed,
        requests=len(work),
        per_s=arrivals.per_s,
        rates=which,
        threshold=made.threshold,
        arms=arms,
        differences={arm: _difference(means["routed"], means[arm]) for arm in ARMS if arm != "routed"},
    )


def arms_of(of: Scenario, made: Ready, work: Workload, arms: Iterable[str]) -> Iterable[tuple[str, Served]]:
    share: float | None = None
    for arm in sorted(arms, key=lambda one: one != "routed"):  # chance has the share that routing had
        if arm == "routed":
            to = routed(work, of.recorded, made.policy, made.judge)
            share = float(to.groups.mean())
        elif arm == "random":
            share = share_of(of, made) if share is None else share
            to = by_chance(work, share)
        else:
            to = everything(work, arm == "large_only")
        yield arm, serve(work, of.recorded, to, made.pools[arm])


def share_of(of: Scenario, made: Ready) -> float:
    """Of the prompts that a classifier which is never late sends to the large group."""
    n = len(of.recorded)
    zeros = np.zeros(n)
    to: Routed = routed(Workload(times=zeros, rows=np.arange(n), draws=zeros), of.recorded, made.policy, None)
    return float(to.groups.mean())


def _well(of: Scenario, served: Served) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return (served.ttft <= of.objective.ttft_s) & (served.tpot <= of.objective.tpot_s)


def bearable(of: Scenario, made: Ready, arm: str, seed: int, requests: int = PROBE) -> float:
    """The most requests a second at which enough of them keep to the objective; 0 where none is few enough."""

    def borne(per_s: float) -> bool:
        work = traffic.drawn(replace(of.arrivals, per_s=per_s), requests, len(of.recorded), seed, of.times)
        served = next(iter(arms_of(of, made, work, (arm,))))[1]
        return float(_well(of, served).mean()) >= KEPT

    low = high = of.arrivals.per_s
    if borne(high):
        while borne(high := 2 * high):
            low = high
    else:
        while not borne(low := low / 2):
            high = low
            if low < _LEAST:
                return 0.0
    for _ in range(_LOOKS):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if borne(middle) else (low, middle)
        if high / low < 1.02:
            break
    return low


# --- told ------------------------------------------------------------------------------------------------


def qualities(of: Scenario, work: Workload, served: Served, resampled: Floats) -> Floats:
    """The mean quality, and of each resample of the prompts."""
    n = len(of.recorded)
    each = np.where(
        served.groups == 1, of.recorded.quality["large"][work.rows], of.recorded.quality["small"][work.rows]
    )
    sums = np.bincount(work.rows, weights=each, minlength=n)
    counts = np.bincount(work.rows, minlength=n).astype(np.float64)
    weights = np.vstack([np.ones(n), resampled])
    return (weights @ sums) / np.maximum(weights @ counts, 1e-12)


def _difference(mine: Floats, other: Floats) -> tuple[float, float, float]:
    gap = mine - other
    low, high = np.quantile(gap[1:], (0.025, 0.975))
    return float(gap[0]), float(low), float(high)


def _told(of: Scenario, made: Ready, arm: str, work: Workload, served: Served, means: Floats) -> Arm:
    outputs = np.where(
        served.groups == 1, of.recorded.output["large"][work.rows], of.recorded.output["small"][work.rows]
    )
    span, end = float(work.times[-1]), float(served.done.max())
    good = _well(of, served)
    low, high = np.quantile(means[1:], (0.025, 0.975))
    busy = {pool.name: served.busy_s[pool.name] / (pool.copies * end) for pool in made.pools[arm]}
    return Arm(
        layout=made.names[arm],
        offered_rps=len(work) / span,
        throughput_tokens_per_s=float(outputs.sum()) / end,
        goodput_rps=float(good.sum()) / span,
        within=float(good.mean()),
        quality=float(means[0]),
        quality_ci=(float(low), float(high)),
        ttft_p50_s=float(np.quantile(served.ttft, 0.5)),
        ttft_p95_s=float(np.quantile(served.ttft, 0.95)),
        tpot_p95_s=float(np.quantile(served.tpot, 0.95)),
        large_share=float(served.groups.mean()),
        abstained_share=served.abstained / len(work),
        wh_per_request=_energy(of, made, arm, served, end, len(work)),
        busy=busy,
    )


def _energy(of: Scenario, made: Ready, arm: str, served: Served, end: float, requests: int) -> float | None:
    machine = of.cluster.machine
    if machine.power_w is None or machine.idle_w is None:
        return None
    working = sum(served.busy_s[pool.name] * pool.rates.nodes for pool in made.pools[arm])
    joules = machine.idle_w * end * len(of.cluster.nodes) + (machine.power_w - machine.idle_w) * working
    return joules / 3600 / requests
