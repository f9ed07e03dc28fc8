"""The default scorer: surface, kind of work and hashed n-grams of the last user text, under small heads.

It answers at once, on the event loop, in well under a millisecond for a usual prompt. What it knows lies in
an artifact (`heads.load`); the shipped one is rebuilt by `make artifacts`. It abstains on an empty prompt
("empty") and on one that is far from everything it was trained on ("unsure").
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import numpy as np

from router.scorers import heads, text
from router.scorers.features import DENSE, Features, extract
from router.scorers.signalled import vector
from router.types import Abstain, Prompt, Score

SHIPPED = Path(__file__).parent / "artifacts" / "lexical"


class Lexical:
    """Scores a prompt's text with a trained artifact, read once when first needed. What an artifact knows of signals
    is added around it (`signalled`).

    `artifact` is a directory or an npz file; the shipped general scorer when it is None. Raises
    `heads.Incompatible` or OSError from `load` where the artifact cannot be used.
    """

    def __init__(self, name: str, artifact: Path | None = None) -> None:
        self.name = name
        self.artifact = SHIPPED if artifact is None else artifact

    @cached_property
    def model(self) -> heads.Model:
        model = heads.load(self.artifact)
        if model.encoder is not None:
            raise heads.Incompatible(f"{self.artifact} needs an encoder: name it in a scorer of kind `encoder`")
        return model

    def load(self) -> None:
        """Read the artifact now, so that the first request does not wait for it."""
        _ = self.model

    def score(self, prompt: Prompt) -> Score | Abstain:
        return judged(self.name, self.model, extract(text.read(prompt.text)))

    async def aclose(self) -> None:
        """Nothing is held."""


def judged(name: str, model: heads.Model, x: Features) -> Score | Abstain:
    """What a scorer of that name says with this model of a prompt's features."""
    value = model.score(x) if x.reading.worded else None
    if value is None:
        return Abstain(scorer=name, reason="unsure" if x.reading.worded else "empty")
    return Score(scorer=name, value=value)


def explain(scorer: Lexical, prompt: Prompt, top: int = 8) -> list[tuple[str, float]]:
    """The features that move the score most, as (name, change of the score when the feature is set to zero); signals
    among them as `signals.NAME`.

    Positive = makes the prompt look harder. Costs one scoring per feature; not for the hot path.
    """
    x = extract(text.read(prompt.text))
    model = scorer.model
    base = model.score(x)
    if base is None:
        return []
    part, known = model.signals, vector(prompt.signals)
    effects = [] if part is None else part.effects(base, prompt.signals)
    whole = base if part is None else part.value(base, known)
    for column in np.flatnonzero(x.dense):
        dense = x.dense.copy()
        dense[column] = 0.0
        without = model.score(Features(x.reading, x.options, dense))
        if without is not None and without != base:
            effects.append((DENSE[column], whole - (without if part is None else part.value(without, known))))
    return sorted(effects, key=lambda e: -abs(e[1]))[:top]
