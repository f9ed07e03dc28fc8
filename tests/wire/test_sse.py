"""Server-sent events: any chunking and any line end give the same events."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.errors import BadAnswer
from router.wire import sse

ENDS = [b"\n", b"\r\n", b"\r"]


def chunked(data: bytes, cuts: list[int]) -> list[bytes]:
    at = [0, *sorted(c % (len(data) + 1) for c in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(at)]


def read(chunks: list[bytes]) -> tuple[bytes, list[tuple[str, bytes]]]:
    """The bytes that came out, and the events in them that carry data."""
    splitter = sse.Splitter()
    runs = [splitter.feed(chunk) for chunk in chunks]
    events = [sse.fields(event) for run in runs for event in sse.split(run)]
    return b"".join(runs) + splitter.rest(), [(name, data) for name, data in events if data is not None]


def frame(events: list[tuple[str, bytes, bytes, bytes]]) -> bytes:
    out = b""
    for name, data, end, space in events:
        if name:
            out += b"event:" + space + name.encode() + end
        out += b"".join(b"data:" + space + line + end for line in data.split(b"\n")) + end
    return out


LINE = st.text(st.characters(blacklist_characters="\r\n", blacklist_categories=("Cs",)), max_size=6).map(str.encode)
EVENT = st.tuples(
    st.sampled_from(["", "error", "message_stop"]),
    st.lists(LINE, min_size=1, max_size=2).map(b"\n".join).filter(lambda d: not d.startswith(b" ")),
    st.sampled_from(ENDS),
    st.just(b" "),
)


@given(events=st.lists(EVENT, max_size=5), cuts=st.lists(st.integers(0, 500), max_size=8))
def test_S01_S02_any_chunking_and_line_end_gives_the_same_events(
    events: list[tuple[str, bytes, bytes, bytes]], cuts: list[int]
) -> None:
    data = frame(events)
    out, got = read(chunked(data, cuts))
    assert out == data
    assert got == [(name, payload) for name, payload, _, _ in events]


def test_S01_an_event_cut_inside_an_emoji_and_between_its_newlines() -> None:
    data = 'data: {"x":"😀"}\n\ndata: 2\n\n'.encode()
    for a in range(len(data)):
        for b in range(a, len(data)):
            out, got = read([data[:a], data[a:b], data[b:]])
            assert out == data
            assert got == [("", '{"x":"😀"}'.encode()), ("", b"2")]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("space", [b"", b" "])
def test_S02_every_line_end_and_an_optional_space(end: bytes, space: bytes) -> None:
    data = b"data:" + space + b"{1}" + end + end + b"event:" + space + b"e" + end + b"data:" + space + b"2" + end + end
    for cut in range(len(data)):
        assert read([data[:cut], data[cut:]])[1] == [("", b"{1}"), ("e", b"2")]


def test_S02_a_carriage_return_ends_an_event_at_once() -> None:
    splitter = sse.Splitter()
    assert splitter.feed(b"data: 1\r\n\r") == b"data: 1\r\n\r"
    assert splitter.feed(b"\ndata: 2\r\n\r\n") == b"\ndata: 2\r\n\r\n"
    assert sse.fields(b"\ndata: 2\r\n\r\n") == ("", b"2")


def test_S02_one_crlf_is_one_line_end_even_when_split() -> None:
    assert read([b"data: 1\r", b"\ndata: 2\r", b"\n\r", b"\n"])[1] == [("", b"1\n2")]


def test_S03_unicode_line_separators_are_text() -> None:
    text = "x\u2028y\u0085z\u2029\x0b\x0c\x1c\x1d\x1e"
    data = f"data: {text}\n\n".encode()
    assert read([data])[1] == [("", text.encode())]


def test_S04_comments_stay_comments() -> None:
    data = b": PROCESSING\n\n: PROCESSING\r\n\r\ndata: 1\n\n"
    out, got = read([data])
    assert out == data
    assert got == [("", b"1")]


def test_fields_that_only_begin_alike_are_other_fields() -> None:
    assert sse.fields(b"database: 1\nevents: e\nid: 3\nretry: 5\n\n") == ("", None)
    assert sse.fields(b"data\nevent\n\n") == ("", b"")
    assert sse.fields(b"\xef\xbb\xbfdata:  two spaces\n\n") == ("", b" two spaces")


def test_a_chunk_of_whole_events_passes_without_a_copy() -> None:
    chunk = b"data: 1\n\ndata: 2\n\n"
    assert sse.Splitter().feed(chunk) is chunk


def test_an_event_without_end_is_refused_at_the_limit() -> None:
    splitter = sse.Splitter()
    piece = b"x" * (1 << 20)
    for _ in range(sse.EVENT_LIMIT >> 20):
        assert splitter.feed(piece) == b""
    with pytest.raises(BadAnswer):
        splitter.feed(piece)


PIECE = st.sampled_from([b"\r", b"\n", b"\r\n", b"data: x", b":c", b"event: e", b"\xff"])


@given(st.lists(PIECE, max_size=12).map(b"".join) | st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=6))
def test_no_bytes_crash_it_and_none_are_lost(data: bytes, cuts: list[int]) -> None:
    assert read(chunked(data, cuts))[0] == data
    assert read(chunked(data, cuts))[1] == read([data])[1]
