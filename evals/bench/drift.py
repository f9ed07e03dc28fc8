"""How closely a target holds the large group's share while traffic drifts: `python -m evals.bench.drift`.

A day of requests is simulated: scores from a Beta distribution whose mean swings through the day and jumps once, single
questions and conversations with tool loops. Deciding, counting and moving the threshold are the gateway's own `decide`,
`record` and `Steering`; only time and traffic are made up. Beside it, the same traffic with the threshold left alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from random import Random
from typing import Any

import click
from msgspec import Struct

from router.changes import Changes
from router.config import Band, Config, Goal, Limit, Policy, Route, ScoreRule
from router.decide import decide, remember
from router.metrics import Metrics
from router.steering import EVERY, NO_CUTS, Steering
from router.types import Decision, Load, Record, Score, Session, Signals, Target

WANTED = 0.35
BLOCK = 5_000  # requests whose share is looked at: of fewer, chance alone moves it by a point
AGENTS = 0.1  # of the conversations, with this many requests at most between user turns
LOOP = 6
POLICY = Policy(
    name="sim",
    models=("auto",),
    default="large",
    routes=(
        Route(
            name="difficulty",
            score=ScoreRule(scorer="d", bands=(Band(group="small", below=0.5), Band(group="large"))),
        ),
    ),
    target=Goal(large_share=Limit(at_most=WANTED), bounds=(0.2, 0.9)),
)
CONFIG = Config(
    policies={"sim": POLICY}, models={"auto": POLICY}, groups={}, deployments={}, scorers={}, digest="0" * 64
)


class Asked(Struct, frozen=True, kw_only=True):
    """One simulated request."""

    score: float
    conversation: int
    loop: bool


def traffic(count: int, seed: int) -> Iterator[Asked]:
    """A day: the mean difficulty swings by 0.12 to either side, and at 14:24 a harder customer arrives for good."""
    rng = Random(seed)
    made = 0
    conversation = 0
    while made < count:
        day = made / count
        mean = 0.42 + 0.12 * math.sin(2 * math.pi * day) + (0.08 if day > 0.6 else 0.0)
        conversation += 1
        turns = rng.randint(1, 5) if rng.random() < AGENTS else 1
        for _ in range(turns):
            yield Asked(score=rng.betavariate(mean * 4, (1 - mean) * 4), conversation=conversation, loop=False)
            made += 1
            for _ in range(rng.randint(0, LOOP) if turns > 1 else 0):
                yield Asked(score=0.0, conversation=conversation, loop=True)
                made += 1


def simulate(count: int, seed: int, *, steered: bool) -> list[bool]:
    """Whether each request went to the large group."""
    steering = Steering(Metrics(CONFIG), Changes(None), clock=lambda: 0.0)
    if steered:
        steering.use(CONFIG)
    sessions: dict[int, Session] = {}
    large: list[bool] = []
    plain, loop = Signals(), Signals(tool_loop=True)
    for index, asked in enumerate(traffic(count, seed)):
        signals = loop if asked.loop else plain
        session = sessions.get(asked.conversation)
        load = Load(cuts=steering.cuts.get("sim", NO_CUTS))
        made = decide(POLICY, signals, {"d": Score(scorer="d", value=asked.score)}, session, load)
        if not isinstance(made, Decision):
            raise TypeError("a score was given")
        kept = remember(
            POLICY, signals, made, session, key=str(asked.conversation), served=Target(deployment="x", group=made.group)
        )
        if kept is not None:
            sessions = {asked.conversation: kept}  # one conversation after another
        large.append(made.group == "large")
        steering.observe(_record(made))
        if index % EVERY == EVERY - 1:
            steering.look()
    return large


def _record(made: Decision) -> Record:
    return Record(
        id="",
        time=0.0,
        policy="sim",
        digest="",
        dialect="chat",
        model="auto",
        stream=False,
        signals=None,
        decision=made,
    )


def measure(count: int, seeds: int) -> dict[str, Any]:
    """Shares over each whole day, and by how much blocks miss the target, the first of a day left out."""
    arms: dict[str, Any] = {}
    for name, steered in (("steered", True), ("fixed", False)):
        shares: list[float] = []
        missed: list[float] = []
        for seed in range(seeds):
            large = simulate(count, seed, steered=steered)
            blocks = [large[i : i + BLOCK] for i in range(BLOCK, len(large) - BLOCK + 1, BLOCK)]
            shares.append(sum(large) / len(large))
            missed += [abs(sum(block) / BLOCK - WANTED) for block in blocks]
        within = sum(miss <= 0.02 for miss in missed) / len(missed)
        arms[name] = {"share": shares, "worst_block": max(missed), "blocks_within_2_points": within}
    return {"wanted": WANTED, "requests": count, "block": BLOCK, "seeds": seeds, "arms": arms}


@click.command()
@click.option("--requests", type=click.IntRange(10_000), default=100_000, show_default=True, help="In each day.")
@click.option("--seeds", type=click.IntRange(1, 100), default=5, show_default=True, help="Days simulated.")
@click.option("--json", "as_json", is_flag=True, help="The figures as JSON.")
def command(requests: int, seeds: int, as_json: bool) -> None:
    """Simulate drifting traffic with and without a target on the large group's share."""
    result = measure(requests, seeds)
    if as_json:
        click.echo(json.dumps(result, indent=1))
        return
    click.echo(f"target: large share {WANTED}; {seeds} days of {requests} requests; blocks of {BLOCK}")
    for name, arm in result["arms"].items():
        shares = ", ".join(f"{share:.4f}" for share in arm["share"])
        click.echo(f"{name:<8} share of each day {shares}")
        within, worst = 100 * arm["blocks_within_2_points"], 100 * arm["worst_block"]
        click.echo(f"{'':<8} {within:.1f}% of blocks within 2 points of the target, the worst {worst:.1f} points off")


if __name__ == "__main__":
    command()
