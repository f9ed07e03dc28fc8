"""Which answered requests are judged, and the work of it, in the background: the other group's answer, the comparison,
the sample. The caller has its answer before any of it begins, and no caller's request waits for it.

A request is chosen before it is answered, so that its answer can be kept; text stays in memory only for a chosen one,
and only until it is judged. What there is no room for is dropped and counted. Nothing begins while the gateway drains.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, Protocol, get_args

from msgspec import Struct
from msgspec.structs import replace

from router import policy as policies
from router import record, steer
from router.admission import Admission
from router.config import Config, Judge, Policy
from router.errors import Overloaded, PointsmanError
from router.flight import Chosen, Flight, Snapshot
from router.health import Health
from router.judging import alarms, labels, questions
from router.judging.alarms import Alarms
from router.judging.asking import Asker, Copied
from router.judging.ledger import Found, Ledger, models, opinion_of, tell
from router.metrics import Metrics
from router.quality import sampling
from router.quality.estimates import By, Sample, Verdict
from router.quality.judge_error import Correction
from router.quality.sampling import Arms
from router.records import Feedback
from router.relay import Relay
from router.types import Record
from router.watch import Ticker
from router.wire.said import said

log = logging.getLogger("pointsman.judging")

AT_ONCE = 4  # comparisons in the air
MOST_WAITING = 16  # beyond these; each holds a request and its answer
LOOK_S = 1.0
HEAR_S = 10.0  # between two looks at what other workers have judged
ASK_AGAIN_S = 60.0  # a judge that did not answer its labelled pairs
DAY_S = 86_400

Dropped = Literal["busy", "budget", "failed", "unreadable", "elsewhere"]
DROPPED: tuple[Dropped, ...] = get_args(Dropped)


class Kept(Protocol):
    """Where samples and feedback outlive the process. `records.SqlReader` is one."""

    def samples(self, since: float = 0.0, limit: int = 20_000) -> list[Sample]: ...

    def opinions(self, since: float = 0.0, limit: int = 5_000) -> list[tuple[Feedback, Record]]: ...


class Count:
    """What has come of one policy's sampling since the start."""

    def __init__(self) -> None:
        self.might = 0  # requests that might have been judged
        self.chances = 0.0  # their sum
        self.rates: dict[str, list[float]] = {}  # by route: requests that might have been, and the sum of their chances
        self.judged = 0
        self.dropped: Counter[Dropped] = Counter()
        self.cost = 0.0  # US dollars
        self.day = -1
        self.today = 0  # chosen today, by this process
        self.own = 0  # of these, judged
        self.heard = 0  # of these, chosen before others were last heard of
        self.elsewhere = 0  # judged today by others that share the records, or before a restart, when last heard of

    @property
    def spent(self) -> int:
        """Of today's budget, by everybody as far as it is known."""
        return self.elsewhere + self.today


class Task(Struct, frozen=True, kw_only=True):
    """One answer that is to be judged."""

    flight: Flight
    policy: Policy
    judge: Judge
    chosen: Chosen
    arms: Arms
    answer: bytes


class Judging:
    """One per process, on the event loop's thread."""

    def __init__(
        self,
        relay: Relay,
        ticker: Ticker,
        health: Health,
        admission: Admission,
        metrics: Metrics,
        judged: Callable[[str, str, Sequence[steer.Judged]], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.on = False  # some policy is judged, and the gateway does not drain
        self.ledger = Ledger(metrics, judged)
        self.measured: dict[str, labels.Measured] = {}  # by policy
        self.alarms = Alarms(metrics, clock)
        self._health = health
        self._asker = Asker(relay, ticker, health, admission)
        self._metrics = metrics
        self._clock = clock
        self._config: Config | None = None
        self._models: Callable[[str, str], str] = lambda small, large: ""
        self._counts: dict[str, Count] = {}
        self._room = asyncio.Semaphore(AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self._keep: Callable[[Sample], None] = lambda sample: None
        self._reader: Kept | None = None
        self._folder: Path | None = None
        self._hears = False
        self._workers = 1
        self._asks = True
        self._measuring: asyncio.Task[None] | None = None
        self._closed = False

    def outlive(
        self, keep: Callable[[Sample], None], reader: Kept, folder: Path, *, workers: int = 1, first: bool = True
    ) -> None:
        """Where samples are kept and read; one of several `workers`, of which the `first` puts judges their labels."""
        self._keep, self._reader, self._folder = keep, reader, folder
        self._workers, self._asks = workers, first

    def use(self, snapshot: Snapshot) -> None:
        """A configuration comes into force."""
        self._config = config = snapshot.config
        self._models = models(config)
        judged = [policy for policy in config.policies.values() if policy.judge is not None]
        self.on = bool(judged) and not self._closed
        self._hears = bool(judged) or any(policy.explore is not None for policy in config.policies.values())
        self._counts = {policy.name: self._counts.get(policy.name) or Count() for policy in judged}
        self.measured = {}
        self.alarms.forget(("quality", "calibration"), list(self._counts))
        self.alarms.forget(("score_drift", "abstentions", "scorer_latency"), list(config.scorers))
        self.alarms.forget(("served_model",), list(config.deployments))
        self.ledger.fresh = True
        if self._measuring is not None:
            self._measuring.cancel()
        self._measuring = asyncio.get_running_loop().create_task(self._measure(snapshot, judged)) if self.on else None

    # --- on the request's path ---------------------------------------------------------------------------

    def choose(self, flight: Flight) -> None:
        """Once a request is decided: whether its answer is to be judged, and then a copy of it is kept."""
        policy, made, found = flight.policy, flight.decision, flight.signals
        if isinstance(policy, policies.Asked) or policy.judge is None or made is None or found is None:
            return
        judge, request = policy.judge, flight.request
        if request.dialect not in sampling.JUDGED or request.previous is not None:
            return
        if found.has_images or (flight.session is not None and flight.session.holds):
            return  # a judge sees no images, and no other group can be told state of this one
        if made.within and judge.group is not None and judge.group not in made.within:
            return
        if judge.when is not None and not policies.holds(judge.when, found):
            return
        arms, load = sampling.arms(policy, made), flight.load
        if arms is None or load is None:
            return
        if judge.idle is not None and self._busy(flight, arms.other) >= judge.idle:
            return
        count, propensity = self._counts.get(policy.name), sampling.chance(judge, made)
        if count is None:
            return
        rate = self._rate(count, policy.name, made.route, propensity)
        if sampling.draw(flight.caller.id) >= propensity:
            return
        if len(self._tasks) >= AT_ONCE + MOST_WAITING:
            self._drop(policy.name, "busy")
        elif not self._within_budget(count, policy.name, judge):
            self._drop(policy.name, "budget")
        else:
            flight.chosen = Chosen(propensity=propensity, rate=rate)
            flight.exchange = Copied(flight.exchange)
            flight.snapshot.hold()

    def answered(self, flight: Flight, written: Record) -> None:
        """A chosen request has ended; judged is what was answered whole."""
        policy, made, chosen = flight.policy, flight.decision, flight.chosen
        exchange, held = flight.exchange, flight.snapshot
        whole = exchange.whole if isinstance(exchange, Copied) else None
        served = record.group(written)
        if (
            chosen is None
            or isinstance(policy, policies.Asked)
            or policy.judge is None
            or made is None
            or written.outcome != "ok"
            or not self.on
        ):
            held.release()
            return
        arms = sampling.arms(policy, replace(made, group=served)) if served is not None else None
        if arms is None or whole is None:
            self._drop(policy.name, "elsewhere" if arms is None else "unreadable")
            held.release()
            return
        task = Task(flight=flight, policy=policy, judge=policy.judge, chosen=chosen, arms=arms, answer=whole)
        running = asyncio.get_running_loop().create_task(self._run(task))
        self._tasks.add(running)
        running.add_done_callback(self._tasks.discard)
        running.add_done_callback(lambda _: held.release())

    def _busy(self, flight: Flight, group: str) -> float:
        """Requests in flight at a group, anybody's as far as it is known."""
        load, config = flight.load, flight.snapshot.config
        if load is None or group not in config.groups:
            return 0.0
        names = config.groups[group].deployments
        others = (load.reports[name].elsewhere for name in names if name in load.reports)
        return sum(load.in_flight.get(name, 0) for name in names) + sum(others)

    def _rate(self, count: Count, policy: str, route: str, propensity: float) -> float:
        """The mean chance of the route's requests, this one included. It goes on from the newest sample."""
        sums = count.rates.get(route)
        if sums is None:
            before = self.ledger.rate(policy, route)
            sums = count.rates[route] = [0.0, 0.0] if before is None else [1000.0, 1000.0 * before]
        sums[0] += 1
        sums[1] += propensity
        count.might += 1
        count.chances += propensity
        return sums[1] / sums[0]

    def _within_budget(self, count: Count, policy: str, judge: Judge) -> bool:
        """What the day's budget has left, those asked that share it, goes to all workers in equal parts until others
        are heard of again."""
        day = int(self._clock() // DAY_S)
        if day != count.day:
            count.day, count.today, count.own = day, 0, 0
            self._hear_of_others(policy, count)
        left = judge.budget_per_day - count.elsewhere - count.heard
        if count.today - count.heard >= -(-left // self._workers):
            return False
        count.today += 1
        return True

    def _hear_of_others(self, policy: str, count: Count) -> None:
        count.elsewhere = max(0, self.ledger.since(policy, count.day * DAY_S) - count.own)
        count.heard = count.today

    def _drop(self, policy: str, why: Dropped) -> None:
        count = self._counts.get(policy)
        if count is not None:
            count.dropped[why] += 1
            self._metrics.quality_dropped(policy, why)

    # --- beside it ---------------------------------------------------------------------------------------

    async def _run(self, task: Task) -> None:
        async with self._room:
            if not self.on:
                return
            try:
                await self._judge(task)
            except PointsmanError as error:
                self._drop(task.policy.name, "failed")
                log.info("a comparison failed: %s", error.code, extra={"request_id": task.flight.caller.id})
            except Exception:  # the seam: a mistake of ours here is no caller's business
                self._drop(task.policy.name, "failed")
                log.exception("internal error while judging", extra={"request_id": task.flight.caller.id})

    async def _judge(self, task: Task) -> None:
        flight, arms, judge = task.flight, task.arms, task.judge
        mine = said(flight.request.dialect, task.answer, stream=flight.request.stream)
        if mine is None or flight.decision is None or flight.signals is None:
            self._drop(task.policy.name, "unreadable")
            return
        fields = sampling.fields(task.policy, flight.decision.route, arms.other)
        told = await self._asker.again(flight, arms.other, fields)
        small, large = (mine, told.answer) if arms.served == arms.small else (told.answer, mine)
        verdict = questions.checked(judge.checker, flight.request, small, large, judged=judge.group is not None)
        by: By = "checker"
        costs = [told.cost]
        if verdict is None and judge.group is None:
            verdict = "invalid"
        elif verdict is None:
            by = "judge"
            asked = questions.asked(flight.request.turns, flight.text)
            verdict, more = await self._ask(task, asked, questions.shown(small), questions.shown(large))
            costs += more
        known = [cost for cost in costs if cost is not None]
        sample = Sample(
            id=flight.caller.id,
            time=self._clock(),
            policy=task.policy.name,
            route=flight.decision.route,
            small=arms.small,
            large=arms.large,
            served=arms.served,
            models=models(flight.snapshot.config)(arms.small, arms.large),
            verdict=verdict,
            by=by,
            propensity=task.chosen.propensity,
            rate=task.chosen.rate,
            score=flight.decision.score,
            domain=sampling.domain(flight.signals),
            cost=sum(known) if known else None,
        )
        self._take(sample)

    async def _ask(self, task: Task, asked: str, small: str, large: str) -> tuple[Verdict, list[float | None]]:
        """Both orders, so that a liking for a place cancels out; the judge is not told whose answers they are."""
        snapshot, group, id_ = task.flight.snapshot, task.judge.group or "", task.flight.caller.id
        points: list[float | None] = []
        costs: list[float | None] = []
        for first, second in ((small, large), (large, small)):
            messages = questions.comparison(asked, first, second)
            told = await self._asker.judge(snapshot, task.policy.name, group, messages, id_)
            points.append(questions.second_better(told.answer.text))
            costs.append(told.cost)
        return questions.verdict(points[0], points[1]), costs

    def _take(self, sample: Sample) -> None:
        if not self.ledger.add(sample):
            return
        self._keep(sample)
        self._metrics.quality_sample(sample.policy, sample.verdict)
        count = self._counts.get(sample.policy)
        if count is not None:
            count.judged += 1
            count.own += 1
            count.cost += sample.cost or 0.0
        if sample.cost is not None:
            self._metrics.judging_cost(sample.policy, sample.cost)

    # --- what follows ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled: hear of what others have judged, and tell gauges and targets what follows."""
        heard, looked = 0.0, self._clock()
        while True:
            try:
                if self._hears and self._reader is not None and self._clock() - heard >= HEAR_S:
                    heard = self._clock()
                    await self._hear()
                if self.ledger.fresh:
                    self.ledger.fresh = False
                    await self._tell()
                if self._clock() - looked >= alarms.LOOK_S:
                    looked = self._clock()
                    await self._look()
            except Exception:  # a mistake of ours here must not end the watch of the files beside it
                log.exception("quality stays as it was told last")
            await asyncio.sleep(LOOK_S)

    async def _tell(self) -> None:
        found = await self.found()
        self.ledger.publish(found)
        for one in found:
            self.alarms.policy(one.policy, one.calibration, one.fallen)

    async def _look(self) -> None:
        """At scorers and at the models that answered; of every policy, judged or not."""
        counted = await asyncio.to_thread(self._metrics.scorers)
        self.alarms.scorers(
            {name: alarms.Reading(scores=s, seconds=t, abstained=n) for name, (s, t, n) in counted.items()}
        )
        self.alarms.served(self._health.other_models)

    async def _hear(self) -> None:
        if self._reader is None:
            return
        since = max(0.0, self.ledger.newest - 10 * HEAR_S)  # of workers whose clocks or writes are late
        try:
            for sample in await asyncio.to_thread(self._reader.samples, since):
                self.ledger.add(sample)
            for policy, count in self._counts.items():
                self._hear_of_others(policy, count)
            since = max(0.0, self.ledger.heard - 10 * HEAR_S)
            for said, on in await asyncio.to_thread(self._reader.opinions, since):
                self.opinion(said, on)
        except Overloaded:
            pass  # the recorder tells of a database that does not answer

    def opinion(self, said: Feedback, on: Record) -> None:
        """Feedback on a request."""
        if self._config is not None and (found := opinion_of(self._config, said, on)) is not None:
            self.ledger.hear(found)

    async def found(self) -> list[Found]:
        """What samples and feedback say now."""
        config = self._config
        if config is None:
            return []
        held = {name: self.ledger.of(name) for name in self._counts}
        said = {name: self.ledger.opinions(name) for name in config.policies}
        return await asyncio.to_thread(tell, config, held, said, self.errors())

    def errors(self) -> dict[str, Correction]:
        return {name: one.correction for name, one in self.measured.items() if one.correction is not None}

    async def _measure(self, snapshot: Snapshot, judged: Sequence[Policy]) -> None:
        """Put judges their labelled pairs, where they have not been put before."""
        for policy in judged:
            group = policy.judge.group if policy.judge is not None else None
            if group is None:
                continue

            async def ask(messages: list[dict[str, str]], id_: str, of: str = policy.name, to: str = group) -> str:
                return (await self._asker.judge(snapshot, of, to, messages, id_)).answer.text

            while True:
                try:
                    found = await labels.measure(snapshot.config, policy, self._folder, ask if self._asks else None)
                except PointsmanError as error:
                    log.warning("the judge of policy %s did not answer: %s", policy.name, error.code)
                    found = labels.Measured(why="the judge has not answered the labelled pairs yet", later=True)
                self.measured[policy.name] = found
                self.ledger.fresh = True
                if not found.later:
                    break
                await asyncio.sleep(ASK_AGAIN_S)

    def count(self, policy: str) -> Count:
        """What has come of a policy's sampling since the start."""
        return self._counts.get(policy) or Count()

    async def aclose(self) -> None:
        """End what runs, and begin nothing more. Idempotent."""
        self.on, self._closed = False, True
        tasks = [*self._tasks, *([self._measuring] if self._measuring is not None else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.gather(*tasks, return_exceptions=True)
