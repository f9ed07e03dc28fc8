"""Everything known of one request while it is in the air: the only mutable value on its path.

The service fills it step by step, the relay adds attempts and times, and `record.build` reads it once at the
end. No I/O and no decisions here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from router.admission import Place
from router.config import Config, Deployment, Policy
from router.exchange import Exchange, Headers
from router.keys import Grant, Ring
from router.limits import Charge
from router.policy import Selection
from router.record import Book
from router.seams import Call, Codec, Meter, Reply, Scorer, Upstream
from router.types import (
    Abstain,
    Attempt,
    Caller,
    Checked,
    Decision,
    Load,
    Plan,
    Request,
    Score,
    Session,
    Shadow,
    Signals,
    Target,
    Timing,
    Usage,
)
from router.watch import Watch
from router.wire.translate import Translation

STREAM_HEADERS: Headers = [
    b"content-type: text/event-stream; charset=utf-8",
    b"cache-control: no-cache, no-transform",
    b"x-accel-buffering: no",  # nginx buffers event streams otherwise
]


NOTHING: Mapping[str, str] = {}
NO_FIELDS: Mapping[str, Any] = {}


class Snapshot:
    """One configuration with what was built from it. A request holds one from first byte to last."""

    def __init__(
        self,
        config: Config,
        upstreams: Mapping[str, Upstream],
        scorers: Mapping[str, Scorer],
        book: Book,
        named_headers: Iterable[str],
        generation: int,
        ring: Ring | None = None,
    ) -> None:
        self.config = config
        self.ring = ring  # None = no keys are configured
        self.upstreams = upstreams
        self.scorers = scorers
        self.book = book
        self.named_headers = frozenset(named_headers)
        self.wanted_headers = frozenset(name.encode() for name in named_headers)
        self.generation = generation
        # Groups of which the deployment matters to a conversation: another one has to read all of it anew.
        self.led = frozenset(g.name for g in config.groups.values() if g.affinity and len(g.deployments) > 1)
        self._headers: dict[tuple[str, str, str | None, str | None], bytes] = {}
        self._flights = 0
        self._idle: asyncio.Event | None = None

    def hold(self) -> None:
        """A request begins on this snapshot."""
        self._flights += 1

    def release(self) -> None:
        self._flights -= 1
        if self._flights == 0 and self._idle is not None:
            self._idle.set()

    def headers(self, policy: str, route: str, group: str | None, deployment: str | None) -> bytes:
        """The header lines that say where a request went, as far as that may be told; made once for each place."""
        place = (policy, route, group, deployment)
        made = self._headers.get(place)
        if made is None:
            named = f"{policy}@{self.config.digest[:12]}"
            values = {"policy": named, "route": route, "group": group, "deployment": deployment}
            lines = [f"x-pointsman-{k}: {v}" for k, v in values.items() if v is not None]
            made = self._headers[place] = "\r\n".join(lines).encode()
        return made

    async def idle(self) -> None:
        """Until no request holds this snapshot; ask only when no new one can."""
        self._idle = asyncio.Event()
        if self._flights:
            await self._idle.wait()


class Carried(Struct, frozen=True, kw_only=True, gc=False):
    """State that a request carries: signatures or encrypted reasoning, and the deployments that made them.

    `makers` is filled where they are several; else `maker` made all.
    """

    tokens: tuple[str, ...]
    maker: str
    makers: Mapping[str, str]


class Chosen(Struct, frozen=True, kw_only=True, gc=False):
    """A request whose answer is to be judged: the chance that it had, and the mean chance as of it."""

    propensity: float
    rate: float


_SCORED = b"x-pointsman-request-id: %b\r\n%b\r\nx-pointsman-score: %.4f\r\nx-pointsman-attempts: %d"
_LATER: Any = None  # of a field that is set before anybody reads it


class Flight(Struct, eq=False):
    """One request. Fields are set in the order of the request's life.

    A struct, because setting so many fields one by one costs more than deciding.
    """

    caller: Caller
    snapshot: Snapshot
    started: float  # perf_counter
    draw: float
    codec: Codec = _LATER
    exchange: Exchange = _LATER
    request: Request = _LATER
    policy: Selection = _LATER
    plan: Plan = _LATER
    watch: Watch = _LATER
    call: Call = _LATER  # what the deployment in turn is asked
    translation: Translation | None = None  # where it is asked in another dialect than the client's
    read: Request | None = None
    text: str = ""
    grant: Grant | None = None  # of the caller's key
    charged: bool = False  # what it uses counts
    taken: tuple[Charge, ...] = ()  # reserved of its limits
    prompt: str | None = None  # the same, where the record is to hold it
    beside: Policy | None = None  # decides as well, once the client has its answer
    shadow: Shadow | None = None
    answered: float | None = None  # perf_counter; where something is done after the answer
    signals: Signals | None = None
    session_id: str | None = None
    session: Session | None = None
    load: Load | None = None
    scores: dict[str, Score | Abstain] = {}
    asked: Awaitable[Score | Abstain] = _LATER  # of a scorer whose answer has to be waited for
    decision: Decision | None = None
    carried: Carried | None = None
    unset: tuple[str, ...] = ()  # fields of the policy's own that it cannot be told
    left_out: bool = False  # some of it is not for the deployment in turn
    forwarded: Mapping[str, str] = NOTHING
    listen: Callable[[Deployment, Reply], Reply] | None = None  # a cascade's, to what its first group answers
    checked: Checked | None = None  # what it found
    place: Place | None = None  # in the group that works on it, where some group has a limit
    chosen: Chosen | None = None  # its answer is to be judged, once the client has it
    settled: bool = True  # who answers is known: not while a cascade's first answer is held back
    tries: int = 0  # attempts that began
    attempts: list[Attempt] = []  # those that ended
    target: Target | None = None
    dropped: tuple[str, ...] = ()  # parts of the request that the deployment in turn cannot be told
    made: list[str] = []  # state that the answer leaves with the client
    status: int | None = None
    usage: Usage | None = None
    meter: Meter | None = None
    _attempt_at: float = 0.0
    _first_attempt_at: float | None = None
    _first_at: float | None = None
    _committed_at: float | None = None
    _last_at: float | None = None

    @property
    def alike(self) -> bool:
        """The deployment in turn is asked in the client's dialect."""
        return self.translation is None

    # --- times, all perf_counter seconds ---

    def begin_attempt(self, now: float) -> None:
        self._attempt_at = now
        self.tries += 1
        if self._first_attempt_at is None:
            self._first_attempt_at = now
        else:
            self._first_at = self.status = self.meter = None

    def first_content(self, now: float) -> None:
        """The upstream's first content, or its whole unstreamed answer, has arrived."""
        self._first_at = now

    def committed(self, now: float) -> None:
        """The first content is on its way to the client."""
        self._committed_at = now

    def last_content(self, now: float) -> None:
        self._last_at = now

    def released(self, now: float) -> None:
        """An answer that was held back goes out in one piece: its tokens have no pace; waiting was the upstreams'."""
        self._first_at = self._committed_at = now
        self._last_at = None

    def waited_s(self, now: float) -> float:
        """Seconds since the newest attempt began."""
        return now - self._attempt_at

    @property
    def attempt_ttft_s(self) -> float | None:
        return None if self._first_at is None else self._first_at - self._attempt_at

    def timing(self, now: float) -> Timing:
        """Times as the record keeps them. Overhead is all time before the first byte that no upstream had."""
        if self._committed_at is None or self._first_at is None or self._first_attempt_at is None:
            waited = 0.0 if self._first_attempt_at is None else now - self._first_attempt_at
            return Timing(total_s=now - self.started, overhead_s=now - self.started - waited)
        started, first, committed = self.started, self._first_at, self._committed_at
        tpot_s = None
        if self._last_at is not None and (count := self.output_tokens()) > 1:
            tpot_s = (self._last_at - first) / (count - 1)
        before = self._first_attempt_at - started
        return Timing(committed - started, tpot_s, now - started, before + committed - first)

    # --- tokens ---

    def output_tokens(self) -> int:
        if self.meter is None:
            return 0 if self.usage is None else self.usage.output
        return self.meter.deltas if (usage := _counted(self.meter)) is None else usage.output

    def tokens(self) -> Usage | None:
        """The upstream's count; else the signals' estimate and one token a delta, marked as estimated."""
        if self.meter is None:
            return self.usage
        if (usage := _counted(self.meter)) is not None:
            return usage
        if not self.meter.content:
            return None
        size = 0 if self.signals is None else self.signals.input_tokens
        return Usage(input=size, output=self.meter.deltas, estimated=True)

    # --- what goes out ---

    def fields(self, deployment: Deployment) -> Mapping[str, Any]:
        """Request fields that the deployment and the decision override; the decision wins."""
        chosen: Mapping[str, Any] = NO_FIELDS if self.decision is None else self.decision.set
        return {**deployment.set, **chosen} if deployment.set else chosen

    def headers(self) -> Headers:
        """The `x-pointsman-*` headers of every inference answer."""
        own, decision, target = self.caller.id.encode(), self.decision, self.target
        if decision is None:
            return [b"x-pointsman-request-id: " + own]
        if not self.settled:
            place = self.snapshot.headers(decision.policy, decision.route, None, None)
            return [b"x-pointsman-request-id: " + own, place]
        group, deployment = (decision.group, None) if target is None else (target.group, target.deployment)
        place = self.snapshot.headers(decision.policy, decision.route, group, deployment)
        if decision.score is None:
            told = b"x-pointsman-request-id: %b\r\n%b\r\nx-pointsman-attempts: %d" % (own, place, self.tries)
        else:
            told = _SCORED % (own, place, decision.score, self.tries)
        headers = [told]
        if self.dropped:
            headers.append(b"x-pointsman-dropped: " + _listed(self.dropped))
        return headers

    def stream_headers(self) -> Headers:
        return STREAM_HEADERS + self.headers()


def _counted(meter: Meter) -> Usage | None:
    """The upstream's count. What it says at the beginning is not yet what a stream has cost that is cut short (S19)."""
    usage = meter.usage
    if usage is None or meter.done or usage.output >= meter.deltas:
        return usage
    return replace(usage, output=meter.deltas, estimated=True)


_DROPPED_LIMIT = 1024  # bytes; proxies cap all headers of an answer at 4 to 8 KiB


def _listed(dropped: tuple[str, ...]) -> bytes:
    """Names of fields as one header value. They may be the client's own, so only visible ASCII is let through."""
    safe = ["".join([c if "!" <= c <= "~" and c != "," else "?" for c in name[:100]]) for name in dropped]
    value = ", ".join(safe)
    return (value if len(value) <= _DROPPED_LIMIT else value[:_DROPPED_LIMIT] + "...").encode()
