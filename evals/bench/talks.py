"""Made-up conversations for a load that lasts: each a new one, in one of three dialects, of several turns; agents' have
tools, loops and what they send again with every step. Nothing is asked here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from random import Random
from typing import Any

from msgspec import Struct

from evals.bench.line import CHAT, MESSAGES, RESPONSES

PATHS = (CHAT, MESSAGES, RESPONSES)
SYSTEM = "Follow the conventions of the files around the one you edit, and say what you did in one sentence. " * 60
PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}, "text": {"type": "string"}}}
TOOLS = [
    (f"tool_{n}", "Reads, writes or runs something in the workspace, and says what came of it. " * 4) for n in range(8)
]
WORDS = ("the", "cache", "drops", "what", "it", "holds", "when", "service", "asks", "again", "build", "parser", "fails")
NEW = 15  # words of each message that were never said: a scorer remembers words
LOOP = 4  # steps of a loop at most
TURNS = 3  # of a conversation at most
MARK = b"[#"


class Step(Struct, frozen=True):
    """One request of a conversation. `number` stands in it, and whether it asks for a tool call; `think_s` follows."""

    number: int
    path: str
    request: bytes
    think_s: float


def marked(body: bytes) -> tuple[int, bool]:
    """The number of the request with this body, and whether it asks for a tool call."""
    at = body.rfind(MARK)
    number, _, tool = body[at + 2 : body.find(b"]", at)].partition(b" ")
    return int(number), tool == b"t"


class Talks:
    """Conversations without end. `mean` requests has one of them."""

    mean = (TURNS + 1) / 2 * (1 + (LOOP + 1) / 2 / 2)

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._numbers = count(1)

    def new(self) -> Iterator[Step]:
        chance = self._chance
        path, agent = chance.choice(PATHS), chance.random() < 0.5
        streamed, words = chance.random() < 0.5, chance.choice((4, 40))
        begin = f"You work on project {chance.randint(1, 20)}. "
        messages: list[dict[str, Any]] = []
        last = 0
        for _turn in range(chance.randint(1, TURNS)):
            loop = chance.randint(1, LOOP) if agent else 0
            for step in range(loop + 1):
                number, more = next(self._numbers), step < loop
                new = ["".join(chance.choices("adeiklmnorstu", k=7)) for _ in range(NEW)]
                said = " ".join([*chance.choices(WORDS, k=words), *new])
                text = f"{said} [#{number}{' t' if more else ''}]"
                if step:
                    messages += result(path, last, text, chance.random() < 0.05)
                else:
                    messages.append({"role": "user", "content": text})
                think_s = chance.uniform(0.1, 0.5 if more else 3.0)
                yield Step(number, path, request(path, messages, begin if agent else None, streamed), think_s)
                messages += called(path, number) if more else [{"role": "assistant", "content": "That is done."}]
                last = number


def called(path: str, number: int) -> list[dict[str, Any]]:
    """The tool call that this request was answered with."""
    name, asked, known = TOOLS[0][0], '{"path": "a.py"}', f"call_{number}"
    if path == MESSAGES:
        return [
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": known, "name": name, "input": json.loads(asked)}],
            }
        ]
    if path == RESPONSES:
        return [{"type": "function_call", "call_id": known, "name": name, "arguments": asked}]
    call = {"id": known, "type": "function", "function": {"name": name, "arguments": asked}}
    return [{"role": "assistant", "content": None, "tool_calls": [call]}]


def result(path: str, number: int, text: str, failed: bool) -> list[dict[str, Any]]:
    """What the tool gave that the answer to this request called."""
    known, text = f"call_{number}", f"Error: {text}" if failed else text
    if path == MESSAGES:
        got = {"type": "tool_result", "tool_use_id": known, "content": text, "is_error": failed}
        return [{"role": "user", "content": [got]}]
    if path == RESPONSES:
        return [{"type": "function_call_output", "call_id": known, "output": text}]
    return [{"role": "tool", "tool_call_id": known, "content": text}]


def request(path: str, messages: list[dict[str, Any]], begin: str | None, streamed: bool) -> bytes:
    asked: dict[str, Any] = {"model": "auto", "stream": streamed}
    if path == MESSAGES:
        asked |= {"max_tokens": 256, "messages": messages}
        if begin is not None:
            asked |= {
                "system": begin + SYSTEM,
                "tools": [{"name": n, "description": d, "input_schema": PARAMETERS} for n, d in TOOLS],
            }
    elif path == RESPONSES:
        asked |= {"store": False, "input": messages}
        if begin is not None:
            tools = [{"type": "function", "name": n, "description": d, "parameters": PARAMETERS} for n, d in TOOLS]
            asked |= {"instructions": begin + SYSTEM, "tools": tools}
    else:
        asked["messages"] = (
            [{"role": "system", "content": begin + SYSTEM}, *messages] if begin is not None else messages
        )
        if begin is not None:
            functions = [{"name": n, "description": d, "parameters": PARAMETERS} for n, d in TOOLS]
            asked["tools"] = [{"type": "function", "function": one} for one in functions]
    body = json.dumps(asked).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body
