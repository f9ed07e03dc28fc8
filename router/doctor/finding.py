"""One thing that was looked at. Values only."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Level = Literal["ok", "warn", "fail"]


class Finding(Struct, frozen=True, kw_only=True):
    """`about`: what was looked at; `found`: in words; `todo`: what to do, where something is to be done."""

    level: Level
    about: str
    found: str
    todo: str = ""


def ok(about: str, found: str) -> Finding:
    return Finding(level="ok", about=about, found=found)


def warn(about: str, found: str, todo: str) -> Finding:
    return Finding(level="warn", about=about, found=found, todo=todo)


def fail(about: str, found: str, todo: str) -> Finding:
    return Finding(level="fail", about=about, found=found, todo=todo)
