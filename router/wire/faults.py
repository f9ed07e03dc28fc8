"""Errors as they stand on the wire: reading an upstream's, and saying what a client's dialect needs to know.

One neutral `Fault` stands between the dialects' error shapes, so that an upstream's error reaches the caller
in the caller's shape. How a dialect writes it is in the dialect's module.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import DecodeError, Struct
from msgspec.json import decode
from msgspec.structs import replace

from router.errors import BadAnswer, ContextTooLong, PointsmanError, UpstreamError, UpstreamStatus
from router.overflow import is_overflow, overflows
from router.wire import sse
from router.wire.loose import is_array, is_object, mapping, text

_RATE = re.compile(r"rate.?limit|too many requests|quota|resource.?exhausted|throttl", re.IGNORECASE)
_BUSY = re.compile(r"overloaded|unavailable|capacity|try again later", re.IGNORECASE)

OPENAI_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
ANTHROPIC_TYPES = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class Fault(Struct, frozen=True, kw_only=True):
    """An error between two dialects. `status` is an HTTP status."""

    message: str
    status: int
    code: str | None = None
    param: str | None = None
    type: str | None = None  # as its source named it

    @property
    def openai_type(self) -> str:
        if self.status in OPENAI_TYPES:
            return OPENAI_TYPES[self.status]
        return "invalid_request_error" if self.status < 500 else self.type or "server_error"

    @property
    def anthropic_type(self) -> str:
        return ANTHROPIC_TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "api_error")


def of(error: PointsmanError) -> Fault:
    """What to tell the client. An upstream's own words are used where the error still carries its body."""
    if isinstance(error, UpstreamStatus) and error.body and (told := read(error.body, error.status)):
        if is_overflow(error.status, error.body):
            return replace(told, status=ContextTooLong.status, code=ContextTooLong.code)
        return told
    return Fault(message=error.message, status=error.status, code=error.code, param=error.param, type=error.type)


def read(body: bytes, status: int = 0) -> Fault | None:
    """The error in an upstream's answer or event of whichever shape; None where there is none.

    Without `status`, the status is guessed from the code, the type and the wording.
    """
    return read_object(_read(body), status)


def _read(body: bytes) -> Any:
    """The value in a body: of an event where one was sent, of a list where one stands in it alone (Gemini's)."""
    if body.lstrip().startswith((b"data:", b"event:")):
        body = next((data for event in sse.split(body) if (data := sse.fields(event)[1])), b"")
    try:
        found: Any = decode(body)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found[0] if is_array(found) and len(found) == 1 else found


def shaped(body: bytes, *, anthropic: bool) -> bool:
    """Whether an error has the shape that OpenAI's clients read, or Anthropic's: servers answer in others too."""
    try:
        found: Any = decode(body)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return is_object(mapping(found).get("error")) and (not anthropic or found.get("type") == "error")


def read_object(found: Any, status: int = 0, *, flat: bool = False) -> Fault | None:
    """`read` for a decoded value; `flat` where it is known to be an error, whatever its shape."""
    if not is_object(found):
        return None
    given: Any = found.get("error")
    if given is None:
        given = mapping(found.get("response")).get("error")
    inner: dict[str, Any] = {"message": given} if isinstance(given, str) else mapping(given)
    if not inner:
        flat = flat or status >= 400 or "error" in (found.get("object"), found.get("type"))
        if given is not None or not flat:
            return None
        inner = found
    words = next(
        (str(inner[k]) for k in ("message", "detail", "msg") if inner.get(k)), "the upstream reported an error"
    )
    code, kind = inner.get("code"), text(inner.get("type"))
    if kind in ("error", "response.failed"):
        kind = ""
    return Fault(
        message=words,
        status=status or _status(code, kind, words),
        code=str(code) if code is not None else (ContextTooLong.code if overflows(words) else None),
        param=text(inner.get("param")) or None,
        type=kind or None,
    )


def _status(code: Any, kind: str, message: str) -> int:
    if isinstance(code, int) and 400 <= code < 600:
        return code
    if isinstance(code, str) and code.isdigit() and 400 <= int(code) < 600:
        return int(code)
    words = f"{code or ''} {kind}"
    if "api_key" in words:
        return 401
    if "context_length" in words or overflows(message):
        return 400
    for status, name in ANTHROPIC_TYPES.items():
        if name in words and status != 503:
            return status
    if _RATE.search(words) or _RATE.search(message):
        return 429
    if _BUSY.search(words) or _BUSY.search(message):
        return 503
    return 400 if "invalid" in words else 502


def failed(answer: bytes) -> bool:
    """Whether a whole answer of the Responses API says that it failed: as a stream's `response.failed`, it is none."""
    try:
        found: Any = decode(answer)
    except (DecodeError, RecursionError):
        return False
    return is_object(found) and found.get("status") == "failed" and is_object(found.get("error"))


def lacking(answer: bytes, part: str) -> UpstreamError:
    """The exception for an unstreamed answer without the part that every answer has: the error that it is, if any."""
    return raised(answer) if read(answer) is not None else BadAnswer(f"the upstream's answer has no {part}")


def raised(body: bytes) -> UpstreamStatus:
    """The exception for an error that came inside a stream, with the status that it says or that we guess."""
    fault = read_object(_read(body), flat=True)
    return UpstreamStatus(fault.status if fault else 502, {}, body, retry_after_s=None)
