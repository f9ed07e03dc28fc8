"""Answers between Anthropic messages and pieces: buffered, and as a stream of events."""

from __future__ import annotations

from typing import Any

from msgspec import DecodeError
from msgspec.json import decode, encode

from router.errors import BadAnswer, PointsmanError
from router.types import Usage
from router.wire import faults, messages, sse
from router.wire.blocks import Block, Blocks, Step
from router.wire.echo import Echo, known
from router.wire.loose import count, is_object, mapping, objects, text
from router.wire.parts import Delta, Finish, Piece, Reason, Seal, Start, StreamError, ToolDelta
from router.wire.provenance import sealed

_REASONS: dict[str, Reason] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tools",
    "refusal": "filter",
    "pause_turn": "pause",
}
_STOP: dict[Reason, str] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tools": "tool_use",
    "filter": "refusal",
    "pause": "pause_turn",
}

# --- reading ---------------------------------------------------------------------------------------------


class Reader:
    """Events to pieces. `finished`: a stop reason was seen; `ended`: message_stop was."""

    def __init__(self) -> None:
        self.finished = False
        self.ended = False
        self._open: dict[int, str] = {}  # block index -> its type
        self._signature = ""
        self._usage: dict[str, Any] = {}

    def read(self, name: str, data: bytes) -> list[Piece]:
        """The pieces of one event. Raises `BadAnswer` where it is not JSON."""
        try:
            found: Any = decode(data)
        except (DecodeError, RecursionError):
            raise BadAnswer("the upstream sent an event that is not one of the messages API") from None
        event = mapping(found)
        kind = text(event.get("type")) or name
        match kind:
            case "message_start":
                message = mapping(event.get("message"))
                return [Start(id=text(message.get("id")), model=text(message.get("model"))), *self._count(message)]
            case "content_block_start":
                return self._start(count(event.get("index")) or 0, mapping(event.get("content_block")))
            case "content_block_delta":
                return self._delta(count(event.get("index")) or 0, mapping(event.get("delta")))
            case "content_block_stop":
                return self._stop(count(event.get("index")) or 0)
            case "message_delta":
                return [*self._finish(mapping(event.get("delta"))), *self._count(event)]
            case "message_stop":
                self.ended = self.finished = True
                return []
            case "error":
                fault = faults.read_object(event, flat=True) or faults.Fault(message="the upstream failed", status=502)
                return [StreamError(fault=fault, body=data)]
            case _:
                return []  # ping, and what may be added

    def whole(self, answer: dict[str, Any]) -> list[Piece]:
        """The pieces of a buffered answer."""
        out: list[Piece] = [Start(id=text(answer.get("id")), model=text(answer.get("model")))]
        for index, block in enumerate(objects(answer.get("content"))):
            out += [*self._start(index, block), *self._stop(index)]
        return [*out, *self._finish(answer), *self._count(answer)]

    def _count(self, holder: dict[str, Any]) -> list[Piece]:
        """Later counts replace earlier ones, and what is not repeated stays."""
        self._usage |= {k: v for k, v in mapping(holder.get("usage")).items() if v is not None}
        usage = messages.read_usage(self._usage)
        return [] if usage is None or not self._usage else [usage]

    def _start(self, index: int, block: dict[str, Any]) -> list[Piece]:
        kind = text(block.get("type"))
        self._open[index] = kind
        match kind:
            case "text":
                return [Delta(kind="text", text=text(block.get("text")), fresh=True)]
            case "thinking":
                self._signature = text(block.get("signature"))
                return [Delta(kind="thinking", text=text(block.get("thinking")), fresh=True)]
            case "redacted_thinking":
                return [Seal(signature=text(block.get("data")), source="messages", redacted=True)]
            case "tool_use":
                given = block.get("input")
                arguments = encode(given).decode() if given else ""
                return [
                    ToolDelta(index=index, id=text(block.get("id")), name=text(block.get("name")), arguments=arguments)
                ]
            case _:
                return []

    def _delta(self, index: int, delta: dict[str, Any]) -> list[Piece]:
        match delta.get("type"):
            case "text_delta":
                return [Delta(kind="text", text=text(delta.get("text")))]
            case "thinking_delta":
                return [Delta(kind="thinking", text=text(delta.get("thinking")))]
            case "signature_delta":
                self._signature += text(delta.get("signature"))
                return []
            case "input_json_delta" if self._open.get(index) == "tool_use":
                return [ToolDelta(index=index, arguments=text(delta.get("partial_json")))]
            case _:
                return []

    def _stop(self, index: int) -> list[Piece]:
        kind = self._open.get(index)
        if kind == "tool_use":
            return [ToolDelta(index=index, end=True)]
        if kind == "thinking" and self._signature:
            signature, self._signature = self._signature, ""
            return [Seal(signature=signature, source="messages")]
        return []

    def _finish(self, delta: dict[str, Any]) -> list[Piece]:
        reason = text(delta.get("stop_reason"))
        if not reason:
            return []
        self.finished = True
        return [Finish(reason=_REASONS.get(reason, "stop"), stop_sequence=text(delta.get("stop_sequence")) or None)]


def read(answer: dict[str, Any]) -> list[Piece]:
    """The pieces of a buffered answer. Raises `BadAnswer` where it holds no content."""
    if not isinstance(answer.get("content"), list):
        raise BadAnswer("the upstream's answer has no content")
    return Reader().whole(answer)


# --- writing ---------------------------------------------------------------------------------------------


def usage_object(usage: Usage) -> dict[str, Any]:
    """This API counts cached input apart; elsewhere it is part of the input."""
    return {
        "input_tokens": max(0, usage.input - usage.cached),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.output,
    }


def _stop_reason(blocks: Blocks) -> dict[str, Any]:
    sequence = blocks.finish.stop_sequence if blocks.finish else None
    reason = _STOP[blocks.reason]
    if reason == "end_turn" and any(block.kind == "refusal" for block in blocks.blocks):
        reason = "refusal"
    elif reason == "end_turn" and sequence is not None:
        reason = "stop_sequence"
    return {"stop_reason": reason, "stop_sequence": sequence}


class Writer:
    """Pieces to events."""

    def __init__(self, echo: Echo) -> None:
        self.blocks = Blocks()
        self._echo = echo
        self._begun = False

    def write(self, piece: Piece) -> bytes:
        steps = self.blocks.add(piece)
        if isinstance(piece, Start | Usage | Finish) and not steps:
            return b""  # a count may follow that belongs to message_start
        return self._begin() + b"".join([self._step(step) for step in steps])

    def end(self) -> bytes:
        out = self._begin() + b"".join([self._step(step) for step in self.blocks.end()])
        out += _event("message_delta", delta=_stop_reason(self.blocks), usage=usage_object(known(self.blocks.usage)))
        return out + _event("message_stop")

    def fail(self, error: PointsmanError, request_id: str) -> bytes:
        return sse.event(messages.error_body(error, request_id), "error")

    def _begin(self) -> bytes:
        if self._begun:
            return b""
        self._begun = True
        usage = known(self.blocks.usage)
        message: dict[str, Any] = _message(self.blocks, self._echo)
        message |= {"content": [], "stop_reason": None, "stop_sequence": None}
        return _event("message_start", message={**message, "usage": {**usage_object(usage), "output_tokens": 0}})

    def _step(self, step: Step) -> bytes:
        block = step.block
        if step.what == "open":
            return _event("content_block_start", index=step.at, content_block=self._opening(block, step.at))
        if step.what == "more":
            return self._delta(step.at, self._growth(block, step.text)) if step.text else b""
        out = b""
        if block.kind == "tool" and not block.pieces:
            out = self._delta(step.at, {"type": "input_json_delta", "partial_json": "{}"})  # T03
        if block.kind == "thinking" and block.signature and not block.redacted:
            out = self._delta(step.at, {"type": "signature_delta", "signature": _signature(block)})
        return out + _event("content_block_stop", index=step.at)

    def _delta(self, at: int, delta: dict[str, Any]) -> bytes:
        return _event("content_block_delta", index=at, delta=delta)

    def _opening(self, block: Block, at: int) -> dict[str, Any]:
        match block.kind:
            case "tool":
                call_id = self._echo.call_id(self.blocks, at)
                return {"type": "tool_use", "id": call_id, "name": self._echo.tool(block).name, "input": {}}
            case "thinking" if block.redacted:
                return {"type": "redacted_thinking", "data": block.signature}
            case "thinking":
                return {"type": "thinking", "thinking": "", "signature": ""}
            case _:
                return {"type": "text", "text": ""}

    def _growth(self, block: Block, more: str) -> dict[str, Any]:
        match block.kind:
            case "tool":
                return {"type": "input_json_delta", "partial_json": more}
            case "thinking":
                return {"type": "thinking_delta", "thinking": more}
            case _:
                return {"type": "text_delta", "text": more}


def _event(kind: str, **fields: Any) -> bytes:
    return sse.event(encode({"type": kind, **fields}), kind)


def _signature(block: Block) -> str:
    assert block.source is not None  # noqa: S101  (a signature always comes with its source)
    return sealed(Seal(signature=block.signature, source=block.source, redacted=block.redacted, id=block.id))


def _message(blocks: Blocks, echo: Echo) -> dict[str, Any]:
    return {"id": echo.named("msg_", blocks), "type": "message", "role": "assistant", "model": blocks.start.model}


def answer(blocks: Blocks, echo: Echo) -> dict[str, Any]:
    """A buffered answer. Raises `BadAnswer` where a call's arguments are no object, which this API cannot say."""
    content = [_content(block, at, blocks, echo) for at, block in enumerate(blocks.blocks)]
    usage = usage_object(known(blocks.usage))
    return {**_message(blocks, echo), "content": content, **_stop_reason(blocks), "usage": usage}


def _content(block: Block, at: int, blocks: Blocks, echo: Echo) -> dict[str, Any]:
    match block.kind:
        case "tool":
            return {
                "type": "tool_use",
                "id": echo.call_id(blocks, at),
                "name": echo.tool(block).name,
                "input": _input(block.arguments),
            }
        case "thinking" if block.redacted:
            return {"type": "redacted_thinking", "data": block.signature}
        case "thinking":
            return {
                "type": "thinking",
                "thinking": block.text,
                "signature": _signature(block) if block.signature else "",
            }
        case _:
            return {"type": "text", "text": block.text}


def _input(arguments: str) -> dict[str, Any]:
    try:
        found: Any = decode(arguments)
    except (DecodeError, RecursionError):
        found = None
    if not is_object(found):
        raise BadAnswer("the model called a tool with arguments that are not a JSON object")
    return found
