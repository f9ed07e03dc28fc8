"""`pointsman plan partition`: every way to part a cluster into groups, and one of them written down as a plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from router.cli.plan import CATALOG, CLUSTER, JSON, digits, plainly, ranged, show
from router.cluster import fit as fits
from router.cluster import partition as parts
from router.cluster import reader
from router.cluster.values import Cluster, Engine, Group, Impossible, Layout, Plan
from router.policy_files.onto import suggestion

SHOWN = 12  # layouts, where not all are asked for


@click.command()
@CLUSTER
@click.option("--models", metavar="LARGE,SMALL,CLASSIFIER", required=True, help="Models in order, by name or file.")
@click.option(
    "--context", type=click.IntRange(1), default=fits.CONTEXT, show_default=True, help="Tokens that must fit."
)
@click.option("--choose", metavar="NAME|NUMBER", help="The layout to write down; the first without it.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the chosen layout as a plan file.")
@click.option("--engine", type=click.Choice(["vllm", "sglang", "trtllm"]), default="vllm", show_default=True)
@click.option("--all", "everything", is_flag=True, help="Also layouts that another one beats in everything.")
@CATALOG
@JSON
@plainly
def command(
    cluster_name: str,
    models: str,
    context: int,
    choose: str | None,
    out: Path | None,
    engine: str,
    everything: bool,
    catalog: Path,
    as_json: bool,
) -> None:
    """Lay a cluster out in groups: each way that is legal, what it comes to, and why others are not.

    The first model is the large group's, the last of three or more the classifier's. A layout is marked with * where no
    other is as good in everything: one stream's rate, all streams' rate, cached tokens, and what one node takes down.

    Exit code 0, 1 when nothing fits, 2 on a mistake in a file or a name.
    """
    cluster = reader.cluster(cluster_name, catalog)
    given = [reader.model(name.strip(), catalog) for name in models.split(",") if name.strip()]
    found = parts.partition(cluster, given, context=context)
    if as_json:
        show(_plain(cluster, found))
    else:
        click.echo("\n".join(_lines(found, everything)))
    if not found.layouts:
        raise Impossible(_nothing(cluster, found, [one.name for one in given]))
    if out is not None:
        chosen = _chosen(found.layouts, choose)
        made = Plan(
            name=chosen.name,
            cluster=cluster,
            groups=chosen.groups,
            engine=msgspec.convert(engine, Engine),
            why=chosen.why,
        )
        reader.write_plan(made, out)
        click.echo(f"wrote {out}", err=True)


def _chosen(layouts: tuple[Layout, ...], choose: str | None) -> Layout:
    if choose is None:
        return layouts[0]
    if choose.isdecimal() and 1 <= int(choose) <= len(layouts):
        return layouts[int(choose) - 1]
    named = {one.name: one for one in layouts}
    if choose not in named:
        raise Impossible(f"there is no layout '{choose}'{suggestion(choose, list(named)[:SHOWN])}")
    return named[choose]


def _nothing(cluster: Cluster, found: parts.Parted, names: list[str]) -> str:
    whys = [one.why for one in found.refused]
    first = f": {whys[-1]}" if whys else ""
    return f"{', '.join(names)} cannot share {cluster.name}{first}"


def _plain(cluster: Cluster, found: parts.Parted) -> dict[str, Any]:
    return {
        "cluster": cluster.name,
        "layouts": [
            {
                "name": one.name,
                "pareto": one.pareto,
                "groups": [_group(group) for group in one.groups],
                "single_stream_tokens_per_s": digits(one.single_stream),
                "aggregate_tokens_per_s": digits(one.aggregate),
                "kv_tokens": one.kv_tokens,
                "blast_radius": round(one.blast_radius, 3),
                "why": list(one.why),
            }
            for one in found.layouts
        ],
        "refused": [{"layout": one.layout, "why": one.why} for one in found.refused],
    }


def _group(group: Group) -> dict[str, Any]:
    shown = msgspec.to_builtins(group)
    shown["tokens_per_s"] = ranged(group.tokens_per_s)
    shown["aggregate_tokens_per_s"] = ranged(group.aggregate_tokens_per_s)
    shown["layout"] = str(group.parallel)
    return shown


def _lines(found: parts.Parted, everything: bool) -> list[str]:
    lines: list[str] = []
    for number, one in enumerate(found.layouts, 1):
        if not everything and (not one.pareto or number > SHOWN):
            continue
        lines.append(f"{number}. {one.name}{' *' if one.pareto else ''}")
        lines.append(
            f"   one stream {digits(one.single_stream):g} tokens/s, all {digits(one.aggregate):,.10g} tokens/s, "
            f"{one.kv_tokens:,} tokens of cache, one node takes {100 * one.blast_radius:.0f}%"
        )
        lines.extend(f"   {line}" for line in one.why)
    shown = sum(not line.startswith(" ") for line in lines)
    if shown < len(found.layouts):
        lines.append(f"{len(found.layouts) - shown} more with --all")
    if found.refused:
        lines.append("refused:")
        lines.extend(f"   {one.layout}: {one.why}" for one in found.refused[: None if everything else SHOWN])
        if len(found.refused) > SHOWN and not everything:
            lines.append(f"   {len(found.refused) - SHOWN} more with --all")
    return lines
