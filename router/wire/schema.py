"""Tools and JSON schemas as each dialect demands them, wherever more than one dialect's writer needs it."""

from __future__ import annotations

from typing import Any

from msgspec import DecodeError
from msgspec.json import decode, encode

from router.errors import BadRequest
from router.wire.loose import is_array, is_object, mapping
from router.wire.parts import Choice, Conversation, Tool, ToolUse

# A custom tool takes free text. Where a dialect only has functions, that text is this function's one argument.
INPUT: dict[str, Any] = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}


def parameters(tool: Tool) -> Any:
    """The JSON Schema of a function's arguments, None where the client gave none."""
    return INPUT if tool.custom else tool.schema


def description(tool: Tool) -> str | None:
    """What the tool does; a custom tool's grammar is told in words where it cannot be enforced."""
    grammar = mapping(tool.schema) if tool.custom else {}
    if definition := grammar.get("definition") or mapping(grammar.get("grammar")).get("definition"):
        return f"{tool.description or ''}\n\nThe input must follow this grammar:\n{definition}".strip()
    return tool.description


def grammar(form: Any) -> Any:
    """A custom tool's `format` for Responses; chat completions wraps a grammar once more."""
    inner = mapping(form).get("grammar")
    return {"type": "grammar", **inner} if is_object(inner) else form


def arguments(call: ToolUse) -> str:
    """A call's arguments as JSON text. An empty string means none (T03); what is no JSON stays as it is."""
    return encode({"input": call.arguments}).decode() if call.custom else call.arguments or "{}"


def input_object(call: ToolUse, where: str) -> dict[str, Any]:
    """A call's arguments as the object that Anthropic's API demands. Raises `BadRequest`."""
    try:
        found: Any = decode(arguments(call))
    except (DecodeError, RecursionError):
        found = None
    if not is_object(found):
        raise BadRequest(f"`{where}`: the arguments of a tool call are not a JSON object", param=where)
    return found


def custom_input(text: str) -> str:
    """The free text in a custom tool's arguments; the arguments themselves where a model ignored the schema."""
    try:
        found: Any = decode(text)
    except (DecodeError, RecursionError):
        return text
    inner = mapping(found).get("input")
    return inner if isinstance(inner, str) else text


def allow(said: Conversation, mode: Any, names: list[str]) -> None:
    """A list of allowed tools: offering no others says the same."""
    said.tools = [tool for tool in said.tools if tool.name in names or tool.flat in names]
    said.choice = Choice(mode="required" if mode == "required" else "auto")


def closed(schema: Any) -> Any:
    """A copy in which every object with properties allows no others, as OpenAI's strict mode and Anthropic's structured
    answers demand (Q07)."""
    if is_array(schema):
        return [closed(item) for item in schema]
    if not is_object(schema):
        return schema
    copy = {key: _inside(key, value) for key, value in schema.items()}
    if mapping(copy.get("properties")):
        copy.setdefault("additionalProperties", False)
    return copy


def _inside(key: str, value: Any) -> Any:
    if key in ("properties", "$defs", "definitions") and is_object(value):
        return {name: closed(inner) for name, inner in value.items()}
    return value if key in ("enum", "const", "default", "examples", "required") else closed(value)


def strict(schema: Any) -> bool:
    """Whether OpenAI's strict mode takes this (closed) schema: every object closed, every property required."""
    if is_array(schema):
        return all(strict(item) for item in schema)
    if not is_object(schema):
        return True
    names = set(mapping(schema.get("properties")))
    is_map = schema.get("type") == "object" and not names
    required = schema.get("required")
    if is_map or (
        names and (schema.get("additionalProperties") is not False or not is_array(required) or names - set(required))
    ):
        return False
    inner = [
        v for k, v in schema.items() if k not in ("enum", "const", "default", "examples", "required", "properties")
    ]
    return strict(inner) and strict(list(mapping(schema.get("properties")).values()))
