"""`pointsman init`: a first configuration, from what can be reached from here or from another gateway's file."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from router.called import program
from router.cli import show
from router.errors import BadRequest, ConfigError

if TYPE_CHECKING:
    from router.starter.choice import Choice
    from router.starter.draft import Draft
    from router.starter.found import Place


@click.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False), default=Path("policies"))
@click.option(
    "--url", "urls", multiple=True, metavar="URL[#KEY_VARIABLE]", help="A server to ask as well; may be repeated."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to look for engines on their usual ports.")
@click.option("--no-search", is_flag=True, help="Ask only what --url names.")
@click.option(
    "--from", "source", type=click.Path(path_type=Path, dir_okay=False), help="Another gateway's file to carry over."
)
@click.option("--force", is_flag=True, help="Write over files that are there; they stay beside them as NAME.bak.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    directory: Path,
    urls: tuple[str, ...],
    host: str,
    no_search: bool,
    source: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Write a first configuration into DIRECTORY (default: policies) from what can be reached from here.

    Looks for Ollama, LM Studio, llama-server, vLLM and SGLang on their usual ports (Ollama where OLLAMA_HOST says, too;
    others with --url) and for keys of providers in the environment, asks each for its models, and puts a small one and
    a large one into groups. No model is called. Keys are never written, only the names of their variables.

    Exit code 0, 1 where nothing was written.
    """
    # Here, so that --help and completion do not wait for pydantic and httpx.
    from router.starter import first, places
    from router.starter.choice import choose
    from router.starter.files import Occupied, write

    found: list[Place] = []
    choice: Choice | None = None
    if source is None:
        found = places.look("" if no_search else host, urls, providers=not no_search)
        choice = choose(found)
        draft = first.draft(choice)
    else:
        draft = _carried(source)
    try:
        written = write(draft, directory, force=force)
    except Occupied as error:
        if not as_json:
            _show_found(found, choice)
        message = f"{error}; nothing was written. Name another folder ({program()} init mine), or say --force: "
        raise click.ClickException(message + "each replaced file stays as NAME.bak") from None
    except ConfigError as error:
        raise click.ClickException(f"nothing was written: {directory} would not check.\n{error.message}") from None
    except OSError as error:
        raise click.ClickException(
            f"cannot write {error.filename or directory}: {error.strerror}; name a folder that can be written"
        ) from None
    if as_json:
        click.echo(json.dumps(_plain(found, choice, draft, written), indent=2, ensure_ascii=False))
        return
    if source is None:
        _show_found(found, choice)
    else:
        _show_draft(draft)
    _show_end(draft, directory, written, found)


def _carried(source: Path) -> Draft:
    from router.starter import litellm_file, switchyard_file

    read = switchyard_file.read if source.suffix == ".toml" else litellm_file.read
    try:
        return read(source.read_bytes())
    except OSError as error:
        raise click.ClickException(f"cannot read {source}: {error.strerror}") from None
    except BadRequest as error:
        raise click.ClickException(f"{source}: {error.message}") from None


# --- what is shown ---------------------------------------------------------------------------------------


def _show_found(found: Sequence[Place], choice: Choice | None) -> None:
    if found:
        show.table(("found", "at", "models"), [_row(place) for place in found])
    else:
        click.echo("Nothing was found: no engine on its usual port, and no provider's key in the environment.")
    if choice is None:
        click.echo("Both groups get the shipped 270M model, which answers like a toy.")
        if importlib.util.find_spec("xllamacpp") is None:
            click.echo("What runs it is not installed: pip install 'pointsman[local]'")
        return
    click.echo()
    groups = (("small", choice.small), ("large", choice.large))
    rows = [
        (group, model.name, place.title, pick.why if at == 0 else "serves the same model")
        for group, pick in groups
        for at, (place, model) in enumerate(pick.places)
    ]
    show.table(("group", "model", "served by", "why"), rows)


def _row(place: Place) -> tuple[str, str, str]:
    if place.wrong:
        return place.title, place.variable or place.base_url, place.wrong
    names = [model.name for model in place.models]
    some = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    return place.title, place.variable if place.hosted else place.base_url, f"{len(names)}: {some}"


def _show_draft(draft: Draft) -> None:
    lines = {line.name: line for line in draft.deployments}
    rows = [
        (group, name, str(lines[name].keys.get("model", "")), str(lines[name].keys.get("base_url", "")))
        for group, members in draft.groups.items()
        for name in members
    ]
    show.table(("group", "deployment", "model", "at"), rows)
    if draft.left:
        click.echo("\nNot carried over, or carried over otherwise:")
        for sentence in draft.left:
            click.echo(f"  - {sentence}")


def _show_end(draft: Draft, directory: Path, written: Sequence[Path], found: Sequence[Place]) -> None:
    from router.starter.places import OURS

    click.echo(f"\nwrote {', '.join(str(path) for path in written)}")
    if unset := [name for name in draft.variables if not os.environ.get(name)]:
        click.echo(f"set before you serve: {', '.join(unset)}")
    called, config = program(), "" if directory == Path("policies") else f" --config {directory}"
    there = next((place for place in found if place.base_url.endswith(":8080/v1")), None)
    port = "" if there is None else " --port 8090"
    if there is not None and there.kind == OURS:
        port += " --admin-port 9091"
    click.echo(f"next:\n  {called} check {directory}\n  {called} serve{config}{port}")
    if there is not None:
        click.echo(f"(port 8080, where the gateway would listen, is {there.title}'s)")
    if all(line.keys.get("upstream") == "local" for line in draft.deployments):
        click.echo(
            f"For models of your own: start a server or set a provider's key, then {called} init {directory} --force"
        )


def _plain(found: Sequence[Place], choice: Choice | None, draft: Draft, written: Sequence[Path]) -> dict[str, Any]:
    picks = {} if choice is None else {"small": choice.small, "large": choice.large}
    return {
        "found": [
            {
                "kind": place.kind,
                "base_url": place.base_url,
                "variable": place.variable or None,
                "models": [model.name for model in place.models],
                "wrong": place.wrong or None,
            }
            for place in found
        ],
        "chosen": {
            group: {"models": [[place.base_url, model.name] for place, model in pick.places], "why": pick.why}
            for group, pick in picks.items()
        },
        "groups": {group: list(members) for group, members in draft.groups.items()},
        "not_carried_over": list(draft.left),
        "variables": list(draft.variables),
        "written": [str(path) for path in written],
    }
