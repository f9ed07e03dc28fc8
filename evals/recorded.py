"""`pointsman eval train --from-records`: from exported records with judgements to what a scorer is trained on.

A request was answered by one group, so of most prompts only one of two labels is known, and the router itself chose
which. The gain is therefore estimated doubly robustly (Kennedy 2020, arXiv:2004.14497): what each group is worth is
predicted out of fold, and corrected where it was seen, by how likely it was to be seen. No fitting of scorers here.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Struct

from evals.cases import BadData, Pair, Table
from evals.fit import Examples, Fit, Floats, Ints, hashed, kernel, predict, row_folds
from evals.signalled import Occasions
from router import record
from router.scorers.features import OPTIONS, SURFACE
from router.scorers.signalled import FEATURES, vector
from router.types import Record, Score, Signals

LEAST_EACH = 50  # judged prompts of each group; fewer predict nothing
FOLDS = 5
_SHY, _SHY_ESTIMATED = 0.02, 0.1  # chances nearer to 0 would let one row outweigh fifty, or ten where not logged
_BINS = 10  # of the recorded score, to estimate the chance of a group
_FORM: Ints = np.arange(len(SURFACE) + len(OPTIONS), dtype=np.int64)

Unit = Annotated[float, msgspec.Meta(ge=0, le=1)]


class _Feedback(Struct):
    score: Unit


class _Beside(Struct):
    """What a line holds beside the record."""

    feedback: _Feedback | None = None


class Judged(Struct, frozen=True, kw_only=True):
    """Prompts with what was judged of them; nan where a group did not answer."""

    prompts: list[str]
    weak: Floats
    strong: Floats
    score: Floats  # the recorded one, nan where there is none
    chance: Floats  # logged chance of strong, nan where none is
    answers: Occasions  # of weak, one by one, with the signals of each
    digest: str


class _Seen:
    """One prompt's judgements while they are gathered."""

    def __init__(self) -> None:
        self.weak: list[float] = []
        self.strong: list[float] = []
        self.score: list[float] = []
        self.chance: list[float] = []
        self.signals: list[tuple[float, ...]] = []  # one for each of `weak`

    def row(self) -> tuple[float, float, float, float]:
        weak, strong, score, chance = (
            float(np.mean(v)) if v else float("nan") for v in (self.weak, self.strong, self.score, self.chance)
        )
        return weak, strong, score, chance


def read(paths: Sequence[Path], weak: str, strong: str) -> Judged:
    """The judged prompts of exported records. Raises `BadData` where they are too few, or teach nothing."""
    if weak == strong:
        raise BadData(f"--weak and --strong are both {weak!r}; name two groups")
    prompts: dict[str, _Seen] = {}
    passed: Counter[str] = Counter()
    ids: set[str] = set()
    digest = hashlib.sha256()
    for path in paths:
        for number, line in enumerate(_lines(path), 1):
            digest.update(line)
            if line.strip():
                passed[_take(f"{path}:{number}", line, weak, strong, prompts, ids)] += 1
    rows = [seen.row() for seen in prompts.values()]
    table: Floats = np.array(rows, dtype=np.float64).reshape(len(rows), 4)
    found = Judged(
        prompts=list(prompts),
        weak=table[:, 0],
        strong=table[:, 1],
        score=table[:, 2],
        chance=table[:, 3],
        answers=_answers(list(prompts.values())),
        digest=digest.hexdigest(),
    )
    _check(found, passed, weak, strong)
    return found


def _answers(seen: Sequence[_Seen]) -> Occasions:
    features = [signals for one in seen for signals in one.signals]
    return Occasions(
        place=np.repeat(np.arange(len(seen), dtype=np.int64), [len(one.weak) for one in seen]),
        features=np.array(features, dtype=np.float64).reshape(len(features), len(FEATURES)),
        failed=1.0 - np.array([value for one in seen for value in one.weak], dtype=np.float64),
    )


def _lines(path: Path) -> list[bytes]:
    if not path.is_file():
        raise BadData(f"{path}: no such file; `pointsman records export --out {path}` writes one")
    return path.read_bytes().splitlines()


_TAKEN = "judged"
_NO_FEEDBACK = "without feedback"
_NO_PROMPT = "without a prompt"


def _take(place: str, line: bytes, weak: str, strong: str, prompts: dict[str, _Seen], ids: set[str]) -> str:
    """Add one record to the prompts; what became of it."""
    try:
        read, beside = record.decode(line), msgspec.json.decode(line, type=_Beside)
    except (msgspec.MsgspecError, RecursionError) as e:
        raise BadData(f"{place}: not an exported record: {e}") from e
    if read.id in ids:
        return "given twice"
    ids.add(read.id)
    if read.signals is not None and read.signals.side_request:
        return "beside a conversation (titles, summaries)"
    if read.outcome != "ok":
        return "without a whole answer"
    if beside.feedback is None:
        return _NO_FEEDBACK
    if not read.prompt or not read.prompt.strip():
        return _NO_PROMPT
    group = record.group(read)
    if group not in (weak, strong):
        return f"of the group {group!r}"
    seen = prompts.setdefault(read.prompt, _Seen())
    (seen.strong if group == strong else seen.weak).append(beside.feedback.score)
    if group == weak:
        seen.signals.append(vector(read.signals or Signals()))
    score = _score(read)
    if score is not None:
        seen.score.append(score)
    made = read.decision
    if made is not None and made.group == group and made.propensity < 1.0:
        seen.chance.append(made.propensity if group == strong else 1.0 - made.propensity)
    return _TAKEN


def _score(read: Record) -> float | None:
    if read.decision is not None and read.decision.score is not None:
        return read.decision.score
    return next((s.value for s in read.scores.values() if isinstance(s, Score)), None)


def _check(found: Judged, passed: Counter[str], weak: str, strong: str) -> None:
    told = ", ".join(f"{count} {what}" for what, count in passed.most_common()) or "none"
    if not passed[_TAKEN] and passed[_NO_PROMPT]:
        raise BadData(
            f"records: {told}; no judged record holds its prompt. `record_prompts: true` in the policy keeps prompts "
            "from then on"
        )
    if not passed[_TAKEN] and passed[_NO_FEEDBACK]:
        raise BadData(f"records: {told}; clients give feedback with POST /v1/feedback, and exports carry it")
    for name, values in ((weak, found.weak), (strong, found.strong)):
        known = values[~np.isnan(values)]
        if len(known) < LEAST_EACH:
            raise BadData(
                f"records: {told}; only {len(known)} prompts have a judged answer of the group {name!r}, and "
                f"{LEAST_EACH} are needed of each of {weak!r} and {strong!r}"
            )
    known = found.weak[~np.isnan(found.weak)]
    if np.ptp(known) == 0:
        raise BadData(
            f"records: every judged answer of {weak!r} has the score {known[0]:g}; nothing tells where it fails"
        )


def chance_of_strong(found: Judged) -> tuple[Floats, float]:
    """How likely each prompt was to go to strong, and the share of prompts where either group could have served.

    As logged; else the share among prompts with a like score, which is what the router chose by.
    """
    went: Floats = np.where(np.isnan(found.weak), 1.0, np.where(np.isnan(found.strong), 0.0, 0.5))
    estimated = np.full(len(went), went.mean())
    known = np.flatnonzero(~np.isnan(found.score))
    for part in np.array_split(known[np.argsort(found.score[known], kind="stable")], _BINS):
        if len(part):
            estimated[part] = went[part].mean()
    logged = ~np.isnan(found.chance)
    possible = logged | ((estimated > 0.02) & (estimated < 0.98))
    least = np.where(logged, _SHY, _SHY_ESTIMATED)
    return np.clip(np.where(logged, found.chance, estimated), least, 1.0 - least), float(possible.mean())


def estimate(found: Judged, say: Callable[[str], None]) -> tuple[Pair, Floats]:
    """The prompts as a pair whose holes are predictions, and the doubly robust gain of each."""
    x = Examples(found.prompts)
    chance, overlap = chance_of_strong(found)
    both = int((~np.isnan(found.weak) & ~np.isnan(found.strong)).sum())
    say(
        f"{len(x)} prompts: {int((~np.isnan(found.weak)).sum())} judged of weak, "
        f"{int((~np.isnan(found.strong)).sum())} of strong, {both} of both"
    )
    if overlap < 0.2:
        say(
            f"warning: for {100 * (1 - overlap):.0f}% of the prompts only one group could have served, so the gain is "
            "extrapolated; `explore` in the policy sends a share to the other group, `eval run --live` asks both"
        )
    weak, weak_dr = _completed(x, found.weak, 1.0 - chance)
    strong, strong_dr = _completed(x, found.strong, chance)
    columns = {"prompt": list(found.prompts)}
    table = Table(path=Path("records"), columns=columns, digest=found.digest)
    pair = Pair(table=table, rows=np.arange(len(x)), prompts=found.prompts, weak=weak, strong=strong)
    return pair, strong_dr - weak_dr


def _completed(x: Examples, seen: Floats, chance: Floats) -> tuple[Floats, Floats]:
    """The labels with predictions in the holes, and the doubly robust values."""
    known = ~np.isnan(seen)
    told = np.zeros(len(x))
    fits: tuple[Fit, ...] = (kernel(_FORM, gamma=0.01, ridge=10.0, points=300), hashed("words", ridge=30.0))
    for held in row_folds(len(x), FOLDS, seed=2):
        rest = np.setdiff1d(np.flatnonzero(known), held)
        views = [predict(fit(x.take(rest), seen[rest]), x.take(held)) for fit in fits]
        told[held] = np.mean(views, axis=0)
    told = np.clip(told, 0.0, 1.0)
    labels = np.where(known, seen, told)
    return labels, told + np.where(known, (np.nan_to_num(seen) - told) / chance, 0.0)
