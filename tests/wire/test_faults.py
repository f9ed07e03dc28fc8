"""Upstreams' errors of every shape: read, classified and told in the client's dialect."""

from __future__ import annotations

import json
from typing import Any

import pytest

from router.errors import ContextTooLong, UpstreamStatus
from router.wire import faults


def status(code: int, body: Any) -> UpstreamStatus:
    return UpstreamStatus(code, {}, body if isinstance(body, bytes) else json.dumps(body).encode(), retry_after_s=None)


@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens.",
        "prompt is too long: 210000 tokens > 200000 maximum",
        "The input token count (1100000) exceeds the maximum number of tokens allowed (1048576).",
        "Input is too long for requested model.",
        "the request exceeds the available context size (4096 tokens), try increasing it",
        "The input (9001 tokens) is longer than the model's context length (8192 tokens).",
        "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
        "`inputs` tokens + `max_new_tokens` must be <= 4096",
        "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
    ],
)
def test_L13_an_overflow_is_recognised_in_every_vendors_words(message: str) -> None:
    openai = {"error": {"message": message}}
    anthropic = {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
    vllm = {"object": "error", "message": message}
    for shape in (openai, anthropic, vllm, {"error": message}, {"detail": message}):
        fault = faults.read(json.dumps(shape).encode(), 400)
        assert fault is not None
        assert fault.code == ContextTooLong.code
    assert faults.raised(json.dumps(openai).encode()).status == 400


def test_other_errors_have_no_code_of_an_overflow() -> None:
    for words in ("`temperature` must be at most 2", "tool name exceeds 64 characters"):
        fault = faults.read(json.dumps({"error": {"message": words}}).encode(), 400)
        assert fault is not None
        assert fault.code is None


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"error": {"message": "m", "code": 429}}, 429),
        ({"error": {"message": "m", "code": "529"}}, 529),
        ({"error": {"message": "m", "type": "overloaded_error"}}, 529),
        ({"error": {"message": "m", "type": "authentication_error"}}, 401),
        ({"error": {"message": "Rate limit reached for tokens"}}, 429),
        ({"error": {"message": "RESOURCE_EXHAUSTED"}}, 429),
        ({"error": {"message": "The server is overloaded"}}, 503),
        ({"error": {"message": "m", "type": "invalid_request_error"}}, 400),
        ({"error": {"message": "m"}}, 502),
        ({"error": {"message": "m", "code": True}}, 502),
        ({"response": {"error": {"code": "rate_limit_exceeded", "message": "m"}}}, 429),
        ([], 502),
        (b"\xff", 502),
        (b"[" * 100_000, 502),
    ],
)
def test_the_status_of_an_error_in_a_stream_is_guessed_from_what_it_says(body: Any, expected: int) -> None:
    assert faults.raised(body if isinstance(body, bytes) else json.dumps(body).encode()).status == expected


def test_what_is_no_error_is_not_taken_for_one() -> None:
    for answer in (b'{"choices":[],"error":null}', b'{"message":"hi"}', b"{}", b"[]", b"null", b""):
        assert faults.read(answer) is None


def test_without_a_body_only_the_gateways_own_words_are_told() -> None:
    told = faults.of(status(401, b""))
    assert (told.message, told.status) == ("the upstream answered 401", 401)


@pytest.mark.parametrize(
    ("code", "openai", "anthropic"),
    [
        (400, "invalid_request_error", "invalid_request_error"),
        (401, "authentication_error", "authentication_error"),
        (403, "permission_error", "permission_error"),
        (404, "invalid_request_error", "not_found_error"),
        (413, "invalid_request_error", "request_too_large"),
        (429, "rate_limit_error", "rate_limit_error"),
        (500, "server_error", "api_error"),
        (503, "server_error", "overloaded_error"),
        (529, "server_error", "overloaded_error"),
    ],
)
def test_types_follow_the_status(code: int, openai: str, anthropic: str) -> None:
    told = faults.Fault(message="m", status=code)
    assert (told.openai_type, told.anthropic_type) == (openai, anthropic)


@pytest.mark.parametrize(
    "body",
    [
        b'[{"error": {"message": "slow down", "code": 429}}]',
        b'data: {"error": {"message": "slow down", "code": 429}}\n\n',
        b'event: error\ndata: {"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}}\n\n',
    ],
)
def test_an_error_in_a_list_or_an_event_is_read(body: bytes) -> None:
    assert faults.of(status(429, body)).message == "slow down"
    assert faults.raised(body).status == 429


def test_what_has_another_apis_shape_is_told_apart() -> None:
    openai, anthropic = b'{"error": {"message": "m"}}', b'{"type": "error", "error": {"type": "t", "message": "m"}}'
    assert faults.shaped(openai, anthropic=False)
    assert faults.shaped(anthropic, anthropic=True)
    assert not faults.shaped(openai, anthropic=True)
    for other in (b'{"detail": "m"}', b'{"error": "m"}', b"[]", b"<html>", b""):
        assert not faults.shaped(other, anthropic=False)
