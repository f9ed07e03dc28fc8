"""The JSON Schema of the files as they are written, generated from the dataclasses, for editors.

Where the files spell a key otherwise than the dataclass does, `SPELLING` says so and the schema follows the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

from router.config import Deployment, Example, Group, Key, Pin, Policy, ScorerSpec, Tenant
from router.policy_files.descriptions import KEYS
from router.policy_files.onto import ADAPTERS, SPELLING
from router.policy_files.options import SCORERS, UPSTREAMS, Option
from router.types import Signals

_REF: Final = "#/$defs/{model}"
_VARIABLE: Final = {"type": "string", "pattern": r"\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\}"}
_DURATION: Final = {
    "anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string", "pattern": r"^([0-9.]+(ms|[smhdw]))+$"}]
}
_EXPECT: Final = {
    "anyOf": [
        {"type": "string"},
        {
            "type": "object",
            "properties": {"route": {"type": "string"}, "group": {"type": "string"}},
            "additionalProperties": False,
            "minProperties": 1,
        },
    ]
}
_VERSION: Final = {"const": 1, "description": "The version of this file format: 1."}


def schema() -> dict[str, Any]:
    """One schema for every file of a configuration directory: which kind a file is, its own keys tell."""
    defs: dict[str, Any] = {}
    for kind, adapter in ADAPTERS.items():
        made = adapter.json_schema(ref_template=_REF)
        defs.update(made.pop("$defs", {}))
        defs[kind.__name__] = made
    for owner in (Policy, Deployment, Group, Pin, Example, ScorerSpec, Key, Tenant):
        _respell(owner, defs[owner.__name__])
    defs["Pin"]["properties"]["ttl"] = dict(_DURATION)
    defs["Pin"]["properties"]["ttl_s"] = {"type": "number", "exclusiveMinimum": 0}
    defs["Example"]["properties"]["expect"] = dict(_EXPECT)
    defs["Example"]["required"] = ["expect"]
    defs["Example"]["properties"]["given"] = {"$ref": _REF.format(model="Signals")}
    defs["Signals"] = msgspec.json.schema(Signals)["$defs"]["Signals"] | {"additionalProperties": False}
    defs["ScorerSpec"]["additionalProperties"] = True  # a kind's own options stand beside it
    defs["ScorerSpec"]["allOf"] = [
        _when_kind("kind", kind, {**_options(table), "kind": {}}) for kind, table in SCORERS.items()
    ]
    defs["Deployment"]["allOf"] = [
        _when_kind(
            "upstream", kind, None, {"type": "object", "properties": _options(table), "additionalProperties": False}
        )
        for kind, table in UPSTREAMS.items()
    ]
    defs["Policy"]["properties"]["version"] = _VERSION
    defs["Policy"]["required"] = ["version", *defs["Policy"]["required"]]
    defs["GroupsFile"] = _file(groups=_names("Group"), deployments=_names("Deployment"), optional={"store": _STORE})
    defs["Key"]["properties"]["expires"] = {"type": "string", "pattern": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}"}
    defs["Key"]["properties"]["sha256"] = {"type": "string", "pattern": r"^[0-9a-f]{64}$|\$\{"}
    keys = {**_names("Key"), "minProperties": 0}
    defs["KeysFile"] = _file(keys=keys, optional={"tenants": _names("Tenant")})
    defs["ScorersFile"] = _file(scorers=_names("ScorerSpec"), optional={})
    cleaned = cast("dict[str, Any]", _cleaned(defs))
    for name, keys in KEYS.items():
        for key, text in keys.items():
            place = cleaned[name]["properties"][key]
            cleaned[name]["properties"][key] = {**place, "description": text}
    cleaned["Variable"] = _VARIABLE
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Pointsman configuration",
        "type": "object",
        "if": {"anyOf": [{"required": ["groups"]}, {"required": ["deployments"]}]},
        "then": {"$ref": "#/$defs/GroupsFile"},
        "else": {
            "if": {"required": ["scorers"]},
            "then": {"$ref": "#/$defs/ScorersFile"},
            "else": {
                "if": {"required": ["keys"]},
                "then": {"$ref": "#/$defs/KeysFile"},
                "else": {"$ref": "#/$defs/Policy"},
            },
        },
        "$defs": dict(sorted(cleaned.items())),
    }


_STORE: Final = {"type": "string", "pattern": r"^(rediss?://|unix://|\$\{)"}


def _respell(owner: type, made: dict[str, Any]) -> None:
    for (kind, field), written in SPELLING.items():
        if kind is not owner:
            continue
        found = made["properties"].pop(field)
        made["required"] = [name for name in made.get("required", []) if name != field]
        if written is not None:
            made["properties"][written] = found


def _file(optional: dict[str, Any], **required: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"version": _VERSION, **required, **optional},
        "required": ["version", *required],
        "additionalProperties": False,
    }


def _when_kind(
    key: str, kind: str, properties: dict[str, Any] | None, options: dict[str, Any] | None = None
) -> dict[str, Any]:
    """For one kind: its options under `options`, or as `properties` of its own with no others beside them."""
    then = {"properties": {"options": options}}
    if properties is not None:
        then = {"properties": properties, "propertyNames": {"enum": list(properties)}}
    return {"if": {"properties": {key: {"const": kind}}, "required": [key]}, "then": then}


def _options(table: Mapping[str, Option]) -> dict[str, Any]:
    """An option's type and span; null stands for its default."""
    made: dict[str, Any] = {}
    for name, option in table.items():
        if option.kind == "text":
            made[name] = {"anyOf": [{"type": "string"}, {"type": "null"}]}
        else:
            number = {"type": "integer" if option.kind == "whole" else "number", "minimum": option.least}
            span = number if option.most == float("inf") else {**number, "maximum": option.most}
            made[name] = {"anyOf": [span, {"type": "null"}]}
    return made


def _names(kind: str) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": {"$ref": _REF.format(model=kind)}, "minProperties": 1}


def _cleaned(made: object, *, names: bool = False) -> object:
    """Without generated titles and defaults, and with a variable allowed where a number or a flag is wanted.

    `names`: the keys of `made` are property names, not schema words.
    """
    if isinstance(made, list):
        return [_cleaned(one) for one in cast("list[object]", made)]
    if not isinstance(made, dict):
        return made
    words = cast("dict[str, Any]", made)
    kept = {
        key: _cleaned(value, names=not names and key in ("properties", "$defs"))
        for key, value in words.items()
        if names or key not in ("title", "default")
    }
    if not names and words.get("type") in ("number", "integer", "boolean"):
        return {"anyOf": [kept, {"$ref": "#/$defs/Variable"}]}
    return kept
