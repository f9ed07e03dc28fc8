"""What the signals of a conversation add to a score of its text: a logistic part that artifacts may hold.

`eval train --from-records` fits it, as only recorded traffic has signals. It stands outside what is remembered of a
prompt: in a tool loop the text stays the same while failures add up. How signals are computed is `router.signals`'.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import exp, log, log1p

from msgspec import Struct

from router.scorers.calibration import Curve
from router.seams import Scorer
from router.types import Abstain, Prompt, Score, Signals

# Counts by their logarithm: the second failure tells more than the twentieth. A first message without tools is 0 in
# every place but the size of its prompt, and so are signals that nobody knows: offline data has none.
FEATURES: dict[str, Callable[[Signals], float]] = {
    "tool_errors": lambda s: log1p(s.tool_errors),
    "repeated_calls": lambda s: log1p(s.repeated_calls),
    "spinning": lambda s: log1p(s.spinning),
    "tool_calls": lambda s: log1p(s.tool_calls),
    "turns": lambda s: log1p(s.turns),
    "tools": lambda s: log1p(s.tools),
    "context_growth": lambda s: log1p(s.context_growth / 1000),
    "input_tokens": lambda s: log1p(s.input_tokens / 1000),
    "phase=explore": lambda s: float(s.phase == "explore"),
    "phase=produce": lambda s: float(s.phase == "produce"),
    "tool_loop": lambda s: float(s.tool_loop),
    "has_images": lambda s: float(s.has_images),
    "wants_json": lambda s: float(s.wants_json),
    "code_share": lambda s: s.code_share,
}
_SURE = 1e-3  # a text's score is taken as no surer than this, so that signals can still move it


def vector(signals: Signals) -> tuple[float, ...]:
    """The features of a conversation, in the order of `FEATURES`."""
    return tuple(read(signals) for read in FEATURES.values())


def logit(value: float) -> float:
    """Log-odds of a score."""
    value = min(1.0 - _SURE, max(_SURE, value))
    return log(value / (1.0 - value))


class Part(Struct, frozen=True, kw_only=True):
    """Logistic in the log-odds of the text's score and in the features. What lies outside `least` and `most`, the
    span that training saw, counts as the nearest that it saw."""

    features: tuple[str, ...]
    weights: tuple[float, ...]
    least: tuple[float, ...]
    most: tuple[float, ...]
    slope: float
    bias: float

    def value(self, told: float, features: tuple[float, ...]) -> float:
        """The score of a text of which `told` is the score by itself."""
        at = self.slope * logit(told) + self.bias
        for weight, least, most, x in zip(self.weights, self.least, self.most, features, strict=True):
            at += weight * min(most, max(least, x))
        return 1.0 / (1.0 + exp(-min(60.0, max(-60.0, at))))

    def effects(self, told: float, signals: Signals) -> list[tuple[str, float]]:
        """What each feature that is not 0 changes, against 0 in its place."""
        x = vector(signals)
        whole = self.value(told, x)
        without = {i: self.value(told, (*x[:i], 0.0, *x[i + 1 :])) for i, value in enumerate(x) if value}
        return [(f"signals.{self.features[i]}", whole - value) for i, value in without.items() if value != whole]


class Signalled:
    """A scorer of texts with the part that reads the signals; `curve` maps what comes out, where it is calibrated."""

    def __init__(self, scorer: Scorer, part: Part, curve: Curve | None = None) -> None:
        self.scorer = scorer
        self.name = scorer.name
        self.part = part
        self._curve = curve

    def score(self, prompt: Prompt) -> Score | Abstain | Awaitable[Score | Abstain]:
        answer = self.scorer.score(prompt)
        if isinstance(answer, Score | Abstain):
            return self._with(answer, prompt)
        return self._await(answer, prompt)

    async def _await(self, answer: Awaitable[Score | Abstain], prompt: Prompt) -> Score | Abstain:
        return self._with(await answer, prompt)

    def _with(self, answer: Score | Abstain, prompt: Prompt) -> Score | Abstain:
        if isinstance(answer, Abstain):
            return answer
        value = self.part.value(answer.value, vector(prompt.signals))
        return Score(scorer=self.name, value=value if self._curve is None else self._curve(value))

    async def aclose(self) -> None:
        await self.scorer.aclose()


def signalled(scorer: Scorer, part: Part | None, curve: Curve | None = None) -> Scorer:
    """The scorer with the part of its artifact; as it is where that has none, and then `curve` is its own business."""
    return scorer if part is None else Signalled(scorer, part, curve)
