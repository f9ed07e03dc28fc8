"""The command line: one table of commands, each in its own module, imported when it is run or asked about.

So `pointsman --help` loads no command, and `check` no web server, database or model. A command's module has
a click command named `command`, and turns what the packages below return into text, JSON and exit codes.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from importlib import import_module
from typing import Final

import click
from click.shell_completion import CompletionItem

from router import __version__
from router.cli import examples

# To add one: a module with `command`, a line here, a line in docs/contract.md.
COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "serve": ("router.cli.serve", "Run the gateway."),
    "init": ("router.cli.init", "Write a first configuration from what is reachable, or from another gateway's file."),
    "check": ("router.cli.check", "Check a configuration and run its policies' examples."),
    "doctor": ("router.cli.doctor", "Look over a set-up: what is there, what is not, and what to do."),
    "schema": ("router.cli.schema", "Print the JSON Schema of the configuration files."),
    "keys": ("router.cli.keys", "Make, list and revoke the keys of callers."),
    "history": ("router.cli.history", "List the configurations that were in force."),
    "replay": ("router.cli.replay", "Decide recorded traffic again with another configuration."),
    "rollback": ("router.cli.rollback", "Write an earlier configuration back."),
    "records": ("router.cli.records", "List, sum up and export the records of requests."),
    "plan": ("router.cli.plan", "Plan a cluster: what fits, how it parts into groups, what routing buys."),
    "bench": ("evals.bench.command", "Measure the gateway's overhead, as ratios."),
    "explain": ("router.cli.explain", "Show the decision for one request, and why."),
    "eval": ("evals.command", "Measure, train and calibrate routing on labelled prompts."),
    "completion": ("router.cli.completion", "Print what makes a shell complete commands and options."),
}


class Commands(click.Group):
    """A group whose commands are looked up in a table."""

    table: Mapping[str, tuple[str, str]] = COMMANDS

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.table:
            return None
        # Read by numpy at its import. A scorer's products are too small for threads, which would spin beside the event
        # loop; and artifacts are the same bytes only on one.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        command: click.Command = import_module(self.table[cmd_name][0]).command
        above = [one.info_name or "" for one in _chain(ctx)]
        _with_examples(command, " ".join([*above, cmd_name]))
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does; a mistyped name is told with the one that it is like."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            like = difflib.get_close_matches(args[0], self.table, n=1)
            if not like:
                raise
            raise click.UsageError(f"{error.message.rstrip('.')}; did you mean '{like[0]}'?", ctx) from None

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names and summaries from the table: a TAB loads no command."""
        found = [(name, about) for name, (_, about) in self.table.items() if name.startswith(incomplete)]
        options = click.Command.shell_complete(self, ctx, incomplete) if incomplete.startswith("-") else []
        return [*(CompletionItem(name, help=about) for name, about in found), *options]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in self.table.items()])


def _chain(ctx: click.Context) -> list[click.Context]:
    """The contexts of the commands that were named, without the program's."""
    return [] if ctx.parent is None else [*_chain(ctx.parent), ctx]


def _with_examples(command: click.Command, path: str) -> None:
    command.epilog = examples.epilog(path) or command.epilog
    for name, below in command.commands.items() if isinstance(command, click.Group) else ():
        _with_examples(below, f"{path} {name}")


@click.group(cls=Commands, epilog="Every command explains itself with --help.")
@click.version_option(__version__, prog_name="pointsman")
def main() -> None:
    """Pointsman: an LLM request router and agent gateway. Easy work goes to a small model, hard work to a large one."""
