"""Names that point at other names: groups, deployments, scorers, models, and that each leads somewhere.

Works on plain data, not on parsed values, so that a wrong name is told even where another key is wrong too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from router.errors import Mistake
from router.policy_files.onto import suggestion
from router.policy_files.positions import Document, Path
from router.policy_files.shapes import items, mapping

# Names stand in response headers, metric labels and URLs.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}")
_RESERVED_ROUTES = ("default", "pin", "asked")  # what a decision calls the ways that are no route


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The names that may be pointed at; None where their file could not be read, so nothing can be said."""

    groups: Sequence[str] | None
    deployments: Sequence[str] | None
    scorers: Sequence[str] | None


def known(groups: Document | None, scorers: Document | None, defaults: Sequence[str], has_scorers: bool) -> Known:
    """What groups.yaml and scorers.yaml name; `defaults` are the scorers that need no scorers.yaml."""
    return Known(
        groups=None if groups is None else list(mapping(groups.data.get("groups")) or {}),
        deployments=None if groups is None else list(mapping(groups.data.get("deployments")) or {}),
        scorers=(None if scorers is None else list(mapping(scorers.data.get("scorers")) or {}))
        if has_scorers
        else list(defaults),
    )


def check_groups(document: Document, names: Known) -> Iterator[Mistake]:
    """Every group has deployments, and each deployment that is named exists."""
    groups = mapping(document.data.get("groups")) or {}
    for name, body in groups.items():
        yield from _well_named(document, ("groups", name), name)
        members = items((mapping(body) or {}).get("deployments"))
        if mapping(body) is not None and "deployments" in body and not members:
            yield document.mistake(("groups", name, "deployments"), "a group needs at least one deployment")
        for index, member in enumerate(members):
            path: Path = ("groups", name, "deployments", index)
            yield from _exists(document, path, member, names.deployments, "deployment")
            if member in members[:index]:
                yield document.mistake(path, "this deployment is in the list already; remove one")
    for name in mapping(document.data.get("deployments")) or {}:
        yield from _well_named(document, ("deployments", name), name)
        if name in groups:
            yield document.mistake(("deployments", name), "a group has this name too; rename one of them", at_key=True)


def check_keys(document: Document, names: Known, policies: Sequence[Document], *, whole: bool) -> Iterator[Mistake]:
    """Names that are well formed, models and groups that exist, and no key twice. `whole`: every policy was read."""
    models = [model for one in policies for model in items(one.data.get("models")) if isinstance(model, str)]
    known = [*models, *(names.groups or ()), *(names.deployments or ())]
    digests: dict[str, str] = {}
    for section in ("keys", "tenants"):
        for name, body in (mapping(document.data.get(section)) or {}).items():
            base: Path = (section, name)
            yield from _well_named(document, base, name)
            inside = mapping(body) or {}
            yield from _well_named(document, (*base, "tenant"), inside.get("tenant"))
            if whole and names.groups is not None:
                for index, model in enumerate(items(inside.get("models"))):
                    yield from _exists(document, (*base, "models", index), model, known, "model")
            for group in mapping(inside.get("quota")) or {}:
                yield from _exists(document, (*base, "quota", group), group, names.groups, "group")
            digest = inside.get("sha256")
            if isinstance(digest, str) and (first := digests.setdefault(digest, name)) != name:
                yield document.mistake((*base, "sha256"), f"the key '{first}' above has this digest too; remove one")


def unheld_tenants(document: Document) -> Iterator[Mistake]:
    """Tenants that no key belongs to: a warning."""
    held = [(mapping(body) or {}).get("tenant") for body in (mapping(document.data.get("keys")) or {}).values()]
    for name in mapping(document.data.get("tenants")) or {}:
        if name not in held:
            yield document.mistake(("tenants", name), "no key belongs to this tenant", at_key=True)


def unused_deployments(document: Document) -> Iterator[Mistake]:
    """Deployments that no group names: a warning."""
    groups = mapping(document.data.get("groups")) or {}
    used = [one for body in groups.values() for one in items((mapping(body) or {}).get("deployments"))]
    for name in mapping(document.data.get("deployments")) or {}:
        if name not in used:
            yield document.mistake(("deployments", name), "no group uses this deployment", at_key=True)


def check_policy(document: Document, names: Known) -> Iterator[Mistake]:
    """Every group and scorer that a policy names exists, and its own names are well formed and told apart."""
    data = document.data
    yield from _well_named(document, ("name",), data.get("name"))
    yield from _exists(document, ("default",), data.get("default"), names.groups, "group")
    for path, name in _group_names(data):
        yield from _exists(document, path, name, names.groups, "group")
    seen: list[Any] = []
    for index, one in enumerate(items(data.get("routes"))):
        route = mapping(one) or {}
        path: Path = ("routes", index, "name")
        yield from _well_named(document, path, route.get("name"))
        if route.get("name") in _RESERVED_ROUTES:
            yield document.mistake(path, f"the names {', '.join(_RESERVED_ROUTES)} are taken; choose another")
        if route.get("name") is not None and route.get("name") in seen:
            yield document.mistake(path, "another route above has this name; names tell routes apart, rename one")
        seen.append(route.get("name"))
        scorer = (mapping(route.get("score")) or {}).get("scorer")
        yield from _exists(document, ("routes", index, "score", "scorer"), scorer, names.scorers, "scorer")
        verify = mapping((mapping(route.get("cascade")) or {}).get("verify")) or {}
        place: Path = ("routes", index, "cascade", "verify", "scorer")
        yield from _exists(document, place, verify.get("scorer"), names.scorers, "scorer")
    for index, one in enumerate(items(data.get("examples"))):
        for scorer in mapping((mapping(one) or {}).get("scores")) or {}:
            yield from _exists(document, ("examples", index, "scores", scorer), scorer, names.scorers, "scorer")
    yield from _check_models(document, names)


def _check_models(document: Document, names: Known) -> Iterator[Mistake]:
    models = items(document.data.get("models"))
    if isinstance(document.data.get("models"), list) and not models:
        yield document.mistake(("models",), "a policy needs at least one model name that clients ask for")
    for index, model in enumerate(models):
        path: Path = ("models", index)
        if not isinstance(model, str):
            continue
        if model != model.strip() or not model.isprintable() or not model:
            yield document.mistake(path, "a model name has no surrounding space and no control characters")
        if model in (names.groups or ()):
            yield document.mistake(path, "a group has this name, and clients reach it by that; choose another")
        if document.data.get("allow_deployments") is True and model in (names.deployments or ()):
            yield document.mistake(path, "a deployment has this name, and this policy lets clients name deployments")
        if model in models[:index]:
            yield document.mistake(path, "this name is in the list already; remove one")


def claimed_twice(documents: Sequence[Document]) -> Iterator[Mistake]:
    """Model and policy names that more than one policy file claims."""
    claims: dict[tuple[str, str], Document] = {}
    for document in documents:
        claimed: list[tuple[str, Path, Any]] = [("policy", ("name",), document.data.get("name"))]
        models = items(document.data.get("models"))
        claimed += [("model", ("models", index), model) for index, model in enumerate(models)]
        for kind, path, name in claimed:
            if not isinstance(name, str):
                continue
            first = claims.setdefault((kind, name), document)
            if first is not document:
                message = f"the {kind} name '{document.shown(path, name)}' is claimed by {first.file} too; rename one"
                yield document.mistake(path, message)


def canaries(documents: Sequence[Document]) -> Iterator[Mistake]:
    """A canary is another policy, tried in one place, and tries none itself."""
    names = [name for document in documents if isinstance(name := document.data.get("name"), str)]
    trying = {document.data.get("name"): document for document in documents if "canary" in document.data}
    path: Path = ("canary", "policy")
    taken: dict[str, Document] = {}
    for document in documents:
        tried = (mapping(document.data.get("canary")) or {}).get("policy")
        if not isinstance(tried, str):
            continue
        yield from _exists(document, path, tried, names, "policy")
        if tried == document.data.get("name"):
            yield document.mistake(path, "a policy cannot be tried in place of itself; name another")
        elif tried in trying:
            yield document.mistake(path, "this policy has a canary itself; try one thing at a time")
        elif (first := taken.setdefault(tried, document)) is not document:
            yield document.mistake(path, f"this policy is tried by {first.file} already; copy it under another name")


def _group_names(data: dict[str, Any]) -> Iterator[tuple[Path, Any]]:
    """Every place in a policy, `default` apart, that names a group."""
    for index, one in enumerate(items(data.get("routes"))):
        route = mapping(one) or {}
        yield ("routes", index, "group"), route.get("group")
        for number, band in enumerate(items((mapping(route.get("score")) or {}).get("bands"))):
            yield ("routes", index, "score", "bands", number, "group"), (mapping(band) or {}).get("group")
        cascade = mapping(route.get("cascade")) or {}
        for key in ("first", "then"):
            yield ("routes", index, "cascade", key), cascade.get(key)
        for number, scout in enumerate(items(cascade.get("scouts"))):
            yield ("routes", index, "cascade", "scouts", number), scout
    for name, others in (mapping(data.get("fallback")) or {}).items():
        yield ("fallback", name), name
        for index, other in enumerate(items(others)):
            yield ("fallback", name, index), other
    yield ("judge", "group"), (mapping(data.get("judge")) or {}).get("group")
    for index, name in enumerate(items(data.get("order"))):
        yield ("order", index), name
    for index, one in enumerate(items(data.get("examples"))):
        yield ("examples", index, "expect", "group"), (mapping((mapping(one) or {}).get("expect")) or {}).get("group")


def _exists(document: Document, path: Path, name: object, among: Sequence[str] | None, kind: str) -> Iterator[Mistake]:
    if among is not None and isinstance(name, str) and name not in among:
        at_key = bool(path) and path[-1] == name
        shown = document.shown(path, name)
        yield document.mistake(path, f"there is no {kind} '{shown}'{suggestion(name, among)}", at_key=at_key)


def _well_named(document: Document, path: Path, name: object) -> Iterator[Mistake]:
    if isinstance(name, str) and not _NAME.fullmatch(name):
        message = "a name is up to 128 letters, digits and . _ : / @ + -, and begins with a letter or digit"
        yield document.mistake(path, message, at_key=path[-1] == name)
