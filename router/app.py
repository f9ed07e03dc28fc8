"""The data port as one ASGI callable: inference paths go straight to the service, every other path to FastAPI.

What belongs here is HTTP: paths, methods, the body limit, headers in. A FastAPI endpoint costs an inference
request more than everything else the gateway does to it, so the hot paths do not pass through one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, MutableMapping
from time import perf_counter, time
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from router import __version__, catalogue
from router.errors import NotFound, Overloaded, PointsmanError, WrongMethod
from router.exchange import Exchange, Receive, Send, single_headers
from router.service import FORWARDED, Service, error_headers
from router.types import Caller, Dialect
from router.wire import CODECS

BODY_LIMIT = 32 * 1024 * 1024  # bytes; agents send images inline
FEEDBACK_LIMIT = 16 * 1024
BODIES_LIMIT = 512 * 1024 * 1024  # bytes of all bodies in flight
PATHS: dict[str, Dialect] = {
    "/v1/chat/completions": "chat",
    "/v1/responses": "responses",
    "/v1/messages": "messages",
    "/v1/completions": "completions",
    "/v1/embeddings": "embeddings",
}
# Where clients name the conversation (docs/clients.md), the most specific first.
SESSION_HEADERS = (
    b"x-pointsman-session",
    b"x-claude-code-session-id",
    b"session-id",
    b"thread-id",
    b"x-session-id",
    b"x-session-affinity",
)
_FORWARDED = frozenset(name.encode() for name in FORWARDED)

Scope = MutableMapping[str, Any]


class App:
    """The ASGI application of the data port."""

    def __init__(self, service: Service, rest: Any, *, body_limit: int = BODY_LIMIT) -> None:
        self.service = service
        self._rest = rest
        self._limit = body_limit
        self._bodies = 0  # bytes of bodies in flight

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST":
            dialect = PATHS.get(scope["path"])
            if dialect is not None and dialect in CODECS:
                await self._infer(dialect, scope, receive, send)
                return
        await self._rest(scope, receive, send)

    async def _infer(self, dialect: Dialect, scope: Scope, receive: Receive, send: Send) -> None:
        started = perf_counter()
        exchange, codec, caller = Exchange(receive, send), CODECS[dialect], Caller(id=new_id())
        held = 0
        try:
            headers = single_headers(scope["headers"])
            if self._bodies > BODIES_LIMIT:
                raise Overloaded("too many large requests at once; try again soon", retry_after_s=1.0)
            body = await exchange.body(headers, self._limit)
            held = len(body)
            self._bodies += held
            caller = self._caller(caller.id, headers)
            await self.service.serve(dialect, codec, body, caller, exchange, started)
        except PointsmanError as error:
            if not exchange.started and not exchange.left:
                own = [(b"x-pointsman-request-id", caller.id.encode())]
                await exchange.answer(error.status, error_headers(error) + own, codec.error(error, caller.id))
            self.service.refuse(dialect, caller, error, started)
        finally:
            self._bodies -= held

    def _caller(self, request_id: str, headers: dict[bytes, bytes]) -> Caller:
        session = next((headers[name].decode("latin-1") for name in SESSION_HEADERS if name in headers), None)
        wanted = self.service.snapshot.wanted_headers
        kept = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in headers.items()
            if name in _FORWARDED or name in wanted
        }
        return Caller(id=request_id, session=session, headers=kept)


_random: Iterator[str] = iter(())


def new_id() -> str:
    """A request id: 96 random bits. They are drawn many at a time, since each draw is a system call."""
    global _random
    drawn = next(_random, None)
    if drawn is None:
        many = os.urandom(12 * 1024).hex()
        _random = iter([f"req_{many[i : i + 24]}" for i in range(0, len(many), 24)])
        drawn = next(_random)
    return drawn


def rest(service: Service, state: Any) -> Any:
    """The FastAPI application for everything that is not an inference path."""
    api = FastAPI(title="Pointsman", version=__version__, docs_url=None, redoc_url=None, openapi_url=None)

    def failed(error: PointsmanError, request_id: str) -> Response:
        headers = {name.decode(): value.decode() for name, value in error_headers(error)}
        body = CODECS["chat"].error(error, request_id)
        return Response(body, error.status, headers | {"x-pointsman-request-id": request_id})

    async def refused(request: Request, error: Exception) -> Response:
        if request.url.path in PATHS or (isinstance(error, HTTPException) and error.status_code == 405):
            return failed(WrongMethod(f"{request.url.path[:200]} does not take {request.method}"), new_id())
        return failed(NotFound(f"there is no {request.method} {request.url.path[:200]} here"), new_id())

    async def ours(request: Request, error: Exception) -> Response:
        return failed(error if isinstance(error, PointsmanError) else PointsmanError("internal error"), new_id())

    api.add_exception_handler(HTTPException, refused)
    api.add_exception_handler(PointsmanError, ours)

    @api.api_route("/", methods=["GET", "HEAD"])
    async def root() -> JSONResponse:  # pyright: ignore[reportUnusedFunction]
        return JSONResponse({"name": "pointsman", "version": __version__, "models": "/v1/models"})

    @api.api_route("/healthz", methods=["GET", "HEAD"])
    async def healthz() -> JSONResponse:  # pyright: ignore[reportUnusedFunction]
        return JSONResponse({"status": "alive"})

    @api.api_route("/readyz", methods=["GET", "HEAD"])
    async def readyz() -> JSONResponse:  # pyright: ignore[reportUnusedFunction]
        why = state.unready()
        return JSONResponse({"status": "ready" if why is None else why}, 200 if why is None else 503)

    @api.get("/v1/models")
    async def models() -> JSONResponse:  # pyright: ignore[reportUnusedFunction]
        return JSONResponse(catalogue.listing(service.snapshot.config, state.started))

    @api.get("/v1/models/{name:path}")
    async def model(name: str) -> JSONResponse:  # pyright: ignore[reportUnusedFunction]
        return JSONResponse(catalogue.entry(service.snapshot.config, name, state.started))

    @api.post("/v1/decision")
    async def decision(request: Request) -> JSONResponse:  # pyright: ignore[reportUnusedFunction]
        exchange = Exchange(request.receive, _never)
        body = await exchange.body(single_headers(request.scope["headers"]), BODY_LIMIT)
        caller = Caller(
            id=new_id(),
            headers={k: v for k, v in request.headers.items() if k.encode() in service.snapshot.wanted_headers},
        )
        return JSONResponse(await catalogue.decision(service, body, caller))

    @api.post("/v1/feedback")
    async def feedback(request: Request) -> JSONResponse:  # pyright: ignore[reportUnusedFunction]
        exchange = Exchange(request.receive, _never)
        body = await exchange.body(single_headers(request.scope["headers"]), FEEDBACK_LIMIT)
        state.recorder.feedback(catalogue.opinion(body, time()))
        return JSONResponse({"status": "kept"})

    return api


async def _never(message: Any) -> None:
    raise RuntimeError("this exchange only reads")
