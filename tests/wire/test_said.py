"""What an answer says without its dialect, whether it has the form asked for, and how likely its tokens were."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from router.cascade import Said, conclusion
from router.types import Dialect, ToolCall
from router.wire import CODECS
from router.wire.logprobs import Logprobs
from router.wire.said import fits, said, well_formed
from tests.wire.translated import BODIES
from tests.wire.upstreams import ANSWERS, STREAMS

DIALECTS: tuple[Dialect, ...] = ("chat", "messages", "responses")
each_dialect = pytest.mark.parametrize("dialect", DIALECTS)
CALLS = (ToolCall(name="f", arguments='{"a": 1}'), ToolCall(name="g", arguments="{}"))


@each_dialect
def test_one_content_says_the_same_in_each_dialect_streamed_and_not(dialect: Dialect):
    streamed = said(dialect, STREAMS[dialect], stream=True)
    whole = said(dialect, json.dumps(ANSWERS[dialect]).encode(), stream=False)
    assert streamed is not None
    assert whole is not None
    assert streamed.text == whole.text == "Hello \u2028 world"
    assert conclusion(streamed) == conclusion(whole) == 'f {"a":"ü"} g {}'
    assert not streamed.refused


@each_dialect
@pytest.mark.parametrize("data", [b"", b"{", b"[" * 5000, b"data: {\n\n"])
def test_what_cannot_be_read_says_nothing_that_could_be_taken_for_an_answer(dialect: Dialect, data: bytes):
    for stream in (False, True):
        found = said(dialect, data, stream=stream)
        assert found is None or found == Said()


def test_legacy_completions_say_their_text():
    assert said("completions", b'{"choices": [{"text": "a b"}]}', stream=False) == Said(text="a b")
    events = b'data: {"choices": [{"text": "a "}]}\n\ndata: {"choices": [{"text": "b"}]}\n\ndata: [DONE]\n\n'
    assert said("completions", events, stream=True) == Said(text="a b")


# --- the form --------------------------------------------------------------------------------------------


def formed(dialect: Dialect, answer: Said, **more: Any) -> bool | None:
    return well_formed(CODECS[dialect].decode(json.dumps({**BODIES[dialect], **more}).encode()), answer)


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
FORMATS: dict[Dialect, dict[str, Any]] = {
    "chat": {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}},
    "messages": {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
    "responses": {"text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}}},
}


@each_dialect
def test_calls_and_json_are_held_to_what_the_request_says(dialect: Dialect):
    assert formed(dialect, Said(text="anything"))
    assert formed(dialect, Said(calls=CALLS))
    assert formed(dialect, Said(calls=(ToolCall(name="f", arguments="[1]"),))) is False
    assert formed(dialect, Said(calls=(ToolCall(name="unknown", arguments="{}"),))) is False
    assert formed(dialect, Said(text='{"n": 1}'), **FORMATS[dialect])
    assert formed(dialect, Said(text='{"n": "1"}'), **FORMATS[dialect]) is False
    assert formed(dialect, Said(text="no JSON"), **FORMATS[dialect]) is False


def test_any_json_object_will_do_where_no_schema_is_given():
    assert formed("chat", Said(text=' {"a": 1}'), response_format={"type": "json_object"})
    assert formed("chat", Said(text="[1]"), response_format={"type": "json_object"}) is False


def test_a_tool_of_the_providers_own_cannot_be_judged():
    tools = [{"type": "web_search_20250305", "name": "web_search"}]
    assert formed("messages", Said(calls=(ToolCall(name="web_search", arguments="{}"),)), tools=tools) is not False


@pytest.mark.parametrize("schema", [{"$ref": "#"}, {"anyOf": [{"$ref": "#"}]}, {"$ref": "http://x/y"}, {"type": 7}])
def test_a_schema_that_says_nothing_sensible_harms_nobody(schema: dict[str, Any]):
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    assert formed("chat", Said(text="{}"), response_format=form) in (True, None)


TREE = {
    "type": "object",
    "properties": {"value": {"type": ["number", "null"]}, "children": {"type": "array", "items": {"$ref": "#"}}},
    "required": ["value"],
    "additionalProperties": False,
}
SCHEMAS: list[Any] = [
    TREE,
    {"$ref": "#/$defs/one~1two", "$defs": {"one/two": {"enum": ["a", 1, None]}}},
    {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "boolean"}}]},
    {"allOf": [{"type": "object"}, {"required": ["value"]}]},
    {"const": {"a": 1}},
    {"type": "integer"},
    {"type": "object", "additionalProperties": {"type": "string"}},
    {},
]
values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.just(1.5) | st.just(2.0) | st.sampled_from(["a", "b"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["value", "children", "a"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.sampled_from(SCHEMAS), values)
def test_what_fits_is_what_a_validator_of_json_schema_accepts(schema: Any, value: Any):
    assert fits(value, schema, schema) == Draft202012Validator(schema).is_valid(value)


# --- log-probabilities -----------------------------------------------------------------------------------


def token(word: str, logprob: float | None) -> str:
    given_ = None if logprob is None else {"content": [{"token": word, "logprob": logprob}], "refusal": None}
    return json.dumps({"choices": [{"index": 0, "delta": {"content": word}, "logprobs": given_}]})


STREAM = [token("a", -1.0), token('"logprobs"', None), '{"choices": [], "usage": {}}', token("\u2028", -0.5), "[DONE]"]
HEARD = "".join(f"data: {event}\n\n" for event in STREAM).encode() + b": bye\n\n"
BARE = HEARD.replace(json.dumps(json.loads(STREAM[0])["choices"][0]["logprobs"]).encode(), b"null").replace(
    json.dumps(json.loads(STREAM[3])["choices"][0]["logprobs"]).encode(), b"null"
)


@given(st.lists(st.integers(0, len(HEARD)), max_size=8), st.booleans())
def test_any_chunking_gives_the_same_bytes_without_log_probabilities_and_the_same_mean(cuts: list[int], keep: bool):
    heard = Logprobs(keep=keep, stream=True)
    at = [0, *sorted(cuts), len(HEARD)]
    out = b"".join([heard.feed(HEARD[a:b]) for a, b in pairwise(at) if a < b]) + heard.feed(b"")
    assert out == (HEARD if keep else BARE)
    assert heard.mean == -0.75


def test_a_whole_answer_is_given_on_at_its_end_with_every_other_byte_as_it_came():
    answer = b'{ "choices":[{"logprobs" : {"content":[{"logprob":-2},{"logprob":null},{}]},"message":{}}] , "x":1.0}'
    heard = Logprobs(keep=False, stream=False)
    assert heard.feed(answer[:20]) == heard.feed(answer[20:]) == b""
    assert heard.feed(b"") == b'{ "choices":[{"logprobs" : null,"message":{}}] , "x":1.0}'
    assert heard.mean == -2


@pytest.mark.parametrize("answer", [b"", b"not json", b'{"choices": 7}', b'{"choices": [{"logprobs": null}]}'])
def test_an_answer_without_any_goes_on_as_it_is(answer: bytes):
    heard = Logprobs(keep=False, stream=False)
    heard.feed(answer)
    assert heard.feed(b"") == answer
    assert heard.mean is None


def test_true_is_not_one() -> None:
    for schema in ({"enum": ["a", 1]}, {"const": 1}, {"const": {"a": [1]}}):
        assert not any(fits(value, schema, schema) for value in (True, {"a": [True]}))
    assert fits({"a": [1.0]}, {"const": {"a": [1]}}, {})
