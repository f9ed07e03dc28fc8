"""Who may speak to the admin port. It stands before every path, so no path can be forgotten.

On loopback there is no token: the Host header must name the loopback, or a web page could reach the port by
DNS rebinding. Elsewhere a token is required. A change asked for by another site's page is refused in both.

The dashboard's own files hold nothing of the gateway. A browser gets them without the token, the page itself with
status 401, so that it can ask for the token and send it with what it asks.
"""

from __future__ import annotations

import binascii
import hmac
import json
from base64 import b64decode
from collections.abc import Iterable
from hashlib import sha256

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from router.admin.page import page
from router.hosts import is_loopback, without_port

_SAFE = ("GET", "HEAD", "OPTIONS")
_SAME_SITE = (b"same-origin", b"none")
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)


class Gate:
    """ASGI middleware. `token` None means that only loopback Host headers pass."""

    def __init__(self, app: ASGIApp, *, token: str | None) -> None:
        self._app = app
        self._token = sha256(token.encode()).digest() if token is not None else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            status, code, message = refusal
            if status == 401 and scope["method"] in _SAFE and await _page(scope, send):
                return
            await _refuse(send, status, code, message, challenge=_asks_people(scope))
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                names = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(h for h in _HEADERS if h[0] not in names)]
            await send(message)

        await self._app(scope, receive, guarded)

    def _refusal(self, scope: Scope) -> tuple[int, str, str] | None:
        """Status, code and message; None lets the request in."""
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        hosts = [value for name, value in headers if name == b"host"]
        if len(hosts) != 1:
            return 400, "invalid_request", "exactly one Host header is needed"
        if self._token is not None:
            if not self._has_token(value for name, value in headers if name == b"authorization"):
                return 401, "invalid_admin_token", "the admin port needs its token, as Bearer or as Basic password"
        elif not is_loopback(without_port(hosts[0])):
            return 421, "wrong_host", "the admin port answers to 127.0.0.1, localhost and [::1] only"
        if scope["method"] not in _SAFE and _from_elsewhere(headers, hosts[0]):
            return 403, "cross_site", "a page of another site may not change anything here"
        return None

    def _has_token(self, values: Iterable[bytes]) -> bool:
        right = False
        for value in values:
            right |= hmac.compare_digest(sha256(_token(value)).digest(), self._token or b"")
        return right


def _token(value: bytes) -> bytes:
    """The token of an Authorization header: Bearer's, or the password of Basic, which browsers can ask for."""
    scheme, _, rest = value.partition(b" ")
    rest = rest.strip()
    if scheme.lower() == b"bearer":
        return rest
    if scheme.lower() == b"basic":
        try:
            return b64decode(rest, validate=True).partition(b":")[2]
        except binascii.Error:
            return b""
    return b""


def _from_elsewhere(headers: Iterable[tuple[bytes, bytes]], host: bytes) -> bool:
    for name, value in headers:
        if name == b"sec-fetch-site" and value not in _SAME_SITE:
            return True
        if name == b"origin" and value.partition(b"://")[2].lower() != host.lower():
            return True
    return False


async def _page(scope: Scope, send: Send) -> bool:
    """Sends a file of the dashboard, where it is asked for by a browser; the page itself with status 401."""
    path = scope["path"]
    file = page().get(path)
    accepted = b"".join(value for name, value in scope["headers"] if name == b"accept")
    if file is None or (path == "/" and b"text/html" not in accepted):
        return False
    headers = [(name.encode(), value.encode()) for name, value in file.headers.items()]
    headers += [(b"content-length", b"%d" % len(file.content))]
    headers += [one for one in _HEADERS if one[0].decode() not in file.headers]
    await send({"type": "http.response.start", "status": 401 if path == "/" else 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else file.content})
    return True


def _asks_people(scope: Scope) -> bool:
    """Whether a browser may ask for a password by itself: not for what the dashboard's script asks."""
    return all(value != b"empty" for name, value in scope["headers"] if name == b"sec-fetch-dest")


async def _refuse(send: Send, status: int, code: str, message: str, *, challenge: bool) -> None:
    body = json.dumps({"error": {"message": message, "type": "invalid_request_error", "code": code}}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *_HEADERS]
    if status == 401 and challenge:
        headers.append((b"www-authenticate", b'Basic realm="pointsman admin", charset="UTF-8"'))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
