"""Calls beside a request that has been answered: the same request to another group, or a question to a judge.

One attempt each, to one deployment, without a stream and within a time of their own; where the group has a limit, only
while there is room. Nothing of it reaches a record, so neither savings nor limits, pins, canaries or shares see it;
health does, since a deployment that fails here fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from router import policy as policies
from router import record
from router.admission import Admission
from router.cascade import Said
from router.errors import BadAnswer, Overloaded, PointsmanError
from router.exchange import Exchange, Headers
from router.flight import Flight, Snapshot
from router.health import Health
from router.plan import plan
from router.relay import Relay
from router.types import Caller, Decision, Request, Signals
from router.verified import Held
from router.watch import Ticker, watching
from router.wire import CODECS
from router.wire.body import set_fields
from router.wire.said import said

COPY_LIMIT = 1 << 20  # bytes of an answer that are kept to be judged
JUDGE_TOKENS = 1024  # a model that thinks first needs more than its one letter
CALL_S = 300.0  # the longest that one call may take


def _the_clients(name: str) -> property:
    """What is known of the client stands in its own exchange."""

    def read(self: Copied) -> Any:
        return getattr(self._of, name)  # pyright: ignore[reportPrivateUsage]

    return property(read)


class Copied(Exchange):
    """A client's exchange that keeps what the client was sent."""

    __slots__ = ("_copy", "_of", "_size")

    started = _the_clients("started")  # pyright: ignore[reportAssignmentType]
    committed = _the_clients("committed")  # pyright: ignore[reportAssignmentType]
    ended = _the_clients("ended")  # pyright: ignore[reportAssignmentType]
    sending = _the_clients("sending")  # pyright: ignore[reportAssignmentType]
    left = _the_clients("left")  # pyright: ignore[reportAssignmentType]
    writes = _the_clients("writes")  # pyright: ignore[reportAssignmentType]

    def __init__(self, of: Exchange) -> None:
        self._of = of
        self._copy: list[bytes] = []
        self._size = 0

    @property
    def whole(self) -> bytes | None:
        """The answer; None where it was too long to keep."""
        return b"".join(self._copy) if self._size <= COPY_LIMIT else None

    def _keep(self, data: bytes) -> None:
        self._size += len(data)
        if self._size <= COPY_LIMIT:
            self._copy.append(data)
        else:
            self._copy.clear()

    def notice(self, left: Callable[[], None]) -> None:
        self._of.notice(left)

    def ignore(self) -> None:
        self._of.ignore()

    async def answer(self, status: int, headers: Headers, body: bytes) -> None:
        self._keep(body)
        await self._of.answer(status, headers, body)

    async def start_stream(self, headers: Headers) -> None:
        await self._of.start_stream(headers)

    async def stream(self, data: bytes) -> None:
        self._keep(data)
        await self._of.stream(data)

    async def end(self, data: bytes = b"") -> None:
        self._keep(data)
        await self._of.end(data)

    async def ping(self, headers: Headers) -> None:
        await self._of.ping(headers)


class Told(Struct, frozen=True, kw_only=True):
    """What a call came to, and its cost in US dollars where a price is known."""

    answer: Said
    cost: float | None


class Asker:
    """Makes the calls. One per process; holds nothing of a request."""

    def __init__(self, relay: Relay, ticker: Ticker, health: Health, admission: Admission) -> None:
        self._relay = relay
        self._ticker = ticker
        self._health = health
        self._admission = admission

    async def again(self, of: Flight, group: str, fields: Mapping[str, Any]) -> Told:
        """The request of a flight, put to another group. Raises PointsmanError."""
        request, signals = of.request, of.signals
        if signals is None or of.decision is None:
            raise RuntimeError("only what was decided is asked again")
        if request.stream:
            unstreamed = set_fields(request.body, {"stream": None, "stream_options": None})
            request = CODECS[request.dialect].decode(unstreamed)
        made = replace(_asked(of.decision.policy, group), set=fields)
        return await self._ask(of.snapshot, of.caller, request, replace(signals, stream=False), made)

    async def judge(
        self, snapshot: Snapshot, policy: str, group: str, messages: list[dict[str, str]], id_: str
    ) -> Told:
        """A question to the model that judges. Raises PointsmanError."""
        body = msgspec.json.encode({"model": group, "messages": messages, "max_tokens": JUDGE_TOKENS})
        size = sum(len(message["content"]) for message in messages)
        signals = Signals(input_tokens=size // 3, turns=1, model=group, max_output_tokens=JUDGE_TOKENS)
        request = CODECS["chat"].decode(body)
        return await self._ask(snapshot, Caller(id=id_), request, signals, _asked(policy, group))

    async def _ask(
        self, snapshot: Snapshot, caller: Caller, request: Request, signals: Signals, made: Decision
    ) -> Told:
        flight = Flight(Caller(id=caller.id, tenant=caller.tenant), snapshot, perf_counter(), 0.0)
        flight.request, flight.signals, flight.decision = request, signals, made
        flight.policy = policies.Asked(model=made.group, group=made.group)
        load = flight.load = self._health.load(asyncio.get_running_loop().time())
        whole = plan(made, flight.policy, snapshot.config, load, signals, flight.draw)
        flight.plan = replace(whole, targets=whole.targets[:1])
        if not whole.targets:
            raise Overloaded(f"group {made.group} has nobody to ask")
        gate = self._admission.gates.get(made.group)
        if gate is not None and not gate.begin():
            raise Overloaded(f"group {made.group} is full")
        try:
            answer = await self._relayed(flight)
        finally:
            if gate is not None:
                gate.leave()
        return Told(answer=answer, cost=_cost(flight))

    async def _relayed(self, flight: Flight) -> Said:
        held = Held()
        watch = flight.watch = watching(held, self._ticker)
        flight.codec, flight.exchange = CODECS[flight.request.dialect], held
        try:
            async with asyncio.timeout(CALL_S):
                await self._relay.run(flight)
        except asyncio.CancelledError:
            reason = watch.reason()
            if not isinstance(reason, PointsmanError):
                raise
            raise reason from None
        except TimeoutError:
            raise Overloaded("a call beside the traffic took too long") from None
        finally:
            watch.stop()
        found = said(flight.request.dialect, held.answer_bytes, stream=False)
        if found is None:
            raise BadAnswer("the answer cannot be read")
        return found


def _asked(policy: str, group: str) -> Decision:
    return Decision(policy=policy, route=policies.ASKED, group=group, why="asked")


def _cost(flight: Flight) -> float | None:
    usage, target = flight.tokens(), flight.target
    price = flight.snapshot.book.prices.get(target.deployment) if target is not None else None
    return record.cost(usage, price) if usage is not None and price is not None else None
