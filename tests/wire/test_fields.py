"""The field table is complete, and translation keeps to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from router.errors import BadRequest
from router.types import Dialect
from router.wire import CODECS
from router.wire.fields import DIALECTS, ROWS, markdown
from router.wire.translate import translate
from tests.wire.published import request_fields
from tests.wire.translated import BODIES, each_pair

OLDER = {"messages": {"output_format"}}  # still sent by clients, gone from the published models


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_table_holds_every_published_field_and_no_other(dialect: Dialect) -> None:
    held = {row.field(dialect) for row in ROWS} - {""}
    assert held == request_fields(dialect) | OLDER.get(dialect, set())


VALUES: dict[str, Any] = {
    "stop": ["x"],
    "stop_sequences": ["x"],
    "tool_choice": "auto",
    "response_format": {"type": "json_object"},
    "text": {"verbosity": "low"},
    "reasoning": {"effort": "low"},
    "reasoning_effort": "low",
    "output_config": {"effort": "low"},
    "output_format": {"type": "json_schema", "schema": {}},
    "thinking": {"type": "disabled"},
    "metadata": {"user_id": "u"},
    "include": ["message.output_text.logprobs"],
    "parallel_tool_calls": False,
    "function_call": "auto",
    "system": "s",
    "instructions": "i",
    "user": "u",
    "logprobs": True,
    "max_tokens": 7,
    "max_completion_tokens": 7,
    "max_output_tokens": 7,
    "verbosity": "low",
    "temperature": 0.5,
    "stream": True,
}


SHARED = {"", "model", "messages", "input", "tools", "functions", "stream_options"}  # tested on their own


@each_pair
def test_Q04_no_field_is_lost_in_silence(client: Dialect, upstream: Dialect) -> None:
    """Each field on its own: it changes what is sent, or is listed, or is refused."""
    plain = BODIES[client]
    base = json.loads(translate(CODECS[client].decode(json.dumps(plain).encode()), upstream, "m").body)
    for field in sorted(
        {row.field(client) for row in ROWS} - {"", "model", "messages", "input", "tools", "functions", "stream_options"}
    ):
        value = VALUES.get(field, "odd")
        if value == "auto":
            value = {"chat": "none", "messages": {"type": "none"}, "responses": "none"}[client]
        try:
            out = translate(CODECS[client].decode(json.dumps({**plain, field: value}).encode()), upstream, "m")
        except BadRequest as error:
            assert field in (error.param or "")  # noqa: PT017
            continue
        changed = json.loads(out.body) != base
        listed = any(name == field or name.startswith(f"{field}.") for name in out.dropped)
        assert changed or listed, field


@each_pair
def test_an_unknown_field_is_listed(client: Dialect, upstream: Dialect) -> None:
    body = {**BODIES[client], "chat_template_kwargs": {"x": 1}}
    assert translate(CODECS[client].decode(json.dumps(body).encode()), upstream, "m").dropped == (
        "chat_template_kwargs",
    )


def test_the_documentation_holds_the_table_as_it_is() -> None:
    assert markdown() in (Path(__file__).parents[2] / "docs" / "wire.md").read_text()
