"""How often estimates from judged answers are right, and how soon a worse model is noticed:
`python -m evals.bench.judged`.

Deployments are simulated whose true gap of quality is known: requests are rows of MMLU-Pro, both groups "answer" as two
models did there, rightly or wrongly, and a judge errs in a known way. Deciding, sampling, correcting and estimating are
the gateway's own; only traffic, models and judge are played. In the second part the small group's model is swapped for
a worse one without a word.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import click
import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from evals.cases import Floats, read
from router.config import Band, Judge, Policy, Route, ScorerSpec, ScoreRule
from router.decide import decide
from router.quality import drift, sampling
from router.quality.estimates import DECIDED, Difference, Sample, estimate
from router.quality.judge_error import OUTCOMES, WORTH, Correction, Outcome, correction
from router.scorers import build
from router.types import Decision, Load, Prompt, Score, Signals

DATA = Path(__file__).parent.parent / "data" / "benchmarks" / "mmlu_pro_28models.parquet"
SMALL, LARGE = "Meta-Llama-3_1-8B-Instruct", "Meta-Llama-3_1-70B-Instruct"
# Small groups whose true gap is told: from as good as the large one to far worse.
SMALLS: Final = ("gemini-1.5-flash-002", SMALL, "Llama-2-7b-hf")
SWAPS: Final = {
    "not at all": SMALL,
    "for its own base model": "Meta-Llama-3_1-8B",
    "for Mistral-7B v0.2": "Mistral-7B-Instruct-v0.2",
    "for Llama-2-7b": "Llama-2-7b-hf",
}
# Verdicts of the judge by truth: it overlooks one worse answer in five, and finds some better that are not.
ERRING: Final = {
    "small_worse": (0.8, 0.17, 0.03),
    "same": (0.03, 0.92, 0.05),
    "small_better": (0.03, 0.2, 0.77),
}
LABELS = 100  # labelled pairs of each kind
LOOKS = (50, 100, 200, 400, 800)  # samples
BEFORE = 400  # samples before the swap
MOST = 3000  # samples after it
NEAR: Final = (1, 4)  # how many times likelier a request near the edge is judged
SHARE = 0.05

Integers = NDArray[np.int64]


class Rows:
    """The rows of the data set: their scores, and how right each model was."""

    def __init__(self, count: int | None = None) -> None:
        table = read(DATA)
        keep = slice(0, count)
        self.right: dict[str, Floats] = {
            name: np.array(table.columns[f"correct:{name}"][keep], dtype=np.float64)
            for name in {LARGE, *SMALLS, *SWAPS.values()}
        }
        scorer = build(ScorerSpec(name="difficulty", kind="lexical"))
        found = [scorer.score(Prompt(text=text, signals=Signals())) for text in table.prompts[keep]]
        self.scores = [one.value if isinstance(one, Score) else 0.5 for one in found]


class World:
    """Where the policy sends the rows, how likely each is judged, and what is true of a small group's model."""

    def __init__(self, rows: Rows, small: str = SMALL, near: int = 2) -> None:
        self._right = rows.right
        self.small = small
        self.judge = Judge(share=SHARE, near_share=SHARE * near, within=0.1, group="judge")
        edge = float(np.median(rows.scores))
        bands = (Band(group="small", below=edge), Band(group="large"))
        policy = Policy(
            name="p",
            models=("auto",),
            default="large",
            routes=(Route(name="d", score=ScoreRule(scorer="difficulty", bands=bands)),),
            judge=self.judge,
        )
        self.made: list[Decision] = [_decided(policy, score) for score in rows.scores]
        self.chances: Floats = np.array([sampling.chance(self.judge, made) for made in self.made])
        self.served_small: Floats = np.array([float(made.group == "small") for made in self.made])

    def gap(self, small: str | None = None) -> Floats:
        """By row: the small model's answer minus the large one's."""
        return self._right[small or self.small] - self._right[LARGE]

    def truth(self) -> tuple[float, float]:
        """What the policy truly loses against always large, and gains over always small."""
        gap = self.gap()
        return float((gap * self.served_small).mean()), float((-gap * (1 - self.served_small)).mean())

    def samples(self, rng: np.random.Generator, count: int, small: str | None = None, first: int = 0) -> list[Sample]:
        """So many judged requests: a row is among them as often as it is likely to be judged."""
        rate = float(self.chances.mean())
        rows: Integers = rng.choice(len(self.made), size=count, p=self.chances / self.chances.sum())
        truths = self.gap(small)[rows].astype(int) + 1
        draws = rng.random(count)
        verdicts: list[Outcome] = [OUTCOMES[int(n)] for n in (draws[:, None] > _UP_TO[truths]).sum(axis=1)]
        return [
            Sample(
                id=f"r{number}",
                time=float(number),
                policy="p",
                route="d",
                small="small",
                large="large",
                served=self.made[row].group,
                models="m",
                verdict=verdict,
                by="judge",
                propensity=float(self.chances[row]),
                rate=rate,
                score=self.made[row].score,
            )
            for number, (row, verdict) in enumerate(zip(map(int, rows), verdicts, strict=True), first)
        ]


def _decided(policy: Policy, score: float) -> Decision:
    made = decide(policy, Signals(), {"difficulty": Score(scorer="difficulty", value=score)}, None, Load())
    if not isinstance(made, Decision):
        raise TypeError("a score was given")
    return made


_UP_TO: Floats = np.array([np.cumsum(ERRING[outcome])[:2] for outcome in OUTCOMES])


def labelled(rng: np.random.Generator) -> Correction:
    pairs: list[tuple[Outcome, Outcome]] = []
    for truth in OUTCOMES:
        said: Integers = rng.choice(3, size=LABELS, p=ERRING[truth])
        pairs.extend((truth, OUTCOMES[int(n)]) for n in said)
    found = correction(pairs)
    if isinstance(found, str):
        raise TypeError(found)
    return found


class Covered(Struct, frozen=True, kw_only=True):
    """How often the intervals of one comparison held the truth."""

    against: str  # "to_large" or "to_small"
    near: int
    truth: float
    single_look: dict[int, float | None]  # by samples: of the interval for one look; None where there is none yet
    every_look: float  # of the other, at all looks together
    once_half: float  # half widths at the last look
    half: float


def coverage(world: World, near: int, deployments: int) -> list[Covered]:
    """Of deployments of one world."""
    truths = dict(zip(("to_large", "to_small"), world.truth(), strict=True))
    right: dict[str, dict[int, list[bool]]] = {name: {n: [] for n in LOOKS} for name in truths}
    always = dict.fromkeys(truths, 0)
    halves: dict[str, list[tuple[float, float]]] = {name: [] for name in truths}
    for seed in range(deployments):
        rng = np.random.default_rng(seed)
        error, samples = labelled(rng), world.samples(rng, LOOKS[-1])
        held = dict.fromkeys(truths, True)
        for n in LOOKS:
            found = estimate(samples[:n], widest=sampling.widest(world.judge), error=error)
            for name, truth in truths.items():
                seen: Difference = getattr(found, name)
                held[name] &= seen.low <= truth <= seen.high
                if seen.once is None:
                    continue
                low, high = seen.once
                right[name][n].append(low <= truth <= high)
                if n == LOOKS[-1]:
                    halves[name].append(((high - low) / 2, (seen.high - seen.low) / 2))
        for name in truths:
            always[name] += held[name]
    return [
        Covered(
            against=name,
            near=near,
            truth=truth,
            single_look={n: sum(of) / len(of) if len(of) == deployments else None for n, of in right[name].items()},
            every_look=always[name] / deployments,
            once_half=float(np.mean([one for one, _ in halves[name]])),
            half=float(np.mean([one for _, one in halves[name]])),
        )
        for name, truth in truths.items()
    ]


def swapped(world: World, name: str, deployments: int) -> dict[str, Any]:
    """Samples from the swap to the alarm, and the deployments in which it came at all."""
    took: list[int] = []
    for seed in range(deployments):
        rng = np.random.default_rng(10_000 + seed)
        samples = world.samples(rng, BEFORE) + world.samples(rng, MOST, SWAPS[name], first=BEFORE)
        values = [WORTH[DECIDED[one.verdict]] for one in samples]
        at = drift.fallen(values).first
        if at is not None:
            took.append(at - BEFORE)
    took.sort()
    return {
        "gap": float(world.gap(SWAPS[name]).mean()),
        "alarms": len(took) / deployments,
        "median": took[len(took) // 2] if took else None,
        "nine_in_ten": took[int(0.9 * len(took))] if len(took) >= 0.9 * deployments else None,
    }


def measure(deployments: int) -> dict[str, Any]:
    rows = Rows()
    covered = {
        small: [one for near in NEAR for one in coverage(World(rows, small, near), near, deployments)]
        for small in SMALLS
    }
    usual = World(rows)
    return {
        "deployments": deployments,
        "labels": 3 * LABELS,
        "gaps": {small: float(World(rows, small).gap().mean()) for small in SMALLS},
        "coverage": covered,
        "swaps": {name: swapped(usual, name, max(5, deployments // 5)) for name in SWAPS},
    }


@click.command()
@click.option("--deployments", type=click.IntRange(5, 10_000), default=200, show_default=True, help="Simulated.")
@click.option("--json", "as_json", is_flag=True, help="The figures as JSON.")
def command(deployments: int, as_json: bool) -> None:
    """Simulate deployments with a known gap of quality, and a model that is swapped."""
    result = measure(deployments)
    if as_json:
        click.echo(json.dumps(msgspec.to_builtins(result, str_keys=True), indent=1))
        return
    click.echo(f"{deployments} deployments of each kind, a judge that errs, {result['labels']} labelled pairs")
    click.echo(f"share of intervals that hold the truth, in %: for one look at {LOOKS} samples, and at all of them")
    for small, kinds in result["coverage"].items():
        click.echo(f"small group: {small}, gap {result['gaps'][small]:+.3f}")
        for one in kinds:
            looks = " ".join("    -" if share is None else f"{100 * share:5.1f}" for share in one.single_look.values())
            click.echo(
                f"  near x{one.near} {one.against} {one.truth:+.4f}  one look {looks} (+-{one.once_half:.3f})  "
                f"every look {100 * one.every_look:5.1f} (+-{one.half:.3f})"
            )
    click.echo(f"the small model is swapped after {BEFORE} samples; alarms within {MOST} more")
    for name, one in result["swaps"].items():
        late = f"median {one['median']}, nine in ten within {one['nine_in_ten']}" if one["median"] else ""
        click.echo(f"{name:<24} gap {one['gap']:+.3f}  alarms {100 * one['alarms']:.0f}%  {late}")


if __name__ == "__main__":
    command()
