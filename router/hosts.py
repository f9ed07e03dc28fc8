"""Which Host and Origin a request may come with where its address alone is what lets it in: on loopback, without a key.

A browser is on loopback too, and shows pages of strangers. Such a page may send requests to this machine, which say in
Origin whose page it is; or it reaches the port under a name of its own that suddenly means 127.0.0.1 (DNS rebinding),
which the Host says. Pure; who asks these questions are the two ports.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from functools import lru_cache

from router.errors import ForeignPage

_OURS = "; use 127.0.0.1 or localhost, make a key (`pointsman keys create`), or say --open-to-everyone"


def is_loopback(host: str) -> bool:
    """Whether an address to listen on, or a Host header without its port, is this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def without_port(host: bytes) -> str:
    text = host.decode("latin-1")
    head, colon, port = text.rpartition(":")
    return head if colon and port.isdigit() and (":" not in head or head.endswith("]")) else text


def refuse_strangers(headers: Mapping[bytes, bytes]) -> None:
    """Raises ForeignPage where a request may be of another site's page."""
    host = headers.get(b"host")
    if host and not _ours(host):
        raise ForeignPage("this Host is not the gateway's" + _OURS)
    origin = headers.get(b"origin")
    if origin is not None and not _may_ask(origin, host):
        raise ForeignPage("a page of another site may not ask here" + _OURS)


@lru_cache(256)
def _ours(host: bytes) -> bool:
    """Whether no stranger can have a page under this name: an address, or a name that is this machine's or its
    network's. Names that anybody can register have a dot."""
    name = without_port(host).rstrip(".").lower()
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return "." not in name or name.endswith(".localhost")
    return True


@lru_cache(256)
def _may_ask(origin: bytes, host: bytes | None) -> bool:
    """Pages of this machine, and what is no page of the web: editors and desktop programs have schemes of their own."""
    scheme, _, rest = origin.partition(b"://")
    if scheme.lower() not in (b"http", b"https"):
        return bool(rest)  # "null" is whatever page in a sandbox
    if rest == host:
        return True
    name = without_port(rest)
    return is_loopback(name) or name.lower().endswith(".localhost")
