"""How servers say that our key or our account is at fault, where the status says that the request is. No I/O."""

from __future__ import annotations

import re
from typing import Any

from msgspec import DecodeError
from msgspec.json import decode

STATUS = 400
# Gemini: API_KEY_INVALID, "API key not valid", "API key expired"; xAI: "Incorrect API key provided: xa***"; Anthropic:
# "Your credit balance is too low"; DashScope: Arrearage, "... your account is in good standing"; OpenAI: the others.
_CODES = frozenset(
    (
        *("invalid_api_key", "API_KEY_INVALID", "Arrearage"),
        *("billing_hard_limit_reached", "billing_not_active", "account_deactivated", "insufficient_quota"),
    )
)
# Only how a message begins: what stands further in may be the caller's own words.
_WORDS = re.compile(
    r"""(?:incorrect|invalid|expired)\ api\ key | api\ key\ (?:not\ valid|expired|not\ found|is\ invalid)
      | your\ credit\ balance\ is\ too\ low | your\ account\ is\ not\ active
      | access\ denied,\ please\ make\ sure\ your\ account
    """,
    re.IGNORECASE | re.VERBOSE,
)
_LONGEST = 8192  # bytes of such an answer


def is_refused(body: bytes) -> bool:
    """Whether the body of an answer with `STATUS` blames our key or account, by a code or by how its message begins."""
    if len(body) > _LONGEST:
        return False
    try:
        found: Any = decode(body)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return False
    if isinstance(found, list):
        found = found[0] if found else None  # pyright: ignore[reportUnknownVariableType]
    return any(_blames(level) for level in _levels(found))


def _levels(found: Any) -> list[dict[str, Any]]:
    """The answer, its error, and what the error says in detail."""
    top: dict[str, Any] = found if isinstance(found, dict) else {}  # pyright: ignore[reportUnknownVariableType]
    error: Any = top.get("error")
    inner: dict[str, Any] = error if isinstance(error, dict) else {"message": error}  # pyright: ignore
    details: Any = inner.get("details")
    more: list[Any] = details if isinstance(details, list) else []  # pyright: ignore[reportUnknownVariableType]
    return [top, inner, *(one for one in more if isinstance(one, dict))]


def _blames(level: dict[str, Any]) -> bool:
    if any(level.get(name) in _CODES for name in ("code", "type", "reason") if isinstance(level.get(name), str)):
        return True
    message = level.get("message")
    return isinstance(message, str) and _WORDS.match(message) is not None
