"""`pointsman plan`: one table of its commands, each in its own module, imported when it is run or asked about.

What they share towards people stands here too: options, mistakes in one line, and the exit codes: 1 where nothing fits
or what is asked cannot be, 2 where a file or a name is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

import click

from router.cli import Commands
from router.cluster import reader
from router.cluster.values import Impossible, Range
from router.errors import ConfigError, NotFound

P = ParamSpec("P")
R = TypeVar("R")

# To add one: a module with `command`, and a line here.
PLANS: Final[Mapping[str, tuple[str, str]]] = {
    "fit": ("router.cli.plan.fit", "How many nodes a model needs, and how fast it would be."),
    "partition": ("router.cli.plan.partition", "Every way to part a cluster into groups of models."),
    "render": ("router.cli.plan.render", "The files that start a plan's groups, and the gateway's configuration."),
    "inventory": ("router.cli.plan.inventory", "Machines asked what they are, and the cluster that they make."),
    "doctor": ("router.cli.plan.doctor", "Whether machines and engines are what a plan takes them for."),
    "accuracy": ("router.cli.plan.accuracy", "What the estimates say of everything that was measured."),
    "simulate": ("evals.simulate_command", "What routing buys on a cluster: the same requests, four ways."),
}


class Plans(Commands):
    """The commands of `plan`."""

    table = PLANS


@click.group(cls=Plans)
def command() -> None:
    """Plan a cluster: what fits, how it parts into groups, and what routing buys on it.

    Models, kinds of nodes, clusters and scenarios go by a file or by their name in the catalogue (`deploy/catalog`).
    """


CATALOG = click.option(
    "--catalog",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=reader.SHIPPED,
    show_default="the shipped one",
    help="A folder of models, nodes, clusters and scenarios.",
)
CLUSTER = click.option("--cluster", "cluster_name", metavar="FILE|NAME", required=True, help="The cluster.")
PLAN = click.option(
    "--plan",
    "plan_file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    required=True,
    help="A plan file, written by `plan partition --out`.",
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


def plainly(call: Callable[P, R]) -> Callable[P, R]:
    """A mistake ends the command in one line: exit code 2 for files and names, 1 for what cannot be."""

    @wraps(call)
    def plain(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return call(*args, **kwargs)
        except (ConfigError, NotFound) as error:
            click.echo(error.message, err=True)
            raise SystemExit(2) from None
        except Impossible as error:
            click.echo(str(error), err=True)
            raise SystemExit(1) from None

    return plain


def show(value: Mapping[str, Any]) -> None:
    """A result as JSON."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def ranged(value: Range | None) -> dict[str, Any] | None:
    """A range with the digits that it is worth."""
    if value is None:
        return None
    low, mid, high = (digits(x) for x in (value.low, value.mid, value.high))
    return {"low": low, "mid": mid, "high": high, "source": value.source}


def span(value: Range, unit: str) -> str:
    """A range in words."""
    low, mid, high = (f"{digits(x):,.10g}" for x in (value.low, value.mid, value.high))
    return f"{mid} {unit} ({low} to {high}; {value.source})"


def digits(value: float) -> float:
    """Three of them: no estimate is worth more."""
    return float(f"{value:.3g}")
