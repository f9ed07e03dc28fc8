"""Narrowing decoded JSON whose shape is not ours to demand: a wrong type reads as absent."""

from __future__ import annotations

import re
from mimetypes import guess_type
from typing import Any, TypeGuard, cast

from router.errors import BadRequest


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


_WORD = re.compile(r"[A-Za-z0-9_.-]{1,40}")


def word(value: Any) -> str:
    """A type's name, fit to be named in an error or a header; anything longer or stranger is not told."""
    return value if isinstance(value, str) and _WORD.fullmatch(value) else ""


def refusal(what: str, where: str, target: str) -> BadRequest:
    """The error for a part of a request that the target has no way to say."""
    return BadRequest(f"`{where}`: {what} cannot be translated to the {target} API that serves this model", param=where)


def unknown(kind: Any, where: str, target: str) -> BadRequest:
    """The error for a part whose type this gateway does not know."""
    name = word(kind)
    return refusal(f"a part of type {name}" if name else "a part of an unknown type", where, target)


def body_objects(value: Any, where: str) -> list[dict[str, Any]]:
    """An array of objects that the API demands. Raises `BadRequest`."""
    if not is_array(value):
        raise BadRequest(f"`{where}` must be an array", param=where)
    for at, item in enumerate(value):
        if not is_object(item):
            raise BadRequest(f"`{where}[{at}]` must be an object", param=f"{where}[{at}]")
    return value


def data_uri(url: str, where: str) -> tuple[str, str] | None:
    """(media type, base64) of a data URI, None for another URL. Raises `BadRequest` where it is not base64."""
    if not url.startswith("data:"):
        return None
    head, comma, data = url[5:].partition(",")
    media, _, encoding = head.partition(";")
    if not comma or not encoding.endswith("base64"):
        raise BadRequest(f"`{where}` is a data URI without base64", param=where)
    return "image/jpeg" if media.lower() == "image/jpg" else media, data  # a name that browsers know and APIs do not


def inline(data: str, name: str) -> str:
    """A file that a client sends as a data URI, or, as OpenAI's document also has it, as bare base64."""
    if not data or data.startswith("data:"):
        return data
    return f"data:{guess_type(name)[0] or 'application/pdf'};base64,{data}"
