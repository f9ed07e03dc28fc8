"""A gateway with keys: a keys.yaml for the names of tests, and the headers that present one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.support.rig import Rig, running


def token(name: str) -> str:
    return f"pm_token-of-{name}"


def bearer(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token(name)}"}


def keys_yaml(keys: dict[str, str], more: str = "") -> str:
    """keys.yaml for keys by name, each with its further fields as `tenant: acme, models: [auto]`."""
    lines = ["version: 1", "keys:" if keys else "keys: {}"]
    lines += [
        f"  {name}: {{sha256: {sha256(token(name).encode()).hexdigest()}, {fields}}}" for name, fields in keys.items()
    ]
    return "\n".join(lines) + "\n" + more


@asynccontextmanager
async def keyed(
    folder: Path, groups_yaml: str, keys: dict[str, str], more: str = "", **options: Any
) -> AsyncIterator[Rig]:
    """A running gateway that asks for these keys."""
    (folder / "config").mkdir(exist_ok=True)
    (folder / "config" / "keys.yaml").write_text(keys_yaml(keys, more))
    async with running(folder, groups_yaml, **options) as rig:
        yield rig
