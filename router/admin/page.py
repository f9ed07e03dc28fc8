"""The dashboard's files: HTML, CSS and JavaScript as they stand in `static`, read once. They hold nothing of this
gateway and need nothing from elsewhere: what they show they ask of this port, with the token where there is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from msgspec import Struct

HOME = "dashboard.html"
FOLDER = "/static/"  # of the files' paths
TYPES: Mapping[str, str] = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "LICENSE": "text/plain; charset=utf-8",
}
# No inline script or style runs, nothing is loaded from elsewhere, and no other page can frame this one.
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)


class File(Struct, frozen=True):
    """One file, ready to be sent."""

    content: bytes
    headers: Mapping[str, str]


@cache
def page() -> Mapping[str, File]:
    """Every file by the path at which the admin port has it."""
    found: dict[str, File] = {}
    for one in files("router.admin").joinpath("static").iterdir():
        kind = TYPES.get(one.name.rpartition(".")[2])
        if kind is not None:
            headers = {"content-type": kind, "content-security-policy": CONTENT_POLICY, "cache-control": "no-cache"}
            found["/" if one.name == HOME else FOLDER + one.name] = File(one.read_bytes(), headers)
    return found
