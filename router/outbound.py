"""A request on its way to one deployment: in which dialect, as which bytes, with which headers.

Made afresh for every attempt from what the client sent (L04), so that an attempt owes nothing to the one before.
Calling and reading the answer are the relay's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.json import decode

from router.config import AS_IT_IS, Deployment
from router.errors import BadRequest
from router.flight import Flight
from router.origins import told
from router.seams import Call
from router.types import Dialect, Request
from router.wire import CODECS
from router.wire import fields as rows
from router.wire.adapt import adapted
from router.wire.body import outgoing, outgoing_pieces, set_fields
from router.wire.loose import mapping
from router.wire.translate import SHAPES, Translation, translate

# Below base_url, which ends in /v1 for Anthropic's API too.
PATHS: dict[Dialect, str] = {
    "chat": "/chat/completions",
    "messages": "/messages",
    "responses": "/responses",
    "completions": "/completions",
    "embeddings": "/embeddings",
}
LARGE = 16 * 1024  # bytes of a body that is not copied: below that a copy costs less than its pieces do
ANTHROPIC_VERSION = "2023-06-01"  # the only one since 2023; Anthropic's API refuses a request without
# Headers that mean something to one family of APIs alone.
_OPENAI_ONLY = ("openai-beta",)
_ANTHROPIC_ONLY = ("anthropic-beta", "anthropic-version")


def spoken(deployment: Deployment, dialect: Dialect) -> Dialect:
    """The dialect in which a deployment is asked: the client's own where it is listed, else the first listed one
    that can be translated to. Raises BadRequest where there is none."""
    if dialect in deployment.dialects or dialect not in SHAPES:
        return dialect
    for listed in deployment.dialects:
        if listed in SHAPES:
            return listed
    raise BadRequest(f"the model is not served for the {dialect} API", param="model")


def outbound(deployment: Deployment, flight: Flight) -> tuple[Call, Translation | None]:
    """The call, and the translation that its answer needs on the way back; None where both sides speak alike.

    Raises BadRequest where the request cannot be told in a dialect that the deployment speaks.
    """
    request = flight.request if flight.carried is None else told(flight, deployment)
    asked = request.dialect
    dialect = asked if asked in deployment.dialects else spoken(deployment, asked)
    fields = flight.fields(deployment)
    translation: Translation | None = None
    if fields and dialect in SHAPES:
        if (dialect, asked) != ("chat", "chat"):
            request, fields, flight.unset = placed(request, dialect, fields)
        if fields and dialect == "chat":
            fields = _one_limit(fields)
    if flight.listen is not None and deployment.logprobs and dialect == "chat":
        fields = {**fields, "logprobs": True}
    pieces: Sequence[bytes | memoryview] = ()
    if dialect != asked:
        translation = translate(request, dialect, deployment.model, set_fields=fields, adapt=deployment.adapt)
        body = translation.body
    elif len(request.body) > LARGE and not fields and _in_pieces(request, deployment):
        body, pieces = b"", outgoing_pieces(request, deployment.model, deployment.stream_usage)
    else:
        body = outgoing(request, deployment.model, deployment.stream_usage and request.stream, fields)
        if deployment.adapt is not AS_IT_IS and dialect == "chat":
            body = adapted(body, deployment.adapt)
    headers = flight.forwarded
    if headers or dialect == "messages":
        headers = headers_for(dialect, headers)
    return Call(PATHS[dialect], body, headers, request.stream, pieces), translation


def _in_pieces(request: Request, deployment: Deployment) -> bool:
    """Whether nothing changes in the body but what is replaced in place, and it is sent as bytes."""
    if deployment.upstream != "openai" or request.foreign_thoughts:
        return False
    return deployment.adapt is AS_IT_IS or deployment.adapt == AS_IT_IS


# A policy names a field once, for clients and deployments of every dialect: what OpenAI's chat API calls it has these
# places where neither side knows the name.
_PLACES: Mapping[tuple[str, Dialect], tuple[str, str]] = {
    ("reasoning_effort", "messages"): ("output_config", "effort"),
    ("reasoning_effort", "responses"): ("reasoning", "effort"),
    ("max_tokens", "responses"): ("max_output_tokens", ""),
    ("max_completion_tokens", "responses"): ("max_output_tokens", ""),
    ("max_completion_tokens", "messages"): ("max_tokens", ""),
    ("stop", "messages"): ("stop_sequences", ""),
    ("verbosity", "responses"): ("text", "verbosity"),
}


# Servers differ in which of the two they heed: a limit that the policy sets holds whichever name the client wrote.
_LIMITS = (("max_tokens", "max_completion_tokens"), ("max_completion_tokens", "max_tokens"))


def _one_limit(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    for name, other in _LIMITS:
        if fields.get(name) is not None and other not in fields:
            return {**fields, other: None}
    return fields


def placed(
    request: Request, dialect: Dialect, fields: Mapping[str, Any]
) -> tuple[Request, Mapping[str, Any], tuple[str, ...]]:
    """Where the fields go that policy and deployment set: into the client's body where the client's API has them and
    the target's has not, else into the target's. Those that neither can be told are returned last.

    Fields that no API publishes are a server's own, and go out as they are.
    """
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}
    lost: list[str] = []
    for name, value in fields.items():
        place = _PLACES.get((name, request.dialect))
        if name in _PUBLISHED[dialect] or not any(name in known for known in _PUBLISHED.values()):
            after[name] = value
        elif name in _PUBLISHED[request.dialect]:
            before[name] = value
        elif place is None:
            lost.append(name)
        elif (name, request.dialect, value) == ("reasoning_effort", "messages", "none"):
            before["thinking"] = {"type": "disabled"}  # Anthropic's API has no such effort
        elif place[1]:
            held = before.get(place[0]) or mapping(decode(request.body)).get(place[0])
            least = (name, request.dialect, value) == ("reasoning_effort", "messages", "minimal")
            before[place[0]] = {**mapping(held), place[1]: "low" if least else value}
        else:
            before[place[0]] = value
    if before:
        request = CODECS[request.dialect].decode(set_fields(request.body, before))
    return request, after, tuple(lost)


_PUBLISHED: Mapping[Dialect, frozenset[str]] = {
    dialect: frozenset(row.field(dialect) for row in rows.ROWS) - {""} for dialect in rows.DIALECTS
}


def headers_for(dialect: Dialect, forwarded: Mapping[str, str]) -> Mapping[str, str]:
    """The client's headers that an upstream of this dialect understands."""
    if dialect != "messages":
        return {name: value for name, value in forwarded.items() if name not in _ANTHROPIC_ONLY}
    kept = {name: value for name, value in forwarded.items() if name not in _OPENAI_ONLY}
    return kept if "anthropic-version" in kept else {**kept, "anthropic-version": ANTHROPIC_VERSION}
