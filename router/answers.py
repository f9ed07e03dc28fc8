"""An upstream's answer read whole, its refusal as an error of ours, and which of its headers the client may see.

What is asked, and what follows from an error, is the relay's.
"""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from math import isfinite
from time import time

from router import account, logs
from router.config import Deployment
from router.errors import AccountRefused, BadAnswer, PointsmanError, UpstreamError, UpstreamStatus
from router.exchange import Headers
from router.refusals import RATE_LIMITS
from router.seams import Reply
from router.signals import BYTES_PER_TOKEN
from router.types import Dialect, Signals, Usage
from router.wire import faults
from router.wire.said import said

WHOLE_LIMIT = 64 * 1024 * 1024  # bytes of one unstreamed answer
ERROR_LIMIT = 1024 * 1024
LONGEST_RETRY_S = 86400.0
OUR_FAULT = (401, 403)  # our key or our plan with the provider; nothing the client can mend
RELAYED = (*RATE_LIMITS, "retry-after")
# What most answers have beside them, which is not passed on.
USUAL = frozenset(("content-type", "content-length", "transfer-encoding", "connection", "date", "server"))


async def read_all(reply: Reply, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while data := await reply.read():
        parts.append(data)
        size += len(data)
        if size > limit:
            raise BadAnswer(f"the upstream's answer is larger than {limit} bytes")
    return b"".join(parts)


async def error_status(reply: Reply, deployment: Deployment) -> PointsmanError:
    """The upstream's error as ours. Its body is the client's to see unless it may speak of our key."""
    status = reply.status
    if not 400 <= status <= 599:
        return BadAnswer(f"the upstream answered with status {status}")
    try:
        body = await read_all(reply, ERROR_LIMIT)
    except UpstreamError:
        body = b""
    kind = AccountRefused if status == account.STATUS and account.is_refused(body) else UpstreamStatus
    error = kind(status, dict(reply.headers), body, retry_after_s=retry_after_s(reply.headers))
    hush(error, deployment)
    return error


def hush(error: UpstreamError, deployment: Deployment) -> None:
    """Takes the upstream's words from its error where they may speak of our key; they may come with status 200 too."""
    if not isinstance(error, UpstreamStatus) or not error.body:
        return
    secret = deployment.api_key.encode()
    if (
        error.status in OUR_FAULT
        or isinstance(error, AccountRefused)
        or (len(secret) > 4 and secret in error.body)
        or logs.has_secret(error.body)
    ):
        error.body = b""


async def no_stream(reply: Reply) -> PointsmanError:
    """What an answer that should have been a stream comes to: the error that it holds, where it holds one (S08)."""
    body = await read_all(reply, ERROR_LIMIT)
    if faults.read(body) is not None:
        return faults.raised(body)
    return BadAnswer("the upstream answered a streaming request without a stream")


def estimated(dialect: Dialect, answer: bytes, signals: Signals | None) -> Usage:
    """What an unstreamed answer may have cost whose server does not say: never nothing (S19)."""
    told = said(dialect, answer, stream=False)
    words = "" if told is None else told.text + "".join([call.name + call.arguments for call in told.calls])
    size = 0 if signals is None else signals.input_tokens
    return Usage(input=size, output=-(-len(words.encode()) // BYTES_PER_TOKEN), estimated=True)


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds, at most a day, from `retry-after-ms` or `retry-after` (RFC 9110 section 10.2.3: seconds or a date)."""
    for name, unit in (("retry-after-ms", 1000), ("retry-after", 1)):
        value = headers.get(name)
        if value is not None and (seconds := _seconds(value, unit)) is not None:
            return min(max(0.0, seconds), LONGEST_RETRY_S)
    return None


def _seconds(value: str, unit: int) -> float | None:
    try:
        seconds = float(value) / unit
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time()
        except (ValueError, OverflowError):
            return None
    return seconds if isfinite(seconds) else None


def relayed(headers: Mapping[str, str]) -> Headers:
    """The upstream's headers that the client may see, by allowlist."""
    lines = [f"{name}: {value}".encode("latin-1") for name, value in headers.items() if name.startswith(RELAYED)]
    return [line for line in lines if not logs.has_secret(line)]
