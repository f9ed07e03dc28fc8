"""What is read or written in pieces is what it would be at once."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import DecodeError, Raw, ValidationError
from msgspec.json import Decoder, decode, encode

from router.errors import BadRequest
from router.wire import CODECS, pieces
from router.wire.pieces import LARGE

LONG = "ä\n" * LARGE
FIELDS: dict[str, Any] = {"a": [{"b": LONG}, 2, None], "c": LONG, "d": [], "e": {"f": [1.5]}, "é": [LONG]}


@pytest.mark.parametrize("fields", [FIELDS, {}, {"a": []}, {"a": [1]}])
def test_an_object_is_read_and_written_as_at_once(fields: dict[str, Any]):
    body = encode(fields)
    assert pieces.written(fields, LARGE + 1) == pieces.written(fields, 1) == body
    spaced = body + b" " * LARGE
    assert pieces.read(spaced) == decode(spaced) == fields


def test_elements_are_those_of_the_whole():
    whole, one = Decoder(list[int] | None), Decoder(int)
    for array in (b"[1,2]", b"[1,2%b]" % (b" " * LARGE), b"null", b"[]" + b" "):
        assert pieces.elements(Raw(array), whole, one) == whole.decode(array)
    for array in (b'["x"%b]' % (b" " * LARGE), b'"%b"' % (b"x" * LARGE)):
        with pytest.raises(ValidationError):
            pieces.elements(Raw(array), whole, one)


def test_what_cannot_be_read_raises_as_at_once():
    with pytest.raises(DecodeError):
        pieces.read(b'{"a":[1e400,"%b"]}' % (b"x" * LARGE))


@pytest.mark.parametrize("at", [3, LARGE - 1, LARGE, LARGE + 1, 2 * LARGE + 7])
def test_where_a_large_body_is_not_utf8_is_told(at: int):
    body = bytearray(("é" * (2 * LARGE)).encode())
    pieces.check_utf8(bytes(body))
    body[at] = 0xFF
    with pytest.raises(UnicodeDecodeError) as raised:
        bytes(body).decode()
    where = raised.value.start
    with pytest.raises(UnicodeDecodeError) as raised:
        pieces.check_utf8(bytes(body))
    assert raised.value.start == where
    with pytest.raises(BadRequest, match=rf"byte {where}\b"):
        CODECS["chat"].decode(bytes(body))


@pytest.mark.parametrize("dialect", ["chat", "messages", "responses"])
def test_a_large_conversation_has_the_turns_of_a_small_one(dialect: str):
    field = "input" if dialect == "responses" else "messages"
    said = [{"role": "user", "content": "say hi"}, {"role": "assistant", "content": [{"type": "text", "text": "Hi."}]}]
    codec = next(codec for name, codec in CODECS.items() if name == dialect)
    small = codec.decode(encode({"model": "auto", "max_tokens": 1, field: said}))
    large = codec.decode(encode({"model": "auto", "max_tokens": 1, field: [*said, {"role": "user", "content": LONG}]}))
    assert large.turns[:-1] == small.turns
    assert large.turns[-1].texts == (LONG,)
    with pytest.raises(BadRequest, match=field):
        codec.decode(encode({"model": "auto", "max_tokens": 1, field: [*said, LONG]}))
