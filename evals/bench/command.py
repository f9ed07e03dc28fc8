"""`pointsman bench`: what the gateway costs, as ratios."""

from __future__ import annotations

import json
from pathlib import Path

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
    as_json: bool,
    out: Path | None,
) -> None:
    """Measure the gateway's overhead, in one run, as ratios.

    Without --url it starts a gateway with everything switched on and a bare proxy, both in front of a mock upstream,
    and compares their CPU time per request (Linux). With --url and --direct it compares the latency of a gateway
    that runs with that of calling the upstream directly. With --scorer it measures what scoring one prompt takes.
    """
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
        from evals.bench import run

        result = run.bench(scale, rounds)
        text = run.render(result)
    if out is not None:
        out.write_text(json.dumps(result, indent=1) + "\n")
    click.echo(json.dumps(result, indent=1) if as_json else text)
