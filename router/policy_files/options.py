"""The options of each scorer and upstream kind, so that a mistake in them is told at its place and before a start.

The kinds themselves have the last word; tests hold these tables to them. A kind that is not in its table has its
options unchecked here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from router.errors import Mistake
from router.policy_files.onto import suggestion
from router.policy_files.positions import Document, Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """What one option may hold; null stands for its default."""

    kind: Literal["text", "number", "whole", "flag", "choice"] = "text"
    least: float = 0
    most: float = float("inf")
    among: tuple[str, ...] = ()  # the choices


Table = Mapping[str, Mapping[str, Option]]

SCORERS: Final[Table] = {
    "lexical": {"artifact": Option()},
    "encoder": {
        "artifact": Option(),
        "model": Option(),
        "threads": Option(kind="whole", least=1),
        "deadline_s": Option(kind="number", least=0.001),
        "queue": Option(kind="whole", least=1),
        "batch": Option(kind="whole", least=1),
        "calibration": Option(),
    },
    "fixed": {"value": Option(kind="number", most=1)},
    "header": {"header": Option()},
    "remote": {
        "url": Option(),
        "model": Option(),
        "api_key": Option(),
        "mode": Option(kind="choice", among=("logprobs", "json")),
        "deadline_s": Option(kind="number", least=0.001),
        "both_orders": Option(kind="flag"),
        "no_thinking": Option(kind="flag"),
        "calibration": Option(),
    },
    "generative": {
        "model": Option(),
        "revision": Option(),
        "local_files_only": Option(kind="flag"),
        "device": Option(),
        "threads": Option(kind="whole", least=1),
        "deadline_s": Option(kind="number", least=0.001),
        "queue": Option(kind="whole", least=1),
        "batch": Option(kind="whole", least=1),
        "artifact": Option(),
        "calibration": Option(),
    },
    "cascade": {"artifact": Option()},
}
UPSTREAMS: Final[Table] = {
    "openai": {},
    "local": {
        "threads": Option(kind="whole", least=1),
        "context": Option(kind="whole", least=256),
        "parallel": Option(kind="whole", least=1),
        "sha256": Option(),
    },
    "scripted": {
        "text": Option(),
        "status": Option(kind="whole", least=100, most=599),
        "delay_s": Option(kind="number"),
        "gap_s": Option(kind="number"),
    },
}


def check_options(
    document: Document, base: Path, table: Table, kind: str, given: Mapping[str, object]
) -> Iterator[Mistake]:
    """Options that the kind does not have, or that hold what it cannot use."""
    known = table.get(kind)
    if known is None:
        return
    for name, value in given.items():
        path = (*base, name)
        option = known.get(name)
        if option is None:
            message = f"{kind} has no option '{name}'{suggestion(name, list(known))}"
            yield document.mistake(path, message, at_key=True)
        elif value is not None and (wanted := _wanted(option, value)):
            yield document.mistake(path, f"must be {wanted}")


def _wanted(option: Option, value: object) -> str | None:
    """What the option wants, where the value is not that."""
    if option.kind == "text":
        return None if isinstance(value, str) else "text (in quotes if it reads as a number)"
    if option.kind == "flag":
        return None if isinstance(value, bool) else "true or false"
    if option.kind == "choice":
        return None if value in option.among else " or ".join(option.among)
    kinds = int if option.kind == "whole" else int | float
    if isinstance(value, kinds) and not isinstance(value, bool) and option.least <= value <= option.most:
        return None
    name = "a whole number" if option.kind == "whole" else "a number"
    span = (
        f", {option.least:g} or more" if option.most == float("inf") else f" from {option.least:g} to {option.most:g}"
    )
    return name + span
