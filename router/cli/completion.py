"""`pointsman completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print what makes SHELL complete commands and options at TAB. Add it to the shell's start file."""
    from router.cli import main

    kind = get_completion_class(shell)
    if kind is None:  # a shell of the choice that this click does not know
        raise click.ClickException(f"{shell} cannot be completed for with this version of click; pip install -U click")
    # Not `kind.source()`: bash's would start bash to see its version, and that is the reader's own shell.
    made = kind(main, {}, "pointsman", "_POINTSMAN_COMPLETE")
    click.echo(made.source_template % made.source_vars())
