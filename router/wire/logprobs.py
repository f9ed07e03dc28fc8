"""Log-probabilities that the gateway asked of a chat server on its own account: summed up, and taken out again.

Every other byte stays as it came. An answer to a client that asked for them itself is listened to and left alone.
"""

from __future__ import annotations

from typing import Any

from msgspec import DecodeError, Raw, Struct
from msgspec.json import Decoder, decode

from router.wire import sse
from router.wire.body import locate, replace
from router.wire.loose import mapping, objects


class _Choice(Struct, gc=False):
    logprobs: Raw = Raw()


class _Answer(Struct, gc=False):
    choices: list[_Choice] = []


_ANSWER = Decoder(_Answer)
_NAME = b'"logprobs"'


class Logprobs:
    """Listens to one answer of a chat server. `keep`: the client asked for them too, so they are left in."""

    def __init__(self, *, keep: bool, stream: bool) -> None:
        self._keep = keep
        self._splitter = sse.Splitter() if stream else None
        self._whole: list[bytes] = []
        self._sum = 0.0
        self._count = 0

    @property
    def mean(self) -> float | None:
        """Of the tokens so far; None where the server gave none."""
        return self._sum / self._count if self._count else None

    def feed(self, data: bytes) -> bytes:
        """The upstream's bytes, b"" at the end; returns those to go on with, which may be later ones."""
        if self._splitter is None:
            if data:
                self._whole.append(data)
                return b""
            answer, self._whole = b"".join(self._whole), []
            return self._read(answer)
        if not data:
            rest, self._splitter = self._splitter.rest(), sse.Splitter()
            return rest
        run = self._splitter.feed(data)
        return b"".join([self._event(event) for event in sse.split(run)]) if _NAME in run else run

    def _event(self, event: bytes) -> bytes:
        found = sse.fields(event)[1] if _NAME in event else None
        if found is None or found not in event:
            return event
        read = self._read(found)
        return event if read is found else event.replace(found, read, 1)

    def _read(self, answer: bytes) -> bytes:
        try:
            choices = _ANSWER.decode(answer).choices
        except (DecodeError, RecursionError):
            return answer
        given = [choice.logprobs for choice in choices if bytes(choice.logprobs) not in (b"", b"null")]
        for raw in given:
            self._add(decode(raw))
        if self._keep or not given:
            return answer
        return replace(answer, [(locate(answer, raw), b"null") for raw in given])

    def _add(self, logprobs: Any) -> None:
        for token in objects(mapping(logprobs).get("content")):
            value = token.get("logprob")
            if isinstance(value, int | float) and not isinstance(value, bool):
                self._sum += value
                self._count += 1
