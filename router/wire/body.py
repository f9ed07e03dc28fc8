"""Request bodies as bytes: reading the top level once, finding the `model` value, changing fields in place.

What is said here holds for every dialect; what a dialect's messages mean is in its own module. Every mistake
in a body ends as `BadRequest`, whose sentence never quotes the body.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import numpy
from msgspec import DecodeError, MsgspecError, Raw, ValidationError
from msgspec.json import Decoder, decode, encode

from router.errors import BadRequest
from router.types import Request
from router.wire.loose import mapping, objects, text
from router.wire.pieces import check_utf8
from router.wire.provenance import foreign
from router.wire.values import MOST, too_many

T = TypeVar("T")
Span = tuple[int, int]  # byte offsets, end exclusive

_MISMATCH = re.compile(r"(Expected [^,]+?, got [^ ]+|[^-]+?) - at `\$\.?([^`]*)`")
_MALFORMED_AT = re.compile(r"\(byte (\d+)\)")
_FIELDS: Decoder[dict[str, Raw]] = Decoder(dict[str, Raw])
_EACH = Decoder(list[Raw])
_STRING = Decoder(str)
# Below this size, looking for a second "model" in the whole body costs less than locating its large fields.
SMALL = 4096
_KEYS = 64 * 1024  # bytes of all keys of a body; the longest body of a real client has 2 KB of them


def read(decoder: Decoder[T], body: bytes) -> T:
    """The top level of `body` as `decoder`'s struct. Raises `BadRequest`.

    msgspec skips what the struct does not name without checking its UTF-8, so that is checked here.
    """
    if too_many(body):
        raise BadRequest(f"the body has more than {MOST} values")
    if not body.isascii():
        try:
            check_utf8(body)
        except UnicodeDecodeError as error:
            raise BadRequest(f"the body is not valid UTF-8 (byte {error.start})") from None
        if body.startswith(b"\xef\xbb\xbf"):
            raise BadRequest("the body begins with a byte order mark; JSON must begin with the object")
    try:
        return decoder.decode(body)
    except ValidationError as error:
        raise _mismatch(error) from None
    except DecodeError as error:
        raise _malformed(body, error) from None
    except RecursionError:
        raise BadRequest("the body is nested too deeply") from None


def _mismatch(error: ValidationError) -> BadRequest:
    found = _MISMATCH.match(str(error))
    if found is None:
        return BadRequest("the body must be a JSON object")
    what, where = found.group(1).replace("`", ""), found.group(2)
    return BadRequest(f"`{where}` is not of the right type: {what[0].lower()}{what[1:]}", param=where or None)


def _malformed(body: bytes, error: MsgspecError) -> BadRequest:
    if not body.strip():
        return BadRequest("the body is empty; it must be a JSON object")
    place = _MALFORMED_AT.search(str(error))
    return BadRequest(f"the body is not valid JSON{f' (byte {place.group(1)})' if place else ''}")


def model(body: bytes, value: Raw, *bulk: Span | None) -> tuple[str, Span]:
    """The name in the top-level `model` and where its JSON value stands. Raises `BadRequest`.

    `value` is the Raw that `read` gave for `model`; `bulk` is where the large top-level fields stand, which need not be
    searched for a second `model` key.
    """
    text = bytes(value)
    if not text or text == b"null":
        raise BadRequest("the body has no `model`", param="model")
    if text[:1] != b'"':
        raise BadRequest("`model` must be a string", param="model")
    name = _STRING.decode(text)
    if not name.strip():
        raise BadRequest("`model` is empty", param="model")
    if len(body) <= SMALL and (span := only_model(body, text)) is not None:
        return name, span
    span = locate(body, value)
    _refuse_twice(body, [where for where in bulk if where is not None])
    return name, span


def only_model(body: bytes, value: bytes) -> Span | None:
    """Where the value of `model` stands, read as `value`; None where another key may mean the same or it is not clear.

    What is no key is found too, as somebody's words, and then it is not clear. Only an escape of the form `\\uXXXX` can
    spell the key otherwise. (`find` and not `in`, which begins by making an error that the text is no number.)
    """
    key = body.find(b'"model"')
    if body.find(b'"model"', key + 7) >= 0 or body.find(b"\\u") >= 0:
        return None
    start = body.find(b'"', key + 7)
    return (start, start + len(value)) if body.startswith(value, start) else None


def _refuse_twice(body: bytes, bulk: list[Span]) -> None:
    """Parsers differ in which of two equal keys they keep, so routing on one and serving the other is possible."""
    rest = replace(body, [(where, b"0") for where in bulk]) if bulk else body
    if rest.count(b'"model"') == 1 and rest.find(b"\\u") < 0:
        return
    # With the value of every key cut out, what is left is keys; a second value of a key is what is still there.
    keys = replace(body, [(locate(body, raw), b"0") for raw in read(_FIELDS, body).values()])
    try:
        pairs: list[tuple[str, Any]] = json.loads(keys, object_pairs_hook=_pairs) if len(keys) <= _KEYS else []
    except (ValueError, RecursionError):
        pairs = []
    if not pairs or len({key for key, _ in pairs}) < len(pairs):
        raise BadRequest("the body has a key twice, or too many keys; `model` must stand in it once", param="model")


def _pairs(pairs: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    return pairs


# --- where a value stands --------------------------------------------------------------------------------


def _address(buffer: bytes | Raw) -> int:
    at: int = numpy.frombuffer(buffer, numpy.uint8).__array_interface__["data"][0]  # pyright: ignore[reportArgumentType]
    return at


# Where CPython keeps the bytes of a bytes object, measured: it saves asking for the address of every body.
_HEADER = _address(b"x") - id(b"x")


def locate(body: bytes, value: Raw) -> Span:
    """Where a Raw decoded from `body` stands in it. A Raw is a view, so the difference of addresses says it."""
    at = _address(value)
    start = at - id(body) - _HEADER
    if not 0 <= start < len(body):
        start = at - _address(body)
    return start, start + len(memoryview(value))


def located(body: bytes, field: Raw | list[Raw] | None) -> Span | None:
    """Where a top-level field stands, or the elements of one that is an array; None where there is nothing of it."""
    if isinstance(field, list):
        return (locate(body, field[0])[0], locate(body, field[-1])[1]) if field else None
    return locate(body, field) if field is not None and len(memoryview(field)) else None


# --- changing it -----------------------------------------------------------------------------------------


def replace(body: bytes, edits: Iterable[tuple[Span, bytes]]) -> bytes:
    """`body` with each span replaced; spans must not overlap. All other bytes stay."""
    return b"".join(replaced(body, edits))


def replaced(body: bytes, edits: Iterable[tuple[Span, bytes]]) -> list[bytes | memoryview]:
    """The same in pieces, which are no copies."""
    whole = memoryview(body)  # slices of bytes would be copies
    parts: list[bytes | memoryview] = []
    at = 0
    for (start, end), new in sorted(edits):
        parts += (whole[at:start], new)
        at = end
    parts.append(whole[at:])
    return parts


def set_fields(body: bytes, fields: Mapping[str, Any]) -> bytes:
    """`body` with these top-level fields replaced, appended where absent, removed where None. Raises `BadRequest`."""
    if not fields:
        return body
    for key in [key for key, value in fields.items() if value is None]:
        body = _removed(body, key)
    wanted = {key: value for key, value in fields.items() if value is not None}
    present = read(_FIELDS, body)
    edits = [(locate(body, present[key]), encode(value)) for key, value in wanted.items() if key in present]
    added = {key: value for key, value in wanted.items() if key not in present}
    if added:
        edits.append(_appended(body, encode(added)[1:-1], empty=not present))
    return replace(body, edits)


_SPACE = b" \t\r\n"


def _removed(body: bytes, key: str) -> bytes:
    """`body` without a top-level member. Strict upstreams refuse fields that they do not know."""
    present = read(_FIELDS, body)
    if key not in present:
        return body
    start, end = locate(body, present[key])
    start = body.rindex(b'"', 0, len(body[:start].rstrip(_SPACE + b":")))  # the quote that ends the key
    while True:  # a quote inside a key follows a backslash, the one that opens it does not
        start = body.rindex(b'"', 0, start)
        if body[start - 1 : start] != b"\\":
            break
    before = body[:start].rstrip(_SPACE)
    if before.endswith(b","):
        return before[:-1] + body[end:]
    return body[:start] + body[end:].lstrip(_SPACE).removeprefix(b",")


def _appended(body: bytes, members: bytes, *, empty: bool = False) -> tuple[Span, bytes]:
    end = body.rindex(b"}")
    return (end, end), members if empty else b"," + members


_ASK_USAGE = b'{"include_usage":true}'


def with_usage(request: Request) -> tuple[Span, bytes] | None:
    """The edit of a chat or completions body that asks the upstream for usage in the stream, or None."""
    if not request.stream or request.include_usage:
        return None
    span = request.stream_options_span
    if span is None:
        return _appended(request.body, b'"stream_options":' + _ASK_USAGE)
    return span, encode({**mapping(decode(request.body[span[0] : span[1]])), "include_usage": True})


def outgoing(request: Request, model: str, usage: bool = False, fields: Mapping[str, Any] | None = None) -> bytes:
    """The body for an upstream of the same dialect: `model` ("" = as the client wrote it) and `fields` changed
    (None removes one), usage in the stream asked for when `usage`, every other byte as it came."""
    body = request.body
    asked = with_usage(request) if usage and request.dialect in ("chat", "completions") else None
    renamed = model and model != request.model
    if asked is not None:
        body = replace(body, [asked, (request.model_span, encode(model))] if renamed else [asked])
    elif renamed:
        start, end = request.model_span
        view = memoryview(body)  # slices of bytes would be copies
        body = b"".join((view[:start], encode(model), view[end:]))
    if request.foreign_thoughts:
        body = own_thoughts(body)
    return set_fields(body, fields) if fields else body


def outgoing_pieces(request: Request, model: str, usage: bool = False) -> list[bytes | memoryview]:
    """The same in pieces, of a request without foreign thoughts."""
    edits = [(request.model_span, encode(model))] if model and model != request.model else []
    if usage and request.dialect in ("chat", "completions") and (asked := with_usage(request)) is not None:
        edits.append(asked)
    return replaced(request.body, edits)


# --- thoughts that are not this API's --------------------------------------------------------------------


def own_thoughts(body: bytes) -> bytes:
    """The body without thinking blocks that Anthropic's API did not sign.

    They come from answers that were translated; the API would refuse the whole request (T08). Messages that
    hold none keep their bytes.
    """
    raws = _EACH.decode(_FIELDS.decode(body).get("messages", Raw(b"[]")))
    kept = [message for raw in raws for message in _own(raw)]
    if not raws:
        return body
    start, end = locate(body, raws[0])[0], locate(body, raws[-1])[1]
    return replace(body, [((start, end), b",".join(kept))])


def _own(raw: Raw) -> list[bytes]:
    """One message without foreign thoughts, or nothing where nothing is left."""
    fields = mapping(decode(raw))
    blocks = objects(fields.get("content"))
    own = [b for b in blocks if not (b.get("type") == "thinking" and foreign(text(b.get("signature"))))]
    if len(own) == len(blocks):
        return [bytes(raw)]
    return [encode({**fields, "content": own})] if own else []
