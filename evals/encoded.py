"""Prompts with a sentence encoder's vectors, for training and measuring the `encoder` scorer.

Each prompt goes through the encoder once, on all cores; a folder keeps the vectors, so that long work goes on where it
stopped. What is fitted to them is `fit`'s and `train`'s business.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from pathlib import Path

import numpy as np

from evals.cases import BadData
from evals.console import progress
from evals.fit import Examples
from router.scorers import encoder, text
from router.scorers.encoder import Encoder, Source
from router.scorers.features import Vector, extract
from router.scorers.heads import Encoded

_AT_ONCE = 16
_SAVE_EVERY = 128  # batches; about a minute of one core


class Reader:
    """Gives `Examples` that have vectors. Raises `BadData` where the encoder cannot be used."""

    def __init__(self, model: str | None = None, keep: Path | None = None) -> None:
        try:
            self._encoder = Encoder(Source(model=model))
        except ValueError as e:
            raise BadData(str(e)) from e
        self.encoded = Encoded(sha256=self._encoder.digest, model=model)
        self._file = None if keep is None else keep / f"vectors-{self.encoded.sha256[:12]}.npz"
        self._known: dict[bytes, Vector] = {}
        if self._file is not None and self._file.is_file():
            with np.load(self._file, allow_pickle=False) as stored:
                self._known = dict(zip(map(bytes, stored["keys"]), stored["vectors"], strict=True))

    def __call__(self, prompts: Sequence[str]) -> Examples:
        readings = [text.read(p) for p in prompts]
        keys = [blake2b(r.text.encode("utf-8", "surrogatepass"), digest_size=16).digest() for r in readings]
        new = {k: r.text for k, r in zip(keys, readings, strict=True) if k not in self._known}
        if new:
            self._read(new)
        return Examples(prompts, [extract(r, self._known[k]) for k, r in zip(keys, readings, strict=True)])

    def _read(self, new: dict[bytes, str]) -> None:
        order = sorted(new, key=lambda k: (len(new[k]), k))
        parts = [order[i : i + _AT_ONCE] for i in range(0, len(order), _AT_ONCE)]
        done = 0
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool, progress("batches encoded", len(parts)) as step:
            for part, rows in zip(parts, pool.map(self._vectors, ([new[k] for k in p] for p in parts)), strict=True):
                self._known.update(zip(part, rows, strict=True))
                step()
                done += 1
                if done % _SAVE_EVERY == 0:
                    self._save()
        self._save()

    def _vectors(self, texts: Sequence[str]) -> Vector:
        return self._encoder.vectors(texts)

    def _save(self) -> None:
        if self._file is None:
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        part = self._file.with_suffix(".part.npz")
        keys = np.frombuffer(b"".join(self._known), np.uint8).reshape(-1, 16)
        np.savez(part, keys=keys, vectors=np.stack(list(self._known.values())))
        part.replace(self._file)


def reader(scorer: str, model: str | None = None, keep: Path | None = None) -> Reader | None:
    """What reads prompts for a scorer that has an encoder: `encoder`, or an artifact of its. Raises `BadData`."""
    if scorer == "encoder":
        return Reader(model, keep)
    path = Path(scorer)
    return Reader(encoder.read(path)[1].model, keep) if encoder.is_artifact(path) else None
