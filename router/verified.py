"""Cascades: the first group's answer is held back, verified, and released or replaced by the second group's.

What an answer is worth is `cascade`'s question, which group then serves `decide`'s, and what may be tried again
`plan.after`'s; calls are the relay's. Here stand the order of these, the scouts that are asked meanwhile, and what
is paid for. Nothing reaches the client before the verdict but comments that keep its stream open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter
from typing import Any

from msgspec.json import decode
from msgspec.structs import replace

from router import policy as policies
from router.answers import WHOLE_LIMIT
from router.cascade import Said, compared, concluded, conclusion, empty, hopeless, refuses, settled
from router.config import Cascade, Deployment
from router.errors import BadAnswer, BadRequest, Overloaded, PointsmanError, RateLimited, UpstreamError
from router.exchange import Exchange, Headers
from router.flight import Flight
from router.health import Health
from router.plan import RETRIED, after, fault_of, plan
from router.relay import Relay
from router.seams import Reply
from router.types import Abstain, Attempt, Checked, Decision, Plan, Prompt, Request, Score, Target
from router.watch import Ticker, watching
from router.wire import CODECS
from router.wire.body import set_fields
from router.wire.logprobs import Logprobs
from router.wire.loose import mapping
from router.wire.said import said, well_formed

Ask = Callable[[Flight, str, Prompt], Awaitable[Score | Abstain]]

_NOT_ON = (b"x-pointsman-", b"content-length:")  # of the head of an answer that was held back


class Held(Exchange):
    """An exchange whose client is ourselves: it keeps the answer. `beyond`: who waits for it."""

    def __init__(self, beyond: Exchange | None = None) -> None:
        super().__init__()
        self._beyond = beyond
        self.head: Headers = []
        self._parts: list[bytes] = []
        self._size = 0

    @property
    def answer_bytes(self) -> bytes:
        return b"".join(self._parts)

    def notice(self, left: Callable[[], None]) -> None:
        """A client that never leaves: the real one is watched beside."""

    def ignore(self) -> None:
        pass

    async def answer(self, status: int, headers: Headers, body: bytes) -> None:
        self.started = self.committed = self.ended = True
        self.head = headers
        self._keep(body)

    async def start_stream(self, headers: Headers) -> None:
        self.started = True
        self.head = headers

    async def stream(self, data: bytes) -> None:
        self.committed = True
        self.writes += 1
        self._keep(data)

    async def ping(self, headers: Headers) -> None:
        if self._beyond is not None:
            await self._beyond.ping(headers)

    async def end(self, data: bytes = b"") -> None:
        self.ended = True
        self._keep(data)

    def _keep(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)
        if self._size > WHOLE_LIMIT:
            raise BadAnswer(f"the upstream's answer is larger than {WHOLE_LIMIT} bytes")


class Verifier:
    """Runs cascades. One per process; holds nothing of a flight."""

    def __init__(self, relay: Relay, health: Health, ticker: Ticker, ask: Ask) -> None:
        self._relay = relay
        self._health = health
        self._ticker = ticker
        self._ask = ask

    async def run(self, flight: Flight) -> None:
        """Answer the client by a cascade; as `Relay.run` where no first group can be asked."""
        made = flight.decision
        cascade = policies.cascade(flight.policy, made.route) if made is not None else None
        if made is None or made.then is None or cascade is None:
            raise RuntimeError("a cascade is run only for a decision of one")
        firsts = policies.first_groups(flight.policy, made.group, made.then)
        if not any(target.group in firsts for target in flight.plan.targets):
            await self._relay.run(flight)
            return
        scouts = Scouts(self._relay, self._ticker, flight, cascade)
        listener = _Listener(flight) if cascade.verify.logprob_at_least is not None else None
        flight.listen = listener
        flight.settled = False
        try:
            held = await self._first(flight, firsts)
            flight.listen = None
            if held is None:
                await scouts.end()
                flight.settled = True
                await self._relay.run(flight)
                return
            flight.attempts[-1] = replace(flight.attempts[-1], usage=flight.tokens())
            checked = await self._check(flight, cascade, held, scouts, listener)
            await scouts.end()
            flight.checked, flight.decision = checked, concluded(made, cascade, checked)
            flight.settled = True
            if flight.decision.why == "verified":
                await _release(flight, held)
            else:
                await self._escalate(flight, held, firsts)
        finally:
            await scouts.end()
            _count_last(flight)

    async def _first(self, flight: Flight, firsts: tuple[str, ...]) -> Held | None:
        """The whole answer of the first group; None where it gave none, with what is left to try in `flight.plan`.

        An answer that breaks off on its way has not been seen by the client, so it is tried elsewhere too.
        """
        whole = flight.plan
        flight.plan = _only(whole, [t.group in firsts for t in whole.targets])
        while True:
            client = flight.exchange
            held = flight.exchange = Held(client)
            try:
                await self._relay.run(flight)
                return held
            except UpstreamError as error:
                following = after(whole, flight.attempts, error, flight.snapshot.config)
                if following is None:
                    raise
            except (BadRequest, Overloaded) as error:  # it cannot be told to any of them, or they are full
                following = next((t for t in whole.targets if t.group not in firsts), None)
                if following is None:
                    raise
                if isinstance(error, BadRequest) and any(a.error is not None for a in flight.attempts):
                    raise
            finally:
                flight.exchange = client
            rest = whole.targets.index(following)
            first = following.group in firsts
            flight.plan = _only(
                whole, [at >= rest and (t.group in firsts) == first for at, t in enumerate(whole.targets)]
            )
            if not first:
                return None

    async def _check(
        self, flight: Flight, cascade: Cascade, held: Held, scouts: Scouts, listener: _Listener | None
    ) -> Checked:
        """What there is to find of the first answer, within the time that the policy gives."""
        request = flight.request
        answer = said(request.dialect, held.answer_bytes, stream=request.stream)
        if answer is None:
            return Checked(valid=None, scouts=len(cascade.scouts))
        found = Checked(
            empty=empty(answer),
            refused=refuses(answer),
            valid=well_formed(request, answer),
            logprob=listener.mean(flight.target) if listener is not None else None,
            scouts=len(cascade.scouts),
        )
        if hopeless(found, cascade):
            return found
        flight.watch.rest(flight.stream_headers if request.stream else None)
        try:
            async with asyncio.timeout(cascade.wait_s):
                while not settled(found := compared(found, answer, scouts.answers), cascade) and scouts.silent:
                    await scouts.another()
                scorer = cascade.verify.scorer
                if scorer is not None and not hopeless(found, cascade):
                    found = replace(found, score=await self._score(flight, scorer, answer, scouts))
        except TimeoutError:
            pass  # what is not there by now cannot tell
        return found

    async def _score(self, flight: Flight, name: str, answer: Said, scouts: Scouts) -> float | None:
        if flight.signals is None:
            return None
        theirs = tuple([conclusion(one) if one is not None else "" for one in scouts.answers])
        prompt = Prompt(text=flight.text, signals=flight.signals, answer=conclusion(answer), scouts=theirs)
        score = await self._ask(flight, name, prompt)
        return score.value if isinstance(score, Score) else None

    async def _escalate(self, flight: Flight, held: Held, firsts: tuple[str, ...]) -> None:
        """The second group's answer; where it cannot serve and falls back on the first, the answer that is there."""
        made, config, signals = flight.decision, flight.snapshot.config, flight.signals
        if made is None or signals is None:
            raise RuntimeError("a cascade escalates only after it was decided")
        kept = _Kept(flight)
        now = self._health.load(asyncio.get_running_loop().time())
        flight.load = load = (
            now if (seen := flight.load) is None else replace(now, cuts=seen.cuts, spent=seen.spent, prefix=seen.prefix)
        )
        whole = plan(made, flight.policy, config, load, signals, flight.draw)
        flight.plan = _only(whole, [t.group not in firsts for t in whole.targets])
        falls_back = any(group in firsts for group in policies.chain_of(flight.policy, made.group))
        try:
            await self._relay.run(flight)
        except (UpstreamError, Overloaded, RateLimited) as error:
            served = fault_of(error) in RETRIED or isinstance(error, Overloaded | RateLimited)
            if flight.exchange.committed or not falls_back or not served:
                raise
            kept.give_back(flight)
            await _release(flight, held)


class Scouts:
    """The scouts of one flight: asked at once, without a stream, each in a task of its own."""

    def __init__(self, relay: Relay, ticker: Ticker, flight: Flight, cascade: Cascade) -> None:
        self._relay = relay
        self._ticker = ticker
        self._of = flight
        self.answers: list[Said | None] = [None] * len(cascade.scouts)
        self._flights: list[Flight] = []
        self._tasks: set[asyncio.Task[None]] = set()
        if not cascade.scouts:
            return
        request = _unstreamed(flight.request)
        loop = asyncio.get_running_loop()
        for at, group in enumerate(cascade.scouts):
            scout = _scout_of(flight, request, group)
            if scout is not None and _has_room(scout, flight):
                self._flights.append(scout)
                self._tasks.add(loop.create_task(self._listen(at, scout)))

    @property
    def silent(self) -> bool:
        """Whether one may still answer."""
        return any(not task.done() for task in self._tasks)

    async def another(self) -> None:
        """Until one more has ended."""
        pending = [task for task in self._tasks if not task.done()]
        await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)

    async def _listen(self, at: int, scout: Flight) -> None:
        held = Held()
        watch = scout.watch = watching(held, self._ticker)
        scout.codec, scout.exchange = CODECS[scout.request.dialect], held
        try:
            await self._relay.run(scout)
            self.answers[at] = said(scout.request.dialect, held.answer_bytes, stream=False)
        except PointsmanError:
            pass  # a scout that cannot answer is a silent one; its attempt says why
        except asyncio.CancelledError:
            if not isinstance(watch.reason(), PointsmanError):
                raise
        finally:
            watch.stop()
            if scout.place is not None:
                scout.place.leave()

    async def end(self) -> None:
        """Stop those that still speak, and enter every call in the flight, before those that were to answer."""
        tasks, self._tasks = self._tasks, set()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.gather(*tasks, return_exceptions=True)
        flights, self._flights = self._flights, []
        calls: list[Attempt] = []
        for scout in flights:
            if scout.place is not None:
                scout.place.leave()  # it may have been stopped before it began
            self._of.tries += scout.tries
            calls += [replace(a, scout=True, usage=scout.usage if a.error is None else None) for a in scout.attempts]
        self._of.attempts[:0] = calls


def _scout_of(flight: Flight, request: Request, group: str) -> Flight | None:
    """The same request on its way to another group; None where that cannot serve it now."""
    decision, load, signals = flight.decision, flight.load, flight.signals
    if decision is None or load is None or signals is None:
        return None
    scout = Flight(flight.caller, flight.snapshot, perf_counter(), flight.draw)
    scout.request, scout.signals, scout.load, scout.carried = request, signals, load, flight.carried
    # The client's key for repeated requests names one call, and this is another.
    scout.forwarded = {name: value for name, value in flight.forwarded.items() if name != "idempotency-key"}
    scout.policy = policies.Asked(model=group, group=group)
    scout.decision = Decision(policy=decision.policy, route=decision.route, group=group, why="asked", set=decision.set)
    scout.plan = plan(scout.decision, scout.policy, flight.snapshot.config, load, signals, flight.draw)
    return scout if scout.plan.targets else None


def _has_room(scout: Flight, beside: Flight) -> bool:
    """Whether its group takes one more call now, which is begun; a scout waits in no line."""
    if beside.place is None:
        return True
    scout.place = beside.place.beside(scout.plan.targets[0].group)
    return scout.place is not None


def _unstreamed(request: Request) -> Request:
    if not request.stream:
        return request
    fields = {"stream": None, "stream_options": None}
    return CODECS[request.dialect].decode(set_fields(request.body, fields))


async def _release(flight: Flight, held: Held) -> None:
    """Send the answer that was held back, byte for byte."""
    exchange = flight.exchange
    headers = [line for line in held.head if not line.startswith(_NOT_ON)]
    headers += flight.headers()
    flight.released(perf_counter())
    if not flight.request.stream:
        await exchange.answer(200, headers, held.answer_bytes)
        return
    if not exchange.started:
        await exchange.start_stream(headers)
    await exchange.stream(held.answer_bytes)
    await exchange.end()


class _Kept:
    """What a flight knows of its first answer, while it asks for the second."""

    def __init__(self, flight: Flight) -> None:
        self._attempt = flight.attempts[-1]
        self._target, self._meter, self._usage = flight.target, flight.meter, flight.usage
        self._status, self._dropped, self._made = flight.status, flight.dropped, flight.made
        self._translation = flight.translation
        flight.usage, flight.made = None, []

    def give_back(self, flight: Flight) -> None:
        flight.target, flight.meter, flight.usage = self._target, self._meter, self._usage
        flight.status, flight.dropped, flight.made = self._status, self._dropped, self._made
        flight.translation = self._translation
        flight.attempts.remove(self._attempt)
        flight.attempts.append(self._attempt)  # the last is the one that served


def _only(whole: Plan, kept: list[bool]) -> Plan:
    return replace(whole, targets=tuple([t for t, keep in zip(whole.targets, kept, strict=True) if keep]))


def _count_last(flight: Flight) -> None:
    """The tokens of the answer that the client got, if it was the second group's."""
    if flight.attempts and not flight.attempts[-1].scout and flight.attempts[-1].usage is None:
        flight.attempts[-1] = replace(flight.attempts[-1], usage=flight.tokens())


# --- log-probabilities -----------------------------------------------------------------------------------


class _Listener:
    """Makes the replies of deployments that give log-probabilities ones that are listened to."""

    def __init__(self, flight: Flight) -> None:
        self._keep = _wants_logprobs(flight.request)
        self._stream = flight.request.stream
        self._heard: dict[str, Logprobs] = {}  # by deployment: two may be asked beside each other

    def mean(self, target: Target | None) -> float | None:
        heard = None if target is None else self._heard.get(target.deployment)
        return None if heard is None else heard.mean

    def __call__(self, deployment: Deployment, reply: Reply) -> Reply:
        self._heard.pop(deployment.name, None)
        if not deployment.logprobs or reply.status != 200:
            return reply
        heard = self._heard[deployment.name] = Logprobs(keep=self._keep, stream=self._stream)
        return _Heard(reply, heard)


class _Heard:
    """A reply on whose log-probabilities somebody listens; `seams.Reply`."""

    ended = False

    def __init__(self, reply: Reply, logprobs: Logprobs) -> None:
        self.status = reply.status
        self.headers: Mapping[str, str] = reply.headers
        self._reply = reply
        self._logprobs = logprobs
        self._size = 0
        self._ended = False

    def whole(self) -> None:
        return None

    def pour(self, take: Callable[[bytes], bool]) -> None:
        return None

    async def read(self) -> bytes:
        while not self._ended:
            data = await self._reply.read()
            self._size += len(data)
            self._ended = not data
            if self._size > WHOLE_LIMIT:
                raise BadAnswer(f"the upstream's answer is larger than {WHOLE_LIMIT} bytes")
            if out := self._logprobs.feed(data):
                return out
        return b""

    async def aclose(self) -> None:
        await self._reply.aclose()


def _wants_logprobs(request: Request) -> bool:
    """Whether the client asked for log-probabilities itself."""
    body: dict[str, Any] = mapping(decode(request.body))
    if request.dialect == "responses":
        included = body.get("include")
        return isinstance(included, list) and "message.output_text.logprobs" in included
    return request.dialect == "chat" and body.get("logprobs") is True
