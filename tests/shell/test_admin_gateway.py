"""A whole gateway: each request is in the metrics, in the records and behind the admin port, and no prompt is."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from router import record
from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import chat
from tests.support.rig import POLICY, groups, running


async def test_each_request_shows_in_metrics_records_and_admin_and_its_prompt_in_none(tmp_path: Path):
    async with ScriptedServer(chat("hi")) as small, ScriptedServer(chat("ho")) as large:
        files = groups({"small-a": small, "large-a": large}, {"small": ["small-a"], "large": ["large-a"]})
        async with running(tmp_path, files) as rig, httpx.AsyncClient(base_url=rig.admin) as admin:
            replies = [await rig.ask("heron-prompt", score=score, user="heron-user") for score in (0.1, 0.9, 0.1)]
            assert [r.status_code for r in replies] == [200, 200, 200]
            unknown = await rig.ask("heron-prompt", model="heron-model")
            assert unknown.status_code == 404
            written = await rig.records(4)
            ids = {r.headers["x-pointsman-request-id"] for r in replies}
            assert ids < {r.id for r in written}
            assert sorted(str(record.group(r)) for r in written) == ["None", "large", "small", "small"]
            shown = (await admin.get(f"/admin/records/{written[-1].id}")).json()
            assert shown["decision"]["why"] == "score"
            counted = (await admin.get("/admin/requests")).json()["requests"]
            assert {(r["group"], r["outcome"]): r["count"] for r in counted} == {
                ("small", "ok"): 2,
                ("large", "ok"): 1,
                ("none", "client_error"): 1,
            }
            metrics = (await admin.get("/metrics")).text
            assert 'pointsman_in_flight{deployment="small-a"} 0.0' in metrics
            assert "pointsman_records_written_total 4.0" in metrics
            state = await asyncio.to_thread(
                lambda: [p.read_bytes() for p in (tmp_path / "state").rglob("*") if p.is_file()]
            )
            everything = b"".join(state) + metrics.encode() + (await admin.get("/admin/records")).content
            assert b"heron" not in everything


async def test_a_policy_that_says_record_prompts_keeps_the_users_words_and_nothing_else_of_the_body(tmp_path: Path):
    async with ScriptedServer(chat("hi")) as small:
        files = groups({"small-a": small}, {"small": ["small-a"], "large": ["small-a"]})
        async with running(tmp_path, files, POLICY + "record_prompts: true\n") as rig:
            messages = [{"role": "system", "content": "heron"}, {"role": "user", "content": "What is a lock?"}]
            await rig.ask(messages=messages)
            await rig.ask("asked by the group's name", model="small")
            by_group, by_policy = await rig.records(2)
            assert (by_group.prompt, by_policy.prompt) == (None, "What is a lock?")
            assert b"heron" not in record.encode(by_policy)


async def test_a_window_says_what_was_asked_in_it_and_what_was_saved_and_where_the_threshold_is(tmp_path: Path):
    async with ScriptedServer(chat("hi you")) as small, ScriptedServer(chat("ho")) as large:
        files = groups({"small-a": small, "large-a": large}, {"small": ["small-a"], "large": ["large-a"]})
        files = files.replace("m-small-a", "m-small-a, price: {input: 1, output: 1}")
        files = files.replace("m-large-a", "m-large-a, price: {input: 10, output: 10}")
        async with running(tmp_path, files) as rig, httpx.AsyncClient(base_url=rig.admin) as admin:
            for score in (0.1, 0.2, 0.9):
                await rig.ask(score=score, stream=True)
            await rig.records(3)
            shown = (await admin.get("/admin/summary?window=900")).json()
            assert shown["totals"]["requests"] == 3
            assert shown["totals"]["saved"] == pytest.approx(2 * 12 * 9 / 1e6)
            assert "dearest group" in shown["assumption"]
            assert {one["group"]: one["ttft"]["n"] for one in shown["groups"]} == {"small": 2, "large": 1}
            assert shown["overhead"]["n"] == 3
            mark = {"policy": "default", "route": "difficulty", "scorer": "difficulty", "at": 0.5}
            assert shown["thresholds"] == [mark]
            for window in ("1", "99999999", "soon"):
                assert (await admin.get(f"/admin/summary?window={window}")).status_code == 400


async def test_a_record_is_explained_in_words_by_the_configuration_in_force(tmp_path: Path):
    async with ScriptedServer(chat("hi")) as small:
        files = groups({"small-a": small}, {"small": ["small-a"], "large": ["small-a"]})
        async with running(tmp_path, files) as rig, httpx.AsyncClient(base_url=rig.admin) as admin:
            await rig.ask(score=0.45)
            (kept,) = await rig.records(1)

            async def explained() -> Any:
                return (await admin.get(f"/admin/records/{kept.id}")).json()["explained"]

            first = await explained()
            assert "score 0.450 of difficulty, threshold 0.5" in first["in_words"]
            assert (first["same_configuration"], first["same_decision"]) == (True, True)
            (rig.config / "default.yaml").write_text(POLICY.replace("below: 0.5", "below: 0.4"))
            assert await rig.gateway.reload()
            then = await explained()
            assert "group large" in then["in_words"]
            assert (then["same_configuration"], then["same_decision"]) == (False, False)


BODY = {"model": "auto", "messages": [{"role": "user", "content": "hello"}]}


async def test_a_policy_is_tried_without_a_call_a_record_or_a_change_of_what_is_in_force(tmp_path: Path):
    async with ScriptedServer(chat("hi")) as small:
        files = groups({"small-a": small}, {"small": ["small-a"], "large": ["small-a"]})
        async with running(tmp_path, files) as rig, httpx.AsyncClient(base_url=rig.admin) as admin:
            (shown,) = (await admin.get("/admin/policies")).json()["policies"]
            assert (shown["file"], shown["policy"], shown["text"]) == ("default.yaml", "default", POLICY)
            question: dict[str, Any] = {"request": BODY, "headers": {"X-Score": "0.6"}}
            now = (await admin.post("/admin/try", json=question)).json()
            assert (now["decision"]["group"], now["decision"]["score"]) == ("large", 0.6)
            edited = {"file": "default.yaml", "text": POLICY.replace("below: 0.5", "below: 0.7")}
            then = (await admin.post("/admin/try", json={**question, "policy": edited})).json()
            assert then["decision"]["group"] == "small"
            assert "threshold 0.7" in then["in_words"]
            assert small.visits == []
            assert await asyncio.to_thread(lambda: rig.gateway.recorder.flush() and rig.gateway.recorder.written) == 0
            assert rig.gateway.snapshot.generation == 1


@pytest.mark.parametrize(
    ("file", "text", "status", "said"),
    [
        ("default.yaml", POLICY.replace("default: large", "default: big"), 422, "big"),
        (
            "default.yaml",
            POLICY + "examples: [{given: {}, scores: {difficulty: 0.9}, expect: small}]\n",
            422,
            "examples",
        ),
        ("default.yaml", "a: &a [1]\nb: [" + ", ".join(["*a"] * 9) + "]\n", 422, "default.yaml"),
        ("default.yaml", POLICY.replace("[auto]", '["${HOME}"]'), 400, "variables are not read here"),
        ("groups.yaml", POLICY, 404, "no policy has that file"),
        ("../default.yaml", POLICY, 404, "no policy has that file"),
    ],
)
async def test_X05_an_edited_policy_that_would_be_refused_is_refused_at_its_place_and_reads_nothing(
    tmp_path: Path, file: str, text: str, status: int, said: str
):
    async with ScriptedServer(chat("hi")) as small:
        files = groups({"small-a": small}, {"small": ["small-a"], "large": ["small-a"]})
        async with running(tmp_path, files) as rig, httpx.AsyncClient(base_url=rig.admin) as admin:
            question = {"request": BODY, "policy": {"file": file, "text": text}}
            reply = await admin.post("/admin/try", json=question)
            assert reply.status_code == status
            assert said in reply.text
            assert str(tmp_path) not in reply.text
            assert (await admin.post("/admin/try", json={"reqest": BODY})).status_code == 400
