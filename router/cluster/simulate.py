"""Traffic through groups, event by event: queues, prefill, batched decoding, a classifier in front, and the same
`decide` as in production. Deterministic: what was drawn by chance comes in as `Workload`.

A copy of a model works on one prompt at a time, in order, and decodes up to `slots` streams at once, each the slower
the more there are; while it does both, each has a part of it. Streams progress evenly between events, so the time of
each event is exact, and a million requests take seconds. Failures, caches of prefixes and conversations are left out.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from router.config import Policy
from router.decide import decide
from router.types import Abstain, Decision, Load, Score, Signals

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Chunked prefill: of a step that carries both, the part that goes to the prompt.
PREFILL_PART: Final = 0.5
_NEVER: Final = math.inf
_END: Final = 1e300  # later than any event, and before never


class Rates(Struct, frozen=True, kw_only=True):
    """How fast one copy is."""

    stream: tuple[float, ...]  # tokens/s of each stream, by the number of streams; the first stands for none
    prefill: float  # prompt tokens/s
    nodes: int = 1

    @property
    def slots(self) -> int:
        return len(self.stream) - 1


class Pool(Struct, frozen=True, kw_only=True):
    """One group: so many copies alike."""

    name: str
    copies: int
    rates: Rates


class Judge(Struct, frozen=True, kw_only=True):
    """The classifier: copies that read one prompt at a time, and answer with what they make of its end or too late."""

    copies: int
    prefill: float
    overhead_s: float  # of a prompt, whatever its length
    deadline_s: float
    reads: int = 2048  # tokens of a prompt at the most


class Workload(Struct, frozen=True, kw_only=True):
    """Requests in the order they come: when, which row of the recorded prompts, and each one's draw in [0, 1)."""

    times: Floats
    rows: Ints
    draws: Floats

    def __len__(self) -> int:
        return len(self.times)


class Recorded(Struct, frozen=True, kw_only=True):
    """Recorded prompts: their scores, lengths, and what the small and the large model made of them."""

    scores: Floats  # nan = the scorer abstained
    prompt: Floats  # tokens
    asked: Floats  # those of them that are the user's own words, which a classifier reads
    output: Mapping[str, Floats]  # tokens, by group: small, large
    quality: Mapping[str, Floats]  # in [0, 1], by group

    def __len__(self) -> int:
        return len(self.scores)


class Served(Struct, frozen=True, kw_only=True):
    """What became of each request; seconds since it came."""

    groups: NDArray[np.int8]  # 0 = small, 1 = large
    ttft: Floats
    tpot: Floats
    done: Floats  # when, on the clock of the arrivals
    abstained: int
    busy_s: Mapping[str, float]  # of all copies of a group together


class Copy:
    """One copy of a model, between events. `next` is when its state changes by itself."""

    __slots__ = (
        "_left",
        "_now",
        "_rates",
        "_reading",
        "_spent",
        "_streams",
        "_waiting",
        "busy_s",
        "done",
        "first",
        "next",
    )

    def __init__(self, rates: Rates, first: list[float], done: list[float]) -> None:
        self._rates = rates
        self._waiting: deque[tuple[int, float, float]] = deque()  # request, prompt, output after the first token
        self._streams: list[tuple[float, int]] = []  # heap of (tokens decoded by a stream since the start, request)
        self._reading: tuple[int, float] | None = None  # the prompt in prefill, and its output
        self._left = 0.0  # tokens of it
        self._spent = 0.0  # tokens that a stream would have decoded since the start
        self._now = 0.0
        self.next = _NEVER
        self.busy_s = 0.0
        self.first, self.done = first, done

    @property
    def load(self) -> int:
        return len(self._waiting) + len(self._streams) + (self._reading is not None)

    def add(self, now: float, request: int, prompt: float, output: float) -> None:
        """A request comes. Events up to `now` have been worked through."""
        self._progress(now)
        self._waiting.append((request, prompt, output))
        self._take()
        self._plan()

    def advance(self, until: float) -> None:
        """Works through every event up to a time."""
        while self.next <= until:
            self._progress(self.next)
            if self._reading is not None and self._left <= 1e-6:
                request, output = self._reading
                self.first[request] = self._now
                self._reading = None
                if output > 0:
                    heapq.heappush(self._streams, (self._spent + output, request))
                else:
                    self.done[request] = self._now
            streams = self._streams
            while streams and streams[0][0] <= self._spent + 1e-6:
                self.done[heapq.heappop(streams)[1]] = self._now
            self._take()
            self._plan()

    def _take(self) -> None:
        if self._reading is None and self._waiting and len(self._streams) < self._rates.slots:
            request, self._left, output = self._waiting.popleft()
            self._reading = (request, output)

    def _speeds(self) -> tuple[float, float]:
        """Tokens a second of each stream, and of the prompt that is read."""
        part = PREFILL_PART if self._reading is not None and self._streams else 1.0
        stream = self._rates.stream[len(self._streams)]
        return (stream * (1.0 - part) if part < 1.0 else stream), self._rates.prefill * part

    def _progress(self, now: float) -> None:
        passed = now - self._now
        self._now = now
        if passed <= 0.0 or (self._reading is None and not self._streams):
            return
        self.busy_s += passed
        stream, prompt = self._speeds()
        if self._streams:
            self._spent += stream * passed
        if self._reading is not None:
            self._left = max(0.0, self._left - prompt * passed)

    def _plan(self) -> None:
        stream, prompt = self._speeds()
        at = self._now + self._left / prompt if self._reading is not None else _NEVER
        if self._streams:
            at = min(at, self._now + max(0.0, self._streams[0][0] - self._spent) / stream)
        self.next = at


# --- deciding --------------------------------------------------------------------------------------------


class Routed(Struct, frozen=True, kw_only=True):
    """Where each request goes, and when it gets there."""

    groups: NDArray[np.int8]
    times: Floats
    abstained: int = 0


def everything(work: Workload, large: bool) -> Routed:
    """All requests to one group."""
    return Routed(groups=np.full(len(work), int(large), dtype=np.int8), times=work.times)


def by_chance(work: Workload, share: float) -> Routed:
    """So many of the requests to the large group, whichever they are."""
    return Routed(groups=(work.draws < share).astype(np.int8), times=work.times)


def routed(work: Workload, recorded: Recorded, policy: Policy, judge: Judge | None) -> Routed:
    """Each request where production's `decide` sends it, once the classifier has read it or was too late."""
    scorer = next((r.score.scorer for r in policy.routes if r.score is not None), "difficulty")
    delays, late = _judged(work, recorded, judge)
    loads = Load()
    signals = [Signals(input_tokens=tokens) for tokens in recorded.prompt.astype(np.int64).tolist()]
    scores: list[Score | Abstain] = [
        Abstain(scorer=scorer, reason="unsure") if math.isnan(v) else Score(scorer=scorer, value=float(v))
        for v in recorded.scores.tolist()
    ]
    timeout = Abstain(scorer=scorer, reason="timeout")
    groups = np.zeros(len(work), dtype=np.int8)
    abstained = 0
    rows: list[int] = work.rows.tolist()
    draws: list[float] = work.draws.tolist()
    for i, (row, too_late) in enumerate(zip(rows, late.tolist(), strict=True)):
        given = timeout if too_late else scores[row]
        made = decide(policy, signals[row], {scorer: given}, None, loads, draws[i])
        if isinstance(made, Decision):
            groups[i] = made.group == "large"
            abstained += made.why == "abstain"
    return Routed(groups=groups, times=work.times + delays, abstained=abstained)


def _judged(work: Workload, recorded: Recorded, judge: Judge | None) -> tuple[Floats, NDArray[np.bool_]]:
    """What the classifier adds before a request moves on, and which ones it answers too late."""
    n = len(work)
    if judge is None:
        return np.zeros(n), np.zeros(n, dtype=np.bool_)
    takes = np.minimum(recorded.asked, judge.reads) / judge.prefill + judge.overhead_s
    free = [0.0] * judge.copies
    delays, late = np.zeros(n), np.zeros(n, dtype=np.bool_)
    for i, (time, row) in enumerate(zip(work.times.tolist(), work.rows.tolist(), strict=True)):
        start = max(time, free[0])
        end = start + takes[row]
        if end - time > judge.deadline_s:
            delays[i], late[i] = judge.deadline_s, True
            if start - time >= judge.deadline_s:
                continue  # given up before it was begun
            end = time + judge.deadline_s  # left alone at the deadline
        else:
            delays[i] = end - time
        heapq.heapreplace(free, end)
    return delays, late


# --- serving ---------------------------------------------------------------------------------------------


def serve(work: Workload, recorded: Recorded, to: Routed, pools: Sequence[Pool]) -> Served:
    """Every request through the copies of its group, each to the one with the fewest at hand."""
    n = len(work)
    first, done = [0.0] * n, [0.0] * n
    names = ("small", "large")
    copies = {pool.name: [Copy(pool.rates, first, done) for _ in range(pool.copies)] for pool in pools}
    prompts = recorded.prompt.tolist()
    outputs = [np.maximum(0.0, recorded.output[name] - 1.0).tolist() for name in names]
    order = np.argsort(to.times, kind="stable")
    groups, rows, times = to.groups.tolist(), work.rows.tolist(), to.times.tolist()
    for i in order.tolist():
        now, row, group = times[i], rows[i], groups[i]
        least: Copy | None = None
        fewest = 1 << 60
        for copy in copies[names[group]]:
            if copy.next <= now:
                copy.advance(now)
            held = copy.load
            if held < fewest:
                least, fewest = copy, held
        if least is not None:
            least.add(now, i, prompts[row], outputs[group][row])
    for each in copies.values():
        for copy in each:
            copy.advance(_END)
    at = np.array(first)
    ended = np.array(done)
    after = np.where(to.groups == 1, np.asarray(outputs[1])[work.rows], np.asarray(outputs[0])[work.rows])
    return Served(
        groups=to.groups,
        ttft=at - work.times,
        tpot=(ended - at) / np.maximum(1.0, after),
        done=ended,
        abstained=to.abstained,
        busy_s={name: sum(copy.busy_s for copy in each) for name, each in copies.items()},
    )
