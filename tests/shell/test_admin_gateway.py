"""A whole gateway: each request is in the metrics, in the records and behind the admin port, and no prompt is."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx

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
