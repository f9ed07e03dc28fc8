"""OpenAI's legacy completions: read, metered and answered in their own dialect only; never translated."""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import DecodeError, Raw, Struct
from msgspec.json import Decoder, decode

from router.errors import BadRequest, PointsmanError
from router.types import Dialect, Request, Turn, Usage
from router.wire import body as wire_body
from router.wire import chat, chat_meter, faults, sse
from router.wire.loose import count, is_array


class Top(Struct, gc=False):
    model: Raw = Raw()
    prompt: Raw = Raw()
    stream: bool | None = None
    stream_options: Raw = chat.ABSENT
    max_tokens: Any = None
    user: Any = None


_TOP = Decoder(Top)


class CompletionsMeter(chat_meter.ChatMeter):
    """Chunks hold a `text` where chat's hold a delta; all else is alike."""

    __slots__ = ()

    delta: ClassVar[bytes] = b'"text"'


class CompletionsCodec:
    """`router.seams.Codec` for POST /v1/completions."""

    dialect: Dialect = "completions"

    def decode(self, body: bytes) -> Request:
        top = wire_body.read(_TOP, body)
        model, span = wire_body.model(body, top.model, wire_body.located(body, top.prompt))
        if not bytes(top.prompt):
            raise BadRequest("the body has no `prompt`", param="prompt")
        include_usage, options_span = chat.read_options(body, top.stream_options)
        return Request(
            dialect="completions",
            body=body,
            model=model,
            model_span=span,
            stream=bool(top.stream),
            include_usage=include_usage,
            stream_options_span=options_span,
            turns=texts(top.prompt),
            max_output_tokens=count(top.max_tokens),
            user=top.user if isinstance(top.user, str) else None,
        )

    def meter(self, request: Request, *, asked_usage: bool = False) -> CompletionsMeter:
        return CompletionsMeter(withhold=asked_usage and not request.include_usage, tell=request.include_usage)

    def usage(self, answer: bytes) -> Usage | None:
        return chat_meter.usage_of(answer)

    def mended(self, answer: bytes) -> bytes:
        if answer.find(b'"choices"') < 0:
            raise faults.lacking(answer, "choices")
        return answer

    def error(self, error: PointsmanError, request_id: str) -> bytes:
        return chat_meter.error_body(error, request_id)

    def error_event(self, error: PointsmanError, request_id: str) -> bytes:
        return sse.event(chat_meter.error_body(error, request_id))


def texts(raw: Raw) -> tuple[Turn, ...]:
    """A text, or texts, as one user turn; token numbers say nothing that a signal could read."""
    try:
        found: Any = decode(raw)
    except (DecodeError, RecursionError):
        return ()
    words = [found] if isinstance(found, str) else [t for t in found if isinstance(t, str)] if is_array(found) else []
    return (Turn(role="user", texts=tuple(words)),) if words else ()
