"""Scripts: what a scripted upstream sends, byte for byte, and when. Values only; the players are next door.

A script is a sequence of steps. `scripted.py` plays one inside the process, `scripted_server.py` over a real
socket, so the same script tests both.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct


class Head(Struct, frozen=True):
    """Status line and headers."""

    status: int = 200
    headers: Mapping[str, str] = {}


class Send(Struct, frozen=True):
    """Bytes of the body, written in one go."""

    data: bytes


class Wait(Struct, frozen=True):
    """Silence, in seconds."""

    seconds: float


class Reset(Struct, frozen=True):
    """The connection breaks (TCP RST)."""


class Close(Struct, frozen=True):
    """The connection ends (FIN) without the rest of the answer."""


Step = Head | Send | Wait | Reset | Close


class Seen(Struct, frozen=True, kw_only=True):
    """One request as the upstream saw it."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body, parse_int=float)  # an integer of any length: Python refuses 4,300 digits


Script = Callable[[Seen], Sequence[Step]]

SSE = {"content-type": "text/event-stream"}
JSON = {"content-type": "application/json"}


def chunk(delta: Mapping[str, Any] | None, finish: str | None = None, **extra: Any) -> bytes:
    """One chat.completion.chunk event; `delta=None` gives an event with no choices (usage)."""
    choices = [] if delta is None else [{"index": 0, "delta": dict(delta), "finish_reason": finish}]
    event = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "scripted",
        "choices": choices,
    }
    return b"data: " + json.dumps(event | extra).encode() + b"\n\n"


def chat_stream(
    words: Sequence[str], *, usage: bool = True, gap_s: float = 0.0, first_s: float = 0.0, finish: str = "stop"
) -> list[Step]:
    """A complete chat stream: role, one event a word, finish, usage, [DONE]."""
    steps: list[Step] = [Head(200, SSE), Wait(first_s), Send(chunk({"role": "assistant", "content": ""}))]
    for word in words:
        steps += [Send(chunk({"content": word})), Wait(gap_s)]
    steps.append(Send(chunk({}, finish)))
    if usage:
        counts = {"prompt_tokens": 10, "completion_tokens": len(words), "total_tokens": 10 + len(words)}
        steps.append(Send(chunk(None, usage=counts)))
    return [*steps, Send(b"data: [DONE]\n\n")]


def chat_answer(text: str, *, delay_s: float = 0.0, **message: Any) -> list[Step]:
    """A complete unstreamed chat answer."""
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "scripted",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": text, **message}, "finish_reason": "stop"}
        ],
        "usage": {"prompt_tokens": 10, "completion_tokens": len(text.split()), "total_tokens": 10 + len(text.split())},
    }
    return [Wait(delay_s), Head(200, JSON), Send(json.dumps(body).encode())]


def status(code: int, headers: Mapping[str, str] | None = None, message: str = "scripted failure") -> list[Step]:
    """An error answer in OpenAI's shape."""
    body = json.dumps({"error": {"message": message, "type": "scripted", "param": None, "code": None}}).encode()
    return [Head(code, JSON | dict(headers or {})), Send(body)]


def chat(text: str) -> Script:
    """Answers every chat request with `text`, streamed when asked."""

    def script(seen: Seen) -> Sequence[Step]:
        if seen.json().get("stream"):
            return chat_stream([word + " " for word in text.split()])
        return chat_answer(text)

    return script
