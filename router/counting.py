"""How many tokens a request has, for clients that ask before they send it (Anthropic's `count_tokens`).

The deployment that would serve the request is asked where it lists the messages dialect; else, or where it cannot
say, the gateway's own estimate answers. Neither leaves a record: nothing was answered.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Any

from msgspec import DecodeError
from msgspec.json import decode, encode

from router.answers import ERROR_LIMIT, error_status, read_all
from router.config import Deployment
from router.errors import UpstreamError, UpstreamStatus
from router.exchange import Headers
from router.flight import Flight
from router.outbound import headers_for
from router.seams import Call
from router.service import Service, draw_of, forwarded
from router.types import Caller
from router.wire import CODECS
from router.wire.body import outgoing
from router.wire.loose import count, is_object

PATH = "/messages/count_tokens"
WAIT_S = 10.0  # clients wait for the count before they send the request itself


async def count_tokens(service: Service, body: bytes, caller: Caller) -> tuple[bytes, Headers]:
    """The answer and its headers. Raises BadRequest, and UpstreamStatus where the deployment says that the request
    is wrong."""
    snapshot = service.snapshot
    snapshot.hold()
    try:
        flight = Flight(caller, snapshot, perf_counter(), draw_of(caller.id))
        flight.request = await service.read(CODECS["messages"], body)
        await service.decide(flight)
        flight.forwarded = forwarded(caller.headers)
        flight.target = target = flight.plan.targets[0] if flight.plan.targets else None
        found: int | None = None
        if target is not None:
            deployment = snapshot.config.deployments[target.deployment]
            if "messages" in deployment.dialects:
                found = await _asked(deployment, flight)
        how = b"estimate" if found is None else b"upstream"
        if found is None:
            found = 0 if flight.signals is None else flight.signals.input_tokens
        headers: Headers = [b"content-type: application/json", b"x-pointsman-count: " + how, *flight.headers()]
        return encode({"input_tokens": found}), headers
    finally:
        snapshot.release()


async def _asked(deployment: Deployment, flight: Flight) -> int | None:
    """The deployment's own count, or None where it has none to give."""
    call = Call(
        path=PATH,
        body=outgoing(flight.request, deployment.model),
        headers=headers_for("messages", flight.forwarded),
    )
    try:
        async with asyncio.timeout(min(WAIT_S, deployment.timeouts.first_byte_s)):
            reply = await flight.snapshot.upstreams[deployment.name].open(call)
            try:
                if reply.status != 200:
                    raise await error_status(reply, deployment)
                answer = await read_all(reply, ERROR_LIMIT)
            finally:
                await reply.aclose()
    except UpstreamStatus as error:
        if error.status in (400, 413, 422):
            raise
        return None
    except (UpstreamError, TimeoutError):
        return None
    return _read(answer)


def _read(answer: bytes) -> int | None:
    try:
        told: Any = decode(answer)
    except (DecodeError, RecursionError):
        return None
    return count(told.get("input_tokens")) if is_object(told) else None
