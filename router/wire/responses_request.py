"""Requests between OpenAI Responses and `Conversation`. The top-level fields are in `fields.ROWS`."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from router.errors import BadRequest
from router.types import Dialect
from router.wire import schema
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
    word,
)
from router.wire.parts import (
    Audio,
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
from router.wire.provenance import decrypted

MIN_TOKENS = 16  # the API refuses a smaller limit, and clients ask for 1 to see whether a model is there
CALL_LIMIT = 64  # characters of a call's id; other servers' ids are longer
# Records of what OpenAI's own tools did in earlier turns: not the conversation itself.
_SERVER_ITEMS = (
    "web_search_call",
    "file_search_call",
    "code_interpreter_call",
    "image_generation_call",
    "mcp_list_tools",
)

# --- reading ---------------------------------------------------------------------------------------------


def read(body: dict[str, Any], target: Dialect) -> Conversation:
    """A Responses body as a conversation. Raises `BadRequest` for what `target` cannot be told."""
    said = Conversation(messages=[], stream=body.get("stream") is True, max_tokens=count(body.get("max_output_tokens")))
    turns = _Turns()
    if instructions := body.get("instructions"):
        if not isinstance(instructions, str):
            raise refusal("a list of instructions", "instructions", target)
        turns.add("system", Text(text=instructions))
    given = body.get("input")
    if isinstance(given, str):
        turns.add("user", Text(text=given))
    elif given is not None:
        for at, item in enumerate(body_objects(given, "input")):
            _item(item, f"input[{at}]", turns, said, target)
    said.messages = turns.messages()
    _options(body, said, target)
    _tools(objects(body.get("tools")), said)
    _choose(body.get("tool_choice"), said, target)
    parallel = body.get("parallel_tool_calls")
    said.parallel = parallel if isinstance(parallel, bool) else None
    said.user = text(body.get("user")) or None
    return said


def _options(body: dict[str, Any], said: Conversation, target: Dialect) -> None:
    wanted, reasoning = mapping(body.get("text")), mapping(body.get("reasoning"))
    said.drop_rest("text", wanted, "format", "verbosity")
    said.drop_rest("reasoning", reasoning, "effort")
    said.effort = text(reasoning.get("effort")) or None
    if verbosity := wanted.get("verbosity"):
        if target == "messages":
            said.drop("text.verbosity")
        said.plain["verbosity"] = verbosity
    shape = mapping(wanted.get("format"))
    if shape.get("type") == "json_object":
        said.format = Format()
    elif shape.get("type") == "json_schema":
        strict = shape.get("strict")
        said.format = Format(
            schema=shape.get("schema") or {},
            name=text(shape.get("name")),
            strict=strict if isinstance(strict, bool) else None,
            description=text(shape.get("description")) or None,
        )
    include = body.get("include")
    for wish in include if is_array(include) else []:
        if wish == "message.output_text.logprobs" and target == "chat":
            said.plain["logprobs"] = True
        else:
            said.drop("include")


def _item(item: dict[str, Any], where: str, turns: _Turns, said: Conversation, target: Dialect) -> None:
    kind = item.get("type", "message")
    call = text(item.get("call_id"))
    match kind:
        case "message":
            role = text(item.get("role"))
            if role not in ("system", "developer", "user", "assistant"):
                raise refusal("a message with this role", f"{where}.role", target)
            said.drop_rest("input", item, "type", "role", "content", "id", "status", "phase")
            parts = _content(item.get("content"), f"{where}.content", said, target)
            turns.add(role, *saying(role, parts, f"{where}.content", target))
        case "function_call" | "custom_tool_call":
            custom = kind == "custom_tool_call"
            arguments = text(item.get("input" if custom else "arguments"))
            space = text(item.get("namespace"))
            name = text(item.get("name"))
            turns.add("assistant", ToolUse(id=call, name=name, arguments=arguments, custom=custom, namespace=space))
        case "function_call_output" | "custom_tool_call_output":
            inner = _content(item.get("output"), f"{where}.output", said, target)
            kept = returned(inner, f"{where}.output", target)
            turns.returned(ToolOutput(id=call, parts=kept, custom=kind == "custom_tool_call_output"))
        case "reasoning":
            turns.add("assistant", _reasoning(item))
        case "additional_tools":
            _tools(objects(item.get("tools")), said)
        case _ if kind in _SERVER_ITEMS:
            said.drop(f"input.{kind}")
        case _:
            raise unknown(kind, where, target)


class _Turn(Struct):
    """A message, and what its calls returned. Without a role only the latter, of calls that are not there."""

    role: str = ""
    parts: list[Part] = []
    outputs: list[Part] = []


class _Turns:
    """Messages as the other dialects have them: what the assistant did at once is one message. What a call returned
    follows it directly there, while this API takes it wherever it stands (T05)."""

    def __init__(self) -> None:
        self._turns: list[_Turn] = []
        self._makers: dict[str, _Turn] = {}  # by the call's id

    def add(self, role: str, *parts: Part) -> None:
        last = self._turns[-1] if self._turns else None
        if last is None or role != "assistant" or last.role != role or last.outputs:
            last = _Turn(role=role)
            self._turns.append(last)
        last.parts += parts
        for part in parts:
            if isinstance(part, ToolUse):
                self._makers[part.id] = last

    def returned(self, output: ToolOutput) -> None:
        maker = self._makers.get(output.id)
        if maker is None:
            if not self._turns or self._turns[-1].role:
                self._turns.append(_Turn())
            maker = self._turns[-1]
        maker.outputs.append(output)

    def messages(self) -> list[Message]:
        out: list[Message] = []
        for turn in self._turns:
            if turn.role:
                out.append(Message(role=turn.role, parts=tuple(turn.parts)))
            if turn.outputs:
                out.append(Message(role="user", parts=tuple(turn.outputs)))
        return out


def _reasoning(item: dict[str, Any]) -> Thinking:
    parts = objects(item.get("content")) or objects(item.get("summary"))
    thought = "\n\n".join([text(part.get("text")) for part in parts])
    return decrypted(thought, text(item.get("encrypted_content")), text(item.get("id")))


def _content(content: Any, where: str, said: Conversation, target: Dialect) -> list[Part]:
    if content is None:
        return []
    if isinstance(content, str):
        return [Text(text=content)]
    return [_part(part, f"{where}[{at}]", said, target) for at, part in enumerate(body_objects(content, where))]


def _part(part: dict[str, Any], where: str, said: Conversation, target: Dialect) -> Part:
    kind = part.get("type")
    match kind:
        case "input_text" | "output_text" | "text":
            logprobs_and_such = ("annotations", "logprobs")  # what an earlier answer carried beside its words
            said.drop_rest("content", part, "type", "text", *logprobs_and_such)
            return Text(text=text(part.get("text")))
        case "refusal":
            return Refusal(text=text(part.get("refusal")))
        case "input_image":
            if part.get("file_id"):
                raise refusal("an image kept by another provider", f"{where}.file_id", target)
            said.drop_rest("content", part, "type", "image_url", "detail")
            url = text(part.get("image_url"))
            if not url:
                raise BadRequest(f"`{where}` has no image_url", param=where)
            data_uri(url, f"{where}.image_url")
            detail = text(part.get("detail"))
            return Image(url=url, detail=None if detail in ("", "auto") else detail)  # demanded here, not elsewhere
        case "input_file":
            if part.get("file_id"):
                raise refusal("a file kept by another provider", f"{where}.file_id", target)
            said.drop_rest("content", part, "type", "file_data", "file_url", "filename")
            name = text(part.get("filename"))
            return File(url=inline(text(part.get("file_data")), name) or text(part.get("file_url")), name=name)
        case "input_audio":
            audio = mapping(part.get("input_audio"))
            return Audio(data=text(audio.get("data")), format=text(audio.get("format")))
        case _:
            raise unknown(kind, where, target)


def _tools(tools: list[dict[str, Any]], said: Conversation, namespace: str = "") -> None:
    for tool in tools:
        match tool.get("type"):
            case "function":
                said.drop_rest("tools", tool, "type", "name", "description", "parameters", "strict")
                strict = tool.get("strict")
                said.tools.append(
                    Tool(
                        name=text(tool.get("name")),
                        description=text(tool.get("description")) or None,
                        schema=tool.get("parameters"),
                        strict=strict if isinstance(strict, bool) else None,
                        namespace=namespace,
                    )
                )
            case "custom":
                said.drop_rest("tools", tool, "type", "name", "description", "format")
                said.tools.append(
                    Tool(
                        name=text(tool.get("name")),
                        description=text(tool.get("description")) or None,
                        schema=tool.get("format"),
                        custom=True,
                        namespace=namespace,
                    )
                )
            case "namespace" if not namespace:
                _tools(objects(tool.get("tools")), said, text(tool.get("name")))
            case kind:
                said.drop(f"tools.{word(kind)}")


def _choose(choice: Any, said: Conversation, target: Dialect) -> None:
    if choice in ("auto", "none", "required"):
        said.choice = Choice(mode=choice)
    elif is_object(choice):
        kind = choice.get("type")
        if kind == "allowed_tools":
            schema.allow(said, choice.get("mode"), [text(t.get("name")) for t in objects(choice.get("tools"))])
        elif kind in ("function", "custom") and choice.get("name"):
            said.choice = Choice(mode="named", name=text(choice["name"]), namespace=text(choice.get("namespace")))
        else:
            raise refusal("this choice", "tool_choice", target)
    elif choice is not None:
        raise refusal("this choice", "tool_choice", target)


# --- writing ---------------------------------------------------------------------------------------------


def write(said: Conversation) -> dict[str, Any]:
    """A Responses body, but for the model and the plain fields."""
    body: dict[str, Any] = {}
    rest = said.messages
    if len(rest) > 1 and rest[0].role == "system":  # alone they are what there is to be answered
        if any(isinstance(part, Text) and part.cache is not None for part in rest[0].parts):
            said.drop("cache_control")
        body["instructions"] = "\n\n".join([part.text for part in rest[0].parts if isinstance(part, Text)])
        rest = rest[1:]
    body["input"] = [item for message in rest for item in _items(message, said)]
    if said.tools:
        body["tools"] = [_tool(tool, said) for tool in said.tools]
        if said.choice is not None:
            body["tool_choice"] = _write_choice(said.choice, said)
        if said.parallel is not None:
            body["parallel_tool_calls"] = said.parallel
    if said.max_tokens is not None:
        body["max_output_tokens"] = max(said.max_tokens, MIN_TOKENS)
        if said.max_tokens < MIN_TOKENS:
            said.drop("max_tokens")
    if said.stop:
        said.drop("stop")
    wanted: dict[str, Any] = {}
    if said.format is not None:
        wanted["format"] = _write_format(said.format)
    if verbosity := said.plain.pop("verbosity", None):
        wanted["verbosity"] = verbosity
    if wanted:
        body["text"] = wanted
    if said.plain.pop("logprobs", False):
        body["include"] = ["message.output_text.logprobs"]
    if said.effort is not None:
        body["reasoning"] = {"effort": said.effort} | ({"summary": "auto"} if said.thinking else {})
        if said.effort != "none":  # so that the client can give the thought back
            body["include"] = [*body.get("include", []), "reasoning.encrypted_content"]
    if said.user is not None:
        body["user"] = said.user
    body["store"] = said.plain.pop("store", False)  # this API keeps answers unless told otherwise; the others do not
    if said.stream:
        body["stream"] = True
    return body


def _items(message: Message, said: Conversation) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    content: list[dict[str, Any]] = []
    for part in message.parts:
        if getattr(part, "cache", None) is not None:
            said.drop("cache_control")
        item = _write_item(part, said)
        if item is None:
            if not isinstance(part, Thinking):
                content.append(_write_part(part, said, answer=message.role == "assistant"))
            continue
        if content and message.role == "assistant":
            items.append(_write_message(message.role, content))
            content = []
        items.append(item)
    if content:  # a user's words stand after the outputs of the calls, as those must follow the calls
        items.append(_write_message(message.role, content))
    return items


def _write_message(role: str, content: list[dict[str, Any]]) -> dict[str, Any]:
    """An earlier answer is words, or, where it holds a refusal, an output item with all that one must have."""
    if role != "assistant":
        return {"type": "message", "role": role, "content": content}
    if all(part["type"] == "output_text" for part in content):
        return {"type": "message", "role": role, "content": "".join([part["text"] for part in content])}
    return {"type": "message", "id": "msg_earlier", "role": role, "status": "completed", "content": content}


def _write_item(part: Part, said: Conversation) -> dict[str, Any] | None:
    call = short(part.id, CALL_LIMIT) if isinstance(part, ToolUse | ToolOutput) else ""
    match part:
        case ToolUse(custom=True):
            return {"type": "custom_tool_call", "call_id": call, "name": part.flat, "input": part.arguments}
        case ToolUse():
            return {"type": "function_call", "call_id": call, "name": part.flat, "arguments": part.arguments or "{}"}
        case ToolOutput():
            if part.error:
                said.drop("tool_result.is_error")
            kind = "custom_tool_call_output" if _is_custom(part, said) else "function_call_output"
            texts = [inner.text for inner in part.parts if isinstance(inner, Text)]
            simple = len(texts) == len(part.parts)
            output = "\n".join(texts) if simple else [_write_part(inner, said, answer=False) for inner in part.parts]
            return {"type": kind, "call_id": call, "output": output}
        case Thinking(source="responses"):
            summary = [{"type": "summary_text", "text": part.text}] if part.text else []
            return {"type": "reasoning", "id": part.id, "summary": summary, "encrypted_content": part.signature}
        case Thinking():
            said.drop("thinking")
            return None
        case _:
            return None


def _is_custom(output: ToolOutput, said: Conversation) -> bool:
    if output.custom:
        return True
    made = [p for message in said.messages for p in message.parts if isinstance(p, ToolUse) and p.id == output.id]
    return bool(made) and made[0].custom


def _write_part(part: Part, said: Conversation, *, answer: bool) -> dict[str, Any]:
    match part:
        case Text():
            return {"type": "output_text" if answer else "input_text", "text": part.text} | (
                {"annotations": [], "logprobs": []} if answer else {}
            )
        case Refusal():
            return {"type": "refusal", "refusal": part.text}
        case Image(url=url) if url:
            return {"type": "input_image", "image_url": url, "detail": part.detail or "auto"}
        case File(text=words) if words:
            return {"type": "input_text", "text": f"{part.name}\n\n{words}" if part.name else words}
        case File(url=url) if url.startswith("data:"):
            return {"type": "input_file", "filename": part.name or "document", "file_data": url}
        case File(url=url) if url:
            return {"type": "input_file", "file_url": url}
        case Audio():
            raise refusal("a part of type input_audio", "messages", "responses")
        case _:
            raise refusal("a file or image kept by another provider", "messages", "responses")


def _tool(tool: Tool, said: Conversation) -> dict[str, Any]:
    if tool.cache is not None:
        said.drop("cache_control")
    out: dict[str, Any] = {"type": "custom" if tool.custom else "function", "name": tool.flat}
    if tool.description:
        out["description"] = tool.description
    if tool.custom:
        return out | ({"format": schema.grammar(tool.schema)} if tool.schema else {})
    # `strict` is demanded, and its default differs from that of the other APIs.
    return out | {"parameters": tool.schema or {"type": "object", "properties": {}}, "strict": bool(tool.strict)}


def _write_choice(choice: Choice, said: Conversation) -> Any:
    if choice.mode != "named":
        return choice.mode
    custom = any(tool.custom for tool in said.tools if tool.name == choice.name)
    return {"type": "custom" if custom else "function", "name": choice.flat}


def _write_format(wanted: Format) -> dict[str, Any]:
    if wanted.schema is None:
        return {"type": "json_object"}
    out: dict[str, Any] = {"type": "json_schema", "name": wanted.name or "answer", "schema": wanted.schema}
    if wanted.description:
        out["description"] = wanted.description
    return out if wanted.strict is None else out | {"strict": wanted.strict}
