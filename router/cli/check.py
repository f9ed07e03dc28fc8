"""`pointsman check`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from router.errors import Mistake

if TYPE_CHECKING:
    from router.policy_files.review import Review


@click.command()
@click.argument("directory", type=click.Path(path_type=Path), default=Path("policies"))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(directory: Path, as_json: bool) -> None:
    """Parse and cross-check the files in DIRECTORY (default: policies) and run the policies' examples.

    What scorers need is looked for on this machine: artifacts, calibrations, libraries.

    Prints file:line:column: path: message for every mistake. Exit code 0 without mistakes (warnings do not
    count), 1 with.
    """
    from router.policy_files.review import review  # here, so that --help and completion do not wait for pydantic

    found = review(directory, needs=True)
    if as_json:
        click.echo(json.dumps(_summary(found), indent=2, ensure_ascii=False))
    else:
        _print(found)
    raise SystemExit(0 if found.config is not None else 1)


def _print(found: Review) -> None:
    for warning in found.warnings:
        click.echo(
            f"{warning.file}:{warning.line}:{warning.column}: {warning.path}: warning: {warning.message}", err=True
        )
    for mistake in found.mistakes:
        click.echo(str(mistake))
    counts = _counts(found)
    if found.config is None:
        count = len(found.mistakes)
        click.echo(
            f"{count} {'mistake' if count == 1 else 'mistakes'}; nothing of this would be put in force", err=True
        )
    else:
        listed = ", ".join(f"{name} {number}" for name, number in counts.items())
        click.echo(f"ok: {listed}; digest {found.config.digest[:12]}")


def _summary(found: Review) -> dict[str, Any]:
    return {
        "ok": found.config is not None,
        "mistakes": _plain(found.mistakes),
        "warnings": _plain(found.warnings),
        "digest": None if found.config is None else found.config.digest,
        **_counts(found),
    }


def _plain(mistakes: Iterable[Mistake]) -> list[dict[str, Any]]:
    return [msgspec.to_builtins(one) for one in mistakes]


def _counts(found: Review) -> dict[str, int]:
    config = found.config
    if config is None:
        return {}
    return {
        "policies": len(config.policies),
        "routes": sum(len(policy.routes) for policy in config.policies.values()),
        "groups": len(config.groups),
        "deployments": len(config.deployments),
        "examples": found.examples,
    }
