"""OpenAI chat completions: reading a request, metering a stream, reading usage, writing errors.

Translation to and from other dialects is not here. The reading is as lenient as the real API: what is not
understood in a message adds nothing to the view and passes through in the body.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any, ClassVar

from msgspec import DecodeError, MsgspecError, Raw, Struct, ValidationError
from msgspec.json import Decoder, encode

from router.errors import BadAnswer, BadRequest, PointsmanError
from router.types import Dialect, Request, ToolCall, ToolResult, Turn, Usage
from router.wire import body as wire_body
from router.wire import faults, sse
from router.wire.loose import count, is_object, mapping
from router.wire.stream import PassMeter, Verdict

DONE = b"data: [DONE]\n\n"

# --- the request -----------------------------------------------------------------------------------------


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
        return tuple([_turn(message) for message in _MESSAGES.decode(messages)])
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


# --- the answer ------------------------------------------------------------------------------------------


class Delta(Struct, gc=False):
    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    refusal: Any = None
    tool_calls: Any = None
    function_call: Any = None
    audio: Any = None


class Choice(Struct, gc=False):
    delta: Delta | None = None
    text: Any = None  # legacy completions
    finish_reason: Any = None


class Chunk(Struct, gc=False):
    choices: list[Choice] | None = None
    usage: Any = None
    error: Any = None


class Answer(Struct, gc=False):
    usage: Any = None


class InputDetails(Struct, gc=False):
    cached_tokens: int | None = None


class OutputDetails(Struct, gc=False):
    reasoning_tokens: int | None = None


class Counted(Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: InputDetails | None = None
    completion_tokens_details: OutputDetails | None = None


class Plain(Struct, gc=False):
    """An answer whose usage is as OpenAI's document has it."""

    usage: Counted | None = None


class WholeChoice(Struct, gc=False):
    message: Delta
    finish_reason: Any = None


class Whole(Struct, gc=False):
    choices: list[WholeChoice]


_CHUNK = Decoder(Chunk)
_WHOLE = Decoder(Whole)
_ANSWER = Decoder(Answer)
_PLAIN = Decoder(Plain)


def read_usage(usage: Any) -> Usage | None:
    """Usage from OpenAI's `usage` object of chat and completions."""
    if not is_object(usage):
        return None
    read, written = usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
    return Usage(
        input=count(usage.get("prompt_tokens")) or 0,
        output=count(usage.get("completion_tokens")) or 0,
        cached=count(mapping(read).get("cached_tokens")) or 0 if read else 0,
        reasoning=count(mapping(written).get("reasoning_tokens")) or 0 if written else 0,
    )


def usage_of(answer: bytes) -> Usage | None:
    """The usage in a buffered answer."""
    try:
        usage = _PLAIN.decode(answer).usage
        if usage is None:
            return None
        read, written = usage.prompt_tokens_details, usage.completion_tokens_details
        return Usage(
            input=max(0, usage.prompt_tokens or 0),
            output=max(0, usage.completion_tokens or 0),
            cached=max(0, read.cached_tokens or 0) if read is not None else 0,
            reasoning=max(0, written.reasoning_tokens or 0) if written is not None else 0,
        )
    except (ValidationError, DecodeError, RecursionError):
        pass  # read leniently below
    try:
        return read_usage(_ANSWER.decode(answer).usage)
    except ValidationError:
        return None
    except (DecodeError, RecursionError):
        raise BadAnswer("the upstream's answer is not JSON") from None


def has_content(choice: Choice) -> bool:
    delta = choice.delta
    return bool(
        choice.text
        or (
            delta is not None
            and (
                delta.content
                or delta.tool_calls
                or delta.reasoning_content
                or delta.reasoning
                or delta.refusal
                or delta.function_call
                or delta.audio
            )
        )
    )


def has_delta(choice: Choice) -> bool:
    return choice.delta is not None or choice.text is not None


# Reasons that stay as they are when an answer holds tool calls; any other means that the tools shall be run (S15).
REASONS = ("tool_calls", "function_call", "length", "content_filter")
_REASON = re.compile(rb'("finish_reason"\s*:\s*)"[^"]*"')


def ask_for_tools(answer: bytes) -> bytes:
    """The answer or chunk with the finish reason that makes a client run the tools; all else as it came."""
    return _REASON.sub(rb'\1"tool_calls"', answer)


class ChatMeter(PassMeter):
    """Chat completions. With `withhold`, the usage chunk that the gateway asked for is kept back."""

    __slots__ = ("_calls", "_finished", "_withhold")

    delta: ClassVar[bytes] = b'"delta"'
    # Words that a delta may hold by chance only cost a parse.
    signs: ClassVar[tuple[bytes, ...]] = (
        b"\r",
        b"[DONE]",
        b"error",
        b"prompt_tokens",
        b'"finish_reason":"',
        b'"finish_reason": "',
    )

    def __init__(self, *, withhold: bool = False) -> None:
        super().__init__()
        self.rare = (*self.signs, b'"arguments"')  # the latter until the first tool call was seen
        self._calls = False
        self._withhold = withhold
        self._finished = False

    def _see(self, name: str, data: bytes) -> Verdict | bytes:
        if data.strip() == b"[DONE]":
            return "end"
        try:
            chunk = _CHUNK.decode(data)
        except (DecodeError, RecursionError):
            if name == "error" or faults.read(data):
                return "fail"
            if self.content:
                return "pass"
            raise BadAnswer("the upstream sent an event that is not a chat completion chunk") from None
        if chunk.error or name == "error" or (chunk.choices is None and faults.read(data)):
            return "fail"
        if chunk.usage is not None:
            self.usage = read_usage(chunk.usage) or self.usage
            if self._withhold and not chunk.choices:
                return "drop"
        choices = chunk.choices or []
        if not self._calls and any(choice.delta is not None and choice.delta.tool_calls for choice in choices):
            self._calls, self.rare = True, self.signs
        for choice in choices:
            if has_content(choice) or (self.content and not choice.finish_reason and has_delta(choice)):
                self.content = True
                self.parsing = self._finished
                self.deltas += 1
        reasons = [choice.finish_reason for choice in choices if choice.finish_reason]
        if reasons:
            self._finished = self.parsing = True  # the few events that follow are all read
        if self._calls and len(choices) == 1 and reasons and reasons[0] not in REASONS:
            return sse.event(ask_for_tools(data), name)
        return "pass"

    def fail(self, error: PointsmanError, request_id: str) -> bytes:
        return sse.event(error_body(error, request_id))

    def _finish(self) -> bytes:
        return DONE if self._finished else super()._finish()


# --- the codec -------------------------------------------------------------------------------------------


def error_body(error: PointsmanError, request_id: str) -> bytes:
    """OpenAI's error object, the same for all of its endpoints."""
    fault = faults.of(error)
    return encode(
        {
            "error": {
                "message": fault.message,
                "type": fault.openai_type,
                "param": fault.param,
                "code": fault.code,
                "request_id": request_id,
            }
        }
    )


class ChatCodec:
    """`router.seams.Codec` for POST /v1/chat/completions."""

    dialect: Dialect = "chat"

    def decode(self, body: bytes) -> Request:
        if len(body) <= wire_body.SMALL and (read := read_small(body)) is not None:
            top, model, span, turns = read
        else:
            top = wire_body.read(_TOP, body)
            model, span = wire_body.model(body, top.model, top.messages, top.tools, top.response_format)
            turns = read_turns(top.messages)
        tools = top.tools or ()
        include_usage, options_span = (
            (False, None) if top.stream_options is ABSENT else read_options(body, top.stream_options)
        )
        wants_json = False
        if top.response_format is not ABSENT:
            with suppress(ValidationError):  # null, or the upstream's to refuse
                wants_json = _FORMAT.decode(top.response_format).type in ("json_object", "json_schema")
        limit = count(top.max_completion_tokens)
        user = top.prompt_cache_key or top.user
        return Request(
            dialect="chat",
            body=body,
            model=model,
            model_span=span,
            stream=bool(top.stream),
            include_usage=include_usage,
            stream_options_span=options_span,
            turns=turns,
            tools=len(tools) or len(top.functions or ()),
            tool_texts=tuple(tools or top.functions or ()),
            wants_json=wants_json,
            max_output_tokens=count(top.max_tokens) if limit is None else limit,
            user=user if isinstance(user, str) else None,
        )

    def meter(self, request: Request, *, asked_usage: bool = False) -> ChatMeter:
        return ChatMeter(withhold=asked_usage and not request.include_usage)

    def usage(self, answer: bytes) -> Usage | None:
        return usage_of(answer)

    def mended(self, answer: bytes) -> bytes:
        if answer.find(b'"choices"') < 0 and faults.read(answer) is not None:  # `in` costs more
            raise faults.raised(answer)
        if answer.find(b'"tool_calls"') < 0:
            return answer
        try:
            choices = _WHOLE.decode(answer).choices
        except (DecodeError, RecursionError):
            return answer
        wrong = len(choices) == 1 and choices[0].message.tool_calls and choices[0].finish_reason not in REASONS
        return ask_for_tools(answer) if wrong else answer

    def error(self, error: PointsmanError, request_id: str) -> bytes:
        return error_body(error, request_id)

    def error_event(self, error: PointsmanError, request_id: str) -> bytes:
        return sse.event(error_body(error, request_id))
