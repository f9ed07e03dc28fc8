"""The admin port of a gateway with several workers: each worker has the whole of `admin` on a socket of its own, and
here their answers become one. What one of them can answer alone (records, which share a database) is passed on.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import httpx
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from router.admin import sums
from router.admin.gate import Gate
from router.errors import ConfigError, Mistake
from router.hosts import is_loopback

ANSWER_S = 10.0  # a reload loads local models
PASSED_ON = frozenset(("content-type", "content-security-policy", "cache-control"))


class Asked(Protocol):
    """A worker, as its admin port is asked."""

    client: httpx.AsyncClient

    def counted(self, text: str) -> None:
        """Its metrics were read: what it had counted when it dies."""
        ...


class Workers(Protocol):
    """Those that live, and what the dead had counted."""

    @property
    def gone(self) -> Mapping[sums.Key, float]: ...

    @property
    def alive(self) -> Sequence[Asked]: ...


def build(workers: Workers, *, host: str, token: str | None) -> ASGIApp:
    """The application for a listener on `host`. Raises `ConfigError` as `admin.build` does."""
    if token is None and not is_loopback(host):
        message = f"the admin port on {host} is open to others: set $POINTSMAN_ADMIN_TOKEN, or use 127.0.0.1"
        raise ConfigError([Mistake(file="serve", line=1, column=1, path="--admin-host", message=message)])
    return Gate(Many(workers), token=token)


class Many:
    """ASGI. `JOINED` has the paths on which every worker is asked."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        path = request.url.path
        join = JOINED.get(path)
        if path == "/metrics":
            answer = await self.metrics()
        elif join is not None or (path.startswith("/admin/deployments/") and request.method == "POST"):
            answer = await self._all(request, join or _first)
        else:
            answer = await self._one(request)
        await answer(scope, receive, send)

    async def metrics(self) -> Response:
        alive = self._workers.alive
        replies = await asyncio.gather(*(_ask(worker, "GET", "/metrics") for worker in alive))
        texts: list[str] = []
        for worker, reply in zip(alive, replies, strict=True):
            if reply is not None and reply.status_code == 200:
                worker.counted(reply.text)
                texts.append(reply.text)
        body = await asyncio.to_thread(sums.together, texts, dict(self._workers.gone))
        return Response(body, media_type=CONTENT_TYPE_PLAIN_0_0_4)

    async def _all(self, request: Request, join: Callable[[list[Any]], Any]) -> Response:
        """Every worker's answer as one. An error of one of them is the answer."""
        target = _target(request)
        replies = await asyncio.gather(*(_ask(worker, request.method, target) for worker in self._workers.alive))
        answered = [reply for reply in replies if reply is not None]
        failed = next((reply for reply in answered if reply.status_code != 200), None)
        if failed is not None or not answered:
            return _passed(failed)
        return JSONResponse(join([reply.json() for reply in answered]))

    async def _one(self, request: Request) -> Response:
        body = await request.body()
        for worker in self._workers.alive:
            reply = await _ask(worker, request.method, _target(request), body)
            if reply is not None:
                return _passed(reply)
        return _passed(None)


async def _ask(worker: Asked, method: str, target: str, body: bytes = b"") -> httpx.Response | None:
    """None where the worker does not answer: it may have died just now."""
    try:
        return await worker.client.request(method, target, content=body, timeout=ANSWER_S)
    except httpx.HTTPError:
        return None


def _target(request: Request) -> str:
    path = request.scope.get("raw_path", b"").decode("latin-1") or request.url.path
    return f"{path.partition('?')[0]}?{request.url.query}" if request.url.query else path


def _passed(reply: httpx.Response | None) -> Response:
    if reply is None:
        error = {"message": "no worker answers just now", "type": "server_error", "code": "overloaded", "param": None}
        return JSONResponse({"error": error}, 503, {"retry-after": "1"})
    headers = {name: value for name, value in reply.headers.items() if name in PASSED_ON}
    return Response(reply.content, reply.status_code, headers)


# --- several answers as one ------------------------------------------------------------------------------


def _first(answers: list[Any]) -> Any:
    return answers[0]


def _config(answers: list[Any]) -> Any:
    """The oldest generation is the gateway's: a change has been taken once every worker has it."""
    oldest = min(answers, key=lambda answer: answer["generation"])
    return {
        **oldest,
        "reload_ok": all(answer["reload_ok"] for answer in answers),
        "reload_error": next((answer["reload_error"] for answer in answers if answer["reload_error"]), None),
        "draining": any(answer["draining"] for answer in answers),
        "started": min(answer["started"] for answer in answers),
        "workers": [worker for answer in answers for worker in answer["workers"]],
    }


def _reload(answers: list[Any]) -> Any:
    return min(answers, key=lambda answer: answer["generation"])


def _groups(answers: list[Any]) -> Any:
    shown = json.loads(json.dumps(answers[0]))
    for place, group in enumerate(shown["groups"]):
        same = [answer["groups"][place] for answer in answers]
        group["waiting"] = sum(one["waiting"] for one in same)
        if group["places"] is not None:
            group["places"] = sum(one["places"] or 0 for one in same)
    for deployment in _deployments(shown):
        each = [d for answer in answers for d in _deployments(answer) if d["name"] == deployment["name"]]
        # A deployment of two groups stands twice in each answer.
        each = each[:: max(1, len(each) // len(answers))]
        deployment["in_flight"] = sum(d["in_flight"] for d in each)
        deployment["cooling_s"] = max(d["cooling_s"] for d in each)
        deployment["failures"] = max(d["failures"] for d in each)
        deployment["last_error"] = next((d["last_error"] for d in each if d["last_error"]), None)
        deployment["draining"] = any(d["draining"] for d in each)
        deployment["up"] = all(d["up"] for d in each)
    return shown


def _deployments(answer: Any) -> list[Any]:
    return [*(d for group in answer["groups"] for d in group["deployments"]), *answer["unused"]]


def _requests(answers: list[Any]) -> Any:
    """Of the workers that live: `/metrics` has what the others had counted too."""
    counts: dict[tuple[str, ...], Any] = {}
    for row in (row for answer in answers for row in answer["requests"]):
        key = (row["policy"], row["route"], row["group"], row["outcome"])
        counts[key] = {**row, "count": row["count"] + (counts[key]["count"] if key in counts else 0)}
    records = [answer["records"] for answer in answers]
    return {
        "since": min(answer["since"] for answer in answers),
        "requests": [counts[key] for key in sorted(counts)],
        "cost": sum(answer["cost"] for answer in answers),
        "savings": sum(answer["savings"] for answer in answers),
        "records": {name: sum(record[name] for record in records) for name in ("written", "dropped")},
    }


def _quality(answers: list[Any]) -> Any:
    """Samples are shared through the records database: whoever has heard of most knows best. What each worker has
    drawn, dropped and paid is added; the day's budget is everybody's."""
    shown = json.loads(json.dumps(max(answers, key=lambda answer: answer["samples"])))
    for policy in shown["policies"]:
        each = [p["sampling"] for a in answers for p in a["policies"] if p["policy"] == policy["policy"]]
        whole = policy["sampling"]
        whole["today"] = max(one["today"] for one in each)
        for name in ("might", "judged", "cost"):
            whole[name] = sum(one[name] for one in each)
        whole["dropped"] = {why: sum(one["dropped"][why] for one in each) for why in whole["dropped"]}
    alarms = {(one["kind"], one["of"]): one for answer in answers for one in answer["alarms"]}
    shown["alarms"] = sorted(alarms.values(), key=lambda one: one["since"])
    return shown


JOINED: Mapping[str, Callable[[list[Any]], Any]] = {
    "/admin/config": _config,
    "/admin/reload": _reload,
    "/admin/groups": _groups,
    "/admin/requests": _requests,
    "/admin/quality": _quality,
}
