"""Writes a GGUF file of a few kilobytes that llama.cpp loads in milliseconds: a one-layer Llama with random weights
and one token per byte. It answers nonsense; it is for tests of processes, not of answers.
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

_U32, _F32, _STRING, _ARRAY, _I32 = 4, 6, 8, 9, 5  # GGUF value types
_ALIGN = 32
_WIDTH, _HEADS, _FEED, _CONTEXT = 32, 2, 64, 2048

_CHAT = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _entry(key: str, kind: int, value: bytes) -> bytes:
    return _string(key) + struct.pack("<I", kind) + value


def _array(key: str, kind: int, values: list[bytes]) -> bytes:
    return _entry(key, _ARRAY, struct.pack("<IQ", kind, len(values)) + b"".join(values))


def write_tiny_gguf(path: Path) -> Path:
    """Write the file and return its path."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581"]
    kinds = [2, 3, 3, *([6] * 256), 1]  # unknown, control, control, byte, normal
    number = {
        "block_count": 1,
        "context_length": _CONTEXT,
        "embedding_length": _WIDTH,
        "feed_forward_length": _FEED,
        "attention.head_count": _HEADS,
        "attention.head_count_kv": _HEADS,
        "rope.dimension_count": _WIDTH // _HEADS,
    }
    entries = [
        _entry("general.architecture", _STRING, _string("llama")),
        _entry("general.name", _STRING, _string("tiny")),
        *(_entry(f"llama.{key}", _U32, struct.pack("<I", value)) for key, value in number.items()),
        _entry("llama.attention.layer_norm_rms_epsilon", _F32, struct.pack("<f", 1e-5)),
        _entry("tokenizer.ggml.model", _STRING, _string("llama")),
        _array("tokenizer.ggml.tokens", _STRING, [_string(token) for token in tokens]),
        _array("tokenizer.ggml.scores", _F32, [struct.pack("<f", 0.0) for _ in tokens]),
        _array("tokenizer.ggml.token_type", _I32, [struct.pack("<i", kind) for kind in kinds]),
        _entry("tokenizer.ggml.bos_token_id", _U32, struct.pack("<I", 1)),
        _entry("tokenizer.ggml.eos_token_id", _U32, struct.pack("<I", 2)),
        _entry("tokenizer.chat_template", _STRING, _string(_CHAT)),
    ]
    shapes = {
        "token_embd.weight": (len(tokens), _WIDTH),
        "output_norm.weight": (_WIDTH,),
        "output.weight": (len(tokens), _WIDTH),
        "blk.0.attn_norm.weight": (_WIDTH,),
        "blk.0.ffn_norm.weight": (_WIDTH,),
        **{f"blk.0.attn_{part}.weight": (_WIDTH, _WIDTH) for part in ("q", "k", "v", "output")},
        "blk.0.ffn_gate.weight": (_FEED, _WIDTH),
        "blk.0.ffn_up.weight": (_FEED, _WIDTH),
        "blk.0.ffn_down.weight": (_WIDTH, _FEED),
    }
    random = np.random.default_rng(0)
    infos, data = b"", b""
    for name, shape in shapes.items():
        data += b"\0" * (-len(data) % _ALIGN)
        dims = struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))  # innermost first
        infos += _string(name) + dims + struct.pack("<IQ", 0, len(data))  # 0 = F32
        data += random.normal(0.0, 0.2, shape).astype("<f4").tobytes()
    head = b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(entries)) + b"".join(entries) + infos
    path.write_bytes(head + b"\0" * (-len(head) % _ALIGN) + data)
    return path
