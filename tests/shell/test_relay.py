"""One request through a whole gateway: passing on, failing over, timing out, breaking off."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import (
    JSON,
    SSE,
    Close,
    Head,
    Reset,
    Script,
    Seen,
    Send,
    Step,
    Wait,
    chat,
    chat_stream,
    chunk,
    status,
)
from tests.support.rig import groups, running, text

TWO = {"small": ["a", "b"]}
ONE_EACH = {"small": ["a"], "large": ["b"]}
SMALL_ONLY = """\
version: 1
name: default
models: [auto]
routes: []
default: small
"""


def broken_after(words: int, end: Step) -> Script:
    """A stream of so many words that then ends badly."""

    def script(_: Seen) -> Sequence[Step]:
        events = [Send(chunk({"role": "assistant", "content": ""}))]
        events += [Send(chunk({"content": f"w{i} "})) for i in range(words)]
        return [Head(200, SSE), Wait(0), *events, Wait(0.05), end]

    return script


def both(a: ScriptedServer, b: ScriptedServer, more: str = "") -> str:
    return groups({"a": a, "b": b}, ONE_EACH, more)


async def test_the_body_reaches_the_upstream_unchanged_but_for_the_model(tmp_path: Path) -> None:
    async with (
        ScriptedServer(chat("hi")) as a,
        running(tmp_path, groups({"a": a}, {"small": ["a"], "large": ["a"]})) as rig,
    ):
        image = b'{"type":"image_url","image_url":{"url":"data:,x"}}'
        sent = b'{ "model" : "auto",\t"messages":[{"role":"user","content":[%b]}], "x_own":12345678901234567890 }'
        sent %= image
        reply = await rig.client.post("/v1/chat/completions", content=sent, headers={"x-score": "0.1"})
        assert reply.status_code == 200
        assert a.visits[0].seen.body == sent.replace(b'"auto"', b'"m-a"')


async def test_the_answer_carries_the_decision_in_its_headers(tmp_path: Path) -> None:
    async with ScriptedServer(chat("hi")) as a, ScriptedServer(chat("ho")) as b, running(tmp_path, both(a, b)) as rig:
        reply = await rig.ask(score=0.9)
        head = {name[12:]: value for name, value in reply.headers.items() if name.startswith("x-pointsman-")}
        assert head.pop("request-id").startswith("req_")
        name, _, digest = head.pop("policy").partition("@")
        assert (name, len(digest)) == ("default", 12)
        assert head == {"route": "difficulty", "group": "large", "deployment": "b", "score": "0.9000", "attempts": "1"}


async def test_a_stream_reaches_the_client_byte_for_byte(tmp_path: Path) -> None:
    steps = chat_stream(["a ", "b\u2028 ", "c "])
    whole = b"".join(step.data for step in steps if isinstance(step, Send))
    async with ScriptedServer(lambda _: steps) as a, running(tmp_path, both(a, a)) as rig:
        reply = await rig.ask(stream=True)
        assert reply.content == whole
        assert reply.headers["content-type"].startswith("text/event-stream")
        assert reply.headers["x-accel-buffering"] == "no"


@pytest.mark.parametrize("code", [500, 502, 503, 429, 408, 401, 403])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_failed_deployment_is_replaced_by_the_next_unseen_by_the_client(
    tmp_path: Path, code: int, stream: bool
) -> None:
    async with (
        ScriptedServer(lambda _: status(code)) as a,
        ScriptedServer(chat("from b")) as b,
        running(tmp_path, both(a, b)) as rig,
    ):
        reply = await rig.ask(stream=stream)
        assert reply.status_code == 200
        assert reply.headers["x-pointsman-deployment"] == "b"
        assert reply.headers["x-pointsman-attempts"] == "2"
        (record,) = await rig.records()
        assert [(x.deployment, x.status, x.error is None) for x in record.attempts] == [
            ("a", code, False),
            ("b", 200, True),
        ]


@pytest.mark.parametrize("code", [400, 404, 413, 422])
async def test_L06_a_clients_own_mistake_is_passed_back_and_never_retried(tmp_path: Path, code: int) -> None:
    async with (
        ScriptedServer(lambda _: status(code, message="no such thing")) as a,
        ScriptedServer(chat("from b")) as b,
        running(tmp_path, both(a, b)) as rig,
    ):
        for _ in range(8):
            reply = await rig.ask()
            assert reply.status_code == code
            assert reply.json()["error"]["message"] == "no such thing"
        assert (len(a.visits), len(b.visits)) == (8, 0)
        assert rig.gateway.health.of("a", 0.0)["failures"] == 0


async def test_S08_a_streaming_request_gets_the_upstreams_real_status(tmp_path: Path) -> None:
    config = groups({"a": "http://127.0.0.1:9/v1"}, {"small": ["a"]})
    async with (
        ScriptedServer(lambda _: status(429, {"retry-after": "7"})) as a,
        running(tmp_path, config.replace("http://127.0.0.1:9/v1", a.base_url), SMALL_ONLY) as rig,
    ):
        reply = await rig.ask(stream=True)
        assert reply.status_code == 429
        assert reply.headers["retry-after"] == "7"
        assert reply.headers["content-type"] == "application/json"
        again = await rig.ask(stream=True)
        assert (again.status_code, len(a.visits)) == (429, 1), "cooling: the upstream's wish is kept"
        assert 1 <= int(again.headers["retry-after"]) <= 7
    async with running(tmp_path, config, SMALL_ONLY) as rig:
        assert (await rig.ask(stream=True)).status_code == 502


async def test_H03_retry_after_in_milliseconds_and_as_a_date_is_understood(tmp_path: Path) -> None:
    async with (
        ScriptedServer(lambda _: status(429, {"retry-after-ms": "2500"})) as a,
        running(tmp_path, groups({"a": a}, {"small": ["a"]}), SMALL_ONLY) as rig,
    ):
        reply = await rig.ask()
        assert (reply.status_code, reply.headers["retry-after"], reply.headers["retry-after-ms"]) == (429, "3", "2500")


HALF = Send(b'data: {"id": "c", "choices": [{"index": 0, "delta": {"content": "w')  # of an event


@pytest.mark.parametrize(
    "end", [Reset(), Close(), HALF, Send(b'data: {"error": {"message": "boom", "code": 500}}\n\n')]
)
async def test_S07_F01_a_stream_broken_after_content_ends_with_one_error_and_no_done(tmp_path: Path, end: Step) -> None:
    async with (
        ScriptedServer(broken_after(3, end)) as a,
        ScriptedServer(chat("second")) as b,
        running(tmp_path, both(a, b)) as rig,
    ):
        events = await rig.events()
        assert text(events) == "w0 w1 w2 "
        assert [("error" in e) for e in events if isinstance(e, dict)].count(True) == 1
        assert "error" in events[-1]
        assert "[DONE]" not in events
        assert len(b.visits) == 0, "nothing is retried after the commit point"
        (record,) = await rig.records()
        assert record.outcome == "upstream_truncated"
        assert record.partial
        assert record.usage.output in (3, 4), "half an event counts as a token at most"


@pytest.mark.parametrize("end", [Reset(), Close(), Send(b'data: {"error": {"message": "boom"}}\n\n')])
async def test_L01_F02_a_stream_broken_before_content_is_served_elsewhere_with_one_beginning(
    tmp_path: Path, end: Step
) -> None:
    async with (
        ScriptedServer(broken_after(0, end)) as a,
        ScriptedServer(chat("second try")) as b,
        running(tmp_path, both(a, b)) as rig,
    ):
        events = await rig.events()
        assert text(events) == "second try "
        assert events[-1] == "[DONE]"
        roles = [e for e in events[:-1] if e["choices"] and e["choices"][0]["delta"].get("role")]
        assert len(roles) == 1
        assert (len(a.visits), len(b.visits)) == (1, 1)


async def test_L02_at_most_three_attempts_are_made(tmp_path: Path) -> None:
    async with ScriptedServer(lambda _: status(500)) as s:
        names = [f"d{i}" for i in range(6)]
        config = groups(dict.fromkeys(names, s), {"small": names})
        async with running(tmp_path, config, SMALL_ONLY) as rig:
            reply = await rig.ask()
            assert reply.status_code == 500
            assert len(s.visits) == 3


async def test_L03_two_groups_that_fall_back_on_each_other_end_with_the_last_real_error(tmp_path: Path) -> None:
    async with (
        ScriptedServer(lambda _: status(503)) as a,
        ScriptedServer(lambda _: status(503)) as b,
        running(tmp_path, both(a, b)) as rig,
    ):
        reply = await rig.ask()
        assert reply.status_code == 503
        assert (len(a.visits), len(b.visits)) == (1, 1)


async def test_L12_F03_a_silent_upstream_passes_its_first_byte_limit_and_another_serves(tmp_path: Path) -> None:
    more = ", timeouts: {first_byte_s: 0.2}"
    for silent in ([Wait(30)], [Head(200, SSE), Wait(30)], [Head(200, SSE), Send(b": working\n\n"), Wait(30)]):
        async with (
            ScriptedServer(lambda _, steps=silent: steps) as a,
            ScriptedServer(chat("from b")) as b,
            running(tmp_path, both(a, b, more)) as rig,
        ):
            assert text(await rig.events()) == "from b "
            await asyncio.sleep(0.05)
            assert a.in_flight == 0


async def test_L12_F04_a_stall_in_mid_stream_ends_with_an_error_at_the_idle_limit(tmp_path: Path) -> None:
    async with (
        ScriptedServer(broken_after(2, Wait(30))) as a,
        running(tmp_path, both(a, a, ", timeouts: {idle_s: 0.3}")) as rig,
    ):
        begun = asyncio.get_running_loop().time()
        events = await rig.events()
        assert asyncio.get_running_loop().time() - begun < 5
        assert events[-1]["error"]["code"] == "upstream_timeout"
        assert "[DONE]" not in events


async def test_S06_comments_from_the_upstream_count_as_life_and_reach_the_client_as_comments(tmp_path: Path) -> None:
    alive: list[Step] = [step for _ in range(10) for step in (Send(b": PROCESSING\n\n"), Wait(0.1))]
    script = [Head(200, SSE), Wait(0), *alive, *chat_stream(["late "])[1:]]
    async with ScriptedServer(lambda _: script) as a, running(tmp_path, both(a, a, ", timeouts: {idle_s: 0.4}")) as rig:
        reply = await rig.ask(stream=True)
        assert reply.content.count(b": PROCESSING") == 10
        assert b"data: : PROCESSING" not in reply.content
        assert reply.content.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("stream", [False, True])
async def test_S10_S11_F23_the_upstream_is_left_within_a_second_of_the_client(tmp_path: Path, stream: bool) -> None:
    async with ScriptedServer(lambda _: [Wait(30)]) as a, running(tmp_path, both(a, a)) as rig:
        asking = asyncio.create_task(rig.ask(stream=stream))
        while not a.visits:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        asking.cancel()
        for _ in range(100):
            if a.in_flight == 0:
                break
            await asyncio.sleep(0.01)
        assert a.in_flight == 0
        (record,) = await rig.records()
        assert record.outcome == "cancelled"
        assert rig.gateway.health.of("a", 0.0)["in_flight"] == 0
        assert len(a.visits) == 1


async def test_S19_a_stream_that_the_client_leaves_is_recorded_with_the_tokens_it_got(tmp_path: Path) -> None:
    async with (
        ScriptedServer(lambda _: chat_stream([f"w{i} " for i in range(200)], gap_s=0.02)) as a,
        running(tmp_path, both(a, a, ", price: {input: 1, output: 2}")) as rig,
    ):
        body = {"model": "auto", "stream": True, "messages": [{"role": "user", "content": "hello"}]}
        async with rig.client.stream("POST", "/v1/chat/completions", json=body, headers={"x-score": "0"}) as reply:
            got = 0
            async for data in reply.aiter_raw():
                got += data.count(b'"content": "w')
                if got >= 10:
                    break
        (record,) = await rig.records()
        assert (record.outcome, record.partial) == ("cancelled", True)
        assert 10 <= record.usage.output < 200
        assert record.usage.estimated
        assert record.cost
        for _ in range(100):
            if a.in_flight == 0:
                break
            await asyncio.sleep(0.01)
        assert a.in_flight == 0


async def test_S17_connections_come_back_after_cancels_timeouts_and_errors(tmp_path: Path) -> None:
    async with (
        ScriptedServer(lambda _: [Wait(30)]) as a,
        running(tmp_path, groups({"a": a}, {"small": ["a"]}, ", timeouts: {first_byte_s: 0.3}"), SMALL_ONLY) as rig,
    ):
        asks = [asyncio.create_task(rig.ask()) for _ in range(12)]
        await asyncio.sleep(0.1)
        for ask in asks:
            ask.cancel()
        await asyncio.gather(*asks, return_exceptions=True)
        a.script = lambda _: status(422)
        assert {(await rig.ask()).status_code for _ in range(12)} == {422}
        a.script = chat("fine")
        assert (await rig.ask()).status_code == 200
        assert rig.gateway.health.of("a", 0.0)["in_flight"] == 0


async def test_X06_the_upstreams_view_of_our_key_never_reaches_the_client(tmp_path: Path) -> None:
    echo = status(401, message="Incorrect API key provided: sk-canary-123456")
    config = groups({"a": "@"}, {"small": ["a"]}).replace("api_key: none", "api_key: sk-canary-123456")
    async with (
        ScriptedServer(lambda _: echo) as a,
        running(tmp_path, config.replace("@", a.base_url), SMALL_ONLY) as rig,
    ):
        reply = await rig.ask()
        assert reply.status_code == 502
        assert "canary" not in reply.text
        assert reply.json()["error"]["code"] == "upstream_status"
        assert "req_" in reply.headers["x-pointsman-request-id"]


def _in_stream(*before: Step) -> list[Step]:
    told = {"error": {"code": 401, "message": "Incorrect API key provided: sk-our-own-key"}}
    return [Head(200, SSE), *before, Send(b"data: " + json.dumps(told).encode() + b"\n\n")]


KEY_TOLD_WITH_200: dict[str, list[Step]] = {
    "in a stream": _in_stream(),
    "in a stream, after content": _in_stream(Send(chunk({"role": "assistant", "content": "Hel"}))),
    "not streamed": [
        Head(200, JSON), Send(b'{"error": {"code": 401, "message": "Incorrect API key provided: sk-our-own-key"}}')
    ],
    "of another status": [Head(200, JSON), Send(b'{"error": {"code": 500, "message": "boom at sk-our-own-key"}}')],
    "half of it": [Head(200, JSON), Send(b'{"error": {"code": "invalid_api_key", "message": "sk-our-***"}}')],
    "in a header": [
        Head(200, JSON | {"x-ratelimit-key": "sk-our-own-key"}), Send(b'{"id": "x", "choices": []}')
    ],
}  # fmt: skip


@pytest.mark.parametrize("how", KEY_TOLD_WITH_200)
@pytest.mark.parametrize("path", ["chat/completions", "messages", "responses"])
async def test_X06_an_error_with_status_200_tells_nothing_of_our_key_either(
    tmp_path: Path, path: str, how: str
) -> None:
    steps = KEY_TOLD_WITH_200[how]
    asked = {"input": "x"} if path == "responses" else {"messages": [{"role": "user", "content": "x"}]}
    body = {"model": "auto", "max_tokens": 9, "stream": how.startswith("in a stream"), **asked}
    async with ScriptedServer(lambda _: steps) as a:
        yaml = groups({"a": a}, {"small": ["a"], "large": ["a"]}).replace("none", "sk-our-own-key")
        async with running(tmp_path, yaml) as rig:
            reply = await rig.client.post(f"/v1/{path}", json=body, headers={"x-score": "0.1"})
            assert "sk-our" not in reply.text
            assert "sk-our" not in str(reply.headers)
            assert len(reply.content) > 0


async def test_H01_H02_no_credential_of_the_client_reaches_an_upstream(tmp_path: Path) -> None:
    names = ["authorization", "x-api-key", "x-goog-api-key", "api-key", "cookie", "proxy-authorization", "x-internal-a"]
    async with ScriptedServer(chat("hi")) as a, running(tmp_path, both(a, a)) as rig:
        headers = dict.fromkeys(names, "canary") | {"x-score": "0.1", "traceparent": "00-1-2-01"}
        await rig.client.post("/v1/chat/completions", json={"model": "auto", "messages": []}, headers=headers)
        await rig.ask()
        for visit in a.visits:
            assert "canary" not in str(visit.seen.headers)
        if a.visits[0].seen.headers.get("traceparent"):
            assert a.visits[0].seen.headers["traceparent"] == "00-1-2-01"


async def test_Q11_Q12_the_answers_length_is_its_own(tmp_path: Path) -> None:
    answer = b'{ "choices": [ ],   "usage": null }'
    headers = {
        "content-type": "application/json",
        "content-length": str(len(answer)),
        "connection": "close",
        "x-odd": "1",
    }
    async with ScriptedServer(lambda _: [Head(200, headers), Send(answer)]) as a, running(tmp_path, both(a, a)) as rig:
        reply = await rig.ask()
        assert reply.content == answer
        assert reply.headers["content-length"] == str(len(answer))
        assert "x-odd" not in reply.headers


async def test_K09_the_other_group_serves_when_the_chosen_one_is_gone(tmp_path: Path) -> None:
    async with ScriptedServer(chat("b")) as b, running(tmp_path, both("http://127.0.0.1:9/v1", b)) as rig:  # type: ignore[arg-type]
        for score in (0.1, 0.9):
            reply = await rig.ask(score=score)
            assert (reply.status_code, reply.headers["x-pointsman-group"]) == (200, "large")


async def test_L15_two_hundred_streams_run_at_once(tmp_path: Path) -> None:
    async with ScriptedServer(lambda _: chat_stream(["a "] * 3, gap_s=1.5)) as a, running(tmp_path, both(a, a)) as rig:
        import httpx

        async with httpx.AsyncClient(
            limits=httpx.Limits(max_connections=300), base_url=rig.base_url, timeout=30
        ) as client:
            body = {"model": "auto", "stream": True, "messages": [{"role": "user", "content": "hello"}]}
            asks = [client.post("/chat/completions", json=body, headers={"x-score": "0"}) for _ in range(200)]
            waiting = asyncio.gather(*asks)
            for _ in range(2000):
                await asyncio.sleep(0.01)
                if a.in_flight == 200:
                    break
            assert a.in_flight == 200
            assert {reply.status_code for reply in await waiting} == {200}


def _ids(records: Sequence[object]) -> str:
    return json.dumps([str(r) for r in records])


async def test_each_request_leaves_exactly_one_record(tmp_path: Path) -> None:
    async with ScriptedServer(chat("hi")) as a, running(tmp_path, both(a, a)) as rig:
        replies = [await rig.ask(score=i / 10) for i in range(10)]
        records = await rig.records(10)
        assert {r.id for r in records} == {reply.headers["x-pointsman-request-id"] for reply in replies}
        assert "hello" not in _ids(records)


async def test_an_upstream_that_streams_to_a_plain_request_is_a_bad_answer(tmp_path: Path) -> None:
    async with (
        ScriptedServer(lambda _: [Head(200, {"content-type": "text/html"}), Send(b"<html>")]) as a,
        ScriptedServer(chat("b")) as b,
        running(tmp_path, both(a, b)) as rig,
    ):
        assert (await rig.ask()).headers["x-pointsman-deployment"] == "b"
