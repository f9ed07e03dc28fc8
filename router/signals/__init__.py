"""Facts about a request that need no model: `user_text` finds the last real user words, `extract` the signals,
`conversation` which conversation it belongs to.

Everything here looks at a bounded part of a request (heads and tails of texts, lengths of the rest), because it
runs for every request, on the event loop. What the words mean is for scorers; what follows from the facts is for
`decide`.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from router.signals.code import code_share
from router.signals.conversation import Conversation, conversation, prefix
from router.signals.languages import language
from router.signals.side import is_side_request
from router.signals.tools import failed, longest_run, phase, spinning
from router.signals.words import newest, speaks, user_text
from router.types import Caller, Facts, Request, Signals, ToolCall, Turn

__all__ = ["Conversation", "code_share", "conversation", "extract", "input_tokens", "language", "prefix", "user_text"]

# Bytes of UTF-8 per token, over English prose, code, Chinese and Russian with today's large vocabularies: 3.5 to
# 4.5. A context window is filtered by this estimate, so `plan` leaves the last word to the upstream.
BYTES_PER_TOKEN = 4
_TOKENS_PER_TURN = 4  # role markers of a chat template
_TOKENS_PER_IMAGE = 1000  # between a small tile (85) and a large photograph (1,600)
_TOKENS_PER_TOOL = 1000  # ceiling: Claude Code's catalogue is about 600 a tool
_TOKENS_OF_SCHEMA = 4000  # ceiling for a JSON schema of the answer
_NO_HEADERS: Mapping[str, str] = {}


def extract(
    request: Request,
    caller: Caller,
    *,
    text: str,
    named_headers: frozenset[str] = frozenset(),
    hour: int = 0,
    weekday: int = 0,
) -> Signals:
    """The signals of `request`. `text` is its `user_text`; `named_headers` those that some policy reads.

    `hour` (0..23) and `weekday` (Monday is 0) are the operator's local time.
    """
    turns = request.turns
    calls: tuple[ToolCall, ...] = ()
    errors = growth = 0
    tool_loop = False
    if len(turns) == 1 and text and not turns[0].tool_results:
        newest_turn, count = turns[0], 1  # the words found are this turn's
        tokens, images = _tokens(request, _bytes(newest_turn), newest_turn.images), newest_turn.images
    else:
        facts = _facts(request)
        spoken = [one.spoken for one in facts]
        count, at = sum(spoken), newest(turns, spoken)
        newest_turn = turns[at] if at >= 0 else None
        tool_loop = at >= 0 and not spoken[at]
        if len(turns) > 1 and (used := _newest_tool_use(spoken, at, tool_loop)):
            growth = sum([facts[i].size for i in used]) // BYTES_PER_TOKEN
            calls = tuple([call for i in used if (made := turns[i].tool_calls) for call in made])
            errors = sum([_failed(turns[i], facts[i]) for i in used if turns[i].tool_results])
        images = sum([turn.images for turn in turns])
        tokens = _tokens(request, sum([one.size for one in facts]), images)
    # In two steps: a call with more than fifteen keywords goes through a dictionary, which costs as much again.
    found = Signals(
        input_tokens=tokens,
        prompt_chars=len(text),
        turns=count,
        tools=request.tools,
        side_request=not tool_loop and is_side_request(request, newest_turn, text),
        wants_json=request.wants_json,
        stream=request.stream,
        max_output_tokens=request.max_output_tokens or 0,
        code_share=code_share(text),
        language=language(text),
        model=request.model,
        dialect=request.dialect,
        hour=hour,
        weekday=weekday,
        headers=_headers(caller.headers, named_headers) if named_headers else _NO_HEADERS,
    )
    if not (growth or tool_loop or calls or errors or images or caller.key or caller.tenant):
        return found
    return replace(
        found,
        tool_calls=len(calls),
        tool_errors=errors,
        repeated_calls=longest_run(calls) if calls else 0,
        spinning=spinning(calls) if calls else 0,
        phase=phase(calls) if calls else "",
        context_growth=growth,
        tool_loop=tool_loop,
        has_images=images > 0,
        tenant=caller.tenant,
        key=caller.key,
    )


def _headers(headers: Mapping[str, str], named: frozenset[str]) -> dict[str, str]:
    return {name: headers[name] for name in named if name in headers}


def _newest_tool_use(spoken: list[bool], at: int, tool_loop: bool) -> range:
    """The turns since the last user turn; where the newest is one, those since the user turn before it."""
    end = at + 1 if tool_loop else at
    start = end
    while start > 0 and not spoken[start - 1]:
        start -= 1
    return range(start, max(start, end))


def input_tokens(request: Request) -> int:
    """Estimated tokens of the whole prompt."""
    turns = request.turns
    return _tokens(request, sum(map(_bytes, turns)), sum([turn.images for turn in turns]))


def _tokens(request: Request, bytes_: int, images: int) -> int:
    """Estimated tokens of the whole prompt, from lengths alone; an image counts a flat sum.

    Base64 in the body (images, audio, files) would swamp an estimate from the body's length, so the texts are
    counted (`bytes_`), and what the body holds beside them only up to what tools and a schema can plausibly take.
    """
    tokens = bytes_ // BYTES_PER_TOKEN + _TOKENS_PER_TURN * len(request.turns) + _TOKENS_PER_IMAGE * images
    if request.tools or request.wants_json:
        rest = (len(request.body) - bytes_) // BYTES_PER_TOKEN
        tokens += max(0, min(rest, _TOKENS_PER_TOOL * request.tools + _TOKENS_OF_SCHEMA * request.wants_json))
    return tokens


def _facts(request: Request) -> list[Facts]:
    """Of each turn. Those of earlier requests of the conversation were noted then."""
    noted, turns = request.noted, request.turns
    if noted is None:
        return [Facts(_bytes(turn), speaks(turn)) for turn in turns]
    known = noted.facts
    if len(known) < len(turns):
        known = noted.facts = known + [Facts(_bytes(turn), speaks(turn)) for turn in turns[len(known) :]]
    return known


def _failed(turn: Turn, facts: Facts) -> int:
    """How many of a turn's tool results report a failure."""
    if facts.failed < 0:
        facts.failed = sum(map(failed, turn.tool_results))
    return facts.failed


def _bytes(turn: Turn) -> int:
    """Bytes of a turn's texts, calls and results."""
    bytes_ = 0
    for text in turn.texts:
        bytes_ += len(text) if text.isascii() else _utf8_bytes(text)
    for call in turn.tool_calls:
        bytes_ += len(call.arguments) + len(call.name)
    for result in turn.tool_results:
        bytes_ += len(result.text) if result.text.isascii() else _utf8_bytes(result.text)
    return bytes_


def _utf8_bytes(text: str) -> int:
    # Encoding a long text costs more than all other signals together; its head tells bytes per character.
    head = text[:256]
    return len(text) * len(head.encode("utf-8", "surrogatepass")) // len(head)
