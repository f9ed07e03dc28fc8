"""`pointsman plan accuracy`: predicted against measured, row by row of the catalogue."""

from __future__ import annotations

from pathlib import Path

import click
from msgspec.structs import asdict

from router.cli.plan import CATALOG, JSON, plainly, show
from router.cluster import accuracy, reader
from router.cluster.values import Impossible


@click.command()
@click.option("--cluster", "cluster_name", metavar="FILE|NAME", default="eight-spark-switch", show_default=True)
@CATALOG
@JSON
@plainly
def command(cluster_name: str, catalog: Path, as_json: bool) -> None:
    """What the formula alone says of each measured rate of the catalogue, as a table for docs/cluster.md."""
    cluster = reader.cluster(cluster_name, catalog)
    rows = accuracy.rows([reader.model(name, catalog) for name in reader.names("models", catalog)], cluster)
    if not rows:
        raise Impossible(f"no model in {catalog} has a measured rate; add rows under `measured`")
    total = accuracy.summary(rows)
    if as_json:
        show({"rows": [asdict(row) | {"error": row.error} for row in rows], "summary": asdict(total)})
        return
    click.echo("\n".join(lines(rows, total)))


def lines(rows: list[accuracy.Row], total: accuracy.Summary) -> list[str]:
    """Markdown."""
    told = ["| model | nodes | streams | predicted | range | measured | error |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        note = f" ({row.note})" if row.note else ""
        told.append(
            f"| {row.model}{note} | {row.nodes} | {row.concurrency} | {row.predicted:.1f} | {row.low:.0f} to "
            f"{row.high:.0f} | {row.measured:g} | {100 * row.error:+.0f}% |"
        )
    inside, worst = 100 * total.inside, 100 * total.worst_error
    told += [
        "",
        f"{total.rows} rows: median absolute error {100 * total.median_error:.0f}%, worst {worst:.0f}%; "
        f"{inside:.0f}% of the measured rates lie in the range. Of {total.pairs} pairs of sizes of one "
        f"model with as many streams, {total.ranked} are ranked as they were measured.",
    ]
    return told
