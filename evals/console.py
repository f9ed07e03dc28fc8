"""What the commands of `pointsman eval` share towards people: mistakes in one line, results as JSON, progress.

On a terminal long work draws a bar; piped, it says a line every ten seconds and at the end. No measuring here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from time import perf_counter
from typing import Any, ParamSpec, TypeVar

import click

from evals.cases import BadData
from evals.libraries import NotInstalled
from router.errors import ConfigError
from router.scorers.generative import NotInstalled as MissingLibrary

P = ParamSpec("P")
R = TypeVar("R")

_LINE_S = 10.0  # between lines of progress

FILE = click.Path(path_type=Path, dir_okay=False)
DIRECTORY = click.Path(path_type=Path, file_okay=False)


def plainly(call: Callable[P, R]) -> Callable[P, R]:
    """Data or configuration that cannot be used ends the command with one line and exit code 1."""

    @wraps(call)
    def plain(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return call(*args, **kwargs)
        except (BadData, NotInstalled, MissingLibrary, ConfigError) as e:
            raise click.ClickException(str(e)) from e
        except OSError as e:
            if e.filename is None:
                raise
            raise click.ClickException(f"{e.filename}: {e.strerror}") from e

    return plain


def say(line: str) -> None:
    """A line on standard error, which leaves standard output to results."""
    click.echo(line, err=True)


def write(result: Any, out: Path | None) -> None:
    """A result as JSON, to a file or to standard output."""
    text = json.dumps(result, ensure_ascii=False, indent=1)
    if out is None:
        click.echo(text)
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text + "\n", encoding="utf-8")


@contextmanager
def progress(label: str, total: int, done: int = 0) -> Generator[Callable[[], None]]:
    """Gives what is called at each step done of `total`, of which `done` were before."""
    if not sys.stderr.isatty():
        yield _lines(label, total, done)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(label, total=total, completed=done)
        yield lambda: bar.advance(task)


def _lines(label: str, total: int, done: int) -> Callable[[], None]:
    count, said = done, perf_counter()
    if done:
        say(f"{label}: {done} of {total} are there")

    def step() -> None:
        nonlocal count, said
        count += 1
        if count == total or perf_counter() - said > _LINE_S:
            said = perf_counter()
            say(f"{label}: {count} of {total}")

    return step
