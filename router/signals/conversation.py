"""Telling which conversation a request belongs to: by the id that the client sends, else by how it began."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

from msgspec import Raw, Struct
from msgspec.json import Decoder

from router.signals.words import real_text, speaks
from router.types import Caller, Request, Turn

_READ = 2000  # characters of each text
_LEADING = ("system", "developer")
_WORTH = 4 * 1024  # bytes: below 1,024 tokens OpenAI and Anthropic keep nothing, and reading anew takes no time


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


def prefix(request: Request) -> str:
    """A digest of what the requests of one conversation begin with, and so a server's cache may hold; "" where that is
    too little to look for.

    All of it counts, not the first message alone, which many conversations share: tools, system messages, and the turns
    up to the last answer. Of these as many as are a power of two, or every request would go by another digest: so it
    changes when a conversation has doubled, and at least half of the turns are in it. Before the first answer there
    are tools and system messages, which an agent's conversations share.
    """
    turns = request.turns
    begin = 0
    while begin < len(turns) and turns[begin].role in _LEADING:
        begin += 1
    end = len(turns)
    while end > begin and turns[end - 1].role != "assistant":
        end -= 1
    count = end - begin
    size = (1 << (count.bit_length() - 1)) if count else 0
    noted = request.noted
    if noted is None:
        return _digest_of(request, begin + size, least=0 if count else _WORTH)
    known = noted.prefixes.get(begin + size)
    if known is None:
        known = noted.prefixes[begin + size] = _digest_of(request, begin + size, least=0 if count else _WORTH)
    return known


def _digest_of(request: Request, count: int, *, least: int) -> str:
    """Of the tools and the first turns, so many; "" where they have less than `least` bytes."""
    read = blake2b(digest_size=8)
    length = 0
    for tool in _tools(request):
        read.update(tool)
        length += len(memoryview(tool))
    parts = [part for turn in request.turns[:count] for part in _parts(turn)]
    text = "\x00".join(parts).encode("utf-8", "surrogatepass")
    if length + len(text) < least:
        return ""
    read.update(text)
    return read.hexdigest()


class _Offered(Struct, gc=False):
    tools: list[Raw] | None = None
    functions: list[Raw] | None = None  # chat's old name


_OFFERED = Decoder(_Offered)


def _tools(request: Request) -> list[Raw]:
    """Each tool offered as it stands in the body."""
    if not request.tools:
        return []
    offered = _OFFERED.decode(request.body)
    return offered.tools or offered.functions or []


def _parts(turn: Turn) -> Iterator[str]:
    yield turn.role
    yield from turn.texts
    for call in turn.tool_calls:
        yield call.name
        yield call.arguments
    for result in turn.tool_results:
        yield result.text


def _said(turn: Turn) -> list[str]:
    calls = (text[:_READ] for call in turn.tool_calls for text in (call.name, call.arguments))
    return [*(text.strip()[:_READ] for text in turn.texts), *calls]


def _digest(*parts: str) -> str:
    joined = "\x00".join(parts)
    return blake2b(joined.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
