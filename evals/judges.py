"""Verdicts on answers by a reference: exact match, multiple choice, regex. What is put to a model that judges stands in
`router.judging.questions`, which judges live answers too.

Pure: text in, verdict out. Who is asked, and how often, is `live`'s business.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, Literal

from evals.cases import BadData
from router.judging.questions import spoken

Kind = Literal["exact", "choice", "regex", "llm"]
KINDS: Final[tuple[Kind, ...]] = ("exact", "choice", "regex", "llm")

_LONGEST = 100_000  # characters of an answer that a pattern is run over
_FINAL = re.compile(r"(?:answer\s*(?:is|:)|####|\\boxed\{)\s*:?\s*([^\n}]+)", re.IGNORECASE)
_LETTER_SAID = re.compile(
    r"(?i:answer\s*(?:is|:)?)\s*:?\s*[*(\[\"']*(?:([A-Z])\b|([a-z])(?=[).\]*\"']|\s*$))", re.MULTILINE
)
_LETTER_FIRST = re.compile(r"^[*(\[\"'\s]*([A-Z])(?:[)\].:*\"']|[ \t]*$)", re.MULTILINE)
_LETTER_ALONE = re.compile(r"\(([A-Z])\)|(?<![\w'])([B-HJ-Z])(?![\w'])")
_AROUND = " \t\n\r.*_`\"'()[]{}$"


def bare(text: str) -> str:
    """Text for comparing: no case, no marks around it, one form for numbers."""
    out = " ".join(text.casefold().split()).strip(_AROUND)
    number = out.replace(",", "").lstrip("$€£").rstrip("%")
    try:
        return f"{float(number):.10g}"
    except ValueError:
        return out


def exact(answer: str, reference: str) -> float:
    """1 where the whole answer, its last line or what it names as its answer is the reference."""
    said = spoken(answer)
    wanted = bare(reference)
    tries = [said, *said.splitlines()[-1:], *_FINAL.findall(said)[-1:]]
    return float(any(bare(t) == wanted for t in tries))


def letter(answer: str) -> str | None:
    """The option that an answer chooses: the one it names last as its answer, else begins with, else its last."""
    said = spoken(answer)
    named = _LETTER_SAID.findall(said)
    if named:
        return "".join(named[-1]).upper()
    first = _LETTER_FIRST.match(said)
    if first is not None:
        return first.group(1)
    alone = _LETTER_ALONE.findall(said)
    return next((a or b for a, b in reversed(alone)), None)


def choice(answer: str, reference: str) -> float:
    """1 where the option chosen is the reference's letter."""
    return float(letter(answer) == reference.strip(_AROUND).upper()[:1])


def compiled(pattern: str, place: str) -> re.Pattern[str]:
    """A pattern, or `BadData` that says where the one that is none stands."""
    try:
        return re.compile(pattern, re.MULTILINE)
    except re.error as e:
        raise BadData(f"{place}: {pattern!r} is no regular expression: {e}") from e


def checker(kind: Kind, pattern: str | None) -> Callable[[str, str], float]:
    """The judge of one answer by its reference; not for `llm`. Raises `BadData`."""
    if kind == "exact":
        return exact
    if kind == "choice":
        return choice
    if pattern is None:
        return lambda answer, reference: float(
            compiled(reference, "the reference").search(spoken(answer)[:_LONGEST]) is not None
        )
    taken = compiled(pattern, "--pattern")
    if taken.groups < 1:
        raise BadData(f"--pattern: {pattern!r} needs a group in parentheses around the part that is the answer")

    def by_pattern(answer: str, reference: str) -> float:
        found = [m.group(1) or "" for m in taken.finditer(spoken(answer)[:_LONGEST])]
        return float(bool(found) and bare(found[-1]) == bare(reference))

    return by_pattern
