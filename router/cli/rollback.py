"""`pointsman rollback`: an earlier configuration written back into the configuration directory."""

from __future__ import annotations

import time
from pathlib import Path

import click

from router import history, state
from router.called import program
from router.cli.options import CONFIG
from router.errors import ConfigError, NotFound
from router.policy_files.review import review


@click.command()
@click.argument("digest")
@CONFIG
@click.option("--state", "state_dir", type=click.Path(path_type=Path), help="Folder of records and history.")
def command(digest: str, config: Path, state_dir: Path | None) -> None:
    """Write the files of the version whose digest begins with DIGEST back into the configuration directory.

    What stands there now is kept as a version first, so a rollback can be rolled back. A running gateway takes the
    files by itself. Nothing is written where the version does not check, as when a variable that it names is not set.

    Exit code 0, 1 where nothing was written.
    """
    folder = state.folder(state_dir)
    try:
        version = history.find(folder, digest)
        found = review(history.directory(folder, version))
        if found.config is None:
            for mistake in found.mistakes:
                click.echo(str(mistake))
            raise click.ClickException(f"version {version[:12]} does not check, as said above; {config} stays as it is")
        replaced = history.keep(folder, config, None, "replaced", time.time())
        if replaced == version:
            click.echo(f"{config} holds version {version[:12]} already")
            return
        history.restore(folder, version, config)
    except (NotFound, ConfigError) as error:
        raise click.ClickException(error.message) from None
    except OSError as error:
        raise click.ClickException(
            f"cannot write {error.filename}: {error.strerror}; the same command goes on once it can"
        ) from None
    click.echo(
        f"{config} holds version {version[:12]} again; what stood there before is version {(replaced or '')[:12]}"
    )
    options = "" if config == Path("policies") else f" --config {config}"
    options += "" if state_dir is None else f" --state {state_dir}"
    undo = f"{program()} rollback {(replaced or '')[:12]}{options}"
    click.echo(f"a running gateway takes it within 2 s; to undo: {undo}")
