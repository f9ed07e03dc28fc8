"""Large JSON read and written in pieces. A call of a decoder or an encoder holds the interpreter's lock to its end, and
the event loop waits for that again with each thing that it turns to; between pieces it goes on.

What is small is read and written at once, to the same result.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Mapping
from typing import Any, TypeVar

from msgspec import Raw, ValidationError
from msgspec.json import Decoder, decode, encode

from router.wire.loose import is_array

T = TypeVar("T")

LARGE = 1024 * 1024  # bytes, of which a decoder takes about a millisecond
_BRACKET = b"["[0]
_FIELDS = Decoder(dict[str, Raw])
_EACH = Decoder(list[Raw])
_UTF8 = getincrementaldecoder("utf-8")


def elements(array: Raw, whole: Decoder[T], one: Decoder[Any]) -> T | list[Any]:
    """What `whole` makes of a field; of a large array what `one` makes of each of its elements. Raises as they do."""
    if len(memoryview(array)) <= LARGE:
        return whole.decode(array)
    try:
        each = _EACH.decode(array)
    except ValidationError:  # no array
        return whole.decode(array)
    return [one.decode(raw) for raw in each]


def read(body: bytes) -> Any:
    """As `decode`."""
    if len(body) <= LARGE:
        return decode(body)
    return {key: _value(raw) for key, raw in _FIELDS.decode(body).items()}


def _value(raw: Raw) -> Any:
    view = memoryview(raw)
    return [decode(one) for one in _EACH.decode(raw)] if len(view) > LARGE and view[0] == _BRACKET else decode(raw)


def written(fields: Mapping[str, Any], size: int) -> bytes:
    """As `encode`, of what takes about so many bytes."""
    if size <= LARGE:
        return encode(fields)
    parts: list[bytes] = []
    for key, value in fields.items():
        parts += [b",", encode(key), b":"]
        parts += _array(value) if is_array(value) else [encode(value)]
    return b"".join([b"{", *parts[1:], b"}"])


def _array(values: list[Any]) -> list[bytes]:
    return [b"[", *[part for value in values for part in (b",", encode(value))][1:], b"]"]


def check_utf8(body: bytes) -> None:
    """Raises UnicodeDecodeError, as `body.decode()` does."""
    if len(body) > LARGE:
        whole, decoder = memoryview(body), _UTF8()
        try:
            for at in range(0, len(body), LARGE):
                decoder.decode(whole[at : at + LARGE])
            decoder.decode(b"", final=True)
            return
        except UnicodeDecodeError:
            pass  # read at once it says where
    body.decode()
