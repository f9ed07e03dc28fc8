"""The life of a request, steps 2 to 12 of docs/design.md section 2, in order; and the snapshot in force.

Everything here is sequence: what is read, decided, planned, relayed, measured and recorded is done by the
module of that name.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from functools import partial
from hashlib import sha256
from time import localtime, perf_counter, time

from msgspec.structs import replace

from router import logs, origins, record, signals
from router import policy as policies
from router.admission import RANKS, Admission, Place
from router.changes import Changes
from router.config import Pin, Policy
from router.decide import decide, remember
from router.errors import (
    Cancelled,
    Overloaded,
    PointsmanError,
    UpstreamStatus,
)
from router.exchange import Exchange
from router.flight import NOTHING, Flight, Snapshot
from router.health import Health
from router.judging.shadow import Judging
from router.keys import Grant, keeps_prompts, permit
from router.limits import Limits
from router.metrics import Metrics
from router.plan import plan
from router.refusals import error_headers, outcome_of, upstreams_own
from router.relay import Relay
from router.scoring import Scoring
from router.seams import Codec, Recorder, Store
from router.steering import Steering
from router.store.limits import MemoryLimiter
from router.tracing import Tracing
from router.trials import Trials
from router.turns import BIG, MUCH, Turns, aside
from router.types import (
    Caller,
    Decision,
    Dialect,
    NeedScore,
    Prompt,
    Request,
    Session,
    Shadow,
    Signals,
)
from router.verified import Verifier
from router.watch import Ticker, watching

log = logging.getLogger("pointsman.service")

FORWARDED = ("traceparent", "tracestate", "idempotency-key", "openai-beta", "anthropic-beta", "anthropic-version")

NO_PIN = Pin()  # where a policy says nothing, and of a group that is asked for by name


class Service:
    """Serves requests on one snapshot at a time. One per process."""

    tracing: Tracing | None = None

    def __init__(
        self,
        snapshot: Snapshot,
        store: Store,
        recorder: Recorder,
        metrics: Metrics,
        health: Health,
        steering: Steering | None = None,
        trials: Trials | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.snapshot = snapshot
        self.store = store
        self.recorder = recorder
        self.metrics = metrics
        self.health = health
        self.steering = steering if steering is not None else Steering(metrics, Changes(None))
        self.trials = trials if trials is not None else Trials(metrics, Changes(None))
        self.admission = Admission()
        self.admission.use(snapshot.config)
        self.limits = limits if limits is not None else Limits(MemoryLimiter(), metrics.limited)
        self._relay = Relay(health, metrics)
        self._clock = LocalClock()
        self._ticker = Ticker()
        steered = self.steering.judged
        self.judging = Judging(self._relay, self._ticker, health, self.admission, metrics, steered)
        self.judging.use(snapshot)
        self._scoring = Scoring(metrics)
        self._verifier = Verifier(self._relay, health, self._ticker, self._scoring.score)
        self._loop = asyncio.get_running_loop()
        self._turns = Turns()

    async def serve(
        self, dialect: Dialect, codec: Codec, body: bytes, caller: Caller, exchange: Exchange, started: float
    ) -> None:
        """Answer one inference request. Every way out leaves a record and an answer in the caller's dialect."""
        snapshot = self.snapshot
        snapshot.hold()
        flight = Flight(caller, snapshot, started, draw_of(caller.id))
        flight.codec, flight.exchange = codec, exchange
        flight.charged = True
        watch = flight.watch = watching(exchange, self._ticker)
        error: PointsmanError | None = None
        try:
            if len(body) <= MUCH:
                flight.request = flight.read = codec.decode(body)
            else:
                flight.request = flight.read = await self.read(codec, body)
            del body
            await self.decide(flight)
            if self.judging.on:
                self.judging.choose(flight)
            if self.admission.gates:
                await self._admit(flight)
            if caller.headers:
                flight.forwarded = forwarded(caller.headers)
            if self.tracing is not None:
                flight.forwarded = self.tracing.forwarded(flight.forwarded, caller.id)
            if flight.decision is not None and flight.decision.then is not None:
                await self._verifier.run(flight)
            else:
                await self._relay.run(flight)
            if flight.request.dialect in origins.STATEFUL:
                origins.note(self.store, flight)
            self._remember(flight)
        except PointsmanError as raised:
            error = raised
        except asyncio.CancelledError:
            reason = watch.reason()
            if not isinstance(reason, PointsmanError):
                error = Cancelled("the gateway stopped")
                raise
            error = reason
        except Exception:  # the outermost seam: a mistake of ours must not take the gateway down
            log.exception("internal error", extra={"request_id": caller.id})
            error = PointsmanError("internal error; the request id finds it in the gateway's log")
        finally:
            watch.stop()
            if flight.place is not None:
                flight.place.leave()
            if watch.error is not None:
                await watch.settle()
            committed = exchange.committed  # an error that is all the answer commits too
            if error is not None:
                await self._fail(flight, error)
            elif flight.beside is not None:
                await self._shadow(flight, flight.beside)
            snapshot.release()
            # Steps 11 and 12: one record, which metrics, log and store all read.
            partial = error is not None and committed and flight.status == 200
            self._write(flight, dialect, error, partial=partial)

    async def read(self, codec: Codec, body: bytes) -> Request:
        """What `body` asks, once it is its turn. Raises BadRequest."""
        turn = self._turns.take() if MUCH < len(body) <= BIG else None
        if turn is not None:
            await turn
        return await aside(len(body), codec.decode, body)

    async def decide(self, flight: Flight) -> Decision:
        """Steps 3 to 8: from the decoded request to the plan. Calls no upstream."""
        request, snapshot = flight.request, flight.snapshot
        config = snapshot.config
        if snapshot.ring is not None:
            flight.grant = snapshot.ring.of(flight.caller)
            permit(flight.grant, request.model)
        chosen = policies.select(config, request.model)
        if self.admission.gates and flight.charged and not self.trials.of:
            self.admission.refuse(chosen, flight.caller.tenant)
        now = self._loop.time()
        if len(request.body) <= BIG:
            flight.text, found = self._signals(flight, now)
        else:
            flight.text, found = await aside(len(request.body), self._signals, flight, now)
        flight.signals = found
        if self.trials.of:
            chosen = self._tried(flight, chosen)
        load = self.health.load(now)
        if (cuts := self.steering.cuts.get(chosen.name)) is not None:
            load = replace(load, cuts=cuts)
        if flight.grant is not None:
            load = replace(load, spent=await self._charge(flight, flight.grant, found))
        flight.load = load
        flight.policy = chosen
        written = isinstance(chosen, Policy)
        if written or (chosen.deployment is None and chosen.group in snapshot.led):
            if written and (chosen.record_prompts or flight.grant is not None) and keeps_prompts(chosen, flight.grant):
                flight.prompt = flight.text
            if len(request.body) <= BIG:
                known = signals.conversation(request, flight.caller, flight.text)
            else:
                known = await aside(len(request.body), signals.conversation, request, flight.caller, flight.text)
            if known is not None:
                flight.session_id = known.key
                flight.session = await self._session(known) if known.known else None
        if request.dialect in origins.STATEFUL:
            flight.session = await origins.session(self.store, flight) or flight.session
        ask = partial(self._scoring.at_hand, flight)
        scores, session, draw = flight.scores, flight.session, flight.draw
        while not isinstance(step := decide(chosen, found, scores, session, load, draw, None, ask), Decision):
            scores[step.scorer] = await flight.asked
        flight.decision = step
        if step.deployment is None and step.group in snapshot.led:
            flight.load = load = replace(load, prefix=await aside(len(request.body), signals.prefix, request))
        flight.plan = plan(step, chosen, config, load, found, flight.draw)
        if load.spent and flight.charged and step.group in load.spent:
            self.metrics.limited("quota")
        return step

    async def _admit(self, flight: Flight) -> None:
        """Wait for a place in the first group that does not turn it away; then plan anew."""
        decision, found = flight.decision, flight.signals
        if not flight.plan.targets or decision is None or found is None or flight.load is None:
            return
        policy, gates = flight.policy, self.admission.gates
        rank = RANKS["normal" if isinstance(policy, policies.Asked) else policy.priority]
        full: Overloaded | None = None
        waited = False
        for group in dict.fromkeys([target.group for target in flight.plan.targets]):
            gate = gates.get(group)
            try:
                waited = gate is not None and await gate.enter(rank, found.tenant)
            except Overloaded as error:
                full = full or error
                continue
            flight.place = Place(gates, gate)
            break
        if flight.place is None and full is not None:
            raise full
        if waited:
            seen, now = flight.load, self.health.load(self._loop.time())
            flight.load = replace(now, cuts=seen.cuts, spent=seen.spent, prefix=seen.prefix)
            flight.plan = plan(decision, policy, flight.snapshot.config, flight.load, found, flight.draw)

    async def _charge(self, flight: Flight, grant: Grant, found: Signals) -> Mapping[str, float]:
        """What the caller may use is reserved, where it counts; the groups whose quota is used up."""
        ring = flight.snapshot.ring
        if ring is None or not flight.charged:
            return await self.limits.look(grant, flight.caller.id)
        flight.taken, spent = await self.limits.enter(grant, ring, found, flight.caller.id)
        return spent

    def _tried(self, flight: Flight, chosen: policies.Selection) -> policies.Selection:
        """The policy that decides where `chosen` has a canary; a conversation is always on the same side of it."""
        trial = self.trials.of.get(chosen.name)
        if trial is None:
            return chosen
        conversation, known = _conversation(flight), flight.snapshot.config.policies
        if trial.shadowed(conversation):
            flight.beside = known.get(trial.canary.policy)
        return known.get(trial.chosen(conversation), chosen)

    async def _shadow(self, flight: Flight, other: Policy) -> None:
        """What another policy would have decided, for the record; the client has its answer already."""
        flight.answered = perf_counter()
        found, load = flight.signals, flight.load
        if found is None or load is None:
            return
        load = replace(load, cuts=self.steering.cuts.get(other.name, {}))
        while isinstance(made := decide(other, found, flight.scores, flight.session, load, flight.draw), NeedScore):
            prompt = Prompt(text=flight.text, signals=found)
            flight.scores[made.scorer] = await self._scoring.score(flight, made.scorer, prompt)
        flight.shadow = Shadow(policy=made.policy, route=made.route, group=made.group)

    def _signals(self, flight: Flight, now: float) -> tuple[str, Signals]:
        """The user's words and the signals; `now` is monotonic seconds."""
        request = flight.request
        text = signals.user_text(request)
        hour, weekday = self._clock.at(now)
        named = flight.snapshot.named_headers
        found = signals.extract(request, flight.caller, text=text, named_headers=named, hour=hour, weekday=weekday)
        return text, found

    async def _session(self, conversation: signals.Conversation) -> Session | None:
        """What the store remembers of the conversation, under any key that it may have been kept by."""
        try:
            return await self.store.session(*conversation.known)
        except ConnectionError:
            return None  # the store counts its own failures; the request goes on without a pin

    def _remember(self, flight: Flight) -> None:
        """Pin the conversation where it was served."""
        decision, target, found, key = flight.decision, flight.target, flight.signals, flight.session_id
        if key is None or decision is None or target is None or found is None:
            return
        policy = flight.policy
        session = remember(policy, found, decision, flight.session, key=key, served=target)
        if session is not None:
            pin = policy.pin if isinstance(policy, Policy) else None
            self.store.touch(session, (pin or NO_PIN).ttl_s)

    async def _fail(self, flight: Flight, error: PointsmanError) -> None:
        """Tell the client, in the shape that fits how far the answer had come."""
        codec, exchange = flight.codec, flight.exchange
        if exchange.ended or exchange.left:
            return
        request_id = flight.caller.id
        if exchange.started:
            meter = flight.meter if exchange.committed else None
            await exchange.end(codec.error_event(error, request_id) if meter is None else meter.fail(error, request_id))
            return
        status, body = error.status, codec.error(error, request_id)
        if isinstance(error, UpstreamStatus):
            status, body = upstreams_own(error, body, codec.dialect, alike=flight.alike)
        await exchange.answer(status, error_headers(error) + flight.headers(), body)

    def refuse(self, dialect: Dialect, caller: Caller, error: PointsmanError, started: float) -> None:
        """Record a request that was turned away before it could be served: too large, or without its body."""
        self._write(Flight(caller, self.snapshot, started, 0.0), dialect, error, partial=False)

    def _write(self, flight: Flight, dialect: Dialect, error: PointsmanError | None, *, partial: bool) -> None:
        now = flight.answered or perf_counter()
        written = record.build(
            flight.snapshot.book,
            flight.caller,
            dialect,
            "ok" if error is None else outcome_of(error, partial),
            time(),
            flight.read,
            flight.signals,
            flight.scores,
            flight.decision,
            tuple(flight.attempts),
            flight.tokens(),
            flight.timing(now),
            partial,
            flight.session_id,
            flight.draw,
            flight.session,
            flight.load,
        )
        if flight.prompt is not None or flight.shadow is not None or flight.checked is not None:
            written = record.with_rest(written, flight.prompt, flight.shadow, flight.checked)
        if flight.taken:
            self.limits.leave(flight.taken, written)
        self.metrics.observe(written)
        self.steering.observe(written)
        if self.trials.of:
            self.trials.observe(written)
        if flight.chosen is not None:
            self.judging.answered(flight, written)
        self.recorder.write(written)
        if self.tracing is not None:
            self.tracing.put(written, flight.caller.headers.get("traceparent"))
        logs.request(written)


def _conversation(flight: Flight) -> str:
    """What a conversation goes by from its first request to its last; the request's id where nothing was said."""
    found = signals.conversation(flight.request, flight.caller, flight.text)
    if found is None:
        return flight.caller.id
    return found.known[-1] if found.known else found.key


class LocalClock:
    """Local hour and weekday, read once in a while: the C library looks its time zone up on every call."""

    PERIOD_S = 10.0

    def __init__(self) -> None:
        self._until = -1.0
        self._at = (0, 0)

    def at(self, now: float) -> tuple[int, int]:
        """(hour 0..23, weekday with Monday 0); `now` is monotonic seconds."""
        if now >= self._until:
            local = localtime()
            self._at = (local.tm_hour, local.tm_wday)
            self._until = now + self.PERIOD_S
        return self._at


def draw_of(request_id: str) -> float:
    """The request's chance in [0, 1), from its id: the random bits of one of ours, else a digest."""
    if len(request_id) == 32 and request_id.startswith("req_"):
        return int(request_id[20:], 16) / 2**48
    return int.from_bytes(sha256(request_id.encode()).digest()[:6]) / 2**48


def forwarded(headers: Mapping[str, str]) -> Mapping[str, str]:
    """The client's headers that upstreams may see, by allowlist."""
    return {name: headers[name] for name in FORWARDED if name in headers} if headers else NOTHING
