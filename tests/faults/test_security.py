"""What an attacker tries on a running gateway: keys passed by, requests smuggled, addresses and headers injected,
secrets drawn out of answers, logs, metrics and records; and what the sources and the locked packages may not hold."""

from __future__ import annotations

import asyncio
import io
import json
import re
from pathlib import Path

import pytest
from packaging.version import Version

from router import logs
from router.app import OPEN, PATHS, rest
from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import Head, Seen, Step, chat, status
from tests.faults.test_front import said
from tests.support.keyed import bearer, keyed, token
from tests.support.rig import Rig, groups, running

ROOT = Path(__file__).parents[2]
MEMBERS = {"small": ["a"], "large": ["a"]}
BODY = {"model": "auto", "messages": [{"role": "user", "content": "hello"}]}
RAW = json.dumps(BODY).encode()
SECRET = "sk-canary-of-the-upstream"


def config(*servers: ScriptedServer) -> str:
    return groups({"a": servers[0]}, MEMBERS).replace("api_key: none", f"api_key: {SECRET}")


# --- keys ------------------------------------------------------------------------------------------------

INVENTORY = {
    *(("POST", path) for path in PATHS),
    *(("GET", path) for path in ("/", "/healthz", "/readyz", "/v1/models", "/v1/models/{name:path}")),
    *(("HEAD", path) for path in ("/", "/healthz", "/readyz")),
    *(("POST", path) for path in ("/v1/messages/count_tokens", "/v1/decision", "/v1/feedback")),
}


async def test_X05_the_data_port_has_these_paths_and_no_other(tmp_path: Path) -> None:
    """None of them takes a command, code, a template or a path; each but two needs a key where there are keys."""
    async with ScriptedServer(chat("hi")) as a, running(tmp_path, config(a)) as rig:
        api = rest(rig.gateway.service, rig.gateway)
        found = {(method, route.path) for route in api.routes for method in route.methods}
        assert found | {("POST", path) for path in PATHS} == INVENTORY
        assert {path for _, path in INVENTORY} >= OPEN == {"/healthz", "/readyz"}


async def test_X04_no_odd_host_or_spelling_of_a_path_passes_by_the_key(tmp_path: Path) -> None:
    hosts = (b"127.0.0.1", b"127.0.0.1/healthz", b"x?/healthz", b"x#/healthz", b"healthz@x", b"", b"/healthz")
    targets = [path.replace("{name:path}", "auto").encode() for _, path in INVENTORY if path not in OPEN]
    spelt = [
        *targets,
        b"//v1/models",
        b"/v1//models",
        b"/healthz/../v1/models",
        b"/healthz%2f..%2fv1/models",
        b"/V1/MODELS",
        b"/v1/models;/healthz",
        b"/v1/models?/healthz",
        b"/v1/models/",
        b"http://x/v1/models",
        b"http://127.0.0.1/healthz/../v1/models",
    ]
    async with ScriptedServer(chat("hi")) as a, keyed(tmp_path, config(a), {"ci": "tenant: acme"}) as rig:
        for method in (b"GET", b"POST"):
            requests = [
                b"%b %b HTTP/1.1\r\nhost: %b\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b"
                % (method, target, host, len(RAW), RAW)
                for target, host in [(t, hosts[0]) for t in spelt] + [(b"/v1/models", h) for h in hosts]
            ]
            for one in requests:
                answer = await said(rig.port, one)
                assert re.match(rb"HTTP/1\.1 (400|401|404) ", answer), (one[:80], answer[:200])
                assert b'"auto"' not in answer
        assert a.visits == []


PAGES = {  # what a browser sends for a page of these: Host, Origin
    "another site's page": (b"127.0.0.1:%d", b"https://evil.example"),
    "one whose name means 127.0.0.1 now": (b"evil.example:%d", b"http://evil.example:%d"),
    "the same, where it only reads": (b"evil.example:%d", None),
    "a name that begins as ours": (b"127.0.0.1.evil.example:%d", None),
    "a name that ends as ours": (b"evil-localhost.example", None),
    "a page of nowhere": (b"127.0.0.1:%d", b"null"),
    "an origin that begins as ours": (b"localhost:%d", b"http://localhost.evil.example"),
    "one with a name before an @": (b"127.0.0.1:%d", b"http://127.0.0.1@evil.example"),
}
OURS = {
    "an SDK": (b"127.0.0.1:%d", None),
    "a name of this machine": (b"localhost:%d", None),
    "an address of six": (b"[::1]:%d", None),
    "a page of this machine": (b"localhost:%d", b"http://localhost:3000"),
    "the gateway's own page": (b"127.0.0.1:%d", b"http://127.0.0.1:%d"),
    "an editor": (b"localhost:%d", b"vscode-webview://1a2b3c"),
    "a container's name for it": (b"gateway:%d", None),
}


def as_page(port: int, host: bytes, origin: bytes | None, target: bytes = b"POST /v1/chat/completions") -> bytes:
    def at(value: bytes) -> bytes:
        return value % port if b"%d" in value else value

    extra = b"" if origin is None else b"origin: %b\r\n" % at(origin)
    head = b"%b HTTP/1.1\r\nhost: %b\r\n%bconnection: close\r\ncontent-length: %d\r\n\r\n"
    return head % (target, at(host), extra, len(RAW)) + RAW


async def test_X04_without_keys_no_strangers_page_may_ask_and_this_machines_programs_may(tmp_path: Path) -> None:
    async with ScriptedServer(chat("hi")) as a, running(tmp_path, config(a)) as rig:
        targets = (b"POST /v1/chat/completions", b"POST /v1/chat/completions/", b"POST /v1/decision", b"GET /v1/models")
        for name, (host, origin) in PAGES.items():
            for target in targets:
                answer = await said(rig.port, as_page(rig.port, host, origin, target))
                assert answer.startswith(b"HTTP/1.1 403 "), (name, target, answer[:200])
                assert b'"code":"foreign_page"' in answer
        assert a.visits == []
        for name, (host, origin) in OURS.items():
            answer = await said(rig.port, as_page(rig.port, host, origin))
            assert answer.startswith(b"HTTP/1.1 200 "), (name, answer[:200])
        lives = await said(rig.port, b"GET /readyz HTTP/1.1\r\nhost: probe.example\r\nconnection: close\r\n\r\n")
        assert lives.startswith(b"HTTP/1.1 200 ")
        assert len(await rig.records(len(OURS))) == len(OURS), "strangers leave no record"


async def test_who_says_open_to_everyone_or_has_keys_is_asked_no_host(tmp_path: Path) -> None:
    host, origin = b"router.example", b"https://app.example"
    async with ScriptedServer(chat("hi")) as a:
        async with running(tmp_path, config(a), open_to_everyone=True) as rig:
            assert (await said(rig.port, as_page(rig.port, host, origin))).startswith(b"HTTP/1.1 200 ")
        folder = tmp_path / "keyed"
        folder.mkdir()
        async with keyed(folder, config(a), {"ci": "tenant: acme"}) as rig:
            reply = await rig.client.post(
                "/v1/chat/completions", json=BODY, headers=bearer("ci") | {"host": "router.example"}
            )
            assert reply.status_code == 200


async def test_a_path_is_served_as_it_is_spelt_and_in_no_other_spelling(tmp_path: Path) -> None:
    spelt = ("/v1%2fchat/completions", "/v1/chat%2Fcompletions", "/v1/%63hat/completions", "/v1/chat/completions%00",
             "/v1/chat/completions%20", "/%2fv1/chat/completions", "/v1%5cchat/completions", "/v1%2fdecision",
             "/v1/x/%2e%2e/chat/completions", "/v1/x/../chat/completions", "//v1/chat/completions",
             "/V1/chat/completions", "/v1/chat/completions;x")  # fmt: skip
    async with ScriptedServer(chat("hi")) as a, running(tmp_path, config(a)) as rig:
        for path in spelt:
            for method in ("POST", "GET"):
                answer = await said(rig.port, as_page(rig.port, b"127.0.0.1", None, f"{method} {path}".encode()))
                assert answer.startswith(b"HTTP/1.1 404 "), (method, path, answer[:100])
        assert a.visits == []
        assert (await rig.client.get("/v1/models/%61uto")).status_code == 200, "names of models are quoted by some SDKs"


# --- bytes -----------------------------------------------------------------------------------------------

POST = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n"
HIDDEN = b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n"
SMUGGLED = {
    "length and chunks": POST + b"content-length: 6\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    "chunks and length": POST + b"transfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n0\r\n\r\n" + HIDDEN,
    "two lengths": POST + b"content-length: 2\r\ncontent-length: %d\r\n\r\n{}" % (2 + len(HIDDEN)) + HIDDEN,
    "a list of lengths": POST + b"content-length: 2, 2\r\n\r\n{}" + HIDDEN,
    "a signed length": POST + b"content-length: +2\r\n\r\n{}" + HIDDEN,
    "a length in hex": POST + b"content-length: 0x2\r\n\r\n{}" + HIDDEN,
    "chunked not last": POST + b"transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n" + HIDDEN,
    "an unknown coding": POST + b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    "a space before the colon": POST + b"transfer-encoding : chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n" + HIDDEN,
    "a folded line": POST + b"x: a\r\n transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n" + HIDDEN,
    "a bare line feed": b"POST /v1/chat/completions HTTP/1.1\nhost: x\ncontent-length: 2\n\n{}" + HIDDEN,
    "a bare carriage return": POST + b"x: a\rcontent-length: 2\r\n\r\n{}" + HIDDEN,
    "a chunk size with a tail": POST + b"transfer-encoding: chunked\r\n\r\n0x0\r\n\r\n" + HIDDEN,
    "two hosts": b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nhost: y\r\ncontent-length: 2\r\n\r\n{}",
}


async def test_no_request_is_smuggled_in_another(tmp_path: Path) -> None:
    """Every ambiguous framing ends in one refusal; what stands behind it is no request of its own."""
    async with ScriptedServer(chat("hi")) as a, running(tmp_path, config(a)) as rig:
        for name, sent in SMUGGLED.items():
            answer = await said(rig.port, sent)
            assert answer.count(b"HTTP/1.1 ") <= 1, (name, answer)
            assert b'"object":"list"' not in answer, name
            assert not answer or re.match(rb"HTTP/1\.1 (400|413|431) ", answer), (name, answer[:200])
        assert a.visits == []
        assert (await rig.ask()).status_code == 200


async def test_a_callers_text_makes_no_header_line_of_its_own(tmp_path: Path) -> None:
    evil = "x\r\nset-cookie: evil=1\r\n\r\n<html>"
    async with ScriptedServer(chat("hi")) as a, running(tmp_path, config(a)) as rig:
        for fields in ({"model": evil}, {"user": evil}, {evil: 1}, {"tools": [{"type": evil}]}):
            for path in ("/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/decision"):
                reply = await rig.client.post(path, json=BODY | {"max_tokens": 5, "input": "hi"} | fields)
                assert "set-cookie" not in reply.headers
                assert all(value.isascii() and value.decode().isprintable() for _, value in reply.headers.raw)
        for visit in a.visits:
            assert "evil" not in str(visit.seen.headers)


async def test_an_upstreams_headers_reach_the_client_by_allowlist_alone(tmp_path: Path) -> None:
    extra = {
        "set-cookie": "evil=1",
        "access-control-allow-origin": "*",
        "location": "http://evil.example/",
        "x-pointsman-group": "evil",
        "x-ratelimit-remaining-requests": "7\r\nset-cookie: evil=2",
        "link": "<http://evil.example>; rel=preload",
    }

    def script(seen: Seen) -> tuple[Step, ...]:
        steps = chat("hi")(seen)
        return tuple(Head(200, {**step.headers, **extra}) if isinstance(step, Head) else step for step in steps)

    async with ScriptedServer(script) as a, running(tmp_path, config(a)) as rig:
        reply = await rig.ask()
        assert reply.status_code == 200
        assert "evil" not in str(reply.headers.raw)
        assert reply.headers["x-ratelimit-remaining-requests"] == "7"


# --- addresses -------------------------------------------------------------------------------------------

FORBIDDEN = (
    "api_base", "base_url", "api_key", "api_version", "custom_llm_provider", "model_list", "fallbacks", "mock_response",
    "extra_headers", "headers", "default_headers", "organization", "timeout", "num_retries", "proxies", "proxy",
    "verify", "azure_endpoint", "aws_access_key_id", "vertex_credentials", "callbacks", "deployment", "policy",
    "group", "tenant",
)  # fmt: skip


async def test_X01_no_field_of_a_body_moves_the_address_or_the_key_of_an_upstream(tmp_path: Path) -> None:
    async with (
        ScriptedServer(chat("hi")) as a,
        ScriptedServer(chat("no")) as other,
        running(tmp_path, config(a)) as rig,
    ):
        asked = 0
        for name in FORBIDDEN:
            evil = {name: other.base_url}
            for fields in (evil, {"metadata": evil}, {"extra_body": evil}, {"extra_body": {"metadata": evil}}):
                assert (await rig.client.post("/v1/chat/completions", json=BODY | fields)).status_code == 200
                asked += 1
        assert other.visits == []
        assert len(a.visits) == asked
        assert {visit.seen.headers["authorization"] for visit in a.visits} == {f"Bearer {SECRET}"}


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
async def test_X02_a_redirect_is_not_followed_and_no_key_goes_there(tmp_path: Path, code: int) -> None:
    async with (
        ScriptedServer(chat("no")) as other,
        ScriptedServer(chat("hi")) as a,
        running(tmp_path, config(a)) as rig,
    ):
        moved = {"location": f"{other.base_url}/chat/completions", "content-length": "0"}

        def elsewhere(_: Seen) -> tuple[Step, ...]:
            return (Head(code, moved),)

        a.script = elsewhere
        reply = await rig.ask()
        assert reply.status_code == 502
        assert "location" not in reply.headers
        assert other.visits == []


async def test_X02_the_gateway_fetches_nothing_that_a_message_points_to(tmp_path: Path) -> None:
    async with (
        ScriptedServer(chat("no")) as other,
        ScriptedServer(chat("hi")) as a,
        running(tmp_path, config(a)) as rig,
    ):
        for url in (
            other.base_url,
            "http://169.254.169.254/latest/",
            "http://[::ffff:127.0.0.1]/",
            "http://2130706433/",
        ):
            image = {"type": "image_url", "image_url": {"url": url}}
            assert (await rig.ask(messages=[{"role": "user", "content": [image]}])).status_code == 200
        source = {"type": "image", "source": {"type": "url", "url": other.base_url}}
        body = BODY | {"max_tokens": 5, "messages": [{"role": "user", "content": [source]}]}
        assert (await rig.client.post("/v1/messages", json=body)).status_code == 200
        assert other.visits == []


# --- secrets ---------------------------------------------------------------------------------------------


async def _seen_of(rig: Rig) -> str:
    """All that the gateway tells of itself: metrics, records, and its admin port."""
    await rig.records(4)
    async with asyncio.timeout(10):
        told = [rig.gateway.metrics.render().decode()]
        for path in ("/admin/config", "/admin/records?limit=50", "/admin/groups", "/metrics", "/"):
            told.append((await rig.client.get(rig.admin + path)).text)
    return "\n".join(told)


async def test_X06_no_key_of_a_caller_or_an_upstream_is_told_anywhere(tmp_path: Path) -> None:
    stream = io.StringIO()
    lines = logs.configure("debug", stream, "json")

    def echo(seen: Seen) -> tuple[Step, ...]:
        return tuple(status(400, message=f"you sent {dict(seen.headers)}"))

    def leak(_: Seen) -> tuple[Step, ...]:
        return tuple(status(401, message=SECRET))

    said_: list[str] = []
    try:
        async with ScriptedServer(echo) as a, keyed(tmp_path, config(a), {"ci": "tenant: acme"}) as rig:
            for headers in (bearer("ci"), {"x-api-key": token("ci")}):
                for script in (echo, leak, chat("hi")):
                    a.script = script
                    reply = await rig.client.post("/v1/chat/completions", json=BODY, headers=headers)
                    said_.append(f"{reply.headers.raw!r} {reply.text}")
            for headers in (bearer("stranger"), {"x-api-key": token("stranger")}):
                said_.append((await rig.client.post("/v1/chat/completions", json=BODY, headers=headers)).text)
            assert all(token("ci") not in str(visit.seen) for visit in a.visits)
            said_.append(await _seen_of(rig))
    finally:
        lines.close()
    assert "pointsman.request" in stream.getvalue(), "the log was looked at"
    for where in (*said_, stream.getvalue()):
        for secret in (SECRET, token("ci"), token("stranger")):
            assert secret not in where


# --- sources and packages --------------------------------------------------------------------------------

DANGEROUS = {
    "runs text as code": r"(?<![\w.])(?:eval|exec)\(",
    "reads objects of any kind": r"pickle\.loads?\(|yaml\.(?:unsafe_)?load\(|marshal\.loads?\(|shelve\.",
    "runs a shell": r"shell=True|os\.system\(|os\.popen\(",
    "trusts any certificate": r"verify=False|CERT_NONE|check_hostname\s*=\s*False",
    "runs code of a model's page": r"trust_remote_code=True",
    "renders a template of a caller": r"jinja2|Template\(",
}


@pytest.mark.parametrize("what", DANGEROUS)
def test_X05_no_source_of_the_gateway(what: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in sorted((ROOT / "router").rglob("*.py"))
        for line in path.read_text().splitlines()
        if re.search(DANGEROUS[what], line.partition("  #")[0])
    ]
    assert found == []


@pytest.mark.parametrize("file", sorted((ROOT / "requirements").glob("*.txt")), ids=lambda path: path.name)
def test_X10_every_package_is_pinned_by_hash_and_none_is_known_to_be_bad(file: Path) -> None:
    entries = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)(.*?)(?=^\S|\Z)", file.read_text(), re.MULTILINE | re.DOTALL)
    assert len(entries) > 10
    assert [name for name, _, rest_ in entries if "--hash=sha256:" not in rest_] == []
    pinned = {name.lower(): Version(version) for name, version, _ in entries}
    assert pinned.get("starlette", Version("1.0.1")) >= Version("1.0.1")
    assert pinned.get("litellm", Version("1.83.7")) >= Version("1.83.7")
