"""Answers between chat completions and pieces: buffered, and as a stream of chunks."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import DecodeError, Struct
from msgspec.json import Decoder, decode, encode

from router.errors import BadAnswer, PointsmanError
from router.types import Usage
from router.wire import chat_meter, faults, sse
from router.wire.blocks import Block, Blocks, Step
from router.wire.chat_chunks import Calls, argued
from router.wire.echo import Echo, known
from router.wire.loose import count, is_array, is_object, mapping, objects, text
from router.wire.parts import Delta, Finish, Piece, Reason, Start, StreamError, ToolDelta

_REASONS: dict[str, Reason] = {
    "tool_calls": "tools",
    "function_call": "tools",
    **dict.fromkeys(chat_meter.LIMITS, "length"),
    **dict.fromkeys(chat_meter.FILTERS, "filter"),
}  # whatever else servers say means that the model stopped
_FINISH: dict[Reason, str] = {
    "stop": "stop",
    "length": "length",
    "tools": "tool_calls",
    "filter": "content_filter",
    "pause": "stop",
}

# --- reading ---------------------------------------------------------------------------------------------


class _Words(Struct, forbid_unknown_fields=True, gc=False):
    content: str
    role: Any = None  # some servers repeat it


class _Choice(Struct, forbid_unknown_fields=True, gc=False):
    delta: _Words
    index: Literal[0] = 0
    finish_reason: None = None
    logprobs: None = None


class _Chunk(Struct, gc=False):
    choices: tuple[_Choice]
    usage: None = None
    error: None = None


_CHUNK = Decoder(_Chunk)


def _only_words(data: bytes) -> str | None:
    """The text of a chunk that holds nothing else, as nearly every chunk of a long answer does."""
    try:
        return _CHUNK.decode(data).choices[0].delta.content
    except (DecodeError, RecursionError):
        return None


class Reader:
    """Chunks to pieces. `finished`: a finish reason was seen; `ended`: [DONE] was."""

    def __init__(self) -> None:
        self.finished = False
        self.ended = False
        self._started = False
        self._calls = Calls()

    def read(self, name: str, data: bytes) -> list[Piece]:
        """The pieces of one event. Raises `BadAnswer` where it is not JSON."""
        if data.strip() == b"[DONE]":
            self.ended = self.finished = True
            return []
        if self._started and (words := _only_words(data)):
            return [Delta(kind="text", text=words)]
        try:
            chunk: Any = decode(data)
        except (DecodeError, RecursionError):
            raise BadAnswer("the upstream sent an event that is not a chat completion chunk") from None
        if (
            name == "error"
            or mapping(chunk).get("error")
            or (not mapping(chunk).get("choices") and faults.read_object(chunk))
        ):
            fault = faults.read_object(chunk, flat=True) or faults.Fault(message="the upstream failed", status=502)
            return [StreamError(fault=fault, body=data)]
        return self.pieces(mapping(chunk))

    def pieces(self, chunk: dict[str, Any]) -> list[Piece]:
        """The pieces of a chunk, or of a whole answer, whose choices hold a `message`."""
        out: list[Piece] = []
        if not self._started and any(
            chunk.get(field) for field in ("id", "model", "choices")
        ):  # else Azure's of filters
            self._started = True
            out.append(
                Start(id=text(chunk.get("id")), model=text(chunk.get("model")), created=count(chunk.get("created")))
            )
        for choice in objects(chunk.get("choices")):
            if choice.get("index") not in (0, None):
                continue  # other dialects have one answer; n > 1 is refused on the way up
            delta = mapping(choice.get("delta") or choice.get("message"))
            logprobs = mapping(choice.get("logprobs")).get("content")
            out += self._delta(delta, tuple(logprobs) if is_array(logprobs) else ())
            if reason := choice.get("finish_reason"):
                self.finished = True
                out.append(Finish(reason=_REASONS.get(text(reason).lower(), "stop")))
        if (usage := chat_meter.read_usage(chunk.get("usage"))) is not None:
            out.append(usage)
        return out

    def _delta(self, delta: dict[str, Any], logprobs: tuple[Any, ...]) -> list[Piece]:
        out: list[Piece] = []
        content = delta.get("content")
        parts = objects(content)
        thought = text(delta.get("reasoning_content")) or text(delta.get("reasoning")) or thought_in(parts)
        if thought:
            out.append(Delta(kind="thinking", text=thought))
        words = text(content) or "".join([text(part.get("text")) for part in parts])
        if words or logprobs:
            out.append(Delta(kind="text", text=words, logprobs=logprobs))
        if said_no := text(delta.get("refusal")):
            out.append(Delta(kind="refusal", text=said_no))
        for at, call in enumerate(objects(delta.get("tool_calls"))):
            out.append(self._call(call, at))
        if is_object(old := delta.get("function_call")):
            out.append(self._call({"function": old}, 0))
        return out

    def _call(self, call: dict[str, Any], at: int) -> ToolDelta:
        custom = mapping(call.get("custom"))
        inner = custom or mapping(call.get("function"))
        name, said = text(inner.get("name")), argued(inner.get("input" if custom else "arguments"))
        index = self._calls.number(0, call, at, name, said)
        return ToolDelta(index=index, id=text(call.get("id")), name=name, arguments=said, custom=bool(custom))


def thought_in(parts: list[dict[str, Any]]) -> str:
    """What Mistral's models thought, which stands among the parts of what they say."""
    thoughts = [part.get("thinking") for part in parts if part.get("type") == "thinking"]
    return "".join([text(t) or "".join([text(piece.get("text")) for piece in objects(t)]) for t in thoughts])


def read(answer: dict[str, Any]) -> list[Piece]:
    """The pieces of a buffered answer. Raises `BadAnswer` where it holds no choice."""
    if not objects(answer.get("choices")):
        raise BadAnswer("the upstream's answer has no choices")
    return Reader().pieces(answer)


# --- writing ---------------------------------------------------------------------------------------------


def usage_object(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


class Writer:
    """Pieces to chunks."""

    def __init__(self, echo: Echo) -> None:
        self.blocks = Blocks()
        self._echo = echo
        self._begun = False
        self._numbers: dict[int, int] = {}  # block -> tool call index

    def write(self, piece: Piece) -> bytes:
        out = b""
        steps = self.blocks.add(piece)
        if not self._begun:
            self._begun = True
            out = self._chunk({"role": "assistant", "content": ""})
        return out + b"".join([self._step(step) for step in steps])

    def end(self) -> bytes:
        """The finish chunk, the usage where the client asked for it (S12), and [DONE]."""
        out = b"".join([self._step(step) for step in self.blocks.end()])
        out += self._chunk({}, _FINISH[self.blocks.reason])
        if self._echo.include_usage:
            out += sse.event(encode({**self._head(), "choices": [], "usage": usage_object(known(self.blocks.usage))}))
        return out + chat_meter.DONE

    def fail(self, error: PointsmanError, request_id: str) -> bytes:
        return sse.event(chat_meter.error_body(error, request_id))

    def _head(self) -> dict[str, Any]:
        return {
            "id": self._echo.named("chatcmpl-", self.blocks),
            "object": "chat.completion.chunk",
            "created": self._echo.created(self.blocks),
            "model": self.blocks.start.model,
        }

    def _chunk(self, delta: dict[str, Any], finish: str | None = None, logprobs: tuple[Any, ...] = ()) -> bytes:
        choice: dict[str, Any] = {"index": 0, "delta": delta, "finish_reason": finish}
        if logprobs:
            choice["logprobs"] = {"content": logprobs, "refusal": None}
        return sse.event(encode({**self._head(), "choices": [choice]}))

    def _step(self, step: Step) -> bytes:
        kind = step.block.kind
        if kind == "tool":
            return self._tool_step(step)
        if step.what != "more":
            return b""
        field = {"text": "content", "thinking": "reasoning_content", "refusal": "refusal"}[kind]
        return self._chunk({field: step.text}, logprobs=step.logprobs)

    def _tool_step(self, step: Step) -> bytes:
        tool = self._echo.tool(step.block)
        number = self._numbers.setdefault(step.at, len(self._numbers))
        call_id = self._echo.call_id(self.blocks, step.at)
        if tool.custom:  # a custom tool's input can be told only when it is whole
            call = {"index": number, "id": call_id, "type": "custom"}
            custom = {"name": tool.name, "input": self._echo.free_text(step.block)}
            return self._chunk({"tool_calls": [{**call, "custom": custom}]}) if step.what == "close" else b""
        if step.what == "open":
            function = {"name": tool.name, "arguments": ""}
            return self._chunk(
                {"tool_calls": [{"index": number, "id": call_id, "type": "function", "function": function}]}
            )
        arguments = step.text if step.what == "more" else "" if step.block.pieces else "{}"
        return (
            self._chunk({"tool_calls": [{"index": number, "function": {"arguments": arguments}}]}) if arguments else b""
        )


def answer(blocks: Blocks, echo: Echo) -> dict[str, Any]:
    """A buffered answer."""
    message: dict[str, Any] = {
        "role": "assistant",
        "content": _joined(blocks, "text"),
        "refusal": _joined(blocks, "refusal"),
    }
    if (thought := _joined(blocks, "thinking")) is not None:
        message["reasoning_content"] = thought
    calls = [_call(block, at, blocks, echo) for at, block in enumerate(blocks.blocks) if block.kind == "tool"]
    if calls:
        message["tool_calls"] = calls
    logprobs = [entry for block in blocks.blocks for entry in block.logprobs]
    choice = {
        "index": 0,
        "message": message,
        "finish_reason": _FINISH[blocks.reason],
        "logprobs": {"content": logprobs, "refusal": None} if logprobs else None,
    }
    return {
        "id": echo.named("chatcmpl-", blocks),
        "object": "chat.completion",
        "created": echo.created(blocks),
        "model": blocks.start.model,
        "choices": [choice],
        "usage": usage_object(known(blocks.usage)),
    }


def _joined(blocks: Blocks, kind: str) -> str | None:
    found = [block.text for block in blocks.blocks if block.kind == kind and block.text]
    return "".join(found) if found else None


def _call(block: Block, at: int, blocks: Blocks, echo: Echo) -> dict[str, Any]:
    tool, call_id = echo.tool(block), echo.call_id(blocks, at)
    if tool.custom:
        return {"id": call_id, "type": "custom", "custom": {"name": tool.name, "input": echo.free_text(block)}}
    return {"id": call_id, "type": "function", "function": {"name": tool.name, "arguments": block.arguments}}
