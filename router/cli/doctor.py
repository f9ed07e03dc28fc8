"""`pointsman doctor`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import click
import msgspec

from router.cli import show
from router.cli.options import CONFIG, JSON, addresses


@click.command()
@CONFIG
@click.option("--state", "state_dir", type=click.Path(path_type=Path), help="Folder of records and history.")
@addresses
@click.option("--redis", metavar="URL", help="The Redis that `serve` is given.")
@JSON
def command(
    config: Path,
    state_dir: Path | None,
    host: str,
    port: int,
    admin_host: str,
    admin_port: int,
    redis: str | None,
    as_json: bool,
) -> None:
    """Look over a set-up: files, deployments and their models, keys, scorers, ports, state, database, Redis, clock.

    Each line is ok, warn or fail, and says what to do. Servers are asked for their lists of models and scorers one
    question; nothing is generated and nothing is changed.

    Exit code 0 without a fail, 1 with.
    """
    from router.doctor import Options, examine

    options = Options(
        config=config,
        state=state_dir,
        host=host,
        port=port,
        admin_host=admin_host,
        admin_port=admin_port,
        redis=redis,
    )
    findings = asyncio.run(examine(options))
    failed = sum(one.level == "fail" for one in findings)
    warned = sum(one.level == "warn" for one in findings)
    if as_json:
        plain = {"ok": not failed, "fail": failed, "warn": warned, "findings": msgspec.to_builtins(findings)}
        click.echo(json.dumps(plain, indent=2, ensure_ascii=False))
    else:
        rows = [(one.level, one.about, one.found, one.todo) for one in findings]
        show.table(("", "what", "found", "to do"), rows)
        click.echo(f"{failed} to mend, {warned} to look at" if failed or warned else "all is well")
    raise SystemExit(1 if failed else 0)
