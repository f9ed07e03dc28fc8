"""`pointsman plan doctor`: a plan held against its machines and engines."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import click
import msgspec

from router.cli.plan import CATALOG, JSON, PLAN, plainly, show
from router.cli.plan.inventory import FROM, THROUGH
from router.cli.plan.render import known
from router.cluster import reader
from router.launch import network
from router.survey import ask, findings
from router.survey.probe import probe
from router.survey.values import Finding


@click.command()
@PLAN
@THROUGH
@FROM
@click.option("--machines/--no-machines", default=True, show_default=True, help="Ask the machines.")
@click.option("--engines/--no-engines", default=True, show_default=True, help="Ask the engines over HTTP.")
@click.option("--token/--no-token", default=True, show_default=True, help="Ask each engine for one token.")
@CATALOG
@JSON
@plainly
def command(
    plan_file: Path,
    through: str,
    recorded: Path | None,
    machines: bool,
    engines: bool,
    token: bool,
    catalog: Path,
    as_json: bool,
) -> None:
    """Look whether machines and engines are what a plan takes them for, and say what would mend what is not.

    Machines: names, state, speed and MTU of network devices, RDMA devices, addresses, memory, versions, and what NCCL
    and vLLM are told. Engines: whether they answer, serve the model and show their load, and one token of each.

    Exit code 0, 1 where something is wrong, 2 on a mistake in a file.
    """
    plan = reader.plan(plan_file)
    found: list[Finding] = []
    if machines:
        hosts = [(node.id, network.address(plan.cluster, node.id)) for node in plan.cluster.nodes]
        told = ask.recorded(recorded) if recorded else ask.ask(hosts, through)
        ours = [one for one in told if one.id in {node for node, _ in hosts}]
        missing = {node for node, _ in hosts} - {one.id for one in told}
        found += [
            findings.error(node, "nothing was recorded of it", "run the script there") for node in sorted(missing)
        ]
        found += findings.machines(plan, ours, known(plan, catalog))
    if engines:
        found += findings.engines(plan, asyncio.run(probe(plan, token=token)))
    count = Counter(one.level for one in found)
    if as_json:
        show({"ok": not count["error"], "findings": [msgspec.to_builtins(one) for one in found]})
    else:
        for one in found:
            click.echo(f"{one.level:8}{one.where}: {one.what}" + (f"\n        -> {one.do}" if one.do else ""))
        click.echo(f"{count['error']} wrong, {count['warning']} to look at, {count['ok']} right", err=True)
    raise SystemExit(1 if count["error"] else 0)
