"""`pointsman plan inventory`: machines asked what they are, and the cluster file that they make together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from router.cli.plan import JSON, plainly, show
from router.launch.gateway import text
from router.survey import ask, wiring
from router.survey.script import SCRIPT
from router.survey.values import Facts, Silent
from router.survey.wiring import Drawn

THROUGH = click.option("--through", default=ask.SSH, show_default=True, help="What runs a script on {host} (or {id}).")
FROM = click.option(
    "--from",
    "recorded",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Read what was recorded before, NAME@ADDRESS.txt for each machine, and ask nobody.",
)


@click.command()
@click.argument("machines", nargs=-1, metavar="[NAME=ADDRESS]...")
@click.option(
    "--hosts",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="A file of machines: NAME ADDRESS on each line.",
)
@THROUGH
@FROM
@click.option("--script", is_flag=True, help="Print the script that is run on each machine, to run it by hand.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the cluster file here.")
@JSON
@plainly
def command(
    machines: tuple[str, ...],
    hosts: Path | None,
    through: str,
    recorded: Path | None,
    script: bool,
    out: Path | None,
    as_json: bool,
) -> None:
    """Ask machines what they are: GPU, memory, network and RDMA devices, versions, and who is at the end of each cable.

    They are asked over ssh as you are; nothing on them is changed. What joins them, a cable, a ring or a switch, is
    told by LLDP, else by the addresses that they have resolved.

    Exit code 0, 1 where a machine could not be asked, 2 on a mistake.
    """
    if script:
        click.echo(SCRIPT, nl=False)
        return
    found = ask.recorded(recorded) if recorded else ask.ask(_named(machines, hosts), through)
    facts = [one for one in found if isinstance(one, Facts)]
    silent = [one for one in found if isinstance(one, Silent)]
    drawn = wiring.draw(facts) if facts else None
    if as_json:
        show(_plain(facts, silent, drawn))
    else:
        click.echo("\n".join(_lines(facts, drawn)))
    for one in silent:
        click.echo(f"{one.id} ({one.address}): {one.why}", err=True)
    if out is not None and drawn is not None and not silent:
        left = [f"to be set by hand: {line}" for line in drawn.open]
        out.write_text(text(drawn.document(), "Written by `pointsman plan inventory`.", f"{drawn.why}.", *left))
        click.echo(f"wrote {out}", err=True)
    raise SystemExit(1 if silent else 0)


def _named(machines: tuple[str, ...], hosts: Path | None) -> list[ask.Host]:
    lines = "\n".join(one.replace("=", " ", 1) for one in machines)
    try:
        given = ask.hosts("\n".join((hosts.read_text() if hosts else "", lines)))
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if not given:
        raise click.UsageError("name machines, NAME=ADDRESS each, or give --hosts or --from")
    return given


def _plain(facts: list[Facts], silent: list[Silent], drawn: Drawn | None) -> dict[str, Any]:
    return {
        "machines": [msgspec.to_builtins(one) for one in facts],
        "silent": [msgspec.to_builtins(one) for one in silent],
        "cluster": drawn.document() if drawn else None,
        "why": drawn.why if drawn else None,
        "open": list(drawn.open) if drawn else [],
    }


def _lines(facts: list[Facts], drawn: Drawn | None) -> list[str]:
    lines: list[str] = []
    for one in facts:
        memory = f"{one.memory_gib:.1f} GiB" if one.memory_gib else "memory unknown"
        lines.append(
            f"{one.id} ({one.address}): {one.gpu or 'GPU unknown'}, {memory}, {one.system or 'system unknown'}"
        )
        for device in one.interfaces:
            if (device.up and device.physical) or device.hca:
                speed = f"{device.speed_mbps / 1000:g} Gb/s" if device.speed_mbps else "speed unknown"
                rdma = f", RDMA {device.hca}" if device.hca else ""
                state = "" if device.up else ", down"
                lines.append(f"  {device.name}: {speed}, MTU {device.mtu}{rdma}{state}  {' '.join(device.addresses)}")
        if one.versions:
            lines.append("  " + ", ".join(f"{name} {version}" for name, version in one.versions.items()))
        lines += [f"  unknown: {what}" for what in one.unknown]
    if drawn is not None:
        lines += ["", f"{drawn.fabric.kind}: {drawn.why}"]
        lines += [f"order: {' - '.join(drawn.fabric.order)}"] if drawn.fabric.order else []
        lines += [f"to be set by hand: {line}" for line in drawn.open]
    return lines
