"""A directory of YAML files becomes a `Config`, or the list of everything that is wrong with it.

Boot and reload go through `load` alike. Each step gathers mistakes and goes on, so that one run tells all; the
configuration exists only when there is none.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from typing import Final

from router.config import Access, Config, Deployment, Group, Key, Policy, ScorerSpec, Tenant
from router.errors import ConfigError, Mistake
from router.policy_files import addresses, artifacts, checks, examples, judges, references, shapes
from router.policy_files.files import GROUPS, KEYS, SCORERS, digest, misnamed, read_directory, whole_file
from router.policy_files.onto import Written, parse, suggestion
from router.policy_files.positions import Document, read
from router.policy_files.shapes import Shaped, mapping
from router.policy_files.variables import Variables

VERSION: Final = 1
_GROUPS_KEYS: Final = ("version", "groups", "deployments", "store")
_SCORERS_KEYS: Final = ("version", "scorers")
_KEYS_KEYS: Final = ("version", "keys", "tenants")
# Without a scorers.yaml both names mean the shipped lexical scorer.
DEFAULT_SCORERS: Final[Mapping[str, ScorerSpec]] = {
    name: ScorerSpec(name=name, kind="lexical") for name in ("difficulty", "lexical")
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """What a directory holds: `config` is None exactly when there are mistakes. `examples` counts those run."""

    config: Config | None
    mistakes: tuple[Mistake, ...] = ()
    warnings: tuple[Mistake, ...] = ()
    examples: int = 0


def load(directory: FilePath, environ: Mapping[str, str] | None = None) -> Config:
    """The configuration in a directory. Raises ConfigError with every mistake.

    `environ` is where `${NAME}` is looked up; the process's environment when None.
    """
    found = review(directory, environ)
    if found.config is None:
        raise ConfigError(found.mistakes)
    return found.config


def review(
    directory: FilePath,
    environ: Mapping[str, str] | None = None,
    *,
    instead: Mapping[str, bytes] | None = None,
    needs: bool = False,
) -> Review:
    """The configuration in a directory with its warnings, or every mistake in it. Never raises ConfigError.

    `instead`: files as they would be, in place of those that are there. `needs`: what scorers need and this machine
    lacks is a mistake; a gateway finds it when it builds them.
    """
    try:
        files = read_directory(directory) | dict(instead or {})
    except ConfigError as error:
        return Review(config=None, mistakes=error.mistakes)
    variables = Variables(os.environ if environ is None else environ)
    documents: dict[str, Document] = {}
    mistakes: list[Mistake] = []
    for name, content in files.items():
        document, wrong = read(str(directory / name), content, variables, shapes.free_form)
        mistakes.extend(wrong)
        if document is not None:
            documents[name] = document
            mistakes.extend(_version(document))
    if GROUPS not in files:
        mistakes.append(whole_file(directory / GROUPS, "this file is missing; it names groups and deployments"))
    if not set(files) - {GROUPS, SCORERS, KEYS}:
        mistakes.append(whole_file(directory, "no policy here; add a file such as default.yaml"))
    odd = [whole_file(path, "is not read: files end in .yaml") for path in misnamed(directory)]
    access = None
    if KEYS in documents:
        access = _keys_file(documents, whole=set(documents) == set(files), mistakes=mistakes, warnings=odd)
    found = _judge(
        documents, has_scorers=SCORERS in files, digest=digest(files), mistakes=mistakes, warnings=odd, needs=needs
    )
    if found.config is None or access is None:
        return found
    config = replace(found.config, access=access)
    unpriced = checks.uncounted_dollars(documents[KEYS], access, config)
    return replace(found, config=config, warnings=(*found.warnings, *unpriced))


def _judge(
    documents: Mapping[str, Document],
    *,
    has_scorers: bool,
    digest: str,
    mistakes: list[Mistake],
    warnings: list[Mistake],
    needs: bool,
) -> Review:
    groups_file, scorers_file = documents.get(GROUPS), documents.get(SCORERS)
    policy_files = [document for name, document in documents.items() if name not in (GROUPS, SCORERS, KEYS)]
    groups: dict[str, Group] = {}
    deployments: dict[str, Deployment] = {}
    scorers: dict[str, ScorerSpec] = {} if has_scorers else dict(DEFAULT_SCORERS)
    policies: list[tuple[Document, Policy]] = []
    names = references.known(groups_file, scorers_file, list(DEFAULT_SCORERS), has_scorers)
    if groups_file is not None:
        mistakes.extend(_groups_file(groups_file, groups, deployments))
        mistakes.extend(references.check_groups(groups_file, names))
        warnings.extend(references.unused_deployments(groups_file))
        warnings.extend(addresses.literal_keys(groups_file))
        warnings.extend(checks.absent(groups_file))
    if scorers_file is not None:
        mistakes.extend(_scorers_file(scorers_file, scorers))
        if needs:
            mistakes.extend(one for spec in scorers.values() for one in artifacts.check_needs(scorers_file, spec))
        else:
            warnings.extend(checks.absent(scorers_file))
    for document in policy_files:
        policy, wrong = parse(Policy, shapes.policy(document), document)
        mistakes.extend(wrong)
        mistakes.extend(references.check_policy(document, names))
        mistakes.extend(examples.check_given(document))
        if policy is not None:
            policies.append((document, policy))
            mistakes.extend(checks.check_policy(document, policy))
            mistakes.extend(judges.check_arms(document, policy, groups, deployments))
            mistakes.extend(examples.check_examples(document, policy))
            warnings.extend(checks.warnings(document, policy))
    mistakes.extend(references.claimed_twice(policy_files))
    mistakes.extend(references.canaries(policy_files))
    refused = {one.file for one in mistakes}
    for document, policy in policies:
        if document.file not in refused:
            mistakes.extend(examples.run_examples(document, policy))
    ordered = tuple(sorted(dict.fromkeys(mistakes), key=lambda one: (one.file, one.line, one.column, one.path)))
    if ordered:
        return Review(config=None, mistakes=ordered, warnings=tuple(warnings))
    config = Config(
        policies={policy.name: policy for _, policy in policies},
        models={model: policy for _, policy in policies for model in policy.models},
        groups=groups,
        deployments=deployments,
        scorers=scorers,
        digest=digest,
        store=groups_file.data.get("store") if groups_file is not None else None,
    )
    for document, policy in policies:
        warnings.extend(checks.blind(document, policy, config))
    return Review(config=config, warnings=tuple(warnings), examples=sum(len(one.examples) for _, one in policies))


def _groups_file(document: Document, groups: dict[str, Group], deployments: dict[str, Deployment]) -> Iterator[Mistake]:
    yield from _only(document, _GROUPS_KEYS)
    yield from _section(document, "groups", Group, shapes.group, groups)
    yield from _section(document, "deployments", Deployment, shapes.deployment, deployments)
    for deployment in deployments.values():
        yield from checks.check_deployment(document, deployment)
    for group in groups.values():
        yield from checks.check_group(document, group)
    yield from checks.check_store(document)


def _scorers_file(document: Document, scorers: dict[str, ScorerSpec]) -> Iterator[Mistake]:
    yield from _only(document, _SCORERS_KEYS)
    yield from _section(document, "scorers", ScorerSpec, shapes.scorer, scorers)
    for scorer in scorers.values():
        yield from checks.check_scorer(document, scorer)


def _keys_file(
    documents: Mapping[str, Document], *, whole: bool, mistakes: list[Mistake], warnings: list[Mistake]
) -> Access:
    """Who may use the gateway. A file with no key in it lets nobody in: that is what revoking the last one means."""
    document = documents[KEYS]
    keys: dict[str, Key] = {}
    tenants: dict[str, Tenant] = {}
    mistakes.extend(_only(document, _KEYS_KEYS))
    if document.data.get("keys") != {}:
        mistakes.extend(_section(document, "keys", Key, shapes.key, keys))
    if "tenants" in document.data:
        mistakes.extend(_section(document, "tenants", Tenant, shapes.tenant, tenants))
    for section, held in (("keys", keys), ("tenants", tenants)):
        for name, allowed in held.items():
            mistakes.extend(checks.check_allowance(document, (section, name), allowed))
    groups = documents.get(GROUPS)
    policies = [one for name, one in documents.items() if name not in (GROUPS, SCORERS, KEYS)]
    names = references.known(groups, None, (), has_scorers=False)
    mistakes.extend(references.check_keys(document, names, policies, whole=whole))
    warnings.extend(references.unheld_tenants(document))
    return Access(keys=keys, tenants=tenants)


def _section(
    document: Document,
    key: str,
    kind: type[Written],
    shape: Callable[[Document, str], Shaped],
    into: dict[str, Written],
) -> Iterator[Mistake]:
    """Reads a mapping of names; those that are free of mistakes go `into` it."""
    if key not in document.data:
        yield document.mistake((key,), f"the key '{key}' is missing; add it")
    elif not mapping(document.data[key]):
        yield document.mistake((key,), "must be a mapping of names, with at least one")
    for name in mapping(document.data.get(key)) or {}:
        value, wrong = parse(kind, shape(document, name), document)
        yield from wrong
        if value is not None:
            into[name] = value


def _version(document: Document) -> Iterator[Mistake]:
    if "version" not in document.data:
        yield document.mistake(("version",), f"the key 'version' is missing; add version: {VERSION}")
    elif document.data["version"] is True or document.data["version"] != VERSION:
        yield document.mistake(("version",), f"must be {VERSION}, the only version there is")


def _only(document: Document, keys: Sequence[str]) -> Iterator[Mistake]:
    for key in document.data:
        if key not in keys:
            yield document.mistake((key,), f"unknown key '{key}'{suggestion(key, keys)}", at_key=True)
