"""What a client may ask before it asks for an answer: which models there are, and where a request would go."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from time import perf_counter
from typing import Annotated, Any, Literal

import msgspec

from router import explain, scorers
from router.config import Config
from router.errors import BadRequest, NotFound, Overloaded
from router.flight import Flight, Snapshot
from router.keys import Grant
from router.policy import visible_models
from router.records import Feedback, SqlRecorder
from router.service import Service, draw_of
from router.types import Caller, Dialect, Prompt, Record, Score
from router.wire import CODECS


def listing(config: Config, since: float, grant: Grant | None = None) -> dict[str, Any]:
    """Every model to be asked for, in a shape that OpenAI's and Anthropic's SDKs read. `since` is Unix seconds."""
    names = _visible(config, grant)
    return {
        "object": "list",
        "data": [_entry(name, since) for name in names],
        "has_more": False,
        "first_id": names[0] if names else None,
        "last_id": names[-1] if names else None,
    }


def _visible(config: Config, grant: Grant | None) -> tuple[str, ...]:
    return tuple(name for name in visible_models(config) if grant is None or grant.permits(name))


def entry(config: Config, name: str, since: float, grant: Grant | None = None) -> dict[str, Any]:
    """One visible model. Raises NotFound for every other name, deployments that may not be named included."""
    if name not in _visible(config, grant):
        raise NotFound(f"the model {name[:100]!r} does not exist; GET /v1/models lists those that do")
    return _entry(name, since)


def _entry(name: str, since: float) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": int(since),
        "owned_by": "pointsman",
        "type": "model",
        "display_name": name,
        "created_at": datetime.fromtimestamp(int(since), UTC).isoformat().replace("+00:00", "Z"),
    }


class _Shape(msgspec.Struct):
    """What tells the dialects' bodies apart."""

    messages: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    prompt: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    input: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    system: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    stop_sequences: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    thinking: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


def dialect_of(body: bytes, named: str | None, headers: Mapping[str, str]) -> Dialect:
    """The dialect of a body: `named`, else as its shape tells. Raises BadRequest for a name that is none."""
    if named is not None:
        for dialect in CODECS:
            if dialect == named:
                return dialect
        raise BadRequest(f"dialect is one of {', '.join(CODECS)}", param="dialect")
    try:
        shape = msgspec.json.decode(body, type=_Shape)
    except (msgspec.MsgspecError, RecursionError):
        return "chat"  # whose codec says what is wrong
    if shape.messages is msgspec.UNSET:
        if shape.input is not msgspec.UNSET:
            return "responses"
        return "chat" if shape.prompt is msgspec.UNSET else "completions"
    own = (shape.system, shape.stop_sequences, shape.thinking)
    anthropic = "anthropic-version" in headers or any(field is not msgspec.UNSET for field in own)
    return "messages" if anthropic else "chat"


async def decision(
    service: Service,
    dialect: Dialect,
    body: bytes,
    caller: Caller,
    *,
    as_text: bool = False,
    snapshot: Snapshot | None = None,
) -> dict[str, Any] | str:
    """Where a request would go, and why, or that in words; no upstream is called, nothing is pinned or recorded.

    `snapshot`: decide by this one, in place of the one in force."""
    flight = Flight(caller, snapshot or service.snapshot, perf_counter(), draw_of(caller.id))
    flight.request = await service.read(CODECS[dialect], body)
    found = await service.decide(flight)
    config = flight.snapshot.config
    if flight.signals is None or flight.load is None:
        raise RuntimeError("a decided flight has signals and a load")
    features = await asyncio.to_thread(_features, flight, Prompt(text=flight.text, signals=flight.signals))
    told = explain.explain(
        config,
        flight.policy,
        flight.signals,
        flight.scores,
        flight.session,
        flight.load,
        flight.draw,
        features=features,
    )
    if as_text:
        return explain.render(told) + "\n"
    return {
        "policy": f"{found.policy}@{config.digest[:12]}",
        "route": found.route,
        "group": found.group,
        "deployment": flight.plan.targets[0].deployment if flight.plan.targets else None,
        "score": found.score,
        "threshold": found.threshold,
        "why": found.why,
        "then": found.then,
        "explanation": explain.plain(told),
    }


def _features(flight: Flight, prompt: Prompt) -> dict[str, dict[str, float]]:
    made = flight.snapshot.scorers
    given = [name for name, one in flight.scores.items() if isinstance(one, Score) and name in made]
    return {name: dict(scorers.top_features(made[name], prompt)) for name in given}


class _Opinion(msgspec.Struct, frozen=True):
    request_id: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    score: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    thumbs: Literal["up", "down"] | None = None
    resolved: bool | None = None
    label: Annotated[str, msgspec.Meta(max_length=200)] | None = None


_FEEDBACK = 'feedback is {request_id, label?} with one of score (0 to 1), thumbs ("up" or "down") and resolved'


def opinion(body: bytes, now: float, tenant: str = "") -> Feedback:
    """The feedback in a body, given at `now` in Unix seconds. Raises BadRequest."""
    try:
        said = msgspec.json.decode(body, type=_Opinion)
    except msgspec.MsgspecError as error:
        raise BadRequest(f"{_FEEDBACK}: {error}") from None
    given = {
        "score": said.score,
        "thumbs": None if said.thumbs is None else float(said.thumbs == "up"),
        "resolved": None if said.resolved is None else float(said.resolved),
    }
    scores = [(name, value) for name, value in given.items() if value is not None]
    if len(scores) != 1:
        raise BadRequest(_FEEDBACK)
    ((name, score),) = scores
    label = said.label if said.label is not None or name == "score" else f"{name}: {'yes' if score else 'no'}"
    return Feedback(request_id=said.request_id, tenant=tenant, time=now, score=score, label=label)


async def judged(service: Service, recorder: SqlRecorder, said: Feedback, *, keyed: bool) -> None:
    """Keep feedback and count it. `keyed`: a tenant may judge its own requests alone. Raises NotFound."""
    try:
        of = await asyncio.to_thread(_record, recorder, said.request_id)
    except Overloaded:
        if keyed:
            raise
        of = None
    if keyed and (of is None or of.signals is None or of.signals.tenant != said.tenant):
        raise NotFound("no request of yours has that id, or its record is gone")
    recorder.feedback(said)
    service.trials.opinion(said.request_id, said.score)
    if of is not None:
        service.judging.opinion(said, of)


def _record(recorder: SqlRecorder, request_id: str) -> Record | None:
    """The record of a request, also of one that is about to be written."""
    found = recorder.reader.get(request_id)
    if found is None and recorder.flush(_WRITTEN_S):
        found = recorder.reader.get(request_id)
    return found


_WRITTEN_S = 2.0  # for records that wait to be written
