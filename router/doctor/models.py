"""Whether what the files name is there: each deployment's server, key and model, each group's means to serve, each
scorer. Lists are asked for, and scorers one question; no answer is generated.
"""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
from collections.abc import Iterable, Mapping
from email.utils import parsedate_to_datetime
from time import perf_counter, time
from urllib.parse import urlsplit

import httpx

from router import scorers
from router.config import Config, Deployment, ScorerSpec
from router.doctor.finding import Finding, fail, ok, warn
from router.errors import CannotStart, ConfigError
from router.starter.asked import Asked
from router.types import Abstain, Prompt, Signals
from router.upstreams.local import weights
from router.wire.loose import mapping, objects, text

ASKED_S = 8.0
SKEW_S = 60.0
_TAKES_ANY_NAME = ("llamacpp",)  # it serves what it has loaded, whatever it is asked for
_PROXIES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")


async def deployments(client: httpx.AsyncClient, config: Config, environ: Mapping[str, str]) -> list[Finding]:
    """A line for each deployment, one for each group that cannot serve, and what their answers say of the clock."""
    used = list(config.deployments.values())
    skews: list[float] = []
    findings = await asyncio.gather(*(_deployment(client, one, skews) for one in used))
    down = {one.name for one, finding in zip(used, findings, strict=True) if finding.level == "fail"}
    told = [_spared(one, finding, config, down) for one, finding in zip(used, findings, strict=True)]
    for group in config.groups.values():
        if set(group.deployments) <= down:
            told.append(fail(f"group {group.name}", "none of its deployments can serve", "mend one of those above"))
    return [*told, *_clock(skews), *_proxy(used, environ, down)]


def _spared(deployment: Deployment, finding: Finding, config: Config, down: set[str]) -> Finding:
    """A deployment that is down is a warning where its groups have others that serve, or where no group uses it."""
    groups = [group for group in config.groups.values() if deployment.name in group.deployments]
    if finding.level != "fail" or any(set(group.deployments) <= down for group in groups):
        return finding
    names = ", ".join(group.name for group in groups)
    rest = f"; {names} is served by others" if groups else "; no group uses it"
    return warn(finding.about, finding.found + rest, finding.todo)


async def _deployment(client: httpx.AsyncClient, deployment: Deployment, skews: list[float]) -> Finding:
    about = f"deployment {deployment.name}"
    if deployment.upstream == "local":
        return await asyncio.to_thread(_local, about, deployment)
    if deployment.upstream == "litellm":
        if importlib.util.find_spec("litellm") is None:
            return fail(about, "litellm is not installed", "pip install 'pointsman[litellm]'")
        return ok(about, f"litellm is there; {deployment.model} itself is not asked")
    if deployment.upstream == "scripted":
        return warn(about, "is scripted: for tests, not for serving", "give it an upstream that serves a model")
    return await _served(client, about, deployment, skews)


def _local(about: str, deployment: Deployment) -> Finding:
    try:
        weights.require("xllamacpp")
        if not deployment.path:
            weights.require(weights.PACKAGE)
            return ok(about, "the shipped model is installed")
    except CannotStart as error:
        return fail(about, error.message.partition("; ")[0], weights.INSTALL)
    return ok(about, f"{deployment.path} is read at the start")  # whether it is there, the files' review has told


async def _served(client: httpx.AsyncClient, about: str, deployment: Deployment, skews: list[float]) -> Finding:
    host = urlsplit(deployment.base_url).netloc
    asked = Asked(client, deployment.base_url.rstrip("/"), "", ASKED_S)
    answer = await asked.get("/models", _headers(deployment))
    if answer is None:
        return fail(about, f"{host} {asked.wrong}", "start the server, or correct base_url in groups.yaml")
    if date := answer.headers.get("date"):
        skews.append(_skew(date))
    if answer.status_code in (401, 403):
        return fail(about, f"{host} refuses the key with {answer.status_code}", _key_todo(deployment))
    if answer.status_code in (404, 405):
        return warn(about, f"{host} lists no models, so {deployment.model} cannot be looked for", "ask it something")
    if answer.status_code != 200:
        return fail(about, f"{host} answers with {answer.status_code}", "look into that server's log")
    try:
        listed = objects(mapping(answer.json()).get("data"))
    except ValueError:
        return fail(about, f"{host} answers with something else than JSON", "check base_url: it ends in /v1 mostly")
    if health := await _health(client, deployment):
        return fail(about, health, "look into that server's log, or correct health_url")
    return _listed(
        about, host, deployment, {text(one.get("id")) for one in listed}, text((listed or [{}])[0].get("owned_by"))
    )


def _listed(about: str, host: str, deployment: Deployment, names: set[str], owner: str) -> Finding:
    model = deployment.model
    known = names | {name.removesuffix(":latest") for name in names} | {name.removeprefix("models/") for name in names}
    if model in known or model.removesuffix(":latest") in known or owner in _TAKES_ANY_NAME:
        return ok(about, f"{host} serves {model}")
    some = ", ".join(sorted(names)[:4]) + (", ..." if len(names) > 4 else "")
    return fail(about, f"{host} does not serve {model}", f"correct `model` in groups.yaml; it serves {some or 'none'}")


def _headers(deployment: Deployment) -> dict[str, str]:
    if deployment.api_key in ("", "none"):
        return {}
    headers = {"authorization": f"Bearer {deployment.api_key}"}
    if deployment.dialects[:1] == ("messages",):
        host = urlsplit(deployment.base_url).hostname or ""
        own = {"x-api-key": deployment.api_key, "anthropic-version": "2023-06-01"}
        return own if host.endswith("anthropic.com") else headers | own
    return headers


def _key_todo(deployment: Deployment) -> str:
    if deployment.api_key in ("", "none"):
        return 'it wants a key: api_key: "${NAME}" in groups.yaml, and set that variable'
    return "check the variable that api_key names in groups.yaml"


async def _health(client: httpx.AsyncClient, deployment: Deployment) -> str:
    """What is wrong with a deployment's health, in words; empty where nothing is, or nothing is asked."""
    if not deployment.health_url:
        return ""
    address = httpx.URL(deployment.base_url).join(deployment.health_url)
    asked = Asked(client, "", "", ASKED_S)
    answer = await asked.get(str(address))
    if answer is not None and answer.status_code == 200:
        return ""
    return f"{address} {asked.wrong or f'answers with {asked.status}'}"


def _skew(date: str) -> float:
    try:
        return parsedate_to_datetime(date).timestamp() - time()
    except ValueError:
        return 0.0


def _clock(skews: list[float]) -> list[Finding]:
    if not skews:
        return []
    middle = sorted(skews)[len(skews) // 2]
    if abs(middle) <= SKEW_S:
        return [ok("clock", "agrees with the servers that were asked")]
    apart = f"differs by {abs(middle):.0f} s from that of the servers that were asked"
    return [warn("clock", apart, "set it (timedatectl set-ntp true): keys expire and budgets turn by it")]


def _proxy(used: Iterable[Deployment], environ: Mapping[str, str], down: set[str]) -> list[Finding]:
    named = next((name for name in _PROXIES if environ.get(name)), None)
    away = [one for one in used if one.name in down and urlsplit(one.base_url).scheme == "https"]
    if named is None or not away:
        return []
    told = f"{named} is set, and deployments are called without a proxy"
    return [warn("proxy", told, f"let this machine reach {urlsplit(away[0].base_url).netloc} directly")]


# --- scorers ---------------------------------------------------------------------------------------------

_NEEDS_AN_ANSWER = ("cascade", "header")
_HEAVY = ("generative",)


async def scores(config: Config) -> list[Finding]:
    """A line for each scorer: one question to those that are light."""
    return [await _scorer(spec) for spec in config.scorers.values()]


async def _scorer(spec: ScorerSpec) -> Finding:
    about = f"scorer {spec.name}"
    if spec.kind in _HEAVY:
        return ok(about, f"{spec.kind}: what it needs is there; it is not loaded here")
    try:
        scorer = scorers.build(spec)
    except ConfigError as error:
        return fail(about, error.message, "correct it in scorers.yaml")
    try:
        if spec.kind in _NEEDS_AN_ANSWER:
            return ok(about, f"{spec.kind}: can be built")
        began = perf_counter()
        answer = scorer.score(Prompt(text="What is the capital of France?", signals=Signals()))
        said = await answer if inspect.isawaitable(answer) else answer
    except Exception as error:  # noqa: BLE001  the seam to scorers: in the service too they only abstain
        return fail(about, f"{spec.kind}: failed with {type(error).__name__}", "look at what scorers.yaml says of it")
    finally:
        await scorer.aclose()
    took = f"{(perf_counter() - began) * 1000:.0f} ms"
    if isinstance(said, Abstain):
        told = f"{spec.kind}: abstained ({said.reason}) after {took}; its routes go to the policy's default"
        return warn(
            about,
            told,
            "is its server up and quick enough for deadline_s?" if spec.kind == "remote" else "see docs/scorers.md",
        )
    return ok(about, f"{spec.kind}: answered in {took}")
