"""Chat completions: the view of a request, the meter of a stream, usage and errors."""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.errors import BadAnswer, BadRequest, ContextTooLong, PointsmanError, RateLimited, Truncated, UpstreamStatus
from router.types import ToolCall, ToolResult, Turn, Usage
from router.wire import body as wire_body
from router.wire.chat import ChatCodec
from router.wire.chat_meter import DONE, ChatMeter

CHAT = ChatCodec()


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "auto", "messages": [], **fields}).encode()


def turns(*messages: Any) -> tuple[Turn, ...]:
    return CHAT.decode(body(messages=list(messages))).turns


# --- the request -----------------------------------------------------------------------------------------


def test_a_request_is_viewed() -> None:
    request = CHAT.decode(
        body(
            messages=[
                {"role": "developer", "content": "be brief"},
                {
                    "role": "user",
                    "content": [{"type": "text", "text": "what"}, {"type": "image_url", "image_url": {"url": "data:"}}],
                },
            ],
            tools=[{"type": "function"}, {"type": "custom"}],
            stream=True,
            stream_options={"include_usage": True},
            response_format={"type": "json_schema", "json_schema": {"name": "x"}},
            max_tokens=9,
            max_completion_tokens=7,
            prompt_cache_key="conv-1",
            user="u",
        )
    )
    assert request.dialect == "chat"
    assert request.model == "auto"
    assert request.stream
    assert request.include_usage
    assert request.tools == 2
    assert request.wants_json
    assert request.max_output_tokens == 7
    assert request.user == "conv-1"
    assert request.turns == (
        Turn(role="developer", texts=("be brief",)),
        Turn(role="user", texts=("what",), images=1),
    )


def test_Q01_null_and_empty_content_is_accepted_and_Q02_kept() -> None:
    messages = [
        {"role": "user", "content": "q"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "1", "content": ""},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": []},
    ]
    sent = body(messages=messages)
    request = CHAT.decode(sent)
    assert request.turns == (
        Turn(role="user", texts=("q",)),
        Turn(role="assistant", tool_calls=(ToolCall(name="f", arguments="{}"),)),
        Turn(role="tool", tool_results=(ToolResult(),)),
        Turn(role="assistant"),
        Turn(role="user"),
    )
    assert wire_body.outgoing(request, "m") == sent.replace(b'"auto"', b'"m"')


def test_Q04_Q14_every_parameter_passes_through_byte_equal() -> None:
    sent = body(
        n=2, stop=["\n"], seed=2**60, logprobs=True, top_logprobs=3, logit_bias={"1": -100}, parallel_tool_calls=False,
        tool_choice={"type": "function", "function": {"name": "f"}}, max_completion_tokens=5, reasoning_effort="low",
        response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}},
        tools=[{"type": "function", "function": {"name": "f", "parameters": {"$schema": "x", "maximum": 2**63}}}],
        chat_template_kwargs={"enable_thinking": False}, store=True,
        messages=[{"role": "assistant", "content": None, "reasoning_content": "hm", "unknown": {"a": [None]}}],
    )  # fmt: skip
    assert wire_body.outgoing(CHAT.decode(sent), "m") == sent.replace(b'"auto"', b'"m"')


def test_unknown_roles_parts_and_shapes_add_nothing_and_refuse_nothing() -> None:
    assert turns(
        {"role": "critic", "content": "x"},
        {"role": "user", "content": {"odd": 1}},
        {"role": 7, "content": "x"},
        {"role": "user", "content": [{"type": "hologram"}, {"type": "text", "text": 5}, {"text": "no type"}]},
        {"role": "user", "content": ["bare"]},
        {"role": "function", "name": "f", "content": "r"},
        {"role": "assistant", "tool_calls": [{"type": "custom", "custom": {"name": "c", "input": "x"}}]},
        {"role": "assistant", "function_call": {"name": "old", "arguments": "{}"}},
        {},
    ) == (
        Turn(role="critic", texts=("x",)),
        Turn(role="user"),
        Turn(role="", texts=("x",)),
        Turn(role="user"),
        Turn(role="user"),
        Turn(role="tool", tool_results=(ToolResult(text="r"),)),
        Turn(role="assistant", tool_calls=(ToolCall(name="c"),)),
        Turn(role="assistant", tool_calls=(ToolCall(name="old", arguments="{}"),)),
        Turn(role=""),
    )


@pytest.mark.parametrize("limit", [None, "9", -1, True, [], 1.5e300])
def test_an_odd_token_limit_is_left_to_the_upstream(limit: Any) -> None:
    assert CHAT.decode(body(max_tokens=limit)).max_output_tokens in (None, int(1.5e300))


def test_an_agents_body_is_not_searched_for_its_own_words() -> None:
    tool = {"type": "function", "function": {"name": "f", "description": '"model": "x", \\"model\\"' * 500}}
    sent = json.dumps(
        {"tools": [tool] * 3, "messages": [{"role": "user", "content": '{"model":"no"}'}], "model": "yes"}
    ).encode()
    request = CHAT.decode(sent)
    assert request.model == "yes"
    assert json.loads(wire_body.outgoing(request, "m")) == {**json.loads(sent), "model": "m"}


@given(
    st.recursive(
        st.none() | st.text() | st.integers() | st.floats(), lambda i: st.lists(i) | st.dictionaries(st.text(), i)
    )
)
@settings(max_examples=60)
def test_any_json_in_the_messages_is_read_or_refused_with_400(value: Any) -> None:
    for message in (
        value,
        {"role": value, "content": value},
        {"role": "user", "content": [value]},
        {"tool_calls": [value]},
    ):
        sent = json.dumps({"model": "a", "messages": [message], "tools": None}).encode()
        with suppress(BadRequest):
            assert CHAT.decode(sent).body == sent


# --- the stream ------------------------------------------------------------------------------------------


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> bytes:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    return b"data: " + json.dumps({"id": "c", "choices": choices, **more}, separators=(",", ":")).encode() + b"\n\n"


ROLE = chunk({"role": "assistant", "content": ""})
USAGE = chunk(usage={"prompt_tokens": 5, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}})
STREAM = [ROLE, chunk({"content": "He"}), chunk({"content": "llo \u2028"}), chunk({}, "stop"), USAGE, DONE]
ERROR = b'data: {"error":{"message":"boom","type":"server_error","code":null}}\n\n'


def metered(data: bytes, cuts: list[int], *, withhold: bool = False) -> tuple[bytes, ChatMeter]:
    meter = ChatMeter(withhold=withhold)
    at = [0, *sorted(c % (len(data) + 1) for c in cuts), len(data)]
    out = b"".join([meter.feed(data[a:b]) for a, b in pairwise(at)])
    return out + meter.close(), meter


@given(st.lists(st.integers(0, 2000), max_size=10), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_any_chunking_gives_the_same_bytes_and_facts(cuts: list[int], end: bytes) -> None:
    data = b"".join(STREAM).replace(b"\n", end)
    out, meter = metered(data, cuts)
    assert out in (data, data.removesuffix(b"\n"))  # the LF of a last CR LF that was cut in two ends nothing more
    assert (meter.content, meter.done, meter.deltas, meter.failed) == (True, True, 2, None)
    assert meter.usage == Usage(input=5, output=3, cached=2)


@given(st.lists(st.integers(0, 2000), max_size=10))
def test_S12_usage_that_the_gateway_asked_for_stays_here(cuts: list[int]) -> None:
    out, meter = metered(b"".join(STREAM), cuts, withhold=True)
    assert out == b"".join([e for e in STREAM if e is not USAGE])
    assert meter.usage == Usage(input=5, output=3, cached=2)


def test_S12_usage_that_the_client_asked_for_is_passed_on() -> None:
    asked = CHAT.decode(body(stream=True, stream_options={"include_usage": True}))
    meter = CHAT.meter(asked)
    assert meter.feed(b"".join(STREAM)) == b"".join(STREAM)
    meter = CHAT.meter(CHAT.decode(body(stream=True)), asked_usage=True)
    assert USAGE not in meter.feed(b"".join(STREAM))


@pytest.mark.parametrize(
    "delta",
    [
        {"content": "x"},
        {"reasoning_content": "x"},
        {"reasoning": "x"},
        {"refusal": "x"},
        {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""}}]},
    ],
)
def test_content_is_the_first_non_empty_delta(delta: dict[str, Any]) -> None:
    meter = ChatMeter()
    assert meter.feed(b": hello\n\n" + ROLE) == b": hello\n\n" + ROLE
    assert not meter.content
    meter.feed(chunk(delta))
    assert meter.content
    assert meter.deltas == 1


CALL = {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}}]}
MORE = {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}


@pytest.mark.parametrize(
    ("reason", "told"), [("stop", "tool_calls"), ("completed", "tool_calls"), ("length", "length")]
)
def test_S15_calls_with_a_plain_stop_ask_for_the_tools_to_be_run(reason: str, told: str) -> None:
    events = [chunk({"content": "x"}), chunk({"content": "y"}), chunk(CALL), chunk(MORE), chunk({}, reason), DONE]
    meter = ChatMeter()
    assert b"".join([meter.feed(event) for event in events]) == b"".join([*events[:4], chunk({}, told), DONE])
    assert meter.deltas == 4
    call = {"message": {"content": '"finish_reason":"stop"', **CALL}, "finish_reason": reason}
    answer = json.dumps({"choices": [call]}, indent=1).encode()
    assert json.loads(CHAT.mended(answer)) == {"choices": [{**call, "finish_reason": told}]}


def test_S15_an_answer_without_calls_is_left_alone() -> None:
    for answer in (
        b'{"choices":[{"message":{"content":"\\"tool_calls\\""},"finish_reason":"stop"}]}',
        b'{"choices":[{"message":{"tool_calls":[]},"finish_reason":"stop"}]}',
    ):
        assert CHAT.mended(answer) is answer
    events = [chunk({"content": '"arguments"'}), chunk({"content": "y"}), chunk({}, "stop"), DONE]
    meter = ChatMeter()
    assert b"".join([meter.feed(event) for event in events]) == b"".join(events)


def test_nothing_follows_the_end() -> None:
    meter = ChatMeter()
    assert meter.feed(b"".join(STREAM) + ROLE) == b"".join(STREAM)
    assert meter.done
    assert meter.feed(ERROR) == b""
    assert meter.close() == b""


def test_S07_an_answer_cut_short_never_looks_complete() -> None:
    meter = ChatMeter()
    meter.feed(b"".join(STREAM[:3]) + b'data: {"choi')
    with pytest.raises(Truncated):
        meter.close()
    assert not meter.done


def test_S07_an_error_event_after_content_ends_the_stream() -> None:
    meter = ChatMeter()
    out = meter.feed(b"".join(STREAM[:3]) + ERROR + DONE)
    assert out == b"".join(STREAM[:3])
    assert meter.done
    assert isinstance(meter.failed, UpstreamStatus)
    event = CHAT.error_event(meter.failed, "req-1")
    assert json.loads(event.removeprefix(b"data: "))["error"]["message"] == "boom"
    assert event.endswith(b"\n\n")
    assert b"[DONE]" not in event
    assert meter.feed(DONE) == meter.close() == b""


@pytest.mark.parametrize(
    ("event", "status"),
    [
        (ERROR, 502),
        (b'event: error\ndata: {"message":"slow down, rate limit reached"}\n\n', 429),
        (b'data: {"error":{"message":"Too many requests","code":429}}\n\n', 429),
        (b'data: {"error":{"message":"x","type":"rate_limit_error"}}\n\n', 429),
        (b'data: {"error":{"message":"Overloaded","type":"overloaded_error"}}\n\n', 529),
        (b'data: {"error":{"message":"x","code":"context_length_exceeded"}}\n\n', 400),
        (b'data: {"error":"This model\'s maximum context length is 8192 tokens"}\n\n', 400),
        (b'data: {"object":"error","message":"bad","code":400}\n\n', 400),
    ],
)
def test_L13_an_error_before_content_raises_with_its_status(event: bytes, status: int) -> None:
    meter = ChatMeter()
    assert meter.feed(ROLE) == ROLE
    with pytest.raises(UpstreamStatus) as caught:
        meter.feed(event)
    assert caught.value.status == status
    assert not meter.content


def test_an_event_that_is_no_chunk_is_a_bad_answer_before_content_only() -> None:
    with pytest.raises(BadAnswer):
        ChatMeter().feed(b"data: <html>\n\n")
    meter = ChatMeter()
    assert meter.feed(STREAM[1] + b"data: <html> [DONE]\n\n").endswith(b"data: <html> [DONE]\n\n")
    assert not meter.done


def test_S19_deltas_are_counted_when_no_usage_comes_and_an_error_is_no_delta() -> None:
    meter = ChatMeter()
    meter.feed(ROLE)
    for word in "abcdefghij":
        meter.feed(b": a comment\n\n" + chunk({"content": word}))
    meter.feed(ERROR)
    assert meter.deltas == 10
    assert meter.usage is None


def test_a_servers_usage_in_every_delta_is_the_newest_wherever_it_stands() -> None:
    meter = ChatMeter()
    for n in range(1, 6):
        usage = b'{"prompt_tokens":7,"completion_tokens":%d}' % n
        meter.feed(b'data: {"usage":%b,"choices":[{"delta":{"content":"a"},"finish_reason":null}]}\n\n' % usage)
    assert (meter.deltas, meter.usage) == (5, Usage(input=7, output=5))


def test_a_clean_end_after_the_finish_reason_is_completed() -> None:
    meter = ChatMeter()
    meter.feed(b"".join(STREAM[:5]))
    assert meter.close() == DONE
    meter = ChatMeter()
    meter.feed(b"".join(STREAM[:5]) + b"data: [DONE]")
    assert meter.close() == DONE
    assert meter.done


def test_a_stream_that_is_no_stream_is_truncated() -> None:
    meter = ChatMeter()
    assert meter.feed(b'{"choices": []}') == b""
    with pytest.raises(Truncated):
        meter.close()


def test_S04_comments_pass_as_comments() -> None:
    meter = ChatMeter()
    assert meter.feed(b": PROCESSING\n\n") == b": PROCESSING\n\n"
    assert not meter.content


# --- usage and errors ------------------------------------------------------------------------------------


def test_usage_of_a_buffered_answer() -> None:
    answer = {
        "usage": {"prompt_tokens": 9, "completion_tokens": 4, "completion_tokens_details": {"reasoning_tokens": 3}}
    }
    assert CHAT.usage(json.dumps(answer).encode()) == Usage(input=9, output=4, reasoning=3)
    assert CHAT.usage(b'{"usage":{"prompt_tokens":null,"prompt_tokens_details":null}}') == Usage()
    for nothing in (b"{}", b'{"usage":null}', b'{"usage":3}', b"[]"):
        assert CHAT.usage(nothing) is None
    for broken in (b"<html>", b"", b"{xx}", b'{"usage":' + b"[" * 100_000):
        with pytest.raises(BadAnswer):
            CHAT.usage(broken)


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (BadRequest("no", param="model"), "invalid_request_error", "invalid_request"),
        (ContextTooLong("no"), "invalid_request_error", "context_length_exceeded"),
        (RateLimited("no"), "rate_limit_error", "rate_limited"),
        (Truncated("no"), "upstream_error", "upstream_truncated"),
        (UpstreamStatus(503, {}, b"", retry_after_s=None), "upstream_error", "upstream_status"),
    ],
)
def test_errors_have_openais_shape(error: PointsmanError, kind: str, code: str) -> None:
    told = json.loads(CHAT.error(error, "req-1"))["error"]
    assert told == {"message": error.message, "type": kind, "param": error.param, "code": code, "request_id": "req-1"}


def test_an_upstreams_own_words_are_told_where_its_body_is_kept() -> None:
    anthropic = b'{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 9 > 8"}}'
    told = json.loads(CHAT.error(UpstreamStatus(400, {}, anthropic, retry_after_s=None), "r"))["error"]
    assert told["message"] == "prompt is too long: 9 > 8"
    assert told["code"] == "context_length_exceeded"
    assert told["type"] == "invalid_request_error"


def test_S08_an_error_that_comes_with_status_200_is_an_error() -> None:
    with pytest.raises(UpstreamStatus) as caught:
        CHAT.mended(b'{"error":{"message":"Too many requests","code":429}}')
    assert caught.value.status == 429
