"""Who may begin when a group has its share of requests: a bounded line before each group that has a limit.

The line is by priority, then in turns between tenants, then by arrival. Whoever would wait too long is turned away at
once, and so is the last in line when it is full: an answer that comes late helps nobody and keeps others from theirs.
"""

from __future__ import annotations

import asyncio
import math
from bisect import insort
from collections.abc import Mapping
from typing import Final, Literal

from router.config import Config, Group
from router.errors import Overloaded

RANKS: Final[Mapping[Literal["high", "normal", "low"], int]] = {"high": 0, "normal": 1, "low": 2}
PACE_WEIGHT = 0.1  # of the newest answer in the moving mean of the time between two


class Waiting:
    """One request in a line. They compare by whose turn it is."""

    __slots__ = ("key", "place")

    def __init__(self, key: tuple[int, float, int], place: asyncio.Future[None]) -> None:
        self.key = key
        self.place = place

    def __lt__(self, other: Waiting) -> bool:
        return self.key < other.key


class Gate:
    """The requests of one group: those that it works on, and those in line."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.in_flight = 0
        self.line: list[Waiting] = []
        self._turns: dict[str, float] = {}  # tenant -> the turn of its newest request in line
        self._turn = 0.0  # the one that was let in last
        self._arrivals = 0
        self._pace_s: float | None = None  # between two that end, while there is a line
        self._ended = 0.0

    @property
    def most(self) -> float:
        return math.inf if self.group.max_in_flight is None else self.group.max_in_flight

    async def enter(self, rank: int, tenant: str) -> bool:
        """Begin a request, which ends with `leave`; True where it had to wait. Raises Overloaded."""
        if self.in_flight < self.most and not self.line:
            self.in_flight += 1
            return False
        turn = max(self._turn, self._turns.get(tenant, 0.0)) + 1.0
        self._arrivals += 1
        mine = Waiting((rank, turn, self._arrivals), asyncio.get_running_loop().create_future())
        if (expected := self._expected(mine)) > self.group.queue_wait_s:
            raise self._full(expected)
        if len(self.line) >= self.group.queue:
            if not self.line or self.line[-1] < mine:
                raise self._full(expected)
            last = self.line.pop()
            last.place.set_exception(self._full(expected))
        self._turns[tenant] = turn
        insort(self.line, mine)
        await self._wait(mine)
        return True

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
                raise self._full(self.group.queue_wait_s) from None
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
                self.in_flight += 1
                first.place.set_result(None)
        if not self.line:
            self._turns.clear()
            self._turn = self._ended = 0.0

    def _expected(self, mine: Waiting) -> float:
        """Seconds that it would wait, as things go now."""
        before = sum(one < mine for one in self.line)
        return 0.0 if self._pace_s is None else (before + 1) * self._pace_s

    def _full(self, expected_s: float) -> Overloaded:
        group = self.group
        return Overloaded(
            f"group {group.name} has {self.in_flight} requests in flight and {len(self.line)} waiting; try again later",
            retry_after_s=max(1.0, expected_s),
        )


class Admission:
    """The gates of the groups that have a limit. One per process."""

    def __init__(self) -> None:
        self.gates: dict[str, Gate] = {}

    def use(self, config: Config) -> None:
        """The groups of this configuration. Whoever waits before a group whose limit is gone begins."""
        old, self.gates = self.gates, {}
        for name, group in config.groups.items():
            if group.max_in_flight is not None:
                gate = self.gates[name] = old.pop(name, None) or Gate(group)
                gate.group = group
                gate.admit()
        for name, gate in old.items():
            gate.group = config.groups.get(name, Group(name=name, deployments=()))
            gate.admit()

    def waiting(self) -> dict[str, int]:
        """Requests in line, by group."""
        return {name: len(gate.line) for name, gate in self.gates.items()}
