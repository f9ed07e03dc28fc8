"""`pointsman bench`: what the gateway costs, as ratios."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click


@click.command()
@click.option("--url", metavar="URL", help="A running gateway's base URL, up to /v1; needs --direct.")
@click.option("--direct", metavar="URL", help="The upstream's own base URL, called beside it.")
@click.option("--model", default="auto", show_default=True, help="With --url: the model to ask the gateway for.")
@click.option("--direct-model", metavar="NAME", help="With --direct: the upstream's model; as --model when left out.")
@click.option(
    "--count",
    type=click.IntRange(5, 10_000),
    default=50,
    show_default=True,
    help="Of each, with --url or --scorer.",
)
@click.option("--scale", type=click.FloatRange(0.01, 100), default=1.0, show_default=True, help="More or less work.")
@click.option("--rounds", type=click.IntRange(1, 20), default=3, show_default=True, help="Turns of each contender.")
@click.option("--scorer", metavar="NAME|DIR", help="Measure this scorer by itself instead: what a prompt costs.")
@click.option("--config", type=click.Path(path_type=Path), help="With --scorer: where its name is looked up.")
@click.option("--peers", is_flag=True, help="Install Switchyard for the comparison, into an environment of its own.")
@click.option(
    "--compare",
    "baseline",
    type=click.Path(path_type=Path),
    help="A table of before: exit 1 when a ratio is worse by more than 15%.",
)
@click.option("--json", "as_json", is_flag=True, help="The figures as JSON.")
@click.option("--out", type=click.Path(path_type=Path), help="Write the JSON there as well.")
def command(
    url: str | None,
    direct: str | None,
    model: str,
    direct_model: str | None,
    count: int,
    scale: float,
    rounds: int,
    scorer: str | None,
    config: Path | None,
    peers: bool,
    baseline: Path | None,
    as_json: bool,
    out: Path | None,
) -> None:
    """Measure the gateway's overhead, in one run, as ratios.

    Without --url it starts a gateway with everything switched on, a bare proxy and, where it is installed,
    Switchyard, all in front of a mock upstream, and prints every figure that has a target (Linux). With --url and
    --direct it compares the latency of a gateway that runs with that of calling the upstream directly. With --scorer
    it measures what scoring one prompt takes.
    """
    worse: list[str] = []
    if (url is None) != (direct is None):
        raise click.UsageError("--url and --direct go together")
    if url is not None and direct is not None:
        from evals.bench.latency import compare, render

        result = compare(url, direct, model, direct_model or model, count)
        text = render(result)
    elif scorer is not None:
        from evals.bench import scorers

        result = scorers.measure(scorer, config, count)
        text = scorers.render(result)
    else:
        from evals.bench import peers as others
        from evals.bench import table

        before = None if baseline is None else _read(baseline)
        if peers:
            others.install()
        result = table.bench(scale, rounds)
        text = table.render(result)
        worse = [] if before is None else table.compare(result, before)
    if out is not None:
        out.write_text(json.dumps(result, indent=1) + "\n")
    click.echo(json.dumps(result, indent=1) if as_json else text)
    if worse:
        raise click.ClickException("worse than the baseline by more than 15%: " + "; ".join(worse))


def _read(path: Path) -> dict[str, Any]:
    """A table written before. Raises click.ClickException where it is none."""
    try:
        found = json.loads(path.read_text())
        return {"rows": [{"work": row["work"], "ratios": row["ratios"]} for row in found["rows"]]}
    except (OSError, ValueError, KeyError, TypeError):
        raise click.ClickException(f"{path} is not a table that `bench --out` wrote") from None
