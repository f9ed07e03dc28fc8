"""OpenAI Responses: reading a request, metering a stream, reading usage, writing errors.

Translation to and from other dialects is not here.
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
from router.wire import chat_meter, faults, sse
from router.wire.faults import Fault
from router.wire.loose import count, is_object, mapping, text
from router.wire.pieces import elements
from router.wire.responses_ids import Ids
from router.wire.seen import SEEN, Seen, Span
from router.wire.stream import PassMeter, Verdict

# --- the request -----------------------------------------------------------------------------------------


class Part(Struct, gc=False):
    type: Any = None
    text: Any = None


class Item(Struct, gc=False):
    type: str = "message"
    role: str = ""
    content: str | list[Part] | None = None
    name: Any = None
    arguments: Any = None
    input: Any = None
    output: str | list[Part] | None = None


class LooseItem(Struct, gc=False):
    """Any object: an item of a kind that this module does not know."""

    role: Any = None


class Top(Struct, gc=False):
    model: Raw = Raw()
    input: Raw = Raw()
    instructions: Raw = Raw()
    tools: list[Raw] | None = None
    stream: bool | None = None
    max_output_tokens: Any = None
    text: Raw = Raw()
    user: Any = None
    prompt_cache_key: Any = None
    previous_response_id: Any = None
    prompt: Raw = Raw()
    conversation: Raw = Raw()


_TOP = Decoder(Top)
_INPUT = Decoder(str | list[Item] | None)
_ITEMS = Decoder(list[Item])
_EACH = Decoder(list[Raw])
_ITEM = Decoder(Item)
_LOOSE = Decoder(LooseItem)


def _turns(top: Top) -> list[Turn]:
    turns: list[Turn] = []
    if bytes(top.instructions):
        with suppress(ValidationError, DecodeError):
            instructions: Any = decode(top.instructions)
            if isinstance(instructions, str) and instructions:
                turns.append(Turn(role="system", texts=(instructions,)))
    if not bytes(top.input):
        if top.previous_response_id or bytes(top.prompt) or bytes(top.conversation):
            return turns
        raise BadRequest("the body has no `input`", param="input")
    try:
        found = elements(top.input, _INPUT, _ITEM)
    except ValidationError:
        return turns + _loose(top.input)
    if isinstance(found, str):
        return [*turns, Turn(role="user", texts=(found,))]
    return turns + [turn for item in found or () if (turn := _turn(item)) is not None]


def _conversation(raw: Raw) -> str | None:
    if not bytes(raw):
        return None
    with suppress(DecodeError):
        found: Any = decode(raw)
        return text(found) or text(mapping(found).get("id")) or None
    return None


def _loose(raw: Raw) -> list[Turn]:
    try:
        each = _EACH.decode(raw)
    except ValidationError:
        raise BadRequest("`input` must be a string or an array", param="input") from None
    turns: list[Turn] = []
    for at, item in enumerate(each):
        try:
            turn = _turn(_ITEM.decode(item))
        except ValidationError:
            try:
                turn = Turn(role=text(_LOOSE.decode(item).role))
            except ValidationError:
                raise BadRequest(f"`input[{at}]` must be an object", param=f"input[{at}]") from None
        turns += [] if turn is None else [turn]
    return turns


def _turn(item: Item) -> Turn | None:
    match item.type:
        case "message":
            texts, images = _words(item.content)
            return Turn(role=item.role, texts=texts, images=images)
        case "function_call" | "custom_tool_call" | "local_shell_call":
            call = ToolCall(name=text(item.name), arguments=text(item.arguments) or text(item.input))
            return Turn(role="assistant", tool_calls=(call,))
        case "function_call_output" | "custom_tool_call_output" | "local_shell_call_output":
            texts, images = _words(item.output)
            return Turn(role="tool", images=images, tool_results=(ToolResult(text="\n".join(texts)),))
        case _:
            return None


def _words(content: str | list[Part] | None) -> tuple[tuple[str, ...], int]:
    if content is None:
        return (), 0
    if isinstance(content, str):
        return ((content,) if content else ()), 0
    return (
        tuple([p.text for p in content if isinstance(p.text, str)]),
        sum([p.type == "input_image" for p in content]),
    )


# --- the answer ------------------------------------------------------------------------------------------


def read_usage(usage: Any) -> Usage | None:
    """Usage from the `usage` object of a response."""
    if not is_object(usage):
        return None
    return Usage(
        input=count(usage.get("input_tokens")) or 0,
        output=count(usage.get("output_tokens")) or 0,
        cached=count(mapping(usage.get("input_tokens_details")).get("cached_tokens")) or 0,
        reasoning=count(mapping(usage.get("output_tokens_details")).get("reasoning_tokens")) or 0,
    )


class Answer(Struct, gc=False):
    id: Any = None
    usage: Any = None


_ANSWER = Decoder(Answer)


def answer_id(answer: bytes) -> str:
    """The id of a buffered answer, which a later request names as previous_response_id; "" where it has none."""
    try:
        return text(_ANSWER.decode(answer).id)
    except (DecodeError, RecursionError):
        return ""


_WITH_IDS = ("response.output_item.added", "response.completed", "response.incomplete")
_NUMBER = re.compile(rb'"sequence_number"\s*:\s*(\d+)')


class ResponsesMeter(PassMeter):
    """Responses; the terminal event carries the whole answer and its usage."""

    __slots__ = ("_ids", "_last", "_model", "answer_id")

    signs: ClassVar[tuple[bytes, ...]] = (
        b"\r",
        b"response.completed",
        b"response.incomplete",
        b"error",
        b"response.failed",
        b"output_item.added",
    )
    delta: ClassVar[bytes] = b'.delta"'

    def __init__(self) -> None:
        super().__init__()
        self.answer_id = ""  # what a later request names as previous_response_id
        self._ids = Ids()
        self._model = ""
        self._last = b""

    def feed(self, data: bytes) -> bytes:
        out = super().feed(data)
        self._last = out or self._last
        return out

    def fail(self, error: PointsmanError, request_id: str) -> bytes:
        numbers = _NUMBER.findall(self._last)
        number = int(numbers[-1]) + 1 if numbers else 0
        return failed_event(faults.of(error), self.answer_id or f"resp_{request_id}", self._model, number)

    def _see(self, name: str, data: bytes) -> Verdict | bytes:
        try:
            event: Any = decode(data)
        except (DecodeError, RecursionError):
            event = None
        if not is_object(event):
            if self.content or data.strip() == b"[DONE]":
                return "pass"
            raise BadAnswer("the upstream sent an event that is not one of the Responses API")
        kind = text(event.get("type")) or name
        response = mapping(event.get("response"))
        if kind in ("error", "response.failed") or (not kind and faults.read_object(event)):
            return "fail"
        if kind == "response.created":
            self.answer_id, self._model = text(response.get("id")), text(response.get("model"))
        mended: Verdict | bytes = "pass"
        # Past the first content only some events are read, of which these are in every stream.
        if (self._ids.wrong or not self.content or kind in _WITH_IDS) and self._ids.mend(event):
            mended = sse.event(encode(event), kind)
        if kind in ("response.completed", "response.incomplete"):
            self.usage = read_usage(response.get("usage"))
            self.done = True
            return mended
        if kind.endswith(".delta") and (self.content or event.get("delta")):
            self.content = True
            self.parsing = self._ids.wrong
            self.deltas += 1
        elif kind == "response.output_item.done" and mapping(event.get("item")).get("type") != "reasoning":
            self.content = True
        return mended


_CODES = {429: "rate_limit_exceeded"}


def error_object(fault: Fault) -> dict[str, Any]:
    """The `error` of a failed response: its codes are a closed set, to which clients add the context overflow."""
    if fault.code in ("context_length_exceeded", "insufficient_quota"):
        return {"code": fault.code, "message": fault.message}
    code = _CODES.get(fault.status, "invalid_prompt" if 400 <= fault.status < 500 else "server_error")
    return {"code": code, "message": fault.message}


def failed_event(fault: Fault, response_id: str, model: str, number: int, **more: Any) -> bytes:
    """`response.failed`, the only event that may follow a failure."""
    response = {**blank(response_id, model), "status": "failed", "error": error_object(fault), **more}
    return sse.event(
        encode({"type": "response.failed", "sequence_number": number, "response": response}), "response.failed"
    )


def blank(response_id: str, model: str) -> dict[str, Any]:
    """A response object with every field that the published schema requires."""
    return {
        "id": response_id,
        "object": "response",
        "created_at": 0,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": model,
        "output": [],
        "parallel_tool_calls": True,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
    }


# --- the codec -------------------------------------------------------------------------------------------


class ResponsesCodec:
    """`router.seams.Codec` for POST /v1/responses."""

    dialect: Dialect = "responses"

    def __init__(self, seen: Seen = SEEN) -> None:
        self._seen = seen

    def decode(self, body: bytes) -> Request:
        return self._seen.read(body, self) if len(body) > wire_body.SMALL else self.whole(body)[0]

    def whole(self, body: bytes) -> tuple[Request, Span | None]:
        """See `seen.Reader`."""
        top = wire_body.read(_TOP, body)
        large = len(body) > wire_body.SMALL
        given = wire_body.located(body, top.input) if large else None
        rest = [wire_body.located(body, field) for field in (top.tools, top.instructions, top.text)] if large else ()
        model, span = wire_body.model(body, top.model, given, *rest)
        shape: Any = None
        if bytes(top.text):
            with suppress(DecodeError):
                shape = mapping(mapping(decode(top.text)).get("format")).get("type")
        user = top.prompt_cache_key or top.user
        request = Request(
            dialect="responses",
            body=body,
            model=model,
            model_span=span,
            stream=bool(top.stream),
            include_usage=True,
            turns=tuple(_turns(top)),
            tools=len(top.tools or ()),
            wants_json=shape in ("json_object", "json_schema"),
            max_output_tokens=count(top.max_output_tokens),
            user=user if isinstance(user, str) else None,
            previous=text(top.previous_response_id) or _conversation(top.conversation),
        )
        return request, given if given is not None and body.startswith(b"[", given[0]) else None

    def more(self, array: bytes) -> list[Turn | None]:
        """See `seen.Reader`."""
        return [_turn(item) for item in _ITEMS.decode(array)]

    def meter(self, request: Request, *, asked_usage: bool = False) -> ResponsesMeter:
        return ResponsesMeter()

    def usage(self, answer: bytes) -> Usage | None:
        try:
            return read_usage(_ANSWER.decode(answer).usage)
        except ValidationError:
            return None
        except (DecodeError, RecursionError):
            raise BadAnswer("the upstream's answer is not JSON") from None

    def mended(self, answer: bytes) -> bytes:
        if answer.find(b'"output"') < 0:
            raise faults.lacking(answer, "output")
        if answer.find(b'"failed"') >= 0 and faults.failed(answer):
            raise faults.raised(answer)
        return answer

    def error(self, error: PointsmanError, request_id: str) -> bytes:
        return chat_meter.error_body(error, request_id)

    def error_event(self, error: PointsmanError, request_id: str) -> bytes:
        return failed_event(faults.of(error), f"resp_{request_id}", "", 0)
