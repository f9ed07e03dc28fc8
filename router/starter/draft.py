"""A configuration as it is about to be written: deployments, groups, policies, and what has to be told about them. It
becomes the text of the files; nothing is read or written here."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from msgspec import Struct

SCHEMA: Final = "# yaml-language-server: $schema=schema.json"
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./@-]*")
_NOT_TEXT: Final = {"true", "false", "null", "yes", "no"}


class Line(Struct, frozen=True, kw_only=True):
    """One deployment. `spare`: written as a comment, for whoever wants it; `about`: why it is as it is."""

    name: str
    keys: Mapping[str, Any]
    about: str = ""
    spare: bool = False


class Bands(Struct, frozen=True, kw_only=True):
    """A score's groups from small to large, with the edges between them."""

    groups: tuple[str, ...]
    edges: tuple[float, ...]


class PolicyDraft(Struct, frozen=True, kw_only=True):
    """One policy. `routes`: lines of YAML, in flow style, that go before the score."""

    name: str
    models: tuple[str, ...]
    default: str
    about: str
    bands: Bands | None = None
    routes: tuple[str, ...] = ()
    fallback: Mapping[str, tuple[str, ...]] = {}
    examples: tuple[str, ...] = ()
    pinned: bool = True


class Draft(Struct, frozen=True, kw_only=True):
    """All of it. `left`: what could not be carried over, a sentence each; `variables`: that must be set for it."""

    about: tuple[str, ...]  # comments at the top of groups.yaml
    deployments: tuple[Line, ...]
    groups: Mapping[str, tuple[str, ...]]
    policies: tuple[PolicyDraft, ...]
    store: str = ""
    left: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()


def texts(draft: Draft) -> dict[str, str]:
    """The files' texts, by name."""
    files = {"groups.yaml": "\n".join(_groups(draft)) + "\n"}
    for policy in draft.policies:
        files[f"{_file_name(policy.name)}.yaml"] = "\n".join(_policy(policy)) + "\n"
    return files


def slug(name: str) -> str:
    """A name that groups and deployments may have."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-.")[:100] or "model"


def flow(value: Any) -> str:
    """A value in YAML's flow style."""
    if isinstance(value, Mapping):
        pairs: Mapping[str, Any] = value  # pyright: ignore[reportUnknownVariableType]
        return "{" + ", ".join(f"{flow(key)}: {flow(held)}" for key, held in pairs.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(flow(one) for one in value) + "]"  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, str):
        plain = _PLAIN.fullmatch(value) and value.lower() not in _NOT_TEXT
        return value if plain else json.dumps(value, ensure_ascii=False)
    return json.dumps(value)


def _groups(draft: Draft) -> Iterator[str]:
    yield SCHEMA
    yield from (f"# {line}".rstrip() for line in draft.about)
    yield "version: 1"
    yield "groups:"
    for name, members in draft.groups.items():
        yield f"  {flow(name)}: {{deployments: {flow(members)}}}"
    yield "deployments:"
    used = [line for line in draft.deployments if not line.spare]
    for line in used:
        if line.about:
            yield f"  # {line.about}"
        yield f"  {flow(line.name)}: {flow(line.keys)}"
    if spare := [line for line in draft.deployments if line.spare]:
        yield "  # Others that were found. To use one, take its # away and put its name into a group above."
        yield from (f"  # {flow(line.name)}: {flow(line.keys)}" for line in spare)
    if draft.store:
        yield f"store: {flow(draft.store)}"


def _policy(policy: PolicyDraft) -> Iterator[str]:
    yield SCHEMA
    yield from (f"# {line}".rstrip() for line in policy.about.split("\n"))
    yield "version: 1"
    yield f"name: {flow(policy.name)}"
    yield f"models: {flow(policy.models)} # what clients ask for"
    if not policy.routes and policy.bands is None:
        yield "routes: [] # everything goes to `default`"
    else:
        yield "routes:"
        yield from (f"  - {route}" for route in policy.routes)
    if policy.bands is not None:
        yield "  - name: difficulty # by the shipped scorer, from 0 (easy) to 1 (hard)"
        yield f"    score: {{scorer: difficulty, bands: {_bands(policy.bands)}}}"
    yield f"default: {flow(policy.default)} # serves when nothing else is decided"
    if policy.pinned:
        yield "pin: {scope: conversation, ttl: 1h, upgrade: user_turn} # a conversation stays where it is, or moves up"
    if policy.fallback:
        yield f"fallback: {flow(policy.fallback)} # where a group cannot serve"
    if policy.examples:
        yield "examples: # the policy's own tests, run by `pointsman check` and at every load"
        yield from (f"  - {example}" for example in policy.examples)


def _bands(bands: Bands) -> str:
    below = [
        f"{{below: {edge:g}, group: {flow(group)}}}" for group, edge in zip(bands.groups, bands.edges, strict=False)
    ]
    return "[" + ", ".join([*below, f"{{group: {flow(bands.groups[-1])}}}"]) + "]"


def examples_of(bands: Bands, default: str, route: str = "difficulty") -> tuple[str, ...]:
    """What such bands must do, as a policy's own tests: one score in each band, and an abstention."""
    middles = _middles(bands.edges)
    found = [
        f"{{given: {{turns: 1}}, scores: {{difficulty: {score:g}}}, expect: {{route: {route}, group: {flow(group)}}}}}"
        for group, score in zip(bands.groups, middles, strict=True)
    ]
    return (*found, f"{{given: {{turns: 1}}, scores: {{difficulty: null}}, expect: {{group: {flow(default)}}}}}")


def _middles(edges: Sequence[float]) -> list[float]:
    ends = [0.0, *edges, 1.0]
    return [round((low + high) / 2, 3) for low, high in pairwise(ends)]


def _file_name(policy: str) -> str:
    """Policies' files may not have the names of the others."""
    name = slug(policy).lower()
    return f"policy-{name}" if name in ("groups", "scorers", "keys") else name
