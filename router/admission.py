"""Who may begin when a group has its share of requests: a bounded line before each group that has a limit.

The line is by priority, then in turns between tenants, then by arrival. Whoever would wait too long is turned away at
once, and so is the last in line when it is full: an answer that comes late helps nobody and keeps others from theirs.
Where that is plain before a request was read, it is not read. How often it happens is told in the log now and then.
Where several processes keep a limit together, each counts its own requests against the places that it has of it.
"""

from __future__ import annotations

import asyncio
import logging
import math
from bisect import insort
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Final, Literal

from msgspec.structs import replace

from router.config import Config, Group
from router.errors import Overloaded
from router.policy import Asked, Selection, reach
from router.seams import Wish

log = logging.getLogger("pointsman.admission")

RANKS: Final[Mapping[Literal["high", "normal", "low"], int]] = {"high": 0, "normal": 1, "low": 2}
TELL_S = 10.0  # between two lines in the log about requests turned away: under load there are thousands a second
PACE_WEIGHT = 0.1  # of the newest answer in the moving mean of the time between two


class Waiting:
    """One request in a line. They compare by whose turn it is."""

    __slots__ = ("key", "place", "since")

    def __init__(self, key: tuple[int, float, int], place: asyncio.Future[None], since: float) -> None:
        self.key = key
        self.place = place
        self.since = since

    def __lt__(self, other: Waiting) -> bool:
        return self.key < other.key


class Gate:
    """The requests of one group: those that it works on, and those in line."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.most = math.inf if group.max_in_flight is None else float(group.max_in_flight)  # of this process
        self.in_flight = 0
        self.line: list[Waiting] = []
        self._turns: dict[str, float] = {}  # tenant -> the turn of its newest request in line
        self._turn = 0.0  # the one that was let in last
        self._arrivals = 0
        self._pace_s: float | None = None  # between two that end, while there is a line
        self._ended = 0.0
        self._away = 0  # turned away since the log was told
        self._unmet = 0  # who would have begun here if there had been room, since somebody asked
        self._told = -math.inf

    async def enter(self, rank: int, tenant: str) -> bool:
        """Begin a request, which ends with `leave`; True where it had to wait. Raises Overloaded."""
        if self._begin():
            return False
        if (wait_s := self.refusal(rank, tenant)) is not None:
            raise self.full(wait_s)
        key = self._key(rank, tenant)
        self._arrivals += 1
        loop = asyncio.get_running_loop()
        mine = Waiting(key, loop.create_future(), loop.time())
        if len(self.line) >= self.group.queue:
            last = self.line.pop()
            last.place.set_exception(self.full(self._expected(last.key)))
        self._turns[tenant] = key[1]
        insort(self.line, mine)
        await self._wait(mine)
        return True

    def begin(self) -> bool:
        """Begin a request at once, where nobody has to wait."""
        begun = self._begin()
        self._unmet += not begun
        return begun

    def _begin(self) -> bool:
        if self.in_flight >= self.most or self.line:
            return False
        self.in_flight += 1
        return True

    def refusal(self, rank: int, tenant: str) -> float | None:
        """How long a request that came now would wait, where it is turned away for that; None where it is not."""
        if self.in_flight < self.most and not self.line:
            return None
        key = self._key(rank, tenant)
        expected = self._expected(key)
        if len(self.line) >= self.group.queue and (not self.line or self.line[-1].key < key):
            return expected
        if not self.line:  # one finds out whether things go faster by now: nothing else would
            return None
        return expected if expected > self.group.queue_wait_s else None

    def _key(self, rank: int, tenant: str) -> tuple[int, float, int]:
        return rank, max(self._turn, self._turns.get(tenant, 0.0)) + 1.0, self._arrivals + 1

    async def _wait(self, mine: Waiting) -> None:
        try:
            async with asyncio.timeout(self.group.queue_wait_s):
                await mine.place
        except BaseException as error:
            if mine in self.line:
                self.line.remove(mine)
            elif mine.place.done() and not mine.place.cancelled() and mine.place.exception() is None:
                self.leave()  # its turn came as it gave up
            if isinstance(error, TimeoutError):
                raise self.full(self.group.queue_wait_s) from None
            raise

    def leave(self) -> None:
        """A request has ended; the next in line begins."""
        self.in_flight -= 1
        if self.line:
            now = asyncio.get_running_loop().time()
            if self._ended:
                took = now - self._ended
                self._pace_s = took if self._pace_s is None else self._pace_s + PACE_WEIGHT * (took - self._pace_s)
            self._ended = now
        self.admit()

    def admit(self) -> None:
        """Let in as many as there is room for."""
        while self.line and self.in_flight < self.most:
            first = self.line.pop(0)
            if not first.place.done():
                self._turn = max(self._turn, first.key[1])
                if self._pace_s is not None:  # it was in line for one that ended at least
                    self._pace_s = min(self._pace_s, asyncio.get_running_loop().time() - first.since)
                self.in_flight += 1
                first.place.set_result(None)
        if not self.line:
            self._turns.clear()
            self._turn = self._ended = 0.0

    def _expected(self, key: tuple[int, float, int]) -> float:
        """Seconds that it would wait, as things go now."""
        if self._pace_s is None:
            return 0.0
        return (sum(one.key < key for one in self.line) + 1) * self._pace_s

    def wish(self) -> Wish | None:
        """The places that it would use; None where it has no limit."""
        limit = self.group.max_in_flight
        if limit is None:
            return None
        wants, self._unmet = self.in_flight + len(self.line) + self._unmet, 0
        return Wish(group=self.group.name, limit=limit, wants=min(limit, wants), has=self.has)

    @property
    def has(self) -> int:
        """Places that may be in use at this moment."""
        return max(self.in_flight, 0 if math.isinf(self.most) else int(self.most))

    def unmet(self) -> None:
        """Somebody would have begun here if there had been room."""
        self._unmet += 1

    def full(self, expected_s: float) -> Overloaded:
        """The refusal of one that is turned away, which is counted."""
        group, now = self.group, monotonic()
        self._away += 1
        self._unmet += 1
        if now - self._told >= TELL_S:
            has = f"{self.in_flight} requests in flight and {len(self.line)} waiting"
            log.warning("group %s has %s; %d were turned away since the last such line", group.name, has, self._away)
            self._told, self._away = now, 0
        return Overloaded(
            f"group {group.name} has {self.in_flight} requests in flight and {len(self.line)} waiting; try again later",
            retry_after_s=max(1.0, expected_s),
        )


class Place:
    """One request's place in the group that works on it. It goes with the request to another group."""

    __slots__ = ("_gate", "_gates")

    def __init__(self, gates: Mapping[str, Gate], gate: Gate | None) -> None:
        self._gates = gates
        self._gate = gate  # None: that group has no limit

    def move(self, group: str) -> bool:
        """Begin in another group, in place of the one before; False where that would have to wait."""
        gate = self._gates.get(group)
        if gate is self._gate:
            return True
        if gate is not None and not gate.begin():
            return False
        self.leave()
        self._gate = gate
        return True

    def beside(self, group: str) -> Place | None:
        """A place for one more call of the same request; None where that would have to wait."""
        gate = self._gates.get(group)
        return Place(self._gates, gate) if gate is None or gate.begin() else None

    def leave(self) -> None:
        """Idempotent."""
        gate, self._gate = self._gate, None
        if gate is not None:
            gate.leave()


class Admission:
    """The gates of the groups that have a limit. One per process."""

    def __init__(self) -> None:
        self.gates: dict[str, Gate] = {}
        self.all: tuple[Gate, ...] = ()  # where every group has a limit
        self.bounded: dict[
            str, tuple[Gate, ...]
        ] = {}  # by name of a policy: where every group that it may lead to has one
        self._best = RANKS["normal"]
        self._of, self._number = 1, 0
        self._shares: dict[str, int] = {}

    def divide(self, of: int, number: int = 0) -> None:
        """So many processes have a part of each limit, this one the part with this number: one place at least. It holds
        until `grant` says how many places this process has."""
        self._of, self._number = of, number
        for gate in self.gates.values():
            self._bound(gate)

    def wishes(self) -> list[Wish]:
        """What this process would have of the limits; nothing where no group has one."""
        return [wish for gate in self.gates.values() if (wish := gate.wish()) is not None]

    def grant(self, shares: Mapping[str, int], wishes: Sequence[Wish]) -> list[Wish]:
        """Keep to these places from now on. What of the wishes is now different, as nothing above them begins."""
        self._shares.update(shares)
        fewer: list[Wish] = []
        for wish in wishes:
            gate = self.gates.get(wish.group)
            if gate is not None:
                self._bound(gate)
                if gate.has < wish.has:
                    fewer.append(replace(wish, has=gate.has))
        return fewer

    def _bound(self, gate: Gate) -> None:
        limit = gate.group.max_in_flight
        if limit is None:
            gate.most = math.inf
        else:
            part = max(1, (limit + self._of - 1 - self._number) // self._of)
            gate.most = float(min(limit, self._shares.get(gate.group.name, part)))
        gate.admit()

    def use(self, config: Config) -> None:
        """The groups of this configuration. Whoever waits before a group whose limit is gone begins."""
        old, self.gates = self.gates, {}
        for name, group in config.groups.items():
            if group.max_in_flight is not None:
                gate = self.gates[name] = old.pop(name, None) or Gate(group)
                gate.group = group
                self._bound(gate)
        for name, gate in old.items():
            gate.group = config.groups.get(name, Group(name=name, deployments=()))
            self._shares.pop(name, None)
            self._bound(gate)
        self.all = tuple(self.gates.values()) if len(self.gates) == len(config.groups) else ()
        self.bounded = {}
        for policy in config.policies.values():
            names = reach(policy)
            if all(name in self.gates for name in names):
                self.bounded[policy.name] = tuple([self.gates[name] for name in names])
        self._best = min([RANKS["normal"], *(RANKS[policy.priority] for policy in config.policies.values())])

    def refuse_any(self, tenant: str) -> None:
        """Raises Overloaded where whatever a request may ask for is full: nothing of it has to be read for that."""
        if self.all:
            _refuse(self.all, self._best, tenant)

    def refuse(self, policy: Selection, tenant: str) -> None:
        """Raises Overloaded where every group that the policy may lead to is full."""
        if isinstance(policy, Asked):
            gate = self.gates.get(policy.group)
            gates, rank = () if gate is None else (gate,), RANKS["normal"]
        else:
            gates, rank = self.bounded.get(policy.name, ()), RANKS[policy.priority]
        if gates:
            _refuse(gates, rank, tenant)

    def places(self) -> dict[str, int]:
        """Requests that this process may have at a time, by group."""
        return {name: int(gate.most) for name, gate in self.gates.items()}

    def waiting(self) -> dict[str, int]:
        """Requests in line, by group."""
        return {name: len(gate.line) for name, gate in self.gates.items()}


def _refuse(gates: tuple[Gate, ...], rank: int, tenant: str) -> None:
    """Raises the refusal of the first of them, where all would turn it away."""
    first: float | None = None
    for gate in gates:
        wait_s = gate.refusal(rank, tenant)
        if wait_s is None:
            return
        first = wait_s if first is None else first
    if first is not None:
        for gate in gates[1:]:
            gate.unmet()
        raise gates[0].full(first)
