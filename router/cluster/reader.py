"""Reading and writing what plans are made of: models, machines and clusters of the catalogue, plan files. The only
module of the package that touches files.

Every mistake in a file is told at its place, as for policies. What contradicts itself is looked for in `checks`.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO, TypeVar, get_args, get_origin, get_type_hints

import msgspec
import yaml
from msgspec import Struct
from msgspec.structs import fields

from router.cluster import checks, measure
from router.cluster.values import Cluster, Fact, Group, Machine, Measured, Model, Node, Plan, Wiring
from router.errors import ConfigError, Mistake, NotFound
from router.policy_files.onto import suggestion
from router.policy_files.positions import Document, read
from router.policy_files.variables import Variables

Read = TypeVar("Read", bound=Struct)

_HERE = Path(__file__).parent
# Beside the packages in a clone, inside this one in a wheel.
SHIPPED = next((p for p in (_HERE.parent.parent / "deploy" / "catalog", _HERE / "catalog") if p.is_dir()), _HERE)

# What a file of facts may tell: the fields of the value, without those that the file writes otherwise.
_UNTOLD = {"name", "served", "family", "facts", "measured"}


class _Line(Struct, forbid_unknown_fields=True):
    value: float | int | str | None
    basis: typing.Literal["measured", "published", "assumed"]
    source: str


class _Facts(Struct, forbid_unknown_fields=True):
    version: int
    facts: dict[str, Any]
    sources: dict[str, str] = {}
    served: str = ""
    family: str = ""
    measured: tuple[Any, ...] = ()


class _ClusterFile(Struct, forbid_unknown_fields=True):
    version: int
    machine: Any
    nodes: tuple[Node, ...]
    fabric: Wiring


class _PlanFile(Struct, forbid_unknown_fields=True):
    version: int
    name: str
    cluster: dict[str, Any]
    groups: tuple[Group, ...]
    engine: typing.Literal["vllm", "sglang", "trtllm"] = "vllm"
    why: tuple[str, ...] = ()


# --- by name ---------------------------------------------------------------------------------------------


def names(kind: str, catalog: Path = SHIPPED) -> list[str]:
    """What a folder of the catalogue holds: `models`, `nodes`, `clusters` or `scenarios`."""
    return sorted(path.stem for path in (catalog / kind).glob("*.yaml"))


def find(kind: str, name: str, catalog: Path = SHIPPED) -> Path:
    """The file that is meant by a path, a name of the catalogue, or the beginning of one name. Raises NotFound."""
    path = Path(name)
    what = kind.removesuffix("s")
    if path.suffix in (".yaml", ".yml"):
        if path.is_file():
            return path
        raise NotFound(f"there is no file {name}; known by name: {', '.join(names(kind, catalog))}")
    known = names(kind, catalog)
    wanted = name.lower()
    begun = [one for one in known if one.startswith(wanted)] if wanted else []
    if wanted in known or len(begun) == 1:
        return catalog / kind / f"{wanted if wanted in known else begun[0]}.yaml"
    hint = f"; did you mean one of {', '.join(begun)}?" if begun else suggestion(wanted, known)
    raise NotFound(f"there is no {what} '{name}' in the catalogue{hint}")


def model(name: str, catalog: Path = SHIPPED) -> Model:
    """One model, by its name in the catalogue or its file. Raises ConfigError, NotFound."""
    path = find("models", name, catalog)
    document = document_of(path)
    file, values, facts = _facts(document, Model)
    rows: list[Measured] = []
    mistakes: list[Mistake] = []
    for index, row in enumerate(file.measured):
        try:
            one = msgspec.convert(row, Measured)
        except msgspec.ValidationError as error:
            mistakes.append(converted(document, error, ("measured", index)))
            continue
        rows.append(msgspec.structs.replace(one, source=file.sources.get(one.source, one.source)))
        mistakes.extend(_row(document, index, one))
    if mistakes:
        raise ConfigError(mistakes)
    given = {key: value for key, value in values.items() if value is not None}
    try:
        read = msgspec.convert(
            {"weights_gb": None, "params_b": None, "active_b": None, "dense_gb": None, "layers": None, "heads": None}
            | {"name": path.stem, "served": file.served or path.stem, "family": file.family or path.stem}
            | given,
            Model,
        )
    except msgspec.ValidationError as error:
        raise ConfigError([converted(document, error, ("facts",))]) from None
    read = msgspec.structs.replace(read, facts=facts, measured=tuple(rows))
    wrong = [document.mistake(("facts", key), message) for key, message in checks.contradictions(read)]
    if wrong:
        raise ConfigError(wrong)
    return read


def machine(name: str, catalog: Path = SHIPPED) -> Machine:
    """One kind of node, by its name in the catalogue or its file. Raises ConfigError, NotFound."""
    path = find("nodes", name, catalog)
    return _machine(document_of(path), path.stem)


def cluster(name: str, catalog: Path = SHIPPED) -> Cluster:
    """One cluster, by its file or its name in the catalogue. Raises ConfigError, NotFound."""
    path = find("clusters", name, catalog)
    document = document_of(path)
    file = onto(document, _ClusterFile)
    versioned(document, file.version)
    if not isinstance(file.machine, str):
        raise ConfigError([document.mistake(("machine",), "must be the name of a kind of node, or of its file")])
    of = file.machine if "/" not in file.machine else str(path.parent / file.machine)
    built = Cluster(name=path.stem, machine=machine(of, catalog), nodes=file.nodes, fabric=file.fabric)
    wrong = [document.mistake(place, message) for place, message in checks.impossible(built)]
    if wrong:
        raise ConfigError(wrong)
    return built


def plan(path: Path) -> Plan:
    """A plan file. Raises ConfigError, NotFound."""
    document = document_of(path)
    file = onto(document, _PlanFile)
    versioned(document, file.version)
    try:
        held = msgspec.convert(file.cluster, Cluster)
    except msgspec.ValidationError as error:
        raise ConfigError([converted(document, error, ("cluster",))]) from None
    made = Plan(name=file.name, cluster=held, groups=file.groups, engine=file.engine, why=file.why)
    wrong = [document.mistake(("cluster", *place), message) for place, message in checks.impossible(held)]
    wrong += [document.mistake(place, message) for place, message in checks.misplaced(made)]
    if wrong:
        raise ConfigError(wrong)
    return made


def write_plan(made: Plan, path: Path) -> None:
    """A plan as YAML, with the cluster in it, so that nothing else is needed to render it."""
    held = msgspec.to_builtins(made.cluster)
    held["machine"].pop("facts", None)
    shown = {
        "version": 1,
        "name": made.name,
        "engine": made.engine,
        "why": list(made.why),
        "groups": [_plain(msgspec.to_builtins(group)) for group in made.groups],
        "cluster": _plain(held),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    head = "# Written by `pointsman plan partition`; `pointsman plan render` reads it.\n"
    path.write_text(head + yaml.safe_dump(shown, sort_keys=False, allow_unicode=True, width=110), encoding="utf-8")


def _plain(value: Any) -> Any:
    """Without what is empty, and with numbers of four digits."""
    if isinstance(value, dict):
        held = typing.cast("dict[str, Any]", value)
        return {key: _plain(one) for key, one in held.items() if one not in (None, "", [], ())}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in typing.cast("list[Any]", value)]
    return round(value, 3) if isinstance(value, float) else value


# --- reading ---------------------------------------------------------------------------------------------


def _machine(document: Document, name: str) -> Machine:
    _, values, facts = _facts(document, Machine)
    given = {key: value for key, value in values.items() if value is not None}
    try:
        made = msgspec.convert({"name": name} | given, Machine)
    except msgspec.ValidationError as error:
        raise ConfigError([converted(document, error, ("facts",))]) from None
    wrong = [document.mistake(("facts", key), message) for key, message in checks.odd(made)]
    if wrong:
        raise ConfigError(wrong)
    return msgspec.structs.replace(made, facts=facts)


def _facts(document: Document, kind: type[Struct]) -> tuple[_Facts, dict[str, Any], Mapping[str, Fact]]:
    """The file, its facts as plain values, and with their sources in words."""
    file = onto(document, _Facts)
    versioned(document, file.version)
    known = {one.name: one for one in fields(kind) if one.name not in _UNTOLD}
    hints = get_type_hints(kind)
    values: dict[str, Any] = {}
    facts: dict[str, Fact] = {}
    wrong: list[Mistake] = []
    for key, held in file.facts.items():
        place = ("facts", key)
        if key not in known:
            told = f"unknown fact '{key}'{suggestion(key, list(known))}"
            wrong.append(document.mistake(place, told, at_key=True))
            continue
        try:
            line = msgspec.convert(held, _Line)
        except msgspec.ValidationError as error:
            wrong.append(converted(document, error, place))
            continue
        value = None if line.value == "unknown" else line.value
        try:
            values[key] = None if value is None else msgspec.convert(value, _bare(hints[key]), strict=True)
        except msgspec.ValidationError as error:
            wrong.append(document.mistake((*place, "value"), _sentence(str(error))))
            continue
        facts[key] = Fact(value=value, basis=line.basis, source=file.sources.get(line.source, line.source))
    if wrong:
        raise ConfigError(wrong)
    return file, values, facts


def _bare(hint: Any) -> Any:
    """A type without None: what is unknown is written `unknown`."""
    if get_origin(hint) in (typing.Union, types.UnionType):
        return next(one for one in get_args(hint) if one is not type(None))
    return hint


def _row(document: Document, index: int, row: Measured) -> Iterator[Mistake]:
    for key in ("nodes", "concurrency", "tokens_per_s", "prefill_tokens_per_s"):
        value = getattr(row, key)
        if value is not None and not value > 0:
            yield document.mistake(("measured", index, key), f"{value:g} is not above zero")
    if row.tokens_per_s is None and row.prefill_tokens_per_s is None:
        yield document.mistake(("measured", index), "a row tells tokens_per_s, prefill_tokens_per_s or both")


def document_of(path: Path) -> Document:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise NotFound(f"{path} cannot be read: {error.strerror}") from None
    document, mistakes = read(str(path), content, Variables({}), lambda place: False)
    if document is None or mistakes:
        raise ConfigError(mistakes)
    return document


@contextmanager
def opened(path: Path) -> Generator[TextIO]:
    """A text file beside the catalogue's own. Raises NotFound."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            yield file
    except UnicodeDecodeError:
        raise NotFound(f"{path} is not UTF-8 text") from None
    except OSError as error:
        raise NotFound(f"{path} cannot be read: {error.strerror}") from None


def benchmark(path: Path, nodes: int) -> list[Measured]:
    """The rows of a file that a benchmark wrote. Raises NotFound, Impossible."""
    with opened(path) as file:
        return measure.rows(file.read(), path.name, nodes)


def onto(document: Document, kind: type[Read]) -> Read:
    try:
        return msgspec.convert(document.data, kind)
    except msgspec.ValidationError as error:
        raise ConfigError([converted(document, error, ())]) from None


def versioned(document: Document, version: int) -> None:
    if version != 1:
        raise ConfigError([document.mistake(("version",), f"this reads version 1, and the file says {version}")])


_STEP = re.compile(r"\.(\w+)|\[(\d+)\]|\[\.\.\.\]")


def converted(document: Document, error: msgspec.ValidationError, base: tuple[str | int, ...]) -> Mistake:
    """msgspec's one sentence, at its place in the file."""
    message, _, at = str(error).partition(" - at `$")
    steps: list[str | int] = []
    for key, index in _STEP.findall(at.rstrip("`")):
        steps.append(key or int(index or 0))
    return document.mistake((*base, *steps), _sentence(message))


def _sentence(message: str) -> str:
    """In the words of the other files' mistakes."""
    if found := re.match(r"Object contains unknown field `(\w+)`", message):
        return f"unknown key '{found[1]}'"
    if found := re.match(r"Object missing required field `(\w+)`", message):
        return f"the key '{found[1]}' is missing; add it"
    if found := re.match(r"Expected `([^`]+)`, got `(\w+)`", message.partition(" - at")[0]):
        wanted = {"float": "a number", "int": "a whole number", "str": "text", "object": "a mapping", "array": "a list"}
        parts = [wanted.get(one.strip(), one.strip()) for one in found[1].split("|") if one.strip() != "null"]
        return f"must be {' or '.join(dict.fromkeys(parts))}"
    if found := re.match(r"Invalid enum value '?([^']*)'?", message):
        return f"'{found[1]}' is not one of the words that may stand here"
    return message[:1].lower() + message[1:]
