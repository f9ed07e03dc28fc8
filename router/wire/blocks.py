"""An answer as blocks that follow one another, built from pieces that may interleave.

Anthropic's and OpenAI's Responses clients read one block at a time, while chat deltas of parallel tool calls
may alternate. Only the oldest open block is told of as it grows; the others are held back until it closes. A
buffered answer is the blocks without the steps.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from msgspec import Struct

from router.types import Dialect, Usage
from router.wire.parts import Delta, Finish, Piece, Reason, Seal, Start, ToolDelta

Kind = Literal["text", "thinking", "refusal", "tool"]


class Block(Struct, kw_only=True):
    kind: Kind
    pieces: list[str] = []
    logprobs: list[Any] = []
    id: str = ""
    name: str = ""
    custom: bool = False
    signature: str = ""
    source: Dialect | None = None
    redacted: bool = False
    closed: bool = False
    told: tuple[int, int] = (0, 0)  # pieces and logprobs that steps have told of

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def arguments(self) -> str:
        """A call's arguments. None at all means no arguments, which JSON writes as {} (a custom tool's stay empty)."""
        return self.text or ("" if self.custom else "{}")


class Step(NamedTuple):
    """What a writer must say next about the block at `at`."""

    what: Literal["open", "more", "close"]
    at: int
    block: Block
    text: str = ""
    logprobs: tuple[Any, ...] = ()


class Blocks:
    """Takes pieces, keeps blocks, and says step by step what changed."""

    __slots__ = ("_calls", "_head", "_opened", "blocks", "finish", "start", "usage")

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.start = Start()
        self.finish: Finish | None = None
        self.usage: Usage | None = None
        self._calls: dict[int, Block] = {}
        self._head = 0  # the oldest block that is not closed
        self._opened = False  # whether a step has opened the head

    @property
    def reason(self) -> Reason:
        """Why the answer ended. An answer with tool calls that merely "stopped" asks for them to be run (S15)."""
        reason: Reason = self.finish.reason if self.finish else "stop"
        return (
            "tools" if self._calls and reason == "stop" else "stop" if reason == "tools" and not self._calls else reason
        )

    def add(self, piece: Piece) -> list[Step]:
        """Take one piece. Steps come for the head block only."""
        if isinstance(piece, Delta):
            self._grow(piece)
        elif isinstance(piece, ToolDelta):
            self._call(piece)
        elif isinstance(piece, Seal):
            self._seal(piece)
        elif isinstance(piece, Finish):
            self.finish = piece
        elif isinstance(piece, Usage):
            self.usage = piece
        elif isinstance(piece, Start):
            self.start = piece
        return self._steps()

    def end(self) -> list[Step]:
        """Close what is open."""
        for block in self.blocks:
            block.closed = True
        return self._steps()

    def _new(self, block: Block) -> Block:
        for open_block in self.blocks[self._head :]:
            if open_block.kind != "tool":  # a call is complete only when its dialect says so
                open_block.closed = True
        self.blocks.append(block)
        return block

    def _grow(self, delta: Delta) -> None:
        if not delta.text and not delta.logprobs and not delta.fresh:
            return
        last = self.blocks[-1] if self.blocks else None
        if last is None or last.closed or last.kind != delta.kind or delta.fresh:
            last = self._new(Block(kind=delta.kind))
        if delta.text:
            last.pieces.append(delta.text)
        last.logprobs += delta.logprobs

    def _call(self, delta: ToolDelta) -> None:
        call = self._calls.get(delta.index)
        if call is None:
            call = self._new(Block(kind="tool", id=delta.id, name=delta.name, custom=delta.custom))
            self._calls[delta.index] = call
        if call.closed:
            return
        call.id = call.id or delta.id
        call.name = call.name or delta.name
        if delta.arguments:
            call.pieces.append(delta.arguments)
        call.closed = delta.end

    def _seal(self, seal: Seal) -> None:
        last = self.blocks[-1] if self.blocks else None
        if seal.redacted or last is None or last.closed or last.kind != "thinking":
            last = self._new(Block(kind="thinking"))
        last.signature += seal.signature
        last.source, last.redacted, last.closed = seal.source, seal.redacted, True
        last.id = seal.id

    def _steps(self) -> list[Step]:
        steps: list[Step] = []
        while self._head < len(self.blocks):
            block = self.blocks[self._head]
            if not self._opened:
                if block.kind == "tool" and not block.name and not block.closed:
                    break  # the name comes first in every dialect
                if block.kind == "thinking" and not block.pieces and not block.closed:
                    break
                steps.append(Step("open", self._head, block))
                self._opened = True
            now = len(block.pieces), len(block.logprobs)
            if block.told != now:
                text, logprobs = "".join(block.pieces[block.told[0] :]), tuple(block.logprobs[block.told[1] :])
                steps.append(Step("more", self._head, block, text, logprobs))
                block.told = now
            if not block.closed:
                break
            steps.append(Step("close", self._head, block))
            self._head += 1
            self._opened = False
        return steps
