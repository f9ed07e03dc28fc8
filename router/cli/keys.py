"""`pointsman keys`: the keys of callers, made, listed and revoked in keys.yaml.

A key is printed once, when it is made; the file holds its digest. A running gateway takes a change within 2 s.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from router.cli import show
from router.cli.options import JSON
from router.config import Allowance, Key
from router.keys import new, written
from router.policy_files import KEYS, keyfile, review
from router.policy_files.shapes import moment, seconds

CONFIG = click.option("--config", type=click.Path(path_type=Path), default=Path("policies"), show_default=True)
_COUNT = click.IntRange(min=1)


@click.group()
def command() -> None:
    """Make, list and revoke the keys that callers present."""


@command.command()
@CONFIG
@click.option("--tenant", required=True, help="Whose key it is.")
@click.option("--name", help="What the key is called in records and policies; left out: the tenant's and some digits.")
@click.option("--expires", metavar="WHEN", help="After 90d, 12h, or at a date such as 2027-06-30.")
@click.option("--models", metavar="A,B", help="The model names that may be asked for.")
@click.option("--requests-per-minute", type=_COUNT)
@click.option("--tokens-per-minute", type=_COUNT)
@click.option("--concurrent", type=_COUNT, help="Requests at the same time.")
@click.option("--dollars-per-day", type=click.FloatRange(min=0, min_open=True))
@click.option("--quota", metavar="GROUP=N", multiple=True, help="Requests a day that a group may serve it.")
@JSON
def create(config: Path, tenant: str, name: str | None, expires: str | None, as_json: bool, **limits: Any) -> None:
    """Make a key, write its digest into keys.yaml, and print the key, which is shown nowhere else.

    Exit code 0, 1 where nothing was written.
    """
    key, digest = new()
    name = name or f"{tenant}-{digest[:6]}"
    fields: dict[str, object] = {"tenant": tenant, "sha256": digest}
    if expires is not None:
        fields["expires"] = _expiry(expires)
    fields |= _limits(limits)
    first = not (config / KEYS).exists()
    _change(config, lambda text: keyfile.added(text, name, fields))
    if as_json:
        click.echo(json.dumps({"name": name, "key": key, **fields}, indent=2))
        return
    click.echo(
        f"key '{name}' of tenant '{tenant}' is in {config / KEYS}; keep it now, it is not shown again:", err=True
    )
    click.echo(key)
    if first:
        click.echo(f"from now on every request to a gateway on {config} needs a key", err=True)


@command.command("list")
@CONFIG
@click.option("--tenant", help="Only this tenant's.")
@JSON
def listed(config: Path, tenant: str | None, as_json: bool) -> None:
    """List the keys: names, tenants, expiry and limits. The keys themselves are kept nowhere.

    Exit code 0, 1 where the files have mistakes.
    """
    found = review(config)
    if found.config is None:
        for mistake in found.mistakes:
            click.echo(str(mistake))
        raise SystemExit(1)
    access = found.config.access
    kept = [key for key in access.keys.values() if tenant in (None, key.tenant)] if access is not None else []
    if as_json:
        click.echo(json.dumps([_row(key) for key in kept], indent=2))
        return
    if access is None:
        click.echo(f"there is no {config / KEYS}: no key is asked for", err=True)
    elif not kept:
        click.echo("no such key: nobody is let in" if tenant is None else f"no key of tenant '{tenant}'", err=True)
    now = time.time()
    rows: list[tuple[str, ...]] = []
    for key in kept:
        until = "" if key.expires is None else written(key.expires)
        state = "expired" if key.expires is not None and key.expires <= now else ""
        limits = " ".join(f"{name}={_short(value)}" for name, value in _given(key).items())
        rows.append((key.name, key.tenant, until, state, limits))
    if rows and show.on_terminal():
        show.table(("key", "tenant", "expires", "", "limits"), rows)
        return
    for row in rows:
        click.echo("  ".join(filter(None, row)))


@command.command()
@click.argument("names", nargs=-1, metavar="NAME...")
@CONFIG
@click.option("--tenant", help="All keys of this tenant.")
def revoke(names: tuple[str, ...], config: Path, tenant: str | None) -> None:
    """Take keys out of keys.yaml. Without its last key the file lets nobody in.

    Exit code 0, 1 where there is no such key and nothing was written.
    """
    if tenant is not None:
        found = review(config).config
        access = found.access if found is not None else None
        if access is None:
            raise click.ClickException(f"{config} cannot be read, or has no {KEYS}; see `pointsman check {config}`")
        names = (*names, *(key.name for key in access.keys.values() if key.tenant == tenant and key.name not in names))
    if not names:
        raise click.ClickException("say which: NAME, or --tenant; `pointsman keys list` has them")

    def without(text: str) -> str:
        for name in names:
            text = keyfile.removed(text, name)
        return text

    _change(config, without)
    click.echo(f"revoked {', '.join(names)}; a running gateway refuses them within 2 s")


def _change(config: Path, change: Callable[[str], str]) -> None:
    """Rewrites keys.yaml whole or not at all; one process at a time. What would not load is not written."""
    path = config / KEYS
    try:
        with _alone(config):
            text = path.read_text() if path.exists() else ""
            changed = change(text).encode()
            wrong = [one for one in review(config, instead={KEYS: changed}).mistakes if Path(one.file).name == KEYS]
            if wrong:
                raise click.ClickException("\n".join(["nothing was written:", *map(str, wrong)]))
            beside = path.with_name(f".{KEYS}.{os.getpid()}.tmp")
            beside.write_bytes(changed)
            if path.exists():
                shutil.copymode(path, beside)
            beside.replace(path)
    except keyfile.CannotEdit as error:
        raise click.ClickException(f"{path}: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{path}: {error}") from None


@contextmanager
def _alone(config: Path) -> Generator[None]:
    folder = os.open(config, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _expiry(said: str) -> str:
    after, at = seconds(said), moment(said)
    if after is None and at is None:
        raise click.BadParameter("write a duration such as 90d, or a date such as 2027-06-30", param_hint="--expires")
    return written(time.time() + after if after is not None else at or 0.0)


def _limits(given: Mapping[str, Any]) -> dict[str, object]:
    """The options that were given, as keys.yaml has them."""
    fields: dict[str, object] = {}
    for name, value in given.items():
        if name == "models" and value is not None:
            fields[name] = [one.strip() for one in str(value).split(",") if one.strip()]
        elif name == "quota" and value:
            pairs = [one.rpartition("=") for one in value]
            if not all(group and most.isdigit() for group, _, most in pairs):
                raise click.BadParameter("write GROUP=N, such as large=500", param_hint="--quota")
            fields[name] = {group: int(most) for group, _, most in pairs}
        elif value not in (None, ()):
            fields[name] = value
    return fields


def _row(key: Key) -> dict[str, object]:
    expires = None if key.expires is None else written(key.expires)
    return {"name": key.name, "tenant": key.tenant, "sha256": key.sha256, "expires": expires, **_given(key)}


def _given(allowed: Allowance) -> dict[str, Any]:
    names = ("models", "requests_per_minute", "tokens_per_minute", "concurrent", "dollars_per_day", "quota")
    values = {name: getattr(allowed, name) for name in names}
    return {name: dict(v) if name == "quota" else v for name, v in values.items() if v is not None and v != {}}


def _short(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(value, dict):
        return ",".join(f"{group}:{most}" for group, most in value.items())  # pyright: ignore[reportUnknownVariableType]
    return f"{value:g}" if isinstance(value, float) else str(value)
