"""Plain data onto the dataclasses of `types`, and pydantic's errors into plain sentences at their key.

The sentences name what is wrong, where, and what to write instead. They never quote a value, because any
value may be a secret.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from typing import Any, Final, TypeVar, Union, cast, get_args, get_origin

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from router.config import Deployment, Example, Group, Key, Pin, Policy, ScorerSpec, Tenant
from router.errors import Mistake
from router.policy_files.positions import Document, Path
from router.policy_files.shapes import Shaped, items, mapping

Written = TypeVar("Written", Policy, Deployment, Group, ScorerSpec, Key, Tenant)

ADAPTERS: Final[Mapping[type, TypeAdapter[Any]]] = {
    kind: TypeAdapter(kind) for kind in (Policy, Deployment, Group, ScorerSpec, Key, Tenant)
}

# How a key is spelt in the files where that is not the dataclass's field; None = not written at all.
SPELLING: Final[Mapping[tuple[type, str], str | None]] = {
    (Pin, "ttl_s"): "ttl",
    (Example, "route"): "expect",
    (Example, "group"): None,
    (Deployment, "name"): None,
    (Group, "name"): None,
    (ScorerSpec, "name"): None,
    (ScorerSpec, "options"): None,
    (Key, "name"): None,
    (Tenant, "name"): None,
}

_WANTED: Final = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "dataclass_type": "a mapping of keys to values",
    "dict_type": "a mapping of keys to values",
    "finite_number": "a finite number",
    "float_parsing": "a number",
    "float_type": "a number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a smaller number",
    "int_type": "a whole number",
    "mapping_type": "a mapping of keys to values",
    "string_type": "text (in quotes if it reads as a number)",
    "tuple_type": "a list such as [a, b]",
}


def parse(kind: type[Written], shaped: Shaped, document: Document) -> tuple[Written | None, list[Mistake]]:
    """The value, or None and every mistake in the data."""
    found = [document.mistake(one.path, one.message, at_key=one.at_key) for one in shaped.mistakes]
    if any(one.path == shaped.base for one in shaped.mistakes):
        return None, found  # nothing of it is a mapping: its keys are not missing, they are elsewhere
    try:
        value: Written = ADAPTERS[kind].validate_python(shaped.data)
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False, include_context=True)
        found.extend(_mistakes(kind, shaped, document, details))
        return None, found
    for path in _flags_for_numbers(shaped.data, value):
        found.append(document.mistake(shaped.place(path), "must be a number, not true or false"))
    return (None if found else value), found


def _flags_for_numbers(data: object, value: object, path: Path = ()) -> Iterator[Path]:
    """Where `true` was written and became 1: `tools: true` would ask for exactly one tool."""
    if isinstance(data, bool):
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield path
    elif (inner := mapping(data)) is not None:
        for key, one in inner.items():
            held = mapping(value)
            yield from _flags_for_numbers(one, held.get(key) if held else getattr(value, key, None), (*path, key))
    elif isinstance(value, tuple):
        for index, (one, held) in enumerate(zip(items(data), cast("tuple[object, ...]", value), strict=False)):
            yield from _flags_for_numbers(one, held, (*path, index))


def suggestion(word: str, known: Sequence[str]) -> str:
    """`; did you mean 'small'?`, or what there is to choose from."""
    close = get_close_matches(word, known, n=1, cutoff=0.6) or get_close_matches(word.lower(), known, n=1, cutoff=0.9)
    if close:
        return f"; did you mean '{close[0]}'?"
    return f"; known: {', '.join(known)}" if known else ""


def spelt(kind: type) -> list[str]:
    """A dataclass's keys as the files spell them."""
    names = (SPELLING.get((kind, one.name), one.name) for one in fields(kind))  # pyright: ignore[reportArgumentType]
    return [name for name in names if name is not None]


def _mistakes(kind: type, shaped: Shaped, document: Document, details: Sequence[ErrorDetails]) -> Iterator[Mistake]:
    located = [(*_real(shaped.data, one), one) for one in details]
    paths = {path for path, _, _ in located}
    merged: dict[Path, list[ErrorDetails]] = {}
    for path, tagged, one in located:
        # A union reports each member's complaint; the member that got further in is the one that was meant.
        if tagged and any(len(other) > len(path) and other[: len(path)] == path for other in paths):
            continue
        merged.setdefault(path, []).append(one)
    for path, errors in merged.items():
        if path[:1] == ("name",) and shaped.base:
            continue  # the name is the key, which is text
        yield from _sentence(kind, shaped, document, path, errors)


def _sentence(
    kind: type, shaped: Shaped, document: Document, path: Path, errors: list[ErrorDetails]
) -> Iterator[Mistake]:
    place = shaped.place(path)
    first = errors[0]
    match first["type"]:
        case "missing":
            yield document.mistake(place, f"the key '{path[-1]}' is missing; add it")
        case "unexpected_keyword_argument":
            owner = _dataclass_at(kind, path[:-1])
            known = spelt(owner) if owner is not None else []
            message = f"unknown key '{path[-1]}'{suggestion(str(path[-1]), known)}"
            yield document.mistake(place, message, at_key=True)
        case "literal_error":
            expected = str(first.get("ctx", {}).get("expected", ""))
            yield document.mistake(place, f"must be {'one of ' if ' or ' in expected else ''}{expected}")
        case _:
            wanted = dict.fromkeys(_WANTED.get(one["type"], "of another kind") for one in errors)
            yield document.mistake(place, f"must be {' or '.join(wanted)}")


def _real(data: object, error: ErrorDetails) -> tuple[Path, bool]:
    """The error's path in the data, and whether it ends in a union member's tag (which is not in the data)."""
    path: list[str | int] = []
    here: Any = data
    tagged = False
    for position, step in enumerate(error["loc"]):
        inside = mapping(here)
        if inside is not None and step in inside:
            here = inside[str(step)]
        elif isinstance(step, int) and step < len(items(here)):
            here = items(here)[step]
        elif not (error["type"] == "missing" and position == len(error["loc"]) - 1):
            tagged = True
            continue
        path.append(step)
        tagged = False
    return tuple(path), tagged


def _dataclass_at(kind: object, path: Path) -> type | None:
    """The dataclass whose keys stand at a path below a type."""
    if isinstance(kind, type) and is_dataclass(kind):
        if not path:
            return kind
        hints = typing.get_type_hints(kind)
        return _dataclass_at(hints[path[0]], path[1:]) if path[0] in hints else None
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return next((found for arg in args if (found := _dataclass_at(arg, path)) is not None), None)
    if origin is tuple and path:
        return _dataclass_at(args[0], path[1:])
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping) and path:
        return _dataclass_at(args[1], path[1:])
    return None
