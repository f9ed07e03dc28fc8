"""Upstreams that answer oddly, and bodies that a careless reader trips over."""

from __future__ import annotations

from pathlib import Path

import pytest

from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import JSON, Head, Send, Wait, chat, chat_stream, status
from router.wire import CODECS
from tests.support.rig import groups, running

BOTH = {"small": ["a"], "large": ["a"]}
LONG_NUMBER = b'{"model":"auto","messages":[{"role":"user","content":"x"}],"y":"\\u0041","x":' + b"9" * 10_000 + b"}"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/decision"])
async def test_F25_a_number_longer_than_python_reads_is_passed_on(tmp_path: Path, path: str) -> None:
    async with ScriptedServer(chat("hi")) as a, running(tmp_path, groups({"a": a}, BOTH)) as rig:
        assert (await rig.client.post(path, content=LONG_NUMBER)).status_code == 200


def test_F25_many_inner_keys_called_model_are_no_second_model() -> None:
    inner = b",".join([b'{"model":"other"}'] * 50_000)
    body = b'{"model":"auto","messages":[{"role":"user","content":"x"}],"z":[' + inner + b'],"w":"\\u0041"}'
    assert CODECS["chat"].decode(body).model == "auto"


async def test_a_media_type_is_read_in_any_case(tmp_path: Path) -> None:
    steps = [Head(200, {"content-type": "Text/Event-Stream"}), *chat_stream(["a "])[1:]]
    async with ScriptedServer(lambda _: steps) as a, running(tmp_path, groups({"a": a}, BOTH)) as rig:
        assert (await rig.events())[-1] == "[DONE]"


async def test_an_answer_that_only_looks_like_json_is_a_bad_answer(tmp_path: Path) -> None:
    async with (
        ScriptedServer(lambda _: [Head(200, JSON), Send(b"{xx}")]) as a,
        running(tmp_path, groups({"a": a}, BOTH)) as rig,
    ):
        reply = await rig.ask()
        assert (reply.status_code, reply.json()["error"]["code"]) == (502, "upstream_bad_answer")


async def test_an_upstream_that_switches_protocols_is_a_bad_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    steps = [Head(101, {"upgrade": "h2c", "connection": "upgrade"}), Send(b"xx"), Wait(1)]
    async with ScriptedServer(lambda _: steps) as a, running(tmp_path, groups({"a": a}, BOTH)) as rig:
        assert (await rig.ask()).status_code == 502
        assert not [line for line in caplog.records if line.exc_info]


@pytest.mark.parametrize("value", ["1e308", "inf", "nan", "-5", "9" * 300])
async def test_H03_a_retry_after_without_sense_is_bounded(tmp_path: Path, value: str) -> None:
    async with (
        ScriptedServer(lambda _: status(429, {"retry-after": value})) as a,
        running(tmp_path, groups({"a": a}, BOTH)) as rig,
    ):
        reply = await rig.ask()
        assert reply.status_code == 429
        assert len(reply.headers.get("retry-after", "1")) <= 5
