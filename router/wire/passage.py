"""One attempt's way through the wire: what is sent to a deployment, and how its answer becomes the client's.

The one place that decides between passing bytes and translating; whoever moves the bytes need not know which.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from router.seams import Meter
from router.types import Deployment, Dialect, Request, Usage
from router.wire import CODECS
from router.wire import body as wire_body
from router.wire.adapt import adapted
from router.wire.translate import SHAPES, Translation, translate

PATHS: dict[Dialect, str] = {  # below a deployment's base_url
    "chat": "/chat/completions",
    "messages": "/messages",
    "responses": "/responses",
    "completions": "/completions",
    "embeddings": "/embeddings",
}


class Passage(Struct, frozen=True, kw_only=True):
    """`dialect` is the upstream's; `dropped` are parts of the request that it cannot be told."""

    request: Request
    dialect: Dialect
    body: bytes
    dropped: tuple[str, ...] = ()
    translation: Translation | None = None
    asked_usage: bool = False

    @property
    def path(self) -> str:
        return PATHS[self.dialect]

    def meter(self, request_id: str = "", now: float = 0.0) -> Meter:
        """Reads the upstream's stream and returns the client's; `now` is Unix seconds."""
        if self.translation is not None:
            return self.translation.meter(request_id, now)
        return CODECS[self.dialect].meter(self.request, asked_usage=self.asked_usage)

    def usage(self, answer: bytes) -> Usage | None:
        """The usage in the upstream's buffered answer."""
        return CODECS[self.dialect].usage(answer)

    def answer(self, answer: bytes, request_id: str = "", now: float = 0.0) -> bytes:
        """The upstream's buffered answer as the client's. Raises `BadAnswer`."""
        if self.translation is not None:
            return self.translation.answer(answer, request_id, now)
        return CODECS[self.dialect].mended(answer)


def passage(request: Request, deployment: Deployment, fields: Mapping[str, Any]) -> Passage:
    """The way of `request` to `deployment`; `fields` are top-level fields that the operator overrides.

    Translated where the deployment does not speak the client's dialect. Raises `BadRequest` where that would
    lose what may not be lost. Completions and embeddings have no other dialect and always pass.
    """
    if request.dialect in deployment.dialects or request.dialect not in SHAPES:
        body = wire_body.outgoing(request, deployment.model, usage=deployment.stream_usage, fields=fields)
        return Passage(
            request=request,
            dialect=request.dialect,
            body=adapted(body, deployment.adapt) if request.dialect == "chat" else body,
            dropped=("thinking",) if request.foreign_thoughts else (),
            asked_usage=deployment.stream_usage,
        )
    spoken: list[Dialect] = [dialect for dialect in deployment.dialects if dialect in SHAPES]
    target: Dialect = spoken[0] if spoken else "chat"
    done = translate(request, target, deployment.model, set_fields=fields, adapt=deployment.adapt)
    return Passage(request=request, dialect=target, body=done.body, dropped=done.dropped, translation=done)
