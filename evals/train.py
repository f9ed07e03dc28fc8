"""`pointsman eval train`: a scorer for one pair of models, or the shipped general one.

For a pair, each form of prompt with enough rows gets a head. Its views see the prompt differently (form,
topics, characters), are fitted to expected gain, and are stacked by what they were worth on rows
and on whole domains left out, so that the blend also holds on domains that training has not seen.
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
    group_folds,
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
from evals.libraries import library
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


def stacked(
    name: str, x: Examples, y: Floats, gain: Floats, fail: Floats, groups: Sequence[str] | None, say: Progress
) -> tuple[Head, Floats]:
    """One head: views fitted to `y`, stacked for `gain`, calibrated to `fail`; and its scores out of fold."""
    fits = views(len(x), encoded=all(f.meaning is not None for f in x.features))
    folds = [row_folds(len(x), FOLDS, seed=1)]
    if groups is not None and len(set(groups)) >= 3:
        folds.append(group_folds(groups, FOLDS))
    by_row, *rest = predicted(name, x, y, fits, folds)
    by_group = rest[0] if rest else []
    weights = blend(by_row, by_group, gain)
    say(f"head {name}: {len(x)} rows, " + ", ".join(f"{n} {w:.2f}" for n, w in zip(fits, weights, strict=True)))
    kept = [i for i, w in enumerate(weights) if w > 0.02]
    chosen = list(fits.values())
    oof = [by_row[i] for i in kept]
    made = head(name, x, y, [chosen[i] for i in kept], [weights[i] for i in kept], oof, fail)
    mixed = made.bias + sum(w * v for w, v in zip(made.weights, oof, strict=True))
    return made, np.interp(np.asarray(mixed), made.knots_x, made.knots_y)


def predicted(
    name: str, x: Examples, y: Floats, fits: Mapping[str, Fit], folds: Sequence[Sequence[Ints]]
) -> list[list[Floats]]:
    """What each view says out of fold, by each way to hold out: most of the work of training, kept if it stops."""
    work = current()
    out: list[list[Floats]] = []
    with work.steps(f"head {name}, views held out", len(folds) * len(fits)) as step:
        for parts in folds:
            out.append([])
            for view, fit in fits.items():
                vectors = (x.meaning,) if view == "meaning" else ()
                made_from = (view, *parts, y, *x.prompts, *vectors)
                out[-1].append(work.floats(made_from, partial(out_of_fold, fit, x, y, parts)))
                step()
    return out


def blend(by_row: Sequence[Floats], by_group: Sequence[Floats], gain: Floats) -> list[float]:
    """Weights of the views: non-negative least squares on both kinds of held-out predictions, half-way to equal."""
    blocks: list[Floats] = []
    for views_ in (by_row, by_group):
        if views_:
            blocks.append(np.column_stack([(v - v.mean()) / standing(v)[1] for v in views_]))
    a = np.vstack(blocks)
    y = np.concatenate([gain - gain.mean()] * len(blocks))
    found: Floats = library("scipy.optimize").nnls(a, y)[0]
    total = float(found.sum())
    equal = np.full(len(by_row), 1.0 / len(by_row))
    mixed = equal if total <= 0 else 0.5 * found / total + 0.5 * equal
    return [float(w) for w in mixed]


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
    groups: str | None = None,
    estimated: Floats | None = None,
    say: Progress = lambda line: None,
    reader: Reader | None = None,
) -> Model:
    """A scorer for one pair. `groups` names the domain column; found by its usual names when None.

    `estimated` is the gain where the pair's labels are in part predictions. With a `reader` it is the encoder scorer's,
    else the lexical one's.
    """
    return _for_pair(pair, groups, estimated, say, reader)[0]


def _for_pair(
    pair: Pair, groups: str | None, estimated: Floats | None, say: Progress, reader: Reader | None
) -> tuple[Model, Floats]:
    """The scorer, and what its heads say of each prompt out of fold."""
    x = (reader or Examples)(pair.prompts)
    domain = pair.values(groups) if groups is not None else pair.domain()
    gain, fail = pair.strong - pair.weak if estimated is None else estimated, 1.0 - pair.weak
    target = smoothed_gain(pair, OWN_LABEL) if estimated is None else estimated
    heads = {"length": by_length(x, fail)}
    told: Floats = np.array([heads["length"].score(f) for f in x.features])
    exam = x.options >= 3
    names = {"exam": "", "open": ""}
    for name, rows in (("exam", exam), ("open", ~exam)):
        at = np.flatnonzero(rows)
        if len(at) < min(LEAST, len(x) // 2):
            continue
        part = None if domain is None else [domain[i] for i in at]
        heads[name], told[at] = stacked(name, x.take(at), target[at], gain[at], fail[at], part, say)
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
    holdout: str | None,
    say: Progress,
    reader: Reader | None = None,
) -> Model:
    """What `eval train` writes: for the pair, or the general scorer without one."""
    if weak is None or strong is None:
        if data:
            raise BadData("the general scorer is built from evals/data; name --weak and --strong to train on a file")
        return general.train(say, reader)
    return for_pair(pairs(data, weak, strong), groups=holdout, say=say, reader=reader)


def from_records(
    files: Sequence[Path], weak: str | None, strong: str | None, say: Progress, reader: Reader | None = None
) -> Model:
    """A scorer for two groups, from what was judged of their answers. Raises `BadData`."""
    found = recorded.read(files, "small" if weak is None else weak, "large" if strong is None else strong)
    pair, gain = recorded.estimate(found, say)
    made, told = _for_pair(pair, None, gain, say, reader)
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
