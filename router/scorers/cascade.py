"""The score of a cascade: how likely the first answer is wrong, by the prompt and by what the scouts say to it.

Its artifact is written by `pointsman eval train --cascade`: one model of the prompt, and one over the agreement, the
first model's views and the prompt's form. It abstains where there is no answer yet ("missing"), where the answer
cannot be compared ("empty"), and where there are more or fewer scouts than it was trained with ("unsure").
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct

from router.scorers import heads, text
from router.scorers.features import DENSE, Features, extract
from router.types import Abstain, Prompt, Score

KEPT = [DENSE.index(n) for n in ("options", "log_chars", "numbers", "formula_share", "negation", "option_numeric")]
JOINT = "cascade"  # the folder in an artifact that holds the second model


def agreement(answer: str, scouts: Sequence[str]) -> list[float]:
    """How the answers to one prompt agree: shares, counts, and each scout by itself. "" is no answer."""
    votes = Counter([said for said in (answer, *scouts) if said])
    most = max(votes.values(), default=0)
    same = [float(bool(answer) and said == answer) for said in scouts]
    return [
        sum(same) / len(scouts),
        float(len(votes)),
        float(most),
        float(bool(answer) and votes[answer] == most),
        max((n for said, n in votes.items() if said != answer), default=0) / len(scouts),
        float(not answer),
        float(sum(1 for said in scouts if said)),
        *same,
    ]


class Model(Struct, frozen=True, kw_only=True):
    """A whole artifact: one head for each view of the prompt, and one head over everything."""

    prompt: heads.Model
    joint: heads.Model
    scouts: int

    def score(self, x: Features, answer: str, scouts: Sequence[str]) -> float:
        """Calibrated chance that the answer is wrong."""
        seen = [head.raw(x) for head in self.prompt.heads.values()]
        row = np.array([*agreement(answer, scouts), *seen, *x.dense[KEPT]], dtype=np.float32)
        (joint,) = self.joint.heads.values()
        return joint.score(Features(x.reading, x.options, row))


def load(artifact: Path) -> Model:
    """Read an artifact. Raises ValueError where it cannot be used."""
    try:
        prompt, joint = heads.load(artifact), heads.load(artifact / JOINT)
    except OSError as error:
        raise ValueError(
            f"{artifact} is not a cascade artifact, which `pointsman eval train --cascade` writes: {error}"
        ) from error
    return Model(prompt=prompt, joint=joint, scouts=int(joint.notes["scouts"]))


class Cascade:
    """Scores a first answer; `seams.Scorer`. Answers at once."""

    def __init__(self, name: str, artifact: Path) -> None:
        self.name = name
        self.model = load(artifact)

    def score(self, prompt: Prompt) -> Score | Abstain:
        if prompt.scouts is None:
            return Abstain(scorer=self.name, reason="missing")
        if not prompt.answer:
            return Abstain(scorer=self.name, reason="empty")
        if len(prompt.scouts) != self.model.scouts:
            return Abstain(scorer=self.name, reason="unsure")
        value = self.model.score(extract(text.read(prompt.text)), prompt.answer, prompt.scouts)
        return Score(scorer=self.name, value=min(1.0, max(0.0, value)))

    async def aclose(self) -> None:
        """Nothing is held."""
