"""Telling which conversation a request belongs to: by the id that the client sends, else by how it began."""

from __future__ import annotations

from hashlib import blake2b

from msgspec import Struct

from router.signals.words import real_text, speaks
from router.types import Caller, Request, Turn

_READ = 2000  # characters of each text


class Conversation(Struct, frozen=True, kw_only=True, gc=False):
    """`key` is where this request's pin is kept; `known` are the keys that earlier requests of it may have used."""

    key: str
    known: tuple[str, ...] = ()


def conversation(request: Request, caller: Caller, text: str | None = None) -> Conversation | None:
    """The conversation that a request belongs to, as digests; None where nothing was said yet.

    Without an id the key is made of the caller, the model, the first user turn and the first answer: many
    conversations open with the same words, few get the same answer. Before the first answer it is the opening
    alone, which the second request reads when nothing is known of it yet. System messages are left out: agents
    put the time and the state of files there. `text` is the request's `user_text`, where it is at hand.
    """
    if text and not caller.session and len(request.turns) == 1 and not request.turns[0].tool_results:
        # These words are the opening, and nothing was answered yet.
        return Conversation(key=_digest(caller.tenant, caller.key, request.model, request.user or "", text[:_READ]))
    begin = (caller.tenant, caller.key, request.model)
    if caller.session:
        key = _digest(*begin, "id", caller.session)
        return Conversation(key=key, known=(key,))
    turns = iter(request.turns)
    opening = next((turn for turn in turns if speaks(turn)), None)
    if opening is None:
        return None
    said = (*begin, request.user or "", real_text(opening)[:_READ])
    first = _digest(*said)
    answer = next((turn for turn in turns if turn.role == "assistant"), None)
    if answer is None:
        return Conversation(key=first)
    key = _digest(*said, *_said(answer))
    return Conversation(key=key, known=(key, first))


def _said(turn: Turn) -> list[str]:
    calls = (text[:_READ] for call in turn.tool_calls for text in (call.name, call.arguments))
    return [*(text.strip()[:_READ] for text in turn.texts), *calls]


def _digest(*parts: str) -> str:
    joined = "\x00".join(parts)
    return blake2b(joined.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
