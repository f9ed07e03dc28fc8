"""What a key or a tenant may use: refused over its limit and told when to return, reserved before, settled after."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from router.limits import Limits
from router.seams import Claim
from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import Reset, Seen, Step, Wait, chat
from tests.support.config_files import POLICY as ALONE
from tests.support.keyed import bearer, keyed
from tests.support.rig import Rig, groups

BODY = {"model": "auto", "messages": [{"role": "user", "content": "hello"}]}
MEMBERS = {"small": ["a"], "large": ["b"]}
PRICED = ", price: {input: 1000.0, output: 1000.0}"  # a tenth of a cent a token


async def ask(rig: Rig, key: str, score: float = 0.1, **fields: Any) -> httpx.Response:
    headers = bearer(key) | {"x-score": str(score)}
    return await rig.client.post("/v1/chat/completions", json=BODY | fields, headers=headers)


def _broken(seen: Seen) -> tuple[Step, ...]:
    return (Reset(),)


async def test_a_key_over_its_requests_a_minute_is_told_when_to_return_and_another_key_is_not_held_up(
    tmp_path: Path,
) -> None:
    keys = {"ci": "tenant: acme, requests_per_minute: 2", "ops": "tenant: acme"}
    async with ScriptedServer(chat("hi")) as a, keyed(tmp_path, groups({"a": a, "b": a}, MEMBERS), keys) as rig:
        assert [(await ask(rig, "ci")).status_code for _ in range(3)] == [200, 200, 429]
        reply = await ask(rig, "ci")
        assert reply.json()["error"]["code"] == "rate_limited"
        assert reply.json()["error"]["message"] == "the key ci is at its limit of 2 requests a minute"
        assert 1 <= int(reply.headers["retry-after"]) <= 30
        assert (await rig.client.get("/v1/models", headers=bearer("ci"))).status_code == 429
        assert (await ask(rig, "ops")).status_code == 200
        [newest, *_] = await rig.records(5)
        assert newest.outcome == "ok"
        refused = [one for one in await rig.records(5) if one.outcome == "refused"]
        assert len(refused) == 2
        assert {one.signals.key for one in refused if one.signals is not None} == {"ci"}
        assert 'pointsman_limited_total{limit="requests"} 3.0' in rig.gateway.metrics.render().decode()


async def test_a_limit_is_told_in_the_dialect_that_was_called(tmp_path: Path) -> None:
    keys = {"ci": "tenant: acme, requests_per_minute: 1"}
    async with ScriptedServer(chat("hi")) as a, keyed(tmp_path, groups({"a": a, "b": a}, MEMBERS), keys) as rig:
        await ask(rig, "ci")
        body = BODY | {"max_tokens": 10}
        reply = await rig.client.post("/v1/messages", json=body, headers=bearer("ci"))
        assert reply.status_code == 429
        assert reply.json()["type"] == "error"
        assert reply.json()["error"]["type"] == "rate_limit_error"


async def test_a_tenants_limit_counts_all_its_keys_and_a_new_key_brings_no_new_limit(tmp_path: Path) -> None:
    keys = {"one": "tenant: acme", "two": "tenant: acme", "other": "tenant: beta"}
    more = "tenants: {acme: {requests_per_minute: 2}}\n"
    async with ScriptedServer(chat("hi")) as a, keyed(tmp_path, groups({"a": a, "b": a}, MEMBERS), keys, more) as rig:
        assert [(await ask(rig, key)).status_code for key in ("one", "two", "one", "two")] == [200, 200, 429, 429]
        assert "the tenant acme" in (await ask(rig, "one")).json()["error"]["message"]
        assert (await ask(rig, "other")).status_code == 200


async def test_tokens_are_reserved_as_estimated_and_settled_as_reported(tmp_path: Path) -> None:
    keys = {"ci": "tenant: acme, tokens_per_minute: 3000"}
    async with ScriptedServer(chat("hi")) as a, keyed(tmp_path, groups({"a": a, "b": a}, MEMBERS), keys) as rig:
        # Each reserves some 1,030 tokens for an answer of two; unsettled, the third would be refused.
        assert [(await ask(rig, "ci")).status_code for _ in range(6)] == [200] * 6
        refused = await ask(rig, "ci", messages=[{"role": "user", "content": "word " * 4000}])
        assert refused.status_code == 429
        assert "3000 tokens a minute" in refused.json()["error"]["message"]


async def test_more_requests_than_a_key_may_have_at_once_wait_for_one_to_end(tmp_path: Path) -> None:
    keys = {"ci": "tenant: acme, concurrent: 2"}
    gate = asyncio.Event()

    def slow(seen: Seen) -> tuple[Step, ...]:
        return (Reset(),) if gate.is_set() else (Wait(0.4), *chat("hi")(seen))

    async with ScriptedServer(slow) as a, keyed(tmp_path, groups({"a": a, "b": a}, MEMBERS), keys) as rig:
        begun = [asyncio.create_task(ask(rig, "ci")) for _ in range(2)]
        while a.in_flight < 2:
            await asyncio.sleep(0.01)
        third = await ask(rig, "ci")
        assert third.status_code == 429
        assert third.headers["retry-after"] == "1"
        assert [reply.status_code for reply in await asyncio.gather(*begun)] == [200, 200]
        gate.set()  # every call now breaks off: failures free their slots as well
        assert 429 not in {(await ask(rig, "ci")).status_code for _ in range(4)}


async def test_a_client_that_leaves_frees_its_slot(tmp_path: Path) -> None:
    keys = {"ci": "tenant: acme, concurrent: 1"}
    async with (
        ScriptedServer(lambda seen: (Wait(30.0),)) as a,
        keyed(tmp_path, groups({"a": a, "b": a}, MEMBERS), keys) as rig,
    ):
        left = asyncio.create_task(ask(rig, "ci"))
        while not a.in_flight:
            await asyncio.sleep(0.01)
        left.cancel()
        await asyncio.gather(left, return_exceptions=True)
        a.script = chat("hi")
        for _ in range(100):
            if (await ask(rig, "ci")).status_code == 200:
                return
            await asyncio.sleep(0.02)
        raise AssertionError("the slot was not given back")


async def test_dollars_are_counted_by_what_answers_cost_and_the_day_ends_the_limit(tmp_path: Path) -> None:
    keys = {"ci": "tenant: acme, dollars_per_day: 1.2"}
    async with ScriptedServer(chat("hi")) as a, keyed(tmp_path, groups({"a": a, "b": a}, MEMBERS, PRICED), keys) as rig:
        first = await ask(rig, "ci")
        assert first.status_code == 200
        [record] = await rig.records(1)
        assert record.cost is not None
        assert 0 < record.cost < 0.1, "the answer cost far less than was reserved"
        assert (await ask(rig, "ci")).status_code == 200, "what was not used was given back"
        more = await ask(rig, "ci", messages=[{"role": "user", "content": "word " * 1000}])
        assert more.status_code == 429
        assert "1.2 US dollars a day" in more.json()["error"]["message"]
        assert int(more.headers["retry-after"]) <= 86400


async def test_a_group_whose_quota_is_used_up_is_replaced_by_the_policys_fallback(tmp_path: Path) -> None:
    keys = {"ci": "tenant: acme, quota: {large: 2}", "ops": "tenant: acme"}
    async with (
        ScriptedServer(chat("hi")) as a,
        ScriptedServer(chat("hi")) as b,
        keyed(tmp_path, groups({"a": a, "b": b}, MEMBERS), keys) as rig,
    ):
        for _ in range(5):
            assert (await ask(rig, "ci", score=0.1)).headers["x-pointsman-group"] == "small"
        served = [(await ask(rig, "ci", score=0.9)).headers["x-pointsman-group"] for _ in range(4)]
        assert served == ["large", "large", "small", "small"]
        assert len(b.visits) == 2
        assert 'pointsman_limited_total{limit="quota"} 2.0' in rig.gateway.metrics.render().decode()
        assert (await ask(rig, "ops", score=0.9)).headers["x-pointsman-group"] == "large"
        told = await rig.client.post("/v1/decision", json=BODY, headers=bearer("ci") | {"x-score": "0.9"})
        assert told.json()["group"] == "large"
        assert told.json()["deployment"] == "a"
        assert "quota" in told.text
        a.script = _broken  # the small group fails: the large one is still not asked
        assert (await ask(rig, "ci", score=0.1)).status_code == 502
        assert len(b.visits) == 3


async def test_without_a_fallback_a_used_up_quota_is_refused(tmp_path: Path) -> None:
    keys = {"ci": "tenant: acme, quota: {large: 1}"}
    async with (
        ScriptedServer(chat("hi")) as a,
        keyed(tmp_path, groups({"a": a, "b": a}, MEMBERS), keys, policy=ALONE) as rig,
    ):
        assert (await ask(rig, "ci", score=0.9)).status_code == 200
        for model in ("auto", "large"):
            reply = await ask(rig, "ci", score=0.9, model=model)
            assert reply.status_code == 429
            assert reply.json()["error"]["message"] == "the quota of group large is used up for today"
            assert 1 <= int(reply.headers["retry-after"]) <= 86400
        assert (await ask(rig, "ci", score=0.1)).status_code == 200


async def test_limits_that_cannot_be_reached_cost_the_count_and_not_the_request(tmp_path: Path) -> None:
    class Gone:
        errors = 0

        async def take(self, claims: Sequence[Claim], holder: str) -> list[float | None]:
            raise ConnectionError("down")

        async def settle(self, claims: Sequence[Claim], holder: str) -> None:
            raise ConnectionError("down")

        async def aclose(self) -> None: ...

    keys = {"ci": "tenant: acme, requests_per_minute: 1, concurrent: 1"}
    async with ScriptedServer(chat("hi")) as a, keyed(tmp_path, groups({"a": a, "b": a}, MEMBERS), keys) as rig:
        rig.gateway.service.limits = Limits(Gone(), rig.gateway.metrics.limited)
        assert [(await ask(rig, "ci")).status_code for _ in range(3)] == [200, 200, 200]
