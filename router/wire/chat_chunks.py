"""Chat chunks that servers write otherwise than OpenAI's API does, told as clients read them.

Ollama and others number all parallel calls 0, some number none; a client that joins arguments by number would join
those of all calls (T01).
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import DecodeError, Struct
from msgspec.json import decode, encode

from router.wire.loose import count, is_object, mapping, objects, text

NOTHING, NULL, MORE = range(3)  # what there is to mend: only arguments that are null, or more
_NULL = re.compile(rb'("arguments"\s*:\s*)null')


class Call(Struct):
    """A call as far as it has been told; `index` is ours."""

    index: int
    id: str = ""
    said: list[str] = []

    def is_another(self, call_id: str, arguments: str) -> bool:
        """Whether a delta with a name begins another call."""
        if call_id and self.id:
            return call_id != self.id
        return bool(arguments) and _is_whole("".join(self.said))


def _is_whole(arguments: str) -> bool:
    try:
        return is_object(decode(arguments))
    except (DecodeError, RecursionError):
        return False


def argued(arguments: Any) -> str:
    """Arguments as the text that they should be; some servers send the object."""
    return encode(arguments).decode() if is_object(arguments) else text(arguments)


def argue(calls: Any) -> bool:
    """Makes the arguments of whole calls texts, in place; whether some were none (T03, T04)."""
    wrong = [
        f for f in (mapping(call.get("function")) for call in objects(calls)) if not isinstance(f.get("arguments"), str)
    ]
    for function in wrong:
        function["arguments"] = argued(function.get("arguments")) or "{}"
    return bool(wrong)


class Calls:
    """What the deltas that begin calls say, of every choice of one stream."""

    __slots__ = ("_newest", "_used", "asks", "renumbered")

    def __init__(self) -> None:
        self._newest: dict[tuple[int, int], Call] = {}  # by choice and the server's number
        self._used: dict[int, int] = {}  # by choice, how many numbers
        self.asks: dict[int, str] = {}  # by choice, the finish reason that has its calls run
        self.renumbered = False  # a number was not the server's: every delta has to be looked at

    def mend(self, choice: int, given: Any, *, old: bool = False) -> int:
        """Mends the calls of a delta, in place, and says what there was to mend. `old`: it has a function_call."""
        calls = objects(given)
        self.asks[choice] = "tool_calls" if calls or not old else "function_call"
        return max([self._mend(choice, call, at) for at, call in enumerate(calls)], default=NOTHING)

    def _mend(self, choice: int, call: dict[str, Any], at: int) -> int:
        function = mapping(call.get("function"))
        name = text(function.get("name")) or text(mapping(call.get("custom")).get("name"))
        has, arguments = "arguments" in function, function.get("arguments")
        number = self.number(choice, call, at, name, argued(arguments))
        wrong = number != call.get("index")
        if wrong:
            call["index"] = number
            self.renumbered = True
        if not name or not function or isinstance(arguments, str):
            return MORE if wrong else NOTHING
        function["arguments"] = argued(arguments)  # T04
        return MORE if wrong or arguments is not None or not has else NULL

    def number(self, choice: int, call: dict[str, Any], at: int, name: str, arguments: str) -> int:
        """The number of the call that a delta tells of. A server's own stays where no other call has it."""
        given, call_id = count(call.get("index")), text(call.get("id"))
        index = at if given is None else given
        known = self._newest.get((choice, index))
        if known is None or (name and known.is_another(call_id, arguments)):
            used = self._used.get(choice, 0)
            mine = index if known is None and index >= used else used
            self._used[choice] = mine + 1
            known = self._newest[choice, index] = Call(index=mine)
        known.id = known.id or call_id
        known.said.append(arguments)
        return known.index


NO_CALLS = Calls()  # of a stream without any, which most are


def with_arguments(chunk: bytes) -> bytes:
    """A chunk whose arguments are texts where they were null; all else as it came."""
    return _NULL.sub(rb'\1""', chunk.replace(b"\n", b" "))


def rewritten(data: bytes, calls: list[Any], reasons: dict[int, str], said: str = "delta") -> bytes:
    """A chunk or answer with these calls, by its choices, and with these finish reasons."""
    try:
        chunk: Any = decode(data)
    except (DecodeError, RecursionError):  # something in it that nobody reads
        return data
    for at, choice in enumerate(chunk["choices"]):
        if calls[at]:
            choice[said]["tool_calls"] = calls[at]
        if at in reasons:
            choice["finish_reason"] = reasons[at]
    return encode(chunk)


def apart(data: bytes) -> tuple[bytes, bytes]:
    """A chunk without its usage, and the usage as the chunk that OpenAI's API sends by itself, without choices."""
    try:
        chunk: dict[str, Any] = decode(data)
    except (DecodeError, RecursionError):
        return data, data
    usage = chunk.pop("usage")
    return encode(chunk), encode({**chunk, "choices": [], "usage": usage})
