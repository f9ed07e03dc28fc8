"""Canaries on a running gateway: which policy decides, what is seen of it, when it is taken back or takes over."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from router.policy_files import review
from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import Head, Seen, Send, Step, chat
from tests.support.config_files import GROUPS, write
from tests.support.rig import POLICY, SCORERS, Rig, groups, running

ERRORS = "rollback_if: {error_rate: 0.05}"
NEXT = """\
version: 1
name: next
models: [auto-next]
routes:
  - {name: again, score: {scorer: difficulty, bands: [{below: 0.9, group: small}, {group: large}]}}
default: large
"""


def stable(share: float, more: str = ERRORS, until: int = 50) -> str:
    return POLICY.replace("fallback: {small: [large], large: [small]}\n", "") + (
        f"canary: {{policy: next, share: {share}, until: {{requests: {until}}}, {more}}}\n"
    )


def prepare(folder: Path, next_policy: str = NEXT) -> None:
    (folder / "config").mkdir(exist_ok=True)
    (folder / "config" / "next.yaml").write_text(next_policy)


@pytest.fixture
async def good():
    async with ScriptedServer(chat("hi")) as server:
        yield server


async def many(rig: Rig, count: int, *, score: float = 0.6, start: int = 0) -> list[str]:
    """The policy that decided each of so many conversations."""
    found: list[str] = []
    for first in range(start, start + count, 20):
        asked = [rig.ask(f"question {n}", score=score) for n in range(first, min(first + 20, start + count))]
        found += [reply.headers["x-pointsman-policy"].partition("@")[0] for reply in await asyncio.gather(*asked)]
    return found


async def shown(rig: Rig) -> dict[str, object]:
    async with httpx.AsyncClient() as client:
        (canary,) = (await client.get(f"{rig.admin}/admin/config")).json()["canaries"]
        return canary


async def metrics(rig: Rig) -> str:
    async with httpx.AsyncClient() as client:
        return (await client.get(f"{rig.admin}/metrics")).text


async def test_a_share_of_the_conversations_goes_to_the_canary_and_stays_there(
    tmp_path: Path, good: ScriptedServer
) -> None:
    prepare(tmp_path)
    config = groups({"a": good, "b": good}, {"small": ["a"], "large": ["b"]})
    async with running(tmp_path, config, stable(0.3, until=10_000)) as rig:
        first = await many(rig, 200)
        assert 30 < first.count("next") < 90
        assert first.count("next") + first.count("default") == 200
        assert await many(rig, 200) == first
        opening = {"role": "user", "content": f"question {first.index('next')}"}
        later = [opening, {"role": "assistant", "content": "hi"}, {"role": "user", "content": "and?"}]
        reply = await rig.ask(messages=later, score=0.6)
        assert reply.headers["x-pointsman-policy"].startswith("next@")
        record = (await rig.records())[0]
        assert (record.policy, record.model) == ("next", "auto")
        by_name = await rig.ask("mine", model="auto-next")
        assert by_name.headers["x-pointsman-policy"].startswith("next@")
        assert 'policy="next",route="again"' in await metrics(rig)
        assert 'pointsman_canary_share{canary="next",policy="default"} 0.3' in await metrics(rig)
        assert (await shown(rig))["state"] == "running"


async def test_the_decision_that_is_asked_for_is_the_canarys_where_the_request_would_be(
    tmp_path: Path, good: ScriptedServer
) -> None:
    prepare(tmp_path)
    config = groups({"a": good, "b": good}, {"small": ["a"], "large": ["b"]})
    async with running(tmp_path, config, stable(1.0, until=10_000)) as rig:
        body = {"model": "auto", "messages": [{"role": "user", "content": "x"}]}
        told = (await rig.client.post("/v1/decision", json=body, headers={"x-score": "0.6"})).json()
        assert (told["policy"].partition("@")[0], told["route"], told["group"]) == ("next", "again", "small")


async def test_a_canary_that_fails_is_taken_back_and_a_restart_does_not_try_it_again(
    tmp_path: Path, good: ScriptedServer
) -> None:
    async with ScriptedServer(broken) as bad:
        prepare(tmp_path)
        config = groups({"a": bad, "b": good}, {"small": ["a"], "large": ["b"]})
        async with running(tmp_path, config, stable(0.3)) as rig:
            await many(rig, 260)
            rig.gateway.trials.look()
            told = await shown(rig)
            assert (told["state"], told["share"]) == ("rolled_back", 0.0)
            assert "error_rate is worse by" in str(told["reason"])
            assert set(await many(rig, 40)) == {"default"}
            assert 'pointsman_canary_share{canary="next",policy="default"} 0.0' in await metrics(rig)
            assert 'pointsman_canary_difference_low{measure="error_rate",policy="default"}' in await metrics(rig)
        async with running(tmp_path, config, stable(0.3)) as rig:
            assert set(await many(rig, 40)) == {"default"}
            prepare(tmp_path, NEXT.replace("0.9", "0.95"))
            assert await rig.gateway.reload()
            assert "next" in await many(rig, 40), "another version of it is tried anew"


def broken(seen: Seen) -> list[Step]:
    return [Head(status=500), Send(data=b'{"error": {"message": "broken"}}')]


async def test_a_canary_that_holds_takes_all_traffic_of_the_name_until_the_file_is_edited(
    tmp_path: Path, good: ScriptedServer
) -> None:
    prepare(tmp_path)
    config = groups({"a": good, "b": good}, {"small": ["a"], "large": ["b"]})
    async with running(tmp_path, config, stable(0.4)) as rig:
        await many(rig, 200)
        rig.gateway.trials.look()
        assert (await shown(rig))["state"] == "promoted"
        assert set(await many(rig, 40)) == {"next"}
    async with running(tmp_path, config, stable(0.4)) as rig:
        assert set(await many(rig, 40)) == {"next"}
        (rig.config / "groups.yaml").write_text(config + "# a comment\n")
        assert await rig.gateway.reload()
        assert set(await many(rig, 40)) == {"next"}, "another file was edited"
        (rig.config / "default.yaml").write_text(POLICY)
        assert await rig.gateway.reload()
        assert set(await many(rig, 40)) == {"default"}
        assert "pointsman_canary_share{" not in await metrics(rig)


async def test_a_shadow_decides_beside_and_only_the_record_knows(tmp_path: Path, good: ScriptedServer) -> None:
    prepare(tmp_path)
    config = groups({"a": good, "b": good}, {"small": ["a"], "large": ["b"]})
    async with running(tmp_path, config, stable(1.0, "shadow: true")) as rig:
        reply = await rig.ask("x", score=0.6)
        assert (reply.headers["x-pointsman-policy"][:8], reply.headers["x-pointsman-group"]) == ("default@", "large")
        (record,) = await rig.records()
        assert record.decision is not None
        assert record.shadow is not None
        assert (record.policy, record.decision.group) == ("default", "large")
        assert (record.shadow.policy, record.shadow.route, record.shadow.group) == ("next", "again", "small")
        await many(rig, 60)
        rig.gateway.trials.look()
        assert (await shown(rig))["state"] == "shadow"


async def test_feedback_counts_once_and_for_the_policy_that_answered(tmp_path: Path, good: ScriptedServer) -> None:
    prepare(tmp_path)
    config = groups({"a": good, "b": good}, {"small": ["a"], "large": ["b"]})
    async with running(tmp_path, config, stable(0.4, "rollback_if: {quality_difference: 0.1}", until=100)) as rig:
        for start in range(0, 240, 20):
            replies = [await rig.ask(f"question {n}", score=0.6) for n in range(start, start + 20)]
            await rig.records(start + 20)  # written, so that no opinion waits for its record
            for n, reply in enumerate(replies):
                liked = 0.3 if reply.headers["x-pointsman-policy"].startswith("next@") else 0.8
                said = {"request_id": reply.headers["x-pointsman-request-id"], "score": liked + (n % 7) / 100}
                assert (await rig.client.post("/v1/feedback", json=said)).status_code == 200
        repeated = await rig.client.post("/v1/feedback", json={**said, "score": 0.0})
        assert repeated.status_code == 200
        rig.gateway.trials.look()
        told = await shown(rig)
        assert told["state"] == "rolled_back"
        assert "quality_difference is worse by 0.5" in str(told["reason"]) or "by 0.49" in str(told["reason"])


# --- mistakes in the files -------------------------------------------------------------------------------

WRONG = {
    "no such policy": (stable(0.1).replace("policy: next", "policy: nxt"), "canary.policy", "did you mean 'next'?"),
    "itself": (stable(0.1).replace("policy: next", "policy: default"), "canary.policy", "in place of itself"),
    "no share": (stable(0.0), "canary.share", "more than 0"),
    "more than all": (stable(1.5), "canary.share", "at most 1"),
    "no end": (stable(0.1, until=0), "canary.until.requests", "at least 1"),
    "no limit": (stable(0.1, "rollback_if: {}"), "canary", "add rollback_if"),
    "a negative limit": (stable(0.1, "rollback_if: {ttft_p95: -1}"), "canary.rollback_if.ttft_p95", "0 seconds"),
    "too high a limit": (stable(0.1, "rollback_if: {error_rate: 1}"), "canary.rollback_if.error_rate", "less than 1"),
    "a misspelt limit": (stable(0.1, "rollback_if: {eror_rate: 0.1}"), "canary.rollback_if.eror_rate", "'error_rate'?"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_canary_that_cannot_be_meant_is_refused(tmp_path: Path, name: str) -> None:
    text, path, words = WRONG[name]
    found = review(write(tmp_path, default=text, next=NEXT, scorers=SCORERS), {})
    assert [one.path for one in found.mistakes] == [path]
    assert words in found.mistakes[0].message


def test_a_canary_is_tried_in_one_place_and_tries_nothing_itself(tmp_path: Path) -> None:
    chained = NEXT + "canary: {policy: default, share: 0.1, rollback_if: {error_rate: 0.1}}\n"
    both = review(write(tmp_path, groups=GROUPS, default=stable(0.1), next=chained, scorers=SCORERS), {})
    assert [one.path for one in both.mistakes] == ["canary.policy", "canary.policy"]
    other = stable(0.1).replace("name: default", "name: other").replace("[auto]", "[auto-other]")
    twice = review(write(tmp_path, groups=GROUPS, default=stable(0.1), next=NEXT, other=other, scorers=SCORERS), {})
    assert ["tried by" in one.message for one in twice.mistakes] == [True]
