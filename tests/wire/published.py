"""The published schemas of the three dialects, to hold what leaves the gateway against."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

import anthropic.types as anthropic
from anthropic.types.beta import message_create_params as beta
from anthropic.types.message_create_params import MessageCreateParamsBase
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from pydantic import TypeAdapter
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from router.types import Dialect
from router.wire import sse

_DOCUMENT: dict[str, Any] = json.loads(
    gzip.decompress((Path(__file__).parent / "specs" / "openai.json.gz").read_bytes())
)


def _json_schema(schema: Any) -> Any:
    """OpenAPI 3.0's `nullable`, which the document still uses, as JSON Schema says it; and `anyOf` for `oneOf`,
    whose alternatives overlap in the document (a user's message is two of them)."""
    if isinstance(schema, list):
        return [_json_schema(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: _json_schema(value) for key, value in schema.items() if key != "nullable"}
    if isinstance(one_of := inner.pop("oneOf", None), list):
        inner["anyOf"] = one_of
    return {"anyOf": [inner, {"type": "null"}]} if schema.get("nullable") is True else inner


# The document forgets that the finish reason is null until the end; the service and OpenAI's own SDK do not.
_CHOICE = _DOCUMENT["components"]["schemas"]["CreateChatCompletionStreamResponse"]["properties"]["choices"]["items"]
_CHOICE["properties"]["finish_reason"]["nullable"] = True
_DOCUMENT = _json_schema(_DOCUMENT)
_REGISTRY = Registry().with_resource("openai", Resource.from_contents(_DOCUMENT, default_specification=DRAFT202012))

ANSWER = {"chat": "CreateChatCompletionResponse", "responses": "Response"}
EVENT = {"chat": "CreateChatCompletionStreamResponse"}
REQUEST = {"chat": "CreateChatCompletionRequest", "responses": "CreateResponse"}


@cache
def _validator(name: str) -> Draft202012Validator:
    return Draft202012Validator({"$ref": f"openai#/components/schemas/{name}"}, registry=_REGISTRY)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _openai(name: str, value: Any) -> None:
    found = best_match(_validator(name).iter_errors(value))
    assert found is None, f"{name}: {'/'.join(map(str, found.absolute_path))}: {found.message[:300]}"


def _event_schemas() -> dict[str, str]:
    """The schema of each Responses event by its type, so that a mismatch is told of the right one."""
    schemas = _DOCUMENT["components"]["schemas"]
    names = [ref["$ref"].rsplit("/", 1)[1] for ref in schemas["ResponseStreamEvent"]["anyOf"]]
    return {schemas[name]["properties"]["type"]["enum"][0]: name for name in names}


def check_answer(dialect: Dialect, answer: dict[str, Any]) -> None:
    if dialect == "messages":
        _adapter(anthropic.Message).validate_python(answer)
    else:
        _openai(ANSWER[dialect], answer)


def check_event(dialect: Dialect, name: str, event: dict[str, Any]) -> None:
    if dialect == "messages":
        assert name == event["type"]
        _adapter(anthropic.RawMessageStreamEvent).validate_python(event)
    else:
        assert name == ("" if dialect == "chat" else event["type"])
        _openai(EVENT["chat"] if dialect == "chat" else _event_schemas()[event["type"]], event)


def check_request(dialect: Dialect, body: dict[str, Any]) -> None:
    if dialect != "messages":
        _openai(REQUEST[dialect], body)
        return
    fields = {k: v for k, v in body.items() if k not in ("messages", "tools", "system")}
    _adapter(MessageCreateParamsBase).validate_python({**fields, "messages": []})
    for message in body["messages"]:
        _eagerly(anthropic.UserMessageParam | anthropic.AssistantMessageParam | anthropic.SystemMessageParam, message)
    for tool in body.get("tools", []):
        _eagerly(anthropic.ToolParam, tool)


def _eagerly(kind: Any, value: Any) -> None:
    """The models hold iterators that are validated only when they are read."""
    adapter = _adapter(kind)
    adapter.dump_json(adapter.validate_python(value))


def request_fields(dialect: Dialect) -> set[str]:
    """The names of every published top-level field of a request."""
    if dialect == "messages":
        hints = set(get_type_hints(MessageCreateParamsBase)) | set(get_type_hints(beta.MessageCreateParamsBase))
        return hints | {"stream", "temperature", "top_p", "top_k"}
    return _properties({"$ref": f"#/components/schemas/{REQUEST[dialect]}"})


def _properties(schema: dict[str, Any]) -> set[str]:
    if "$ref" in schema:
        return _properties(_DOCUMENT["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]])
    names = set(schema.get("properties", {}))
    for part in schema.get("allOf", []):
        names |= _properties(part)
    return names


def events(stream: bytes) -> list[tuple[str, Any]]:
    """The events of a stream as (name, decoded data), [DONE] as it is."""
    found = [sse.fields(event) for event in sse.split(stream)]
    return [(name, "[DONE]" if data == b"[DONE]" else json.loads(data)) for name, data in found if data]
