"""Servers that take less than OpenAI's API get what they take, and nothing else changes."""

from __future__ import annotations

import json

import pytest

from router.config import Adapt
from router.wire import CODECS
from router.wire import body as wire_body
from router.wire.adapt import adapted
from router.wire.translate import translate
from tests.wire.translated import BODIES

CALL = '{"role":"assistant" , "content":null,"reasoning_content":"hm","tool_calls":[{"id":"1"}]}'
BARE = '{"role":"assistant","content":null,"tool_calls":[{"id":"2"}]}'


def test_T09_unknown_assistant_fields_pass_to_the_same_dialect() -> None:
    sent = f'{{"model":"a","messages":[{CALL},{BARE}]}}'.encode()
    assert wire_body.outgoing(CODECS["chat"].decode(sent), "m") == sent.replace(b'"a"', b'"m"')
    assert adapted(sent, Adapt()) is sent


def test_T09_reasoning_is_stripped_or_filled_where_the_deployment_says_so() -> None:
    sent = f'{{"model":"a","messages":[{CALL},{BARE}]}}'.encode()
    stripped = CALL.replace(',"reasoning_content":"hm"', "")
    assert adapted(sent, Adapt(reasoning="strip")) == f'{{"model":"a","messages":[{stripped},{BARE}]}}'.encode()
    filled = BARE[:-1] + ',"reasoning_content":""}'
    assert adapted(sent, Adapt(reasoning="empty")) == f'{{"model":"a","messages":[{CALL},{filled}]}}'.encode()


def test_Q03_developer_messages_become_system_messages_in_their_place() -> None:
    sent = (
        b'{"model":"a","messages":[{"role":"developer","content":"developer"},{"content":"x" , "role":"user"}],"n":1}'
    )
    out = adapted(sent, Adapt(developer="system"))
    assert out == sent.replace(b'"role":"developer"', b'"role":"system"')


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize(
    "given", [{"max_tokens": 7}, {"max_completion_tokens": 7}, {"max_tokens": 9, "max_completion_tokens": 7}]
)
def test_Q06_the_limit_has_the_name_that_the_deployment_knows(name: str, given: dict[str, int]) -> None:
    sent = json.dumps({"model": "a", "messages": [], **given}).encode()
    out = json.loads(adapted(sent, Adapt(max_tokens=name)))  # type: ignore[arg-type]
    assert out == {"model": "a", "messages": [], name: 7}
    plain = b'{"model":"a","messages":[]}'
    assert adapted(plain, Adapt(max_tokens=name)) == plain  # type: ignore[arg-type]


def test_translated_bodies_are_adapted_too() -> None:
    request = CODECS["messages"].decode(json.dumps(BODIES["messages"]).encode())
    body = json.loads(translate(request, "chat", "m", adapt=Adapt(max_tokens="max_tokens")).body)
    assert body["max_tokens"] == 99
    assert "max_completion_tokens" not in body
