"""What a writer of answers must know of the request: the client's own words for things the upstream renamed."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from router.types import Usage
from router.wire.blocks import Block, Blocks
from router.wire.parts import Tool
from router.wire.schema import custom_input

_PREFIXES = ("chatcmpl-", "cmpl-", "msg_", "resp_", "gen-")


class Echo(Struct, frozen=True, kw_only=True):
    """`now` is Unix seconds, for dialects that date their answers; `fallback_id` names one that came without."""

    body: dict[str, Any] = {}
    tools: dict[str, Tool] = {}  # by the name the upstream knows
    include_usage: bool = False
    now: float = 0.0
    fallback_id: str = "answer"

    def named(self, prefix: str, blocks: Blocks) -> str:
        """The answer's id in the client's dialect, made from the upstream's: no chance, and equal in every event."""
        return prefix + self.core(blocks)

    def core(self, blocks: Blocks) -> str:
        given = blocks.start.id or self.fallback_id
        return next((given.removeprefix(p) for p in _PREFIXES if given.startswith(p) and given != p), given)

    def created(self, blocks: Blocks) -> int:
        return int(self.now) if blocks.start.created is None else blocks.start.created

    def call_id(self, blocks: Blocks, at: int) -> str:
        return blocks.blocks[at].id or f"call_{self.core(blocks)}_{at}"

    def tool(self, block: Block) -> Tool:
        """The tool as the client named it; one that it did not offer keeps the model's name."""
        return self.tools.get(block.name) or Tool(name=block.name, custom=block.custom)

    def free_text(self, block: Block) -> str:
        """What a custom tool is given."""
        return block.text if block.custom else custom_input(block.text)


def known(usage: Usage | None) -> Usage:
    return usage or Usage()
