"""How often a canary is rolled back, rightly and wrongly, and when: `python -m evals.bench.canaries`.

Many trials are simulated on the gateway's own `Trials`: conversations of one to twenty requests, of which some fail
much more often than others, times to first token that differ between conversations, and feedback on a fifth of them.
Each scenario makes the tried policy worse in one way, or in none.
"""

from __future__ import annotations

import json
import logging
from random import Random
from typing import Any

import click
from msgspec import Struct

from router.changes import Changes
from router.config import Band, Canary, Config, Policy, Route, ScoreRule, Until, Worse
from router.metrics import Metrics
from router.trials import Trials
from router.types import Decision, Record, Timing

SHARE = 0.3
UNTIL = 1_000
LIMITS = Worse(error_rate=0.02, ttft_p95=0.5, quality_difference=0.05)
MOST = 4 * UNTIL  # requests of the tried policy, after which a trial counts as undecided


class Fault(Struct, frozen=True, kw_only=True):
    """What is worse about the tried policy."""

    errors: float = 0.0  # added to the share of failed requests
    slower_s: float = 0.0  # added to every time to first token
    score: float = 0.0  # taken from every feedback


SCENARIOS = {
    "no worse": Fault(),
    "worse within every limit": Fault(errors=0.01, slower_s=0.25, score=0.025),
    "5 points more errors": Fault(errors=0.05),
    "20 points more errors": Fault(errors=0.2),
    "1 s slower": Fault(slower_s=1.0),
    "feedback 0.2 lower": Fault(score=0.2),
}
_RULE = ScoreRule(scorer="d", bands=(Band(group="small", below=0.5), Band(group="large")))


def _policy(name: str, canary: Canary | None = None) -> Policy:
    return Policy(name=name, models=(name,), default="large", routes=(Route(name="d", score=_RULE),), canary=canary)


STABLE = _policy("stable", Canary(policy="tried", share=SHARE, until=Until(requests=UNTIL), rollback_if=LIMITS))
CONFIG = Config(
    policies={"stable": STABLE, "tried": _policy("tried")},
    models={},
    groups={},
    deployments={},
    scorers={},
    digest="0" * 64,
)


def trial(fault: Fault, seed: int) -> tuple[str, int]:
    """The state that one trial ends in, and the tried policy's requests by then."""
    trials = Trials(Metrics(CONFIG), Changes(None), clock=lambda: 0.0)
    trials.use(CONFIG)
    rng = Random(seed)
    running = trials.of["stable"]
    conversation = 0
    while running.state == "running" and running.sides["tried"].requests < MOST:
        conversation += 1
        name = running.chosen(f"{seed}:{conversation}")
        worse = fault if name == "tried" else Fault()
        fragile = rng.random() < 0.1  # a tenth of the conversations have most of the failures
        failing = (0.15 if fragile else 0.005) + worse.errors
        pace = rng.lognormvariate(-1.0, 0.7)
        liked = rng.betavariate(4, 2)
        for step in range(rng.choice((1, 1, 1, 2, 4, 8, 20))):
            outcome = "upstream_error" if rng.random() < failing else "ok"
            request_id = f"{conversation}.{step}"
            trials.observe(
                Record(
                    id=request_id,
                    time=0.0,
                    policy=name,
                    digest="",
                    dialect="chat",
                    model="stable",
                    stream=True,
                    signals=None,
                    decision=Decision(policy=name, route="d", group="small", why="score"),
                    outcome=outcome,
                    timing=Timing(ttft_s=pace * rng.uniform(0.5, 1.5) + worse.slower_s),
                    session=str(conversation),
                )
            )
            if rng.random() < 0.2:
                trials.opinion(request_id, min(1.0, max(0.0, rng.gauss(liked, 0.1) - worse.score)))
        trials.look()
    return running.state, running.sides["tried"].requests


def measure(count: int) -> dict[str, Any]:
    """By scenario: the share of each ending, and the median requests until it."""
    found: dict[str, Any] = {}
    for name, fault in SCENARIOS.items():
        ends = [trial(fault, seed) for seed in range(count)]
        found[name] = {}
        for state in ("promoted", "running", "rolled_back"):
            took = sorted(requests for ending, requests in ends if ending == state)
            found[name][state] = {"share": len(took) / count, "requests": took[len(took) // 2] if took else None}
    return {"trials": count, "share": SHARE, "until": UNTIL, "scenarios": found}


@click.command()
@click.option("--trials", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Of each scenario.")
@click.option("--json", "as_json", is_flag=True, help="The figures as JSON.")
def command(trials: int, as_json: bool) -> None:
    """Simulate canaries that are worse in known ways, or in none."""
    logging.getLogger("pointsman").setLevel(logging.ERROR)
    result = measure(trials)
    if as_json:
        click.echo(json.dumps(result, indent=1))
        return
    click.echo(
        f"{trials} trials each; share {SHARE}, until {UNTIL} requests; median requests of the canary in brackets"
    )
    for name, ends in result["scenarios"].items():
        told = (
            f"{state.replace('_', ' ')} {100 * end['share']:.0f}%"
            + (f" ({end['requests']})" if end["requests"] else "")
            for state, end in ends.items()
        )
        click.echo(f"{name:<26} {', '.join(told)}")


if __name__ == "__main__":
    command()
