"""Anthropic messages: reading a request, metering a stream, reading usage, writing errors.

Also `count_tokens`, whose body is that of a message, and the removal of thoughts that Anthropic's API did not
sign. Translation to and from other dialects is not here.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any, ClassVar

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import Decoder, decode, encode

from router.errors import BadAnswer, BadRequest, PointsmanError
from router.types import Dialect, Request, ToolCall, ToolResult, Turn, Usage
from router.wire import body as wire_body
from router.wire import faults, sse
from router.wire.loose import count, is_object, mapping, text
from router.wire.pieces import elements
from router.wire.provenance import foreign
from router.wire.seen import SEEN, Seen, Span
from router.wire.stream import PassMeter, Verdict

# --- the request -----------------------------------------------------------------------------------------


class Result(Struct, gc=False):
    """A part inside a tool result."""

    type: Any = None
    text: Any = None


class Block(Struct, gc=False):
    type: Any = None
    text: Any = None
    signature: Any = None
    name: Any = None
    input: Raw = Raw()
    content: str | list[Result] | None = None
    is_error: Any = None


class Message(Struct, gc=False):
    role: str = ""
    content: str | list[Block] | None = None


class LooseMessage(Struct, gc=False):
    """Any object: a message of a kind that this module does not know."""

    role: Any = None


class Top(Struct, gc=False):
    model: Raw = Raw()
    messages: Raw = Raw()
    system: Raw = Raw()
    tools: list[Raw] | None = None
    stream: bool | None = None
    max_tokens: Any = None
    metadata: Any = None
    output_config: Any = None
    output_format: Any = None


_TOP = Decoder(Top)
_MESSAGES = Decoder(list[Message])
_EACH = Decoder(list[Raw])
_MESSAGE = Decoder(Message)
_LOOSE = Decoder(LooseMessage)
_SYSTEM = Decoder(str | list[Result] | None)


def _turns(messages: Raw) -> tuple[list[Turn], bool]:
    """The turns, and whether one holds a thought that this API did not sign."""
    if not bytes(messages):
        raise BadRequest("the body has no `messages`", param="messages")
    try:
        found = elements(messages, _MESSAGES, _MESSAGE)
    except ValidationError:
        return _loose_turns(messages), False
    return [_turn(message) for message in found], any(_foreign(message) for message in found)


def _foreign(message: Message) -> bool:
    blocks = message.content if message.role == "assistant" and isinstance(message.content, list) else ()
    return any(block.type == "thinking" and foreign(text(block.signature)) for block in blocks)


def _loose_turns(messages: Raw) -> list[Turn]:
    try:
        each = _EACH.decode(messages)
    except ValidationError:
        raise BadRequest("`messages` must be an array", param="messages") from None
    return [_loose(raw, at) for at, raw in enumerate(each)]


def _loose(raw: Raw, at: int) -> Turn:
    with suppress(ValidationError):
        return _turn(_MESSAGE.decode(raw))
    try:
        return Turn(role=text(_LOOSE.decode(raw).role))
    except ValidationError:
        raise BadRequest(f"`messages[{at}]` must be an object", param=f"messages[{at}]") from None


def _turn(message: Message) -> Turn:
    if isinstance(message.content, str):
        return Turn(role=message.role, texts=(message.content,) if message.content else ())
    texts: list[str] = []
    calls: list[ToolCall] = []
    results: list[ToolResult] = []
    images = 0
    for block in message.content or ():
        match block.type:
            case "text":
                if isinstance(block.text, str):
                    texts.append(block.text)
            case "image":
                images += 1
            case "tool_use":
                calls.append(ToolCall(name=text(block.name), arguments=bytes(block.input).decode()))
            case "tool_result":
                inner = (
                    [Result(type="text", text=block.content)] if isinstance(block.content, str) else block.content or []
                )
                images += sum([part.type == "image" for part in inner])
                told = "\n".join([part.text for part in inner if isinstance(part.text, str)])
                results.append(
                    ToolResult(text=told, error=block.is_error if isinstance(block.is_error, bool) else None)
                )
            case _:
                pass
    return Turn(
        role=message.role, texts=tuple(texts), images=images, tool_calls=tuple(calls), tool_results=tuple(results)
    )


def _system(raw: Raw) -> list[Turn]:
    with suppress(ValidationError):
        system = _SYSTEM.decode(raw) if bytes(raw) else None
        if isinstance(system, str):
            return [Turn(role="system", texts=(system,))]
        if system:
            return [Turn(role="system", texts=tuple([part.text for part in system if isinstance(part.text, str)]))]
    return []


# --- the answer ------------------------------------------------------------------------------------------


def read_usage(usage: Any) -> Usage | None:
    """Usage from Anthropic's `usage` object, whose input leaves out what was read from or written to the cache."""
    if not is_object(usage):
        return None
    cached = count(usage.get("cache_read_input_tokens")) or 0
    written = count(usage.get("cache_creation_input_tokens")) or 0
    return Usage(
        input=(count(usage.get("input_tokens")) or 0) + cached + written,
        output=count(usage.get("output_tokens")) or 0,
        cached=cached,
        reasoning=count(mapping(usage.get("output_tokens_details")).get("thinking_tokens")) or 0,
    )


class Answer(Struct, gc=False):
    usage: Any = None


class Whole(Struct, gc=False):
    content: list[Block]
    stop_reason: Raw = Raw()


_ANSWER = Decoder(Answer)
_WHOLE = Decoder(Whole)


# What servers say of an answer with tool calls that shall be run, which the API calls "tool_use" (S15).
_MERELY = ("end_turn", "stop", "completed", "tool_calls", "function_call")
_REASON = re.compile(rb'("stop_reason"\s*:\s*)"(?:%b)"' % "|".join(_MERELY).encode())


def ask_for_tools(event: bytes) -> bytes:
    """The event with the stop reason that makes a client run the tools; all else as it came."""
    return _REASON.sub(rb'\1"tool_use"', event.replace(b"\n", b" "))


class MessagesMeter(PassMeter):
    """Messages; usage begins in message_start and is completed in message_delta."""

    __slots__ = ("_calls", "_counts")

    signs: ClassVar[tuple[bytes, ...]] = (b"\r", b"message_delta", b"message_stop", b"error", b'"tool_use"')
    delta: ClassVar[bytes] = b'content_block_delta"'

    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[str, Any] = {}
        self._calls = False

    def fail(self, error: PointsmanError, request_id: str) -> bytes:
        return sse.event(error_body(error, request_id), "error")

    def _see(self, name: str, data: bytes) -> Verdict | bytes:
        try:
            event: Any = decode(data)
        except (DecodeError, RecursionError):
            event = None
        if not is_object(event):
            if self.content:
                return "pass"
            raise BadAnswer("the upstream sent an event that is not one of the messages API")
        kind = text(event.get("type")) or name
        if kind == "error" or name == "error":
            return "fail"
        if kind in ("message_start", "message_delta"):
            holder = mapping(event.get("message")) if kind == "message_start" else event
            self._counts |= {k: v for k, v in mapping(holder.get("usage")).items() if v is not None}
            self.usage = read_usage(self._counts)
            if self._calls and mapping(event.get("delta")).get("stop_reason") in _MERELY:
                return sse.event(ask_for_tools(data), name)
        elif kind == "content_block_delta" and (self.content or _grows(mapping(event.get("delta")))):
            self.content = True
            self.parsing = False
            self.deltas += 1
        elif kind == "content_block_start":
            block = mapping(event.get("content_block")).get("type")
            self._calls = self._calls or block == "tool_use"
            self.content = self.content or block in ("tool_use", "redacted_thinking")
        elif kind == "message_stop":
            return "end"
        return "pass"


def _grows(delta: dict[str, Any]) -> bool:
    return any(delta.get(field) for field in ("text", "thinking", "partial_json", "signature", "citation"))


def error_body(error: PointsmanError, request_id: str) -> bytes:
    """Anthropic's error object."""
    fault = faults.of(error)
    told = {"type": fault.anthropic_type, "message": fault.message}
    return encode({"type": "error", "error": told, "request_id": request_id})


# --- the codec -------------------------------------------------------------------------------------------


class MessagesCodec:
    """`router.seams.Codec` for POST /v1/messages."""

    dialect: Dialect = "messages"

    def __init__(self, seen: Seen = SEEN) -> None:
        self._seen = seen

    def decode(self, body: bytes) -> Request:
        return self._seen.read(body, self) if len(body) > wire_body.SMALL else self.whole(body)[0]

    def whole(self, body: bytes) -> tuple[Request, Span | None]:
        """See `seen.Reader`."""
        top = wire_body.read(_TOP, body)
        large = len(body) > wire_body.SMALL
        messages = wire_body.located(body, top.messages) if large else None
        rest = [wire_body.located(body, field) for field in (top.tools, top.system)] if large else ()
        model, span = wire_body.model(body, top.model, messages, *rest)
        turns, foreign_thoughts = _turns(top.messages)
        shape = mapping(mapping(top.output_config).get("format")) or mapping(top.output_format)
        request = Request(
            dialect="messages",
            body=body,
            model=model,
            model_span=span,
            stream=bool(top.stream),
            include_usage=True,
            turns=(*_system(top.system), *turns),
            foreign_thoughts=foreign_thoughts,
            tools=len(top.tools or ()),
            wants_json=shape.get("type") == "json_schema",
            max_output_tokens=count(top.max_tokens),
            user=text(mapping(top.metadata).get("user_id")) or None,
        )
        return request, None if foreign_thoughts else messages

    def more(self, array: bytes) -> list[Turn | None]:
        """See `seen.Reader`."""
        found = _MESSAGES.decode(array)
        if any(map(_foreign, found)):
            raise ValidationError("a thought that this API did not sign")
        return list(map(_turn, found))

    def meter(self, request: Request, *, asked_usage: bool = False) -> MessagesMeter:
        return MessagesMeter()

    def usage(self, answer: bytes) -> Usage | None:
        try:
            return read_usage(_ANSWER.decode(answer).usage)
        except ValidationError:
            return None
        except (DecodeError, RecursionError):
            raise BadAnswer("the upstream's answer is not JSON") from None

    def mended(self, answer: bytes) -> bytes:
        if answer.find(b'"content"') < 0:
            raise faults.lacking(answer, "content")
        if b'"tool_use"' not in answer:
            return answer
        try:
            whole = _WHOLE.decode(answer)
        except (DecodeError, RecursionError):
            return answer
        reason = whole.stop_reason  # whose like may stand in a call's input too
        if bytes(reason)[1:-1].decode("latin-1") not in _MERELY or all(
            block.type != "tool_use" for block in whole.content
        ):
            return answer
        return wire_body.replace(answer, [(wire_body.locate(answer, reason), b'"tool_use"')])

    def error(self, error: PointsmanError, request_id: str) -> bytes:
        return error_body(error, request_id)

    def error_event(self, error: PointsmanError, request_id: str) -> bytes:
        return sse.event(error_body(error, request_id), "error")
