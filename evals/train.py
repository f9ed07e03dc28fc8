"""`pointsman eval train`: a scorer for one pair of models, or the shipped general one.

For a pair, each form of prompt with enough rows gets a head. Its views see the prompt differently (form,
topics, characters), are fitted to expected gain, and count alike: weights fitted to what each was worth out of
fold follow the domains of the training data, and rank no better on its rows and worse on other domains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from evals import cascade, cases, general, recorded, signalled
from evals.cases import BadData, Pair
from evals.decisions import Scored
from evals.encoded import Reader
from evals.fit import (
    Examples,
    Fit,
    Floats,
    Ints,
    boosted,
    curve,
    hashed,
    head,
    kernel,
    length,
    meaning,
    out_of_fold,
    row_folds,
    semantic,
    standing,
)
from evals.targets import smoothed_gain
from evals.work import current
from router.scorers.features import OPTIONS, SURFACE
from router.scorers.heads import Gate, Head, Model
from router.types import Score

Progress = Callable[[str], None]

LEAST = 150  # rows of one form of prompt that are worth a head of their own
FOLDS = 3
OWN_LABEL = 0.3  # part of the pair's own label in the target, where other models say the rest
_FORM: Ints = np.arange(len(SURFACE) + len(OPTIONS), dtype=np.int64)


def views(n: int, *, encoded: bool = False) -> dict[str, Fit]:
    """The views of a pair's head, for `n` rows. Settings chosen by cross-validation on the shipped sets."""
    points = min(600, n)
    beside: dict[str, Fit] = {"meaning": meaning(ridge=10.0)} if encoded else {}
    return beside | {
        "form": kernel(_FORM, gamma=0.01, ridge=10.0, points=points),
        "topics": semantic(_FORM, topics=32, ridge=10.0, points=points),
        "chars": hashed("chars", ridge=100.0),
        "trees": boosted(_FORM, rounds=120, rate=0.05, leaves=8, least=40),
    }


# --- heads -----------------------------------------------------------------------------------------------


def stacked(name: str, x: Examples, y: Floats, fail: Floats, say: Progress) -> tuple[Head, Floats]:
    """One head: views fitted to `y`, stacked, calibrated to `fail`; and its scores out of fold."""
    fits = views(len(x), encoded=all(f.meaning is not None for f in x.features))
    oof = predicted(name, x, y, fits)
    say(f"head {name}: {len(x)} rows, views " + ", ".join(fits))
    made = head(name, x, y, list(fits.values()), [1.0 / len(fits)] * len(fits), oof, fail)
    mixed = made.bias + sum(w * v for w, v in zip(made.weights, oof, strict=True))
    return made, np.interp(np.asarray(mixed), made.knots_x, made.knots_y)


def predicted(name: str, x: Examples, y: Floats, fits: Mapping[str, Fit]) -> list[Floats]:
    """What each view says out of fold: most of the work of training, kept if it stops."""
    work, folds = current(), row_folds(len(x), FOLDS, seed=1)
    out: list[Floats] = []
    with work.steps(f"head {name}, views held out", len(fits)) as step:
        for view, fit in fits.items():
            vectors = (x.meaning,) if view == "meaning" else ()
            made_from = (view, *folds, y, *x.prompts, *vectors)
            out.append(work.floats(made_from, partial(out_of_fold, fit, x, y, folds)))
            step()
    return out


def by_length(x: Examples, fail: Floats) -> Head:
    """For forms of prompt that training has not seen: longer is harder."""
    sizes = x.dense[:, 0].astype(np.float64)
    centre, spread = standing(sizes)
    xs, ys = curve((sizes - centre) / spread, fail)
    return Head(
        name="length", views=(length(x, fail),), weights=(1.0 / spread,), bias=-centre / spread, knots_x=xs, knots_y=ys
    )


def for_pair(
    pair: Pair,
    *,
    estimated: Floats | None = None,
    say: Progress = lambda line: None,
    reader: Reader | None = None,
) -> Model:
    """A scorer for one pair.

    `estimated` is the gain where the pair's labels are in part predictions. With a `reader` it is the encoder scorer's,
    else the lexical one's.
    """
    return _for_pair(pair, estimated, say, reader)[0]


def _for_pair(pair: Pair, estimated: Floats | None, say: Progress, reader: Reader | None) -> tuple[Model, Floats]:
    """The scorer, and what its heads say of each prompt out of fold."""
    x = (reader or Examples)(pair.prompts)
    fail = 1.0 - pair.weak
    target = smoothed_gain(pair, OWN_LABEL) if estimated is None else estimated
    heads = {"length": by_length(x, fail)}
    told: Floats = np.array([heads["length"].score(f) for f in x.features])
    exam = x.options >= 3
    names = {"exam": "", "open": ""}
    for name, rows in (("exam", exam), ("open", ~exam)):
        at = np.flatnonzero(rows)
        if len(at) < min(LEAST, len(x) // 2):
            continue
        heads[name], told[at] = stacked(name, x.take(at), target[at], fail[at], say)
        names[name] = name
    gate = Gate(
        few=names["exam"] or "length", many=names["exam"] or "length", problem="", open=names["open"] or "length"
    )
    notes: dict[str, Any] = {"kind": "pair", "rows": len(x), "data": pair.table.digest}
    return Model(heads=heads, gate=gate, support=None, notes=notes, encoder=reader and reader.encoded), told


def model(
    data: Sequence[Path],
    weak: str | None,
    strong: str | None,
    say: Progress,
    reader: Reader | None = None,
) -> Model:
    """What `eval train` writes: for the pair, or the general scorer without one."""
    if weak is None or strong is None:
        if data:
            raise BadData("the general scorer is built from evals/data; name --weak and --strong to train on a file")
        return general.train(say, reader)
    return for_pair(pairs(data, weak, strong), say=say, reader=reader)


def from_records(
    files: Sequence[Path], weak: str | None, strong: str | None, say: Progress, reader: Reader | None = None
) -> Model:
    """A scorer for two groups, from what was judged of their answers. Raises `BadData`."""
    found = recorded.read(files, "small" if weak is None else weak, "large" if strong is None else strong)
    pair, gain = recorded.estimate(found, say)
    made, told = _for_pair(pair, gain, say, reader)
    chance = 1.0 - recorded.chance_of_strong(found)[0]
    return replace(made, signals=signalled.fit(told, found.answers, chance, say))


def pairs(data: Sequence[Path], weak: str | None, strong: str | None) -> Pair:
    """The pair's rows in several files as one. Raises `BadData`."""
    if not data or weak is None or strong is None:
        raise BadData("training for a pair needs --data FILE, --weak COLUMN and --strong COLUMN")
    found = [cases.pair(cases.read(d), weak, strong) for d in data]
    return found[0] if len(found) == 1 else join(found)


def join(pairs: Sequence[Pair]) -> Pair:
    """The rows of several files as one; only columns that all of them have are kept."""
    shared = [c for c in pairs[0].table.columns if all(c in p.table.columns for p in pairs)]
    columns = {c: [p.table.columns[c][i] for p in pairs for i in p.rows] for c in shared}
    table = cases.Table(path=pairs[0].table.path, columns=columns, digest="+".join(p.table.digest[:16] for p in pairs))
    rows: NDArray[np.int64] = np.arange(sum(map(len, pairs)), dtype=np.int64)
    return Pair(
        table=table,
        rows=rows,
        prompts=[t for p in pairs for t in p.prompts],
        weak=np.concatenate([p.weak for p in pairs]),
        strong=np.concatenate([p.strong for p in pairs]),
    )


# --- cascades --------------------------------------------------------------------------------------------


def cascade_scores(pair: Pair, told: cascade.Told, scorer: str, parts: Sequence[Ints] | None, say: Progress) -> Scored:
    """A cascade's scores: out of fold where `parts` are given, else by the artifact `scorer`."""
    if parts is None:
        values = cascade.read(Path(scorer)).scores(pair.prompts, told)
    else:
        values = np.zeros(len(pair))
        for i, held in enumerate(parts, 1):
            rest = np.setdiff1d(np.arange(len(pair)), held)
            made = cascade.fit(pair.take(rest), told.take(rest))
            values[held] = made.scores([pair.prompts[int(r)] for r in held], told.take(held))
            say(f"fold {i} of {len(parts)}: {len(held)} rows held out")
    return Scored(answers=[Score(scorer="cascade", value=float(v)) for v in np.clip(values, 0.0, 1.0)])


def write_cascade(pair: Pair, told: cascade.Told, out: Path) -> None:
    """Fit on all rows and write the artifact."""
    cascade.fit(pair, told).save(out)
