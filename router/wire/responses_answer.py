"""Answers between OpenAI Responses and pieces: buffered, and as a stream of events."""

from __future__ import annotations

from typing import Any

from msgspec import DecodeError
from msgspec.json import decode, encode

from router.errors import BadAnswer, PointsmanError
from router.types import Usage
from router.wire import faults, responses, sse
from router.wire.blocks import Block, Blocks, Step
from router.wire.echo import Echo, known
from router.wire.loose import count, is_array, mapping, objects, text
from router.wire.parts import Delta, Finish, Piece, Seal, Start, StreamError, ToolDelta
from router.wire.provenance import encrypted

_CALLS = ("function_call", "custom_tool_call")

# --- reading ---------------------------------------------------------------------------------------------


class Reader:
    """Events to pieces. `finished` and `ended` come together here, with the terminal event."""

    def __init__(self) -> None:
        self.finished = False
        self.ended = False
        self._told: set[tuple[int, int]] = set()  # (output index, part index) of which deltas were seen
        self._done: set[int] = set()  # output indexes of finished items

    def read(self, name: str, data: bytes) -> list[Piece]:
        """The pieces of one event. Raises `BadAnswer` where it is not JSON."""
        if data.strip() == b"[DONE]":
            return []  # some servers end every stream so
        try:
            found: Any = decode(data)
        except (DecodeError, RecursionError):
            raise BadAnswer("the upstream sent an event that is not one of the Responses API") from None
        event = mapping(found)
        kind = text(event.get("type")) or name
        at = count(event.get("output_index")) or 0
        item = mapping(event.get("item"))
        match kind:
            case "response.created":
                return [_start(mapping(event.get("response")))]
            case "response.output_item.added" if item.get("type") in _CALLS:
                return [_call(at, item)]
            case "response.output_item.done":
                return self._item(at, item)
            case "response.output_text.delta" | "response.refusal.delta":
                logprobs = event.get("logprobs")
                return self._delta("text" if "text" in kind else "refusal", at, event, "content_index",
                                   tuple(logprobs) if is_array(logprobs) else ())  # fmt: skip
            case "response.reasoning_text.delta":
                return self._delta("thinking", at, event, "content_index")
            case "response.reasoning_summary_text.delta":
                return self._delta("thinking", at, event, "summary_index")
            case "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta":
                self._told.add((at, 0))
                return [ToolDelta(index=at, arguments=text(event.get("delta")))]
            case "response.completed" | "response.incomplete":
                self.ended = self.finished = True
                response = mapping(event.get("response"))
                items = objects(response.get("output"))
                if len(items) <= len(self._done):
                    return _finish(response)
                untold = [
                    (at, item) for at, item in enumerate(items) if at not in self._done
                ]  # but here, by some servers
                return [*[piece for at, item in untold for piece in self._item(at, item)], *_finish(response)]
            case "response.failed" | "error":
                return [StreamError(fault=_fault(event), body=data)]
            case _:
                return []

    def _delta(
        self, kind: Any, at: int, event: dict[str, Any], index: str, logprobs: tuple[Any, ...] = ()
    ) -> list[Piece]:
        part = at, count(event.get(index)) or 0
        fresh = not any(seen[0] == at for seen in self._told)
        gap = "\n\n" if kind == "thinking" and not fresh and part not in self._told else ""
        self._told.add(part)
        return [Delta(kind=kind, text=gap + text(event.get("delta")), logprobs=logprobs, fresh=fresh)]

    def _item(self, at: int, item: dict[str, Any]) -> list[Piece]:
        """What a finished item says that its deltas did not."""
        self._done.add(at)
        told = any(seen[0] == at for seen in self._told)
        match item.get("type"):
            case "function_call" | "custom_tool_call":
                rest = _call(at, item, arguments=not told)
                return [rest, ToolDelta(index=at, end=True)]
            case "message" if not told:
                return _message(item)
            case "reasoning":
                thought = [] if told else _thought(item)
                seal = text(item.get("encrypted_content"))
                return [
                    *thought,
                    *([Seal(signature=seal, source="responses", id=text(item.get("id")))] if seal else []),
                ]
            case _:
                return []


def _start(response: dict[str, Any]) -> Start:
    return Start(
        id=text(response.get("id")), model=text(response.get("model")), created=count(response.get("created_at"))
    )


def _call(at: int, item: dict[str, Any], *, arguments: bool = False) -> ToolDelta:
    custom = item.get("type") == "custom_tool_call"
    said = text(item.get("input" if custom else "arguments")) if arguments else ""
    return ToolDelta(index=at, id=text(item.get("call_id")), name=text(item.get("name")), arguments=said, custom=custom)


def _message(item: dict[str, Any]) -> list[Piece]:
    out: list[Piece] = []
    for part in objects(item.get("content")):
        if part.get("type") == "refusal":
            out.append(Delta(kind="refusal", text=text(part.get("refusal"))))
        else:
            logprobs = part.get("logprobs")
            kept = tuple(logprobs) if is_array(logprobs) else ()
            out.append(Delta(kind="text", text=text(part.get("text")), logprobs=kept, fresh=not out))
    return out


def _thought(item: dict[str, Any]) -> list[Piece]:
    parts = objects(item.get("summary")) or objects(item.get("content"))
    thought = "\n\n".join([text(part.get("text")) for part in parts])
    return [Delta(kind="thinking", text=thought, fresh=True)] if thought else []


def _finish(response: dict[str, Any]) -> list[Piece]:
    reason = text(mapping(response.get("incomplete_details")).get("reason"))
    usage = responses.read_usage(response.get("usage"))
    counted: list[Piece] = [] if usage is None else [usage]
    if response.get("status") == "incomplete":
        return [*counted, Finish(reason="filter" if reason == "content_filter" else "length")]
    return [*counted, Finish(reason="stop")]


def _fault(event: dict[str, Any]) -> faults.Fault:
    return faults.read_object(event, flat=True) or faults.Fault(message="the upstream failed", status=502)


def read(answer: dict[str, Any]) -> list[Piece]:
    """The pieces of a buffered answer. Raises `BadAnswer` where it failed or holds no output."""
    if answer.get("status") in ("failed", "cancelled") or not is_array(answer.get("output")):
        raise BadAnswer("the upstream's answer has no output")
    reader = Reader()
    out: list[Piece] = [_start(answer)]
    for at, item in enumerate(objects(answer["output"])):
        if item.get("type") in _CALLS:
            out += [_call(at, item, arguments=True), ToolDelta(index=at, end=True)]
        else:
            out += reader.read("", encode({"type": "response.output_item.done", "output_index": at, "item": item}))
    return [*out, *_finish(answer)]


# --- writing ---------------------------------------------------------------------------------------------


def usage_object(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": 0},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.input + usage.output,
    }


class Writer:
    """Pieces to events: every item is added, grown and done under one id; numbers rise by one."""

    def __init__(self, echo: Echo) -> None:
        self.blocks = Blocks()
        self._echo = echo
        self._number = 0
        self._begun = False
        self._ids: dict[int, str] = {}

    def write(self, piece: Piece) -> bytes:
        steps = self.blocks.add(piece)
        return self._begin() + b"".join([self._step(step) for step in steps])

    def end(self) -> bytes:
        out = self._begin() + b"".join([self._step(step) for step in self.blocks.end()])
        done = answer(self.blocks, self._echo)
        return out + self._event(f"response.{done['status']}", response=done)

    def fail(self, error: PointsmanError, request_id: str) -> bytes:
        started = self.blocks.start.model
        named = self._echo.named("resp_", self.blocks) if self._begun else f"resp_{request_id}"
        more = {"created_at": self._echo.created(self.blocks)}
        return responses.failed_event(faults.of(error), named, started, self._number, **more)

    def _begin(self) -> bytes:
        if self._begun:
            return b""
        self._begun = True
        response = _response(self.blocks, self._echo)
        return self._event("response.created", response=response) + self._event(
            "response.in_progress", response=response
        )

    def _event(self, kind: str, **fields: Any) -> bytes:
        number, self._number = self._number, self._number + 1
        return sse.event(encode({"type": kind, "sequence_number": number, **fields}), kind)

    def _step(self, step: Step) -> bytes:
        block, at = step.block, step.at
        if step.what == "open":
            item = _item(block, at, self.blocks, self._echo, opening=True)
            return self._event("response.output_item.added", output_index=at, item=item) + self._open_part(block, at)
        if step.what == "more":
            return self._more(step)
        item = _item(block, at, self.blocks, self._echo)
        return self._close_part(block, at, item) + self._event("response.output_item.done", output_index=at, item=item)

    def _place(self, block: Block, at: int) -> dict[str, Any]:
        if at not in self._ids:
            self._ids[at] = _item_id(block, at, self.blocks, self._echo)
        return {"item_id": self._ids[at], "output_index": at}

    def _open_part(self, block: Block, at: int) -> bytes:
        place = self._place(block, at)
        if block.kind == "tool" or block.redacted:
            return b""
        if block.kind == "thinking":
            part = {"type": "summary_text", "text": ""}
            return self._event("response.reasoning_summary_part.added", **place, summary_index=0, part=part)
        return self._event("response.content_part.added", **place, content_index=0, part=_part(block, opening=True))

    def _more(self, step: Step) -> bytes:
        place = self._place(step.block, step.at)
        match step.block.kind:
            case "tool":
                if self._echo.tool(step.block).custom:
                    return b""  # its free text stands inside arguments that are not whole yet
                return self._event("response.function_call_arguments.delta", **place, delta=step.text)
            case "thinking":
                return self._event("response.reasoning_summary_text.delta", **place, summary_index=0, delta=step.text)
            case "refusal":
                return self._event("response.refusal.delta", **place, content_index=0, delta=step.text)
            case "text":
                return self._event(
                    "response.output_text.delta", **place, content_index=0, delta=step.text, logprobs=step.logprobs
                )

    def _close_part(self, block: Block, at: int, item: dict[str, Any]) -> bytes:
        place, words = self._place(block, at), block.text
        match block.kind:
            case "tool" if item["type"] == "custom_tool_call":
                said = item["input"]
                return self._event("response.custom_tool_call_input.delta", **place, delta=said) + self._event(
                    "response.custom_tool_call_input.done", **place, input=said
                )
            case "tool":
                name, arguments = item["name"], item["arguments"]
                return self._event("response.function_call_arguments.done", **place, name=name, arguments=arguments)
            case "thinking" if block.redacted:
                return b""
            case "thinking":
                part = {"type": "summary_text", "text": words}
                return self._event(
                    "response.reasoning_summary_text.done", **place, summary_index=0, text=words
                ) + self._event("response.reasoning_summary_part.done", **place, summary_index=0, part=part)
            case "refusal":
                done = self._event("response.refusal.done", **place, content_index=0, refusal=words)
            case "text":
                done = self._event(
                    "response.output_text.done", **place, content_index=0, text=words, logprobs=block.logprobs
                )
        return done + self._event("response.content_part.done", **place, content_index=0, part=_part(block))


def _part(block: Block, *, opening: bool = False) -> dict[str, Any]:
    words = "" if opening else block.text
    if block.kind == "refusal":
        return {"type": "refusal", "refusal": words}
    return {"type": "output_text", "text": words, "annotations": [], "logprobs": [] if opening else block.logprobs}


def _item_id(block: Block, at: int, blocks: Blocks, echo: Echo) -> str:
    custom = block.kind == "tool" and echo.tool(block).custom
    prefix = "ctc" if custom else {"tool": "fc", "thinking": "rs"}.get(block.kind, "msg")
    return f"{prefix}_{echo.core(blocks)}_{at}"


def _item(block: Block, at: int, blocks: Blocks, echo: Echo, *, opening: bool = False) -> dict[str, Any]:
    """An output item; as it is added, or as it is when done."""
    head: dict[str, Any] = {"id": _item_id(block, at, blocks, echo)}
    status = "in_progress" if opening else "completed"
    if block.kind == "tool":
        tool = echo.tool(block)
        head |= {"call_id": echo.call_id(blocks, at), "name": tool.name}
        if tool.namespace:
            head["namespace"] = tool.namespace
        if tool.custom:
            return {**head, "type": "custom_tool_call", "input": "" if opening else echo.free_text(block)}
        return {**head, "type": "function_call", "arguments": "" if opening else block.arguments, "status": status}
    if block.kind == "thinking":
        words = block.text
        summary = [{"type": "summary_text", "text": words}] if words and not opening else []
        item = {**head, "type": "reasoning", "summary": summary}
        if block.signature and not opening and block.source is not None:
            seal = Seal(signature=block.signature, source=block.source, redacted=block.redacted, id=block.id)
            item["encrypted_content"] = encrypted(seal)
        return item
    content = [] if opening else [_part(block)]
    return {**head, "type": "message", "role": "assistant", "status": status, "content": content}


_ECHOED = (
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt_cache_key",
    "reasoning",
    "safety_identifier",
    "service_tier",
    "store",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
)


def _response(blocks: Blocks, echo: Echo) -> dict[str, Any]:
    """The response object that the client's own settings stand in."""
    said = {field: echo.body[field] for field in _ECHOED if echo.body.get(field) is not None}
    base = responses.blank(echo.named("resp_", blocks), blocks.start.model)
    return {**base, "created_at": echo.created(blocks), **said}


def answer(blocks: Blocks, echo: Echo) -> dict[str, Any]:
    """A buffered answer."""
    reason = blocks.reason
    incomplete = {"length": "max_output_tokens", "filter": "content_filter"}.get(reason)
    return {
        **_response(blocks, echo),
        "status": "incomplete" if incomplete else "completed",
        "incomplete_details": {"reason": incomplete} if incomplete else None,
        "output": [_item(block, at, blocks, echo) for at, block in enumerate(blocks.blocks)],
        "usage": usage_object(known(blocks.usage)),
    }
