"""Chat answers of servers that write otherwise than OpenAI's API does, for clients of chat itself."""

from __future__ import annotations

import json
from typing import Any

import pytest

from router.types import Usage
from router.wire import CODECS
from tests.wire.published import events
from tests.wire.translated import streamed
from tests.wire.upstreams import chat_stream

CHAT = CODECS["chat"]


def told(stream: bytes, *, asked_usage: bool = False, pieces: int = 1, **more: Any) -> list[dict[str, Any]]:
    """What a client reads of a stream, but for its end."""
    body = json.dumps({"model": "a", "messages": [{"role": "user", "content": "q"}], "stream": True, **more}).encode()
    meter = CHAT.meter(CHAT.decode(body), asked_usage=asked_usage)
    size = -(-len(stream) // pieces)
    out = b"".join([meter.feed(stream[at : at + size]) for at in range(0, len(stream), size)]) + meter.close()
    found = [event for _, event in events(out)]
    assert found.pop() == "[DONE]"
    assert found.count("[DONE]") == 0
    return found


def call(name: str, arguments: Any, **more: Any) -> dict[str, Any]:
    return {"tool_calls": [{**more, "type": "function", "function": {"name": name, "arguments": arguments}}]}


def more_of(arguments: str, **more: Any) -> dict[str, Any]:
    return {"tool_calls": [{**more, "function": {"arguments": arguments}}]}


def joined(found: list[dict[str, Any]]) -> dict[int, tuple[str, str, str]]:
    """Calls as a client joins them: by number."""
    calls: dict[int, tuple[str, str, str]] = {}
    for event in found:
        for one in [c for choice in event["choices"] for c in choice["delta"].get("tool_calls") or ()]:
            before = calls.get(one["index"], ("", "", ""))
            function = one["function"]
            now = (one.get("id") or "", function.get("name") or "", function["arguments"])
            calls[one["index"]] = tuple(a + b for a, b in zip(before, now, strict=True))  # type: ignore[assignment]
    return calls


@pytest.mark.parametrize("pieces", [1, 7, 40])
@pytest.mark.parametrize("words", [[], [{"content": "Let me see. "}, {"content": "So."}]])
@pytest.mark.parametrize("number", [{"index": 0}, {"index": None}, {}])
def test_T01_calls_that_a_server_numbers_alike_or_not_at_all_are_numbered(
    number: dict[str, Any], words: list[dict[str, Any]], pieces: int
) -> None:
    deltas = [
        *words,
        call("f", "", id="call_f", **number),
        more_of('{"a":', **number),
        more_of("1}", **number),
        call("g", '{"b":2}', id="call_g", **number),
        call("h", "", id="call_h", **number),
        more_of("{}", **number),
    ]
    found = told(chat_stream(deltas, "tool_calls"), pieces=pieces)
    assert joined(found) == {
        0: ("call_f", "f", '{"a":1}'),
        1: ("call_g", "g", '{"b":2}'),
        2: ("call_h", "h", "{}"),
    }
    assert "".join(c["delta"].get("content") or "" for e in found for c in e["choices"]) == "".join(
        word["content"] for word in words
    )


def test_T01_calls_that_are_numbered_pass_byte_for_byte_also_where_they_interleave() -> None:
    deltas = [
        call("f", "", index=0, id="call_f"),
        call("g", "", index=1, id="call_g"),
        more_of('{"name":', index=0),
        more_of("{}", index=1),
        more_of('"x"}', index=0),
    ]
    stream = chat_stream(deltas, "tool_calls")
    meter = CHAT.meter(CHAT.decode(b'{"model":"a","messages":[],"stream":true}'))
    assert meter.feed(stream) == stream


@pytest.mark.parametrize("arguments", [None, {"a": 1}])
def test_T04_the_first_delta_of_a_call_has_its_arguments_as_text(arguments: Any) -> None:
    found = told(chat_stream([{"content": "x"}, call("f", arguments, index=0, id="c")], "tool_calls"))
    assert joined(found)[0][2] == ("" if arguments is None else '{"a":1}')


def test_S15_each_choice_ends_for_its_own_reason() -> None:
    head = {"id": "x", "object": "chat.completion.chunk"}
    choices = [
        [{"index": 0, "delta": call("f", "{}", index=0, id="c")}],
        [{"index": 1, "delta": {"content": "x"}}],
        [{"index": 1, "delta": {}, "finish_reason": "stop"}],
        [{"index": 0, "delta": {}, "finish_reason": "stop"}],
    ]
    stream = b"".join(b"data: %b\n\n" % json.dumps({**head, "choices": c}).encode() for c in choices)
    reasons = [c.get("finish_reason") for e in told(stream + b"data: [DONE]\n\n", n=2) for c in e["choices"]]
    assert reasons == [None, None, "stop", "tool_calls"]
    together = [[choices[0][0], choices[1][0]], [choices[2][0], choices[3][0]]]
    stream = b"".join(b"data: %b\n\n" % json.dumps({**head, "choices": c}).encode() for c in together)
    reasons = [c.get("finish_reason") for e in told(stream + b"data: [DONE]\n\n", n=2) for c in e["choices"]]
    assert reasons == [None, None, "stop", "tool_calls"]


def test_S15_the_old_function_call_and_an_event_of_several_lines_are_mended_too() -> None:
    old = chat_stream([{"function_call": {"name": "f", "arguments": "{}"}}], "stop", usage=False)
    assert told(old)[-1]["choices"][0]["finish_reason"] == "function_call"
    lines = b'data: {"choices": [{"index": 0, "delta": {},\ndata:  "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
    begun = chat_stream([call("f", "{}", index=0, id="c")], None, usage=False, done=False)
    assert told(begun + lines)[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_S15_T04_a_whole_answer_is_mended_alike() -> None:
    def whole(*choices: tuple[Any, Any]) -> list[tuple[Any, Any]]:
        made = [
            {"index": at, "message": call("f", arguments, id="c"), "finish_reason": reason}
            for at, (arguments, reason) in enumerate(choices)
        ]
        answer = json.loads(CHAT.mended(json.dumps({"id": "x", "choices": made}).encode()))
        found = [
            (c["message"]["tool_calls"][0]["function"]["arguments"], c["finish_reason"]) for c in answer["choices"]
        ]
        assert answer["id"] == "x"
        return found

    assert whole(("{}", "stop"), ('{"a":1}', "length")) == [("{}", "tool_calls"), ('{"a":1}', "length")]
    assert whole((None, None)) == [("{}", "tool_calls")]
    assert whole(({"a": 1}, "tool_calls")) == [('{"a":1}', "tool_calls")]
    text = b'{"choices":[{"message":{"content":"a \\"tool_calls\\""},"finish_reason":"stop"}]}'
    assert CHAT.mended(text) is text


COUNTS = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
# As DeepSeek ends its streams.
USAGE_WITH_REASON = chat_stream([{"content": "x"}], None, usage=False, done=False) + (
    b"data: %b\n\ndata: [DONE]\n\n"
    % json.dumps({"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": COUNTS}).encode()
)


def test_S12_usage_that_comes_with_a_finish_reason_is_told_by_itself_where_it_was_asked_for() -> None:
    wish = {"stream_options": {"include_usage": True}}
    *_, ended, counted = told(USAGE_WITH_REASON, **wish)
    assert (ended["choices"][0]["finish_reason"], ended.get("usage")) == ("stop", None)
    assert (counted["choices"], counted["usage"], counted["id"]) == ([], COUNTS, "x")
    own = b'data: {"id":"x","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\ndata: [DONE]\n\n'
    found = told(USAGE_WITH_REASON.replace(b"data: [DONE]\n\n", own), **wish)
    assert [e["usage"]["completion_tokens"] for e in found if e.get("usage")] == [2]
    cut = USAGE_WITH_REASON.removesuffix(b"data: [DONE]\n\n")
    assert told(cut, **wish)[-1]["usage"] == COUNTS


def test_S12_and_stays_here_where_the_gateway_alone_asked() -> None:
    assert all(not e.get("usage") for e in told(USAGE_WITH_REASON, asked_usage=True))
    assert told(USAGE_WITH_REASON)[-1]["usage"] == COUNTS  # what nobody asked for passes


@pytest.mark.parametrize("field", ["prompt_cache_hit_tokens", "cached_tokens"])
def test_S19_cached_input_is_counted_under_other_names(field: str) -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 1, field: 90}
    assert CHAT.usage(json.dumps({"usage": usage}).encode()) == Usage(input=100, output=1, cached=90)
    assert CHAT.usage(json.dumps({"usage": {**usage, "completion_tokens": 1.0}}).encode()) == Usage(
        input=100, output=1, cached=90
    )


def test_a_chunk_that_cannot_be_written_anew_passes() -> None:
    odd = b'"odd": "\xff"'  # no UTF-8 where nobody looks
    begins = b'data: {%b, "choices": [{"index": 0, "delta": {"tool_calls": [{"function": {"name": "f"}}]}}]}\n\n' % odd
    ends = b'data: {%b, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": {}}\n\n' % odd
    meter = CHAT.meter(
        CHAT.decode(b'{"model":"a","messages":[],"stream":true,"stream_options":{"include_usage":true}}')
    )
    data = begins + ends + b"data: [DONE]\n\n"
    assert meter.feed(data) == data.replace(b'"stop"', b'"tool_calls"')


@pytest.mark.parametrize(
    ("reason", "stop"), [("MAX_TOKENS", "max_tokens"), ("model_length", "max_tokens"), ("SAFETY", "refusal")]
)
def test_S15_an_answer_that_was_cut_short_is_so_in_whichever_words(reason: str, stop: str) -> None:
    stream = chat_stream([call("f", "{}", index=0, id="c")], reason, usage=False)
    assert told(stream)[-1]["choices"][0]["finish_reason"] == reason
    found = [e for _, e in events(streamed("messages", "chat", stream))]
    assert [e["delta"]["stop_reason"] for e in found if e["type"] == "message_delta"] == [stop]
