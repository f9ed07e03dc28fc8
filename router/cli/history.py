"""`pointsman history`: the configurations that were in force."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path

import click
import msgspec
from msgspec import Struct

from router import history, state
from router.cli import show as shown
from router.errors import ConfigError, NotFound

STATE = click.option("--state", "state_dir", type=click.Path(path_type=Path), help="Folder of records and history.")


class Row(Struct, frozen=True, kw_only=True):
    """One time that a configuration came into force. `changed`: its files against those in force before."""

    digest: str
    time: float
    how: history.How
    changed: list[str]
    kept: bool


@click.group(invoke_without_command=True)
@STATE
@click.option("--json", "as_json", is_flag=True, help="Print one JSON list.")
@click.pass_context
def command(ctx: click.Context, state_dir: Path | None, as_json: bool) -> None:
    """List the configurations that were in force, oldest first. `history show DIGEST` prints one."""
    folder = state.folder(state_dir)
    ctx.obj = folder
    if ctx.invoked_subcommand is not None:
        return
    rows = list(_rows(folder))
    if as_json:
        click.echo(json.dumps(msgspec.to_builtins(rows), indent=2))
        return
    if not rows:
        click.echo(f"no configuration was kept in {folder} yet; --state names the folder that `serve` used", err=True)
    if rows and shown.on_terminal():
        cells = [(row.digest[:12], _local(row.time), row.how, " ".join(row.changed), _kept(row)) for row in rows]
        shown.table(("digest", "since", "how", "changed", ""), cells)
        return
    for row in rows:
        line = f"{row.digest[:12]}  {_local(row.time)}  {row.how:<8}  {' '.join(row.changed)}"
        click.echo(f"{line}  {_kept(row)}".rstrip())


def _kept(row: Row) -> str:
    return "" if row.kept else "(files no longer kept)"


@command.command()
@click.argument("digest")
@click.option("--diff", is_flag=True, help="What it changed of the version in force before it.")
@STATE
@click.pass_obj
def show(folder: Path, digest: str, diff: bool, state_dir: Path | None) -> None:
    """Print the files of the version whose digest begins with DIGEST.

    Exit code 0, 1 where there is no such version.
    """
    folder = state.folder(state_dir) if state_dir is not None else folder
    try:
        version = history.find(folder, digest)
        content = history.files(folder, version)
        before = history.files(folder, _before(folder, version)) if diff else {}
    except (NotFound, ConfigError) as error:
        raise click.ClickException(error.message) from None
    for line in _diff(before, content) if diff else _whole(content):
        click.echo(line)


def _rows(folder: Path) -> Iterator[Row]:
    before: Mapping[str, bytes] = {}
    for line in history.applied(folder):
        content = history.files(folder, line.digest)
        signs = history.changed(before, content) if before and content else []
        yield Row(digest=line.digest, time=line.time, how=line.how, changed=signs, kept=bool(content))
        before = content


def _before(folder: Path, version: str) -> str:
    """The version in force before the last time that `version` came into force; "" where there is none."""
    digests = [line.digest for line in history.applied(folder)]
    at = len(digests) - 1 - digests[::-1].index(version) if version in digests else 0
    return digests[at - 1] if at > 0 else ""


def _whole(content: Mapping[str, bytes]) -> Iterator[str]:
    for name, text in content.items():
        yield f"# ===== {name}"
        yield text.decode("utf-8", "replace").rstrip("\n")


def _diff(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> Iterator[str]:
    for name in sorted({**before, **after}):
        old, new = (side.get(name, b"").decode("utf-8", "replace").splitlines() for side in (before, after))
        yield from difflib.unified_diff(old, new, f"before/{name}", f"after/{name}", lineterm="")


def _local(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().isoformat(sep=" ", timespec="seconds")
