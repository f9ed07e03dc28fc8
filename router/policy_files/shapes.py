"""What operators write becomes what the dataclasses hold, with the way back for error messages.

The files allow a few shorter spellings: names as mapping keys, `ttl: 1h`, `expect: NAME`, a scorer's options
beside its kind. Each is rewritten here, once, on plain data; nothing is validated beyond the spelling itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

from router.policy_files.positions import Document, Path

_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|[smhdw]))+")
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|[smhdw])")
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}

# What holds for a kind of upstream where the file says nothing. The embedded llama.cpp has no image projector, and
# asking it for token counts costs no provider's goodwill.
BY_UPSTREAM: Mapping[str, Mapping[str, Any]] = {"local": {"images": False, "stream_usage": True}}


class Misspelt(NamedTuple):
    """A spelling that cannot be rewritten; `path` is the one in the file."""

    path: Path
    message: str
    at_key: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Shaped:
    """Data in the dataclass's shape. `written` maps a path in `data` to the path in the file."""

    data: dict[str, Any]
    base: Path = ()  # where `data` stands in the file
    written: Mapping[Path, Path] = field(default_factory=dict[Path, Path])
    mistakes: tuple[Misspelt, ...] = ()

    def place(self, path: Path) -> Path:
        """The path in the file of a path in `data`."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.written:
                return (*self.base, *self.written[path[:length]], *path[length:])
        return (*self.base, *path)


def seconds(value: object) -> float | None:
    """90, "90s", "1h30m", "2d" in seconds; None when it is no duration."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str) and _DURATION.fullmatch(value):
        return sum(float(number) * _UNIT_S[unit] for number, unit in _DURATION_PART.findall(value))
    return None


def mapping(value: object) -> dict[str, Any] | None:
    """The value where it is a mapping; the reader makes text keys only."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def items(value: object) -> list[Any]:
    """The value where it is a list, else nothing."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def free_form(path: Path) -> bool:
    """Whether a value's type is not declared, so that only its text can tell it: ${N} under `set` is a number."""
    return "set" in path[:-1] or "options" in path[:-1] or path[:1] == ("scorers",)


def policy(document: Document) -> Shaped:
    """A policy file without `version`, with `pin.ttl` in seconds and `expect` taken apart."""
    data = {key: value for key, value in document.data.items() if key != "version"}
    written: dict[Path, Path] = {}
    mistakes: list[Misspelt] = []
    if (pin := mapping(data.get("pin"))) is not None and "ttl" in pin:
        data["pin"] = _pin(pin, written, mistakes)
    if isinstance(data.get("examples"), list):
        data["examples"] = [_example(one, i, written, mistakes) for i, one in enumerate(items(data["examples"]))]
    if isinstance(data.get("routes"), list):
        data["routes"] = [_route(one) for one in items(data["routes"])]
    if mapping(data.get("judge")) is not None:
        data["judge"] = _route(data["judge"])
    return Shaped(data=data, written=written, mistakes=tuple(mistakes))


def deployment(document: Document, name: str) -> Shaped:
    """One deployment, named by its key; what its kind says of keys that are left out is filled in."""
    shaped = _named(document, ("deployments", name), name)
    defaults = BY_UPSTREAM.get(str(shaped.data.get("upstream")), {})
    return replace(shaped, data={**defaults, **shaped.data}) if defaults else shaped


def group(document: Document, name: str) -> Shaped:
    """One group, named by its key."""
    return _named(document, ("groups", name), name)


def scorer(document: Document, name: str) -> Shaped:
    """One scorer: every key but `kind` is an option."""
    shaped = _named(document, ("scorers", name), name)
    body = shaped.data
    options = {key: value for key, value in body.items() if key not in ("name", "kind")}
    written: dict[Path, Path] = {("options", key): (key,) for key in options}
    kind = {"kind": body["kind"]} if "kind" in body else {}
    data = {"name": name, **kind, "options": options}
    return Shaped(data=data, base=shaped.base, written=written, mistakes=shaped.mistakes)


def key(document: Document, name: str) -> Shaped:
    """One key, named by its key in the file; `expires` as Unix seconds."""
    shaped = _named(document, ("keys", name), name)
    if shaped.data.get("expires") is None:
        return shaped
    expires = moment(shaped.data["expires"])
    rest = {key: value for key, value in shaped.data.items() if key != "expires"}
    if expires is not None:
        return replace(shaped, data={**rest, "expires": expires})
    wrong = Misspelt(("keys", name, "expires"), "must be a date, or a date and time, such as 2027-01-31T12:00:00Z")
    return replace(shaped, data=rest, mistakes=(*shaped.mistakes, wrong))


def tenant(document: Document, name: str) -> Shaped:
    """One tenant, named by its key."""
    return _named(document, ("tenants", name), name)


def moment(value: object) -> float | None:
    """Unix seconds of "2027-01-31" (its beginning) or "2027-01-31T12:00:00Z", in UTC unless it says otherwise; None
    where it is no such text."""
    try:
        said = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return None if said is None else (said if said.tzinfo is not None else said.replace(tzinfo=UTC)).timestamp()


def _named(document: Document, base: Path, name: str) -> Shaped:
    body = mapping(document.data[str(base[0])][name])
    if body is None:
        return Shaped(data={}, base=base, mistakes=(Misspelt(base, "must be a mapping of keys to values"),))
    again = Misspelt((*base, "name"), "the key above is the name already; remove this one", at_key=True)
    return Shaped(data={**body, "name": name}, base=base, mistakes=(again,) if "name" in body else ())


def _pin(pin: dict[str, Any], written: dict[Path, Path], mistakes: list[Misspelt]) -> dict[str, Any]:
    ttl = seconds(pin["ttl"])
    if ttl is None:
        mistakes.append(Misspelt(("pin", "ttl"), "must be a duration such as 90s, 1h or 2d, or a number of seconds"))
    if "ttl_s" in pin:
        mistakes.append(Misspelt(("pin", "ttl_s"), "ttl says this already; keep one of the two", at_key=True))
    written[("pin", "ttl_s")] = ("pin", "ttl")
    rest = {key: value for key, value in pin.items() if key != "ttl"}
    return rest if ttl is None else {**rest, "ttl_s": ttl}


def _example(one: object, index: int, written: dict[Path, Path], mistakes: list[Misspelt]) -> object:
    example = mapping(one)
    if example is None:
        return one
    here: Path = ("examples", index)
    for key in ("route", "group"):
        if key in example:
            mistakes.append(Misspelt((*here, key), f"unknown key; write expect: {{{key}: NAME}}", at_key=True))
    rest = {key: value for key, value in example.items() if key not in ("expect", "route", "group")}
    if "given" in rest:
        rest["given"] = _when(rest["given"])
    expect = example.get("expect")
    if "expect" not in example:
        message = "expect is missing; write expect: ROUTE, or expect: {route: ROUTE, group: GROUP}"
        mistakes.append(Misspelt(here, message))
    elif isinstance(expect, str):
        written[(*here, "route")] = (*here, "expect")
        return {**rest, "route": expect}
    elif not (wanted := mapping(expect)):
        mistakes.append(Misspelt((*here, "expect"), "must be a route's name, or {route: ROUTE, group: GROUP}"))
    else:
        for key, value in wanted.items():
            if key not in ("route", "group"):
                message = "unknown key; expect holds route and group"
                mistakes.append(Misspelt((*here, "expect", key), message, at_key=True))
            else:
                written[(*here, key)] = (*here, "expect", key)
                rest[key] = value
    return rest


def _route(one: object) -> object:
    route = mapping(one)
    if route is None or "when" not in route:
        return one
    return {**route, "when": _when(route["when"])}


def _when(one: object) -> object:
    """A condition, or the signals of an example: header names compare in lower case, as HTTP has them."""
    when = mapping(one)
    if when is None:
        return one
    shaped = dict(when)
    if (headers := mapping(when.get("headers"))) is not None:
        shaped["headers"] = {name.lower(): value for name, value in headers.items()}
    for key in ("any", "all"):
        if isinstance(when.get(key), list):
            shaped[key] = [_when(inner) for inner in items(when[key])]
    return shaped
