"""Three dialects in, three out, through a whole gateway: what is asked, what is answered, what is left out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from router.types import Dialect
from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import JSON, SSE, Head, Reset, Send, Wait, status
from tests.support.dialects import DIALECTS, ONE_GROUP, PATHS, body_of, config, listed, post, speaks
from tests.support.rig import running
from tests.wire.published import check_answer, check_event, check_request, events
from tests.wire.translated import EXPECTED, content, rebuilt
from tests.wire.upstreams import ANSWERS, STREAMS

each_way = pytest.mark.parametrize(("client", "upstream"), [(a, b) for a in DIALECTS for b in DIALECTS])


@each_way
async def test_R06_every_dialect_is_answered_by_an_upstream_of_every_other(
    tmp_path: Path, client: Dialect, upstream: Dialect
) -> None:
    async with (
        ScriptedServer(speaks(upstream)) as server,
        running(tmp_path, config((server, listed(upstream))), ONE_GROUP, None) as rig,
    ):
        whole = await post(rig, client, body_of(client))
        assert whole.status_code == 200, whole.text
        stream = await post(rig, client, body_of(client, stream=True))
        assert stream.headers["content-type"].startswith("text/event-stream")
        if client == upstream:
            wants_tools = str(ANSWERS["chat"]).replace("'stop'", "'tool_calls'") if client == "chat" else None
            assert str(whole.json()) == (wants_tools or str(ANSWERS[client]))
            came = STREAMS[client].replace(b'"finish_reason": "stop"', b'"finish_reason": "tool_calls"')
            assert stream.content == came.replace(b'"arguments": null', b'"arguments": ""')
        else:
            check_answer(client, whole.json())
            assert content(client, whole.json()) == EXPECTED
            assert content(client, rebuilt(client, stream.content)) == EXPECTED
            for name, event in events(stream.content):
                if event != "[DONE]":
                    check_event(client, name, event)
        assert len(server.visits) == 2, "one call for each answer"
        for visit in server.visits:
            check_request(upstream, visit.seen.json())
            assert visit.seen.json()["model"] == "m-up"
        for record in await rig.records(2):
            assert (record.dialect, record.usage.input, record.usage.output) == (client, 20, 7)
            assert (record.usage.cached, record.usage.estimated) == (5, False)


async def test_L04_each_attempt_is_translated_afresh_from_what_the_client_sent(tmp_path: Path) -> None:
    said = [
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "A" * 40},
                {"type": "tool_use", "id": "call_1", "name": "f", "input": {"a": 1}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": "ok"}]},
    ]
    body = body_of("messages", messages=said, system=[{"type": "text", "text": "be brief"}])
    async with (
        ScriptedServer(lambda _: status(529)) as first,
        ScriptedServer(lambda _: status(503)) as second,
        ScriptedServer(speaks("chat")) as third,
        running(
            tmp_path,
            config((first, listed("messages")), (second, listed("responses")), (third, listed("chat"))),
            ONE_GROUP + "fallback: {small: [g1, g2]}\n",
            None,
        ) as rig,
    ):
        reply = await post(rig, "messages", body)
        assert (reply.status_code, reply.headers["x-pointsman-attempts"]) == (200, "3")
        check_answer("messages", reply.json())
        for server, dialect in ((first, "messages"), (second, "responses"), (third, "chat")):
            (visit,) = server.visits
            assert visit.seen.path == "/v1" + PATHS[dialect]
            check_request(dialect, visit.seen.json())
        assert first.visits[0].seen.json() == {**body, "model": "m-up"}
        assert third.visits[0].seen.json()["messages"][0] == {"role": "system", "content": "be brief"}
        assert reply.headers["x-pointsman-dropped"] == "thinking"


async def test_what_a_deployment_cannot_be_told_goes_to_one_that_can(tmp_path: Path) -> None:
    two = ONE_GROUP + "fallback: {small: [g1]}\n"
    async with ScriptedServer(speaks("chat")) as chat, ScriptedServer(speaks("responses")) as responses:
        async with running(
            tmp_path, config((chat, listed("chat")), (responses, listed("responses"))), two, None
        ) as rig:
            reply = await post(rig, "responses", body_of("responses", background=True))
            assert (reply.status_code, reply.headers["x-pointsman-deployment"]) == (200, "d1")
            assert (len(chat.visits), len(responses.visits)) == (0, 1)
        async with running(tmp_path, config((chat, listed("chat"))), ONE_GROUP, None) as rig:
            reply = await post(rig, "responses", body_of("responses", background=True))
            assert (reply.status_code, reply.json()["error"]["param"]) == (400, "background")
            assert chat.visits == []
            (record,) = await rig.records()
            assert (record.outcome, record.attempts) == ("client_error", ())


async def test_Q04_fields_that_the_upstream_cannot_be_told_are_listed_and_counted(tmp_path: Path) -> None:
    async with (
        ScriptedServer(speaks("messages")) as server,
        running(tmp_path, config((server, listed("messages"))), ONE_GROUP, None) as rig,
    ):
        more = {"seed": 7, "logit_bias": {"5": 1}, "my,odd\r\nfield\u2028": 1}
        for stream in (False, True):
            reply = await post(rig, "chat", body_of("chat", **more, stream=stream))
            assert reply.status_code == 200
            assert set(reply.headers["x-pointsman-dropped"].split(", ")) == {"seed", "logit_bias", "my?odd??field?"}
        plain = await post(rig, "chat", body_of("chat"))
        assert "x-pointsman-dropped" not in plain.headers
        shown = rig.gateway.metrics.render().decode()
        for field in ("seed", "logit_bias", "other"):
            assert f'pointsman_dropped_fields_total{{dialect="chat",field="{field}"}} 2.0' in shown


async def test_M01_made_up_fields_make_no_new_series(tmp_path: Path) -> None:
    async with (
        ScriptedServer(speaks("messages")) as server,
        running(tmp_path, config((server, listed("messages"))), ONE_GROUP, None) as rig,
    ):
        await post(rig, "chat", body_of("chat", made_up=1))
        before = rig.gateway.metrics.render().count(b"\n")
        reply = await post(rig, "chat", body_of("chat", **{f"made_up_{i}": i for i in range(2000)}))
        assert len(reply.headers["x-pointsman-dropped"]) < 1100
        assert rig.gateway.metrics.render().count(b"\n") == before


@each_way
async def test_H03_an_upstreams_error_reaches_the_client_in_its_own_shape(
    tmp_path: Path, client: Dialect, upstream: Dialect
) -> None:
    told = {
        "messages": {"type": "error", "error": {"type": "invalid_request_error", "message": "no such thing"}},
    }.get(upstream, {"error": {"message": "no such thing", "type": "invalid_request_error", "code": None}})
    async with (
        ScriptedServer(lambda _: [Head(429, JSON | {"retry-after": "7"}), Send(json.dumps(told).encode())]) as server,
        running(tmp_path, config((server, listed(upstream))), ONE_GROUP, None) as rig,
    ):
        reply = await post(rig, client, body_of(client, stream=True))
        assert (reply.status_code, reply.headers["retry-after"]) == (429, "7")
        assert reply.json()["error"]["message"] == "no such thing"
        assert (reply.json().get("type") == "error") == (client == "messages")


@each_way
async def test_S07_S09_a_stream_cut_after_content_ends_with_one_error_of_the_clients_dialect(
    tmp_path: Path, client: Dialect, upstream: Dialect
) -> None:
    cut = STREAMS[upstream][: STREAMS[upstream].index(b"world") + 40]
    async with (
        ScriptedServer(lambda _: [Head(200, SSE), Send(cut), Wait(0.05), Reset()]) as server,
        running(tmp_path, config((server, listed(upstream))), ONE_GROUP, None) as rig,
    ):
        found = events((await post(rig, client, body_of(client, stream=True))).content)
        bad = [at for at, (name, e) in enumerate(found) if e == "[DONE]" or name in ("error", "response.failed")]
        bad += [at for at, (_, e) in enumerate(found) if client == "chat" and isinstance(e, dict) and "error" in e]
        assert bad == [len(found) - 1], "one error, at the end, and no [DONE]"
        assert not {name for name, _ in found} & {"message_stop", "response.completed"}
        if client == "responses":
            numbers = [e["sequence_number"] for _, e in found if "sequence_number" in e]
            assert numbers == sorted(set(numbers))
            assert found[-1][1]["response"]["id"].endswith("u1")
        assert len(server.visits) == 1


@each_way
async def test_S14_each_event_leaves_when_it_comes_and_no_layer_may_hold_or_pack_it(
    tmp_path: Path, client: Dialect, upstream: Dialect
) -> None:
    pieces = [event + b"\n\n" for event in STREAMS[upstream].split(b"\n\n") if event]
    steps = [step for piece in pieces for step in (Send(piece), Wait(0.03))]
    async with (
        ScriptedServer(lambda _: [Head(200, SSE), *steps]) as server,
        running(tmp_path, config((server, listed(upstream))), ONE_GROUP, None) as rig,
    ):
        headers = {"accept-encoding": "gzip, br, zstd"}
        body = body_of(client, stream=True)
        async with rig.client.stream("POST", "/v1" + PATHS[client], json=body, headers=headers) as reply:
            assert "content-encoding" not in reply.headers
            assert reply.headers["x-accel-buffering"] == "no"
            assert reply.headers["cache-control"] == "no-cache, no-transform"
            reads = [data async for data in reply.aiter_raw()]
        assert len(reads) >= 5, "deltas came one by one, not in one piece at the end"
        assert all(data.endswith(b"\n\n") for data in reads), "whole events"


@pytest.mark.parametrize("upstream", DIALECTS)
async def test_Q02_a_message_without_content_keeps_its_place_its_null_and_its_tool_result(
    tmp_path: Path, upstream: Dialect
) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    said = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "ok"},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": "go on"},
    ]
    async with (
        ScriptedServer(speaks(upstream)) as server,
        running(tmp_path, config((server, listed(upstream))), ONE_GROUP, None) as rig,
    ):
        assert (await post(rig, "chat", body_of("chat", messages=said))).status_code == 200
        seen = server.visits[0].seen.json()
        check_request(upstream, seen)
        if upstream == "chat":
            assert seen["messages"] == said
        elif upstream == "messages":
            kinds = [b["type"] for m in seen["messages"] if isinstance(m["content"], list) for b in m["content"]]
            assert [kind for kind in kinds if kind != "text"] == ["tool_use", "tool_result"]
        else:
            kinds = [item.get("type") for item in seen["input"]]
            assert kinds.index("function_call") + 1 == kinds.index("function_call_output")


@pytest.mark.parametrize("upstream", DIALECTS)
@pytest.mark.parametrize("client", DIALECTS)
async def test_fields_that_a_policy_sets_mean_the_same_in_every_dialect(
    tmp_path: Path, client: Dialect, upstream: Dialect
) -> None:
    own = "set: {reasoning_effort: low, temperature: 0.5, max_completion_tokens: 77, seed: 1, own_field: 2}"
    policy = (
        "version: 1\nname: default\nmodels: [auto]\ndefault: small\n"
        f"routes: [{{name: r, when: {{turns: {{at_least: 0}}}}, group: small, {own}}}]\n"
    )
    async with (
        ScriptedServer(speaks(upstream)) as server,
        running(tmp_path, config((server, listed(upstream))), policy, None) as rig,
    ):
        reply = await post(rig, client, body_of(client))
        assert reply.status_code == 200
        seen = server.visits[0].seen.json()
        assert seen.pop("own_field") == 2
        check_request(upstream, seen)
        assert seen["temperature"] == 0.5
        efforts = {
            "chat": seen.get("reasoning_effort"),
            "messages": seen.get("output_config", {}).get("effort"),
            "responses": seen.get("reasoning", {}).get("effort"),
        }
        assert efforts[upstream] == "low"
        limits = {"chat": "max_completion_tokens", "messages": "max_tokens", "responses": "max_output_tokens"}
        assert seen[limits[upstream]] == 77
        lost = reply.headers.get("x-pointsman-dropped", "").split(", ")
        assert ("seed" in seen) == (upstream == "chat") != ("seed" in lost)


@pytest.mark.parametrize("effort", ["none", "minimal"])
@pytest.mark.parametrize("upstream", DIALECTS)
@pytest.mark.parametrize("client", DIALECTS)
async def test_a_policy_turns_reasoning_off_in_every_dialect(
    tmp_path: Path, client: Dialect, upstream: Dialect, effort: str
) -> None:
    policy = (
        "version: 1\nname: default\nmodels: [auto]\ndefault: small\n"
        f"routes: [{{name: r, when: {{turns: {{at_least: 0}}}}, group: small, set: {{reasoning_effort: {effort}}}}}]\n"
    )
    async with (
        ScriptedServer(speaks(upstream)) as server,
        running(tmp_path, config((server, listed(upstream))), policy, None) as rig,
    ):
        assert (await post(rig, client, body_of(client))).status_code == 200
        seen = server.visits[0].seen.json()
        check_request(upstream, seen)
        if upstream == "messages" and effort == "none":
            assert seen["thinking"] == {"type": "disabled"}
        elif upstream == "messages":
            assert seen["output_config"]["effort"] == "low"


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("asked", ["max_tokens", "max_completion_tokens"])
async def test_a_limit_that_a_policy_sets_holds_whatever_the_client_calls_its_own(
    tmp_path: Path, asked: str, name: str
) -> None:
    policy = (
        "version: 1\nname: default\nmodels: [auto]\ndefault: small\n"
        f"routes: [{{name: r, when: {{turns: {{at_least: 0}}}}, group: small, set: {{{name}: 50}}}}]\n"
    )
    async with (
        ScriptedServer(speaks("chat")) as server,
        running(tmp_path, config((server, listed("chat"))), policy, None) as rig,
    ):
        assert (await post(rig, "chat", body_of("chat", **{asked: 9000}))).status_code == 200
        assert (await post(rig, "messages", body_of("messages", max_tokens=9000))).status_code == 200
        for visit in server.visits:
            seen = visit.seen.json()
            assert {key: seen[key] for key in seen if key.startswith("max_")} == {name: 50}


@pytest.mark.parametrize("upstream", ["messages", "responses"])
@pytest.mark.parametrize("client", ["messages", "responses"])
async def test_an_effort_that_a_policy_sets_leaves_the_clients_schema_alone(
    tmp_path: Path, client: Dialect, upstream: Dialect
) -> None:
    policy = (
        "version: 1\nname: default\nmodels: [auto]\ndefault: small\n"
        "routes: [{name: r, when: {turns: {at_least: 0}}, group: small, set: {reasoning_effort: low}}]\n"
    )
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    shape = {"type": "json_schema", "schema": schema}
    own = {"output_config": {"format": shape}} if client == "messages" else {"text": {"format": {**shape, "name": "n"}}}
    async with (
        ScriptedServer(speaks(upstream)) as server,
        running(tmp_path, config((server, listed(upstream))), policy, None) as rig,
    ):
        assert (await post(rig, client, body_of(client, **own))).status_code == 200
        seen = server.visits[0].seen.json()
        check_request(upstream, seen)
        found = seen["output_config"] if upstream == "messages" else seen["text"] | seen["reasoning"]
        assert (found["format"]["schema"], found["effort"]) == (schema, "low")
