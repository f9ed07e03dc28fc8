"""Characters whose halves come in two events."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.types import Dialect
from router.wire import CODECS
from router.wire.halves import Halves
from tests.wire.translated import BODIES, content, rebuilt, streamed
from tests.wire.upstreams import chat_stream, messages_stream


@given(text=st.text(max_size=12), cut=st.integers(0, 40))
def test_a_text_cut_anywhere_in_utf16_is_whole_again(text: str, cut: int) -> None:
    units = text.encode("utf-16-le", "surrogatepass")
    parts = [units[: 2 * cut], units[2 * cut :]]
    events = [json.dumps(part.decode("utf-16-le", "surrogatepass")).encode() for part in parts]
    halves = Halves()
    assert "".join([json.loads(halves.joined(event)) for event in events]) == text


@pytest.mark.parametrize(
    ("data", "joined"),
    [
        (rb'"\\ud83d \ud83D\uDE00 \n"', rb'"\\ud83d \ud83D\uDE00 \n"'),  # an escaped backslash, a whole pair
        (rb'"\ude00"', b'"\\ufffd"'),
        (rb'"\ud83d\ud83d"', b'"\\ufffd"'),  # the first may still get its other half
    ],
)
def test_what_is_no_half_stays_and_what_has_no_other_is_unknown(data: bytes, joined: bytes) -> None:
    assert Halves().joined(data) == joined


@pytest.mark.parametrize("client", ["messages", "responses"])
def test_S01_an_emoji_cut_into_two_deltas_is_one_for_a_client_of_another_dialect(client: Dialect) -> None:
    cut = chat_stream([{"content": "a\ud83d"}, {"content": "\ude00b"}, {"content": "c\ud83d"}])
    assert content(client, rebuilt(client, streamed(client, "chat", cut))) == [("text", "a\U0001f600bc")]
    deltas = [{"type": "text_delta", "text": text} for text in ("\ud83d", "\ude00")]
    cut = messages_stream([({"type": "text", "text": ""}, deltas)])
    assert content("chat", rebuilt("chat", streamed("chat", "messages", cut))) == [("text", "\U0001f600")]


def test_S01_and_passes_as_it_came_to_one_of_the_same() -> None:
    cut = chat_stream([{"content": "\ud83d"}, {"content": "\ude00"}])
    meter = CODECS["chat"].meter(CODECS["chat"].decode(json.dumps({**BODIES["chat"], "stream": True}).encode()))
    assert meter.feed(cut) + meter.close() == cut
