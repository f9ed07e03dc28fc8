"""Compressed request bodies: gzip, deflate, br and zstd, decoded once and never beyond the limit for plain ones.

Codex compresses with zstd, others with gzip; the upstream gets the plain body.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from importlib import import_module
from typing import Any

from router.errors import BadRequest, TooLarge, UnknownEncoding

STEPS = 3  # encodings stacked on each other; more is an attack, not a client
_MEMBERS = 64  # gzip files joined into one body; each costs a copy of the rest
_WINDOW_LOG = 27  # zstd: 128 MiB, what `zstd --ultra` may need and a decoder without --long allows


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the decoded body is larger than the limit of {limit} bytes")


def _zlib(body: bytes, limit: int, wbits: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    for _ in range(_MEMBERS):  # gzip allows several in a row
        if not body:
            break
        decoder = zlib.decompressobj(wbits)
        part = decoder.decompress(body, limit + 1 - size)
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        if not decoder.eof:
            raise EOFError
        parts.append(part)
        body = decoder.unused_data
    if body:
        raise ValueError
    return b"".join(parts)


def _gzip(body: bytes, limit: int) -> bytes:
    return _zlib(body, limit, 31)


def _deflate(body: bytes, limit: int) -> bytes:
    """RFC 9110 says zlib; some clients send the bare deflate stream."""
    zlib_header = len(body) > 1 and body[0] & 0x0F == 8 and (body[0] << 8 | body[1]) % 31 == 0
    return _zlib(body, limit, 15 if zlib_header else -15)


def _brotli(body: bytes, limit: int) -> bytes:
    brotli: Any = import_module("brotli")  # has no type stubs
    decoder = brotli.Decompressor()
    parts: list[bytes] = []
    size = 0
    try:
        while not decoder.is_finished():
            part: bytes = decoder.process(body, output_buffer_limit=256 * 1024)
            body = b""
            size += len(part)
            if size > limit:
                raise _too_large(limit)
            if not part and not decoder.is_finished():
                raise EOFError
            parts.append(part)
    except brotli.error as error:
        raise ValueError(str(error)) from None
    return b"".join(parts)


def _zstd(body: bytes, limit: int) -> bytes:
    """A frame that is cut short gives its beginning, which is no whole JSON object."""
    import zstandard

    decoder = zstandard.ZstdDecompressor(max_window_size=1 << _WINDOW_LOG)
    parts: list[bytes] = []
    size = 0
    try:
        with decoder.stream_reader(body, read_across_frames=True) as reader:
            while part := reader.read(256 * 1024):
                size += len(part)
                if size > limit:
                    raise _too_large(limit)
                parts.append(part)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from None
    return b"".join(parts)


def _identity(body: bytes, limit: int) -> bytes:
    return body


ENCODINGS: dict[str, Callable[[bytes, int], bytes]] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "br": _brotli,
    "zstd": _zstd,
    "identity": _identity,
}


def decoded(body: bytes, encoding: str, limit: int) -> bytes:
    """The plain body of a `content-encoding`. Raises UnknownEncoding, TooLarge, or BadRequest where it is broken."""
    steps = [step for name in encoding.split(",") if (step := name.strip().lower())]
    if len(steps) > STEPS or any(step not in ENCODINGS for step in steps):
        raise UnknownEncoding(f"a body may be encoded as one of {', '.join(ENCODINGS)}")
    for step in reversed(steps):
        try:
            body = ENCODINGS[step](body, limit)
        except (zlib.error, EOFError, ValueError):
            raise BadRequest(f"the body is not whole, valid {step}, as its content-encoding says") from None
    return body
