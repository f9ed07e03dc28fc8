"""Requests that carry what an answer left: they go back to its maker, or say why not, or leave it out and say so."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from router.origins import tokens, without
from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import JSON, SSE, Head, Seen, Send, Step, status
from tests.support.dialects import ONE_GROUP, body_of, config, listed, post, speaks
from tests.support.rig import SCORERS, Rig, running
from tests.wire.upstreams import event, responses_stream

USER = {"role": "user", "content": "and then?"}


def twins(
    one: ScriptedServer, two: ScriptedServer, dialect: str = "responses", models: Sequence[str] = ("m-up", "m-up")
) -> str:
    """One group with two deployments."""
    lines = ["version: 1", "groups: {small: {deployments: [d0, d1]}}", "deployments:"]
    for at, (server, model) in enumerate(zip((one, two), models, strict=True)):
        lines.append(f'  d{at}: {{upstream: openai, base_url: "{server.base_url}", model: {model}, {listed(dialect)}}}')
    return "\n".join(lines) + "\n"


def answers(name: str) -> Callable[[Seen], Sequence[Step]]:
    """A Responses server with a store of its own: what it made it knows, and nothing else."""
    made = 0

    def script(seen: Seen) -> Sequence[Step]:
        nonlocal made
        body = seen.json()
        previous = body.get("previous_response_id")
        inner = [i.get("encrypted_content", "") for i in body["input"] if isinstance(i, dict)]
        if (previous and not previous.startswith(f"resp_{name}")) or any(i and name not in i for i in inner):
            return status(400, message="invalid_encrypted_content")
        made += 1
        item = {"type": "reasoning", "id": f"rs_{made}", "summary": [], "encrypted_content": f"enc-{name}-{made:020}"}
        text = [{"type": "output_text", "text": f"from {name}", "annotations": []}]
        message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": text}
        delta = event("response.output_text.delta", item_id="msg_1", output_index=1, content_index=0, delta="from")
        stream = responses_stream([(item, [], item), ({**message, "content": []}, [delta], message)])
        stream = stream.replace(b"resp_u1", f"resp_{name}_{made}".encode())
        if body.get("stream"):
            return [Head(200, SSE), Send(stream)]
        whole = json.loads(stream.rsplit(b"data: ", 1)[1])["response"]
        return [Head(200, JSON), Send(json.dumps(whole).encode())]

    return script


async def said(rig: Rig, *items: Any, stream: bool = False, **more: Any) -> dict[str, Any]:
    """One answer of the Responses API, whole; with the deployment that gave it."""
    reply = await post(rig, "responses", {"model": "auto", "input": list(items), "stream": stream, **more})
    if reply.status_code != 200:
        return {"status": reply.status_code, **reply.json()}
    found = json.loads(reply.content.rsplit(b"data: ", 1)[1])["response"] if stream else reply.json()
    return {**found, "by": reply.headers["x-pointsman-deployment"], "dropped": reply.headers.get("x-pointsman-dropped")}


@pytest.mark.parametrize("stream", [False, True])
async def test_R05_a_follow_up_goes_to_the_deployment_that_keeps_the_answer(tmp_path: Path, stream: bool) -> None:
    async with (
        ScriptedServer(answers("a")) as a,
        ScriptedServer(answers("b")) as b,
        running(tmp_path, twins(a, b), ONE_GROUP, None) as rig,
    ):
        makers: set[str] = set()
        for _ in range(60):  # chance spreads them; sixty on one side is one run in 10^17
            if len(makers) == 2:
                break
            first = await said(rig, USER, stream=stream)
            makers.add(first["by"])
            answer = first
            for _ in range(3):
                answer = await said(rig, USER, stream=stream, previous_response_id=answer["id"])
                assert answer["by"] == first["by"]
        assert makers == {"d0", "d1"}, "the answers were spread, or nothing was tested"


@pytest.mark.parametrize("stream", [False, True])
async def test_R05_encrypted_reasoning_goes_back_to_its_maker_whatever_the_scorer_says(
    tmp_path: Path, stream: bool
) -> None:
    policy = (
        "version: 1\nname: default\nmodels: [auto]\ndefault: g1\n"
        "routes: [{name: d, score: {scorer: difficulty, bands: [{below: 0.5, group: small}, {group: g1}]}}]\n"
    )
    async with (
        ScriptedServer(answers("a")) as a,
        ScriptedServer(answers("b")) as b,
        running(tmp_path, config((a, listed("responses")), (b, listed("responses"))), policy, SCORERS) as rig,
    ):
        for score, maker in (("0.1", "d0"), ("0.9", "d1")):
            rig.client.headers["x-score"] = score
            first = await said(rig, USER, stream=stream)
            assert first["by"] == maker
            rig.client.headers["x-score"] = "0.9" if score == "0.1" else "0.1"
            again = await said(rig, USER, *first["output"], USER, stream=stream)
            assert again["by"] == maker
            (record,) = await rig.records()
            assert record.decision is not None
            assert (record.decision.why, record.scores) == ("pin", {})


async def test_R05_what_nobody_keeps_is_a_clear_error_and_reaches_no_deployment(tmp_path: Path) -> None:
    async with (
        ScriptedServer(answers("a")) as a,
        ScriptedServer(answers("b")) as b,
        running(tmp_path, twins(a, b), ONE_GROUP, None) as rig,
    ):
        reply = await said(rig, USER, previous_response_id="resp_unknown")
        error = reply["error"]
        assert (reply["status"], error["code"], error["param"]) == (
            400,
            "previous_response_not_found",
            "previous_response_id",
        )
        assert a.visits == b.visits == []


async def test_R05_while_the_keeper_is_away_nobody_guesses(tmp_path: Path) -> None:
    async with (
        ScriptedServer(answers("a")) as a,
        ScriptedServer(answers("b")) as b,
        running(tmp_path, twins(a, b), ONE_GROUP, None) as rig,
    ):
        first = await said(rig, USER)
        keeper, other = (a, b) if first["by"] == "d0" else (b, a)
        keeper.script = lambda _: status(503, {"retry-after": "9"})
        before = len(other.visits)
        assert (await said(rig, USER, previous_response_id=first["id"]))["status"] == 503
        again = await post(rig, "responses", {"model": "auto", "input": "x", "previous_response_id": first["id"]})
        assert again.status_code == 503, "cooling"
        assert int(again.headers["retry-after"]) >= 1
        assert len(other.visits) == before


async def test_R05_reasoning_of_a_maker_that_is_away_is_left_out_and_counted(tmp_path: Path) -> None:
    async with (
        ScriptedServer(answers("a")) as a,
        ScriptedServer(answers("b")) as b,
        running(tmp_path, twins(a, b), ONE_GROUP, None) as rig,
    ):
        first = await said(rig, USER)
        maker, other = (a, b) if first["by"] == "d0" else (b, a)
        away, maker.script = maker.script, lambda _: status(503)
        second = await said(rig, USER, *first["output"], USER)
        assert (second["by"] != first["by"], second["dropped"]) == (True, "thinking")
        kinds = [item.get("type") for item in other.visits[-1].seen.json()["input"]]
        assert kinds == [None, "message", None]
        maker.script = away
        # The conversation now holds the thoughts of both; its newest are the other's, the older stay out.
        third = await said(rig, USER, *first["output"], USER, *second["output"], USER)
        assert (third["by"], third["dropped"]) == (second["by"], "thinking")
        fourth = await said(rig, USER, *first["output"], USER, *second["output"], USER, *third["output"], USER)
        assert (fourth["by"], fourth["dropped"]) == (second["by"], "thinking")
        shown = rig.gateway.metrics.render().decode()
        assert 'pointsman_dropped_fields_total{dialect="responses",field="thinking"} 3.0' in shown


def thinks(name: str) -> Callable[[Seen], Sequence[Step]]:
    def script(seen: Seen) -> Sequence[Step]:
        usage = {"input_tokens": 1, "output_tokens": 1}
        content = [
            {"type": "thinking", "thinking": "hm", "signature": f"sig-{name}/+=-00000000000000"},
            {"type": "text", "text": f"from {name}"},
        ]
        answer = {"id": "msg_1", "type": "message", "role": "assistant", "model": name, "content": content}
        return [Head(200, JSON), Send(json.dumps({**answer, "stop_reason": "end_turn", "usage": usage}).encode())]

    return script


@pytest.mark.parametrize(("models", "foreign"), [(("m", "n"), True), (("m", "m"), False)])
async def test_T08_thoughts_of_another_model_are_left_out_and_those_of_the_same_model_stay(
    tmp_path: Path, models: Sequence[str], foreign: bool
) -> None:
    async with (
        ScriptedServer(thinks("a")) as a,
        ScriptedServer(thinks("b")) as b,
        running(tmp_path, twins(a, b, dialect="messages", models=models), ONE_GROUP, None) as rig,
    ):
        first = await post(rig, "messages", body_of("messages"))
        maker, other = (a, b) if first.headers["x-pointsman-deployment"] == "d0" else (b, a)
        turns = [USER, {"role": "assistant", "content": first.json()["content"]}, USER]
        for _ in range(4):
            again = await post(rig, "messages", body_of("messages", messages=turns))
            assert again.headers["x-pointsman-deployment"] == first.headers["x-pointsman-deployment"]
            assert maker.visits[-1].seen.json()["messages"] == turns
        maker.script = lambda _: status(503)
        moved = await post(rig, "messages", body_of("messages", messages=turns))
        assert moved.headers.get("x-pointsman-dropped") == ("thinking" if foreign else None)
        content = other.visits[-1].seen.json()["messages"][1]["content"]
        assert [block["type"] for block in content] == (["text"] if foreign else ["thinking", "text"])


async def test_R05_state_that_crossed_a_dialect_goes_back_to_its_maker_too(tmp_path: Path) -> None:
    async with (
        ScriptedServer(answers("a")) as a,
        ScriptedServer(answers("b")) as b,
        running(tmp_path, twins(a, b), ONE_GROUP, None) as rig,
    ):
        for _ in range(6):
            first = await post(rig, "messages", body_of("messages"))
            assert [block["type"] for block in first.json()["content"]] == ["thinking", "text"]
            turns = [USER, {"role": "assistant", "content": first.json()["content"]}, USER]
            again = await post(rig, "messages", body_of("messages", messages=turns))
            assert again.status_code == 200
            assert again.headers["x-pointsman-deployment"] == first.headers["x-pointsman-deployment"]


async def test_R05_one_deployment_needs_no_memory(tmp_path: Path) -> None:
    async with (
        ScriptedServer(answers("a")) as a,
        running(tmp_path, config((a, listed("responses"))), ONE_GROUP, None) as rig,
    ):
        assert (await said(rig, USER, previous_response_id="resp_a_from_before"))["status"] == "completed"


async def test_a_bodys_own_words_about_signatures_are_nobodys_state(tmp_path: Path) -> None:
    tool = {"name": "f", "input_schema": {"type": "object", "properties": {"signature": "signature: 123456789012345"}}}
    async with (
        ScriptedServer(speaks("messages")) as a,
        ScriptedServer(speaks("messages")) as b,
        running(tmp_path, twins(a, b, dialect="messages"), ONE_GROUP, None) as rig,
    ):
        body = body_of("messages", tools=[tool])
        assert (await post(rig, "messages", body)).status_code == 200
        (visit,) = [*a.visits, *b.visits]
        assert visit.seen.json() == {**body, "model": "m-up"}


def test_tokens_are_found_as_their_makers_wrote_them() -> None:
    body = (
        b'{"signature" : "AAAAAAAAAAAAAAAAAAAA\\/=", "x": {"signature":"responses:rs_1:EEEEEEEEEEEE"}, "signature": ""}'
    )
    assert tokens("messages", body) == ["AAAAAAAAAAAAAAAAAAAA/=", "EEEEEEEEEEEE"]
    assert tokens("responses", b'{"encrypted_content":"messages:AAAAAAAAAAAAAAAA"}') == ["AAAAAAAAAAAAAAAA"]
    assert tokens("responses", b'{"encrypted_content":"\\ud800AAAAAAAAAAAAAAAAAAAA"}') is not None
    assert tokens("messages", b'"signature":"' + b"A" * 1_000_000) == []


def test_leaving_out_keeps_the_bytes_of_every_other_message() -> None:
    own, foreign = b'{"type":"thinking","thinking":"a", "signature":"own-own-own-own-own"}', b"for-for-for-for-for"
    block = b'{"type":"thinking","thinking":"a","signature":"%b"}' % foreign
    kept = b'{"role":"assistant",  "content":[%b]}' % own
    body = b'{"messages" : [%b, {"role":"assistant","content":[%b]}, {"role": "user","content":"x"}],"a":1.0}'
    out = without("messages", body % (kept, block), {foreign.decode()})
    assert out == b'{"messages" : [%b,{"role": "user","content":"x"}],"a":1.0}' % kept
