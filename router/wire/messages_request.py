"""Requests between Anthropic messages and `Conversation`. The top-level fields are in `fields.ROWS`."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

from msgspec.json import encode

from router.errors import BadRequest
from router.types import Dialect
from router.wire import schema
from router.wire.loose import (
    body_objects,
    count,
    data_uri,
    is_array,
    is_object,
    mapping,
    objects,
    refusal,
    text,
    unknown,
    word,
)
from router.wire.parts import (
    Choice,
    Conversation,
    File,
    Format,
    Image,
    Message,
    Part,
    Refusal,
    Text,
    Thinking,
    Tool,
    ToolOutput,
    ToolUse,
    returned,
    saying,
)
from router.wire.provenance import unsealed

MAX_TOKENS = 8192  # what the API demands and other dialects may leave out
_EFFORT_BUDGETS = ((2048, "low"), (8192, "medium"))  # thinking tokens up to which an effort is meant; above, high

# Records of what Anthropic's own tools did in earlier turns: not the conversation itself.
_SERVER_BLOCKS = (
    "server_tool_use",
    "web_search_tool_result",
    "web_fetch_tool_result",
    "code_execution_tool_result",
    "bash_code_execution_tool_result",
    "text_editor_code_execution_tool_result",
    "tool_search_tool_result",
    "mcp_tool_use",
    "mcp_tool_result",
)
_NOT_IN_IDS = re.compile(r"[^a-zA-Z0-9_-]")

# --- reading ---------------------------------------------------------------------------------------------


def read(body: dict[str, Any], target: Dialect) -> Conversation:
    """A messages body as a conversation. Raises `BadRequest` for what `target` cannot be told."""
    said = Conversation(messages=[], stream=body.get("stream") is True, max_tokens=count(body.get("max_tokens")))
    if body.get("system"):
        parts = _content(body["system"], "system", said, target)
        said.messages.append(Message(role="system", parts=saying("system", parts, "system", target)))
    for at, message in enumerate(body_objects(body.get("messages"), "messages")):
        where = f"messages[{at}]"
        role = text(message.get("role"))
        if role not in ("user", "assistant", "system"):
            raise refusal("a message with this role", f"{where}.role", target)
        said.drop_rest("messages", message, "role", "content")
        parts = _content(message.get("content"), f"{where}.content", said, target)
        message = Message(role=role, parts=saying(role, parts, f"{where}.content", target))
        if said.messages and _is_one(said.messages[-1], message):
            message = Message(role=role, parts=(*said.messages.pop().parts, *message.parts))
        said.messages.append(message)
    stop = body.get("stop_sequences")
    said.stop = [s for s in stop if isinstance(s, str)] if is_array(stop) else []
    metadata = mapping(body.get("metadata"))
    said.drop_rest("metadata", metadata, "user_id")
    if user := text(metadata.get("user_id")):
        if len(user) <= 64:  # OpenAI's limit for identifiers of users
            said.user = user
        else:
            said.drop("metadata.user_id")
    _output(body, said)
    _tools(body, said, target)
    return said


def _is_one(before: Message, message: Message) -> bool:
    """Whether two messages are one in the other dialects: this API takes neighbours of one role for one, so the calls
    of a turn and what they returned may stand in several (T05)."""
    if before.role != message.role or message.role == "system":
        return False
    return message.role == "assistant" or any(isinstance(part, ToolOutput) for part in message.parts)


def _content(content: Any, where: str, said: Conversation, target: Dialect) -> list[Part]:
    if content is None:
        return []
    if isinstance(content, str):
        return [Text(text=content)]
    parts: list[Part] = []
    for at, part in enumerate(body_objects(content, where)):
        if part.get("type") in _SERVER_BLOCKS:
            said.drop(f"content.{part['type']}")
        else:
            parts.append(_part(part, f"{where}[{at}]", said, target))
    return parts


def _part(part: dict[str, Any], where: str, said: Conversation, target: Dialect) -> Part:
    kind, cache = part.get("type"), part.get("cache_control")
    match kind:
        case "text":
            said.drop_rest("content", part, "type", "cache_control", "text")
            return Text(text=text(part.get("text")), cache=cache)
        case "image":
            return _image(mapping(part.get("source")), f"{where}.source", target, cache)
        case "document":
            said.drop_rest("content", part, "type", "cache_control", "source", "title")
            return _document(part, where, said, target)
        case "tool_use":
            said.drop_rest("content", part, "type", "cache_control", "id", "name", "input")
            arguments = encode(part.get("input") or {}).decode()
            return ToolUse(id=text(part.get("id")), name=text(part.get("name")), arguments=arguments, cache=cache)
        case "tool_result":
            said.drop_rest("content", part, "type", "cache_control", "tool_use_id", "content", "is_error")
            inner = _content(part.get("content"), f"{where}.content", said, target)
            kept = returned(inner, f"{where}.content", target)
            error = part.get("is_error") is True
            return ToolOutput(id=text(part.get("tool_use_id")), parts=kept, error=error, cache=cache)
        case "tool_reference":  # a tool that a search of the client's found; it stands among the tools
            return Text(text=f"Tool found: {text(part.get('tool_name'))}", cache=cache)
        case "search_result":
            words = [text(inner.get("text")) for inner in objects(part.get("content"))]
            return Text(text="\n".join([text(part.get("title")), text(part.get("source")), *words]), cache=cache)
        case "compaction":
            return Text(text=text(part.get("content")), cache=cache)
        case "thinking":
            return unsealed(text(part.get("thinking")), text(part.get("signature")))
        case "redacted_thinking":
            return Thinking(signature=text(part.get("data")), source="messages", redacted=True)
        case _:
            raise unknown(kind, where, target)


def _image(source: dict[str, Any], where: str, target: Dialect, cache: Any) -> Image:
    match source.get("type"):
        case "base64":
            return Image(url=f"data:{text(source.get('media_type'))};base64,{text(source.get('data'))}", cache=cache)
        case "url":
            return Image(url=text(source.get("url")), cache=cache)
        case kind:
            raise unknown(kind, where, target)


def _document(part: dict[str, Any], where: str, said: Conversation, target: Dialect) -> File:
    source, name, cache = mapping(part.get("source")), text(part.get("title")), part.get("cache_control")
    match source.get("type"):
        case "base64":
            url = f"data:{text(source.get('media_type'))};base64,{text(source.get('data'))}"
            return File(url=url, name=name, cache=cache)
        case "text":
            return File(text=text(source.get("data")), name=name, cache=cache)
        case "url":
            return File(url=text(source.get("url")), name=name, cache=cache)
        case "content":
            inner = _content(source.get("content"), f"{where}.source.content", said, target)
            if not all(isinstance(p, Text) for p in inner):
                raise refusal("a document that holds more than text", f"{where}.source", target)
            return File(text="\n".join([p.text for p in inner if isinstance(p, Text)]), name=name, cache=cache)
        case kind:
            raise unknown(kind, f"{where}.source", target)


def _output(body: dict[str, Any], said: Conversation) -> None:
    """Effort, thinking and format, which stand in `output_config`, `thinking` and the older `output_format`."""
    config, thinking = mapping(body.get("output_config")), mapping(body.get("thinking"))
    said.drop_rest("output_config", config, "effort", "format")
    said.drop_rest("thinking", thinking, "type", "budget_tokens")
    said.effort = text(config.get("effort")) or None
    if thinking.get("type") == "disabled":
        said.thinking, said.effort = False, "none"
    elif thinking:
        said.thinking = True
        if said.effort is None and (budget := count(thinking.get("budget_tokens"))) is not None:
            said.effort = next((effort for limit, effort in _EFFORT_BUDGETS if budget <= limit), "high")
    wanted = mapping(config.get("format")) or mapping(body.get("output_format"))
    if wanted.get("type") == "json_schema":
        closed = schema.closed(wanted.get("schema"))
        said.format = Format(schema=closed, name="answer", strict=schema.strict(closed))


def _tools(body: dict[str, Any], said: Conversation, target: Dialect) -> None:
    for tool in objects(body.get("tools")):
        kind = tool.get("type")
        if kind not in (None, "custom"):
            said.drop(f"tools.{word(kind)}")
            continue
        said.drop_rest("tools", tool, "type", "name", "description", "input_schema", "strict", "cache_control")
        arguments, strict = tool.get("input_schema"), tool.get("strict")
        if strict is True:  # which demands more of a schema in OpenAI's APIs
            arguments = schema.closed(arguments)
            strict = schema.strict(arguments)
            if not strict:
                said.drop("tools.strict")
        said.tools.append(
            Tool(
                name=text(tool.get("name")),
                description=text(tool.get("description")) or None,
                schema=arguments,
                strict=strict if isinstance(strict, bool) else None,
                cache=tool.get("cache_control"),
            )
        )
    choice = mapping(body.get("tool_choice"))
    if isinstance(alone := choice.get("disable_parallel_tool_use"), bool):
        said.parallel = not alone
    match choice.get("type"):
        case None | "auto":
            said.choice = Choice(mode="auto") if choice else None
        case "any":
            said.choice = Choice(mode="required")
        case "none":
            said.choice = Choice(mode="none")
        case "tool":
            said.choice = Choice(mode="named", name=text(choice.get("name")))
        case _:
            raise refusal("this choice", "tool_choice", target)


# --- writing ---------------------------------------------------------------------------------------------


def write(said: Conversation) -> dict[str, Any]:
    """A messages body, but for the model and the plain fields."""
    rest = said.messages
    lead: list[Part] = []
    while rest and rest[0].role in ("system", "developer"):
        lead += rest[0].parts
        rest = rest[1:]
    messages = _messages(rest, said)
    if lead and not messages:  # the API demands one
        lead, messages = [], _messages([Message(role="user", parts=tuple(lead))], said)
    body: dict[str, Any] = {"max_tokens": MAX_TOKENS if said.max_tokens is None else said.max_tokens}
    if system := _blocks(lead, said):
        plain = len(system) == 1 and system[0].keys() == {"type", "text"}
        body["system"] = system[0]["text"] if plain else system
    body["messages"] = messages
    if said.stop:
        body["stop_sequences"] = stop = [s for s in said.stop if s.strip()]
        if len(stop) < len(said.stop):
            said.drop("stop")  # the API refuses white space alone
    if said.user is not None:
        body["metadata"] = {"user_id": said.user}
    if said.tools:
        body["tools"] = [_tool(tool) for tool in said.tools]
        if choice := _choice(said):
            body["tool_choice"] = choice
    _write_output(said, body)
    if said.stream:
        body["stream"] = True
    return body


def _messages(messages: list[Message], said: Conversation) -> list[dict[str, Any]]:
    """Neighbours of one role become one message: all results of parallel calls must stand in the next one."""
    out: list[dict[str, Any]] = []
    for message in messages:
        role = "system" if message.role == "developer" else message.role
        blocks = _blocks(message.parts, said)
        if not blocks:
            continue  # an empty message means nothing, and the API refuses it
        if out and out[-1]["role"] == role:
            out[-1]["content"] += blocks
        else:
            out.append({"role": role, "content": blocks})
    for message in out:
        # Results must come first, directly after the calls.
        message["content"].sort(key=_after_results)
    if out and out[-1]["role"] == "assistant" and (last := out[-1]["content"][-1])["type"] == "text":
        last["text"] = last["text"].rstrip()  # the API refuses a beginning of its answer that ends in white space
    return out


def _after_results(block: dict[str, Any]) -> bool:
    return block["type"] != "tool_result"


def _blocks(parts: tuple[Part, ...] | list[Part], said: Conversation) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    for part in parts:
        block = _block(part, said)
        if block is None:
            continue
        if (cache := getattr(part, "cache", None)) is not None:
            block["cache_control"] = cache
        blocks.append(block)
    return blocks


def _block(part: Part, said: Conversation) -> dict[str, Any] | None:
    match part:
        case Text() | Refusal():
            # The API refuses text that is empty or only white space.
            return {"type": "text", "text": part.text} if part.text and not part.text.isspace() else None
        case Image():
            if part.detail not in (None, "auto"):
                said.drop("image_url.detail")
            return {"type": "image", "source": _source(part.url, "an image")}
        case File(text=words) if words:
            source = {"type": "text", "media_type": "text/plain", "data": words}
            return {"type": "document", "source": source} | ({"title": part.name} if part.name else {})
        case File():
            document = {"type": "document", "source": _document_source(part.url)}
            return document | ({"title": part.name} if part.name else {})
        case ToolUse():
            return {
                "type": "tool_use",
                "id": _id(part.id),
                "name": part.flat,
                "input": schema.input_object(part, "messages"),
            }
        case ToolOutput():
            content = [b for p in part.parts if (b := _block(p, said)) is not None]
            return {"type": "tool_result", "tool_use_id": _id(part.id), "content": content} | (
                {"is_error": True} if part.error else {}
            )
        case Thinking(source="messages"):
            if part.redacted:
                return {"type": "redacted_thinking", "data": part.signature}
            return {"type": "thinking", "thinking": part.text, "signature": part.signature}
        case Thinking():
            said.drop("thinking")  # without this API's own signature it would be refused (T08)
            return None
        case _:
            raise refusal("a part of type input_audio", "messages", "messages")


def _id(call: str) -> str:
    """A call's id in the characters that the API allows; other servers also use dots and colons."""
    return _NOT_IN_IDS.sub("_", call)


def _source(url: str, what: str) -> dict[str, Any]:
    if not url:
        raise refusal(f"{what} kept by another provider", "messages", "messages")
    inline = data_uri(url, "messages")
    if inline is None:
        return {"type": "url", "url": url}
    return {"type": "base64", "media_type": inline[0], "data": inline[1]}


def _document_source(url: str) -> dict[str, Any]:
    source = _source(url, "a file")
    if not source.get("media_type", "application/pdf").startswith("text/"):
        return source
    try:
        words = base64.b64decode(source["data"]).decode()
    except (binascii.Error, ValueError):
        raise BadRequest("`messages`: a text file is not base64 of UTF-8 text", param="messages") from None
    return {"type": "text", "media_type": "text/plain", "data": words}


def _tool(tool: Tool) -> dict[str, Any]:
    out: dict[str, Any] = {"name": tool.flat}
    if description := schema.description(tool):
        out["description"] = description
    given: Any = schema.parameters(tool) or {"properties": {}}
    out["input_schema"] = {"type": "object", **given} if is_object(given) else given  # the API demands the type
    if tool.strict:
        out["strict"] = True
    if tool.cache is not None:
        out["cache_control"] = tool.cache
    return out


def _choice(said: Conversation) -> dict[str, Any] | None:
    choice: dict[str, Any] = {"type": "auto"}
    if said.choice is not None:
        if said.choice.mode == "none":
            return {"type": "none"}
        if said.choice.mode == "required":
            choice = {"type": "any"}
        if said.choice.mode == "named":
            choice = {"type": "tool", "name": said.choice.flat}
    if said.parallel is False:
        choice["disable_parallel_tool_use"] = True
    return choice if said.choice is not None or said.parallel is False else None


def _write_output(said: Conversation, body: dict[str, Any]) -> None:
    config: dict[str, Any] = {}
    forced = said.choice is not None and said.choice.mode in ("required", "named")
    if said.effort == "none":
        body["thinking"] = {"type": "disabled"}
    elif said.effort is not None:
        config["effort"] = "low" if said.effort == "minimal" else said.effort
        if not forced:  # the API refuses to think before a call that is forced
            body["thinking"] = {"type": "adaptive"}
            if said.plain.pop("temperature", 1) != 1:  # nor does it think at another temperature
                said.drop("temperature")
    if said.format is not None:
        if said.format.schema is None:
            said.drop("response_format")
        else:
            config["format"] = {"type": "json_schema", "schema": schema.closed(said.format.schema)}
    if config:
        body["output_config"] = config
    temperature = said.plain.get("temperature")
    if isinstance(temperature, int | float) and temperature > 1:
        said.plain["temperature"] = 1
        said.drop("temperature")
