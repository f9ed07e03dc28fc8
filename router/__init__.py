"""Pointsman: an LLM request router and agent gateway. `docs/design.md` is the map of this package."""

__version__ = "0.1.0"
