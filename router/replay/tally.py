"""Counts over recorded requests decided twice: which moved and where, cost, large-group share, load by hour."""

from __future__ import annotations

from collections import Counter

from msgspec import Struct

from router.replay.past import Past
from router.replay.side import Side
from router.types import Decision, Usage

NOWHERE = "(no policy)"  # the group of a request whose model's name nothing serves any more
_SHOWN = 3  # examples of each move
_MOVES_SHOWN = 12


class Example(Struct, frozen=True, kw_only=True):
    """One request that moves."""

    id: str
    group: tuple[str, str]  # old, new
    route: tuple[str, str]
    why: tuple[str, str]
    score: float | None
    threshold: tuple[float | None, float | None]


class Load(Struct, kw_only=True):
    """What a group would get in one hour."""

    requests: int = 0
    input: int = 0
    output: int = 0

    def add(self, usage: Usage) -> None:
        self.requests += 1
        self.input += usage.input
        self.output += usage.output


class Tally:
    """Everything that is counted. `hours` is by hour since 1970 and group: old load, new load."""

    def __init__(self) -> None:
        self.n = 0
        self.moved = 0
        self.by_group: Counter[tuple[str, str]] = Counter()
        self.by_route: Counter[tuple[str, str]] = Counter()
        self.examples: dict[tuple[str, str], list[Example]] = {}
        self.large = [0, 0]
        self.cost = [0.0, 0.0]
        self.priced = 0
        self.hours: dict[tuple[int, str], tuple[Load, Load]] = {}

    def add(
        self, past: Past, old: Decision, new: Decision | None, old_side: Side, new_side: Side, *, recorded: bool
    ) -> None:
        """`recorded`: `old` is what the record says, so that its cost is the recorded one."""
        of = past.record
        self.n += 1
        group = new.group if new is not None else NOWHERE
        if group != old.group:
            self._moved(past, old, new, group)
        self.large[0] += old_side.is_large(old)
        self.large[1] += new is not None and new_side.is_large(new)
        hour, usage = int(of.time // 3600), of.usage
        self._load(hour, old.group)[0].add(usage)
        if new is not None:
            self._load(hour, group)[1].add(usage)
        before = of.cost if recorded else None
        if before is None:
            before = old_side.cost(of, old)
        after = 0.0 if new is None else new_side.cost(of, new)
        if before is not None and after is not None:
            self.priced += 1
            self.cost[0] += before
            self.cost[1] += after

    def _load(self, hour: int, group: str) -> tuple[Load, Load]:
        found = self.hours.get((hour, group))
        if found is None:
            found = self.hours[hour, group] = (Load(), Load())
        return found

    def _moved(self, past: Past, old: Decision, new: Decision | None, group: str) -> None:
        self.moved += 1
        route = new.route if new is not None else NOWHERE
        self.by_group[old.group, group] += 1
        self.by_route[old.route, route] += 1
        shown = self.examples.get((old.group, group))
        if shown is None:
            if len(self.examples) >= _MOVES_SHOWN:
                return
            shown = self.examples[old.group, group] = []
        if len(shown) < _SHOWN:
            shown.append(
                Example(
                    id=past.record.id,
                    group=(old.group, group),
                    route=(old.route, route),
                    why=(old.why, new.why if new is not None else NOWHERE),
                    score=new.score if new is not None and new.score is not None else old.score,
                    threshold=(old.threshold, new.threshold if new is not None else None),
                )
            )

    @property
    def moved_share(self) -> float:
        return self.moved / self.n if self.n else 0.0

    def peaks(self) -> dict[str, tuple[tuple[int, Load] | None, tuple[int, Load] | None]]:
        """Of each group the hour with most requests, old and new."""
        peaks: dict[str, list[tuple[int, Load] | None]] = {}
        for (hour, group), both in sorted(self.hours.items()):
            best = peaks.setdefault(group, [None, None])
            for i, load in enumerate(both):
                top = best[i]
                if load.requests and (top is None or load.requests > top[1].requests):
                    best[i] = (hour, load)
        return {group: (best[0], best[1]) for group, best in peaks.items()}
