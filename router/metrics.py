"""The gateway's numbers: own accumulators on the hot path, rendered by prometheus_client when scraped.

Observations through prometheus_client take a lock each. Here a request costs the append of its record: records are
counted many at a time, when enough have come or somebody looks. Label
values come from the configuration and from closed sets only; anything else is "other", and what a request
does not have (no route because it was refused) is "none". Every metric is listed in `docs/operating.md`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from threading import Lock
from typing import Literal, get_args, get_type_hints

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from router import __version__, errors, record
from router.config import Config
from router.policy import ASKED, largest_edge
from router.record import OTHER
from router.tallies import OVERHEAD_S, Group, Histogram, Savings, Scorer, taken
from router.types import Abstain, Dialect, Outcome, Record, Report, Score
from router.wire import fields

NONE = "none"

CountName = Literal[
    "records_written",
    "records_dropped",
    "log_lines_dropped",
    "store_errors",
    "retries_refused",
    "unauthorized",
    "spans_dropped",
]
Verdict = Literal["small_worse", "same", "small_better", "invalid"]

_COUNTS: Mapping[CountName, str] = {
    "records_written": "Records kept in the records database",
    "records_dropped": "Records and feedback that the records database did not keep",
    "log_lines_dropped": "Request lines that the log did not keep",
    "retries_refused": "Failures that could have been tried again, where the group had no retries left",
    "spans_dropped": "Requests whose spans the receiver of traces did not take",
    "store_errors": "Calls to the session store that failed",
    "unauthorized": "Requests turned away for want of a key that is known and has not expired",
}


def _codes(of: type[errors.PointsmanError]) -> Iterator[str]:
    yield of.code
    for below in of.__subclasses__():
        yield from _codes(below)


# Closed sets of label values.
_DIALECTS = frozenset(get_args(Dialect))
_OUTCOMES = frozenset(get_args(Outcome))
_REASONS = frozenset(get_args(get_type_hints(Abstain)["reason"]))
_FIELDS = frozenset(row.field(dialect) for row in fields.ROWS for dialect in fields.DIALECTS) - {""} | {
    "thinking",  # and two other parts of messages
    "image_url",
    "tool_result",
}
_CODES = frozenset(_codes(errors.PointsmanError)) | {"ok"}


class _Names:
    """The label values that one configuration allows."""

    def __init__(self, config: Config) -> None:
        self.policies = frozenset(config.policies) | {ASKED, NONE}
        routes = {route.name for policy in config.policies.values() for route in policy.routes}
        self.routes = frozenset(routes) | {"default", "pin", ASKED, NONE}
        self.groups = frozenset(config.groups) | {NONE}
        self.deployments = frozenset(config.deployments)
        named = {r.score.scorer for p in config.policies.values() for r in p.routes if r.score is not None}
        self.scorers = frozenset(config.scorers) | named


def _known(value: str, names: frozenset[str]) -> str:
    return value if value in names else OTHER


MANY = 256  # records that are counted at once: each pays a small part of what numpy asks for a call


class Metrics:
    """Written by one thread (the event loop); `render` may be called from another."""

    def __init__(self, config: Config) -> None:
        self._fresh: list[Record] = []  # not counted yet
        self._counting = Lock()
        self._requests: dict[tuple[str, str, str, str, str], int] = {}
        self._attempts: dict[tuple[str, str], int] = {}
        self._dropped: dict[tuple[str, str], int] = {}
        self._limited: dict[tuple[str], int] = {}
        self._verified: dict[tuple[str, str, str], int] = {}
        self._groups: dict[str, Group] = {}
        self._savings: dict[str, Savings] = {}
        self._scorers: dict[str, Scorer] = {}
        self._abstains: dict[tuple[str, str], int] = {}
        self._overhead = Histogram(OVERHEAD_S)
        self._in_flight: dict[str, int] = {}
        self._up: dict[str, bool] = {}
        self._queue_depth: dict[str, float] = {}
        self._kv_usage: dict[str, float] = {}
        self._other_models: dict[str, int] = {}
        self._waiting: dict[str, int] = {}
        self._thresholds: dict[tuple[str, str], float] = {}
        self._quality: dict[tuple[str, str], tuple[float, float, float]] = {}
        self._samples: dict[tuple[str, str], int] = {}
        self._unjudged: dict[tuple[str, str], int] = {}
        self._judging_cost: dict[tuple[str], float] = {}
        self._alarms: dict[tuple[str, str], float] = {}
        self._canaries: dict[tuple[str, str], float] = {}
        self._canary_differences: dict[tuple[str, str], tuple[float, float, float]] = {}
        self._counts: dict[CountName, Callable[[], int]] = {}
        self._generation = 0
        self._reload_ok = True
        self._use(config)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Families(self._families))
        ProcessCollector(registry=self._registry)

    # --- written by the service --------------------------------------------------------------------------

    def observe(self, of: Record) -> None:
        """Counts one request from its record alone."""
        fresh = self._fresh
        fresh.append(of)
        if len(fresh) >= MANY:
            self._count()

    def score(self, scorer: str, seconds: float | None, result: Score | Abstain) -> None:
        """One question to a scorer; `seconds` is None when it was not asked at all (an open breaker)."""
        cell = self._scorers.get(scorer)
        if cell is None:
            scorer = _known(scorer, self._names.scorers)
            cell = self._scorers.setdefault(scorer, Scorer())
        if seconds is not None:
            cell.took.append(seconds)
        if isinstance(result, Score):
            cell.scores.append(result.value)
        else:
            pair = (scorer, _known(result.reason, _REASONS))
            self._abstains[pair] = self._abstains.get(pair, 0) + 1

    def dropped(self, dialect: Dialect, names: Iterable[str]) -> None:
        """Parts of a translated request that the upstream could not be told; names of the client's own are "other"."""
        for field in names:
            pair = (dialect, _known(field.partition(".")[0], _FIELDS))
            self._dropped[pair] = self._dropped.get(pair, 0) + 1

    def limited(self, limit: str) -> None:
        """A request over a limit of its key or tenant; `limit` is from a closed set."""
        self._limited[(limit,)] = self._limited.get((limit,), 0) + 1

    def in_flight(self, deployment: str, count: int) -> None:
        """Requests at the deployment now; set before each scrape from what health counts."""
        self._in_flight[_known(deployment, self._names.deployments)] = count

    def deployment_up(self, deployment: str, up: bool) -> None:
        self._up[_known(deployment, self._names.deployments)] = up

    def reports(self, reports: Mapping[str, Report]) -> None:
        """What deployments say of their load; those that say nothing have no samples."""
        known = {n: report for n, report in reports.items() if n in self._names.deployments}
        self._queue_depth = {n: r.waiting for n, r in known.items() if r.waiting is not None}
        self._kv_usage = {n: r.kv for n, r in known.items() if r.kv is not None}

    def waiting(self, counts: Mapping[str, int]) -> None:
        """Requests that wait for a place in a group; set before each scrape."""
        self._waiting = dict(counts)

    def other_models(self, counts: Mapping[str, int]) -> None:
        """Answers of another model than the one asked for, since the start."""
        self._other_models = dict(counts)

    def threshold(self, policy: str, route: str, value: float) -> None:
        """The cut in force, when it has moved from the one in the file."""
        self._thresholds[_known(policy, self._names.policies), _known(route, self._names.routes)] = value

    def no_canaries(self) -> None:
        """Forget every canary; those that a configuration has are told anew."""
        self._canaries, self._canary_differences = {}, {}

    def canary(self, policy: str, canary: str, share: float) -> None:
        """Share of the policy's conversations that its canary decides for."""
        names = self._names.policies
        self._canaries[_known(policy, names), _known(canary, names)] = share

    def canary_difference(self, policy: str, measure: str, worse: float, low: float, high: float) -> None:
        """How much worse the canary is by one measure of a fixed list, with its interval."""
        self._canary_differences[_known(policy, self._names.policies), measure] = (worse, low, high)

    def quality(self, policy: str, route: str, difference: float, low: float, high: float) -> None:
        """Estimated quality of what was answered minus the large group's answers, with its interval."""
        key = (_known(policy, self._names.policies), _known(route, self._names.routes))
        self._quality[key] = (difference, low, high)

    def quality_sample(self, policy: str, verdict: Verdict) -> None:
        key = (_known(policy, self._names.policies), _known(verdict, frozenset(get_args(Verdict))))
        self._samples[key] = self._samples.get(key, 0) + 1

    def alarm(self, kind: str, of: str, up: bool | None) -> None:
        """Whether an alarm of drift is up; None where there is nothing any more that it is of."""
        names = self._names
        key = (kind, _known(of, names.policies | names.deployments | names.scorers))
        if up is None:
            self._alarms.pop(key, None)
        else:
            self._alarms[key] = float(up)

    def scorers(self) -> dict[str, tuple[list[int], list[int], int]]:
        """Since the start, by scorer: scores by tenth, answers by bucket of their time, abstentions."""
        self._count()
        lost = dict.fromkeys(self._scorers, 0)
        for (name, _), count in list(self._abstains.items()):
            lost[name] = lost.get(name, 0) + count
        return {
            name: (one.score.counts(), one.seconds.counts(), lost[name]) for name, one in list(self._scorers.items())
        }

    def quality_dropped(self, policy: str, reason: str) -> None:
        """An answer that was to be judged and was not."""
        key = (_known(policy, self._names.policies), reason)
        self._unjudged[key] = self._unjudged.get(key, 0) + 1

    def judging_cost(self, policy: str, dollars: float) -> None:
        """What asking the other group and the judge has cost; in no other sum."""
        key = (_known(policy, self._names.policies),)
        self._judging_cost[key] = self._judging_cost.get(key, 0.0) + dollars

    def config(self, generation: int, ok: bool, current: Config | None = None) -> None:
        """A load of the configuration: its result, and the new snapshot when it was taken.

        Counters of names that are gone stay, as counters do; their gauges go.
        """
        self._count()  # what was seen under the names of before
        self._generation = generation
        self._reload_ok = ok
        if current is not None:
            self._use(current)

    def count(self, name: CountName, read: Callable[[], int]) -> None:
        """A total that something else keeps; read at each scrape."""
        self._counts[name] = read

    # --- read --------------------------------------------------------------------------------------------

    def render(self) -> bytes:
        """The text exposition format, `text/plain; version=0.0.4`."""
        self._count()
        return generate_latest(self._registry)

    def requests(self) -> dict[tuple[str, str, str, str, str], int]:
        """Requests since the start by (policy, route, group, dialect, outcome)."""
        self._count()
        return dict(self._requests)

    def thresholds(self) -> dict[tuple[str, str], float]:
        """The cuts in force by policy and route."""
        return dict(self._thresholds)

    def dollars(self) -> tuple[float, float]:
        """Cost since the start, and what was saved against the dearest group."""
        self._count()
        cost = sum(cell.cost for cell in list(self._groups.values()))
        return cost, sum(cell.shown for cell in list(self._savings.values()))

    # --- inside ------------------------------------------------------------------------------------------

    def _count(self) -> None:
        """Count what is fresh. Its lists stay the same, since the event loop may append to them meanwhile."""
        with self._counting:
            alike: defaultdict[tuple[str, str, str, str, str], list[Record]] = defaultdict(list)
            for of in taken(self._fresh):
                route = NONE if of.decision is None else of.decision.route
                alike[of.policy or NONE, route, record.group(of) or NONE, of.dialect, of.outcome].append(of)
            for key, some in alike.items():
                self._count_alike(self._request_key(key), some)
            for scorer in list(self._scorers.values()):
                scorer.seconds.add(taken(scorer.took))
                scorer.score.add(taken(scorer.scores))

    def _count_alike(self, key: tuple[str, str, str, str, str], some: list[Record]) -> None:
        """Count records that have all labels of a request in common."""
        self._requests[key] = self._requests.get(key, 0) + len(some)
        attempts = Counter([(attempt.deployment, attempt.error) for of in some for attempt in of.attempts])
        for (deployment, error), count in attempts.items():
            pair = (_known(deployment, self._names.deployments), _known(error or "ok", _CODES))
            self._attempts[pair] = self._attempts.get(pair, 0) + count
        some = [of for of in some if of.decision is not None]
        if not some:
            return
        for of in [of for of in some if of.checked is not None]:
            judged = (key[0], key[1], (of.decision and of.decision.check) or "passed")
            self._verified[judged] = self._verified.get(judged, 0) + 1
        cell = self._groups.get(key[2])
        if cell is None:
            cell = self._groups[key[2]] = Group()
        timings = [of.timing for of in some]
        self._overhead.add([t.overhead_s for t in timings if t.overhead_s > 0.0])
        cell.request.add([t.total_s for t in timings])
        cell.ttft.add([t.ttft_s for t in timings if t.ttft_s is not None])
        cell.tpot.add([t.tpot_s for t in timings if t.tpot_s is not None])
        cell.input += sum([of.usage.input for of in some])
        cell.output += sum([of.usage.output for of in some])
        cell.cost += sum([of.cost for of in some if of.cost is not None])
        saved = [of.cost_large - of.cost for of in some if of.cost is not None and of.cost_large is not None]
        if saved:
            savings = self._savings.get(key[0])
            if savings is None:
                savings = self._savings[key[0]] = Savings()
            savings.add(saved)

    def _use(self, config: Config) -> None:
        self._names = _Names(config)
        for gauge in (self._in_flight, self._up, self._queue_depth, self._kv_usage):
            for name in [n for n in gauge if n not in self._names.deployments]:
                del gauge[name]
        self._thresholds = {
            (policy.name, route.name): below
            for policy in config.policies.values()
            for route in policy.routes
            if route.score is not None
            and (index := largest_edge(route.score)) is not None
            and (below := route.score.bands[index].below) is not None
        }
        self._quality = {key: value for key, value in self._quality.items() if key[0] in self._names.policies}

    def _request_key(self, key: tuple[str, str, str, str, str]) -> tuple[str, str, str, str, str]:
        policy, route, group, dialect, outcome = key
        names = self._names
        return (
            _known(policy, names.policies),
            _known(route, names.routes),
            _known(group, names.groups),
            _known(dialect, _DIALECTS),
            _known(outcome, _OUTCOMES),
        )

    def _families(self) -> Iterator[Metric]:
        yield _counter(
            "requests", "Requests answered", ("policy", "route", "group", "dialect", "outcome"), self._requests
        )
        yield _counter("attempts", "Calls to a deployment", ("deployment", "outcome"), self._attempts)
        yield _counter("verified", "First answers of cascades judged", ("policy", "route", "result"), self._verified)
        yield _counter("limited", "Requests over a limit of their key or tenant", ("limit",), self._limited)
        yield _counter("dropped_fields", "Request fields lost in translation", ("dialect", "field"), self._dropped)
        groups = list(self._groups.items())
        yield _histogram(
            "time_to_first_token_seconds", "Request to first content", "group", ((n, g.ttft) for n, g in groups)
        )
        yield _histogram(
            "time_per_output_token_seconds",
            "Seconds a token after the first",
            "group",
            ((n, g.tpot) for n, g in groups),
        )
        yield _histogram("request_seconds", "Request to last byte", "group", ((n, g.request) for n, g in groups))
        yield _counter("input_tokens", "Tokens read, cached ones too", ("group",), {(n,): g.input for n, g in groups})
        yield _counter("output_tokens", "Tokens written", ("group",), {(n,): g.output for n, g in groups})
        yield _counter("cost_dollars", "Cost at the given prices", ("group",), {(n,): g.cost for n, g in groups})
        saved = {(n,): s.shown for n, s in list(self._savings.items())}
        yield _counter("savings_dollars", "Cost at the dearest group minus cost", ("policy",), saved)
        yield _gauge("in_flight", "Requests at the deployment now", ("deployment",), _single(self._in_flight))
        yield _gauge("deployment_up", "1 when requests may go there", ("deployment",), _single(self._up))
        yield _gauge("queue_depth", "Requests waiting in the deployment", ("deployment",), _single(self._queue_depth))
        yield _gauge("kv_usage", "Share of the KV cache in use", ("deployment",), _single(self._kv_usage))
        yield _gauge("waiting", "Requests that wait for a place in the group", ("group",), _single(self._waiting))
        others = {(_known(n, self._names.deployments),): count for n, count in self._other_models.items()}
        yield _counter("other_model", "Answers of another model than the one asked", ("deployment",), others)
        scorers = list(self._scorers.items())
        yield _histogram("score", "Scores given", "scorer", ((n, s.score) for n, s in scorers))
        yield _histogram("score_seconds", "Time a score took", "scorer", ((n, s.seconds) for n, s in scorers))
        yield _counter("abstain", "Scores not given", ("scorer", "reason"), self._abstains)
        overhead = HistogramMetricFamily("pointsman_overhead_seconds", "Added by the gateway before the first byte")
        overhead.add_metric([], self._overhead.buckets(), self._overhead.total)
        yield overhead
        yield _gauge("threshold", "Score at which the largest group begins", ("policy", "route"), self._thresholds)
        yield _gauge("canary_share", "Conversations that a canary decides for", ("policy", "canary"), self._canaries)
        for place, suffix in enumerate(("", "_low", "_high")):
            worse = {key: value[place] for key, value in list(self._canary_differences.items())}
            yield _gauge(f"canary_difference{suffix}", "By how much a canary is worse", ("policy", "measure"), worse)
        for place, suffix in enumerate(("", "_low", "_high")):
            values = {key: value[place] for key, value in list(self._quality.items())}
            yield _gauge(
                f"quality_difference{suffix}", "Answers given minus the large group's", ("policy", "route"), values
            )
        yield _counter("quality_samples", "Answers compared", ("policy", "verdict"), self._samples)
        yield _gauge("alarm", "1 while something is not what it was", ("kind", "of"), self._alarms)
        yield _counter("quality_dropped", "Answers chosen and not compared", ("policy", "reason"), self._unjudged)
        yield _counter("judging_dollars", "Cost of comparing answers", ("policy",), self._judging_cost)
        yield _gauge("config_generation", "Configurations taken since the start", (), {(): self._generation})
        yield _gauge("config_reload_ok", "0 when the last change was refused", (), {(): self._reload_ok})
        for name, read in self._counts.items():
            yield _counter(name, _COUNTS[name], (), {(): read()})
        yield _gauge("build_info", "The version that runs", ("version",), {(__version__,): 1})


class _Families(Collector):
    def __init__(self, families: Callable[[], Iterable[Metric]]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families()


def _single(values: Mapping[str, float]) -> dict[tuple[str, ...], float]:
    return {(name,): value for name, value in list(values.items())}


def _counter(
    name: str, meaning: str, labels: tuple[str, ...], values: Mapping[tuple[str, ...], float]
) -> CounterMetricFamily:
    family = CounterMetricFamily(f"pointsman_{name}", meaning, labels=labels)
    for key, value in list(values.items()):  # a copy: the event loop may add a key meanwhile
        family.add_metric(key, value)
    return family


def _gauge(
    name: str, meaning: str, labels: tuple[str, ...], values: Mapping[tuple[str, ...], float]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"pointsman_{name}", meaning, labels=labels)
    for key, value in list(values.items()):
        family.add_metric(key, value)
    return family


def _histogram(name: str, meaning: str, label: str, cells: Iterable[tuple[str, Histogram]]) -> HistogramMetricFamily:
    family = HistogramMetricFamily(f"pointsman_{name}", meaning, labels=(label,))
    for value, cell in cells:
        family.add_metric((value,), cell.buckets(), cell.total)
    return family
