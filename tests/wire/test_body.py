"""Bodies as bytes: what is refused and how, and that a change touches nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.json import Decoder, encode

from router.errors import BadRequest
from router.wire import CODECS
from router.wire import body as wire_body

CHAT = CODECS["chat"]


def refusal(body: bytes) -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        CHAT.decode(body)
    assert caught.value.status == 400
    return caught.value


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"  ",
        b"{",
        b"[]",
        b'"model"',
        b"null",
        b"42",
        b"{model: 1}",
        b'{"model":"SECRET","messages":[]',
        b'{"model":"SECRET","messages":[]} x',
        b'{"model":"SECRET","messages":[],"temperature":NaN}',
        b'{"model":"SECRET","messages":[],"max_tokens":Infinity}',
        b'{"model":"SECRET","messages":[],"max_tokens":-Infinity}',
        b'{"model":"SECRET","messages":[],"max_tokens":1e400}',
        b'{"model":"SECRET","messages":[{"role":"user","content":"SECRET\\ud800"}]}',
        b'{"model":"SECRET","messages":[],"unknown":"SECRET\\udc00 x"}',
        b'{"model":"SECRET","messages":[{"role":"user","content":"SECRET\xff"}]}',
        b'{"model":"SECRET","messages":[],"unknown":"SECRET\xed\xa0\x80"}',
        b'\xef\xbb\xbf{"model":"SECRET","messages":[]}',
        b'{"messages":[]}',
        b'{"model":null,"messages":[]}',
        b'{"model":"","messages":[]}',
        b'{"model":"  ","messages":[]}',
        b'{"model":7,"messages":[]}',
        b'{"model":["SECRET"],"messages":[]}',
        b'{"model":"SECRET"}',
        b'{"model":"SECRET","messages":null}',
        b'{"model":"SECRET","messages":"SECRET"}',
        b'{"model":"SECRET","messages":{}}',
        b'{"model":"SECRET","messages":["SECRET"]}',
        b'{"model":"SECRET","messages":[],"stream":"SECRET"}',
        b'{"model":"SECRET","messages":[],"stream_options":"SECRET"}',
        b'{"model":"SECRET","messages":[],"tools":{"SECRET":1}}',
        b'{"model":"SECRET","model":"SECRET","messages":[]}',
        b'{"model":"SECRET","messages":[],"\\u006dodel":"SECRET"}',
        b'{"messages":[{"model":"x"}],"model":"SECRET","user":"\\n","mo\\u0064el":"SECRET"}',
        b"[" * 100_000 + b"]" * 100_000,
        b'{"model":"SECRET","messages":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"model":"SECRET","messages":[],"x":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}",
    ],
)
def test_a_bad_body_is_a_400_that_does_not_quote_it(body: bytes) -> None:
    error = refusal(body)
    assert error.message
    assert "SECRET" not in error.message
    assert "SECRET" not in (error.param or "")


def test_the_refusal_names_the_field() -> None:
    assert refusal(b'{"messages":[]}').param == "model"
    assert refusal(b'{"model":"a"}').param == "messages"
    assert refusal(b'{"model":"a","messages":"b"}').param == "messages"
    assert refusal(b'{"model":"a","messages":[],"stream":1}').param == "stream"
    assert refusal(b'{"model":"a","messages":[1]}').param == "messages[0]"
    assert refusal(b'{"model":"a","model":"b","messages":[]}').param == "model"


def test_a_second_model_is_found_in_a_large_body_whatever_stands_in_its_messages() -> None:
    filler = json.dumps([{"role": "user", "content": '"model": ' * 2000, "model": "nested"}])
    body = f'{{"model":"a","messages":{filler},"tools":[{{"model":1}},{{"model":2}}]'.encode()
    assert CHAT.decode(body + b"}").model == "a"
    assert refusal(body + b',"model":"b"}').param == "model"
    assert refusal(body + b',"mode\\u006c":"b"}').param == "model"


def test_nested_models_and_backslashes_are_no_second_model() -> None:
    body = b'{"stop":["\\n"],"prediction":{"model":{}},"model":"a","metadata":{"model":"b"},"messages":[]}'
    request = CHAT.decode(body)
    assert request.model == "a"
    assert body[slice(*request.model_span)] == b'"a"'


def test_an_escaped_model_name_is_read_and_located() -> None:
    body = b'{"model" : "a\\u0062\\"c" ,"messages":[]}'
    request = CHAT.decode(body)
    assert request.model == 'ab"c'
    assert wire_body.outgoing(request, "z") == b'{"model" : "z" ,"messages":[]}'


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=8) | st.just("model"),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["model", "a", 'x"', "ü"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(
    before=st.dictionaries(st.text(max_size=6), JSON, max_size=3),
    after=st.dictionaries(st.text(max_size=6), JSON, max_size=3),
    name=st.text(min_size=1).filter(lambda s: s.strip() != "" and s.isprintable()),
    new=st.text(),
    ascii_only=st.booleans(),
    indent=st.sampled_from([None, 1]),
    size=st.sampled_from([0, 5000]),
)
def test_only_the_model_changes(
    before: dict[str, Any], after: dict[str, Any], name: str, new: str, ascii_only: bool, indent: int | None, size: int
) -> None:
    known = {"model", "messages", "tools", "stream", "stream_options", "functions", "response_format"}
    fields: dict[str, Any] = {k: v for k, v in before.items() if k not in known}
    fields["messages"] = [{"role": "user", "content": "model" * size, "model": "m"}]
    fields["model"] = name
    fields |= {k: v for k, v in after.items() if k not in known}
    body = json.dumps(fields, ensure_ascii=ascii_only, indent=indent).encode()
    request = CHAT.decode(body)
    start, end = request.model_span
    assert request.model == name
    assert json.loads(body[start:end]) == name
    changed = wire_body.replace(body, [(request.model_span, encode(new))])
    assert changed[:start] == body[:start]
    assert changed[len(changed) - (len(body) - end) :] == body[end:]
    assert json.loads(changed) == {**fields, "model": new}


@given(
    fields=st.dictionaries(st.text(max_size=5), JSON, max_size=4),
    given=st.dictionaries(st.text(max_size=5), JSON, max_size=4),
)
def test_set_fields_replaces_or_appends(fields: dict[str, Any], given: dict[str, Any]) -> None:
    body = json.dumps(given, indent=2).encode()
    changed = wire_body.set_fields(body, fields)
    kept = {k: v for k, v in {**given, **fields}.items() if v is not None or k not in fields}
    assert json.loads(changed) == kept
    if not fields:
        assert changed == body


@given(
    given=st.dictionaries(st.text(max_size=5), JSON, min_size=1, max_size=4),
    which=st.integers(0, 3),
    indent=st.sampled_from([None, 1]),
)
def test_null_removes_a_field(given: dict[str, Any], which: int, indent: int | None) -> None:
    key = list(given)[which % len(given)]
    changed = wire_body.set_fields(json.dumps(given, indent=indent).encode(), {key: None, "not there \\": None})
    assert json.loads(changed) == {k: v for k, v in given.items() if k != key}


def test_set_fields_leaves_the_other_bytes() -> None:
    body = b'{ "a" : 1e2,\t"b":[ 12345678901234567890 ],"c":"\\u0041" }\n'
    assert wire_body.set_fields(body, {"a": 2, "d": "x"}) == (
        b'{ "a" : 2,\t"b":[ 12345678901234567890 ],"c":"\\u0041" ,"d":"x"}\n'
    )
    assert wire_body.set_fields(b"{}", {"d": 1}) == b'{"d":1}'


def test_a_raw_is_located_by_its_address_not_its_text() -> None:
    body = b'{"a":1,"b":1,"c":1}'
    fields = Decoder(dict[str, Raw]).decode(body)
    assert [wire_body.locate(body, fields[k]) for k in "abc"] == [(5, 6), (11, 12), (17, 18)]


@pytest.mark.parametrize(
    ("body", "sent"),
    [
        (
            b'{"model":"a","messages":[],"stream":true}',
            b'{"model":"m","messages":[],"stream":true,"stream_options":{"include_usage":true}}',
        ),
        (
            b'{"model":"a","messages":[],"stream_options":{"x":1},"stream":true}',
            b'{"model":"m","messages":[],"stream_options":{"x":1,"include_usage":true},"stream":true}',
        ),
        (
            b'{"stream_options":null,"model":"a","messages":[],"stream":true}',
            b'{"stream_options":{"include_usage":true},"model":"m","messages":[],"stream":true}',
        ),
        (
            b'{"model":"a","messages":[],"stream":true,"stream_options":{"include_usage" : true}}',
            b'{"model":"m","messages":[],"stream":true,"stream_options":{"include_usage" : true}}',
        ),
        (b'{"model":"a","messages":[]}', b'{"model":"m","messages":[]}'),
    ],
)
def test_usage_is_asked_for_in_streams_only(body: bytes, sent: bytes) -> None:
    assert wire_body.outgoing(CHAT.decode(body), "m", usage=True) == sent
    pieces = wire_body.outgoing_pieces(CHAT.decode(body), "m", usage=True)
    assert b"".join(pieces) == sent
    assert all(piece.obj is body for piece in pieces if isinstance(piece, memoryview))


def test_the_body_goes_out_as_it_came_when_nothing_is_asked() -> None:
    body = b'{"model":"a", "messages":[] , "x":1.10}'
    assert wire_body.outgoing(CHAT.decode(body), "") is body
    assert wire_body.outgoing(CHAT.decode(body), "a") is body
    assert wire_body.outgoing(CHAT.decode(body), "b", fields={"x": 2}) == b'{"model":"b", "messages":[] , "x":2}'
