"""The order in which a set-up is looked over. What cannot be looked at because something before it is broken is left
out; the broken thing is told."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

import httpx
from msgspec import Struct

from router import state
from router.config import Config
from router.doctor import machine, models, stores
from router.doctor.finding import Finding, fail, ok, warn
from router.policy_files import review


class Options(Struct, frozen=True, kw_only=True):
    """What `pointsman serve` is, or would be, started with."""

    config: Path
    state: Path | None = None
    host: str = "127.0.0.1"
    port: int = 8080
    admin_host: str = "127.0.0.1"
    admin_port: int = 9090
    redis: str | None = None


async def examine(options: Options, environ: Mapping[str, str] = os.environ) -> list[Finding]:
    """Everything, in the order in which it should be mended."""
    findings = machine.program()
    config, of_files = _files(options.config)
    findings += of_files
    folder = state.folder(options.state)
    async with httpx.AsyncClient(trust_env=False) as client:
        of_models = await models.deployments(client, config, environ) if config is not None else []
        of_scorers = await models.scores(config) if config is not None else []
        of_ports = await machine.ports(
            client, options.host, options.port, options.admin_host, options.admin_port, config
        )
    url = options.redis or (config.store if config is not None else None)
    of_stores = await asyncio.gather(
        asyncio.to_thread(stores.folder, folder),
        asyncio.to_thread(stores.records, folder),
        stores.redis(url),
    )
    findings += [*of_models, *of_scorers, *of_ports]
    return findings + [one for found in of_stores for one in found]


def _files(directory: Path) -> tuple[Config | None, list[Finding]]:
    found = review(directory, needs=True)
    findings = [
        fail("configuration", f"{one.file}:{one.line}:{one.column}: {one.path}: {one.message}", "mend it there")
        for one in found.mistakes
    ]
    findings += [
        warn("configuration", f"{one.file}:{one.line}:{one.column}: {one.path}: {one.message}", "look at it")
        for one in found.warnings
    ]
    if found.config is not None:
        findings += [ok("configuration", f"{directory} checks; digest {found.config.digest[:12]}")]
        findings += machine.readable_by_others(directory, found.config)
    return found.config, findings
