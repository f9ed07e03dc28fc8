"""Which deployment made the state that a request carries, so that the request goes back to it (R05, T08).

An answer can leave three kinds of state with its client: its id, where the server keeps the answer
(`previous_response_id`); encrypted reasoning; signed thoughts. Only their maker can read them. What each answer
left is noted in the store by a digest, beside the pins of conversations and as long as `TTL_S`. Whether the state
binds a decision is `decide`'s question.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

from msgspec import DecodeError, Raw, Struct
from msgspec.json import Decoder, decode, encode
from msgspec.structs import replace

from router.config import Config, Deployment
from router.errors import Overloaded, StateGone
from router.flight import Carried, Flight
from router.seams import Store
from router.turns import aside
from router.types import Caller, Dialect, Request, Session
from router.wire import CODECS, provenance
from router.wire import body as wire_body
from router.wire.loose import mapping, objects, text
from router.wire.responses import ResponsesMeter

TTL_S = 24 * 3600.0
_NEWEST = 8  # tokens looked up before a conversation counts as unknown
_MOST = 256  # tokens looked up where a conversation moved between deployments
_STRING = rb'"([^"\\]{16,}(?:\\.[^"\\]*)*)"'
_TOKENS: Mapping[Dialect, re.Pattern[bytes]] = {
    "messages": re.compile(rb'"signature"\s*:\s*' + _STRING),
    "responses": re.compile(rb'"encrypted_content"\s*:\s*' + _STRING),
}
STATEFUL = frozenset(_TOKENS)
_EACH = Decoder(list[Raw])


class _Top(Struct, gc=False):
    messages: Raw = Raw()
    input: Raw = Raw()


class _Id(Struct, gc=False):
    id: str = ""


_TOP = Decoder(_Top)
_ID = Decoder(_Id)


def tokens(dialect: Dialect, data: bytes) -> list[str]:
    """Signatures and encrypted reasoning in a body, an answer or whole events, oldest first, without repetition."""
    found = [match.group(1) for match in _TOKENS[dialect].finditer(data)]
    return list(dict.fromkeys([_plain(dialect, token) for token in found])) if found else []


def carried(request: Request) -> list[str]:
    """The tokens of a request's body. What an earlier request of the conversation was searched for is not again."""
    dialect, noted, body = request.dialect, request.noted, request.body
    if noted is None:
        return tokens(dialect, body)
    known, (start, end) = (noted.tokens, noted.unread) if noted.tokens is not None else ([], (0, len(body)))
    if start < end or noted.tokens is None:
        found = [(one.end(), _plain(dialect, one[1])) for one in _TOKENS[dialect].finditer(body, start, end)]
        noted.tokens = known = sorted([*known, *found]) if found else known
        noted.unread = (0, 0)
    return list(dict.fromkeys([token for _, token in known])) if known else []


def _plain(dialect: Dialect, token: bytes) -> str:
    """The token as its maker wrote it, whatever dialect it has crossed (`wire.provenance`)."""
    if b"\\" in token:
        try:
            said = decode(b'"' + token + b'"', type=str)
        except DecodeError:
            said = ""
    else:
        said = token.decode("utf-8", "replace")
    thought = provenance.unsealed("", said) if dialect == "messages" else provenance.decrypted("", said, "")
    return thought.signature


def _answer_id(answer: bytes) -> str:
    """The id of a Responses answer, or ""."""
    try:
        return _ID.decode(answer).id
    except (DecodeError, RecursionError):
        return ""


# --- asking ----------------------------------------------------------------------------------------------


async def session(store: Store, flight: Flight) -> Session | None:
    """The session that a state-bearing request is decided by, or None; sets `flight.carried`.

    Raises StateGone where the request continues an answer whose maker is not known, or no longer there.
    """
    request, caller, config = flight.request, flight.caller, flight.snapshot.config
    if len(config.deployments) == 1:
        return None
    try:
        if request.previous is not None:
            return await _keeper(store, request.previous, caller, config)
        return await _maker(store, flight)
    except ConnectionError:  # the store counts its own failures
        if request.previous is None:
            return None
        raise Overloaded(
            "who keeps the answer that this continues cannot be looked up now", retry_after_s=1.0
        ) from None


async def _maker(store: Store, flight: Flight) -> Session | None:
    request, caller = flight.request, flight.caller
    held = await aside(len(request.body), carried, request)
    if not held:
        return None
    made = await store.session(*[_key(caller, token) for token in held[: -_NEWEST - 1 : -1]])
    if made is None:
        return None
    makers = await _makers(store, caller, held) if made.mixed else {}
    flight.carried = Carried(tokens=tuple(held), maker=made.deployment or "", makers=makers)
    holds = "reasoning" if request.dialect == "responses" else "thoughts"
    known = made.deployment in flight.snapshot.config.deployments
    return replace(made, holds=holds) if known else None


async def _keeper(store: Store, previous: str, caller: Caller, config: Config) -> Session | None:
    made = await store.session(_key(caller, previous))
    able = [name for name, deployment in config.deployments.items() if "responses" in deployment.dialects]
    if made is None and len(able) == 1:  # nobody else can have made it
        made = Session(id="", deployment=able[0])
    elif made is None and not able:
        return None  # translation says that it cannot be told
    home = None if made is None else _home(made, config)
    if made is None or made.deployment not in able or home is None:
        known = "is not known here" if made is None else "was made by a deployment that is gone"
        raise StateGone(f"the answer or conversation that this request continues {known}", param="previous_response_id")
    return replace(made, group=home, holds="answer")


def _home(made: Session, config: Config) -> str | None:
    """A group of the deployment: the one that it served in, where that is still so."""
    homes = [group.name for group in config.groups.values() if made.deployment in group.deployments]
    return made.group if made.group in homes else next(iter(homes), None)


async def _makers(store: Store, caller: Caller, carried: Sequence[str]) -> dict[str, str]:
    newest = carried[-_MOST:]
    made = await store.sessions(*[_key(caller, token) for token in newest])
    pairs = zip(newest, made, strict=True)
    return {token: one.deployment for token, one in pairs if one is not None and one.deployment is not None}


def _key(caller: Caller, token: str) -> str:
    """Nobody continues what another tenant's or key's answers left."""
    parts = ("state", caller.tenant, caller.key, token)
    return blake2b("\x00".join(parts).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


# --- noting ----------------------------------------------------------------------------------------------


def see(flight: Flight, data: bytes, *, whole: bool = False) -> None:
    """Look at what goes to the client: whole events, or a `whole` answer."""
    dialect = flight.request.dialect
    flight.made += tokens(dialect, data)
    if whole and flight.alike and dialect == "responses":
        flight.made.append(_answer_id(data))


def note(store: Store, flight: Flight) -> None:
    """Remember who made the state that the answer left."""
    target, config = flight.target, flight.snapshot.config
    if target is None or len(config.deployments) == 1:
        return
    route = flight.decision.route if flight.decision is not None else None
    mixed = flight.carried is not None and (flight.left_out or bool(flight.carried.makers))
    left = [*flight.made, flight.request.previous or ""]
    if flight.alike and isinstance(flight.meter, ResponsesMeter):
        left.append(flight.meter.answer_id)
    for token in dict.fromkeys(token for token in left if token):
        key = _key(flight.caller, token)
        made = Session(id=key, group=target.group, deployment=target.deployment, route=route, mixed=mixed)
        store.touch(made, TTL_S)


# --- leaving out -----------------------------------------------------------------------------------------


def told(flight: Flight, deployment: Deployment) -> Request:
    """The request without the state that this deployment could not read; nearly always the request itself."""
    carried = flight.carried
    if carried is None:
        return flight.request
    config = flight.snapshot.config
    foreign = {
        token
        for token in carried.tokens
        if _foreign(carried.makers.get(token, carried.maker if not carried.makers else ""), deployment, config)
    }
    flight.left_out = bool(foreign)
    if not foreign:
        return flight.request
    request = flight.request
    return CODECS[request.dialect].decode(without(request.dialect, request.body, foreign))


def _foreign(maker: str, deployment: Deployment, config: Config) -> bool:
    """Anthropic's signatures hold for a model wherever it is served; encrypted reasoning for one account alone."""
    if not maker or maker == deployment.name:
        return False
    made = config.deployments.get(maker)
    if made is None:
        return True
    same = made.model == deployment.model and "messages" in made.dialects and "messages" in deployment.dialects
    return not (same and "responses" not in made.dialects)


def without(dialect: Dialect, body: bytes, foreign: set[str]) -> bytes:
    """The body without thoughts of these tokens; messages and items that hold none keep their bytes."""
    top = _TOP.decode(body)
    try:
        raws = _EACH.decode(top.messages if dialect == "messages" else top.input)
    except DecodeError:
        return body
    kept = [piece for raw in raws if (piece := _kept(dialect, raw, foreign))]
    if not raws:
        return body
    start, end = wire_body.locate(body, raws[0])[0], wire_body.locate(body, raws[-1])[1]
    return wire_body.replace(body, [((start, end), b",".join(kept))])


def _kept(dialect: Dialect, raw: Raw, foreign: set[str]) -> bytes:
    """One message or item, or b"" where nothing of it is left."""
    whole = bytes(raw)
    if not foreign.intersection(tokens(dialect, whole)):
        return whole
    said = mapping(decode(raw))
    if dialect == "responses":
        return b"" if said.get("type") == "reasoning" else whole
    blocks = [block for block in objects(said.get("content")) if not _thought(block, foreign)]
    return encode({**said, "content": blocks}) if blocks else b""


def _thought(block: dict[str, Any], foreign: set[str]) -> bool:
    if block.get("type") != "thinking":
        return False
    return provenance.unsealed("", text(block.get("signature"))).signature in foreign
