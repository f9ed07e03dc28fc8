"""Runs a policy's own examples through `decide`, the function that serves requests, and says what came instead."""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from router.config import Example, Policy, Route
from router.decide import decide
from router.errors import Mistake
from router.policy import examine
from router.policy_files.onto import suggestion
from router.policy_files.positions import Document, Path
from router.policy_files.shapes import items, mapping
from router.types import Abstain, Decision, Load, NeedScore, Score, Signals

_TYPES: Final[Mapping[str, Any]] = typing.get_type_hints(Signals)
_WANTED: Final = {int: "a whole number", float: "a number", bool: "true or false", str: "text (in quotes)"}


def check_examples(document: Document, policy: Policy) -> Iterator[Mistake]:
    """Examples that ask for what cannot be: scores out of range, routes that are not there."""
    names = [route.name for route in policy.routes]
    for index, example in enumerate(policy.examples):
        base: Path = ("examples", index)
        for scorer, score in example.scores.items():
            if score is not None and not 0 <= score <= 1:
                yield document.mistake((*base, "scores", scorer), "a score is from 0 to 1, or null for an abstention")
        if example.route is not None and example.route not in (*names, "default"):
            path = _expect(document, base, "route")
            shown = document.shown(path, example.route)
            shown_names = [document.shown(("routes", number, "name"), name) for number, name in enumerate(names)]
            known = suggestion(example.route, [*shown_names, "default"])
            yield document.mistake(path, f"this policy has no route '{shown}'{known}")


def check_given(document: Document) -> Iterator[Mistake]:
    """Signals that examples are given and that there are not, or not with such values; the policy may be wrong too."""
    for index, example in enumerate(items(document.data.get("examples"))):
        given = mapping((mapping(example) or {}).get("given")) or {}
        for key, value in given.items():
            yield from _check_signal(document, ("examples", index, "given", key), key, value)


def run_examples(document: Document, policy: Policy) -> Iterator[Mistake]:
    """Examples whose decision is not the expected one. The policy must be free of other mistakes."""
    for index, example in enumerate(policy.examples):
        base: Path = ("examples", index)
        given = signals(example)
        came = decide(policy, given, scores(example), None, Load())
        if isinstance(came, NeedScore):
            message = f"this example needs a score: add scores: {{{came.scorer}: 0.7}}, or null for an abstention"
            yield document.mistake(base, message)
            continue
        wrong_route = example.route not in (None, came.route)
        if wrong_route or example.group not in (None, came.group):
            path = _expect(document, base, "route" if wrong_route else "group")
            told = _told(document, index)
            wanted = " and ".join(
                f"{kind} '{document.shown(_expect(document, base, kind), name)}'"
                for kind, name in (("route", example.route), ("group", example.group))
                if name is not None
            )
            why = "; ".join(_why(policy, example, given, came, told))
            message = f"expected {wanted}, but route '{came.route}' leads to group '{came.group}'"
            yield document.mistake(path, f"{message}: {why}" if told else f"expected otherwise: {why}")


def signals(example: Example) -> Signals:
    """The imagined request. Raises `msgspec.ValidationError` for what `check_examples` refuses."""
    return msgspec.convert(dict(example.given), Signals, strict=False)


def scores(example: Example) -> dict[str, Score | Abstain]:
    """What the scorers are imagined to say."""
    return {
        name: Abstain(scorer=name, reason="unsure") if value is None else Score(scorer=name, value=value)
        for name, value in example.scores.items()
    }


def _why(policy: Policy, example: Example, given: Signals, came: Decision, told: bool) -> Iterator[str]:
    match came.why:
        case "score" if came.score is not None and came.threshold is not None:
            side = "below" if came.score < came.threshold else "not below"
            yield f"the score {came.score:g} of {came.scorer} is {side} {came.threshold:g}"
        case "abstain":
            yield f"{came.scorer} abstains, so the default serves"
        case "cascade":
            yield f"the first answer of its cascade is {came.group}'s"
        case "default":
            yield "no route holds, so the default serves"
        case _:
            yield "its condition holds" if told else "an earlier condition holds"
    wanted = next((route for route in policy.routes if route.name == example.route), None)
    if wanted is not None and wanted.name != came.route:
        yield from _why_not(wanted, given, told)


def _why_not(wanted: Route, given: Signals, told: bool) -> Iterator[str]:
    failed = next((one for one in examine(wanted.when, given) if not one.held), None) if wanted.when else None
    if failed is None:
        if wanted.score is None:
            yield f"'{wanted.name}' holds too, but stands below" if told else "the route expected stands below"
    elif told:
        yield f"'{wanted.name}' does not hold: {failed.field} is {failed.value}, not {failed.condition}"
    else:
        yield f"the route expected does not hold because of {failed.field}"


def _told(document: Document, index: int) -> bool:
    """Whether values may be shown: not where variables stand in the conditions, the names or this example."""
    return not any(path[0] in ("routes", "default") or path[:2] == ("examples", index) for path in document.raw)


def _expect(document: Document, base: Path, key: str) -> Path:
    return (*base, "expect", key) if (*base, "expect", key) in document.values else (*base, "expect")


def _check_signal(document: Document, path: Path, key: str, value: object) -> Iterator[Mistake]:
    if key not in _TYPES:
        yield document.mistake(path, f"there is no signal '{key}'{suggestion(key, list(_TYPES))}", at_key=True)
        return
    try:
        msgspec.convert(value, _TYPES[key], strict=False)
    except msgspec.ValidationError:
        yield document.mistake(path, f"must be {_WANTED.get(_TYPES[key], 'a mapping of keys to values')}")
