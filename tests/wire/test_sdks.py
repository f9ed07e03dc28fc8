"""The official SDKs read what translation writes, and translation reads what they send."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import anthropic
import httpx
import httpx2
import openai
import pytest

from router.types import Dialect
from router.wire import CODECS
from router.wire.translate import translate
from tests.wire.published import check_request
from tests.wire.upstreams import ANSWERS, STREAMS

TEXT = "Hello \u2028 world"


def gateway(client: Dialect, upstream: Dialect, http: Any = httpx) -> Any:
    """An HTTP client whose other end translates, with an upstream that always gives the same answer.

    `http` is the library that the SDK uses: OpenAI's httpx, Anthropic's its successor.
    """

    def answer(request: Any) -> Any:
        asked = CODECS[client].decode(request.read())
        translation = translate(asked, upstream, "m-up")
        check_request(upstream, json.loads(translation.body))
        if not asked.stream:
            content = translation.answer(json.dumps(ANSWERS[upstream]).encode(), "req-1", 1700.0)
            return http.Response(200, content=content, headers={"content-type": "application/json"})
        meter = translation.meter("req-1", 1700.0)
        stream = meter.feed(STREAMS[upstream]) + meter.close()
        return http.Response(200, content=stream, headers={"content-type": "text/event-stream"})

    return http.Client(transport=http.MockTransport(answer))


def openai_sdk(client: Dialect, upstream: Dialect) -> openai.OpenAI:
    return openai.OpenAI(
        api_key="k", base_url="http://gateway/v1", http_client=gateway(client, upstream), max_retries=0
    )


FUNCTION: dict[str, Any] = {"name": "f", "parameters": {"type": "object", "properties": {}}}
CALLS = [("f", {"a": "ü"}), ("g", {})]


@pytest.mark.parametrize("upstream", ["messages", "responses"])
def test_the_openai_sdk_reads_chat(upstream: Dialect) -> None:
    sdk = openai_sdk("chat", upstream)
    asked: dict[str, Any] = {
        "model": "auto",
        "messages": [{"role": "user", "content": "hi"}],
        "tools": [{"type": "function", "function": FUNCTION}],
    }
    whole = sdk.chat.completions.create(**asked)
    with sdk.chat.completions.stream(**asked, stream_options={"include_usage": True}) as stream:
        streamed = stream.get_final_completion()
    for answer in (whole, streamed):
        message: Any = answer.choices[0].message
        assert message.content == TEXT
        assert [(c.function.name, json.loads(c.function.arguments)) for c in message.tool_calls] == CALLS
        assert answer.choices[0].finish_reason == "tool_calls"
        assert answer.usage is not None
        assert answer.usage.prompt_tokens == 20


@pytest.mark.parametrize("upstream", ["chat", "messages"])
def test_R01_the_openai_sdk_reads_responses(upstream: Dialect) -> None:
    sdk = openai_sdk("responses", upstream)
    asked: dict[str, Any] = {
        "model": "auto",
        "input": "hi",
        "tools": [{"type": "function", "strict": False, **FUNCTION}],
    }
    whole = sdk.responses.create(**asked)
    with sdk.responses.stream(**asked) as stream:
        kinds = [event.type for event in stream]
        streamed = stream.get_final_response()
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    for answer in (whole, streamed):
        assert answer.output_text == TEXT
        calls: list[Any] = [item for item in answer.output if item.type == "function_call"]
        assert [(c.name, json.loads(c.arguments)) for c in calls] == CALLS
        assert answer.usage is not None
        assert answer.usage.input_tokens_details.cached_tokens == 5


@pytest.mark.parametrize("upstream", ["chat", "responses"])
def test_the_anthropic_sdk_reads_messages(upstream: Dialect) -> None:
    sdk = anthropic.Anthropic(
        api_key="k", base_url="http://gateway", http_client=gateway("messages", upstream, httpx2), max_retries=0
    )
    asked: dict[str, Any] = {
        "model": "auto",
        "max_tokens": 99,
        "messages": [{"role": "user", "content": "hi"}],
        "tools": [{"name": "f", "input_schema": FUNCTION["parameters"]}],
    }
    whole = sdk.messages.create(**asked)
    with sdk.messages.stream(**asked) as stream:
        streamed = stream.get_final_message()
    for answer in (whole, streamed):
        blocks: list[Any] = list(answer.content)
        assert [b.type for b in blocks] == ["thinking", "text", "tool_use", "tool_use"]
        assert blocks[1].text == TEXT
        assert [(b.name, b.input) for b in blocks[2:]] == CALLS
        assert answer.stop_reason == "tool_use"
        assert (answer.usage.input_tokens, answer.usage.cache_read_input_tokens, answer.usage.output_tokens) == (
            15,
            5,
            7,
        )


def broken(client: Dialect, upstream: Dialect, http: Any = httpx) -> Any:
    """As `gateway`, with an upstream whose connection closes after half of its stream."""

    def answer(request: Any) -> Any:
        meter = translate(CODECS[client].decode(request.read()), upstream, "m-up").meter("req-1", 1700.0)
        out = meter.feed(STREAMS[upstream][: len(STREAMS[upstream]) // 2])
        try:
            out += meter.close()
        except Exception as error:  # noqa: BLE001  (whatever it is, it must reach the SDK as an error)
            out += meter.fail(error, "req-1")  # type: ignore[arg-type]
        return http.Response(200, content=out, headers={"content-type": "text/event-stream"})

    return http.Client(transport=http.MockTransport(answer))


def chat_fails() -> None:
    sdk = openai.OpenAI(api_key="k", base_url="http://g/v1", http_client=broken("chat", "messages"), max_retries=0)
    for _ in sdk.chat.completions.create(model="a", messages=[{"role": "user", "content": "hi"}], stream=True):
        pass


def messages_fails() -> None:
    sdk = anthropic.Anthropic(
        api_key="k", base_url="http://g", http_client=broken("messages", "chat", httpx2), max_retries=0
    )
    asked: dict[str, Any] = {"model": "a", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
    for _ in sdk.messages.create(**asked, stream=True):
        pass


@pytest.mark.parametrize(("run", "error"), [(chat_fails, openai.APIError), (messages_fails, anthropic.APIError)])
def test_S07_an_sdk_raises_when_the_stream_is_cut_short(run: Callable[[], None], error: type[Exception]) -> None:
    with pytest.raises(error):
        run()


def test_S09_the_openai_sdk_sees_a_failed_response() -> None:
    sdk = openai.OpenAI(api_key="k", base_url="http://g/v1", http_client=broken("responses", "chat"), max_retries=0)
    last = list(sdk.responses.create(model="a", input="hi", stream=True))[-1]
    assert last.type == "response.failed"
    assert last.response.status == "failed"
