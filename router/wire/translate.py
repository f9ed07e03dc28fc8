"""Between dialects: a request on its way to an upstream of another dialect, and the answer on its way back.

Nothing here is used where both sides speak the same dialect; there the bytes pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from msgspec import DecodeError, Struct
from msgspec.json import decode, encode
from msgspec.structs import replace

from router.config import Adapt
from router.errors import BadAnswer, BadRequest, PointsmanError, Truncated, UpstreamStatus
from router.types import Dialect, Request, Usage
from router.wire import (
    chat_answer,
    chat_request,
    fields,
    messages_answer,
    messages_request,
    pieces,
    responses_answer,
    responses_request,
    sse,
)
from router.wire.adapt import adapted
from router.wire.blocks import Blocks
from router.wire.echo import Echo
from router.wire.halves import Halves
from router.wire.loose import is_object
from router.wire.parts import Conversation, Delta, Piece, Seal, StreamError, ToolDelta


class Shape(NamedTuple):
    """How one dialect's requests and answers are read and written."""

    read: Callable[[dict[str, Any], Dialect], Conversation]
    write: Callable[[Conversation], dict[str, Any]]
    pieces: Callable[[dict[str, Any]], list[Piece]]
    answer: Callable[[Blocks, Echo], dict[str, Any]]
    reader: Callable[[], Reader]
    writer: Callable[[Echo], Writer]


class Reader(Protocol):
    """Reads one dialect's events."""

    finished: bool  # the model has said why it stopped
    ended: bool  # the terminal event was seen

    def read(self, name: str, data: bytes) -> list[Piece]: ...


class Writer(Protocol):
    """Writes one dialect's events."""

    blocks: Blocks

    def write(self, piece: Piece) -> bytes: ...

    def end(self) -> bytes: ...

    def fail(self, error: PointsmanError, request_id: str) -> bytes: ...


def _shape(request: Any, answer: Any) -> Shape:
    return Shape(request.read, request.write, answer.read, answer.answer, answer.Reader, answer.Writer)


SHAPES: dict[Dialect, Shape] = {
    "chat": _shape(chat_request, chat_answer),
    "messages": _shape(messages_request, messages_answer),
    "responses": _shape(responses_request, responses_answer),
}


class Translation(Struct, frozen=True, kw_only=True):
    """One attempt's translation: `body` goes to an upstream that speaks `target`, the answer comes back through
    `answer` or `meter`. `dropped` are the parts of the request that the target cannot be told."""

    source: Dialect
    target: Dialect
    body: bytes
    dropped: tuple[str, ...]
    echo: Echo

    def answer(self, answer: bytes, request_id: str = "", now: float = 0.0) -> bytes:
        """The buffered answer in the client's dialect; `now` is Unix seconds. Raises `BadAnswer`."""
        try:
            found: Any = decode(answer)
        except (DecodeError, RecursionError):
            found = None
        if not is_object(found):
            raise BadAnswer("the upstream's answer is not a JSON object")
        blocks = Blocks()
        try:
            for piece in SHAPES[self.target].pieces(found):
                blocks.add(piece)
            blocks.end()
            return encode(SHAPES[self.source].answer(blocks, self._echo(request_id, now)))
        except RecursionError:
            raise BadAnswer("the upstream's answer is nested too deeply") from None

    def meter(self, request_id: str = "", now: float = 0.0) -> TranslatingMeter:
        """A meter that reads the upstream's dialect and returns the client's."""
        shape = SHAPES[self.target]
        return TranslatingMeter(shape.reader(), SHAPES[self.source].writer(self._echo(request_id, now)))

    def _echo(self, request_id: str, now: float) -> Echo:
        return replace(self.echo, fallback_id=request_id or "answer", now=now)


def translate(
    asked: Request,
    target: Dialect,
    model: str,
    *,
    set_fields: Mapping[str, Any] | None = None,
    adapt: Adapt | None = None,
) -> Translation:
    """The translation of a request for an upstream that speaks `target` and calls the model `model`.

    `set_fields` are fields of the target's body that the operator overrides; None removes one. Equal requests
    give equal bytes, so that prompt caches hold. Raises `BadRequest` where a part of the request can neither
    be told nor left out.
    """
    source = asked.dialect
    if source not in SHAPES or target not in SHAPES:
        raise BadRequest(f"the {source} API cannot be served by a deployment that speaks only {target}", param="model")
    try:
        body = _object(asked.body)
        said = SHAPES[source].read(body, target)
        fields.account(body, source, target, said)
        written = SHAPES[target].write(said)
        out = {"model": model or asked.model, **written, **fields.plain(said, target), **(set_fields or {})}
        sent = pieces.written({k: v for k, v in out.items() if v is not None}, len(asked.body))
    except RecursionError:
        raise BadRequest("the body is nested too deeply") from None
    return Translation(
        source=source,
        target=target,
        body=adapted(sent, adapt) if adapt is not None and target == "chat" else sent,
        dropped=tuple(said.dropped),
        echo=Echo(body=body, tools={tool.flat: tool for tool in said.tools}, include_usage=asked.include_usage),
    )


def _object(body: bytes) -> dict[str, Any]:
    try:
        found: Any = pieces.read(body)
    except DecodeError:
        raise BadRequest("the body holds a value that cannot be read, such as a number that is too large") from None
    if not is_object(found):
        raise BadRequest("the body must be a JSON object")
    return found


class TranslatingMeter:
    """`router.seams.Meter` where the dialects differ: every event is parsed and written anew."""

    def __init__(self, reader: Reader, writer: Writer) -> None:
        self._splitter = sse.Splitter()
        self._halves = Halves()
        self._reader = reader
        self._writer = writer
        self.content = False
        self.done = False
        self.deltas = 0
        self.usage: Usage | None = None
        self.failed: PointsmanError | None = None

    def feed(self, data: bytes) -> bytes:
        return self._read(self._splitter.feed(data)) if not self.done else b""

    def close(self) -> bytes:
        out = b""
        if not self.done and (rest := self._splitter.rest().strip(b"\r\n")):
            try:
                out = self._read(rest + b"\n\n")
            except BadAnswer:
                out = b""  # the last event is cut short
        if self.done:
            return out
        if not self._reader.finished:
            raise Truncated("the upstream closed the stream before the answer was complete")
        self.done = True
        return out + self._writer.end()

    def fail(self, error: PointsmanError, request_id: str) -> bytes:
        return self._writer.fail(error, request_id)

    def _read(self, run: bytes) -> bytes:
        out: list[bytes] = []
        for event in sse.split(run):
            name, data = sse.fields(event)
            if data:
                try:
                    self._event(name, data, out)
                except RecursionError:
                    raise BadAnswer("the upstream sent an event that is nested too deeply") from None
            elif event.lstrip(b"\r\n").startswith(b":"):
                out.append(event)  # a comment keeps the client's connection alive as it does ours
            if self.done:
                break
        return b"".join(out)

    def _pieces(self, name: str, data: bytes) -> list[Piece]:
        try:
            return self._reader.read(name, data)
        except BadAnswer:
            if (joined := self._halves.joined(data)) == data:
                raise
            return self._reader.read(name, joined)

    def _event(self, name: str, data: bytes, out: list[bytes]) -> None:
        for piece in self._pieces(name, data):
            if isinstance(piece, Delta):
                grows = bool(piece.text)
            elif isinstance(piece, ToolDelta):
                grows = bool(piece.arguments or piece.name)
            elif isinstance(piece, StreamError):
                error = UpstreamStatus(piece.fault.status, {}, piece.body, retry_after_s=None)
                if not self.content:
                    raise error
                self.failed, self.done = error, True
                return
            else:
                grows = isinstance(piece, Seal)
                self.usage = piece if isinstance(piece, Usage) else self.usage
            if grows:
                self.content = True
                self.deltas += 1
            out.append(self._writer.write(piece))
        if self._reader.ended:
            self.done = True
            out.append(self._writer.end())
