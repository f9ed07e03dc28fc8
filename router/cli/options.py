"""Options that several commands have, each with one meaning and one default."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

C = TypeVar("C", bound=Callable[..., Any])

_PORT = click.IntRange(0, 65535)
CONFIG = click.option(
    "--config", type=click.Path(path_type=Path), default=Path("policies"), show_default=True, help="The files."
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_ADDRESSES = (
    click.option("--host", default="127.0.0.1", show_default=True, help="Address of the data port."),
    click.option("--port", type=_PORT, default=8080, show_default=True, help="The data port."),
    click.option("--admin-host", default="127.0.0.1", show_default=True, help="Address of the admin port."),
    click.option("--admin-port", type=_PORT, default=9090, show_default=True, help="The admin port."),
)


def addresses(command: C) -> C:
    """Where the data port and the admin port are."""
    for option in reversed(_ADDRESSES):
        command = option(command)
    return command
