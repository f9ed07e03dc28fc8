"""Writes a sentence encoder of a few kilobytes: an ONNX model that looks each token up in a table of random vectors,
and a tokenizer of one token a letter. ONNX is protobuf, and so small a model is written field by field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from router.scorers.encoder import library

LETTERS = "abcdefghijklmnopqrstuvwxyz 0123456789"
WIDTH = 8
_INT64, _FLOAT = 7, 1


def _varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes | str) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return _varint(field << 3 | 2) + _varint(len(raw)) + raw


def _value(name: str, kind: int, *dims: str | int) -> bytes:
    shape = b"".join(_bytes(1, _number(1, d) if isinstance(d, int) else _bytes(2, d)) for d in dims)
    return _bytes(1, name) + _bytes(2, _bytes(1, _number(1, kind) + _bytes(2, shape)))


def write_tiny_encoder(folder: Path, seed: int = 7) -> Path:
    """Write model.onnx and tokenizer.json, and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    marks = ["[UNK]", "[CLS]", "[SEP]"]
    table = np.random.default_rng(seed).normal(size=(len(marks) + len(LETTERS), WIDTH)).astype(np.float32)
    tensor = b"".join(_number(1, d) for d in table.shape)
    tensor += _number(2, _FLOAT) + _bytes(8, "table") + _bytes(9, table.tobytes())
    node = _bytes(1, "table") + _bytes(1, "input_ids") + _bytes(2, "states") + _bytes(4, "Gather")
    graph = _bytes(1, node) + _bytes(2, "tiny") + _bytes(5, tensor)
    graph += b"".join(_bytes(11, _value(n, _INT64, "batch", "sequence")) for n in ("input_ids", "attention_mask"))
    graph += _bytes(12, _value("states", _FLOAT, "batch", "sequence", WIDTH))
    (folder / "model.onnx").write_bytes(_number(1, 8) + _bytes(7, graph) + _bytes(8, _bytes(1, "") + _number(2, 13)))

    tokenizers = library("tokenizers")
    vocabulary = {token: i for i, token in enumerate([*marks, *LETTERS])}
    made: Any = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    made.save(str(folder / "tokenizer.json"))
    return folder
