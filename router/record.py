"""Builds the one value that is remembered of a request, and writes and reads it in the contract's shape.

Pure: time, usage and timing arrive as arguments. What belongs here: what a record says, what a request
cost, and the exported JSON. What does not: keeping records (records/), counting them (metrics) or printing
them (logs); all three read the value built here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from router.config import Config, Policy, Price
from router.policy import ASKED, chain_of, leads
from router.types import (
    Abstain,
    Attempt,
    Caller,
    Checked,
    Decision,
    Dialect,
    Load,
    Outcome,
    Record,
    Request,
    Score,
    Session,
    Shadow,
    Signals,
    Timing,
    Usage,
)

OTHER = "other"  # stands for every model name that no configuration knows

# A policy may match on any header, but a record keeps no credential.
_CREDENTIALS = frozenset({"authorization", "proxy-authorization", "x-api-key", "api-key", "cookie"})
_PROMPT_PART = 8_000  # characters that are kept of each end of a prompt
_CASCADED = ("cascade", "verified", "escalated")
_FAR_OFF_S = 1e12  # monotonic seconds that no process reaches
_NO_USAGE, _NO_TIME = Usage(), Timing()


class Book(Struct, frozen=True, kw_only=True):
    """What a record needs of one configuration; made once for each snapshot by `book`."""

    digest: str
    names: frozenset[str]  # every model name a client may ask for
    prices: Mapping[str, Price]  # by deployment; absent where the operator gave none
    dearest: Mapping[str, tuple[tuple[Price, ...], ...]]  # by policy, prices of the groups that may be the dearest
    groups: Mapping[tuple[str, str], frozenset[str]]  # by policy and group, the deployments that may serve


def book(config: Config) -> Book:
    """The price book of one configuration.

    A policy has a dearest group only when every group it routes to has a price: an unknown price may be the
    highest one.
    """
    prices = {name: d.price for name, d in config.deployments.items() if d.price is not None}
    dearest: dict[str, tuple[tuple[Price, ...], ...]] = {}
    considered: dict[tuple[str, str], frozenset[str]] = {}
    for name, policy in config.policies.items():
        by_group = tuple(
            tuple({prices[d]: None for d in config.groups[group].deployments if d in prices})
            for group in _groups(policy)
            if group in config.groups
        )
        if by_group and all(by_group):
            dearest[name] = _frontier(by_group)
        for group in config.groups:
            chain = (g for g in chain_of(policy, group) if g in config.groups)
            considered[name, group] = frozenset(d for g in chain for d in config.groups[g].deployments)
        for pair in (r.cascade for r in policy.routes if r.cascade is not None):
            both = considered.get((name, pair.first), frozenset()) | considered.get((name, pair.then), frozenset())
            considered[name, pair.first] = considered[name, pair.then] = both
    for name, asked in config.groups.items():
        considered[ASKED, name] = frozenset(asked.deployments)
    names = frozenset((*config.models, *config.groups, *config.deployments))
    return Book(digest=config.digest, names=names, prices=prices, dearest=dearest, groups=considered)


def _groups(policy: Policy) -> tuple[str, ...]:
    """The groups that a policy chooses between; a fallback is not a choice."""
    return tuple(dict.fromkeys((*(g for route in policy.routes for g in leads(route)), policy.default)))


def _frontier(by_group: tuple[tuple[Price, ...], ...]) -> tuple[tuple[Price, ...], ...]:
    """Only what can decide `cost_large`: most often one group with one price, which costs one sum a request."""

    def below(a: Price, b: Price) -> bool:
        return a.input <= b.input and a.output <= b.output and _cached(a) <= _cached(b)

    groups: list[tuple[Price, ...]] = []
    for prices in by_group:
        least: list[Price] = []
        for price in prices:
            if not any(below(other, price) for other in least):
                least = [other for other in least if not below(price, other)] + [price]
        groups.append(tuple(least))
    kept: list[tuple[Price, ...]] = []
    for prices in groups:  # a group is out when another one costs at least as much whatever the tokens
        if not any(all(any(below(a, b) for a in prices) for b in other) for other in kept):
            kept = [other for other in kept if not all(any(below(a, b) for a in other) for b in prices)] + [prices]
    return tuple(kept)


def _cached(price: Price) -> float:
    return price.input if price.cached is None else price.cached


def cost(usage: Usage, price: Price) -> float:
    """US dollars for these tokens; cached input at the cached price where there is one."""
    if not usage.cached or price.cached is None:
        return (usage.input * price.input + usage.output * price.output) / 1e6
    cached = min(usage.cached, usage.input)
    return ((usage.input - cached) * price.input + cached * price.cached + usage.output * price.output) / 1e6


def cost_large(usage: Usage, groups: tuple[tuple[Price, ...], ...]) -> float:
    """The same tokens at the dearest group; inside a group the cheapest deployment, not to flatter savings."""
    if len(groups) == 1 and len(groups[0]) == 1:
        return cost(usage, groups[0][0])
    return max(min(cost(usage, price) for price in prices) for prices in groups)


def build(
    book: Book,
    caller: Caller,
    dialect: Dialect,
    outcome: Outcome,
    time: float,
    request: Request | None = None,
    signals: Signals | None = None,
    scores: Mapping[str, Score | Abstain] | None = None,
    decision: Decision | None = None,
    attempts: tuple[Attempt, ...] = (),
    usage: Usage | None = None,
    timing: Timing | None = None,
    partial: bool = False,
    session: str | None = None,
    draw: float = 0.0,
    pinned: Session | None = None,
    load: Load | None = None,
) -> Record:
    """The record of one request, however far it came; `time` is Unix seconds. What was not reached is None.

    `load` is narrowed to the deployments that the plan could choose from; `session` is the digest of the conversation.
    What few requests have is added by `with_rest`.
    """
    known = request is not None and request.model in book.names
    model = request.model if request is not None and known else OTHER
    name = decision.policy if decision is not None else ""
    usage = usage if usage is not None else _NO_USAGE
    server = _serving(attempts, partial)
    spent = large = None
    if server is not None:
        price = book.prices.get(server.deployment)
        if price is not None:
            spent = cost(usage, price)
        groups = book.dearest.get(name)
        if groups is not None:
            large = cost_large(usage, groups)
    if decision is not None and (decision.why in _CASCADED or (len(attempts) > 1 and attempts[-1].usage is not None)):
        attempts, spent = _all_calls(attempts, book)
    if load is not None and decision is not None:
        load = _narrow(load, book.groups.get((name, decision.group)))
    return Record(  # in the order of its fields
        caller.id,
        time,
        name,
        book.digest,
        dialect,
        model,
        request is not None and request.stream,
        _clean(signals, known) if signals is not None else None,
        scores if scores is not None else {},
        decision,
        attempts,
        usage,
        spent,
        large,
        timing if timing is not None else _NO_TIME,
        outcome,
        partial,
        session,
        draw,
        pinned,
        load,
    )


def with_rest(record: Record, prompt: str | None, shadow: Shadow | None, checked: Checked | None) -> Record:
    """The record with what few requests have; `prompt` are the user's words, where they are to be kept."""
    kept = _kept(prompt) if prompt is not None else None
    return msgspec.structs.replace(record, prompt=kept, shadow=shadow, checked=checked)


def _all_calls(attempts: tuple[Attempt, ...], book: Book) -> tuple[tuple[Attempt, ...], float | None]:
    """A cascade's calls with what each cost, and their sum: None where one that was paid for has no known price."""
    priced: list[Attempt] = []
    spent: float | None = 0.0
    for attempt in attempts:
        price = book.prices.get(attempt.deployment)
        if attempt.usage is None:
            priced.append(attempt)
        elif price is None:
            priced.append(attempt)
            spent = None
        else:
            paid = cost(attempt.usage, price)
            priced.append(msgspec.structs.replace(attempt, cost=paid))
            spent = None if spent is None else spent + paid
    return tuple(priced), spent


def _kept(prompt: str) -> str:
    """Head and tail of a long prompt, more than scorers read; a lone surrogate, which no database takes, replaced."""
    if len(prompt) > 2 * _PROMPT_PART:
        prompt = f"{prompt[:_PROMPT_PART]}\n…\n{prompt[-_PROMPT_PART:]}"
    return prompt.encode("utf-8", "replace").decode()


def served(record: Record) -> Attempt | None:
    """The attempt whose answer the client got, whole or cut short; None where nothing was sent."""
    return _serving(record.attempts, record.partial)


def group(record: Record) -> str | None:
    """The group that served, else the one decided on, else None. After a failover the two differ."""
    attempt = _serving(record.attempts, record.partial)
    if attempt is not None:
        return attempt.group
    return record.decision.group if record.decision is not None else None


def _serving(attempts: tuple[Attempt, ...], partial: bool) -> Attempt | None:
    return attempts[-1] if attempts and (partial or attempts[-1].error is None) else None


def _clean(signals: Signals, known: bool) -> Signals:
    if not known and signals.model:
        signals = msgspec.structs.replace(signals, model=OTHER)
    if not signals.headers or _CREDENTIALS.isdisjoint(signals.headers):
        return signals
    kept = {name: value for name, value in signals.headers.items() if name not in _CREDENTIALS}
    return msgspec.structs.replace(signals, headers=kept)


def _narrow(load: Load, deployments: frozenset[str] | None) -> Load:
    """Without deployments that do not matter here, and finite: JSON has no infinity for one that is draining."""
    if not (load.cooling or load.reports or load.probing) and (
        deployments is None or deployments.issuperset(load.in_flight)
    ):
        return load
    kept = deployments if deployments is not None else frozenset((*load.in_flight, *load.cooling, *load.reports))
    return msgspec.structs.replace(
        load,
        in_flight={name: n for name, n in load.in_flight.items() if name in kept},
        cooling={name: min(until, _FAR_OFF_S) for name, until in load.cooling.items() if name in kept},
        limited=load.limited & kept,
        probing={name: at for name, at in load.probing.items() if name in kept},
        reports={name: report for name, report in load.reports.items() if name in kept},
    )


# --- the exported shape ----------------------------------------------------------------------------------


class _Line(Record, frozen=True, kw_only=True):
    """A record as one JSON line. It differs from Record in the scores: a number, or null with the reason in
    `abstained`, as the policies' own examples write them. The contract demands neither of the first two."""

    stream: bool = False
    signals: Signals | None = None
    scores: Mapping[str, float | None] = {}  # pyright: ignore[reportIncompatibleVariableOverride]
    abstained: Mapping[str, str] = {}


# The same with all of their members, also those that have their default.
class _Signals(Signals, frozen=True, kw_only=True, omit_defaults=False):
    pass


class _Decision(Decision, frozen=True, omit_defaults=False):
    pass


class _Usage(Usage, frozen=True, kw_only=True, omit_defaults=False):
    pass


class _Attempt(Attempt, frozen=True, omit_defaults=False):
    usage: _Usage | None = None


class _Timing(Timing, frozen=True, omit_defaults=False):
    pass


class _Load(Load, frozen=True, omit_defaults=False):
    pass


class _Whole(_Line, frozen=True, kw_only=True, omit_defaults=False):
    signals: _Signals | None = None
    decision: _Decision | None = None
    attempts: tuple[_Attempt, ...] = ()
    usage: _Usage = _Usage()
    timing: _Timing = _Timing()
    load: _Load | None = None
    abstained: Mapping[str, str] | UnsetType = UNSET  # pyright: ignore[reportIncompatibleVariableOverride]


_SAME = tuple(name for name in Record.__struct_fields__ if name != "scores")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Line).decode
_decode_whole = msgspec.json.Decoder(_Whole).decode


def _line(record: Record) -> _Line:
    scores = record.scores
    return _Line(
        **{name: getattr(record, name) for name in _SAME},
        scores={name: s.value if isinstance(s, Score) else None for name, s in scores.items()},
        abstained={name: s.reason for name, s in scores.items() if isinstance(s, Abstain)},
    )


def stored(record: Record) -> bytes:
    """One JSON line as the database keeps it: what has its default is left out, which is half of most records."""
    scores: dict[str, Any] = {}
    for name, score in record.scores.items():
        if not isinstance(score, Score):
            return _encode(_line(record))
        scores[name] = score.value
    # Without an abstention the record differs from its line in the scores alone: half the cost of `_line`.
    return _encode(msgspec.structs.replace(record, scores=scores))


def encode(record: Record) -> bytes:
    """One JSON line of the contract, without the line end."""
    return whole(stored(record))


def whole(line: bytes | str) -> bytes:
    """A stored line as the contract has it, with every member."""
    return _encode(_decode_whole(line))


def decode(line: bytes | str) -> Record:
    """Reads what `encode` and `stored` write; unknown keys are left out.

    Raises `msgspec.ValidationError`, which names the key.
    """
    read = _decode(line)
    scores: dict[str, Score | Abstain] = {}
    for name, value in read.scores.items():
        if value is None:
            reason = read.abstained.get(name, "missing")
            scores[name] = msgspec.convert({"scorer": name, "reason": reason}, Abstain)
        else:
            scores[name] = Score(scorer=name, value=value)
    return Record(**{name: getattr(read, name) for name in _SAME}, scores=scores)


def to_contract(record: Record) -> dict[str, Any]:
    """The contract's shape as plain values."""
    return {"abstained": {}, **msgspec.to_builtins(_decode_whole(stored(record)))}
