"""`pointsman schema`."""

from __future__ import annotations

import json

import click

from router.policy_files.schema import schema


@click.command()
def command() -> None:
    """Print the JSON Schema of the policy, groups and scorers files.

    Save it beside the files; then `# yaml-language-server: $schema=schema.json` at the top of a file makes
    editors complete and validate it.
    """
    click.echo(json.dumps(schema(), indent=2, ensure_ascii=False))
