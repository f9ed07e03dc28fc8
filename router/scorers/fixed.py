"""A scorer that always says the same: for tests, for baselines and for switching a route off. Nothing else."""

from __future__ import annotations

from router.types import Abstain, Prompt, Score


class Fixed:
    """Scores every prompt with `value` in [0, 1], or abstains ("unsure") where it is None."""

    def __init__(self, name: str, value: float | None) -> None:
        if value is not None and not 0.0 <= value <= 1.0:
            raise ValueError(f"value must lie in [0, 1], not {value}")
        self.name = name
        self.value = value

    def score(self, prompt: Prompt) -> Score | Abstain:
        del prompt
        if self.value is None:
            return Abstain(scorer=self.name, reason="unsure")
        return Score(scorer=self.name, value=self.value)

    async def aclose(self) -> None:
        """Nothing is held."""
