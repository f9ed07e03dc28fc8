"""How commands show things: a table with lines and colour on a terminal, columns of plain text everywhere else.

`rich` is loaded only where a terminal is written to.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

STYLES = {"ok": "green", "warn": "yellow", "fail": "red"}


def on_terminal() -> bool:
    """Whether a person reads standard output, on something that can draw."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints rows under their columns. Cells that are a key of `STYLES` are coloured on a terminal."""
    if on_terminal():
        _rich(columns, rows)
        return
    widths = [max(len(row[at]) for row in [columns, *rows]) for at in range(len(columns) - 1)]
    for row in [columns, *rows]:
        cells = [*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]
        click.echo("  ".join(cells).rstrip())


def _rich(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for at, name in enumerate(columns):
        shown.add_column(name, overflow="fold", no_wrap=at == 0)
    for row in rows:
        shown.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in row))
    Console().print(shown)
