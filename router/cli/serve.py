"""`pointsman serve`."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import click

from router.cli.options import CONFIG, addresses


@click.command()
@CONFIG
@addresses
@click.option("--workers", type=click.IntRange(min=1), default=1, show_default=True, help="Worker processes.")
@click.option("--open-to-everyone", is_flag=True, help="Without keys, serve whoever reaches --host.")
@click.option("--state", type=click.Path(path_type=Path), help="Folder of records and history.")
@click.option(
    "--records-days",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    help="How long records stay; 0: ever.",
)
@click.option(
    "--records-gib", type=click.FloatRange(min=0), default=1.0, show_default=True, help="How much they take; 0: any."
)
@click.option("--worker", is_flag=True, hidden=True, help="How the keeper of workers starts one.")
@click.option("--otlp", metavar="URL", help="Send traces there (OTLP over HTTP): http://HOST:4318.")
@click.option("--redis", metavar="URL", help="Share state there: redis://[:PASSWORD@]HOST:PORT/DB.")
def command(
    config: Path,
    host: str,
    port: int,
    admin_host: str,
    admin_port: int,
    workers: int,
    open_to_everyone: bool,
    state: Path | None,
    otlp: str | None,
    redis: str | None,
    records_days: float,
    records_gib: float,
    worker: bool,
) -> None:
    """Run the gateway until SIGTERM or Ctrl-C. Exit code 0 after it has drained, 2 on a bad configuration."""
    # Until it can be taken it must not end the process. A change of the files is noticed all the same.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    from router import serving
    from router import workers as several

    if worker:
        raise SystemExit(serving.serve(several.told(sys.stdin.buffer.readline())))
    options = serving.Options(
        config=config,
        host=host,
        port=port,
        admin_host=admin_host,
        admin_port=admin_port,
        state=state,
        redis=redis,
        otlp=otlp,
        records_days=records_days or None,
        records_gib=records_gib or None,
        workers=workers,
        open_to_everyone=open_to_everyone,
    )
    raise SystemExit(several.serve(options) if workers > 1 else serving.serve(options))
