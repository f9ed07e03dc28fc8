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
import numpy as np

from evals.cases import Floats, read
from router.config import Band, Judge, Policy, Route, ScorerSpec, ScoreRule
from router.decide import decide
from router.quality import drift, sampling
from router.quality.estimates import DECIDED, Sample, estimate
from router.quality.judge_error import OUTCOMES, WORTH, Correction, Outcome, correction
from router.scorers import build
from router.types import Decision, Load, Prompt, Score, Signals

DATA = Path(__file__).parent.parent / "data" / "benchmarks" / "mmlu_pro_28models.parquet"
SMALL, LARGE = "Meta-Llama-3_1-8B-Instruct", "Meta-Llama-3_1-70B-Instruct"
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
JUDGE = Judge(share=0.05, near_share=0.1, within=0.1, group="judge")


class World:
    """The rows: their scores, how right each model was, and where the policy sends them."""

    def __init__(self, rows: int | None = None) -> None:
        table = read(DATA)
        keep = slice(0, rows)
        self.right = {
            name: np.array(table.columns[f"correct:{name}"][keep], dtype=np.float64)
            for name in (LARGE, *SWAPS.values())
        }
        scorer = build(ScorerSpec(name="difficulty", kind="lexical"))
        found = [scorer.score(Prompt(text=text, signals=Signals())) for text in table.prompts[keep]]
        self.scores = [one.value if isinstance(one, Score) else 0.5 for one in found]
        edge = float(np.median(self.scores))
        bands = (Band(group="small", below=edge), Band(group="large"))
        self.policy = Policy(
            name="p",
            models=("auto",),
            default="large",
            routes=(Route(name="d", score=ScoreRule(scorer="difficulty", bands=bands)),),
            judge=JUDGE,
        )
        self.made: list[Decision] = [self._decided(score) for score in self.scores]
        self.chances: Floats = np.array([sampling.chance(JUDGE, made) for made in self.made])
        self.small: Floats = np.array([float(made.group == "small") for made in self.made])

    def _decided(self, score: float) -> Decision:
        made = decide(self.policy, Signals(), {"difficulty": Score(scorer="difficulty", value=score)}, None, Load())
        if not isinstance(made, Decision):
            raise TypeError("a score was given")
        return made

    def gap(self, small: str = SMALL) -> Floats:
        """By row: the small model's answer minus the large one's."""
        return self.right[small] - self.right[LARGE]

    def truth(self) -> tuple[float, float]:
        """What the policy truly loses against always large, and gains over always small."""
        gap = self.gap()
        return float((gap * self.small).mean()), float((-gap * (1 - self.small)).mean())

    def samples(self, rng: np.random.Generator, count: int, small: str = SMALL, first: int = 0) -> list[Sample]:
        """So many judged requests."""
        gap, rate = self.gap(small), float(self.chances.mean())
        found: list[Sample] = []
        while len(found) < count:
            for row in [int(n) for n in rng.integers(0, len(self.scores), size=count * 4)]:
                made, chance = self.made[row], float(self.chances[row])
                if rng.random() >= chance or len(found) >= count:
                    continue
                truth = OUTCOMES[int(gap[row]) + 1]
                found.append(
                    Sample(
                        id=f"r{first + len(found)}",
                        time=float(first + len(found)),
                        policy="p",
                        route="d",
                        small="small",
                        large="large",
                        served=made.group,
                        models="m",
                        verdict=said(rng, truth),
                        by="judge",
                        propensity=chance,
                        rate=rate,
                        score=made.score,
                    )
                )
        return found


def said(rng: np.random.Generator, truth: Outcome) -> Outcome:
    """What the judge says."""
    return OUTCOMES[int(rng.choice(3, p=ERRING[truth]))]


def labelled(rng: np.random.Generator) -> Correction:
    found = correction((truth, said(rng, truth)) for truth in OUTCOMES for _ in range(LABELS))
    if isinstance(found, str):
        raise TypeError(found)
    return found


def coverage(world: World, deployments: int) -> dict[str, Any]:
    """How often the intervals hold the truth: that for a single look at its one look, the other at every look."""
    truths = dict(zip(("to_large", "to_small"), world.truth(), strict=True))
    once, always = dict.fromkeys(truths, 0), dict.fromkeys(truths, 0)
    halves: dict[str, list[float]] = {name: [] for name in truths}
    for seed in range(deployments):
        rng = np.random.default_rng(seed)
        error, samples = labelled(rng), world.samples(rng, LOOKS[-1])
        held = dict.fromkeys(truths, True)
        for n in LOOKS:
            found = estimate(samples[:n], widest=sampling.widest(JUDGE), error=error)
            for name, truth in truths.items():
                seen = getattr(found, name)
                held[name] &= seen.low <= truth <= seen.high
                if n == LOOKS[-1]:
                    once[name] += seen.once is not None and seen.once[0] <= truth <= seen.once[1]
                    halves[name].append((seen.high - seen.low) / 2)
        for name in truths:
            always[name] += held[name]
    return {
        name: {
            "truth": truth,
            "single_look": once[name] / deployments,
            "every_look": always[name] / deployments,
            "half_width": float(np.mean(halves[name])),
        }
        for name, truth in truths.items()
    }


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


def measure(deployments: int, rows: int | None = None) -> dict[str, Any]:
    world = World(rows)
    return {
        "deployments": deployments,
        "samples": LOOKS[-1],
        "coverage": coverage(world, deployments),
        "swaps": {name: swapped(world, name, max(5, deployments // 5)) for name in SWAPS},
    }


@click.command()
@click.option("--deployments", type=click.IntRange(5, 10_000), default=200, show_default=True, help="Simulated.")
@click.option("--json", "as_json", is_flag=True, help="The figures as JSON.")
def command(deployments: int, as_json: bool) -> None:
    """Simulate deployments with a known gap of quality, and a model that is swapped."""
    result = measure(deployments)
    if as_json:
        click.echo(json.dumps(result, indent=1))
        return
    click.echo(f"{deployments} deployments, {LOOKS[-1]} samples each, a judge that errs, {3 * LABELS} labelled pairs")
    for name, one in result["coverage"].items():
        click.echo(
            f"{name:<9} truth {one['truth']:+.4f}  within the interval for one look {100 * one['single_look']:.1f}%, "
            f"at every look {100 * one['every_look']:.1f}% (+-{one['half_width']:.3f} at the last)"
        )
    click.echo(f"the small model is swapped after {BEFORE} samples; alarms within {MOST} more")
    for name, one in result["swaps"].items():
        late = f"median {one['median']}, nine in ten within {one['nine_in_ten']}" if one["median"] else ""
        click.echo(f"{name:<24} gap {one['gap']:+.3f}  alarms {100 * one['alarms']:.0f}%  {late}")


if __name__ == "__main__":
    command()
