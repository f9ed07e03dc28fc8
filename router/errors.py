"""Every error the product raises, with its HTTP status and code. No behaviour beyond that.

PointsmanError
├── BadRequest 400              the client's body or parameters
│   ├── UnknownModel 404
│   ├── TooLarge 413
│   ├── UnknownEncoding 415
│   ├── StateGone 400           what the request continues is kept nowhere that is known
│   └── ContextTooLong 400
├── Unauthorized 401
├── ForeignPage 403             of a browser, whose address lets it in and whose page does not
├── NotFound 404                a path or an id
├── WrongMethod 405             a path that takes another method
├── ConfigError                 the operator's files; carries every mistake at its place
├── UpstreamError 502           an attempt failed; the next target may be tried unless `final`
│   ├── ConnectFailed 502
│   ├── TimedOut 504            `clock` says which of connect, first_byte, idle, total
│   ├── Truncated 502           the answer ended before its terminal event
│   ├── NoRoom 503              this process has no descriptor or port left for a connection
│   ├── CannotStart 502         a process of ours that serves a model does not come up
│   ├── BadAnswer 502           not HTTP, not JSON, or an error event before any content
│   └── UpstreamStatus          the upstream answered with this error status
│       └── AccountRefused      and says that our key or our account there is at fault, which the status does not
├── Overloaded 503              nothing can serve now; carries retry_after_s
├── RateLimited 429             carries retry_after_s
└── Cancelled 499               the client left
    └── Outrun                  another attempt of the same request gave content first
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from msgspec import Struct


class PointsmanError(Exception):
    """Base. `message` is safe to show to the client: no credential, no prompt text."""

    status: int = 500
    code: ClassVar[str] = "internal_error"
    type: ClassVar[str] = "server_error"  # OpenAI's `error.type`
    param: str | None = None
    retry_after_s: float | None = None

    def __init__(self, message: str, *, param: str | None = None, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s


class BadRequest(PointsmanError):
    status = 400
    code = "invalid_request"
    type = "invalid_request_error"


class UnknownModel(BadRequest):
    status = 404
    code = "model_not_found"


class TooLarge(BadRequest):
    status = 413
    code = "request_too_large"


class UnknownEncoding(BadRequest):
    status = 415
    code = "unknown_encoding"


class StateGone(BadRequest):
    code = "previous_response_not_found"  # OpenAI's own


class ContextTooLong(BadRequest):
    code = "context_length_exceeded"


class Unauthorized(PointsmanError):
    status = 401
    code = "invalid_api_key"
    type = "authentication_error"


class ForeignPage(PointsmanError):
    status = 403
    code = "foreign_page"
    type = "permission_error"


class NotFound(PointsmanError):
    status = 404
    code = "not_found"
    type = "invalid_request_error"


class WrongMethod(PointsmanError):
    status = 405
    code = "method_not_allowed"
    type = "invalid_request_error"


class Mistake(Struct, frozen=True, kw_only=True):
    """One mistake in a configuration file; line and column count from 1."""

    file: str
    line: int
    column: int
    path: str  # key path: routes[2].score.bands[0].below
    message: str

    def __str__(self) -> str:
        text = f"{self.file}:{self.line}:{self.column}: {self.path}: {self.message}"
        # One line whatever stands in a name: a message goes to terminals and logs.
        return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


class ConfigError(PointsmanError):
    code = "invalid_configuration"

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        super().__init__("\n".join(str(m) for m in mistakes))
        self.mistakes = tuple(mistakes)


class UpstreamError(PointsmanError):
    status = 502
    code = "upstream_error"
    type = "upstream_error"


class ConnectFailed(UpstreamError):
    code = "upstream_unreachable"


class TimedOut(UpstreamError):
    status = 504
    code = "upstream_timeout"

    def __init__(self, clock: str, after_s: float) -> None:
        super().__init__(f"the upstream passed its {clock} limit of {after_s:g} s")
        self.clock = clock


class Truncated(UpstreamError):
    code = "upstream_truncated"


class NoRoom(UpstreamError):
    status = 503
    code = "no_room"
    type = "overloaded_error"


class CannotStart(UpstreamError):
    code = "upstream_cannot_start"


class BadAnswer(UpstreamError):
    code = "upstream_bad_answer"


class UpstreamStatus(UpstreamError):
    """The upstream answered with an error status. `body` is relayed only where it is the client's to see."""

    code = "upstream_status"

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes, *, retry_after_s: float | None) -> None:
        super().__init__(f"the upstream answered {status}", retry_after_s=retry_after_s)
        self.status = status
        self.headers = headers
        self.body = body


class AccountRefused(UpstreamStatus):
    """Its body speaks of our key and is not kept."""


class Overloaded(PointsmanError):
    status = 503
    code = "overloaded"
    type = "overloaded_error"


class RateLimited(PointsmanError):
    status = 429
    code = "rate_limited"
    type = "rate_limit_error"


class Cancelled(PointsmanError):
    status = 499
    code = "client_closed_request"


class Outrun(Cancelled):
    code = "outrun"
