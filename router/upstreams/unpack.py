"""Compressed answers, decoded as they come. None is asked for; some servers, and what stands before them, insist.

What a client sends compressed is `router.encodings`'.
"""

from __future__ import annotations

import zlib
from importlib import import_module
from typing import Any, Protocol

STEP = 256 * 1024  # decoded bytes handed on at once
_SLICE = 1024  # compressed bytes given at once to a decoder that cannot be held to a step
_WINDOW = 1 << 27  # bytes; what a zstd decoder allows without being told
_GZIP = b"\x1f\x8b"


class Unpacker(Protocol):
    """Takes bytes as they come and gives decoded ones. Raises ValueError where they are broken.

    `pending`: there is more of what was given, to be had for b"". `whole`: the answer may end here.
    """

    @property
    def pending(self) -> bool: ...

    @property
    def whole(self) -> bool: ...

    def unpack(self, data: bytes) -> bytes: ...


class Zlib:
    """gzip, of which several may follow one another, and deflate: zlib's by RFC 9110, bare by some servers."""

    def __init__(self) -> None:
        self.whole = False
        self._tail = b""
        self._decoder: zlib._Decompress | None = None  # pyright: ignore[reportPrivateUsage]

    @property
    def pending(self) -> bool:
        return len(self._tail) > (1 if self._decoder is None else 0)  # one byte alone begins nothing

    def unpack(self, data: bytes) -> bytes:
        data, self._tail = self._tail + data, b""
        out: list[bytes] = []
        left = STEP
        while left > 0:
            decoder = self._decoder
            if decoder is None:
                if len(data) < 2 or (self.whole and not data.startswith(_GZIP)):
                    data = data[:1]  # what follows the last one is nobody's
                    break
                zlibs = data.startswith(_GZIP) or (data[0] & 0x0F == 8 and (data[0] << 8 | data[1]) % 31 == 0)
                decoder = self._decoder = zlib.decompressobj(zlib.MAX_WBITS | 32 if zlibs else -zlib.MAX_WBITS)
                self.whole = False
            try:
                out.append(decoder.decompress(data, left))
            except zlib.error as error:
                raise ValueError(str(error)) from error
            left -= len(out[-1])
            if not decoder.eof:
                data = decoder.unconsumed_tail
                break
            self.whole, self._decoder, data = True, None, decoder.unused_data
        self._tail = data
        return b"".join(out)


class Brotli:
    def __init__(self) -> None:
        brotli: Any = import_module("brotli")  # has no type stubs
        self._error: type[Exception] = brotli.error
        self._decoder: Any = brotli.Decompressor()

    @property
    def whole(self) -> bool:
        return bool(self._decoder.is_finished())

    @property
    def pending(self) -> bool:
        return not self.whole and not self._decoder.can_accept_more_data()

    def unpack(self, data: bytes) -> bytes:
        try:
            return b"" if self.whole else self._decoder.process(data, output_buffer_limit=STEP)
        except self._error as error:
            raise ValueError(str(error)) from error


class Zstd:
    def __init__(self) -> None:
        import zstandard

        self._error: type[Exception] = zstandard.ZstdError
        self._decoder: Any = zstandard.ZstdDecompressor(max_window_size=_WINDOW).decompressobj(read_across_frames=False)
        self._tail = b""

    @property
    def whole(self) -> bool:
        return bool(self._decoder.eof)

    @property
    def pending(self) -> bool:
        return bool(self._tail) and not self.whole

    def unpack(self, data: bytes) -> bytes:
        data = self._tail + data
        if self.whole or not data:
            return b""
        self._tail = data[_SLICE:]
        try:
            return self._decoder.decompress(data[:_SLICE])
        except self._error as error:
            raise ValueError(str(error)) from error


def unpacker(encoding: str) -> Unpacker | None:
    """For a `content-encoding`, None where there is nothing to decode. Raises ValueError for one that is not known."""
    names = [name for part in encoding.split(",") if (name := part.strip().lower()) not in ("", "identity")]
    if not names:
        return None
    if names in (["gzip"], ["x-gzip"], ["deflate"]):
        return Zlib()
    if names == ["br"]:
        return Brotli()
    if names == ["zstd"]:
        return Zstd()
    raise ValueError(encoding[:20])
