"""A scorer that believes a number in a request header, for callers that know their own difficulty."""

from __future__ import annotations

from router.types import Abstain, Prompt, Score


class Header:
    """Reads `header` from the signals; abstains where it is absent ("missing") or not in [0, 1] ("error")."""

    def __init__(self, name: str, header: str) -> None:
        self.name = name
        self.header = header.lower()

    def score(self, prompt: Prompt) -> Score | Abstain:
        given = prompt.signals.headers.get(self.header)
        if given is None:
            return Abstain(scorer=self.name, reason="missing")
        try:
            value = float(given)
        except ValueError:
            return Abstain(scorer=self.name, reason="error")
        if not 0.0 <= value <= 1.0:  # also refuses nan
            return Abstain(scorer=self.name, reason="error")
        return Score(scorer=self.name, value=value)

    async def aclose(self) -> None:
        """Nothing is held."""
