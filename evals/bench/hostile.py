"""Bodies that are large, or made to break a gateway, with the statuses that are right for them; and sending one.

Sending blocks and leaves Python's lock alone, so it belongs in a thread beside what measures.
"""

from __future__ import annotations

import gzip
import json
import select
import socket
from collections.abc import Iterator, Mapping
from typing import Any

import zstandard
from msgspec import Struct

from evals.bench.line import CHAT, MESSAGES, RESPONSES

MB = 1 << 20
LARGE = 31 * MB
_PIECE = 256 * 1024  # bytes sent before it is looked whether an answer came early
_ASK = b'"messages":[{"role":"user","content":"x"}]'
_LINE = 'Read the file, say what is wrong in it and mend it: «größer als» means `a > b`.\n\tThen run "make test". '
OK, REFUSED, LARGE_REFUSED = frozenset((200,)), frozenset((400,)), frozenset((413,))


class Hostile(Struct, frozen=True, kw_only=True):
    """One request and the statuses that are right for it."""

    name: str
    body: bytes
    right: frozenset[int]
    path: str = CHAT
    headers: Mapping[str, str] = {}
    chunked: bool = False


def conversation(model: str, path: str, size: int = LARGE) -> bytes:
    """An agent's long conversation of about so many bytes, of which each message is large."""
    count = 64
    said = _LINE * (size // count // (len(json.dumps(_LINE, ensure_ascii=False).encode()) - 2))
    turns: list[dict[str, Any]] = [
        {"role": ("user", "assistant")[i % 2], "content": f"{i} {said}"} for i in range(count - 1)
    ]
    field = "input" if path == RESPONSES else "messages"
    return json.dumps({"model": model, "max_tokens": 64, field: turns}, ensure_ascii=False).encode()


def _filled(start: bytes, item: bytes, end: bytes) -> bytes:
    return start + b",".join([item] * ((LARGE - len(start)) // (len(item) + 1))) + end


def bodies(direct: str, translated: str) -> Iterator[Hostile]:
    """All of them, for a model whose deployment speaks every dialect and one whose deployment speaks chat alone."""
    start = b'{"model":"%b",' % direct.encode()
    asked = start + _ASK
    yield Hostile(name="31 MB in a field", body=asked + b',"x":"' + b"x" * LARGE + b'"}', right=OK)
    line = b'2026-01-01,"a",1,2,3,4\n'.replace(b'"', b'\\"').replace(b"\n", b"\\n")
    said = b'"messages":[{"role":"user","content":"' + line * (LARGE // len(line)) + b'"}]}'
    yield Hostile(name="31 MB of CSV in a message", body=start + said, right=OK)
    for path in (CHAT, MESSAGES, RESPONSES):
        name = path.removeprefix("/v1/").partition("/")[0]
        yield Hostile(name=f"31 MB, {name}", body=conversation(direct, path), right=OK, path=path)
        if path != CHAT:
            yield Hostile(name=f"31 MB, {name}, translated", body=conversation(translated, path), right=OK, path=path)
    over = asked + b',"x":"' + b"x" * (33 * MB) + b'"}'
    yield Hostile(name="33 MB", body=over, right=LARGE_REFUSED)
    yield Hostile(name="33 MB, chunked", body=over, right=LARGE_REFUSED, chunked=True)
    packed = gzip.compress(conversation(direct, CHAT), 1)
    yield Hostile(name="31 MB in gzip", body=packed, right=OK, headers={"content-encoding": "gzip"})
    packed = zstandard.compress(conversation(direct, CHAT), 1)
    yield Hostile(name="31 MB in zstd", body=packed, right=OK, headers={"content-encoding": "zstd"})
    nothing = bytes(256 * MB)
    for encoding, bomb in (("gzip", gzip.compress(nothing, 1)), ("zstd", zstandard.compress(nothing))):
        yield Hostile(name=f"{encoding} bomb", body=bomb, right=LARGE_REFUSED, headers={"content-encoding": encoding})
    yield Hostile(name="100,000 deep", body=asked + b',"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", right=REFUSED)
    yield Hostile(
        name="lone surrogate", body=start + b'"messages":[{"role":"user","content":"\\ud800"}]}', right=REFUSED
    )
    yield Hostile(name="NaN", body=asked + b',"temperature":NaN}', right=REFUSED)
    yield Hostile(name="1e400", body=asked + b',"temperature":1e400}', right=OK)
    many = {
        "a million messages": (start + b'"messages":[', b'{"role":"user","content":"x"}', b"]}"),
        "ten million empty tools": (asked + b',"tools":[', b"{}", b"]}"),
        "sixteen million numbers": (asked + b',"max_tokens":[', b"1", b"]}"),
    }
    for name, parts in many.items():
        yield Hostile(name=name, body=_filled(*parts), right=OK | REFUSED)


def head(port: int, asked: Hostile) -> bytes:
    lines = [f"POST {asked.path} HTTP/1.1", f"host: 127.0.0.1:{port}", "content-type: application/json"]
    lines += [f"{name}: {value}" for name, value in asked.headers.items()]
    lines.append("transfer-encoding: chunked" if asked.chunked else f"content-length: {len(asked.body)}")
    return "\r\n".join([*lines, "connection: close", "", ""]).encode()


def send(port: int, asked: Hostile) -> int:
    """The status of its answer, 0 where none came."""
    with socket.create_connection(("127.0.0.1", port), timeout=120) as sock:
        try:
            sock.sendall(head(port, asked))
            whole = memoryview(asked.body)
            for at in range(0, len(whole), _PIECE):
                if select.select([sock], [], [], 0)[0]:
                    break  # it is answered already
                piece = whole[at : at + _PIECE]
                if asked.chunked:
                    sock.sendall(b"%x\r\n" % len(piece))
                sock.sendall(piece)
                if asked.chunked:
                    sock.sendall(b"\r\n")
            else:
                if asked.chunked:
                    sock.sendall(b"0\r\n\r\n")
        except OSError:
            pass  # what was answered may still be read
        got = b""
        try:
            while len(got) < 12 and (data := sock.recv(65536)):
                got += data
            while sock.recv(65536):
                pass
        except OSError:
            pass
        return int(got[9:12]) if got.startswith(b"HTTP/1.1 ") else 0
