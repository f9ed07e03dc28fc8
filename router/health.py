"""What is known of each deployment, from its traffic and from what it reports: calls in flight, failures, cooldowns.

Decides nothing about a request: `plan` does, from the `Load` this gives. State is kept by deployment name, so it
survives a reload.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from router.balance import TTFT_MATTERS, slower
from router.config import Config, Deployment
from router.errors import ConnectFailed, PointsmanError, UpstreamStatus
from router.plan import Fault
from router.seams import Others
from router.types import Load, Report

FAILURES_TO_COOL = 3  # one failed answer is noise; a refused connection cools at once
FIRST_COOLDOWN_S = 1.0
LONGEST_COOLDOWN_S = 10.0  # doubling from 1 s, as Envoy's ejection grows; short, since it is how late a return is seen
LONGEST_RETRY_AFTER_S = 300.0
RATE_TO_COOL = 0.3  # share of failures among the last calls, for those that never come three in a row
RATE_LEAST = 20  # calls that such a share is told from
RATE_MOST = 100
PROBE_EVERY_S = 1.0  # where nothing else can serve, a probe that does not end is not waited for longer
CHECKS_TO_COOL = 2
CHECKED_DOWN_S = 3.0  # renewed by each check that fails: longer than one takes
TTFT_WEIGHT = 0.1  # of a new stream in the moving mean
TTFT_FORGOTTEN = 30  # seconds without a stream
_NOTHING_SAID = Report()
_PLACE = ("upstream", "base_url", "api_key", "model", "path", "options")  # of a deployment: where it is, and who asks
MOVED_S = 5.0  # replicas read changed files within 2 s, and tell of what they know until then
KEY_COOLDOWN_S = 30.0  # our own key was refused: only the operator can mend that


class Health:
    """Passive health. One per process."""

    def __init__(self) -> None:
        self._in_flight: dict[str, int] = {}
        self._cooling: dict[str, float] = {}
        self._limited: dict[str, float] = {}  # until when, as the deployment itself said; binds whatever else happens
        self._failures: dict[str, int] = {}
        self._last_error: dict[str, str] = {}
        self._draining: set[str] = set()
        self._reports: Mapping[str, Report] = {}  # replaced whole, never changed: loads share it
        self._said: dict[str, Report] = {}  # as the deployments report it
        self._lacking: dict[str, str] = {}  # what they do not report, in words
        self._ttft: dict[str, tuple[float, int]] = {}  # moving mean, and how many streams since the last `publish`
        self._quiet: dict[str, int] = {}  # how many times in a row there was none
        self._beside: Mapping[str, frozenset[str]] = {}  # the other deployments of its groups
        self._most_out: Mapping[str, int] = {}  # how many of its group may be out before rates are not believed
        self._recent: dict[str, list[int]] = {}  # calls that went well and that failed lately, since a first failure
        self._by_rate: set[str] = set()  # those that cool for their rate alone
        self._probation: dict[str, float] = {}  # cooled for a failure, no answer since -> when the last probe began
        self._probing: dict[str, int] = {}  # probes in flight
        self._now = 0.0
        self._models: dict[str, tuple[str, bool]] = {}  # the model that answers, and whether it is the one asked for
        self.other_models: dict[str, int] = {}  # answers of another model than the one asked for
        self._checked_down: dict[str, int] = {}  # failed checks in a row
        self._elsewhere: Mapping[str, int] = {}  # calls in flight at other replicas
        self._cooling_elsewhere: dict[str, float] = {}  # until when other replicas let a deployment cool
        self._limited_elsewhere: frozenset[str] = frozenset()
        self._known: Mapping[str, Deployment] = {}  # as the configuration in force has them
        self._moved: dict[str, float] = {}  # those that are another place now -> until when others may not know it
        self._later_s = 0.0  # how much longer than they ask for limited deployments are left alone here

    def load(self, now: float) -> Load:
        """What is known now, as a value: it goes into the record."""
        in_flight = self._in_flight.copy()
        for name, count in self._elsewhere.items():
            in_flight[name] = in_flight.get(name, 0) + count
        if not self._cooling and not self._cooling_elsewhere and not self._probation:
            return Load(now, in_flight, reports=self._reports)
        for table in (self._cooling, self._limited, self._cooling_elsewhere):
            for name in [name for name, until in table.items() if until <= now]:
                del table[name]
        self._by_rate &= self._cooling.keys()
        self._now = now
        cooling, limited = self._cooling.copy(), frozenset(self._limited)
        for name, until in self._cooling_elsewhere.items():
            cooling[name] = max(until, cooling.get(name, 0.0))
        if self._limited_elsewhere:
            limited |= self._limited_elsewhere & self._cooling_elsewhere.keys()
        return Load(
            now=now,
            in_flight=in_flight,
            cooling=cooling,
            limited=limited,
            probing={name: self._probation[name] + PROBE_EVERY_S for name in self._probing},
            reports=self._reports,
        )

    def presence(self, now: float) -> tuple[dict[str, int], dict[str, float], tuple[str, ...]]:
        """What other replicas are told: calls in flight, seconds of cooldowns, which of these are limits. Draining is
        this process's own."""
        cooling = {
            name: until - now for name, until in self._cooling.items() if now < until and name not in self._draining
        }
        if self._later_s:
            cooling = {name: max(0.0, s - self._later_s) if name in self._limited else s for name, s in cooling.items()}
        in_flight = {name: count for name, count in self._in_flight.items() if count > 0}
        return in_flight, cooling, tuple(name for name in self._limited if name in cooling)

    def meet(self, others: Others, now: float, later_s: float = 0.0) -> None:
        """Take what other replicas told, in place of what they told before; but limits bind until their time, and
        `later_s` longer. Our own are told without that."""
        self._later_s = later_s
        self._elsewhere = others.in_flight
        self._moved = {name: until for name, until in self._moved.items() if until > now}
        cooling = {name: now + left_s for name, left_s in others.cooling.items() if name not in self._moved}
        limited = {name: cooling[name] + later_s for name in others.limited & cooling.keys()}
        for name in self._limited_elsewhere:
            limited[name] = max(limited.get(name, 0.0), self._cooling_elsewhere.get(name, 0.0))
        limited = {name: until for name, until in limited.items() if until > now}
        self._cooling_elsewhere = {**cooling, **limited}
        self._limited_elsewhere = frozenset(limited)

    @property
    def probation(self) -> bool:
        """Whether any deployment has failed and not answered since."""
        return bool(self._probation)

    def begin(self, deployment: str) -> bool:
        """A call begins, on what `load` said last; whether it is a probe, which is to be told to `end`."""
        self._in_flight[deployment] = self._in_flight.get(deployment, 0) + 1
        if not self._probation or deployment not in self._probation:
            return False
        self._probation[deployment] = self._now
        self._probing[deployment] = self._probing.get(deployment, 0) + 1
        return True

    def end(self, deployment: str, probe: bool = False) -> None:
        self._in_flight[deployment] -= 1
        if probe and (left := self._probing.pop(deployment, 0) - 1) > 0:
            self._probing[deployment] = left

    def answering(self, deployment: str) -> None:
        """Content arrives from it: it gets its share of the requests again. How that ends is told later."""
        self._probation.pop(deployment, None)
        self._probing.pop(deployment, None)

    def succeeded(self, deployment: str, ttft_s: float | None = None) -> None:
        """Forget failures. A limit stands until its time: what ended now may have begun before it was told.
        `ttft_s`: of a stream, how long its first content took."""
        if ttft_s is not None:
            mean, count = self._ttft.get(deployment, (ttft_s, 0))
            self._ttft[deployment] = (mean + TTFT_WEIGHT * (ttft_s - mean), count + 1)
        if deployment in self._recent:
            self._went(deployment, 0)
        if deployment in self._failures:
            del self._failures[deployment]
            self._last_error.pop(deployment, None)
            self.answering(deployment)
            if deployment not in self._draining and deployment not in self._by_rate:
                self._warm(deployment)

    def outrun(self, deployment: str, after_s: float) -> None:
        """Its stream gave nothing for so long, and another was faster: it would have taken no less than that."""
        mean, count = self._ttft.get(deployment, (after_s, 0))
        self._ttft[deployment] = (mean + TTFT_WEIGHT * max(0.0, after_s - mean), count + 1)

    def failed(self, deployment: str, fault: Fault, error: PointsmanError, now: float) -> None:
        """Count a failure that is the deployment's own (`plan.COUNTED`), and cool it when that is due."""
        cooling = self._cooling.get(deployment, 0.0) > now
        # What fails while it cools, a probe or one of many that were in flight, is the same outage: one step for all.
        failures = self._failures[deployment] = max(1, self._failures.get(deployment, 0) + (0 if cooling else 1))
        self._last_error[deployment] = str(error.status) if isinstance(error, UpstreamStatus) else error.code
        cool_s = self._pause_s(deployment, fault, error, failures, now)
        if not cool_s:
            return
        if fault != "limit":
            self._probation[deployment] = now - PROBE_EVERY_S
        until = now + cool_s + (self._later_s if fault == "limit" else 0.0)
        until = max(until, self._limited.get(deployment, 0.0))
        if fault == "limit":
            self._limited[deployment] = until
        if deployment not in self._draining:
            self._cooling[deployment] = until
            self._panic(deployment, now)

    def _pause_s(self, deployment: str, fault: Fault, error: PointsmanError, failures: int, now: float) -> float:
        """Seconds for which it is left alone; 0 where this failure does not say that it should be."""
        in_a_row = failures >= FAILURES_TO_COOL
        if fault == "key" and (in_a_row or error.status != 403):  # a 403 may be for one request's words
            return KEY_COOLDOWN_S
        asked_s, cooling = error.retry_after_s, self._cooling.get(deployment, 0.0) > now
        if asked_s is not None and (cooling or not in_a_row or asked_s >= FIRST_COOLDOWN_S):
            return min(asked_s, LONGEST_RETRY_AFTER_S)
        if cooling:
            return 0.0
        if isinstance(error, ConnectFailed):
            return min(LONGEST_COOLDOWN_S, FIRST_COOLDOWN_S * 2 ** min(failures - 1, 8))
        if in_a_row:
            return min(LONGEST_COOLDOWN_S, FIRST_COOLDOWN_S * 2 ** min(failures - FAILURES_TO_COOL, 8))
        if self._fails_often(deployment, now):
            self._by_rate.add(deployment)
            return LONGEST_COOLDOWN_S
        return 0.0

    def _went(self, deployment: str, how: int) -> list[int]:
        """Count a call that went well (0) or failed (1). What is long ago counts ever less."""
        recent = self._recent.setdefault(deployment, [0, 0])
        recent[how] += 1
        if sum(recent) >= RATE_MOST:
            recent[:] = [recent[0] // 2, recent[1] // 2]
            if not recent[1]:
                del self._recent[deployment]
        return recent

    def _fails_often(self, deployment: str, now: float) -> bool:
        """Whether its share of failures takes it out: not where too many of its group are out already."""
        good, bad = self._went(deployment, 1)
        if good + bad < RATE_LEAST or bad < RATE_TO_COOL * (good + bad) or not self._room(deployment, now):
            return False
        del self._recent[deployment]
        return True

    def _room(self, deployment: str, now: float) -> bool:
        beside = self._beside.get(deployment, ())
        return sum(self._cooling.get(name, 0.0) > now for name in beside) < self._most_out.get(deployment, 0)

    def _panic(self, deployment: str, now: float) -> None:
        """Where more of a group are out than may be, those that merely fail often are better than what is left."""
        for name in self._by_rate.intersection(self._beside.get(deployment, ())):
            if not self._room(name, now):
                self._by_rate.discard(name)
                self.answering(name)
                self._warm(name)

    def served(self, deployment: str, asked: str, reported: str) -> bool:
        """The model that an answer names. True where it is news that this is not the one asked for."""
        before = self._models.get(deployment)
        if before is None or before[0] != reported:
            self._models[deployment] = before_ = (reported, same_model(asked, reported))
        else:
            before_ = before
        if before_[1]:
            return False
        count = self.other_models[deployment] = self.other_models.get(deployment, 0) + 1
        return count == 1

    # --- what is told once a second ---

    def reported(self, deployment: str, report: Report | None, lacking: str = "") -> None:
        """What a deployment says of its load; None where it does not answer."""
        if lacking:
            self._lacking[deployment] = lacking
        else:
            self._lacking.pop(deployment, None)
        if report is None:
            self._said.pop(deployment, None)
            return
        there = (report.running or 0.0) + (report.waiting or 0.0)
        ours = self._in_flight.get(deployment, 0) + self._elsewhere.get(deployment, 0)
        self._said[deployment] = replace(report, elsewhere=max(0.0, there - ours))

    def publish(self) -> None:
        """Put what was told since the last time into the loads to come; called once a second."""
        for name, (mean, count) in list(self._ttft.items()):
            quiet = self._quiet[name] = 0 if count else self._quiet.get(name, 0) + 1
            if quiet > TTFT_FORGOTTEN:  # it may be as fast as any by now: that is found out by sending to it
                del self._ttft[name], self._quiet[name]
            else:
                self._ttft[name] = (mean, 0)
        reports = dict(self._said)
        for name, (mean, _) in self._ttft.items():
            rivals = [self._ttft[other][0] for other in self._beside.get(name, ()) if other in self._ttft]
            if not rivals or slower(max(mean, *rivals), min(mean, *rivals)) < TTFT_MATTERS:
                continue  # it changes nothing, and need not be looked at with every request
            reports[name] = replace(reports.get(name, _NOTHING_SAID), ttft_s=mean)
        self._reports = reports

    def checked(self, deployment: str, up: bool, now: float) -> None:
        """The result of an active check. Two that fail in a row take a deployment out until one passes."""
        if up:
            if self._checked_down.pop(deployment, 0) >= CHECKS_TO_COOL and deployment not in self._draining:
                self._warm(deployment)
            return
        failed = self._checked_down[deployment] = self._checked_down.get(deployment, 0) + 1
        if failed >= CHECKS_TO_COOL:
            self._last_error.setdefault(deployment, "check")
            if deployment not in self._draining:
                self._cooling[deployment] = max(now + CHECKED_DOWN_S, self._cooling.get(deployment, 0.0))

    # --- the operator's switches ---

    def drain(self, deployment: str) -> None:
        """Send nothing new to a deployment until `undrain`."""
        self._draining.add(deployment)
        self._cooling[deployment] = float("inf")

    def undrain(self, deployment: str) -> None:
        self._draining.discard(deployment)
        self._warm(deployment)

    def _warm(self, deployment: str) -> None:
        """End a cooldown, but for a limit's."""
        self._cooling.pop(deployment, None)
        if deployment in self._limited:
            self._cooling[deployment] = self._limited[deployment]

    def use(self, config: Config, now: float = 0.0) -> None:
        """The configuration in force: what it does not have is forgotten, and so is what was found of a deployment that
        is another place by now, or is asked with another key."""
        moved = [name for name, one in config.deployments.items() if _moved(self._known.get(name), one)]
        self._known = config.deployments
        self.keep(config.deployments.keys() - set(moved))
        self._draining &= config.deployments.keys()
        for name in moved:
            self._moved[name] = now + MOVED_S
            self._cooling_elsewhere.pop(name, None)
            if name in self._draining:
                self._cooling[name] = float("inf")
        beside: dict[str, frozenset[str]] = {}
        most_out: dict[str, int] = {}
        for group in config.groups.values():
            most = int(group.max_ejected * len(group.deployments))
            for name in group.deployments:
                beside[name] = beside.get(name, frozenset()).union(group.deployments) - {name}
                most_out[name] = min(most, most_out.get(name, most))
        self._beside, self._most_out = beside, most_out

    def keep(self, deployments: Iterable[str]) -> None:
        """Forget every deployment not named here."""
        names = set(deployments)
        tables: tuple[dict[str, Any], ...] = (
            *(self._cooling, self._limited, self._failures, self._last_error),
            *(self._said, self._lacking, self._ttft, self._quiet, self._checked_down),
            *(self._recent, self._probation, self._probing, self._models),
        )
        for table in tables:
            for gone in table.keys() - names:
                del table[gone]
        for gone in [name for name, count in self._in_flight.items() if name not in names and count == 0]:
            del self._in_flight[gone]

    def view(self, now: float) -> Mapping[str, Mapping[str, Any]]:
        """For the admin port: what `of` says of each deployment."""
        names = {*self._in_flight, *self._cooling, *self._failures, *self._draining}
        return {name: self.of(name, now) for name in names}

    def of(self, name: str, now: float) -> Mapping[str, Any]:
        until = max(self._cooling.get(name, 0.0), self._cooling_elsewhere.get(name, 0.0))
        cooling, draining = until > now, name in self._draining
        return {
            "in_flight": self._in_flight.get(name, 0),
            "cooling_s": round(until - now, 3) if cooling and not draining else 0.0,
            "failures": self._failures.get(name, 0),
            "last_error": self._last_error.get(name),
            "draining": draining,
            "up": not cooling,
            "served_model": self._models.get(name, (None,))[0],
            "other_models": self.other_models.get(name, 0),
            "ttft_s": round(self._ttft[name][0], 4) if name in self._ttft else None,
            "load": None if (report := self._reports.get(name)) is None else to_builtins(report),
            "load_lacks": self._lacking.get(name),
        }


def _moved(was: Deployment | None, is_: Deployment) -> bool:
    """Whether what was found of a deployment says nothing of it any more."""
    return was is not None and any(getattr(was, name) != getattr(is_, name) for name in _PLACE)


def same_model(asked: str, reported: str) -> bool:
    """Whether a reported name may be that of the model asked for: versions are added behind it, owners before it, and a
    file's path and ending around it."""
    one, other = (name.lower().rstrip("/").rpartition("/")[2].removesuffix(".gguf") for name in (asked, reported))
    return other.startswith(one) or one.startswith(other)
