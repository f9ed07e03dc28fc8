"""Anthropic messages in their own dialect: the view of a request, the meter, usage and errors."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.errors import BadAnswer, BadRequest, Overloaded, RateLimited, Truncated, UpstreamStatus
from router.types import ToolCall, ToolResult, Turn, Usage
from router.wire import body as wire_body
from router.wire.messages import MessagesCodec
from tests.wire.upstreams import STREAMS, event, messages_stream

WILD = st.recursive(
    st.none() | st.text(max_size=4) | st.integers(), lambda i: st.lists(i) | st.dictionaries(st.text(max_size=4), i)
)
CODEC = MessagesCodec()
STREAM = STREAMS["messages"].replace(b'"stop_reason": "tool_use"', b'"stop_reason": "max_tokens"')


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "auto", "max_tokens": 9, "messages": [], **fields}).encode()


def meter() -> Any:
    return CODEC.meter(CODEC.decode(body(stream=True)))


def test_a_request_is_viewed() -> None:
    image = {"type": "image", "source": {"type": "url", "url": "https://x"}}
    request = CODEC.decode(
        body(
            system=[{"type": "text", "text": "s1"}, {"type": "text", "text": "s2"}],
            messages=[
                {"role": "user", "content": [{"type": "text", "text": "<r>"}, {"type": "text", "text": "hi"}, image]},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {"a": 1}}]},
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "1", "is_error": True, "content": "bad"},
                        {"type": "tool_result", "tool_use_id": "2", "content": [{"type": "text", "text": "x"}, image]},
                    ],
                },
                {"role": "system", "content": "late"},
            ],
            tools=[{"name": "f"}],
            stream=True,
            metadata={"user_id": "u"},
            output_config={"format": {"type": "json_schema", "schema": {}}},
        )
    )
    assert request.turns == (
        Turn(role="system", texts=("s1", "s2")),
        Turn(role="user", texts=("<r>", "hi"), images=1),
        Turn(role="assistant", tool_calls=(ToolCall(name="f", arguments='{"a": 1}'),)),
        Turn(role="user", images=1, tool_results=(ToolResult(text="bad", error=True), ToolResult(text="x"))),
        Turn(role="system", texts=("late",)),
    )
    assert (request.stream, request.tools, request.wants_json, request.max_output_tokens) == (True, 1, True, 9)
    assert request.user == "u"


def test_T07_Q04_a_body_passes_byte_equal_but_for_the_model() -> None:
    sent = (
        b'{ "model":"auto" ,"max_tokens":9,"messages":[{"role":"assistant","content":[{"type":"thinking",'
        b'"thinking":"\\u00e4\\/ \xc3\xa4","signature":"S=="},{"type":"hologram","x":1e2}]}],"context_management":{}}'
    )
    assert wire_body.outgoing(CODEC.decode(sent), "m") == sent.replace(b'"auto"', b'"m"')


def test_T08_thoughts_that_anthropic_did_not_sign_do_not_go_to_it() -> None:
    signed = '{"role": "assistant","content": [ {"type":"thinking","thinking":"\\u00e4","signature":"S"} ]}'
    unsigned = {"type": "thinking", "thinking": "x", "signature": ""}
    mixed = {"role": "assistant", "content": [unsigned, {"type": "text", "text": "y"}]}
    alone = {"role": "assistant", "content": [{**unsigned, "signature": "responses:rs_1:E"}]}
    sent = f'{{"model":"auto", "messages": [{signed},{json.dumps(mixed)},{json.dumps(alone)}] , "max_tokens":9}}'
    request = CODEC.decode(sent.encode())
    assert request.foreign_thoughts
    out = wire_body.outgoing(request, "m")
    assert signed.encode() in out
    assert json.loads(out)["messages"][1:] == [{"role": "assistant", "content": [{"type": "text", "text": "y"}]}]
    assert out.startswith(b'{"model":"m", "messages": [')
    assert out.endswith(b'] , "max_tokens":9}')
    assert not CODEC.decode(f'{{"model":"a","messages":[{signed}]}}'.encode()).foreign_thoughts


@pytest.mark.parametrize("messages", [None, "x", {}, [1]])
def test_bad_messages_are_refused(messages: Any) -> None:
    with pytest.raises(BadRequest) as caught:
        CODEC.decode(body(messages=messages))
    assert (caught.value.param or "").startswith("messages")


@given(WILD)
def test_any_content_is_read(value: Any) -> None:
    messages = [
        {"role": "user", "content": value},
        {"role": value},
        {"content": [{"type": "tool_result", "content": value}]},
    ]
    assert len(CODEC.decode(body(messages=messages, system=value)).turns) >= 3


@given(st.lists(st.integers(0, 4000), max_size=8), st.sampled_from([b"\n", b"\r\n"]))
def test_any_chunking_gives_the_same_bytes_and_facts(cuts: list[int], end: bytes) -> None:
    data = STREAM.replace(b"\n", end)
    at = [0, *sorted(c % (len(data) + 1) for c in cuts), len(data)]
    listening = meter()
    out = b"".join([listening.feed(data[a:b]) for a, b in pairwise(at)]) + listening.close()
    assert out in (data, data.removesuffix(b"\n"))
    assert (listening.content, listening.done, listening.failed) == (True, True, None)
    assert listening.deltas == 7
    assert listening.usage == Usage(input=20, output=7, cached=5)


def test_S15_calls_with_a_plain_stop_ask_for_the_tools_to_be_run() -> None:
    wrong = STREAMS["messages"].replace(b'"stop_reason": "tool_use"', b'"stop_reason": "end_turn"')
    listening = meter()
    chunks = wrong.split(b"\n\n")
    assert b"".join([listening.feed(chunk + b"\n\n") for chunk in chunks[:-1]]) == STREAMS["messages"]
    answer = b'{"content": [{"type":"tool_use","input":{}}], "stop_reason": "end_turn"}'
    assert CODEC.mended(answer) == answer.replace(b"end_turn", b"tool_use")
    assert CODEC.mended(b'{"content":[{"type":"text","text":"\\"tool_use\\""}],"stop_reason":"end_turn"}').endswith(
        b'"end_turn"}'
    )


def test_S07_an_answer_cut_short_is_truncated() -> None:
    listening = meter()
    listening.feed(messages_stream([({"type": "text", "text": ""}, [{"type": "text_delta", "text": "x"}])], done=False))
    with pytest.raises(Truncated) as caught:
        listening.close()
    told = listening.fail(caught.value, "r")
    assert told.startswith(b'event: error\ndata: {"type":"error"')
    assert b"message_stop" not in told


def test_S07_an_error_event_ends_the_stream_after_content_and_raises_before() -> None:
    error = event("error", error={"type": "overloaded_error", "message": "Overloaded"})
    with pytest.raises(UpstreamStatus) as caught:
        meter().feed(error)
    assert caught.value.status == 529
    listening = meter()
    begun = messages_stream([({"type": "text", "text": ""}, [{"type": "text_delta", "text": "x"}])], done=False)
    assert listening.feed(begun + error + event("message_stop")) == begun
    assert (listening.done, listening.failed.status) == (True, 529)
    assert json.loads(listening.fail(listening.failed, "r").split(b"data: ")[1])["error"]["type"] == "overloaded_error"


def test_an_event_that_is_no_json_is_a_bad_answer_before_content() -> None:
    with pytest.raises(BadAnswer):
        meter().feed(b"data: <html>\n\n")


def test_errors_have_anthropics_shape() -> None:
    told = json.loads(CODEC.error(RateLimited("slow"), "req-1"))
    assert told == {"type": "error", "error": {"type": "rate_limit_error", "message": "slow"}, "request_id": "req-1"}
    assert json.loads(CODEC.error(Overloaded("full"), "r"))["error"]["type"] == "overloaded_error"
    assert json.loads(CODEC.error(BadRequest("no"), "r"))["error"]["type"] == "invalid_request_error"
    openai = b'{"error":{"message":"No such model","code":"model_not_found"}}'
    told = json.loads(CODEC.error(UpstreamStatus(404, {}, openai, retry_after_s=None), "r"))["error"]
    assert told == {"type": "not_found_error", "message": "No such model"}


def test_T10_usage_counts_the_cache_as_input() -> None:
    usage = {"input_tokens": 3, "cache_read_input_tokens": 10, "cache_creation_input_tokens": 4, "output_tokens": 2}
    assert CODEC.usage(json.dumps({"usage": usage}).encode()) == Usage(input=17, output=2, cached=10)
    assert CODEC.usage(b"{}") is None


def test_S08_an_error_that_comes_with_status_200_is_an_error() -> None:
    with pytest.raises(UpstreamStatus) as caught:
        CODEC.mended(b'{"type":"error","error":{"type":"rate_limit_error","message":"slow"}}')
    assert caught.value.status == 429


@pytest.mark.parametrize("reason", ["stop", "completed", "tool_calls"])
def test_S15_so_do_calls_after_a_reason_of_other_apis(reason: str) -> None:
    wrong = STREAMS["messages"].replace(b'"stop_reason": "tool_use"', b'"stop_reason": "%b"' % reason.encode())
    assert meter().feed(wrong) == STREAMS["messages"]


def test_S15_a_calls_own_input_is_left_alone() -> None:
    call = b'{"content":[{"type":"tool_use","input":{"stop_reason":"end_turn"}}],"stop_reason":"%b"}'
    assert CODEC.mended(call % b"end_turn") == call % b"tool_use"
    for reason in (b"max_tokens", b"tool_use", b"stop_sequence"):
        assert CODEC.mended(call % reason) == call % reason
