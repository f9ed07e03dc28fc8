"""Narrowing decoded JSON whose shape is not ours to demand: a wrong type reads as absent."""

from __future__ import annotations

from typing import Any, TypeGuard, cast


def is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def is_array(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def mapping(value: Any) -> dict[str, Any]:
    """The object, or an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def objects(value: Any) -> list[dict[str, Any]]:
    """The objects of an array; what else is in it is left out."""
    return [v for v in cast("list[Any]", value) if is_object(v)] if isinstance(value, list) else []


def text(value: Any) -> str:
    """The string, or an empty one."""
    return value if isinstance(value, str) else ""


def count(value: Any) -> int | None:
    """A whole number of at least 0, else None."""
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 else None
