"""The admin port: a FastAPI application with the dashboard, the metrics, records, health and a few switches.

What it shows is in `views`, the dashboard's files in `page`, decisions to try in `trying`, who may ask in `gate`, what
it needs of the gateway in `state`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from starlette.exceptions import HTTPException

from router import __version__, record
from router.admin import trying, views
from router.admin.gate import Gate
from router.admin.page import page
from router.admin.state import AdminState
from router.errors import BadRequest, ConfigError, Mistake, NotFound, PointsmanError, WrongMethod
from router.hosts import is_loopback
from router.records import Feedback, Filter, instant

__all__ = ["AdminState", "build"]

MOST_RECORDS = 1_000
MOST_WINDOW_S = 30 * 86_400


def build(state: AdminState, *, host: str = "127.0.0.1", token: str | None = None) -> FastAPI:
    """The application for a listener on `host`. Raises `ConfigError` when it is open to others without a token."""
    if token is None and not is_loopback(host):
        message = f"the admin port on {host} is open to others: set $POINTSMAN_ADMIN_TOKEN, or use 127.0.0.1"
        raise ConfigError([Mistake(file="serve", line=1, column=1, path="--admin-host", message=message)])
    state.metrics.count("records_written", lambda: state.recorder.written)
    state.metrics.count("records_dropped", lambda: state.recorder.dropped)
    app = FastAPI(title="Pointsman admin", version=__version__, summary="Records, health and switches of one gateway.")
    app.add_middleware(Gate, token=token)
    for kind in (PointsmanError, HTTPException, RequestValidationError):
        app.add_exception_handler(kind, _failed)
    ends = Endpoints(state)
    get, post = ["GET"], ["POST"]
    for path in page():
        app.add_api_route(path, ends.file, methods=get, response_class=Response, include_in_schema=False)
    app.add_api_route("/metrics", ends.metrics, methods=get, response_class=Response)
    app.add_api_route("/admin/config", ends.config, methods=get)
    app.add_api_route("/admin/reload", ends.reload, methods=post)
    app.add_api_route("/admin/records", ends.records, methods=get)
    app.add_api_route("/admin/records/{request_id}", ends.record, methods=get)
    app.add_api_route("/admin/requests", ends.requests, methods=get)
    app.add_api_route("/admin/groups", ends.groups, methods=get)
    app.add_api_route("/admin/summary", ends.summary, methods=get)
    app.add_api_route("/admin/policies", ends.policies, methods=get)
    app.add_api_route("/admin/try", ends.try_, methods=post)
    app.add_api_route("/admin/quality", ends.quality, methods=get)
    app.add_api_route("/admin/deployments/{name}/drain", ends.drain, methods=post)
    app.add_api_route("/admin/deployments/{name}/undrain", ends.undrain, methods=post)
    return app


class Endpoints:
    """One method a path. Those that read the database are plain functions, which FastAPI runs in a thread."""

    def __init__(self, state: AdminState) -> None:
        self._state = state

    async def file(self, request: Request) -> Response:
        """One of the dashboard's files."""
        found = page()[request.url.path]
        return Response(found.content, headers=dict(found.headers))

    async def metrics(self) -> Response:
        """Prometheus text."""
        state, now = self._state, _monotonic()
        state.metrics.waiting(state.waiting())
        state.metrics.other_models(state.health.other_models)
        state.metrics.reports(state.health.load(now).reports)
        for name in state.snapshot.config.deployments:
            seen = state.health.of(name, now)
            state.metrics.deployment_up(name, bool(seen["up"]))
            state.metrics.in_flight(name, int(seen["in_flight"]))
        return Response(await asyncio.to_thread(state.metrics.render), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    async def config(self) -> dict[str, Any]:
        """Which configuration is in force, and whether the last change of the files was taken."""
        return views.config(self._state)

    async def reload(self) -> Response:
        """Read the files again now. 422 when they are refused; the configuration in force then stays."""
        ok = await self._state.reload()
        shown = views.config(self._state)
        names = ("digest", "generation", "reload_ok", "reload_error")
        return JSONResponse({name: shown[name] for name in names}, status_code=200 if ok else 422)

    def records(
        self,
        limit: Annotated[int, Query(ge=1, le=MOST_RECORDS)] = 50,
        since: str | None = None,
        policy: str | None = None,
        route: str | None = None,
        group: str | None = None,
        deployment: str | None = None,
        outcome: str | None = None,
        tenant: str | None = None,
    ) -> dict[str, Any]:
        """The newest records that pass the filters, newest first. `since`: Unix seconds or ISO 8601."""
        try:
            after = instant(since) if since is not None else None
        except ValueError as error:
            raise BadRequest(str(error), param="since") from None
        equal = {"policy": policy, "route": route, "group": group, "deployment": deployment, "outcome": outcome}
        where = Filter(since=after, tenant=tenant, **equal)
        return {"records": [record.to_contract(r) for r in self._state.recorder.reader.recent(limit, where)]}

    def record(self, request_id: str) -> dict[str, Any]:
        """Everything remembered of one request, the feedback on it, and its decision explained."""
        reader = self._state.recorder.reader
        found = reader.get(request_id)
        if found is None:
            raise NotFound("no record has that id; records appear a moment after the answer and go with retention")
        opinions = _opinions(reader.feedback(request_id))
        explained = views.explained(self._state.snapshot.config, found)
        return {**record.to_contract(found), "feedback": opinions, "explained": explained}

    def summary(self, window: Annotated[int, Query(ge=60, le=MOST_WINDOW_S)] = 3600) -> dict[str, Any]:
        """What the last `window` seconds came to, of all gateways that share the records database."""
        found = self._state.recorder.reader.summary(time.time(), window)
        return views.summary(self._state, found)

    def policies(self) -> dict[str, Any]:
        """Each policy's file as it stands in the directory."""
        return {"policies": trying.policies(self._state.directory)}

    async def try_(self, request: Request) -> Response:
        """What a request would do, under the policies in force or an edited one; nothing is called or applied.

        422 with the mistakes where the edited policy is refused."""
        told = await trying.answer(self._state, trying.read(await request.body()))
        return JSONResponse(told, 200 if told["decision"] is not None else 422)

    async def requests(self) -> dict[str, Any]:
        """Counts and cost of this process since it started."""
        return views.requests(self._state)

    async def groups(self) -> dict[str, Any]:
        """Groups and their deployments with health and load."""
        return views.groups(self._state, _monotonic())

    async def quality(self) -> dict[str, Any]:
        """Estimated quality of the small groups against the large ones."""
        state = self._state
        found = await state.judging.found()
        return views.quality(state, found)

    async def drain(self, name: str) -> dict[str, Any]:
        """Send nothing new to a deployment; what it is answering goes on."""
        self._known(name)
        self._state.health.drain(name)
        return {"deployment": name, "draining": True}

    async def undrain(self, name: str) -> dict[str, Any]:
        """Use a deployment again."""
        self._known(name)
        self._state.health.undrain(name)
        return {"deployment": name, "draining": False}

    def _known(self, name: str) -> None:
        if name not in self._state.snapshot.config.deployments:
            raise NotFound("no deployment has that name; GET /admin/groups lists them")


def _monotonic() -> float:
    return asyncio.get_running_loop().time()


def _opinions(of: Sequence[Feedback]) -> list[dict[str, Any]]:
    return [{"time": f.time, "score": f.score, "label": f.label, "tenant": f.tenant} for f in of]


def _answer(status: int, kind: str, code: str, message: str, param: str | None = None) -> JSONResponse:
    return JSONResponse({"error": {"message": message, "type": kind, "code": code, "param": param}}, status)


async def _failed(request: Request, error: Exception) -> Response:
    """Every error in the one shape, unknown paths and wrong parameters too."""
    match error:
        case PointsmanError():
            return _answer(error.status, error.type, error.code, error.message, error.param)
        case RequestValidationError():
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"][1:])
            return _answer(400, BadRequest.type, BadRequest.code, f"{place}: {first['msg']}", place)
        case HTTPException():
            code = {404: NotFound.code, 405: WrongMethod.code}.get(error.status_code, BadRequest.code)
            return _answer(error.status_code, BadRequest.type, code, str(error.detail))
        case _:
            raise error
