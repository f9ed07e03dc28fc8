"""`pointsman explain`: the decision for one request or one record, made as production makes it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from time import localtime
from typing import Any, BinaryIO

import click
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from router import explain, policy, record, scorers, signals
from router.config import Config
from router.decide import decide
from router.errors import BadRequest, ConfigError, UnknownModel
from router.keys import Grant, Ring, permit
from router.policy_files.review import load
from router.seams import Scorer
from router.types import Abstain, Caller, Checked, Decision, Load, NeedScore, Prompt, Record, Score, Session, Signals
from router.wire import CODECS


class Question(Struct, frozen=True, kw_only=True):
    """What there is to decide on: from a request, or as a record remembers it."""

    chosen: policy.Selection
    signals: Signals
    scores: Mapping[str, Score | Abstain]
    session: Session | None = None
    load: Load = Load()
    draw: float | None = None
    features: Mapping[str, Mapping[str, float]] = {}
    recorded: Decision | None = None
    checked: Checked | None = None
    quotas: Mapping[str, Mapping[str, int]] | None = None  # whose -> group -> requests a day; None = nobody was named


@click.command()
@click.argument("request_file", metavar="REQUEST.json", type=click.File("rb"))
@click.option(
    "--config", type=click.Path(path_type=Path), default=Path("policies"), show_default=True, help="The files."
)
@click.option("--header", "headers", multiple=True, metavar="NAME:VALUE", help="A request header; may be repeated.")
@click.option("--key", metavar="NAME", help="The key of keys.yaml that asks, by its name.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(request_file: BinaryIO, config: Path, headers: tuple[str, ...], key: str | None, as_json: bool) -> None:
    """Show where a request would go, and why. No upstream is called.

    REQUEST.json is the body of a chat request, or one exported record: that is decided again from its own signals,
    scores, pin and load. - reads standard input.
    """
    content = request_file.read()
    try:
        found = load(config)
    except ConfigError as error:
        click.echo(error.message, err=True)
        raise SystemExit(2) from None
    try:
        past = _past(content)
        question = (
            _of_record(found, past)
            if past is not None
            else asyncio.run(_of_body(found, content, _headers(headers), key))
        )
        lines = [] if past is not None else list(_told_of_quotas(found, question))
    except UnknownModel as error:
        there = f"{config} has {', '.join(sorted({*found.models, *found.groups}))}" if key is None else f"not for {key}"
        click.echo(f"{request_file.name}: {error.message.partition(';')[0]}; {there}", err=True)
        raise SystemExit(2) from None
    except BadRequest as error:
        click.echo(f"{request_file.name}: {error.message}", err=True)
        raise SystemExit(2) from None
    except ConfigError as error:
        click.echo(error.message, err=True)
        raise SystemExit(2) from None
    told = explain.explain(
        found,
        question.chosen,
        question.signals,
        question.scores,
        question.session,
        question.load,
        question.draw,
        question.checked,
        question.features,
    )
    click.echo(_json(told, question) if as_json else "\n".join([_text(told, question), *lines]))


def _past(content: bytes) -> Record | None:
    """The record in a file, or None where it holds no record. Raises BadRequest where it is a broken one."""
    try:
        value: object = msgspec.json.decode(content)
        if not isinstance(value, dict) or not {"signals", "decision", "digest"} <= set(value):  # pyright: ignore[reportUnknownArgumentType]
            return None
        return record.decode(content)
    except msgspec.ValidationError as error:
        raise BadRequest(f"this is not a record as `pointsman records export` writes it: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None  # the codec says what is wrong with a body that is not JSON


def _of_record(config: Config, past: Record) -> Question:
    if past.signals is None:
        raise BadRequest(
            "this record has no signals: its request was refused before it was decided, so there is nothing to explain"
        )
    chosen = config.policies.get(past.policy) or policy.select(config, past.model)
    return Question(
        chosen=chosen,
        signals=past.signals,
        scores=past.scores,
        session=past.pinned,
        load=past.load or Load(),
        draw=past.draw,
        recorded=past.decision,
        checked=past.checked,
    )


async def _of_body(config: Config, body: bytes, headers: Mapping[str, str], key: str | None) -> Question:
    """Asks the real scorers, as the service does."""
    request = CODECS["chat"].decode(body)
    caller, grant = Caller(id="explain", headers=headers), None
    if key is not None:
        access = config.access
        if access is None or key not in access.keys:
            raise click.BadParameter(
                f"there is no {key!r} in keys.yaml; `pointsman keys list` has names", param_hint="--key"
            )
        caller = replace(caller, key=key, tenant=access.keys[key].tenant)
        grant = Ring(access, config).of(caller)
        permit(grant, request.model)
    chosen = policy.select(config, request.model)
    text = signals.user_text(request)
    now = localtime()
    given = signals.extract(
        request,
        caller,
        text=text,
        named_headers=policy.named_headers(config),
        hour=now.tm_hour,
        weekday=now.tm_wday,
    )
    scores: dict[str, Score | Abstain] = {}
    features: dict[str, Mapping[str, float]] = {}
    prompt = Prompt(text=text, signals=given)
    while isinstance(step := decide(chosen, given, scores, None, Load()), NeedScore):
        scorer = scorers.build(config.scorers[step.scorer])
        scores[step.scorer] = await _score(scorer, prompt)
        if isinstance(scores[step.scorer], Score):
            features[step.scorer] = dict(scorers.top_features(scorer, prompt))
        await scorer.aclose()
    quotas = None if grant is None else _quotas(grant)
    return Question(chosen=chosen, signals=given, scores=scores, features=features, quotas=quotas)


def _quotas(grant: Grant) -> dict[str, Mapping[str, int]]:
    both = {f"key {grant.key.name}": grant.key.quota}
    if grant.tenant is not None:
        both[f"tenant {grant.tenant.name}"] = grant.tenant.quota
    return {whose: quota for whose, quota in both.items() if quota}


def _told_of_quotas(config: Config, question: Question) -> Iterator[str]:
    """What a quota may change. How much of one is used is counted where requests are served."""
    access = config.access
    if question.quotas is None:
        if access is not None and any(one.quota for one in (*access.keys.values(), *access.tenants.values())):
            yield "quota     not looked at: --key NAME says who asks"
        return
    for whose, quota in question.quotas.items():
        for group, most in quota.items():
            yield f"quota     {whose}: {most} requests a day of group {group}; what is left of them, a gateway knows"
    if question.quotas:
        yield "          (POST /v1/decision with the key: a group whose quota is used up is passed over)"


async def _score(scorer: Scorer, prompt: Prompt) -> Score | Abstain:
    """One scorer's answer; one that breaks abstains, as it does in the service."""
    try:
        answer = scorer.score(prompt)
        return await answer if inspect.isawaitable(answer) else answer
    except Exception as error:  # noqa: BLE001 - the seam to scorers
        click.echo(f"the scorer {scorer.name} failed: {type(error).__name__}: {error}", err=True)
        return Abstain(scorer=scorer.name, reason="error")


def _headers(given: tuple[str, ...]) -> dict[str, str]:
    pairs = [one.partition(":") for one in given]
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def _text(told: explain.Explanation, question: Question) -> str:
    lines = [explain.render(told)]
    recorded = question.recorded
    if recorded is not None:
        lines.append(f"recorded  route {recorded.route}, group {recorded.group}: {_compared(recorded, told.decision)}")
    return "\n".join(lines)


def _compared(recorded: Decision, made: Decision | None) -> str:
    if made == recorded:
        return "the same decision"
    if made is None:
        return "not decided here without a score"
    old, new = msgspec.structs.asdict(recorded), msgspec.structs.asdict(made)
    shown = ("route", "group", "threshold", "why")
    differ = ", ".join(f"{name} {old[name]} -> {new[name]}" for name in shown if old[name] != new[name])
    same = "the same group, decided otherwise" if made.group == recorded.group else "another decision"
    return f"{same} ({differ})" if differ else same


def _json(told: explain.Explanation, question: Question) -> str:
    shown: dict[str, Any] = explain.plain(told)
    if question.quotas is not None:
        shown["quotas"] = question.quotas
    if question.recorded is not None:
        shown["recorded"] = msgspec.to_builtins(msgspec.structs.asdict(question.recorded))
        shown["same"] = told.decision == question.recorded
    return msgspec.json.format(msgspec.json.encode(shown), indent=2).decode()
