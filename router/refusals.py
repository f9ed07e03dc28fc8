"""What an error that ends a request comes to: the record's outcome, whose words the client is told, and the headers.

Pure. The errors themselves are in `errors`, whose fault one is in `plan`, and the body's shape in the client's codec.
"""

from __future__ import annotations

from router.errors import (
    BadRequest,
    Cancelled,
    ContextTooLong,
    PointsmanError,
    TimedOut,
    Truncated,
    Unauthorized,
    UpstreamError,
    UpstreamStatus,
)
from router.exchange import Headers
from router.plan import fault_of
from router.types import Dialect, Outcome
from router.wire import faults

RETRY_LATER = frozenset((429, 498, 503, 529))
RATE_LIMITS = (
    "x-ratelimit-",
    "anthropic-ratelimit-",
)  # upstreams' headers that clients read, of answers and errors alike


def outcome_of(error: PointsmanError, partial: bool) -> Outcome:
    """The record's outcome for an error."""
    match error:
        case Cancelled():
            return "cancelled"
        case BadRequest():
            return "client_error"
        case TimedOut():
            return "timeout"
        case UpstreamStatus() if fault_of(error) in ("client", "overflow"):
            return "client_error"
        case Truncated():
            return "upstream_truncated"
        case UpstreamError():
            return "upstream_truncated" if partial else "upstream_error"
        case _:
            return "refused" if error.status in (401, 429, 503) else "upstream_error"


def upstreams_own(error: UpstreamStatus, ours: bytes, dialect: Dialect, *, alike: bool) -> tuple[int, bytes]:
    """The upstream's status and body where they are the client's to see: its own mistakes and limits, in the shape that
    clients of the dialect read. `alike`: it is the upstream's too."""
    fault = fault_of(error)
    if fault == "key":
        return 502, ours  # the gateway's key is not the client's business
    body = error.body
    if fault == "overflow" and ContextTooLong.code.encode() not in body:
        return ContextTooLong.status, ours  # clients that shorten a conversation go by the code
    if not alike or error.status >= 500 or not faults.shaped(body, anthropic=dialect == "messages"):
        return error.status, ours
    return error.status, body


def error_headers(error: PointsmanError) -> Headers:
    """Content type, what an upstream says of its limits, and Retry-After where it is known, rounded up as the header
    counts whole seconds."""
    headers: Headers = [b"content-type: application/json"]
    if isinstance(error, Unauthorized):
        headers.append(b"www-authenticate: Bearer")
    wait_s = error.retry_after_s
    if wait_s is None and isinstance(error, UpstreamStatus) and error.status in RETRY_LATER:
        wait_s = 1.0  # the upstream names no time: clients that are told none may come back at once
    if wait_s is not None:
        headers.append(b"retry-after: %d" % max(1, -(-wait_s // 1)))
        if isinstance(error, UpstreamStatus) and "retry-after-ms" in error.headers:
            headers.append(b"retry-after-ms: %d" % (wait_s * 1000))
    if isinstance(error, UpstreamStatus) and fault_of(error) != "key":
        told = [f"{name}: {value}" for name, value in error.headers.items() if name.startswith(RATE_LIMITS)]
        headers += [line.encode("latin-1") for line in told]
    return headers
