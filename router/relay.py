"""Carries one request to the plan's targets and the answer back, until one answers or none is left.

The only place that retries: `plan.after` says whether and where, and never past the commit point. It moves
bytes and keeps times; what the bytes mean is the codec's and the meter's.
"""

from __future__ import annotations

import asyncio
import logging
import re
from time import perf_counter, time

from msgspec.structs import replace

from router.admission import Place
from router.answers import USUAL, WHOLE_LIMIT, error_status, estimated, hush, no_stream, read_all, relayed
from router.config import Deployment, Hedge
from router.errors import (
    BadAnswer,
    BadRequest,
    Cancelled,
    Overloaded,
    PointsmanError,
    Truncated,
    UpstreamError,
    UpstreamStatus,
)
from router.exchange import Exchange
from router.flight import Flight
from router.health import Health, same_model
from router.hedge import Race
from router.metrics import Metrics
from router.origins import STATEFUL, see
from router.outbound import outbound
from router.plan import COUNTED, RETRIED, after, fault_of, plan, refused_as
from router.retries import Retries
from router.seams import Call, Meter, Reply
from router.turns import BIG, aside
from router.types import Attempt, Plan, Target
from router.upstreams.litellm import unsaid
from router.wire import CODECS

log = logging.getLogger("pointsman.relay")

LARGE = 16 * 1024  # bytes of a request that is worth letting go of
# A name in the first bytes of an answer or event; one with anything odd in it is not looked at.
_MODEL = re.compile(rb'"model"\s*:\s*"([A-Za-z0-9][A-Za-z0-9_.:/@+ -]{0,199})"')
_MODEL_WITHIN = 2048
JSON = b"content-type: application/json"
_SENT = Call(path="", body=b"", stream=True)
_UNKNOWN = PointsmanError("internal error")  # of an attempt that has not ended in a known way


class Relay:
    """Relays flights. One per process; holds nothing of a flight."""

    def __init__(self, health: Health, metrics: Metrics) -> None:
        self._health = health
        self._metrics = metrics
        self._retries = Retries()
        # By deployment: the model asked for, how its answers say which they are of, its name if another.
        self._usual: dict[str, tuple[str, bytes, str]] = {}
        metrics.count("retries_refused", lambda: self._retries.refused)

    async def run(self, flight: Flight) -> None:
        """Answer the client from the first target that can. Raises the last error when none could."""
        left = flight.plan
        if not left.targets:
            raise _nothing_serves(flight)
        target = left.targets[0]
        self._retries.request(target.group)
        failed: UpstreamError | None = None
        hedge = flight.policy.hedge
        while True:
            if flight.place is not None and not flight.place.move(target.group):
                left = _without_group(left, target.group)
                following = _next(left, flight, failed)
                if following is None:
                    raise failed or Overloaded(f"group {target.group} is full; try again later", retry_after_s=1.0)
                target = following
                continue
            deployment = flight.snapshot.config.deployments[target.deployment]
            try:
                if (size := len(flight.request.body)) <= BIG:
                    flight.call, flight.translation = outbound(deployment, flight)
                else:
                    flight.call, flight.translation = await aside(size, outbound, deployment, flight)
            except BadRequest:
                left = _without(left, target)
                following = _untried(left, flight)
                if following is None:
                    raise
                target = following
                continue
            try:
                if hedge is None or any(a.error is not None and not a.scout for a in flight.attempts):
                    await self._attempt(target, deployment, flight)
                else:
                    await self._hedged(target, flight, hedge)
                return
            except UpstreamError as error:
                failed = error
                following = _next(left, flight, error)
                if following is None or flight.exchange.committed or not self._may_retry(flight, following, error):
                    raise
                target = following

    def _may_retry(self, flight: Flight, following: Target, error: PointsmanError) -> bool:
        """Whether there is time for another attempt, and the first target's group can pay for it. A prompt that was too
        long is no sign of trouble and costs nothing."""
        if flight.watch.left_s(flight.snapshot.config.deployments[following.deployment].timeouts) <= 0:
            return False
        if fault_of(error) not in RETRIED:
            return True
        return self._retries.take(flight.plan.targets[0].group, asyncio.get_running_loop().time())

    async def _hedged(self, target: Target, flight: Flight, hedge: Hedge) -> None:
        """As `_attempt`, with another deployment asked beside it where it gives nothing for a while."""

        places: list[Place] = []  # of the second attempt, where groups have limits; whichever ends first gives it back

        async def attempt(target: Target, flight: Flight) -> None:
            deployment = flight.snapshot.config.deployments[target.deployment]
            flight.call, flight.translation = await aside(len(flight.request.body), outbound, deployment, flight)
            try:
                await self._attempt(target, deployment, flight)
            finally:
                for place in places:
                    place.leave()

        race = Race(flight, attempt)
        try:
            await race.run(target, hedge.after_s, lambda: self._another(target, flight, places))
        finally:
            for place in places:
                place.leave()
            if (outrun := race.outrun()) is not None and flight.request.stream:
                self._health.outrun(outrun[0].deployment, outrun[1])

    def _another(self, target: Target, flight: Flight, places: list[Place]) -> Target | None:
        """A deployment of the same group that has room now and is paid for as a retry is; None where there is none.
        The place in the group that it takes is put into `places`."""
        decision, seen, signals = flight.decision, flight.load, flight.signals
        if decision is None or seen is None or signals is None:
            return None
        now = asyncio.get_running_loop().time()
        load = replace(self._health.load(now), cuts=seen.cuts, spent=seen.spent, prefix=seen.prefix)
        made = plan(decision, flight.policy, flight.snapshot.config, load, signals, flight.draw)
        other = next((t for t in made.targets if t.group == target.group and t != target), None)
        if other is None or load.cooling.get(other.deployment, 0.0) > now:
            return None
        if flight.place is not None:
            place = flight.place.beside(target.group)
            if place is None:
                return None
            places.append(place)
        if self._retries.take(flight.plan.targets[0].group, now):
            return other
        for place in places:
            place.leave()
        return None

    async def _attempt(self, target: Target, deployment: Deployment, flight: Flight) -> None:
        """One call to one deployment, from sending it to the end of its answer; always leaves an Attempt."""
        flight.target = target
        if flight.dropped or not _told_whole(flight, deployment):
            self._left_out(flight, deployment)
        watch, stream = flight.watch, flight.call.stream
        watch.attempt(deployment.timeouts, flight.stream_headers if stream else None)
        probe = self._health.begin(deployment.name)
        flight.begin_attempt(perf_counter())
        error: PointsmanError | None = _UNKNOWN
        try:
            await self._call(deployment, flight)
            error = None
        except asyncio.CancelledError:
            reason = watch.reason()
            if not isinstance(reason, PointsmanError):
                error = Cancelled("the gateway stopped")
                raise
            error = reason
            raise error from None
        except UpstreamError as raised:
            error = raised
            hush(raised, deployment)
            raise
        finally:
            watch.rest()
            self._health.end(deployment.name, probe)
            ttft_s = flight.attempt_ttft_s
            if error is None:
                flight.attempts.append(Attempt(deployment.name, target.group, flight.status, None, ttft_s))
                self._health.succeeded(deployment.name, ttft_s if stream else None)
            else:
                status = error.status if isinstance(error, UpstreamStatus) else flight.status
                flight.attempts.append(Attempt(deployment.name, target.group, status, error.code, ttft_s))
                self._judge(deployment, error)

    def _left_out(self, flight: Flight, deployment: Deployment) -> None:
        """Notes which parts of the request this deployment is not told, and counts them."""
        translation = flight.translation
        if translation is not None:
            dropped = translation.dropped
        else:
            dropped = ("thinking",) if flight.request.foreign_thoughts else ()
        if deployment.upstream == "litellm":
            dropped = (*dropped, *unsaid(flight.call.body))
        dropped = (*dropped, *flight.unset)
        flight.unset = ()
        if flight.left_out and "thinking" not in dropped:
            dropped = (*dropped, "thinking")
        flight.dropped = dropped
        if dropped:
            self._metrics.dropped(flight.request.dialect, dropped)

    def _judge(self, deployment: Deployment, error: PointsmanError) -> None:
        """Tell health that the attempt failed. A client's mistake or leave says nothing of the deployment."""
        if (fault := fault_of(error)) in COUNTED:
            self._health.failed(deployment.name, fault, error, asyncio.get_running_loop().time())

    async def _call(self, deployment: Deployment, flight: Flight) -> None:
        stream, translation = flight.call.stream, flight.translation
        reply = await flight.snapshot.upstreams[deployment.name].open(flight.call)
        if flight.listen is not None:
            reply = flight.listen(deployment, reply)
        try:
            flight.watch.alive()
            status = flight.status = reply.status
            if status != 200:
                raise await error_status(reply, deployment)
            if not stream:
                await self._whole(reply, deployment, flight)
            elif "event-stream" not in reply.headers.get("content-type", "").lower():
                raise await no_stream(reply)
            elif translation is None:
                meter = flight.codec.meter(flight.request, asked_usage=deployment.stream_usage)
                await self._stream(reply, deployment, flight, meter)
            else:
                await self._stream(reply, deployment, flight, translation.meter(flight.caller.id, time()))
        finally:
            await reply.aclose()

    async def _whole(self, reply: Reply, deployment: Deployment, flight: Flight) -> None:
        answer = reply.whole()
        if answer is None:
            answer = await read_all(reply, WHOLE_LIMIT)
        if not _is_object(answer):
            raise BadAnswer("the upstream's answer is not a JSON object")
        self._see_model(deployment, answer)
        translation, exchange = flight.translation, flight.exchange
        kind = "application/json"
        if translation is None:
            codec = flight.codec
            flight.usage = codec.usage(answer)
            out = codec.mended(answer)
            kind = reply.headers.get("content-type") or kind
        else:
            flight.usage = CODECS[translation.target].usage(answer)
            out = translation.answer(answer, flight.caller.id, time())
        if flight.usage is None:
            dialect = flight.request.dialect if translation is None else translation.target
            flight.usage = estimated(dialect, answer, flight.signals)
        if flight.request.dialect in STATEFUL:
            see(flight, out, whole=True)
        flight.first_content(perf_counter())
        headers = flight.headers()
        headers.append(JSON if kind == "application/json" else f"content-type: {kind}".encode("latin-1"))
        if not USUAL.issuperset(reply.headers):
            headers += relayed(reply.headers)
        sent = exchange.answer(200, headers, out)
        flight.committed(perf_counter())
        await sent

    async def _stream(self, reply: Reply, deployment: Deployment, flight: Flight, meter: Meter) -> None:
        """Pass events on as they come. Until the first content they are held, so that a failure before it can
        still be mended elsewhere without the client seeing a second beginning."""
        flight.meter = meter
        watch, exchange = flight.watch, flight.exchange
        held: list[bytes] = []
        stateful = flight.request.dialect in STATEFUL

        def take(data: bytes) -> bool:
            watch.alive()
            if out := meter.feed(data):
                if stateful:
                    see(flight, out)
                return exchange.push(out) and not meter.done
            return not meter.done

        while not meter.done and (data := await reply.read()):
            watch.alive()
            out = meter.feed(data)
            if stateful and out:
                see(flight, out)
            if exchange.committed:
                if out:
                    await exchange.stream(out)
            else:
                if out:
                    held.append(out)
                if meter.content or meter.done:
                    await self._commit(reply, deployment, flight, held, data)
            # From here on events go from one connection to the other, without a turn of this task for each.
            if exchange.pushes and exchange.committed and not meter.done and (poured := reply.pour(take)) is not None:
                await poured
        flight.last_content(perf_counter())
        if meter.failed is not None:
            raise meter.failed
        await exchange.end(self._tail(meter, exchange))
        if meter.done and not reply.ended:
            await self._to_the_end(reply)

    async def _commit(
        self, reply: Reply, deployment: Deployment, flight: Flight, held: list[bytes], newest: bytes
    ) -> None:
        """The commit point: the first content goes out, and what was held until then."""
        exchange = flight.exchange
        flight.watch.content = True
        if self._health.probation:
            self._health.answering(deployment.name)
        self._see_model(deployment, held[0] if held else newest)
        flight.first_content(perf_counter())
        if not exchange.started:
            await exchange.start_stream(relayed(reply.headers) + flight.stream_headers())
        flight.committed(perf_counter())
        await exchange.stream(b"".join(held))
        if len(flight.request.body) > LARGE:
            _let_go(flight)

    def _see_model(self, deployment: Deployment, answer: bytes) -> None:
        """Notes which model an answer says it is of, as far as it says so at its beginning."""
        usual = self._usual.get(deployment.name)
        if usual is not None and answer.find(usual[1], 0, _MODEL_WITHIN) >= 0 and usual[0] == deployment.model:
            if usual[2]:
                self._health.served(deployment.name, deployment.model, usual[2])
            return
        found = _MODEL.search(answer, 0, _MODEL_WITHIN)
        if found is None or not deployment.model:
            return
        reported = found[1].decode("ascii")
        if self._health.served(deployment.name, deployment.model, reported):
            log.warning("deployment %s: answers are of model %s, not %s", deployment.name, reported, deployment.model)
        other = "" if same_model(deployment.model, reported) else reported
        self._usual[deployment.name] = (deployment.model, found[0], other)

    def _tail(self, meter: Meter, exchange: Exchange) -> bytes:
        tail = meter.close()
        if exchange.committed:
            return tail
        raise Truncated("the upstream's stream ended without an answer")

    async def _to_the_end(self, reply: Reply) -> None:
        """Read the last bytes that frame the answer, if they are there at once, so the connection can be kept."""
        try:
            async with asyncio.timeout(0.05):
                while await reply.read():
                    pass
        except (TimeoutError, UpstreamError):
            pass  # the answer is complete; the connection is closed instead of kept


def _let_go(flight: Flight) -> None:
    """Past the commit point nobody is sent the request again. A stream may take an hour, and a thousand agents' prompts
    would take a quarter of a gigabyte meanwhile. What is to be judged, or held back for a verdict, is still needed."""
    flight.call = _SENT
    if flight.settled and flight.chosen is None:
        flight.request = flight.read = replace(flight.request, body=b"", turns=(), noted=None)


def _told_whole(flight: Flight, deployment: Deployment) -> bool:
    """Whether nothing of the request can be lost on the way to this deployment: nearly always."""
    if flight.translation is not None or flight.request.foreign_thoughts or flight.left_out or flight.unset:
        return False
    return deployment.upstream != "litellm"


def _is_object(answer: bytes) -> bool:
    """Whether it looks like a JSON object from outside."""
    if answer[:1] == b"{" and answer[-1:] == b"}":
        return True
    return answer.lstrip()[:1] == b"{" and answer.rstrip()[-1:] == b"}"


def _without(plan: Plan, target: Target) -> Plan:
    return replace(plan, targets=tuple([t for t in plan.targets if t != target]))


def _without_group(plan: Plan, group: str) -> Plan:
    return replace(plan, targets=tuple([t for t in plan.targets if t.group != group]))


def _next(plan: Plan, flight: Flight, failed: PointsmanError | None) -> Target | None:
    """The target after an attempt that failed, or, where there was none yet, the first that is left."""
    if failed is None:
        return _untried(plan, flight)
    return after(plan, flight.attempts, failed, flight.snapshot.config)


def _untried(plan: Plan, flight: Flight) -> Target | None:
    """The next target, where the one before it was passed over without a call."""
    tried = {attempt.deployment for attempt in flight.attempts}
    return next((target for target in plan.targets if target.deployment not in tried), None)


def _nothing_serves(flight: Flight) -> PointsmanError:
    config, signals, decision, load = flight.snapshot.config, flight.signals, flight.decision, flight.load
    if decision is None or signals is None or load is None:
        raise RuntimeError("a flight is relayed only after it was decided")
    return refused_as(decision, flight.policy, config, load, signals, flight.plan)
