"""The admin port: what it shows, what it changes, and to whom it does not answer."""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from prometheus_client.parser import text_string_to_metric_families

from router import admin
from router.admin.page import page
from router.changes import Changes
from router.config import Config, Deployment, Group, Policy
from router.errors import ConfigError
from router.health import Health
from router.judging.alarms import Alarms
from router.metrics import Metrics
from router.records import Feedback, SqlRecorder
from router.seams import Presence
from router.steering import Steering
from router.trials import Trials
from router.types import Attempt, Decision, Record, Score, Timing, Usage

DEPLOYMENTS = {
    "small-a": Deployment(
        name="small-a", upstream="openai", base_url="http://user:s3cr3t@127.0.0.1:9001/v1?key=s3cr3t", api_key="s3cr3t"
    ),
    "large-a": Deployment(name="large-a", upstream="openai", base_url="http://127.0.0.1:9002/v1", model="m-large"),
    "spare": Deployment(name="spare", upstream="openai", base_url="http://127.0.0.1:9003/v1"),
}
POLICY = Policy(name="default", models=("auto",), default="large")
CONFIG = Config(
    policies={"default": POLICY},
    models={"auto": POLICY},
    groups={name: Group(name=name, deployments=(f"{name}-a",)) for name in ("small", "large")},
    deployments=DEPLOYMENTS,
    scorers={},
    digest="c" * 64,
)


class Snapshot:
    def __init__(self, config: Config, generation: int) -> None:
        self.config, self.generation = config, generation


class Unjudged:
    """No policy has `judge`; what is shown of one that has, `test_judging` tells."""

    def __init__(self, metrics: Metrics) -> None:
        self.alarms = Alarms(metrics)

    async def found(self) -> list[Any]:
        return []


class Gateway:
    """As much of a gateway as the admin port asks for; the parts are the real ones."""

    def __init__(self, folder: Path) -> None:
        self.started = 1000.0
        self.draining = False
        self.config_ok = True
        self.last_error: str | None = None
        self.others: tuple[Presence, ...] = ()
        self.next: Config | None = None  # what the files hold; None = they are refused
        self.snapshot = Snapshot(CONFIG, 1)
        self.metrics = Metrics(CONFIG)
        self.health = Health()
        self.steering = Steering(self.metrics, Changes(None))
        self.trials = Trials(self.metrics, Changes(None))
        self.judging = Unjudged(self.metrics)
        url = f"sqlite:///{folder / 'records.sqlite3'}"
        self.recorder = SqlRecorder(url, linger_s=0.01, clock=lambda: 1000.0)
        self.recorder.flush()

    def places(self) -> dict[str, int]:
        return {}

    def waiting(self) -> dict[str, int]:
        return {"small": 0}

    async def reload(self) -> bool:
        if self.next is None:
            self.config_ok, self.last_error = False, "default.yaml:3:1: default: no group is called big"
            return False
        self.snapshot = Snapshot(self.next, self.snapshot.generation + 1)
        return True


def make(number: int, **given: Any) -> Record:
    base = Record(
        id=f"r{number}",
        time=1000.0 + number,
        policy="default",
        digest="c" * 64,
        dialect="chat",
        model="auto",
        stream=False,
        signals=None,
        scores={"difficulty": Score(scorer="difficulty", value=0.25)},
        decision=Decision(policy="default", route="default", group="small", why="score", score=0.25, threshold=0.5),
        attempts=(Attempt(deployment="small-a", group="small", status=200),),
        usage=Usage(input=10, output=5),
        timing=Timing(ttft_s=0.1, total_s=0.4),
        cost=0.25,
        cost_large=1.0,
    )
    return msgspec.structs.replace(base, **given)


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    made = Gateway(tmp_path)
    yield made
    made.recorder.close()


def client_of(app: FastAPI, host: str = "127.0.0.1:9090") -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=f"http://{host}")


@pytest.fixture
async def client(gateway: Gateway) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(admin.build(gateway)) as made:
        yield made


def record(gateway: Gateway, *records: Record) -> None:
    for each in records:
        gateway.recorder.write(each)
        gateway.metrics.observe(each)
    gateway.recorder.flush()


async def test_the_configuration_in_force_is_shown_by_digest_and_generation(client: httpx.AsyncClient):
    shown = (await client.get("/admin/config")).json()
    assert (shown["digest"], shown["generation"], shown["reload_ok"]) == ("c" * 64, 1, True)
    assert [worker["generation"] for worker in shown["workers"]] == [1]


async def test_a_reload_that_is_taken_shows_the_new_digest(gateway: Gateway, client: httpx.AsyncClient):
    gateway.next = replace(CONFIG, digest="e" * 64)
    reply = await client.post("/admin/reload")
    assert (reply.status_code, reply.json()["digest"], reply.json()["generation"]) == (200, "e" * 64, 2)


async def test_a_reload_that_is_refused_says_where_and_keeps_the_old(client: httpx.AsyncClient):
    reply = await client.post("/admin/reload")
    assert (reply.status_code, reply.json()["digest"]) == (422, "c" * 64)
    assert "default.yaml:3:1" in reply.json()["reload_error"]


async def test_records_come_newest_first_in_the_contracts_shape_and_can_be_filtered(
    gateway: Gateway, client: httpx.AsyncClient
):
    record(gateway, make(1), make(2, outcome="timeout", attempts=()), make(3))

    async def ids(query: str) -> list[str]:
        return [r["id"] for r in (await client.get(f"/admin/records{query}")).json()["records"]]

    assert await ids("") == ["r3", "r2", "r1"]
    assert await ids("?limit=1") == ["r3"]
    assert await ids("?outcome=timeout&policy=default&group=small") == ["r2"]
    assert await ids("?since=1002") == ["r3", "r2"]
    assert await ids("?since=1970-01-01T00:16:43Z") == ["r3"]
    assert await ids("?group=%27%20OR%201=1--") == []
    (newest,) = (await client.get("/admin/records?limit=1")).json()["records"]
    assert newest["decision"]["route"] == "default"
    assert newest["scores"] == {"difficulty": 0.25}


@pytest.mark.parametrize("query", ["limit=0", "limit=5000", "limit=many", "since=yesterday", "since=nan"])
async def test_a_parameter_that_cannot_be_meant_is_a_400_that_names_it(client: httpx.AsyncClient, query: str):
    reply = await client.get(f"/admin/records?{query}")
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == query.partition("=")[0]


async def test_one_record_is_shown_whole_with_the_feedback_on_it(gateway: Gateway, client: httpx.AsyncClient):
    record(gateway, make(1))
    gateway.recorder.feedback(Feedback(request_id="r1", time=2.0, score=1.0, label="good"))
    gateway.recorder.flush()
    shown = (await client.get("/admin/records/r1")).json()
    assert shown["attempts"][0]["deployment"] == "small-a"
    assert shown["feedback"] == [{"time": 2.0, "score": 1.0, "label": "good", "tenant": ""}]


@pytest.mark.parametrize("path", ["/admin/records/nobody", "/admin/nothing", "/nothing"])
async def test_what_is_not_there_is_a_404_in_json(client: httpx.AsyncClient, path: str):
    reply = await client.get(path)
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "not_found")


async def test_records_without_a_database_are_a_503_and_the_rest_goes_on(gateway: Gateway, tmp_path: Path):
    gateway.recorder.close()
    gateway.recorder = SqlRecorder(f"sqlite:///{tmp_path}/missing/records.sqlite3", back_off_s=(0.01, 0.01))
    async with client_of(admin.build(gateway)) as client:
        assert (await client.get("/admin/records")).status_code == 503
        assert (await client.get("/admin/groups")).status_code == 200
        assert (await client.get("/metrics")).status_code == 200


async def test_groups_show_deployments_with_health_and_load_and_those_unused(
    gateway: Gateway, client: httpx.AsyncClient
):
    gateway.health.begin("small-a")
    shown = (await client.get("/admin/groups")).json()
    small = next(group for group in shown["groups"] if group["name"] == "small")
    assert (small["deployments"][0]["in_flight"], small["deployments"][0]["up"]) == (1, True)
    assert [d["name"] for d in shown["unused"]] == ["spare"]


async def test_draining_takes_a_deployment_out_and_undraining_brings_it_back(
    gateway: Gateway, client: httpx.AsyncClient
):
    async def up() -> float:
        families = text_string_to_metric_families((await client.get("/metrics")).text)
        family = next(f for f in families if f.name == "pointsman_deployment_up")
        return next(s.value for s in family.samples if s.labels["deployment"] == "small-a")

    assert (await client.post("/admin/deployments/small-a/drain")).json() == {"deployment": "small-a", "draining": True}
    assert await up() == 0
    assert (await client.post("/admin/deployments/small-a/undrain")).status_code == 200
    assert await up() == 1
    assert (await client.post("/admin/deployments/nobody/drain")).status_code == 404


async def test_requests_are_counted_by_route_and_group_with_cost_and_savings(
    gateway: Gateway, client: httpx.AsyncClient
):
    record(gateway, make(1), make(2, dialect="messages"))
    shown = (await client.get("/admin/requests")).json()
    row = {"policy": "default", "route": "other", "group": "small", "outcome": "ok", "count": 2}
    assert shown["requests"] == [row | {"route": "default"}]
    assert (shown["cost"], shown["savings"], shown["records"]) == (0.5, 1.5, {"written": 2, "dropped": 0})


async def test_quality_claims_nothing_without_samples(client: httpx.AsyncClient):
    shown = (await client.get("/admin/quality")).json()
    assert (shown["samples"], shown["policies"]) == (0, [])
    assert "No policy has `judge`" in shown["note"]


async def test_metrics_are_prometheus_text_with_the_recorders_counts(gateway: Gateway, client: httpx.AsyncClient):
    record(gateway, make(1))
    reply = await client.get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "pointsman_records_written_total 1.0" in reply.text


async def test_the_dashboard_needs_nothing_from_elsewhere_and_may_run_only_its_own_files(client: httpx.AsyncClient):
    home = (await client.get("/")).text
    named = re.findall(r'(?:src|href)="(static/[^"]+)"', home)
    assert len(named) >= 5
    for name in ["", *named]:
        reply = await client.get(f"/{name}")
        assert reply.status_code == 200, name
        policy = reply.headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
        assert "unsafe" not in policy
    assert not re.search(r"<script>|<style|style=|\son\w+=", home)


def test_the_dashboards_own_scripts_never_make_html_of_a_value():
    own = [path for path in page() if path.endswith(".js") and "uPlot" not in path]
    assert len(own) >= 6
    for path in own:
        text = page()[path].content.decode()
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", text), path
        assert max(map(len, text.splitlines())) <= 120, path


def test_the_vendored_files_come_with_their_licence():
    assert b"MIT License" in page()["/static/uPlot.LICENSE"].content
    notice = (Path(__file__).parents[2] / "NOTICE").read_text()
    assert "uPlot" in notice


async def test_no_credential_is_in_any_answer(gateway: Gateway, client: httpx.AsyncClient):
    record(gateway, make(1))
    for path in (
        "/",
        "/metrics",
        "/admin/config",
        "/admin/groups",
        "/admin/records",
        "/admin/records/r1",
        "/admin/requests",
    ):
        assert "s3cr3t" not in (await client.get(path)).text, path


# --- who may ask -----------------------------------------------------------------------------------------


def paths(app: FastAPI) -> list[tuple[str, str]]:
    routes = [r for r in app.routes if isinstance(r, APIRoute)]
    names = [r.path.format(request_id="x", name="small-a") for r in routes if not r.path.startswith("/static/")]
    methods = {r.path.format(request_id="x", name="small-a"): sorted(r.methods) for r in routes}
    found = [(method, name) for name in names for method in methods[name]]
    assert len(found) >= 11
    return [*found, ("GET", "/docs"), ("GET", "/openapi.json"), ("GET", "//admin/config"), ("GET", "/admin/%63onfig")]


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "127.0.0.1@evil.example:9090", "10.0.0.1:9090", "[::2]:9090", ""]
)
async def test_X04_on_loopback_another_hosts_name_reaches_no_path(gateway: Gateway, host: str):
    app = admin.build(gateway)
    async with client_of(app) as client:
        for method, path in paths(app):
            reply = await client.request(method, path, headers={"host": host})
            assert reply.status_code == 421, (method, path)


@pytest.mark.parametrize("host", ["127.0.0.1:9090", "localhost:9090", "LOCALHOST", "[::1]:9090", "127.0.0.1"])
async def test_on_loopback_its_own_names_pass(gateway: Gateway, host: str):
    async with client_of(admin.build(gateway)) as client:
        assert (await client.get("/admin/config", headers={"host": host})).status_code == 200


def test_an_open_address_without_a_token_is_refused_at_the_start(gateway: Gateway):
    with pytest.raises(ConfigError, match="POINTSMAN_ADMIN_TOKEN"):
        admin.build(gateway, host="0.0.0.0")


def basic(password: str) -> str:
    return "Basic " + base64.b64encode(f"admin:{password}".encode()).decode()


@pytest.mark.parametrize(
    "value", [None, "", "Bearer", "Bearer wrong", "Bearer ", "Basic !", basic("wrong"), "token", "Bearer t\u00e4"]
)
async def test_X04_X07_with_a_token_no_path_answers_without_it(gateway: Gateway, value: str | None):
    app = admin.build(gateway, host="0.0.0.0", token="right-token")
    headers = {} if value is None else {"authorization": value.encode()}
    async with client_of(app, "10.0.0.1:9090") as client:
        for method, path in paths(app):
            reply = await client.request(method, path, headers=headers)
            assert (reply.status_code, reply.json()["error"]["code"]) == (401, "invalid_admin_token"), (method, path)


async def test_a_browser_without_the_token_gets_the_page_that_asks_for_it_and_nothing_else(gateway: Gateway):
    app = admin.build(gateway, host="0.0.0.0", token="right-token")
    async with client_of(app, "10.0.0.1:9090") as client:
        shown = await client.get("/", headers={"accept": "text/html,*/*"})
        assert (shown.status_code, "www-authenticate" in shown.headers) == (401, False)
        assert "sign-in" in shown.text
        assert shown.headers["x-frame-options"] == "DENY"
        assert (await client.get("/static/main.js")).status_code == 200
        assert (await client.get("/static/../admin/config")).status_code == 401
        assert (await client.get("/static/nothing.js")).status_code == 401
        asked = await client.get("/admin/config", headers={"sec-fetch-dest": "empty"})
        assert (asked.status_code, "www-authenticate" in asked.headers) == (401, False)
        assert "www-authenticate" in (await client.get("/docs", headers={"accept": "text/html"})).headers


@pytest.mark.parametrize("value", ["Bearer right-token", "bearer right-token", basic("right-token")])
async def test_with_the_token_it_answers_by_any_name(gateway: Gateway, value: str):
    app = admin.build(gateway, host="0.0.0.0", token="right-token")
    async with client_of(app, "gateway.internal:9090") as client:
        assert (await client.get("/metrics", headers={"authorization": value})).status_code == 200


@pytest.mark.parametrize(
    "header", [{"origin": "https://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}]
)
async def test_another_sites_page_changes_nothing(gateway: Gateway, client: httpx.AsyncClient, header: dict[str, str]):
    assert (await client.post("/admin/deployments/small-a/drain", headers=header)).status_code == 403
    assert not gateway.health.of("small-a", 0.0)["draining"]


async def test_the_dashboards_own_page_may_change_things(client: httpx.AsyncClient):
    headers = {"origin": "http://127.0.0.1:9090", "sec-fetch-site": "same-origin"}
    assert (await client.post("/admin/deployments/small-a/undrain", headers=headers)).status_code == 200


async def test_the_documentation_is_on(client: httpx.AsyncClient):
    assert (await client.get("/docs")).status_code == 200
    assert "/admin/records" in (await client.get("/openapi.json")).json()["paths"]
