"""Who may use a gateway: keys are presented, recognised, rotated, expire and are revoked; what each may ask for."""

from __future__ import annotations

import asyncio
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import pytest

from router.app import OPEN, PATHS
from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import Seen, Step, chat
from tests.support.keyed import bearer, keyed, keys_yaml, token
from tests.support.rig import POLICY, Rig, groups, running

BODY = {"model": "auto", "messages": [{"role": "user", "content": "hello"}]}
MEMBERS = {"small": ["a"], "large": ["b"]}
LISTED = [*PATHS, "/v1/decision", "/v1/feedback", "/v1/messages/count_tokens", "/v1/models", "/v1/models/auto", "/"]


async def ask(rig: Rig, headers: dict[str, str], **fields: Any) -> httpx.Response:
    return await rig.client.post("/v1/chat/completions", json=BODY | fields, headers={"x-score": "0.1"} | headers)


async def test_a_key_is_presented_as_bearer_or_as_x_api_key_and_its_names_are_recorded(tmp_path: Path) -> None:
    async with (
        ScriptedServer(chat("hi")) as a,
        keyed(tmp_path, groups({"a": a, "b": a}, MEMBERS), {"ci": "tenant: acme"}) as rig,
    ):
        for headers in (bearer("ci"), {"x-api-key": token("ci")}, {"authorization": f"bearer {token('ci')}"}):
            assert (await ask(rig, headers)).status_code == 200
        for record in await rig.records(3):
            assert record.signals is not None
            assert (record.signals.tenant, record.signals.key) == ("acme", "ci")


@pytest.mark.parametrize("name", ["authorization", "x-api-key"])
async def test_X04_a_key_that_is_given_twice_is_refused_whichever_comes_first(tmp_path: Path, name: str) -> None:
    async with (
        ScriptedServer(chat("hi")) as a,
        keyed(tmp_path, groups({"a": a, "b": a}, MEMBERS), {"ci": "tenant: acme"}) as rig,
    ):
        good, bad = (f"Bearer {token('ci')}", "Bearer x") if name == "authorization" else (token("ci"), "x")
        for both in ([(name, good), (name, bad)], [(name, bad), (name, good)]):
            assert (await rig.client.post("/v1/chat/completions", json=BODY, headers=both)).status_code == 400
            assert (await rig.client.get("/v1/models", headers=both)).status_code == 400
        assert a.visits == []


async def test_X04_every_path_but_the_two_of_probes_is_refused_without_a_key(tmp_path: Path) -> None:
    async with (
        ScriptedServer(chat("hi")) as a,
        keyed(tmp_path, groups({"a": a, "b": a}, MEMBERS), {"ci": "tenant: acme"}) as rig,
    ):
        strangers: tuple[dict[str, str], ...] = (
            {},
            bearer("nobody"),
            {"authorization": "Basic Y2k6Y2k="},
            {"x-api-key": ""},
        )
        for path, method, headers in product(LISTED, ("GET", "POST"), strangers):
            reply = await rig.client.request(method, path, headers=headers, json=BODY)
            assert reply.status_code == 401
            assert reply.headers["www-authenticate"] == "Bearer"
            assert "key" in reply.json()["error"]["message"]
            if not path.startswith("/v1/messages"):
                assert reply.json()["error"]["code"] == "invalid_api_key"
            else:
                assert reply.json()["error"]["type"] == "authentication_error"
        for open_ in OPEN:
            assert (await rig.client.get(open_)).status_code == 200
        assert a.visits == []


async def test_strangers_are_counted_and_leave_no_record(tmp_path: Path) -> None:
    async with (
        ScriptedServer(chat("hi")) as a,
        keyed(tmp_path, groups({"a": a, "b": a}, MEMBERS), {"ci": "tenant: acme"}) as rig,
    ):
        await ask(rig, {})
        await ask(rig, bearer("nobody"))
        assert (await ask(rig, bearer("ci"))).status_code == 200
        assert len(await rig.records(1)) == 1
        await asyncio.sleep(0.2)
        await asyncio.to_thread(rig.gateway.recorder.flush)
        assert len(await asyncio.to_thread(lambda: list(rig.gateway.recorder.reader.recent(100)))) == 1


async def test_X06_the_clients_key_reaches_no_upstream_even_where_a_policy_reads_that_header(tmp_path: Path) -> None:
    policy = """\
version: 1
name: default
models: [auto]
routes:
  - {name: odd, when: {headers: {authorization: nobody, x-api-key: nobody}}, group: large}
default: small
"""
    seen: list[Seen] = []

    def script(one: Seen) -> tuple[Step, ...]:
        seen.append(one)
        return tuple(chat("hi")(one))

    async with (
        ScriptedServer(script) as a,
        keyed(tmp_path, groups({"a": a, "b": a}, MEMBERS), {"ci": "tenant: acme"}, policy=policy) as rig,
    ):
        reply = await ask(rig, bearer("ci") | {"x-api-key": token("ci")})
        assert reply.status_code == 200
        [record] = await rig.records(1)
        assert token("ci") not in repr(record)
        assert token("ci") not in repr(seen[0])
        assert len(seen) == 1


async def test_two_keys_of_a_tenant_serve_side_by_side_until_the_old_one_is_revoked(tmp_path: Path) -> None:
    async with (
        ScriptedServer(chat("hi")) as a,
        keyed(tmp_path, groups({"a": a, "b": a}, MEMBERS), {"old": "tenant: acme"}) as rig,
    ):
        file = rig.config / "keys.yaml"
        digest = rig.gateway.snapshot.config.digest
        file.write_text(keys_yaml({"old": "tenant: acme", "new": "tenant: acme"}))
        await rig.gateway.reload()
        assert [(await ask(rig, bearer(name))).status_code for name in ("old", "new")] == [200, 200]
        file.write_text(keys_yaml({"new": "tenant: acme"}))
        await rig.gateway.reload()
        assert [(await ask(rig, bearer(name))).status_code for name in ("old", "new")] == [401, 200]
        file.write_text(keys_yaml({}))
        await rig.gateway.reload()
        assert (await ask(rig, bearer("new"))).status_code == 401, "no key left lets nobody in"
        assert rig.gateway.snapshot.config.digest == digest, "who may come in is no part of how requests are routed"


async def test_a_key_past_its_time_is_refused_and_says_so(tmp_path: Path) -> None:
    keys = {"old": "tenant: acme, expires: 2020-01-31", "new": "tenant: acme, expires: 2999-01-31T12:00:00Z"}
    async with (
        ScriptedServer(chat("hi")) as a,
        keyed(tmp_path, groups({"a": a, "b": a}, MEMBERS), keys) as rig,
    ):
        assert (await ask(rig, bearer("new"))).status_code == 200
        reply = await ask(rig, bearer("old"))
        assert reply.status_code == 401
        assert "expired at 2020-01-31T00:00:00Z" in reply.json()["error"]["message"]


async def test_X11_a_key_sees_and_reaches_only_its_models(tmp_path: Path) -> None:
    keys = {"ci": "tenant: acme, models: [auto]", "ops": "tenant: acme"}
    async with (
        ScriptedServer(chat("hi")) as a,
        keyed(tmp_path, groups({"a": a, "b": a}, MEMBERS), keys) as rig,
    ):
        listed = (await rig.client.get("/v1/models", headers=bearer("ci"))).json()["data"]
        assert [one["id"] for one in listed] == ["auto"]
        assert (await ask(rig, bearer("ci"))).status_code == 200
        for name in ("large", "no-such-model"):
            hidden = await rig.client.get(f"/v1/models/{name}", headers=bearer("ci"))
            asked = await ask(rig, bearer("ci"), model=name)
            told = await rig.client.post("/v1/decision", json=BODY | {"model": name}, headers=bearer("ci"))
            assert [r.status_code for r in (hidden, asked, told)] == [404, 404, 404]
            assert f"'{name}' does not exist" in asked.json()["error"]["message"]
        assert (await ask(rig, bearer("ops"), model="large")).status_code == 200


async def test_a_tenant_may_have_a_route_of_its_own(tmp_path: Path) -> None:
    policy = """\
version: 1
name: default
models: [auto]
routes:
  - {name: gold, when: {tenant: gold}, group: large}
  - {name: batch, when: {key: nightly}, group: small}
default: large
"""
    keys = {"web": "tenant: gold", "nightly": "tenant: acme"}
    async with (
        ScriptedServer(chat("hi")) as a,
        keyed(tmp_path, groups({"a": a, "b": a}, MEMBERS), keys, policy=policy) as rig,
    ):
        routes = [(await ask(rig, bearer(name))).headers["x-pointsman-route"] for name in ("web", "nightly")]
        assert routes == ["gold", "batch"]


ODD = (b"' OR 1=1 --", b"\x80\xff\xfe", b"pm_" + b"a" * 32_000, b"*3\\r\\nFLUSHALL", "pm_ключ".encode(), b"x\tpm_y")


async def test_X03_X07_an_odd_key_is_an_unknown_key(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with (
        ScriptedServer(chat("hi")) as a,
        keyed(tmp_path, groups({"a": a, "b": a}, MEMBERS), {"ci": "tenant: acme"}) as rig,
    ):
        for presented in ODD:
            for headers in ({b"authorization": b"Bearer " + presented}, {b"x-api-key": presented}):
                reply = await rig.client.post("/v1/chat/completions", json=BODY, headers=headers)
                assert reply.status_code == 401
                assert presented not in reply.content
            assert presented.decode("latin-1")[:20] not in caplog.text


async def test_without_keys_none_is_asked_for_on_loopback(tmp_path: Path) -> None:
    async with ScriptedServer(chat("hi")) as a, running(tmp_path, groups({"a": a, "b": a}, MEMBERS)) as rig:
        assert (await ask(rig, {})).status_code == 200
        assert (await ask(rig, bearer("whatever"))).status_code == 200


async def test_an_expired_or_unknown_key_is_refused_before_a_body_is_read(tmp_path: Path) -> None:
    async with (
        ScriptedServer(chat("hi")) as a,
        keyed(tmp_path, groups({"a": a, "b": a}, MEMBERS), {"ci": "tenant: acme"}) as rig,
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", rig.port)
        head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 20000000\r\n\r\n"
        writer.write(head.encode())
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n"), 5)
        assert b" 401 " in answer
        writer.close()


async def test_a_tenant_says_for_itself_whether_records_hold_its_prompts_and_keys_in_them_are_replaced(
    tmp_path: Path,
) -> None:
    tenants = "tenants: {acme: {record_prompts: false}, lab: {record_prompts: true}}\n"
    keys = {"a": "tenant: acme", "l": "tenant: lab", "o": "tenant: other"}
    said = {"messages": [{"role": "user", "content": "sk-abcdefghijklmnop0123 is my key"}]}
    for kept in (True, False):
        (tmp_path / str(kept)).mkdir()
        policy = POLICY + f"record_prompts: {str(kept).lower()}\n"
        async with (
            ScriptedServer(chat("hi")) as server,
            keyed(
                tmp_path / str(kept), groups({"a": server, "b": server}, MEMBERS), keys, tenants, policy=policy
            ) as rig,
        ):
            for name in keys:
                await ask(rig, bearer(name), **said)
            prompts = {r.signals.tenant: r.prompt for r in await rig.records(3) if r.signals is not None}
        written = "[key] is my key"
        assert prompts == {"acme": None, "lab": written, "other": written if kept else None}
