"""Addresses that are called and keys that are sent there: whether they can be, and whether they are what was meant.

Either may hold a secret, so neither is ever quoted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from router.errors import Mistake
from router.policy_files.positions import Document, Path
from router.policy_files.shapes import mapping

_LABEL: Final = "[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\.?")
# As shells, LiteLLM, Kubernetes, Windows and templates write a variable; no provider's key looks like one.
_REFERENCE: Final = re.compile(r"\$\w+ | \$\(.*\) | %\w+% | os\.environ/.* | \{\{.*\}\}", re.VERBOSE)


def unusable_url(url: str) -> str | None:
    """What keeps a client from calling a URL; None where nothing does. The URL may hold a secret and is not quoted."""
    if any(not character.isprintable() or character.isspace() for character in url):
        return "a URL holds no spaces, line breaks or control characters"
    if not url.isascii():
        return "a URL is ASCII: write the host as xn--... and quote the path with %"
    try:
        parts = urlsplit(url)
        if parts.port == 0 or parts.netloc.endswith(":") or not parts.hostname:
            return "has no host, or no port after the colon; write http://HOST:PORT/v1"
        if ":" not in parts.hostname and not _HOST.fullmatch(parts.hostname):
            return "has a host that no name server knows; write http://HOST:PORT/v1, and a variable as ${NAME}"
        return "ends in a #, which is never sent; remove it" if "#" in url else None
    except ValueError:
        return "has a port or an address in [ ] that cannot be; write http://HOST:PORT/v1, with a port from 1 to 65535"


def unusable_store(url: str) -> str | None:
    """What keeps a Redis from being found at a URL that begins as one; None where nothing does."""
    try:
        parts = urlsplit(url)
        if parts.scheme == "unix" or (parts.port != 0 and re.fullmatch("/?[0-9]*", parts.path)):
            return None
    except ValueError:
        pass
    return "has a port or a database that cannot be; write redis://HOST:PORT/0, with the number of a database"


def check_key(document: Document, path: Path, key: str) -> Iterator[Mistake]:
    """Mistakes in a key to send."""
    if not key:
        yield document.mistake(path, "is empty; write none to send no key")
    elif not (key.isascii() and key.isprintable()):
        yield document.mistake(path, "holds a character that no HTTP header carries, such as a line break")
    elif key != key.strip():
        yield document.mistake(path, "begins or ends with a space, which no server takes for a part of it")
    elif path not in document.raw and _REFERENCE.fullmatch(key):
        yield document.mistake(path, "would be sent as it stands here; a variable is written ${NAME}")


def literal_keys(document: Document) -> Iterator[Mistake]:
    """Keys that stand in the file itself: a warning, because files are copied, committed and read by others."""
    for name, body in (mapping(document.data.get("deployments")) or {}).items():
        path: Path = ("deployments", name, "api_key")
        key = (mapping(body) or {}).get("api_key")
        if isinstance(key, str) and key not in ("", "none") and "${" not in key and path not in document.raw:
            yield document.mistake(path, "a key stands in this file; write ${NAME}, and set that variable")
