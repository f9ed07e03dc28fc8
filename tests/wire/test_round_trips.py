"""A conversation that goes into another dialect and comes back says the same."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.types import Dialect
from router.wire import CODECS
from router.wire.translate import translate
from tests.wire.published import check_request

# White space alone, and at the end of the last answer, is nothing that Anthropic's API takes.
WORDS = st.text(st.characters(blacklist_categories=("Cs",)), min_size=1, max_size=8).map(str.strip).filter(bool)
ARGUMENTS = st.dictionaries(st.sampled_from("abc"), st.integers(-(2**60), 2**60) | WORDS | st.none(), max_size=3)
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}


@st.composite
def conversations(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Chat messages as an agent sends them: user turns, each with rounds of parallel calls, and answers."""
    out: list[dict[str, Any]] = []
    if draw(st.booleans()):
        out.append({"role": "system", "content": draw(WORDS)})
    number = 0
    for _ in range(draw(st.integers(1, 3))):
        content: Any = draw(WORDS)
        if draw(st.booleans()):
            content = [{"type": "text", "text": content}, IMAGE]
        out.append({"role": "user", "content": content})
        for _ in range(draw(st.integers(0, 2))):
            calls: list[dict[str, Any]] = []
            for _ in range(draw(st.integers(1, 3))):
                number += 1
                arguments = json.dumps(draw(ARGUMENTS), separators=(",", ":"), ensure_ascii=False)
                function = {"name": draw(st.sampled_from("fg")), "arguments": arguments}
                calls.append({"id": f"call_{number}", "type": "function", "function": function})
            out.append({"role": "assistant", "content": draw(st.none() | WORDS), "tool_calls": calls})
            out += [{"role": "tool", "tool_call_id": call["id"], "content": draw(WORDS)} for call in calls]
        out.append({"role": "assistant", "content": draw(WORDS)})
    return out


@pytest.mark.parametrize("through", ["messages", "responses"])
@settings(max_examples=40, deadline=None)
@given(messages=conversations())
def test_a_chat_conversation_survives(through: Dialect, messages: list[dict[str, Any]]) -> None:
    body = {"model": "a", "messages": messages, "temperature": 0.5, "max_completion_tokens": 50}
    there = translate(CODECS["chat"].decode(json.dumps(body).encode()), through, "a")
    check_request(through, json.loads(there.body))
    back = translate(CODECS[through].decode(there.body), "chat", "a")
    assert there.dropped == back.dropped == ()
    assert json.loads(back.body) == body


@settings(max_examples=30, deadline=None)
@given(messages=conversations())
def test_every_path_to_messages_gives_the_same_body(messages: list[dict[str, Any]]) -> None:
    request = CODECS["chat"].decode(json.dumps({"model": "a", "messages": messages}).encode())
    straight = json.loads(translate(request, "messages", "a").body)
    detour = translate(CODECS["responses"].decode(translate(request, "responses", "a").body), "messages", "a")
    assert json.loads(detour.body) == straight


@settings(max_examples=40, deadline=None)
@given(messages=conversations())
def test_all_three_dialects_give_the_signals_the_same_turns(messages: list[dict[str, Any]]) -> None:
    request = CODECS["chat"].decode(json.dumps({"model": "a", "messages": messages}).encode())
    said: list[list[tuple[Any, ...]]] = []
    for dialect in ("chat", "messages", "responses"):
        seen = request if dialect == "chat" else CODECS[dialect].decode(translate(request, dialect, "a").body)
        words = [text for turn in seen.turns for text in turn.texts]
        calls = [call.name for turn in seen.turns for call in turn.tool_calls]
        results = [result.text for turn in seen.turns for result in turn.tool_results]
        said.append([(words, calls, results, sum(turn.images for turn in seen.turns))])
    assert said[0] == said[1] == said[2]
