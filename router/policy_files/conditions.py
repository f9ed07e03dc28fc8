"""What can be proved of conditions without a request: that one never holds, or holds whenever another does.

Both answers are sound and neither is complete: where nothing can be proved, nothing is said.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, cast, get_args

from router.config import Range, When
from router.errors import Mistake
from router.policy_files.onto import suggestion
from router.policy_files.positions import Document, Path
from router.signals.languages import LANGUAGES
from router.types import Dialect


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Numbers from `low` to `high`; an open end is not among them."""

    low: float = -math.inf
    high: float = math.inf
    low_open: bool = False
    high_open: bool = False

    @property
    def empty(self) -> bool:
        return self.low > self.high or (self.low == self.high and (self.low_open or self.high_open))

    def meet(self, other: Interval) -> Interval:
        """The numbers in both."""
        low, low_open = max((self.low, self.low_open), (other.low, other.low_open))
        high, high_closed = min((self.high, not self.high_open), (other.high, not other.high_open))
        return Interval(low=low, high=high, low_open=low_open, high_open=not high_closed)


# Words of which there is a closed set.
_AMONG: Final[Mapping[str, tuple[str, ...]]] = {
    "dialect": get_args(Dialect),
    "phase": ("explore", "produce", ""),
    "language": (*LANGUAGES, ""),
}
# Signals with a known span; every other number is a count.
_COUNT: Final = Interval(low=0)
_SPANS: Final[Mapping[str, Interval]] = {
    "code_share": Interval(low=0, high=1),
    "hour": Interval(low=0, high=23),
    "weekday": Interval(low=0, high=6),
}
# Those that begin anew, which a range cannot follow.
_ROUND: Final[Mapping[str, str]] = {"hour": "day", "weekday": "week"}


def interval(condition: float | Range) -> Interval:
    """The numbers for which a condition holds."""
    if not isinstance(condition, Range):
        return Interval(low=condition, high=condition)
    closed = Interval(low=_or(condition.at_least, -math.inf), high=_or(condition.at_most, math.inf))
    open_ends = Interval(
        low=_or(condition.above, -math.inf), high=_or(condition.below, math.inf), low_open=True, high_open=True
    )
    return closed.meet(open_ends)


def implies(narrow: When | None, wide: When | None) -> bool:
    """Whether it is certain that `wide` holds whenever `narrow` does."""
    if wide is None:
        return True
    narrow = narrow or When()
    return all(
        _field_implies(one.name, getattr(narrow, one.name), getattr(wide, one.name))
        for one in fields(wide)
        if getattr(wide, one.name) is not None
    )


def check_when(document: Document, path: Path, when: When) -> Iterator[Mistake]:
    """Conditions that never hold or say nothing."""
    for one in fields(when):
        here: Path = (*path, one.name)
        match getattr(when, one.name):
            case bool() | None:
                pass
            case Range() | int() | float() as condition:
                yield from _check_number(document, here, condition, one.name)
            case () if one.name != "all":
                yield document.mistake(here, "an empty list never holds; fill the list or remove the key")
            case _:
                pass
    for name in ("any", "all"):
        inner: tuple[When, ...] = getattr(when, name) or ()
        for index, condition in enumerate(inner):
            yield from check_when(document, (*path, name, index), condition)
    for name, among in _AMONG.items():
        given: str | tuple[str, ...] | None = getattr(when, name)
        for index, word in enumerate(_words(given)):
            if word not in among:
                here = (*path, name) if isinstance(given, str) else (*path, name, index)
                known = suggestion(word, [one for one in among if one])
                message = f"there is no {name} '{document.shown(here, word)}'{known}"
                yield document.mistake(here, message)


def _check_number(document: Document, path: Path, condition: float | Range, name: str) -> Iterator[Mistake]:
    if condition == Range():
        yield document.mistake(path, "a range without a bound says nothing; give one, such as at_least: 2")
    span = _SPANS.get(name, _COUNT)
    wanted = interval(condition)
    if wanted.meet(span).empty:
        limits = f"from {span.low:g} to {span.high:g}" if span.high < math.inf else f"{span.low:g} or more"
        ends = (Interval(low=wanted.low).meet(span), Interval(high=wanted.high).meet(span))
        if name in _ROUND and isinstance(condition, Range) and not any(end.empty for end in ends):
            hint = (
                f"; a span across the end of the {_ROUND[name]} is two: any: [{{{name}: {{at_least: ...}}}}, {{...}}]"
            )
        else:
            hint = ", and no such number fits"
        yield document.mistake(path, f"this never holds: {name} is {limits}{hint}")
    elif name != "code_share" and not isinstance(condition, Range) and condition != int(condition):
        yield document.mistake(path, f"this never holds: {name} is a whole number")


def _field_implies(name: str, narrow: Any, wide: Any) -> bool:
    if narrow is None:
        return False
    if narrow == wide:
        return True
    if name in ("any", "all") or isinstance(wide, bool):
        return False
    if isinstance(wide, Range | int | float):
        inner = interval(narrow).meet(_SPANS.get(name, _COUNT))
        return inner == inner.meet(interval(wide))
    if isinstance(wide, Mapping):
        headers = cast("Mapping[str, Any]", wide)
        return all(key in narrow and set(_words(narrow[key])) <= set(_words(headers[key])) for key in headers)
    return set(_words(narrow)) <= set(_words(wide))


def _words(words: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return (words,) if isinstance(words, str) else words or ()


def _or(bound: float | None, default: float) -> float:
    return default if bound is None else bound
