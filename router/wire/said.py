"""What an answer says, whatever its dialect: its words and tool calls; and whether it has the form that was asked for.

For those who judge a whole answer after it came. What clients are sent is not made from this.
"""

from __future__ import annotations

from typing import Any

from msgspec import DecodeError
from msgspec.json import decode

from router.cascade import Said
from router.errors import BadAnswer, BadRequest
from router.types import Dialect, Request, ToolCall
from router.wire import sse
from router.wire.blocks import Blocks
from router.wire.loose import is_array, is_object, mapping, objects, text
from router.wire.parts import Conversation
from router.wire.translate import SHAPES


def said(dialect: Dialect, data: bytes, *, stream: bool) -> Said | None:
    """What an answer says, from its events or its body; None where it cannot be read. Of several choices the first."""
    try:
        if dialect not in SHAPES:
            return Said(text=_completion(data, stream=stream))
        blocks = Blocks()
        if stream:
            reader = SHAPES[dialect].reader()
            for event in sse.split(data):
                name, found = sse.fields(event)
                for piece in reader.read(name, found) if found else ():
                    blocks.add(piece)
        else:
            for piece in SHAPES[dialect].pieces(mapping(decode(data))):
                blocks.add(piece)
    except (BadAnswer, DecodeError, RecursionError):
        return None
    kinds = [block.kind for block in blocks.blocks]
    calls = [ToolCall(name=b.name, arguments=b.arguments) for b in blocks.blocks if b.kind == "tool"]
    words = "".join([block.text for block in blocks.blocks if block.kind == "text"])
    return Said(text=words, calls=tuple(calls), refused="refusal" in kinds or blocks.reason == "filter")


def _completion(data: bytes, *, stream: bool) -> str:
    """The text of a legacy completion."""
    if not stream:
        bodies = [data]
    else:
        bodies = [found for event in sse.split(data) if (found := sse.fields(event)[1]) and found.strip() != b"[DONE]"]
    chosen = [objects(mapping(decode(body)).get("choices")) for body in bodies]
    return "".join([text(choices[0].get("text")) for choices in chosen if choices])


# --- the form --------------------------------------------------------------------------------------------


def well_formed(request: Request, answer: Said) -> bool | None:
    """Whether the arguments of tool calls fit their tools, or else the text the JSON that was asked for; None where it
    cannot be told. True where there is neither."""
    if not answer.calls and not request.wants_json:
        return True
    if request.dialect not in SHAPES:
        return None
    try:
        asked = SHAPES[request.dialect].read(mapping(decode(request.body)), request.dialect)
        if answer.calls:
            return _calls_fit(asked, answer.calls, all_known=len(asked.tools) >= request.tools)
        if asked.format is None:
            return None
        schema = asked.format.schema
        return _read(answer.text, schema if is_object(schema) else {"type": "object"})
    except (BadRequest, DecodeError, RecursionError):
        return None


def _calls_fit(asked: Conversation, calls: tuple[ToolCall, ...], *, all_known: bool) -> bool | None:
    tools = {tool.flat: tool for tool in asked.tools} | {tool.name: tool for tool in asked.tools}
    told: bool | None = True
    for call in calls:
        tool = tools.get(call.name)
        if tool is None:
            if all_known:
                return False
            told = None  # a tool of the provider's own, whose arguments are no business of the client
        elif not tool.custom and not _read(call.arguments or "{}", mapping(tool.schema) or {"type": "object"}):
            return False
    return told


def _read(written: str, schema: dict[str, Any]) -> bool:
    try:
        value = decode(written)
    except DecodeError:
        return False
    return fits(value, schema, schema)


# --- JSON Schema, as far as models are held to it ---------------------------------------------------------

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
    "integer": (int,),
    "number": (int, float),
}


def fits(value: Any, schema: Any, root: dict[str, Any]) -> bool:
    """Whether a value fits a JSON Schema by its types, members, items, choices and local references.

    Other words of JSON Schema are not looked at: `pattern` would run a caller's regular expression here. Raises
    RecursionError where the schema only refers to itself.
    """
    if schema is False:
        return False
    if not is_object(schema):
        return True
    if "$ref" in schema:
        return fits(value, _referred(text(schema["$ref"]), root), root)
    kinds = schema.get("type")
    if kinds is not None and not any(_is(value, kind) for kind in (kinds if is_array(kinds) else [kinds])):
        return False
    if is_array(schema.get("enum")) and not any(_equal(value, one) for one in schema["enum"]):
        return False
    if "const" in schema and not _equal(value, schema["const"]):
        return False
    if not all(fits(value, part, root) for part in _list(schema, "allOf")):
        return False
    for choice in ("anyOf", "oneOf"):
        if (among := _list(schema, choice)) and not any(fits(value, part, root) for part in among):
            return False
    if is_object(value):
        return _members_fit(value, schema, root)
    if is_array(value):
        return all(fits(item, schema.get("items"), root) for item in value)
    return True


def _equal(a: Any, b: Any) -> bool:
    """As JSON has it, where true is not 1."""
    if is_array(a) and is_array(b):
        return len(a) == len(b) and all(map(_equal, a, b))
    if is_object(a) and is_object(b):
        return a.keys() == b.keys() and all(_equal(value, b[name]) for name, value in a.items())
    return a == b and isinstance(a, bool) == isinstance(b, bool)


def _members_fit(value: dict[str, Any], schema: dict[str, Any], root: dict[str, Any]) -> bool:
    known, others = mapping(schema.get("properties")), schema.get("additionalProperties")
    required = schema.get("required")
    if is_array(required) and any(isinstance(name, str) and name not in value for name in required):
        return False
    return all(fits(inner, known.get(name, others), root) for name, inner in value.items())


def _is(value: Any, kind: Any) -> bool:
    types = _TYPES.get(text(kind))
    if types is None:
        return True
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, types)


def _list(schema: dict[str, Any], word: str) -> list[Any]:
    found = schema.get(word)
    return found if is_array(found) else []


def _referred(pointer: str, root: dict[str, Any]) -> Any:
    """What a local reference points at; anything is allowed where that is nothing, or elsewhere."""
    here: Any = root
    for step in pointer.removeprefix("#").split("/")[1:]:
        here = mapping(here).get(step.replace("~1", "/").replace("~0", "~"))
    return here if pointer.startswith("#") else True
