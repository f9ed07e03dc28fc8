"""OpenAI Responses in their own dialect: the view of a request, the meter, usage and errors."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.errors import BadAnswer, BadRequest, RateLimited, Truncated, UpstreamStatus
from router.types import ToolCall, ToolResult, Turn, Usage
from router.wire import body as wire_body
from router.wire.responses import ResponsesCodec, answer_id
from tests.wire.published import check_event, events
from tests.wire.upstreams import STREAMS, event, responses_stream

WILD = st.recursive(
    st.none() | st.text(max_size=4) | st.integers(), lambda i: st.lists(i) | st.dictionaries(st.text(max_size=4), i)
)
CODEC = ResponsesCodec()
STREAM = STREAMS["responses"]
BEGUN = responses_stream([], done=False) + event(
    "response.output_text.delta", item_id="m", output_index=0, content_index=0, delta="Hel", sequence_number=7
)


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "auto", "input": "hi", **fields}).encode()


def meter() -> Any:
    return CODEC.meter(CODEC.decode(body(stream=True)))


def test_a_request_is_viewed() -> None:
    request = CODEC.decode(
        body(
            instructions="sys",
            input=[
                {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "d"}]},
                {"role": "user", "content": "hi"},
                {"type": "reasoning", "id": "rs", "summary": []},
                {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
                {"type": "custom_tool_call", "call_id": "2", "name": "p", "input": "x"},
                {"type": "function_call_output", "call_id": "1", "output": "ok"},
                {"type": "custom_tool_call_output", "call_id": "2", "output": [{"type": "input_image"}, {"text": "t"}]},
                {"type": "hologram"},
            ],
            tools=[{"type": "function"}],
            stream=True,
            prompt_cache_key="conv",
            text={"format": {"type": "json_schema"}},
            max_output_tokens=50,
        )
    )
    assert request.turns == (
        Turn(role="system", texts=("sys",)),
        Turn(role="developer", texts=("d",)),
        Turn(role="user", texts=("hi",)),
        Turn(role="assistant", tool_calls=(ToolCall(name="f", arguments="{}"),)),
        Turn(role="assistant", tool_calls=(ToolCall(name="p", arguments="x"),)),
        Turn(role="tool", tool_results=(ToolResult(text="ok"),)),
        Turn(role="tool", images=1, tool_results=(ToolResult(text="t"),)),
    )
    assert (request.tools, request.wants_json, request.max_output_tokens, request.user) == (1, True, 50, "conv")
    assert CODEC.decode(body()).turns == (Turn(role="user", texts=("hi",)),)
    assert CODEC.decode(b'{"model":"a","previous_response_id":"resp_1"}').turns == ()


def test_R07_R08_a_body_passes_byte_equal_but_for_the_model() -> None:
    sent = body(
        input=[{"type": "additional_tools", "tools": [{"type": "custom"}]}, {"role": "developer", "content": "d"}]
    )
    assert wire_body.outgoing(CODEC.decode(sent), "m") == sent.replace(b'"auto"', b'"m"')


@pytest.mark.parametrize("given_body", [b'{"model":"a"}', b'{"model":"a","input":{}}', b'{"model":"a","input":[1]}'])
def test_bad_input_is_refused(given_body: bytes) -> None:
    with pytest.raises(BadRequest) as caught:
        CODEC.decode(given_body)
    assert (caught.value.param or "").startswith("input")


@given(WILD)
def test_any_item_is_read(value: Any) -> None:
    items = [{"role": "user", "content": value}, {"type": value}, {"type": "function_call_output", "output": value}]
    assert CODEC.decode(body(input=items, instructions=value, text=value)).model == "auto"


@given(st.lists(st.integers(0, 6000), max_size=8), st.sampled_from([b"\n", b"\r\n"]))
def test_any_chunking_gives_the_same_bytes_and_facts(cuts: list[int], end: bytes) -> None:
    data = STREAM.replace(b"\n", end)
    at = [0, *sorted(c % (len(data) + 1) for c in cuts), len(data)]
    listening = meter()
    out = b"".join([listening.feed(data[a:b]) for a, b in pairwise(at)]) + listening.close()
    assert out in (data, data.removesuffix(b"\n"))
    assert (listening.content, listening.done, listening.failed) == (True, True, None)
    assert listening.deltas == 6
    assert listening.usage == Usage(input=20, output=7, cached=5)


def test_S09_a_stream_without_its_terminal_event_ends_in_response_failed() -> None:
    listening = meter()
    assert listening.feed(BEGUN) == BEGUN
    with pytest.raises(Truncated) as caught:
        listening.close()
    [(name, told)] = events(listening.fail(caught.value, "r"))
    check_event("responses", name, told)
    assert told["response"]["id"] == "resp_u1"
    assert told["response"]["error"]["code"] == "server_error"
    assert told["sequence_number"] == 8


@pytest.mark.parametrize("kind", ["response.failed", "error"])
def test_S07_an_upstreams_failure_ends_the_stream_after_content_and_raises_before(kind: str) -> None:
    fields: dict[str, Any] = {"code": "rate_limit_exceeded", "message": "slow down"}
    failure = event(kind, **(fields if kind == "error" else {"response": {"error": fields}}))
    with pytest.raises(UpstreamStatus) as caught:
        meter().feed(failure)
    assert caught.value.status == 429
    listening = meter()
    assert listening.feed(BEGUN + failure + STREAM) == BEGUN
    assert listening.done
    [(name, told)] = events(listening.fail(listening.failed, "r"))
    assert (name, told["response"]["error"]) == ("response.failed", fields)


def test_R05_a_request_names_what_it_continues_and_an_answer_its_id() -> None:
    assert CODEC.decode(body(previous_response_id="resp_1")).previous == "resp_1"
    assert CODEC.decode(body(conversation="conv_1")).previous == "conv_1"
    assert CODEC.decode(body(conversation={"id": "conv_2"})).previous == "conv_2"
    for nothing in ({}, {"previous_response_id": None, "conversation": None}, {"conversation": 7}):
        assert CODEC.decode(body(**nothing)).previous is None
    listening = meter()
    listening.feed(STREAM)
    assert listening.answer_id == "resp_u1"
    assert answer_id(b'{"id":"resp_9","output":[]}') == "resp_9"
    assert answer_id(b"<html>") == ""


def test_an_incomplete_response_is_an_end() -> None:
    listening = meter()
    end = event("response.incomplete", response={"usage": {"input_tokens": 1, "output_tokens": 2}})
    assert listening.feed(BEGUN + end) == BEGUN + end
    assert listening.done
    assert listening.usage == Usage(input=1, output=2)


def test_an_event_that_is_no_json_is_a_bad_answer_before_content() -> None:
    with pytest.raises(BadAnswer):
        meter().feed(b"data: <html>\n\n")


def test_errors_have_openais_shape() -> None:
    assert json.loads(CODEC.error(RateLimited("slow"), "r"))["error"]["code"] == "rate_limited"
    [(name, told)] = events(CODEC.error_event(RateLimited("slow"), "r"))
    check_event("responses", name, told)
    assert told["response"]["error"]["code"] == "rate_limit_exceeded"
    overflow = b'{"error":{"message":"maximum context length is 8","code":"context_length_exceeded"}}'
    [(_, told)] = events(CODEC.error_event(UpstreamStatus(400, {}, overflow, retry_after_s=None), "r"))
    assert told["response"]["error"]["code"] == "context_length_exceeded"


def test_S08_an_error_that_comes_with_status_200_is_an_error() -> None:
    with pytest.raises(UpstreamStatus) as caught:
        CODEC.mended(b'{"error":{"message":"slow","code":"rate_limit_exceeded"}}')
    assert caught.value.status == 429


# --- ids -------------------------------------------------------------------------------------------------


def rotating() -> bytes:
    """A stream whose server makes a new id for each event."""
    made = iter(range(100))

    def item(status: str, *content: Any) -> dict[str, Any]:
        return {"type": "message", "id": f"m{next(made)}", "role": "assistant", "status": status, "content": content}

    part = {"type": "output_text", "text": "ab", "annotations": []}
    place = {"output_index": 0, "content_index": 0}
    response = {"id": "resp_1", "object": "response", "model": "m", "status": "in_progress", "output": []}
    out = event("response.created", response=response)
    out += event("response.output_item.added", output_index=0, item=item("in_progress"))
    out += event("response.content_part.added", **place, item_id=f"m{next(made)}", part={**part, "text": ""})
    for delta in "ab":
        out += event("response.output_text.delta", **place, item_id=f"m{next(made)}", delta=delta)
    out += event("response.output_text.done", **place, item_id=f"m{next(made)}", text="ab")
    out += event("response.output_item.done", output_index=0, item=item("completed", part))
    return out + event("response.completed", response={**response, "output": [item("completed", part)]})


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_R01_an_item_has_one_id_in_every_event_whatever_its_server_calls_it(end: bytes) -> None:
    listening = meter()
    found = [e for _, e in events(listening.feed(rotating().replace(b"\n", end)) + listening.close())]
    ids = [e.get("item_id") or e["item"]["id"] for e in found if "output_index" in e]
    assert ids == ["m0"] * 6
    assert [item["id"] for item in found[-1]["response"]["output"]] == ["m0"]
    assert (listening.done, listening.deltas) == (True, 2)


def test_R01_the_whole_response_has_the_ids_that_its_items_had() -> None:
    anew = STREAM.replace(b'"id": "msg_0"', b'"id": "new_0"').replace(b'"id": "fc_2"', b'"id": "new_2"')
    begun, ended = STREAM.split(b"event: response.completed")[0], anew.split(b"event: response.completed")[1]
    found = [e for _, e in events(meter().feed(begun + b"event: response.completed" + ended))]
    assert [item["id"] for item in found[-1]["response"]["output"]] == ["rs_0", "msg_0", "fc_1", "fc_2"]
