"""Requests between chat completions and `Conversation`. The top-level fields are in `fields.ROWS`."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from router.errors import BadRequest
from router.types import Dialect
from router.wire import chat_answer, schema
from router.wire.loose import (
    body_objects,
    count,
    data_uri,
    inline,
    is_array,
    is_object,
    mapping,
    objects,
    refusal,
    text,
    unknown,
)
from router.wire.parts import (
    Audio,
    Cached,
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
    short,
)

CALL_LIMIT = 40  # characters of a call's id in OpenAI's API; other servers' ids are longer

# --- reading ---------------------------------------------------------------------------------------------


def read(body: dict[str, Any], target: Dialect) -> Conversation:
    """A chat body as a conversation. Raises `BadRequest` for what `target` cannot be told."""
    said = Conversation(messages=[], stream=body.get("stream") is True)
    nameless: list[str] = []
    for at, message in enumerate(body_objects(body.get("messages"), "messages")):
        said.messages.append(_with_ids(_message(message, f"messages[{at}]", said, target), at, nameless))
    limits = [n for n in (count(body.get("max_completion_tokens")), count(body.get("max_tokens"))) if n is not None]
    said.max_tokens = min(limits) if limits else None
    stop = body.get("stop")
    said.stop = [stop] if isinstance(stop, str) else [s for s in stop if isinstance(s, str)] if is_array(stop) else []
    said.user = text(body.get("user")) or None
    said.effort = text(body.get("reasoning_effort")) or None
    said.format = _format(mapping(body.get("response_format")))
    parallel = body.get("parallel_tool_calls")
    said.parallel = parallel if isinstance(parallel, bool) else None
    if body.get("logprobs") is True:
        said.plain["logprobs"] = True
    if verbosity := body.get("verbosity"):
        said.plain["verbosity"] = verbosity
    _tools(body, said, target)
    return said


def _message(message: dict[str, Any], where: str, said: Conversation, target: Dialect) -> Message:
    role = text(message.get("role"))
    if role not in ("system", "developer", "user", "assistant", "tool", "function"):
        raise refusal("a message with this role", f"{where}.role", target)
    said.drop_rest("messages", message, "role", "content", "refusal", "tool_calls", "function_call", "tool_call_id",
                   "reasoning_content", "reasoning", "audio", "cache_control",
                   *(["name"] if role == "function" else []))  # fmt: skip
    parts = _content(message.get("content"), f"{where}.content", said, target)
    if role in ("tool", "function"):
        kept = returned(parts, f"{where}.content", target)
        call = text(message.get("tool_call_id")) or f"{_NAMELESS}{text(message.get('name'))}"
        return Message(role="user", parts=(ToolOutput(id=call, parts=kept, cache=message.get("cache_control")),))
    if role == "assistant":
        if message.get("audio"):
            raise refusal("an earlier audio answer", f"{where}.audio", target)
        thought = text(message.get("reasoning_content")) or text(message.get("reasoning"))
        said_no = text(message.get("refusal"))
        parts = [
            *([Thinking(text=thought, source="chat")] if thought else []),
            *parts,
            *([Refusal(text=said_no)] if said_no else []),
            *_calls(message, said),
        ]
    if (cache := message.get("cache_control")) is not None and parts and isinstance(parts[-1], Cached):
        parts[-1] = replace(parts[-1], cache=cache)  # on the message, as litellm has it
    return Message(role=role, parts=saying(role, parts, f"{where}.content", target))


_NAMELESS = "call_"


def _with_ids(message: Message, at: int, nameless: list[str]) -> Message:
    """The message with ids for calls that their server gave none, and for what they returned, in their order."""
    parts = list(message.parts)
    for n, part in enumerate(parts):
        if isinstance(part, ToolUse) and not part.id:
            nameless.append(f"{_NAMELESS}{at}_{n}")
            parts[n] = replace(part, id=nameless[-1])
        elif isinstance(part, ToolOutput) and part.id == _NAMELESS and nameless:
            parts[n] = replace(part, id=nameless.pop(0))
    return replace(message, parts=tuple(parts))


def _content(content: Any, where: str, said: Conversation, target: Dialect) -> list[Part]:
    if content is None:
        return []
    if isinstance(content, str):
        return [Text(text=content)]
    return [_part(part, f"{where}[{at}]", said, target) for at, part in enumerate(body_objects(content, where))]


def _part(part: dict[str, Any], where: str, said: Conversation, target: Dialect) -> Part:
    kind, cache = part.get("type"), part.get("cache_control")
    said.drop_rest(
        "content", part, "type", "cache_control", "text", "refusal", "image_url", "input_audio", "file", "thinking"
    )
    match kind:
        case "text":
            return Text(text=text(part.get("text")), cache=cache)
        case "refusal":
            return Refusal(text=text(part.get("refusal")))
        case "thinking":  # Mistral's
            return Thinking(text=chat_answer.thought_in([part]), source="chat")
        case "image_url":
            image = part.get("image_url")
            url = image if isinstance(image, str) else text(mapping(image).get("url"))
            if not url:
                raise BadRequest(f"`{where}.image_url` has no url", param=f"{where}.image_url")
            data_uri(url, f"{where}.image_url.url")
            return Image(url=url, detail=text(mapping(image).get("detail")) or None, cache=cache)
        case "input_audio":
            audio = mapping(part.get("input_audio"))
            return Audio(data=text(audio.get("data")), format=text(audio.get("format")))
        case "file":
            file = mapping(part.get("file"))
            if file.get("file_id"):
                raise refusal("a file kept by another provider", f"{where}.file.file_id", target)
            name = text(file.get("filename"))
            return File(url=inline(text(file.get("file_data")), name), name=name, cache=cache)
        case _:
            raise unknown(kind, where, target)


def _calls(message: dict[str, Any], said: Conversation) -> list[ToolUse]:
    calls: list[ToolUse] = []
    for call in objects(message.get("tool_calls")):
        said.drop_rest("tool_calls", call, "id", "type", "function", "custom", "index")
        if is_object(custom := call.get("custom")):
            calls.append(
                ToolUse(
                    id=text(call.get("id")),
                    name=text(custom.get("name")),
                    arguments=text(custom.get("input")),
                    custom=True,
                )
            )
        else:
            function = mapping(call.get("function"))
            calls.append(
                ToolUse(
                    id=text(call.get("id")), name=text(function.get("name")), arguments=text(function.get("arguments"))
                )
            )
    if is_object(old := message.get("function_call")):
        name = text(old.get("name"))
        calls.append(ToolUse(id=f"call_{name}", name=name, arguments=text(old.get("arguments"))))
    return calls


def _format(given: dict[str, Any]) -> Format | None:
    if given.get("type") == "json_object":
        return Format()
    if given.get("type") != "json_schema":
        return None
    inner = mapping(given.get("json_schema"))
    strict = inner.get("strict")
    return Format(
        schema=inner.get("schema") or {},
        name=text(inner.get("name")),
        strict=strict if isinstance(strict, bool) else None,
        description=text(inner.get("description")) or None,
    )


def _tools(body: dict[str, Any], said: Conversation, target: Dialect) -> None:
    for tool in objects(body.get("tools")):
        kind = tool.get("type")
        inner = mapping(tool.get(kind if kind == "custom" else "function"))
        if kind not in ("function", "custom") or not inner:
            said.drop(f"tools.{kind}" if isinstance(kind, str) else "tools")
            continue
        said.drop_rest("tools", tool, "type", "function", "custom", "cache_control")
        said.tools.append(_tool(inner, custom=kind == "custom", cache=tool.get("cache_control")))
    said.tools += [_tool(function, custom=False, cache=None) for function in objects(body.get("functions"))]
    choice = body.get("tool_choice", body.get("function_call"))
    if choice in ("auto", "none", "required"):
        said.choice = Choice(mode=choice)
    elif choice == "any":  # Mistral's word
        said.choice = Choice(mode="required")
    elif is_object(choice):
        _choose(choice, said, target)
    elif choice is not None:
        raise refusal("this choice", "tool_choice", target)


def _tool(inner: dict[str, Any], *, custom: bool, cache: Any) -> Tool:
    strict = inner.get("strict")
    return Tool(
        name=text(inner.get("name")),
        description=text(inner.get("description")) or None,
        schema=inner.get("format" if custom else "parameters"),
        strict=strict if isinstance(strict, bool) else None,
        custom=custom,
        cache=cache,
    )


def _choose(choice: dict[str, Any], said: Conversation, target: Dialect) -> None:
    if choice.get("type") == "allowed_tools":
        allowed = mapping(choice.get("allowed_tools"))
        names = [text(mapping(t.get(text(t.get("type")))).get("name")) for t in objects(allowed.get("tools"))]
        schema.allow(said, allowed.get("mode"), names)
        return
    inner = choice.get("function") or choice.get("custom") or choice  # {"name": ...} is the old function_call
    name = text(mapping(inner).get("name"))
    if not name:
        raise refusal("this choice", "tool_choice", target)
    said.choice = Choice(mode="named", name=name)


# --- writing ---------------------------------------------------------------------------------------------


def write(said: Conversation) -> dict[str, Any]:
    """A chat body, but for the model and the plain fields."""
    body: dict[str, Any] = {"messages": _messages(said)}
    if said.tools:
        body["tools"] = [{"type": "function", "function": _function(tool, said)} for tool in said.tools]
    if said.choice is not None and said.tools:
        named = {"type": "function", "function": {"name": said.choice.flat}}
        body["tool_choice"] = named if said.choice.mode == "named" else said.choice.mode
    if said.parallel is not None and said.tools:
        body["parallel_tool_calls"] = said.parallel
    if said.max_tokens is not None:
        body["max_completion_tokens"] = said.max_tokens
    if said.stop:
        body["stop"] = said.stop
    if said.format is not None:
        body["response_format"] = _write_format(said.format)
    if said.effort is not None:
        body["reasoning_effort"] = said.effort
    if said.user is not None:
        body["user"] = said.user
    if said.plain.pop("logprobs", False):
        body["logprobs"] = True
    if verbosity := said.plain.pop("verbosity", None):
        body["verbosity"] = verbosity
    if said.stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body


def _write_format(wanted: Format) -> dict[str, Any]:
    if wanted.schema is None:
        return {"type": "json_object"}
    inner: dict[str, Any] = {"name": wanted.name or "answer", "schema": wanted.schema}
    if wanted.description:
        inner["description"] = wanted.description
    if wanted.strict is not None:
        inner["strict"] = wanted.strict
    return {"type": "json_schema", "json_schema": inner}


def _function(tool: Tool, said: Conversation) -> dict[str, Any]:
    if tool.cache is not None:
        said.drop("cache_control")
    function: dict[str, Any] = {"name": tool.flat}
    if description := schema.description(tool):
        function["description"] = description
    parameters = schema.parameters(tool)
    if parameters is not None:
        function["parameters"] = parameters
    if tool.strict is not None and not tool.custom:
        function["strict"] = tool.strict
    return function


def _messages(said: Conversation) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    lead: list[Text] = []
    rest = said.messages
    while rest and rest[0].role in ("system", "developer"):
        # One system message at the beginning: chat templates of open models refuse a second one.
        lead += [part for part in rest[0].parts if isinstance(part, Text)]
        rest = rest[1:]
    if lead:
        if any(part.cache is not None for part in lead):
            said.drop("cache_control")
        out.append({"role": "system", "content": "\n\n".join([part.text for part in lead])})
    for message in rest:
        if message.role == "assistant":
            out.append(_assistant(message, said))
        elif message.role == "user":
            out += _user(message, said)
        else:
            texts = [part.text for part in message.parts if isinstance(part, Text)]
            out.append({"role": "system", "content": "\n\n".join(texts)})
    return out


def _assistant(message: Message, said: Conversation) -> dict[str, Any]:
    texts: list[str] = []
    out: dict[str, Any] = {"role": "assistant", "content": None}
    calls: list[dict[str, Any]] = []
    for part in message.parts:
        if getattr(part, "cache", None) is not None:
            said.drop("cache_control")
        if isinstance(part, Text):
            texts.append(part.text)
        elif isinstance(part, Refusal):
            out["refusal"] = out.get("refusal", "") + part.text
        elif isinstance(part, Thinking):
            if part.text and part.source in ("chat", None):
                out["reasoning_content"] = out.get("reasoning_content", "") + part.text
            else:
                said.drop("thinking")
        elif isinstance(part, ToolUse):
            function = {"name": part.flat, "arguments": schema.arguments(part)}
            calls.append({"id": short(part.id, CALL_LIMIT), "type": "function", "function": function})
    if texts or not (calls or "refusal" in out):
        out["content"] = "".join(texts)
    if calls:
        out["tool_calls"] = calls
    return out


def _user(message: Message, said: Conversation) -> list[dict[str, Any]]:
    """Tool messages first, in order, as they must follow the calls; then what is left as one user message.

    A tool message holds text only, so a tool's images and files go into the user message.
    """
    out: list[dict[str, Any]] = []
    content: list[dict[str, Any]] = []
    for part in message.parts:
        if not isinstance(part, ToolOutput):
            continue
        if part.error:
            said.drop("tool_result.is_error")
        texts = [inner.text for inner in part.parts if isinstance(inner, Text)]
        out.append({"role": "tool", "tool_call_id": short(part.id, CALL_LIMIT), "content": "\n".join(texts)})
        others = [_write_part(inner, said) for inner in part.parts if not isinstance(inner, Text)]
        if others:
            content += [{"type": "text", "text": f"Output of tool call {part.id}:"}, *others]
        if part.cache is not None or any(inner.cache is not None for inner in part.parts):
            said.drop("cache_control")
    content += [_write_part(part, said) for part in message.parts if not isinstance(part, ToolOutput)]
    if len(content) == 1 and content[0]["type"] == "text":
        out.append({"role": "user", "content": content[0]["text"]})
    elif content or not out:
        out.append({"role": "user", "content": content or ""})
    return out


def _write_part(part: Part, said: Conversation) -> dict[str, Any]:
    if getattr(part, "cache", None) is not None:
        said.drop("cache_control")
    match part:
        case Text() | Refusal():
            return {"type": "text", "text": part.text}
        case Image(url=url) if url:
            image: dict[str, Any] = {"url": url} if part.detail is None else {"url": url, "detail": part.detail}
            return {"type": "image_url", "image_url": image}
        case Audio():
            return {"type": "input_audio", "input_audio": {"data": part.data, "format": part.format}}
        case File(text=words) if words:
            return {"type": "text", "text": f"{part.name}\n\n{words}" if part.name else words}
        case File(url=url) if url.startswith("data:"):
            return {"type": "file", "file": {"filename": part.name or "document", "file_data": url}}
        case _:
            raise refusal("a file or image that is not in the request itself", "messages", "chat")
