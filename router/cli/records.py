"""`pointsman records`."""

from __future__ import annotations

import sys
from pathlib import Path

import click


@click.group()
def command() -> None:
    """Read the records that the gateway keeps of its requests."""


@command.command()
@click.option("--out", required=True, type=click.Path(dir_okay=False, allow_dash=True), help="A file, or - for stdout.")
@click.option("--state", type=click.Path(path_type=Path), help="Folder of records and history.")
@click.option("--since", metavar="T", help="Only records from then on: Unix seconds or ISO 8601.")
def export(out: str, state: Path | None, since: str | None) -> None:
    """Write records as JSON lines, oldest first. The gateway may be running.

    Exit code 0, 1 when the database cannot be read, 2 on a wrong parameter.
    """
    from router import records
    from router import state as states
    from router.errors import Overloaded

    try:
        after = records.instant(since) if since is not None else None
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--since") from None
    folder = states.folder(state)
    url = states.records_url(folder)
    if url.startswith("sqlite:") and not states.records_file(folder).exists():
        raise click.ClickException(f"there are no records in {folder}; --state names the folder that `serve` used")
    engine = records.open_engine(url)
    count = 0
    try:
        with click.open_file(out, "w", encoding="utf-8") as file:
            for line in records.SqlReader(engine).export(after):
                file.write(f"{line}\n")
                count += 1
    except Overloaded as error:
        raise click.ClickException(error.message) from None
    except OSError as error:
        raise click.ClickException(f"cannot write {out}: {error.strerror}") from None
    finally:
        engine.dispose()
    sys.stderr.write(f"{count} records\n")
