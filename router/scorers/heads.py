"""The arithmetic of a trained lexical or encoder scorer: views, stacked into heads, gated by the form of the prompt.

Numpy only, one prompt at a time, float32. Fitting lives in `evals/fit.py`; an artifact is one npz file of
plain arrays and a JSON description, read with `allow_pickle=False`.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from router.scorers import features
from router.scorers.features import DENSE, Features, Vector
from router.scorers.signalled import FEATURES, Part

Array = NDArray[Any]

VERSION = 1
_NUMBERS = DENSE.index("numbers")  # a sum without any is not looked for
PROBLEM = 0.1  # 97% of GSM8K lie above it, and under 1% of everyday prompts
MODEL_FILE = "model.npz"


class Incompatible(ValueError):
    """An artifact that this version of the features cannot read."""


def feature_digest() -> str:
    """Identifies the meaning of the feature columns; an artifact carries the one it was trained with."""
    text = " ".join((*DENSE, str(features.BITS)))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# --- views: each looks at one side of the prompt and gives one number -------------------------------------


class View(Protocol):
    """One number for one prompt."""

    def predict(self, x: Features) -> float: ...


def _within(z: Vector, limit: float) -> Vector:
    """`np.clip` to plus and minus a limit, without the cost of its front."""
    return np.minimum(np.maximum(z, -limit), limit)


class Length(Struct, frozen=True, kw_only=True):
    """The logarithm of the prompt's length in characters."""

    def predict(self, x: Features) -> float:
        return float(x.dense[0])


class Kernel(Struct, frozen=True, kw_only=True):
    """Radial-basis kernel regression on dense features, summed over reference points."""

    columns: Array
    mean: Vector
    scale: Vector
    centres: Vector  # (points, columns), standardised
    norms: Vector  # squared length of each centre
    weights: Vector
    gamma: float
    bias: float

    def predict(self, x: Features) -> float:
        z = _within((x.dense[self.columns] - self.mean) * self.scale, 4.0)
        distance = self.norms + z @ z - 2.0 * (self.centres @ z)
        return float(np.exp(-self.gamma * distance) @ self.weights) + self.bias


class Hashed(Struct, frozen=True, kw_only=True):
    """A linear model over hashed n-grams of words or characters."""

    grams: Literal["words", "chars"]
    weights: Vector
    bias: float

    def predict(self, x: Features) -> float:
        index, value = x.words if self.grams == "words" else x.chars
        return float(self.weights[index] @ value) + self.bias


class Semantic(Struct, frozen=True, kw_only=True):
    """Kernel regression on dense features together with a projection of the words onto a few topics."""

    projection: Vector  # (buckets, topics)
    columns: Array
    mean: Vector
    scale: Vector  # puts form and topics in proportion
    topics: float  # how much the topics weigh
    centres: Vector
    norms: Vector
    weights: Vector
    gamma: float
    bias: float

    def place(self, x: Features) -> Vector:
        """Where the prompt lies: its form beside its topics."""
        form = _within((x.dense[self.columns] - self.mean) * self.scale, 0.4)
        index, value = x.words
        topics = value @ self.projection[index]
        return np.concatenate([form, topics * (self.topics / max(float(np.sqrt(topics @ topics)), 1e-9))])

    def predict(self, x: Features) -> float:
        z = self.place(x)
        distance = self.norms + z @ z - 2.0 * (self.centres @ z)
        return float(np.exp(-self.gamma * distance) @ self.weights) + self.bias


class Trees(Struct, frozen=True, kw_only=True):
    """A sum of regression trees over dense features, walked all at once."""

    feature: Array  # (nodes,) column of `DENSE`, or 0 in a leaf
    threshold: Vector  # (nodes,) go left when the feature is at most this; +inf in a leaf
    children: Array  # (2 * nodes,) left and right child of each node, a leaf's being itself
    value: Vector  # (nodes,) used in leaves
    roots: Array  # (trees,)
    depth: int
    bias: float

    def predict(self, x: Features) -> float:
        # Every node's test at once, then one look a level: cheaper than asking only the nodes that are passed.
        onward = np.where(x.dense.take(self.feature) > self.threshold, self.children[1::2], self.children[::2])
        at = self.roots
        for _ in range(self.depth):
            at = onward.take(at)
        return float(self.value.take(at).sum()) + self.bias


class Meaning(Struct, frozen=True, kw_only=True):
    """A linear model over a sentence encoder's vector."""

    weights: Vector
    bias: float

    def predict(self, x: Features) -> float:
        if x.meaning is None:
            raise Incompatible("these heads read an encoder's vector, and none was given")
        return float(self.weights @ x.meaning) + self.bias


# --- heads -----------------------------------------------------------------------------------------------


class Head(Struct, frozen=True, kw_only=True):
    """Views stacked by weight, then calibrated along a piecewise-linear curve."""

    name: str
    views: tuple[View, ...]
    weights: tuple[float, ...]
    bias: float
    knots_x: Vector
    knots_y: Vector

    def raw(self, x: Features) -> float:
        return self.bias + sum(w * v.predict(x) for w, v in zip(self.weights, self.views, strict=True))

    def score(self, x: Features) -> float:
        return float(np.interp(self.raw(x), self.knots_x, self.knots_y))


class Support(Struct, frozen=True, kw_only=True):
    """Which character pairs and trigrams training has seen; a prompt made of others is too far away to judge."""

    seen: NDArray[np.bool_]
    least: float  # smallest share of seen pieces that is close enough
    least_cjk: float  # the same for Chinese and Japanese, whose pieces are far more varied

    def share(self, x: Features) -> float:
        index = features.pieces(x.reading.text)
        return np.count_nonzero(self.seen[index]) / len(index) if len(index) else 0.0

    def close(self, x: Features) -> bool:
        return self.share(x) >= (self.least_cjk if x.reading.cjk else self.least)


class Gate(Struct, frozen=True, kw_only=True):
    """Which head judges which form of prompt. An empty name means that nothing was trained for it."""

    few: str = ""  # questions with three to five options
    many: str = ""  # questions with six options or more
    problem: str = ""  # arithmetic told as a story, without options
    open: str = ""  # everything else

    def choose(self, options: int, problem: float) -> str:
        if options >= 6:
            return self.many or self.few
        if options >= 3:
            return self.few or self.many
        return self.problem if problem >= PROBLEM and self.problem else self.open


class Encoded(Struct, frozen=True, kw_only=True):
    """The encoder whose vectors an artifact was trained on."""

    sha256: str  # of its model file
    model: str | None = None  # its folder; None is the packaged one


class Model(Struct, frozen=True, kw_only=True):
    """A whole artifact."""

    heads: Mapping[str, Head]
    gate: Gate
    support: Support | None
    notes: Mapping[str, Any]
    encoder: Encoded | None = None  # None: its heads read nothing but the lexical features
    signals: Part | None = None  # None: it knows the text alone

    def score(self, x: Features) -> float | None:
        """Difficulty of the text in [0, 1], or None where the prompt is too far from everything trained on."""
        if self.support is not None and not x.options and not self.support.close(x):
            return None
        told = "is_problem" in self.heads and not x.options and x.dense[_NUMBERS] > 0
        problem = self.heads["is_problem"].score(x) if told else 0.0
        head = self.heads.get(self.gate.choose(x.options, problem))
        return None if head is None else min(1.0, max(0.0, head.score(x)))


# --- reading and writing ----------------------------------------------------------------------------------

VIEWS: dict[str, type[Length | Kernel | Hashed | Semantic | Trees | Meaning]] = {
    "length": Length,
    "kernel": Kernel,
    "hashed": Hashed,
    "semantic": Semantic,
    "trees": Trees,
    "meaning": Meaning,
}
_KIND = {view: kind for kind, view in VIEWS.items()}
_STORE_HALF = {
    ("kernel", "centres"),
    ("hashed", "weights"),
    ("semantic", "projection"),
    ("semantic", "centres"),
}  # halving these costs no measurable quality


def dump(model: Model, directory: Path) -> Path:
    """Write the artifact; the same model gives the same bytes."""
    arrays: dict[str, Array] = {}
    described: list[dict[str, Any]] = []
    for head in model.heads.values():
        views: list[dict[str, Any]] = []
        for i, view in enumerate(head.views):
            kind = _KIND[type(view)]  # pyright: ignore[reportArgumentType]
            plain: dict[str, Any] = {"kind": kind}
            for field, value in msgspec.structs.asdict(view).items():  # pyright: ignore[reportArgumentType]
                if isinstance(value, np.ndarray):
                    half = (kind, field) in _STORE_HALF
                    arrays[f"{head.name}.{i}.{field}"] = value.astype(np.float16) if half else value
                else:
                    plain[field] = value
            views.append(plain)
        arrays[f"{head.name}.knots_x"] = head.knots_x
        arrays[f"{head.name}.knots_y"] = head.knots_y
        described.append({"name": head.name, "views": views, "weights": head.weights, "bias": head.bias})
    support = None
    if model.support is not None:
        arrays["support.seen"] = np.packbits(model.support.seen)
        support = {"least": model.support.least, "least_cjk": model.support.least_cjk}
    meta = {
        "version": VERSION,
        "features": feature_digest(),
        "heads": described,
        "gate": msgspec.to_builtins(model.gate),
        "support": support,
        "notes": dict(model.notes),
    }
    if model.encoder is not None:
        meta["encoder"] = msgspec.to_builtins(model.encoder)
    if model.signals is not None:
        meta["signals"] = msgspec.to_builtins(model.signals)
    arrays["meta"] = np.frombuffer(json.dumps(meta, sort_keys=True).encode(), dtype=np.uint8)
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / MODEL_FILE
    _write(path, arrays)
    return path


def _write(path: Path, arrays: Mapping[str, Array]) -> None:
    """As `numpy.savez`, whose bytes differ between versions of Python: it asks zipfile for room for more than 4 GB."""
    with zipfile.ZipFile(path, "w") as out:
        for name, array in arrays.items():
            content = io.BytesIO()
            np.lib.format.write_array(content, np.asanyarray(array), allow_pickle=False)
            out.writestr(zipfile.ZipInfo(f"{name}.npy"), content.getvalue())


def load(path: Path) -> Model:
    """Read an artifact: its directory or the npz file itself. Raises `Incompatible`, or OSError."""
    file = path / MODEL_FILE if path.is_dir() else path
    try:
        with np.load(file, allow_pickle=False) as stored:
            arrays: dict[str, Array] = {name: stored[name] for name in stored.files}
        meta = json.loads(arrays.pop("meta").tobytes())
    except (ValueError, KeyError, EOFError) as e:
        raise Incompatible(
            f"{file} is not a lexical or encoder artifact, which `pointsman eval train` writes: {e}"
        ) from e
    if meta.get("version") != VERSION or meta.get("features") != feature_digest():
        raise Incompatible(f"{file} was trained with other features; rebuild it with `pointsman eval train`")
    heads: dict[str, Head] = {}
    for head in meta["heads"]:
        views: list[View] = []
        for i, plain in enumerate(head["views"]):
            values = {k: v for k, v in plain.items() if k != "kind"}
            prefix = f"{head['name']}.{i}."
            for name, array in arrays.items():
                if name.startswith(prefix):
                    values[name.removeprefix(prefix)] = array.astype(np.float32) if array.dtype == np.float16 else array
            views.append(VIEWS[plain["kind"]](**values))
        heads[head["name"]] = Head(
            name=head["name"],
            views=tuple(views),
            weights=tuple(head["weights"]),
            bias=head["bias"],
            knots_x=arrays[f"{head['name']}.knots_x"],
            knots_y=arrays[f"{head['name']}.knots_y"],
        )
    support = None
    if meta["support"] is not None:
        support = Support(seen=np.unpackbits(arrays["support.seen"]).astype(bool), **meta["support"])
    encoder = Encoded(**meta["encoder"]) if "encoder" in meta else None
    return Model(
        heads=heads,
        gate=Gate(**meta["gate"]),
        support=support,
        notes=meta["notes"],
        encoder=encoder,
        signals=_signals(file, meta.get("signals")),
    )


def _signals(file: Path, written: Any) -> Part | None:
    part = None if written is None else msgspec.convert(written, Part)
    if part is not None and part.features != tuple(FEATURES):
        raise Incompatible(f"{file} was trained with other signals; train it again with `pointsman eval train`")
    return part
