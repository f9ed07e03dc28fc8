"""Cascades: scoring after the weak model has answered, by whether other small models say the same.

What a cascade knows beside the prompt is a row of answers; agreement among small models is worth more than
anything the prompt tells. The answers are compared as text, so letters, numbers and labels work.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct

from evals.cases import BadData, Pair, Table, column
from evals.fit import (
    Examples,
    Fit,
    Floats,
    Ints,
    boosted,
    curve,
    hashed,
    kernel,
    out_of_fold,
    predict,
    row_folds,
    standing,
)
from router.scorers import cascade as shared
from router.scorers import heads
from router.scorers.features import OPTIONS, SURFACE, Features
from router.scorers.heads import Gate, Head, Model

PROMPT_VIEWS = 2
_FORM: Ints = np.arange(len(SURFACE) + len(OPTIONS), dtype=np.int64)


class Told(Struct, frozen=True, kw_only=True):
    """The weak model's answer and the scouts' for each row, as bare text; empty = none."""

    weak: list[str]
    scouts: list[list[str]]  # per scout

    def take(self, rows: Ints) -> Told:
        return Told(weak=[self.weak[i] for i in rows], scouts=[[s[i] for i in rows] for s in self.scouts])


def _answers(table: Table, name: str) -> list[str]:
    full = name if name in table.columns else f"answer:{name}"
    if full not in table.columns:
        full = column(table, name)
    return ["" if v is None else " ".join(str(v).casefold().split()) for v in table.columns[full]]


def told_of(table: Table, answer: str, scouts: Sequence[str]) -> Told:
    """The answers of every row of a table. Raises `BadData` where a column is missing."""
    if not scouts:
        raise BadData("a cascade needs at least one scout")
    return Told(weak=_answers(table, answer), scouts=[_answers(table, s) for s in scouts])


def told(pair: Pair, answer: str, scouts: Sequence[str]) -> Told:
    """The same for the rows of a pair."""
    return told_of(pair.table, answer, scouts).take(pair.rows)


def agreement(t: Told) -> Floats:
    """How the answers of each row agree, as the scorer that serves sees it."""
    return np.array([shared.agreement(weak, [s[i] for s in t.scouts]) for i, weak in enumerate(t.weak)])


def _prompt_fits(n: int) -> list[Fit]:
    return [kernel(_FORM, gamma=0.01, ridge=10.0, points=min(600, n)), hashed("chars", ridge=100.0)]


def _rows(x: Examples, agreed: Floats, prompt: Sequence[Floats]) -> Examples:
    dense = np.column_stack([agreed, *prompt, x.dense[:, shared.KEPT]]).astype(np.float32)
    features = [Features(f.reading, f.options, d) for f, d in zip(x.features, dense, strict=True)]
    return Examples(x.prompts, features)


class Cascade(Struct, frozen=True, kw_only=True):
    """A prompt model with one head per view, and a model over agreement, those heads and the form."""

    prompt: Model
    joint: Model

    def scores(self, prompts: Sequence[str], t: Told) -> Floats:
        """Calibrated chance that the weak model's answer is wrong, ranked by what the strong model would add."""
        x = Examples(prompts)
        seen = [_raw(h, x) for h in self.prompt.heads.values()]
        rows = _rows(x, agreement(t), seen)
        (joint,) = self.joint.heads.values()
        return np.interp(_raw(joint, rows), joint.knots_x, joint.knots_y)

    def save(self, directory: Path) -> None:
        heads.dump(self.prompt, directory)
        heads.dump(self.joint, directory / shared.JOINT)


def read(directory: Path) -> Cascade:
    """A cascade that `save` wrote. Raises `BadData`."""
    try:
        return Cascade(prompt=heads.load(directory), joint=heads.load(directory / shared.JOINT))
    except (heads.Incompatible, OSError) as e:
        raise BadData(f"{directory} is not a cascade artifact: {e}") from e


def _raw(head: Head, x: Examples) -> Floats:
    total = np.full(len(x), head.bias)
    for weight, view in zip(head.weights, head.views, strict=True):
        total += weight * predict(view, x)  # pyright: ignore[reportArgumentType]
    return total


def fit(pair: Pair, t: Told) -> Cascade:
    """Fit prompt views on the prompt, then a joint head on their out-of-fold predictions and the agreement."""
    x = Examples(pair.prompts)
    target, fail = pair.strong - pair.weak, 1.0 - pair.weak  # other models' labels would repeat what the scouts say
    folds = row_folds(len(x), 4, seed=1)
    fits = _prompt_fits(len(x))
    outside = [out_of_fold(f, x, target, folds) for f in fits]
    flat = (np.array([-10.0, 10.0], np.float32), np.array([0.0, 1.0], np.float32))
    prompt = {
        name: Head(name=name, views=(f(x, target),), weights=(1.0,), bias=0.0, knots_x=flat[0], knots_y=flat[1])
        for name, f in zip(("form", "chars"), fits, strict=True)
    }
    rows = _rows(x, agreement(t), outside)
    every: Ints = np.arange(rows.dense.shape[1], dtype=np.int64)
    joint = [
        kernel(every, gamma=0.03, ridge=10.0, points=min(500, len(x))),
        boosted(every, rounds=80, rate=0.06, leaves=8, least=30),
    ]
    held = [out_of_fold(f, rows, target, folds) for f in joint]
    weights = [1.0 / standing(h)[1] for h in held]
    bias = -sum(w * standing(h)[0] for w, h in zip(weights, held, strict=True))
    mixed = bias + sum(w * h for w, h in zip(weights, held, strict=True))
    xs, ys = curve(np.asarray(mixed), fail)
    head = Head(
        name="joint",
        views=tuple(f(rows, target) for f in joint),
        weights=tuple(weights),
        bias=float(bias),
        knots_x=xs,
        knots_y=ys,
    )
    notes = {"kind": "cascade", "scouts": len(t.scouts), "rows": len(x)}
    gate = Gate()
    return Cascade(
        prompt=Model(heads=prompt, gate=gate, support=None, notes=notes),
        joint=Model(heads={"joint": head}, gate=gate, support=None, notes=notes),
    )
