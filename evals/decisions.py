"""From scores to groups, by the same `decide` as production: scoring many prompts, then one policy over them.

A policy for offline use has one route with one cut; an operator's own policy is used as it is. No metric here.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from evals.cases import BadData
from router import scorers
from router.config import Band, Policy, Route, ScoreRule
from router.decide import decide
from router.policy_files.review import load
from router.scorers import encoder, generative, heads
from router.scorers.lexical import Lexical
from router.scorers.signalled import Signalled, signalled
from router.seams import Scorer
from router.types import Abstain, Decision, Load, Prompt, Score, Signals

Floats = NDArray[np.float64]

WEAK, STRONG = "weak", "strong"
_IN_FLIGHT = 32  # prompts asked at once of a scorer that is waited for


class Scored(Struct, frozen=True, kw_only=True):
    """What a scorer said of each prompt."""

    answers: list[Score | Abstain]

    @property
    def values(self) -> Floats:
        """Scores, nan where it abstained."""
        return np.array([a.value if isinstance(a, Score) else np.nan for a in self.answers])

    @property
    def ranking(self) -> Floats:
        """Scores for ranking: an abstention goes where the policy's default leads, to the strong model first."""
        return np.nan_to_num(self.values, nan=2.0)


def find(name: str, config: Path | None) -> Scorer:
    """A scorer by its name in `config`, by kind, or by the artifact that `eval train` wrote. Raises `BadData`."""
    path = Path(name)
    if generative.is_artifact(path):
        return generative.offline(path)
    if encoder.is_artifact(path):
        return _encoder(path)
    if path.is_dir() or path.suffix == ".npz":
        scorer = Lexical(path.stem or "artifact", path)
        try:
            scorer.load()
        except (heads.Incompatible, OSError) as e:
            raise BadData(str(e)) from e
        return signalled(scorer, scorer.model.signals)
    if config is not None:
        specs = load(config).scorers
        if name not in specs:
            raise BadData(f"{config} has no scorer {name!r}; it has {', '.join(specs)}")
        return scorers.offline(specs[name])
    if name in ("lexical", "difficulty", "default"):
        return Lexical(name)
    if name == "encoder":
        return _encoder(None)
    raise BadData(f"no scorer {name!r}: give an artifact directory, `lexical`, `encoder`, or a name from --config DIR")


def learned_from(scorer: Scorer) -> frozenset[str]:
    """The sha256 of the files that an artifact learned from, as far as it says so."""
    while isinstance(scorer, scorers.Cached | Signalled):
        scorer = scorer.scorer
    model = (
        scorer.model if isinstance(scorer, Lexical) else scorer.heads if isinstance(scorer, encoder.Trained) else None
    )
    data = () if model is None else model.notes.get("data", ())
    return frozenset((data,) if isinstance(data, str) else data)


def _encoder(artifact: Path | None) -> Scorer:
    try:
        part = None if artifact is None else encoder.read(artifact)[0].signals
        return signalled(encoder.offline(artifact), part)
    except ValueError as e:
        raise BadData(str(e)) from e


def score(scorer: Scorer, prompts: Sequence[str]) -> Scored:
    """Ask a scorer of every prompt, many at once where it has to be waited for."""

    async def all_of() -> list[Score | Abstain]:
        gate = asyncio.Semaphore(_IN_FLIGHT)

        async def one(text: str) -> Score | Abstain:
            async with gate:
                answer = scorer.score(Prompt(text=text, signals=Signals(prompt_chars=len(text))))
                return answer if isinstance(answer, Score | Abstain) else await answer

        try:
            return list(await asyncio.gather(*(one(p) for p in prompts)))
        finally:
            await scorer.aclose()

    return Scored(answers=asyncio.run(all_of()))


def one_cut(threshold: float) -> Policy:
    """A policy with a single cut on the score; an abstention goes to the strong group."""
    bands = (Band(group=WEAK, below=threshold), Band(group=STRONG))
    return Policy(
        name="cut",
        models=("auto",),
        default=STRONG,
        routes=(Route(name="difficulty", score=ScoreRule(scorer="difficulty", bands=bands)),),
    )


def banded(edges: Sequence[float], names: Sequence[str]) -> Policy:
    """A policy with one band a group, cheapest first, cut at `edges`; an abstention goes to the last group."""
    if len(edges) != len(names) - 1 or any(b <= a for a, b in itertools.pairwise(edges)):
        given = ", ".join(f"{e:g}" for e in edges)
        raise BadData(f"{len(names)} groups need {len(names) - 1} rising edges of bands, not {given}")
    bands = tuple(Band(group=name, below=edge) for name, edge in zip(names, [*edges, None], strict=True))
    return Policy(
        name="bands",
        models=("auto",),
        default=names[-1],
        routes=(Route(name="difficulty", score=ScoreRule(scorer="difficulty", bands=bands)),),
    )


def groups(policy: Policy, scored: Scored, scorer: str = "difficulty") -> list[str]:
    """The group that production's `decide` gives each prompt, with these scores under the policy's scorer name."""
    out: list[str] = []
    signals, load_ = Signals(), Load()
    for answer in scored.answers:
        made = decide(policy, signals, {scorer: answer}, None, load_)
        if not isinstance(made, Decision):
            raise BadData(f"the policy asks for the score of {made.scorer!r}, which was not computed")
        out.append(made.group)
    return out


def to_strong(policy: Policy, scored: Scored, scorer: str = "difficulty") -> NDArray[np.bool_]:
    """Which prompts go to another group than the policy's smallest."""
    smallest = smallest_group(policy)
    return np.array([g != smallest for g in groups(policy, scored, scorer)])


def smallest_group(policy: Policy) -> str:
    """The group of the easiest band of the policy's first score; the default's where it has none."""
    for route in policy.routes:
        if route.score is not None:
            return route.score.bands[0].group
    return policy.default


def policy_with(config: Path, scorer: str) -> Policy:
    """The first policy of a configuration, by name, that asks for a scorer. Raises `BadData`."""
    policies = load(config).policies
    for name in sorted(policies):
        if any(r.score is not None and r.score.scorer == scorer for r in policies[name].routes):
            return policies[name]
    raise BadData(f"no policy in {config} asks for the scorer {scorer!r}")
