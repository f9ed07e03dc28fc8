"""The whole of a replay: each request decided on both sides, what that adds up to, and the limits it is held to.

`Run.add` takes requests in time order; `Report` is the result as plain values, `text` the same for people.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

from router import record as records
from router.replay.evidence import Chances, Evidence, Quality, Unknown, chances
from router.replay.past import Past
from router.replay.side import Side
from router.replay.tally import Example, Load, Tally
from router.types import Abstain, Decision, NeedScore, Score

Scores = Mapping[str, Score | Abstain]

_ROUTES_SHOWN = 8
_LEFT_OUT = 0.1  # share of the requests that could not be decided above which the new cost cannot be told
PINS = (
    "pins: whether a conversation was remembered is as recorded; which group it was kept in follows the decisions made "
    "here"
)
COST = (
    "cost: the recorded tokens at the configured prices; another model may write longer or shorter answers, and a "
    "conversation that moves finds no warm cache"
)


class Limits(Struct, frozen=True, kw_only=True):
    """What a replay must not pass: the share of requests that move, new cost over old, and the least that the lower
    end of the quality change may be."""

    max_moved: float | None = None
    max_cost: float | None = None
    min_quality: float | None = None


class Verdict(Struct, frozen=True, kw_only=True):
    """One limit. `value` is None where nothing can be said, and then it is passed."""

    limit: str
    allowed: float
    value: float | None
    ok: bool


class Run:
    """Both sides over the same requests. `old` is None where the records themselves are the old side."""

    def __init__(self, new: Side, old: Side | None) -> None:
        self.new = new
        self.old = old
        self.tally = Tally()
        self.evidence = Evidence()
        self.refused = 0  # turned away before they were decided
        self.unscored: Counter[str] = Counter()  # by scorer: what was not recorded and cannot be computed
        self.unverified = 0  # cascades whose first answer was not recorded
        self.disorder = 0
        self._last = float("-inf")

    @property
    def left_out(self) -> int:
        """Requests that could not be decided again: any of them might move."""
        return self.unscored.total() + self.unverified

    def sides(self) -> tuple[Side, ...]:
        return (self.new,) if self.old is None else (self.old, self.new)

    def takes(self, past: Past) -> bool:
        """Whether there is anything to decide; counts those where there is not."""
        of = past.record
        self.disorder += of.time < self._last
        self._last = max(self._last, of.time)
        if of.signals is None or of.decision is None:
            self.refused += 1
            return False
        return True

    def add(self, past: Past, old: Decision | None, new: Decision | None, scores: tuple[Scores, Scores]) -> None:
        """One request as both sides decided it, with the scores that each used. What the old side would have refused
        has nothing to be compared with."""
        did = past.record.decision
        if did is None or old is None:
            self.refused += 1
            return
        if self.old is None:
            self.tally.add(past, old, new, self.new, self.new, recorded=True)
        else:
            self.tally.add(past, old, new, self.old, self.new, recorded=False)
        self._weigh(past, did, old, new, scores)
        self.new.follow(past, new)
        if self.old is not None:
            self.old.follow(past, old)

    def _weigh(
        self, past: Past, did: Decision, old: Decision, new: Decision | None, scores: tuple[Scores, Scores]
    ) -> None:
        of = past.record
        served = records.served(of)
        quality = past.quality if past.quality is not None else past.labels.get(did.group)
        if served is None or served.group != did.group:  # a failover: the answer is not of the group decided on
            quality = None
        score = did.score
        if score is None:
            score = next((s.value for s in of.scores.values() if isinstance(s, Score)), None)
        conversation = of.session or of.id
        self.evidence.add(
            conversation,
            of.pinned.id if of.pinned is not None else None,
            did,
            chances(did) if self.old is None else _on_record(self.old, past, scores[0], old),
            _on_record(self.new, past, scores[1], new),
            quality=quality,
            score=score,
        )
        if past.labels and new is not None:
            self.evidence.label(conversation, past.labels, old.group, new.group)


def _on_record(side: Side, past: Past, scores: Scores, made: Decision | None) -> Chances:
    """The chances of each group where the conversation is where the record has it."""
    if not side.strayed(past):
        return chances(made)
    again = side.on_record(past, scores)
    return {"?": 1.0} if isinstance(again, NeedScore) else chances(again)


class Report:
    """What a run came to."""

    def __init__(self, run: Run, limits: Limits, notes: list[str]) -> None:
        self.tally = tally = run.tally
        self.quality = run.evidence.estimate(tally.n, tally.moved, run.left_out)
        self.refused, self.unscored, self.unverified = run.refused, run.unscored, run.unverified
        self.left_out = run.left_out
        self.notes = [PINS, COST, *notes]
        if run.disorder:
            self.notes.append(
                f"order: {run.disorder} records are older than one before them, so pins may be wrong; "
                "`pointsman records export` writes them in order"
            )
        self.verdicts = list(self._verdicts(limits))

    @property
    def ok(self) -> bool:
        return all(one.ok for one in self.verdicts)

    def _verdicts(self, limits: Limits) -> Iterator[Verdict]:
        tally, low = self.tally, self.quality.low if isinstance(self.quality, Quality) else None
        total = tally.n + self.left_out
        moved = (tally.moved + self.left_out) / total if total else None  # what could not be decided might move
        ratio: float | None = None
        if tally.priced and self.left_out <= _LEFT_OUT * total:
            ratio = tally.cost[1] / tally.cost[0] if tally.cost[0] else None if tally.cost[1] else 1.0
        if (most := limits.max_moved) is not None:
            yield Verdict(limit="max-moved", allowed=most, value=moved, ok=moved is not None and moved <= most)
        if (most := limits.max_cost) is not None:
            yield Verdict(limit="max-cost", allowed=most, value=ratio, ok=ratio is not None and ratio <= most)
        if (least := limits.min_quality) is not None:
            yield Verdict(limit="min-quality", allowed=least, value=low, ok=low is not None and low >= least)

    def plain(self) -> dict[str, Any]:
        """The contract's shape, and more."""
        tally, quality = self.tally, self.quality
        n = tally.n or 1
        known = isinstance(quality, Quality)
        return {
            "n": tally.n,
            "moved": tally.moved,
            "moved_share": tally.moved_share,
            "large_share": {"old": tally.large[0] / n, "new": tally.large[1] / n},
            "cost": dict(zip(("old", "new"), tally.cost if tally.priced else (None, None), strict=True))
            | {"priced": tally.priced},
            "quality": {
                "difference": quality.difference,
                "low": quality.low,
                "high": quality.high,
                "evidence": {
                    name: msgspec.to_builtins(getattr(quality, name))
                    for name in ("method", "judged", "contrast", "effective", "inverse_propensity")
                },
            }
            if known
            else None,
            "not_enough_evidence": None if known else msgspec.to_builtins(quality),
            "undecided": {"refused": self.refused, "no_score": dict(self.unscored), "unverified": self.unverified},
            "moves": {
                "groups": [{"from": a, "to": b, "n": count} for (a, b), count in tally.by_group.most_common()],
                "routes": [{"from": a, "to": b, "n": count} for (a, b), count in tally.by_route.most_common()],
            },
            "examples": [_example(one) for shown in tally.examples.values() for one in shown],
            "load": [
                {"hour": _hour(hour), "group": group, "old": msgspec.to_builtins(old), "new": msgspec.to_builtins(new)}
                for (hour, group), (old, new) in sorted(tally.hours.items())
            ],
            "limits": msgspec.to_builtins(self.verdicts),
            "ok": self.ok,
            "notes": self.notes,
        }

    def text(self) -> str:
        return "\n".join(
            [*self._totals(), "", *self._moves(), *self._loads(), "", *self._judgement(), "", *self._ends()]
        )

    def _totals(self) -> Iterator[str]:
        tally, n = self.tally, self.tally.n or 1
        yield f"requests     {tally.n} decided again, {tally.moved} move ({tally.moved_share:.2%})"
        if self.refused:
            yield f"             {self.refused} left out: refused before they were decided"
        for scorer, count in self.unscored.most_common():
            yield f"             {count} left out: {scorer} has to score them, and their prompts were not recorded"
        if self.unverified:
            yield f"             {self.unverified} left out: a cascade would have asked a group that was not asked"
        yield f"large group  {tally.large[0] / n:.2%} -> {tally.large[1] / n:.2%}"
        if not tally.priced:
            yield "cost         unknown: no deployment concerned has a price"
            return
        change = f" ({tally.cost[1] / tally.cost[0] - 1:+.1%})" if tally.cost[0] else ""
        part = "" if tally.priced == tally.n else f", of the {tally.priced} requests that have a price on both sides"
        yield f"cost         ${tally.cost[0]:.4f} -> ${tally.cost[1]:.4f}{change}{part}"

    def _moves(self) -> Iterator[str]:
        if not self.tally.moved:
            yield "No request moves."
            return
        yield "moves by group"
        for (a, b), count in self.tally.by_group.most_common():
            yield f"  {a} -> {b}: {count}"
            for one in self.tally.examples.get((a, b), []):
                yield f"    {_said(one)}"
        yield "moves by route"
        for (a, b), count in self.tally.by_route.most_common(_ROUTES_SHOWN):
            yield f"  {a} -> {b}: {count}"
        if len(self.tally.by_route) > _ROUTES_SHOWN:
            yield f"  and {len(self.tally.by_route) - _ROUTES_SHOWN} more; --json has all"

    def _loads(self) -> Iterator[str]:
        yield "busiest hour (UTC), requests and output tokens"
        for group, (old, new) in self.tally.peaks().items():
            yield f"  {group}: {_peak(old)} -> {_peak(new)}"

    def _judgement(self) -> Iterator[str]:
        quality = self.quality
        if isinstance(quality, Unknown):
            yield f"quality      not enough evidence ({quality.judged} judged answers)"
            yield f"             {quality.why}"
            return
        interval = f"95% between {quality.low:+.4f} and {quality.high:+.4f}"
        yield f"quality      {quality.difference:+.4f} a request, {interval}"
        weight = f", which weigh as much as {quality.effective:.0f}" if quality.contrast else ""
        told = f"{quality.judged} judged answers, {quality.contrast} tell the two apart{weight}"
        yield f"             {quality.method}; {told}"
        plain = quality.inverse_propensity
        if plain is not None:
            interval = f"{plain.low:+.4f} to {plain.high:+.4f}"
            yield f"             by inverse propensity alone {plain.difference:+.4f} ({interval})"

    def _ends(self) -> Iterator[str]:
        yield from self.notes
        for one in self.verdicts:
            value = "cannot be told" if one.value is None else f"is {one.value:.4f}"
            word = "ok" if one.ok else "REFUSED"
            yield f"--{one.limit} {one.allowed:g}: {value}: {word}"


def _example(one: Example) -> dict[str, Any]:
    pairs = {name: {"old": a, "new": b} for name, (a, b) in _pairs(one)}
    return {"id": one.id, "score": one.score, **pairs}


def _pairs(one: Example) -> Iterator[tuple[str, tuple[Any, Any]]]:
    for name in ("group", "route", "why", "threshold"):
        yield name, getattr(one, name)


def _said(one: Example) -> str:
    score = "" if one.score is None else f", score {one.score:.3f}"
    edges = [f"{edge:g}" for edge in one.threshold if edge is not None]
    cut = f" (threshold {' -> '.join(dict.fromkeys(edges))})" if edges and one.score is not None else ""
    return f"{one.id}: {one.route[0]} ({one.why[0]}) -> {one.route[1]} ({one.why[1]}){score}{cut}"


def _peak(peak: tuple[int, Load] | None) -> str:
    if peak is None:
        return "none"
    hour, load = peak
    return f"{load.requests} and {load.output} at {_hour(hour)}"


def _hour(hour: int) -> str:
    return datetime.fromtimestamp(hour * 3600, UTC).strftime("%Y-%m-%dT%H")
