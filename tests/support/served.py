"""`pointsman serve` as a process of its own."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from tests.support.ports import free_port
from tests.support.rig import POLICY, SCORERS


def write(folder: Path, groups_yaml: str, policy: str = POLICY) -> Path:
    config = folder / "config"
    config.mkdir()
    (config / "groups.yaml").write_text(groups_yaml)
    (config / "default.yaml").write_text(policy)
    (config / "scorers.yaml").write_text(SCORERS)
    return config


@asynccontextmanager
async def serving(
    folder: Path, config: Path, *more: str, before: Sequence[str] = ()
) -> AsyncIterator[tuple[subprocess.Popen[bytes], httpx.AsyncClient, str]]:
    """`before`: the command that runs it."""
    port, admin = free_port(), free_port()
    argv = [*before, sys.executable, "-m", "router", "serve", "--config", str(config), "--port", str(port)]
    argv += ["--admin-port", str(admin), "--state", str(folder / "state"), *more]
    with (folder / "log").open("wb") as out:
        process = subprocess.Popen(argv, stdout=out, stderr=out)
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            until = time.monotonic() + 120  # a loaded machine takes half a minute for two workers
            while True:
                try:
                    if (await client.get("/readyz")).status_code == 200:
                        break
                except httpx.TransportError:
                    pass
                assert process.poll() is None, (folder / "log").read_text()
                assert time.monotonic() < until, (folder / "log").read_text()
                await asyncio.sleep(0.05)
            yield process, client, f"http://127.0.0.1:{admin}"
    finally:
        if process.poll() is None:
            process.kill()
        await asyncio.to_thread(process.wait)
