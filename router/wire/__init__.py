"""Wire formats: bytes of one dialect to values and back. Pure: no I/O, no clock, no chance.

`CODECS` is the table of dialects; `docs/extending.md` says how to add one.
"""

from __future__ import annotations

from router.seams import Codec
from router.types import Dialect
from router.wire.chat import ChatCodec
from router.wire.completions import CompletionsCodec
from router.wire.embeddings import EmbeddingsCodec
from router.wire.messages import MessagesCodec
from router.wire.responses import ResponsesCodec

CODECS: dict[Dialect, Codec] = {
    "chat": ChatCodec(),
    "messages": MessagesCodec(),
    "responses": ResponsesCodec(),
    "completions": CompletionsCodec(),
    "embeddings": EmbeddingsCodec(),
}
