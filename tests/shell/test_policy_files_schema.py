"""The JSON Schema says of files what the loader says of them, and names every key."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from router import config, types
from router.policy_files import schema
from router.policy_files.descriptions import KEYS
from tests.support.config_files import GROUPS, POLICY, policy, route

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def validator() -> Any:
    made = schema()
    jsonschema.Draft202012Validator.check_schema(made)
    return jsonschema.Draft202012Validator(made)


def test_the_shipped_schema_is_the_generated_one() -> None:
    """`pointsman schema > policies/schema.json` makes it fresh."""
    assert json.loads((ROOT / "policies" / "schema.json").read_text()) == schema()


@pytest.mark.parametrize("path", sorted((ROOT / "policies").glob("**/*.yaml")), ids=lambda path: path.name)
def test_shipped_files_name_the_schema_and_are_valid(validator: Any, path: Path) -> None:
    text = path.read_text()
    up = "../" * (len(path.relative_to(ROOT / "policies").parts) - 1)
    assert text.startswith(f"# yaml-language-server: $schema={up}schema.json\n")
    validator.validate(yaml.safe_load(text))


@pytest.mark.parametrize(
    "text",
    [
        GROUPS,
        POLICY,
        policy("pin: {ttl: 1h}", "examples: [{given: {turns: 1}, expect: default}]"),
        policy("pin: {ttl: 90}", "examples: [{expect: {route: default, group: large}}]"),
        route("{name: a, when: {turns: {at_least: ${N}}, any: [{stream: '${S:-true}'}]}, group: small}"),
        "version: 1\nscorers: {difficulty: {kind: lexical}, judge: {kind: remote, url: x}}",
        "version: 1\nstore: redis://h\ngroups: {a: {deployments: [b]}}\ndeployments: {b: {upstream: local, "
        "options: {threads: 2}}}",
    ],
)
def test_good_files_are_valid(validator: Any, text: str) -> None:
    validator.validate(yaml.safe_load(text.replace("${N}", "'${N}'")))


@pytest.mark.parametrize(
    "text",
    [
        policy("rotues: []"),
        policy("pin: {ttl: soon}"),
        policy("examples: [{given: {tuns: 1}, expect: default}]"),
        policy("examples: [{given: {turns: 1}}]"),
        policy().replace("version: 1\n", ""),
        policy().replace("version: 1", "version: 2"),
        route("{name: a, when: {tool_erors: 2}, group: small}"),
        route("{name: a, when: {turns: many}, group: small}"),
        GROUPS.replace("model: m-small", "modle: m-small"),
        GROUPS.replace("upstream: openai", "upstream: vllm"),
        GROUPS.replace("model: m-small", "name: small-a, model: m-small"),
        "version: 1\nscorers: {difficulty: {kind: magic}}",
        "version: 1\nscorers: {difficulty: {kind: lexical, artefact: x}}",
        "version: 1\ngroups: {a: {deployments: [b]}}\ndeployments: {b: {upstream: local, options: {treads: 2}}}",
    ],
)
def test_bad_files_are_not_valid(validator: Any, text: str) -> None:
    assert not validator.is_valid(yaml.safe_load(text))


def test_every_key_of_the_schema_has_its_sentence_and_no_sentence_is_without_a_key() -> None:
    described = {name: set(keys) for name, keys in KEYS.items()}
    written = {
        name: set(made["properties"]) - {"version"}
        for name, made in schema()["$defs"].items()
        if "properties" in made and name != "Signals"
    }
    assert described == written


def test_a_condition_may_name_every_signal() -> None:
    """`decide` tests signals by name, so a signal that `when` lacks could not be used by any policy."""
    assert {one.name for one in fields(config.When)} - {"any", "all"} == set(types.Signals.__struct_fields__)
