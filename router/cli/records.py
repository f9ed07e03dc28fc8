"""`pointsman records`: the newest, one, sums of a stretch of time, and all of them as a file."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from router.cli.options import JSON

if TYPE_CHECKING:
    from router.records import SqlReader
    from router.types import Record

STATE = click.option("--state", type=click.Path(path_type=Path), help="Folder of records and history.")


@click.group()
def command() -> None:
    """Read the records that the gateway keeps of its requests. It may be running meanwhile."""


@command.command("list")
@STATE
@click.option("--limit", type=click.IntRange(1, 100_000), default=20, show_default=True)
@click.option("--since", metavar="T", help="Only records from then on: Unix seconds or ISO 8601.")
@click.option("--policy")
@click.option("--route")
@click.option("--group")
@click.option("--deployment")
@click.option("--outcome", help="ok, client_error, upstream_error, upstream_truncated, timeout, cancelled, refused.")
@click.option("--tenant")
@JSON
def list_(state: Path | None, limit: int, since: str | None, as_json: bool, **equal: str | None) -> None:
    """The newest records that pass every filter, newest first; with --json each as exported, one a line."""
    from router import record, records

    after = _since(since)
    with _reader(state) as reader:
        for one in reader.recent(limit, records.Filter(since=after, **equal)):
            click.echo(record.encode(one).decode() if as_json else _line(one))


def _line(of: Record) -> str:
    from router.record import group, served

    decision, by = of.decision, served(of)
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(of.time))
    where = by.deployment if by is not None else "-"
    score = f" {decision.score:.3f}" if decision is not None and decision.score is not None else ""
    way = f"{of.policy or '-'}/{decision.route} {decision.why}{score}" if decision is not None else "not decided"
    cost = f" ${of.cost:.6f}" if of.cost is not None else ""
    return (
        f"{when}  {of.id}  {of.outcome:<12} {group(of) or '-'}/{where}  {way}  "
        f"{of.usage.input}+{of.usage.output} tokens {of.timing.total_s:.2f} s{cost}"
    )


@command.command()
@click.argument("request_id")
@STATE
@JSON
def show(request_id: str, state: Path | None, as_json: bool) -> None:
    """Everything remembered of one request, and the feedback on it. Exit code 1 where there is no such record."""
    from router import record

    with _reader(state) as reader:
        found, opinions = reader.get(request_id), reader.feedback(request_id)
    if found is None:
        known = "`pointsman records list` shows the newest, and older ones go with retention"
        raise click.ClickException(f"there is no record {request_id}; {known}")
    shown = record.to_contract(found) | {"feedback": [{"score": f.score, "label": f.label} for f in opinions]}
    if as_json:
        click.echo(json.dumps(shown))
        return
    click.echo(_line(found))
    for name, value in shown.items():
        if value not in (None, {}, [], ""):
            click.echo(f"  {name:<10} {json.dumps(value, ensure_ascii=False)}")


@command.command()
@STATE
@click.option("--window", default="24h", show_default=True, help="How long until now: 15m, 24h, 7d.")
@JSON
def summary(state: Path | None, window: str, as_json: bool) -> None:
    """What the last hours or days came to: requests, cost, what was saved, times by group."""
    with _reader(state) as reader:
        found = reader.summary(time.time(), _seconds(window))
    click.echo(json.dumps(found) if as_json else "\n".join(_told(found)))


def _told(found: dict[str, Any]) -> Iterator[str]:
    all_ = found["totals"]
    yield f"{all_['requests']} requests, {all_['failed']} failed; {all_['input_tokens']}+{all_['output_tokens']} tokens"
    yield (
        f"cost ${all_['cost']:.4f}, saved ${all_['saved']:.4f} against the dearest group on {all_['compared']} requests"
    )
    for one in found["groups"]:
        ttft, tpot = one["ttft"], one["tpot"]
        yield (
            f"  {one['group'] or 'none':<12} {one['requests']:>8} requests {one['output_tokens_per_s']:>8.1f} tokens/s"
            f"  TTFT {_s(ttft['p50'])} p95 {_s(ttft['p95'])}  TPOT {_s(tpot['p50'])} p95 {_s(tpot['p95'])}"
        )


def _s(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


@command.command()
@click.option("--out", required=True, type=click.Path(dir_okay=False, allow_dash=True), help="A file, or - for stdout.")
@click.option("--format", "form", type=click.Choice(["jsonl", "parquet"]), help="Left out: as the file's name ends.")
@STATE
@click.option("--since", metavar="T", help="Only records from then on: Unix seconds or ISO 8601.")
def export(out: str, form: str | None, state: Path | None, since: str | None) -> None:
    """Write records as JSON lines or as Parquet, oldest first.

    Exit code 0, 1 when the database cannot be read, 2 on a wrong parameter.
    """
    from router.records import parquet

    after = _since(since)
    if form is None:
        form = "parquet" if out.endswith(".parquet") else "jsonl"
    if form == "parquet" and out == "-":
        raise click.BadParameter("a Parquet file is not written to stdout", param_hint="--out")
    with _reader(state) as reader:
        try:
            if form == "parquet":
                count = parquet.write(reader.export(after), Path(out))
            else:
                count = 0
                with click.open_file(out, "w", encoding="utf-8") as file:
                    for line in reader.export(after):
                        file.write(f"{line}\n")
                        count += 1
        except parquet.NotInstalled as error:
            raise click.ClickException(str(error)) from None
        except OSError as error:
            raise click.ClickException(f"cannot write {out}: {error.strerror}") from None
    sys.stderr.write(f"{count} records\n")


def _since(text: str | None) -> float | None:
    from router import records

    try:
        return records.instant(text) if text is not None else None
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--since") from None


def _seconds(text: str) -> float:
    units = {"m": 60.0, "h": 3600.0, "d": 86_400.0}
    number, unit = text[:-1], units.get(text[-1:])
    if unit is None or not number.isdigit() or not 60 <= int(number) * unit <= 400 * 86_400:
        raise click.BadParameter("a window is a number and m, h or d, as 15m, 24h, 7d", param_hint="--window")
    return int(number) * unit


@contextmanager
def _reader(state: Path | None) -> Generator[SqlReader]:
    """The records of a state folder; its mistakes in one line."""
    from router import records
    from router import state as states
    from router.errors import Overloaded

    folder = states.folder(state)
    url = states.records_url(folder)
    if url.startswith("sqlite:") and not states.records_file(folder).exists():
        raise click.ClickException(f"there are no records in {folder}; --state names the folder that `serve` used")
    engine = records.open_engine(url)
    try:
        yield records.SqlReader(engine)
    except Overloaded as error:
        raise click.ClickException(error.message) from None
    finally:
        engine.dispose()
