"""The data port as a client meets it: paths, bad input, models, decisions, health."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx
import pytest

from router.decide import decide
from router.types import Load
from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import chat
from tests.support.rig import POLICY, Rig, groups, running

CHAT = "/v1/chat/completions"
ASK = [{"role": "user", "content": "hello"}]


@pytest.fixture
async def upstream():
    async with ScriptedServer(chat("hi")) as server:
        yield server


@pytest.fixture
async def rig(tmp_path: Path, upstream: ScriptedServer):
    config = groups({"a": upstream, "b": upstream}, {"small": ["a"], "large": ["b"]})
    async with running(tmp_path, config) as made:
        yield made


def says(reply: httpx.Response, status: int, code: str) -> str:
    """The message of an error in OpenAI's shape."""
    error = reply.json()["error"]
    assert (reply.status_code, error["code"]) == (status, code)
    assert set(error) >= {"message", "type", "param", "code"}
    assert reply.headers["x-pointsman-request-id"].startswith("req_")
    return error["message"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"text"',
        b"null",
        b'{"messages": []}',
        b'{"model": 1, "messages": []}',
        b'{"model": "auto"}',
        b'{"model": "auto", "messages": "secret-canary"}',
        b'{"model": "auto", "messages": [], "model": "large"}',
        b'{"model": "auto", "messages": [], "mod\\u0065l": "large"}',
        b'{"model": "auto", "messages": [{"role": "user", "content": "\xff\xfe secret-canary"}]}',
        b'{"model": "auto", "messages": [' + b"[" * 100_000 + b"]" * 100_000 + b"]}",
        b'{"model": "auto", "messages": [{"role": "user", "content": NaN}]}',
    ],
    ids=lambda b: repr(b[:60]),
)
async def test_F25_a_malformed_body_is_a_400_that_quotes_nothing(
    rig: Rig, upstream: ScriptedServer, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    reply = await rig.client.post(CHAT, content=body, headers={"x-score": "0.1"})
    assert "canary" not in says(reply, 400, "invalid_request") + caplog.text
    assert upstream.visits == []


@pytest.mark.parametrize(
    "body", [b'{"model": "auto", "messages": [{"role": "user", "content": "\\ud800 x"}], "n": 1e400}']
)
async def test_F25_an_odd_but_legal_body_passes(rig: Rig, upstream: ScriptedServer, body: bytes) -> None:
    reply = await rig.client.post(CHAT, content=body, headers={"x-score": "0.1"})
    assert reply.status_code < 500
    if reply.status_code == 200:
        assert upstream.visits[0].seen.body == body.replace(b'"auto"', b'"m-a"')


async def test_Q09_31_megabytes_pass_and_33_are_a_413(rig: Rig, upstream: ScriptedServer) -> None:
    for size, status in ((1.5, 200), (31, 200), (33, 413)):
        text = "x" * int(size * 1024 * 1024)
        reply = await rig.ask(text)
        assert reply.status_code == status
    says(reply, 413, "request_too_large")
    assert len(upstream.visits) == 2


async def test_Q09_a_chunked_upload_is_held_to_the_same_limit(rig: Rig) -> None:
    async def pieces():
        for _ in range(33):
            yield b"x" * 1024 * 1024

    reply = await rig.client.post(CHAT, content=pieces())
    says(reply, 413, "request_too_large")


@pytest.mark.parametrize("model", ["gpt-4", "router-mf-0.0", "a", "m-a", "../etc", "auto ", "A" * 5000])
async def test_K10_X11_a_model_that_is_not_listed_is_a_404(rig: Rig, upstream: ScriptedServer, model: str) -> None:
    reply = await rig.client.post(CHAT, json={"model": model, "messages": ASK})
    says(reply, 404, "model_not_found")
    assert upstream.visits == []
    assert (await rig.client.get(f"/v1/models/{model[:200].strip()}x")).status_code == 404


async def test_C02_every_listed_model_can_be_retrieved_and_used(rig: Rig) -> None:
    listed = (await rig.client.get("/v1/models")).json()
    names = [entry["id"] for entry in listed["data"]]
    assert (listed["object"], names) == ("list", ["auto", "small", "large"])
    for name in names:
        entry = (await rig.client.get(f"/v1/models/{name}")).json()
        assert (entry["id"], entry["object"]) == (name, "model")
        reply = await rig.client.post(CHAT, json={"model": name, "messages": ASK}, headers={"x-score": "0.1"})
        assert reply.status_code == 200
        assert reply.headers["x-pointsman-group"] == ("large" if name == "large" else "small")


async def test_a_decision_says_where_a_request_would_go_and_calls_nothing(rig: Rig, upstream: ScriptedServer) -> None:
    body = {"model": "auto", "messages": ASK}
    for score, group in ((0.2, "small"), (0.8, "large")):
        told = (await rig.client.post("/v1/decision", json=body, headers={"x-score": str(score)})).json()
        assert (told["group"], told["route"], told["score"], told["threshold"]) == (group, "difficulty", score, 0.5)
        assert told["explanation"]["routes"]
    assert upstream.visits == []
    words = await rig.client.post("/v1/decision", json=body, headers={"x-score": "0.8", "accept": "text/plain"})
    assert words.headers["content-type"].startswith("text/plain")
    assert "decision  group large: score 0.800 of difficulty, threshold 0.5\n" in words.text
    says(await rig.client.post("/v1/decision", content=b"{"), 400, "invalid_request")
    says(await rig.client.post("/v1/decision", json={"model": "no", "messages": ASK}), 404, "model_not_found")


async def test_M06_health_calls_no_upstream(rig: Rig, upstream: ScriptedServer) -> None:
    for path in ("/healthz", "/readyz"):
        for _ in range(20):
            assert (await rig.client.get(path)).status_code == 200
    assert upstream.visits == []


async def test_readyz_says_503_while_draining_and_healthz_does_not(rig: Rig) -> None:
    rig.gateway.draining = True
    assert (await rig.client.get("/readyz")).status_code == 503
    assert (await rig.client.get("/healthz")).status_code == 200
    assert (await rig.ask()).status_code == 200


async def test_claude_codes_first_probe_is_answered(rig: Rig) -> None:
    assert (await rig.client.head("/")).status_code == 200


@pytest.mark.parametrize(
    "path", ["/metrics", "/admin/records", "/docs", "/openapi.json", "/v1/nothing", "/v1//chat/completions"]
)
async def test_M05_nothing_of_the_admin_port_is_on_the_data_port(rig: Rig, path: str) -> None:
    says(await rig.client.get(path), 404, "not_found")


async def test_a_wrong_method_is_refused_in_the_same_shape(rig: Rig) -> None:
    says(await rig.client.get(CHAT), 405, "method_not_allowed")


async def test_X01_routing_fields_in_a_body_change_no_address_and_no_key(rig: Rig, upstream: ScriptedServer) -> None:
    evil = {
        "api_base": "http://127.0.0.1:1",
        "base_url": "http://127.0.0.1:1",
        "api_key": "x",
        "custom_llm_provider": "y",
    }
    for extra in (evil, {"metadata": evil}, {"extra_body": evil}, {"extra_headers": {"authorization": "Bearer x"}}):
        assert (await rig.ask(**extra)).status_code == 200
    assert len(upstream.visits) == 4
    assert all("authorization" not in visit.seen.headers for visit in upstream.visits)


async def test_K01_a_scorer_that_cannot_say_leads_to_the_default_group_and_is_counted(rig: Rig) -> None:
    reply = await rig.client.post(CHAT, json={"model": "auto", "messages": ASK})
    assert reply.headers["x-pointsman-group"] == "large"
    assert "x-pointsman-score" not in reply.headers
    assert b'pointsman_abstain_total{reason="missing",scorer="difficulty"} 1.0' in rig.gateway.metrics.render()
    (record,) = await rig.records()
    assert record.decision is not None
    assert record.decision.why == "abstain"


async def test_M01_M03_made_up_names_make_no_new_series(rig: Rig) -> None:
    await rig.ask()
    await rig.client.post(CHAT, json={"model": "made-up", "messages": ASK})
    before = rig.gateway.metrics.render().count(b"\n")
    for i in range(200):
        await rig.client.post(CHAT, json={"model": f"made-up-{i}", "messages": ASK, "user": f"u{i}"})
        await rig.ask(user=f"user-{i}")
    assert rig.gateway.metrics.render().count(b"\n") == before


async def test_K06_a_conversation_keeps_its_group_inside_a_tool_loop(tmp_path: Path, upstream: ScriptedServer) -> None:
    policy = (Path(__file__).parent.parent / "support" / "pinned.yaml").read_text()
    config = groups({"a": upstream, "b": upstream}, {"small": ["a"], "large": ["b"]})
    async with running(tmp_path, config, policy) as rig:
        call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        talk = list(ASK)

        async def turn(score: float) -> str:
            headers = {"x-score": str(score), "x-session-id": "conversation-1"}
            reply = await rig.client.post(CHAT, json={"model": "auto", "messages": talk}, headers=headers)
            return reply.headers["x-pointsman-group"]

        assert await turn(0.1) == "small"
        for _ in range(5):
            talk += [
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c", "content": "ok"},
            ]
            assert await turn(0.9) == "small", "a tool loop never changes group"
        talk += [{"role": "user", "content": "now the hard part"}]
        assert await turn(0.9) == "large", "a user turn may move up"
        talk += [{"role": "assistant", "content": "done"}, {"role": "user", "content": "thanks"}]
        assert await turn(0.1) == "large", "and never down"


async def test_a_stuck_agent_moves_up_within_its_tool_loop_where_the_policy_says_any_turn(
    tmp_path: Path, upstream: ScriptedServer
) -> None:
    policy = (Path(__file__).parent.parent / "support" / "pinned.yaml").read_text()
    policy = policy.replace("upgrade: user_turn", "upgrade: any_turn").replace(
        "routes:\n", "routes:\n  - {name: stuck, when: {tool_errors: {at_least: 2}}, group: large}\n"
    )
    async with running(
        tmp_path, groups({"a": upstream, "b": upstream}, {"small": ["a"], "large": ["b"]}), policy
    ) as rig:
        call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        talk, went = list(ASK), list[str]()
        for _ in range(5):
            headers = {"x-score": "0.1", "x-session-id": "conversation-1"}
            reply = await rig.client.post(CHAT, json={"model": "auto", "messages": talk}, headers=headers)
            went.append(reply.headers["x-pointsman-group"])
            talk += [
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c", "content": "Error: no such file"},
            ]
        assert went == ["small", "small", "large", "large", "large"]


async def test_a_changed_file_takes_effect_and_a_bad_one_does_not(rig: Rig) -> None:
    policy = rig.config / "default.yaml"
    good = policy.read_text()
    assert (await rig.ask(score=0.6)).headers["x-pointsman-group"] == "large"
    policy.write_text(good.replace("below: 0.5", "below: 0.7"))
    for _ in range(200):
        if (await rig.ask(score=0.6)).headers["x-pointsman-group"] == "small":
            break
        await asyncio.sleep(0.02)
    else:
        pytest.fail("the change never took effect")
    policy.write_text(good.replace("group: small}", "group: nowhere}"))
    for _ in range(200):
        if b"pointsman_config_reload_ok 0.0" in rig.gateway.metrics.render():
            break
        await asyncio.sleep(0.02)
    else:
        pytest.fail("the refusal never showed")
    assert (await rig.ask(score=0.6)).headers["x-pointsman-group"] == "small"


async def test_feedback_is_kept_beside_its_record(rig: Rig) -> None:
    request_id = (await rig.ask()).headers["x-pointsman-request-id"]
    await rig.records()
    good = {"request_id": request_id, "score": 0.75, "label": "resolved"}
    assert (await rig.client.post("/v1/feedback", json=good)).status_code == 200
    await asyncio.to_thread(rig.gateway.recorder.flush)
    (kept,) = rig.gateway.recorder.reader.feedback(request_id)
    assert (kept.score, kept.label) == (0.75, "resolved")
    for bad in ({}, {"request_id": "r", "score": 2}, {"request_id": 1, "score": 0.5}):
        says(await rig.client.post("/v1/feedback", content=json.dumps(bad)), 400, "invalid_request")


async def test_an_explored_share_goes_across_the_edge_and_its_record_decides_the_same_again(tmp_path: Path):
    async with ScriptedServer(chat("hi")) as upstream:
        config = groups({"a": upstream, "b": upstream}, {"small": ["a"], "large": ["b"]})
        async with running(tmp_path, config, policy=POLICY + "explore: {share: 0.5, within: 0.2}\n") as rig:
            for number in range(24):
                await rig.ask(f"question {number}", score=0.4)
            await rig.ask("far from the edge", score=0.1)
            records = await rig.records(25)
            policy = rig.gateway.snapshot.config.policies["default"]
    decisions = [r.decision for r in records if r.decision is not None]
    assert {(d.why, d.group, d.other, d.propensity) for d in decisions} == {
        ("explore", "large", "small", 0.5),
        ("score", "small", "large", 0.5),
        ("score", "small", None, 1.0),
    }
    for one in records:
        assert one.signals is not None
        assert decide(policy, one.signals, one.scores, one.pinned, one.load or Load(), one.draw) == one.decision


async def test_a_decision_that_is_asked_for_names_the_features_that_moved_its_score(
    tmp_path: Path, upstream: ScriptedServer
) -> None:
    config = groups({"a": upstream, "b": upstream}, {"small": ["a"], "large": ["b"]})
    async with running(tmp_path, config, scorers=None) as made:
        body = {
            "model": "auto",
            "messages": [{"role": "user", "content": "Prove that the square root of 2 is irrational."}],
        }
        told = (await made.client.post("/v1/decision", json=body)).json()["explanation"]
        words = (await made.client.post("/v1/decision", json=body, headers={"accept": "text/plain"})).text
        assert "features  difficulty: " in words
        assert set(told["features"]) == {"difficulty"}
        assert len(told["features"]["difficulty"]) >= 3
        assert "irrational" not in str(told), "no prompt text"
