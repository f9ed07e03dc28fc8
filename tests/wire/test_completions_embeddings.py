"""Legacy completions and embeddings: their own dialect, in and out."""

from __future__ import annotations

import json

import pytest

from router.errors import BadRequest, RateLimited, UpstreamStatus
from router.types import Turn, Usage
from router.wire import CODECS
from router.wire import body as wire_body
from router.wire.translate import translate

COMPLETIONS, EMBEDDINGS = CODECS["completions"], CODECS["embeddings"]


def test_a_completion_request_is_viewed() -> None:
    body = b'{"model":"a","prompt":["one","two"],"stream":true,"max_tokens":5,"user":"u","suffix":null}'
    request = COMPLETIONS.decode(body)
    assert request.turns == (Turn(role="user", texts=("one", "two")),)
    assert (request.stream, request.max_output_tokens, request.user) == (True, 5, "u")
    assert b'"include_usage":true' in wire_body.outgoing(request, "m", usage=True)
    assert COMPLETIONS.decode(b'{"model":"a","prompt":"p"}').turns == (Turn(role="user", texts=("p",)),)
    assert COMPLETIONS.decode(b'{"model":"a","prompt":[1,2]}').turns == ()


def test_a_completion_stream_is_metered() -> None:
    meter = COMPLETIONS.meter(COMPLETIONS.decode(b'{"model":"a","prompt":"p","stream":true}'))
    data = b'data: {"choices":[{"index":0,"text":"Hi","finish_reason":null}]}\n\ndata: [DONE]\n\n'
    assert meter.feed(data) == data
    assert (meter.content, meter.done, meter.deltas) == (True, True, 1)
    meter = COMPLETIONS.meter(COMPLETIONS.decode(b'{"model":"a","prompt":"p","stream":true}'))
    for event in [data[: data.index(b"data: [")]] * 3:
        meter.feed(b": a comment\n\n" + event)
    assert meter.deltas == 3


def test_an_embeddings_request_is_viewed() -> None:
    request = EMBEDDINGS.decode(b'{"input":"words","model":"e","dimensions":3}')
    assert request.turns == (Turn(role="user", texts=("words",)),)
    assert wire_body.outgoing(request, "m") == b'{"input":"words","model":"m","dimensions":3}'
    answer = b'{"data":[],"usage":{"prompt_tokens":4,"total_tokens":4}}'
    assert EMBEDDINGS.usage(answer) == Usage(input=4)
    assert EMBEDDINGS.mended(answer) is answer


@pytest.mark.parametrize("body", [b'{"model":"a"}', b'{"model":"a","input":{}', b'{"prompt":"x","input":"x"}'])
def test_bad_bodies_are_refused(body: bytes) -> None:
    for codec in (COMPLETIONS, EMBEDDINGS):
        with pytest.raises(BadRequest):
            codec.decode(body)


def test_errors_have_openais_shape() -> None:
    for codec in (COMPLETIONS, EMBEDDINGS):
        assert json.loads(codec.error(RateLimited("slow"), "r"))["error"]["type"] == "rate_limit_error"
        assert codec.error_event(RateLimited("slow"), "r").startswith(b'data: {"error"')


def test_neither_is_translated() -> None:
    with pytest.raises(BadRequest):
        translate(EMBEDDINGS.decode(b'{"input":"x","model":"e"}'), "chat", "m")


def test_S08_an_error_that_comes_with_status_200_is_an_error() -> None:
    error = b'{"error":{"message":"maximum context length is 10 tokens","code":"context_length_exceeded"}}'
    for codec in (COMPLETIONS, EMBEDDINGS):
        with pytest.raises(UpstreamStatus) as caught:
            codec.mended(error)
        assert caught.value.status == 400
