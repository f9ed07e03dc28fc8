"""Telling a conversation by how it began, for clients that send no conversation id."""

from __future__ import annotations

from hashlib import blake2b

from router.signals.words import real_text, speaks
from router.types import Caller, Request, Turn

_READ = 2000  # characters of each text


def prefix_key(request: Request, caller: Caller) -> str | None:
    """A key that later requests of the same conversation share, None before the first answer.

    Made of the caller, the model, the first user turn and the first answer: many conversations open with the same
    words, few get the same answer. System messages are left out: agents put the time and the state of files there.
    """
    turns = iter(request.turns)
    opening = next((turn for turn in turns if speaks(turn)), None)
    answer = next((turn for turn in turns if turn.role == "assistant"), None)  # the first behind the opening
    if opening is None or answer is None:
        return None
    parts = (caller.tenant, caller.key, request.model, real_text(opening)[:_READ], *_said(answer))
    digest = blake2b(digest_size=16)
    for part in parts:
        digest.update(part.encode("utf-8", "surrogatepass"))
        digest.update(b"\xff")  # in no UTF-8: keeps the parts apart
    return "prefix-" + digest.hexdigest()


def _said(turn: Turn) -> list[str]:
    calls = (text[:_READ] for call in turn.tool_calls for text in (call.name, call.arguments))
    return [*(text.strip()[:_READ] for text in turn.texts), *calls]
