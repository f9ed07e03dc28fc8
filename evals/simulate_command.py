"""`pointsman plan simulate`: its options, and what is written where. The simulation is `router.cluster.scenario`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, cast

import click

from evals.console import FILE, progress, say
from router.cli.plan import CATALOG, JSON, plainly, show

SWEPT = 6000  # requests at each of the loads that are looked at besides


@click.command()
@click.option("--scenario", "name", metavar="NAME|FILE", required=True, help="Such as reference.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="The same seed, the same result.")
@click.option("--requests", type=click.IntRange(1, 10_000_000), help="Instead of the scenario's.")
@click.option("--per-s", type=click.FloatRange(0, min_open=True), help="Mean requests a second, instead of its.")
@click.option(
    "--rates",
    type=click.Choice(["low", "mid", "high"]),
    default="mid",
    show_default=True,
    help="Which end of the ranges of rates to take, for every group alike.",
)
@click.option("--quick", is_flag=True, help="Leave out the load that each way bears, other loads and shares.")
@click.option("--report", type=FILE, help="Draw the result as one HTML page.")
@CATALOG
@JSON
@plainly
def command(
    name: str,
    seed: int,
    requests: int | None,
    per_s: float | None,
    rates: str,
    quick: bool,
    report: Path | None,
    catalog: Path,
    as_json: bool,
) -> None:
    """The same requests to the large group only, the small one only, at random and routed, on the same nodes.

    Queues, prefill, batched decoding and the classifier are simulated event by event; every request is decided by the
    function that decides in production, on recorded scores, and answered with recorded quality.

    Exit code 0, 1 when a layout cannot be, 2 on a mistake in a file or a name.
    """
    from evals import simulated
    from router.cluster import frontier, scenario, scenario_files

    of = scenario_files.scenario(name, catalog)
    which = cast("Literal['low', 'mid', 'high']", rates)
    if not as_json:
        say(f"{of.name}: {requests or of.requests:,} requests, four ways")
    outcome = scenario.run(of, seed, per_s=per_s, requests=requests, which=which, capacity=not quick)
    sweep: list[scenario.Outcome] = []
    if not quick and of.loads:
        with progress("loads", len(of.loads)) as step:
            for load in of.loads:
                sweep.append(scenario.run(of, seed, per_s=load, requests=SWEPT, which=which))
                step()
    points: tuple[frontier.Point, ...] = ()
    if not quick and of.shares:
        with progress("shares of the large group", len(of.shares)) as step:
            points = frontier.frontier(of, seed, of.shares, which, step)
    if report is not None:
        report.parent.mkdir(parents=True, exist_ok=True)
        report.write_text(simulated.page(of, outcome, sweep, points), encoding="utf-8")
        say(f"wrote {report}")
    if as_json:
        show(simulated.as_json(outcome, sweep, points))
    else:
        click.echo("\n".join(simulated.lines(of, outcome, sweep, points)))
