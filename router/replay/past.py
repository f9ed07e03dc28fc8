"""One line of an export: the record, and judgements of the answer that may stand beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Struct

from router import record
from router.types import Record

_Quality = Annotated[float, msgspec.Meta(ge=0, le=1)]


class _Feedback(Struct, frozen=True, kw_only=True):
    score: _Quality


class _Beside(Struct, frozen=True, kw_only=True):
    quality: _Quality | Mapping[str, _Quality] | None = None
    feedback: _Feedback | None = None


class Past(Struct, frozen=True, kw_only=True):
    """`quality` in [0, 1] is a judgement of the answer that was given; `labels` are those of several groups' answers
    to the same request."""

    record: Record
    quality: float | None = None
    labels: Mapping[str, float] = {}


_beside = msgspec.json.Decoder(_Beside).decode
_KEYS = (b'"quality":', b'"feedback":')


def read(line: bytes) -> Past:
    """Raises `msgspec.ValidationError`, which names the key, and `msgspec.DecodeError` for what is no JSON."""
    found = record.decode(line)
    if not any(key in line for key in _KEYS):  # most lines: a second parse would cost half as much again
        return Past(record=found)
    beside = _beside(line)
    labels: Mapping[str, float] = {}
    quality: float | None = None
    if isinstance(beside.quality, Mapping):
        labels = beside.quality
    else:
        quality = beside.quality
    if quality is None and beside.feedback is not None:
        quality = beside.feedback.score
    return Past(record=found, quality=quality, labels=labels)
