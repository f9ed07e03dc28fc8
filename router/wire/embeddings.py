"""OpenAI's embeddings: read and answered in their own dialect only; never streamed, never translated."""

from __future__ import annotations

from typing import Any

from msgspec import Raw, Struct
from msgspec.json import Decoder

from router.errors import BadRequest, PointsmanError
from router.types import Dialect, Request, Usage
from router.wire import body as wire_body
from router.wire import chat_meter, faults, sse
from router.wire.completions import texts


class Top(Struct, gc=False):
    model: Raw = Raw()
    input: Raw = Raw()
    user: Any = None


_TOP = Decoder(Top)


class EmbeddingsCodec:
    """`router.seams.Codec` for POST /v1/embeddings."""

    dialect: Dialect = "embeddings"

    def decode(self, body: bytes) -> Request:
        top = wire_body.read(_TOP, body)
        model, span = wire_body.model(body, top.model, wire_body.located(body, top.input))
        if not bytes(top.input):
            raise BadRequest("the body has no `input`", param="input")
        user = top.user if isinstance(top.user, str) else None
        return Request(dialect="embeddings", body=body, model=model, model_span=span, turns=texts(top.input), user=user)

    def meter(self, request: Request, *, asked_usage: bool = False) -> chat_meter.ChatMeter:
        return chat_meter.ChatMeter()

    def usage(self, answer: bytes) -> Usage | None:
        return chat_meter.usage_of(answer)

    def mended(self, answer: bytes) -> bytes:
        if answer.find(b'"data"') < 0:
            raise faults.lacking(answer, "data")
        return answer

    def error(self, error: PointsmanError, request_id: str) -> bytes:
        return chat_meter.error_body(error, request_id)

    def error_event(self, error: PointsmanError, request_id: str) -> bytes:
        return sse.event(chat_meter.error_body(error, request_id))
