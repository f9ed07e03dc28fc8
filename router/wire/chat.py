"""OpenAI chat completions: reading a request; and the codec.

What is read of an answer is `chat_meter`'s; translation to and from other dialects is not here. The reading is as
lenient as the real API: what is not understood in a message adds nothing to the view and passes through in the body.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from msgspec import MsgspecError, Raw, Struct, ValidationError
from msgspec.json import Decoder

from router.errors import BadRequest, PointsmanError
from router.types import Dialect, Request, ToolCall, ToolResult, Turn, Usage
from router.wire import body as wire_body
from router.wire import chat_meter, sse
from router.wire.chat_meter import ChatMeter
from router.wire.loose import count
from router.wire.pieces import elements
from router.wire.seen import SEEN, Seen, Span


class Part(Struct, gc=False):
    type: Any = None
    text: Any = None


class Function(Struct, gc=False):
    name: str = ""
    arguments: str | None = None


class Call(Struct, gc=False):
    function: Function | None = None
    custom: Function | None = None


class Message(Struct, gc=False):
    role: str = ""
    content: str | list[Part] | None = None
    tool_calls: list[Call] | None = None
    function_call: Function | None = None


class LooseMessage(Struct, gc=False):
    """Any object: a message of a kind that this module does not know."""

    role: Any = None
    content: Any = None


class Format(Struct, gc=False):
    type: Any = None


ABSENT = Raw()


class Top(Struct, gc=False):
    model: Raw = ABSENT
    messages: Raw = ABSENT
    tools: list[Raw] | None = None
    functions: list[Raw] | None = None
    stream: bool | None = None
    stream_options: Raw = ABSENT
    response_format: Raw = ABSENT
    max_tokens: Any = None
    max_completion_tokens: Any = None
    user: Any = None
    prompt_cache_key: Any = None


class Small(Struct, gc=False):
    """What most small bodies are: the parts of `Top` that are large in others, read at once."""

    model: str
    messages: list[Message]
    tools: list[Raw] | None = None
    functions: list[Raw] | None = None
    stream: bool | None = None
    stream_options: Raw = ABSENT
    response_format: Raw = ABSENT
    max_tokens: Any = None
    max_completion_tokens: Any = None
    user: Any = None
    prompt_cache_key: Any = None


class StreamOptions(Struct, gc=False):
    include_usage: bool | None = None


_TOP = Decoder(Top)
_SMALL = Decoder(Small)
_MESSAGES = Decoder(list[Message])
_EACH = Decoder(list[Raw])
_MESSAGE = Decoder(Message)
_LOOSE = Decoder(LooseMessage)
_FORMAT = Decoder(Format)
_STREAM_OPTIONS = Decoder(StreamOptions | None)


def read_small(body: bytes) -> tuple[Small, str, tuple[int, int], tuple[Turn, ...]] | None:
    """A small body with its model, where that stands, and its turns; None where anything about it is unusual."""
    try:
        top = _SMALL.decode(body)
    except (MsgspecError, RecursionError):
        return None
    name = top.model
    if not body.isascii() or not name.strip():
        return None
    span = wire_body.only_model(body, b'"%b"' % name.encode())
    return None if span is None else (top, name, span, tuple([_turn(message) for message in top.messages]))


def read_options(body: bytes, raw: Raw) -> tuple[bool, tuple[int, int] | None]:
    """Whether `stream_options` asks for usage, and where it stands."""
    if raw is ABSENT:
        return False, None
    try:
        options = _STREAM_OPTIONS.decode(raw)
    except ValidationError:
        raise BadRequest("`stream_options` must be an object", param="stream_options") from None
    return bool(options and options.include_usage), wire_body.locate(body, raw)


def read_turns(messages: Raw) -> tuple[Turn, ...]:
    """The turns of a `messages` array. Raises `BadRequest` where the real API could not accept it."""
    if messages is ABSENT:
        raise BadRequest("the body has no `messages`", param="messages")
    try:
        return tuple([_turn(message) for message in elements(messages, _MESSAGES, _MESSAGE)])
    except ValidationError:
        pass
    try:
        each = _EACH.decode(messages)
    except ValidationError:
        raise BadRequest("`messages` must be an array", param="messages") from None
    return tuple([_loose(raw, at) for at, raw in enumerate(each)])


def _loose(raw: Raw, at: int) -> Turn:
    try:
        return _turn(_MESSAGE.decode(raw))
    except ValidationError:
        pass
    try:
        message = _LOOSE.decode(raw)
    except ValidationError:
        raise BadRequest(f"`messages[{at}]` must be an object", param=f"messages[{at}]") from None
    return Turn(
        role=message.role if isinstance(message.role, str) else "",
        texts=(message.content,) if isinstance(message.content, str) else (),
    )


def _turn(message: Message) -> Turn:
    content = message.content
    images = 0
    texts: tuple[str, ...]
    if message.role == "user" and isinstance(content, str) and content:  # what most messages are
        return Turn(role="user", texts=(content,))
    if content is None:
        texts = ()
    elif isinstance(content, str):
        texts = (content,) if content else ()
    else:
        texts = tuple([p.text for p in content if p.type == "text" and isinstance(p.text, str)])
        images = sum([p.type in ("image_url", "input_image", "image") for p in content])
    if message.role in ("tool", "function"):
        return Turn(role="tool", images=images, tool_results=(ToolResult(text="\n".join(texts)),))
    calls: tuple[ToolCall, ...] = ()
    if message.tool_calls or message.function_call:
        made = [call.function or call.custom for call in message.tool_calls or ()]
        made.append(message.function_call)
        calls = tuple([ToolCall(name=f.name, arguments=f.arguments or "") for f in made if f is not None])
    return Turn(role=message.role, texts=texts, images=images, tool_calls=calls)


def _request(body: bytes, top: Top | Small, model: str, span: Span, turns: tuple[Turn, ...]) -> Request:
    include_usage, options_span = (
        (False, None) if top.stream_options is ABSENT else read_options(body, top.stream_options)
    )
    wants_json = False
    if top.response_format is not ABSENT:
        with suppress(ValidationError):  # null, or the upstream's to refuse
            wants_json = _FORMAT.decode(top.response_format).type in ("json_object", "json_schema")
    limit = None
    if top.max_completion_tokens is not None:
        limit = count(top.max_completion_tokens)
    if limit is None and top.max_tokens is not None:
        limit = count(top.max_tokens)
    user = top.prompt_cache_key or top.user
    return Request(
        "chat",
        body,
        model,
        span,
        top.stream is True,
        include_usage,
        options_span,
        turns,
        len(top.tools or top.functions or ()),
        wants_json,
        limit,
        user if isinstance(user, str) else None,
    )


# --- the codec -------------------------------------------------------------------------------------------


class ChatCodec:
    """`router.seams.Codec` for POST /v1/chat/completions."""

    dialect: Dialect = "chat"

    def __init__(self, seen: Seen = SEEN) -> None:
        self._seen = seen

    def decode(self, body: bytes) -> Request:
        if len(body) > wire_body.SMALL:
            return self._seen.read(body, self)
        if (read := read_small(body)) is None:
            return self.whole(body)[0]
        top, model, span, turns = read
        return _request(body, top, model, span, turns)

    def whole(self, body: bytes) -> tuple[Request, Span | None]:
        """See `seen.Reader`."""
        top = wire_body.read(_TOP, body)
        large = len(body) > wire_body.SMALL
        messages = wire_body.located(body, top.messages) if large else None
        rest = [wire_body.located(body, field) for field in (top.tools, top.response_format)] if large else ()
        model, span = wire_body.model(body, top.model, messages, *rest)
        return _request(body, top, model, span, read_turns(top.messages)), messages

    def more(self, array: bytes) -> list[Turn | None]:
        """See `seen.Reader`."""
        return [_turn(message) for message in _MESSAGES.decode(array)]

    def meter(self, request: Request, *, asked_usage: bool = False) -> ChatMeter:
        return ChatMeter(withhold=asked_usage and not request.include_usage, tell=request.include_usage)

    def usage(self, answer: bytes) -> Usage | None:
        return chat_meter.usage_of(answer)

    def mended(self, answer: bytes) -> bytes:
        return chat_meter.mended(answer)

    def error(self, error: PointsmanError, request_id: str) -> bytes:
        return chat_meter.error_body(error, request_id)

    def error_event(self, error: PointsmanError, request_id: str) -> bytes:
        return sse.event(chat_meter.error_body(error, request_id))
