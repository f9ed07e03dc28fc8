"""The data port as one ASGI callable: inference paths go straight to the service, every other path to FastAPI.

What belongs here is HTTP: paths, methods, the body limit, headers in. A FastAPI endpoint costs an inference
request more than everything else the gateway does to it, so the hot paths do not pass through one.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, MutableMapping
from time import perf_counter, time
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException

from router import __version__, catalogue, counting
from router.encodings import decoded
from router.errors import (
    Cancelled,
    ForeignPage,
    NotFound,
    Overloaded,
    PointsmanError,
    TooLarge,
    Unauthorized,
    WrongMethod,
)
from router.exchange import PING, AsgiExchange, Exchange, Receive, Send, pairs, single_headers
from router.front import Direct
from router.hosts import refuse_strangers
from router.keys import Grant, Ring, known
from router.refusals import error_headers
from router.seams import Codec
from router.service import FORWARDED, Service
from router.turns import BIG, aside
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
# What keeps a silent stream open. Anthropic's clients know an event for it, and count it as life; the others have none.
PINGS: dict[Dialect, bytes] = {"messages": b'event: ping\ndata: {"type": "ping"}\n\n'}
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
_READ = _FORWARDED.union(SESSION_HEADERS)

# Those that ask whether the gateway lives have no key; every other path has to be asked for with one.
OPEN = frozenset(("/healthz", "/readyz"))
UNCOUNTED = (Unauthorized, ForeignPage)  # what is no request of a caller's

Scope = MutableMapping[str, Any]


class App:
    """The ASGI application of the data port."""

    def __init__(self, service: Service, rest: Any, *, body_limit: int = BODY_LIMIT, local: bool = False) -> None:
        self.service = service
        self._rest = rest
        self._limit = body_limit
        self._local = local  # without keys, only this machine's own programs and pages may ask
        self._bodies = 0  # bytes of bodies in flight
        self.unauthorized = 0
        self.hot = {path.encode(): (dialect, PINGS.get(dialect, PING)) for path, dialect in PATHS.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path: str = scope["path"]
            if b"%" in scope["raw_path"] and not scope["raw_path"].startswith(b"/v1/models/"):
                path = scope["path"] = scope["raw_path"].decode("latin-1")  # of which there is none
            if path.endswith("/") and path != "/":
                path = path.removesuffix("/")
                scope = {**scope, "path": path}
            if scope["method"] == "POST":
                dialect = PATHS.get(path)
                if dialect is not None and dialect in CODECS:
                    await self._infer(dialect, scope, receive, send)
                    return
            ring = self.service.snapshot.ring
            if path not in OPEN and (ring is not None or self._local):
                try:
                    grant = await self._let_in(ring, scope)
                except PointsmanError as error:
                    await self._keep_out(error, scope, receive, send)
                    return
                scope = {**scope, "grant": grant}
        await self._rest(scope, receive, send)

    async def _let_in(self, ring: Ring | None, scope: Scope) -> Grant | None:
        """The grant of a request that asks no model. Raises where it may not come in."""
        headers = single_headers(scope["headers"])
        if ring is None:
            refuse_strangers(headers)
            return None
        grant = ring.grant(headers, time())
        await self.service.limits.knock(grant, new_id())
        return grant

    async def _keep_out(self, error: PointsmanError, scope: Scope, receive: Receive, send: Send) -> None:
        self.unauthorized += isinstance(error, UNCOUNTED)
        request_id = new_id()
        own = [b"x-pointsman-request-id: " + request_id.encode()]
        body = _shape(scope).error(error, request_id)
        await AsgiExchange(receive, send).answer(error.status, error_headers(error) + own, body)

    async def direct(self, dialect: Dialect, headers: Mapping[bytes, bytes], exchange: Direct) -> None:
        """`front.Hot`: the requests that need nothing of ASGI, which are nearly all."""
        started = perf_counter()
        held = len(exchange.body)
        self._bodies += held
        service = self.service
        caller = caller_of(new_id(), headers, service.snapshot.wanted_headers)
        try:
            if exchange.left:
                raise Cancelled("the client left while sending its body")
            if held > self._limit:
                raise TooLarge(f"the body is larger than the limit of {self._limit} bytes")
            if self._bodies > BODIES_LIMIT:
                raise _too_many()
            if (ring := service.snapshot.ring) is not None:
                caller = known(caller, ring.grant(headers, time()))
            elif self._local:
                refuse_strangers(headers)
            if service.admission.all:
                service.admission.refuse_any(caller.tenant)
            await service.serve(dialect, CODECS[dialect], exchange.handed_on(), caller, exchange, started)
        except PointsmanError as error:
            await self._refuse(dialect, caller, error, exchange, started)
        finally:
            self._bodies -= held
            exchange.over()

    async def _infer(self, dialect: Dialect, scope: Scope, receive: Receive, send: Send) -> None:
        started = perf_counter()
        exchange = AsgiExchange(receive, send, PINGS.get(dialect, PING))
        caller = Caller(id=new_id())
        grant: Grant | None = None
        held = 0
        try:
            headers = single_headers(scope["headers"])
            if (ring := self.service.snapshot.ring) is not None:  # before a byte of the body is read
                grant = ring.grant(headers, time())
            elif self._local:
                refuse_strangers(headers)
            if self._bodies > BODIES_LIMIT:
                raise _too_many()
            if self.service.admission.all:
                self.service.admission.refuse_any("" if grant is None else known(caller, grant).tenant)
            held = _declared(headers, self._limit)
            self._bodies += held
            body = await exchange.body(headers, self._limit)
            if (encoding := headers.get(b"content-encoding")) is not None:
                body = await _plain(body, encoding.decode("latin-1"), self._limit)
            self._bodies += len(body) - held
            held = len(body)
            caller = caller_of(caller.id, headers, self.service.snapshot.wanted_headers)
            if grant is not None:
                caller = known(caller, grant)
            whole = [body]
            del body  # whoever reads it lets it go once it is answered, and a stream may take an hour
            await self.service.serve(dialect, CODECS[dialect], whole.pop(), caller, exchange, started)
        except PointsmanError as error:
            await self._refuse(dialect, caller, error, exchange, started)
        finally:
            self._bodies -= held

    async def _refuse(
        self, dialect: Dialect, caller: Caller, error: PointsmanError, exchange: Exchange, started: float
    ) -> None:
        """A request that could not be read."""
        if not exchange.started and not exchange.left:
            own = [b"x-pointsman-request-id: " + caller.id.encode()]
            await exchange.answer(error.status, error_headers(error) + own, CODECS[dialect].error(error, caller.id))
        if isinstance(error, UNCOUNTED):  # counted, and no more: strangers could push all records out
            self.unauthorized += 1
            return
        self.service.refuse(dialect, caller, error, started)


def _too_many() -> Overloaded:
    return Overloaded("too many large requests at once; try again soon", retry_after_s=1.0)


def _shape(scope: Scope) -> Codec:
    """In which shape an error is told where the path has no dialect: Anthropic's to its clients, else OpenAI's."""
    anthropic = any(name == b"anthropic-version" for name, _ in scope["headers"])
    return CODECS["messages" if anthropic or scope["path"].startswith("/v1/messages") else "chat"]


async def _plain(body: bytes, encoding: str, limit: int) -> bytes:
    """As `decoded`; what is more than streams could wait for comes from a thread."""
    try:
        return decoded(body, encoding, min(limit, BIG))
    except TooLarge:
        return await asyncio.to_thread(decoded, body, encoding, limit)


def _declared(headers: Mapping[bytes, bytes], limit: int) -> int:
    """Bytes of a body that is still to come, as far as its sender says; at most `limit`."""
    length = headers.get(b"content-length", b"0")
    return min(int(length), limit) if length.isdigit() else 0


def caller_of(request_id: str, headers: Mapping[bytes, bytes], wanted: frozenset[bytes]) -> Caller:
    """The caller as its headers tell; `wanted` are those that policies and scorers read."""
    if _READ.isdisjoint(headers) and wanted.isdisjoint(headers):
        return Caller(request_id)
    session = next((headers[name].decode("latin-1") for name in SESSION_HEADERS if name in headers), None)
    kept = {
        name.decode("latin-1"): value.decode("latin-1")
        for name, value in headers.items()
        if name in _FORWARDED or name in wanted
    }
    return Caller(id=request_id, session=session, headers=kept)


_random = ""
_used = 0


def new_id() -> str:
    """A request id: milliseconds since 1970 and 64 random bits, in hex.

    Ids that grow with time keep the records' index compact. The bits are drawn many at a time, since each draw is a
    system call.
    """
    global _random, _used
    begin = _used
    if begin >= len(_random):
        _random, begin = os.urandom(8 * 1024).hex(), 0
    _used = begin + 16
    return f"req_{int(time() * 1000):012x}{_random[begin:_used]}"


def rest(service: Service, state: Any) -> Any:
    """The FastAPI application for everything that is not an inference path."""
    api = FastAPI(title="Pointsman", version=__version__, docs_url=None, redoc_url=None, openapi_url=None)

    def failed(request: Request, error: PointsmanError) -> Response:
        headers = {name.decode(): value.decode() for name, value in pairs(error_headers(error))}
        request_id = new_id()
        body = _shape(request.scope).error(error, request_id)
        return Response(body, error.status, headers | {"x-pointsman-request-id": request_id})

    async def refused(request: Request, error: Exception) -> Response:
        if request.url.path in PATHS or (isinstance(error, HTTPException) and error.status_code == 405):
            return failed(request, WrongMethod(f"{request.url.path[:200]} does not take {request.method}"))
        return failed(request, NotFound(f"there is no {request.method} {request.url.path[:200]} here"))

    async def ours(request: Request, error: Exception) -> Response:
        return failed(request, error if isinstance(error, PointsmanError) else PointsmanError("internal error"))

    def granted(request: Request) -> Grant | None:
        return request.scope.get("grant")

    async def whole(request: Request, limit: int) -> tuple[bytes, Caller]:
        headers = single_headers(request.scope["headers"])
        body = await AsgiExchange(request.receive, _never).body(headers, limit)
        if (encoding := headers.get(b"content-encoding")) is not None:
            body = await _plain(body, encoding.decode("latin-1"), limit)
        caller = caller_of(new_id(), headers, service.snapshot.wanted_headers)
        grant = granted(request)
        return body, caller if grant is None else known(caller, grant)

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
    async def models(request: Request) -> JSONResponse:  # pyright: ignore[reportUnusedFunction]
        return JSONResponse(catalogue.listing(service.snapshot.config, state.started, granted(request)))

    @api.get("/v1/models/{name:path}")
    async def model(name: str, request: Request) -> JSONResponse:  # pyright: ignore[reportUnusedFunction]
        return JSONResponse(catalogue.entry(service.snapshot.config, name, state.started, granted(request)))

    @api.post("/v1/messages/count_tokens")
    async def count_tokens(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        told, headers = await counting.count_tokens(service, *await whole(request, BODY_LIMIT))
        return Response(told, headers={name.decode(): value.decode("latin-1") for name, value in pairs(headers)})

    @api.post("/v1/decision")
    async def decision(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        body, caller = await whole(request, BODY_LIMIT)
        named = request.query_params.get("dialect")
        dialect = await aside(len(body), catalogue.dialect_of, body, named, request.headers)
        as_text = request.headers.get("accept", "").startswith("text/plain")
        told = await catalogue.decision(service, dialect, body, caller, as_text=as_text)
        return PlainTextResponse(told) if isinstance(told, str) else JSONResponse(told)

    @api.post("/v1/feedback")
    async def feedback(request: Request) -> JSONResponse:  # pyright: ignore[reportUnusedFunction]
        body, caller = await whole(request, FEEDBACK_LIMIT)
        said = catalogue.opinion(body, time(), caller.tenant)
        await catalogue.judged(service, state.recorder, said, keyed=service.snapshot.ring is not None)
        return JSONResponse({"status": "kept"})

    return api


async def _never(message: Any) -> None:
    raise RuntimeError("this exchange only reads")
