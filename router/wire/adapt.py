"""Chat bodies for servers that take less than OpenAI's API does, as the deployment's `adapt` says.

Only for what a server would refuse or misread; fields that it does not know are removed by `set: {field: null}`.
"""

from __future__ import annotations

from typing import Any

from msgspec import Raw
from msgspec.json import Decoder, decode

from router.config import AS_IT_IS, Adapt
from router.wire import body as wire_body
from router.wire.loose import count

_FIELDS: Decoder[dict[str, Raw]] = Decoder(dict[str, Raw])
_EACH = Decoder(list[Raw])
_LIMITS = ("max_tokens", "max_completion_tokens")


def adapted(body: bytes, adapt: Adapt) -> bytes:
    """A chat body as `adapt` wants it; the bytes of messages and fields that need no change stay."""
    if adapt is AS_IT_IS or adapt == AS_IT_IS:
        return body
    fields = wire_body.read(_FIELDS, body)
    edits = [
        (wire_body.locate(body, raw), new)
        for raw in _EACH.decode(fields["messages"])
        if (new := _message(raw, adapt)) != bytes(raw)
    ]
    body = wire_body.replace(body, edits)
    if adapt.max_tokens == "keep":
        return body
    limits = [n for name in _LIMITS if name in fields and (n := count(decode(fields[name]))) is not None]
    if not limits:
        return body
    other = _LIMITS[1 - _LIMITS.index(adapt.max_tokens)]
    return wire_body.set_fields(body, {adapt.max_tokens: min(limits), other: None})


def _message(raw: Raw, adapt: Adapt) -> bytes:
    message: Any = decode(raw)
    change: dict[str, Any] = {}
    if adapt.developer == "system" and message.get("role") == "developer":
        change["role"] = "system"
    if message.get("role") == "assistant":
        if adapt.reasoning == "strip":
            change |= {"reasoning_content": None, "reasoning": None}
        elif adapt.reasoning == "empty" and message.get("tool_calls") and not message.get("reasoning_content"):
            change["reasoning_content"] = ""
    return wire_body.set_fields(bytes(raw), change)
