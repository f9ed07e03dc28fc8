"""`pointsman eval table`: every scorer on every shipped set, with intervals, as Markdown for docs/quality.md.

Nothing is measured on rows that it was fitted on: the shipped scorer's heads are refitted without each fold, on
rows and on whole domains. Each finished measurement is kept in a folder, and the parts of an unfinished one beside
it, so that an interrupted run goes on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from evals import cascade, cases, decisions, general, metrics, run, train
from evals.cases import Pair
from evals.encoded import Reader
from evals.fit import Examples, Floats, Ints, group_folds, out_of_fold, row_folds, standing
from evals.libraries import library
from evals.work import beside, going

Progress = Callable[[str], None]

SCOUTS = ("Phi-3-mini-4k-instruct", "Mistral-7B-Instruct-v0.2", "mathstral-7B")
CASCADES = {
    "MMLU-Pro, Llama-3.1 8B to 70B": SCOUTS,
    "MMLU-Pro, Mixtral to Gemini-1.5-pro": (*SCOUTS, "Meta-Llama-3_1-8B-Instruct"),
}
# Sets that no exam head of the shipped scorers is trained on: file, weak, strong, and the one task that is looked at.
OTHERS: dict[str, tuple[str, str, str, str | None]] = {
    "ZeroEval (CRUX, MATH level 5), Llama-3.1 8B to 70B": (
        "zeroeval_crux_math5.parquet",
        "correct:Meta-Llama-3.1-8B-Instruct",
        "correct:Meta-Llama-3.1-70B-Instruct",
        None,
    ),
    "LLMRouter (13 tasks), Mistral-7B to Nemotron-51B": (
        "ulab_llmrouter_9models.parquet",
        "score:mistral-7b-instruct-v0.3",
        "score:llama-3.1-nemotron-51b-instruct",
        None,
    ),
    "GSM8K (404 rows), Mistral-7B to Nemotron-51B": (
        "ulab_llmrouter_9models.parquet",
        "score:mistral-7b-instruct-v0.3",
        "score:llama-3.1-nemotron-51b-instruct",
        "gsm8k",
    ),
}
FOLDS = 3  # for cascades: two thirds of the rows
NEAR = 0.6  # cosine of character n-grams from which two prompts count as near-duplicates


def stacked(x: Examples, target: Floats, fits: general.Views, folds: Sequence[Ints]) -> Floats:
    """Out-of-fold predictions of a head's views, stacked as the shipped head stacks them."""
    total = np.zeros(len(x))
    for fit, part in fits.values():
        held = out_of_fold(fit, x, target, folds)
        total += part * (held - held.mean()) / standing(held)[1]
    return total


def _cell(value: Any, span: Any) -> str:
    return f"{value:.3f} [{span[0]:.3f}, {span[1]:.3f}]"


def _pair_result(pair: Pair, ranking: Floats) -> dict[str, Any]:
    length = np.array([float(len(p)) for p in pair.prompts])
    drawn = metrics.bootstrap({"s": ranking, "l": length}, pair.weak, pair.strong, seed=0)
    own, other, gap = drawn.interval("s"), drawn.interval("l"), drawn.difference("s", "l")
    return {
        "apgr": metrics.apgr(ranking, pair.weak, pair.strong),
        "ci": [own.low, own.high],
        "length": metrics.apgr(length, pair.weak, pair.strong),
        "length_ci": [other.low, other.high],
        "over_length": [gap.low, gap.high],
        "cpt50": metrics.share_for(0.5, ranking, pair.weak, pair.strong),
    }


def general_rows(say: Progress, reader: Reader | None = None) -> dict[str, Any]:
    """A general scorer's exam heads on their own sets, out of fold."""
    read = reader or Examples
    out: dict[str, Any] = {}
    for part in (general.few_options(), general.many_options(read)):
        for how, folds in (("rows", row_folds(len(part.x), 5, 0)), ("domains", group_folds(part.domains, 5))):
            ranking = stacked(part.x, part.target, part.fits, folds)
            for label, pair in part.pairs.items():
                out[f"{label} | {how}"] = _pair_result(
                    pair, ranking[pair.rows] if len(pair) < len(ranking) else ranking
                )
                say(f"general, {label}, {how}: {out[f'{label} | {how}']['apgr']:.3f}")
    return out


def pair_rows(say: Progress, reader: Reader | None = None) -> dict[str, Any]:
    """Trained for the pair, out of fold."""
    out: dict[str, Any] = {}
    for part, column in ((general.few_options(), "subject"), (general.many_options(), "category")):
        for label, pair in part.pairs.items():
            for how, holdout in (("rows", None), ("domains", column)):
                parts = run.folds(pair, 5, holdout)
                fit = partial(train.for_pair, reader=reader)
                scored = run.cross_validated(pair, parts, fit, say, reader)
                out[f"{label} | {how}"] = _pair_result(pair, scored.ranking)
                say(f"for the pair, {label}, {how}: {out[f'{label} | {how}']['apgr']:.3f}")
    return out


def cascade_rows(say: Progress) -> dict[str, Any]:
    """Cascades with the scouts' answers, out of fold."""
    out: dict[str, Any] = {}
    for label, pair in general.many_options().pairs.items():
        told = cascade.told(pair, general.PAIRS[label][0], CASCADES[label])
        for how, holdout in (("rows", None), ("domains", "category")):
            scored = train.cascade_scores(pair, told, "", run.folds(pair, FOLDS, holdout), say)
            out[f"{label} | {how}"] = _pair_result(pair, scored.ranking)
            say(f"cascade, {label}, {how}: {out[f'{label} | {how}']['apgr']:.3f}")
    return out


def other_rows(say: Progress) -> dict[str, Any]:
    """On sets that no exam head is trained on: the shipped scorers as they are, one for the pair out of fold."""
    out: dict[str, Any] = {}
    for label, (file, weak, strong, task) in OTHERS.items():
        pair = cases.pair(cases.read(general.BENCHMARKS / file), weak, strong)
        if task is not None:
            pair = pair.take(np.flatnonzero([t == task for t in pair.values("task")]))
        for name in ("lexical", "encoder"):
            scored = decisions.score(decisions.find(name, None), pair.prompts)
            out[f"{label} | {name}, as shipped"] = _pair_result(pair, scored.ranking)
        holds = (None,) if task is not None else (None, "task")
        for holdout in holds:
            scored = run.cross_validated(pair, run.folds(pair, 5, holdout), train.for_pair, say)
            out[f"{label} | for the pair, {'tasks' if holdout else 'rows'} held out"] = _pair_result(
                pair, scored.ranking
            )
        say(f"{label}: done")
    return out


def near_duplicates(x: Examples) -> list[str]:
    """A group name per prompt: prompts joined by a chain of close character n-grams share one."""
    m = x.sparse("chars")
    close = m @ m.T
    close.data = (close.data >= NEAR).astype(np.int8)
    close.eliminate_zeros()
    labels: Ints = library("scipy.sparse.csgraph").connected_components(close, directed=False)[1]
    return [str(v) for v in labels.tolist()]


def _auroc(score: Floats, hard: Floats) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    draws: list[float] = []
    for _ in range(metrics.DRAWS):
        pick = rng.integers(0, len(score), len(score))
        value = metrics.auroc(score[pick], hard[pick] > 0.5)
        if value is not None:
            draws.append(value)
    low, high = np.quantile(draws, [0.025, 0.975])
    return {"auroc": metrics.auroc(score, hard > 0.5), "ci": [float(low), float(high)]}


def everyday_rows(say: Progress, reader: Reader | None = None) -> dict[str, Any]:
    """The everyday head on everyday prompts: rows, near-duplicates, languages and kinds held out, and by language."""
    prompts, hard, langs, kinds = general.everyday()
    read = reader or Examples
    x = read(prompts)
    fits = general.open_views(read)
    folds = {
        "rows": row_folds(len(x), 5, 0),
        "near-duplicates": group_folds(near_duplicates(x), 5),
        "kinds": group_folds(kinds, 6),
        "languages": group_folds(langs, 8),
    }
    out: dict[str, Any] = {"length": _auroc(x.dense[:, 0].astype(np.float64), hard)}
    for how, parts in folds.items():
        score = stacked(x, hard, fits, parts)
        out[how] = _auroc(score, hard)
        say(f"everyday, {how}: {out[how]['auroc']:.3f}")
        if how == "rows":
            for lang in sorted(set(langs)):
                at = np.array([v == lang for v in langs])
                out[f"language {lang}"] = _auroc(score[at], hard[at])
    return out


def _encoded(
    rows: Callable[[Progress, Reader | None], dict[str, Any]],
) -> Callable[[Progress, Path], dict[str, Any]]:
    return lambda say, keep: rows(say, Reader(keep=keep))


MEASUREMENTS: dict[str, Callable[[Progress, Path], dict[str, Any]]] = {
    "everyday": lambda say, _: everyday_rows(say),
    "general": lambda say, _: general_rows(say),
    "cascade": lambda say, _: cascade_rows(say),
    "pair": lambda say, _: pair_rows(say),
    "others": lambda say, _: other_rows(say),
    "everyday-encoder": _encoded(everyday_rows),
    "general-encoder": _encoded(general_rows),
    "pair-encoder": _encoded(pair_rows),
}
QUICK = ("everyday", "general")


def measure(say: Progress, keep: Path, *, only: Sequence[str] | None = None) -> dict[str, Any]:
    """Every measurement, or those named in `only`; from `keep` where it is already there."""
    keep.mkdir(parents=True, exist_ok=True)
    out: dict[str, Any] = {}
    for name, make in MEASUREMENTS.items():
        file = keep / f"{name}.json"
        if file.is_file():
            out[name] = json.loads(file.read_text(encoding="utf-8"))
        elif only is None or name in only:
            with going(beside(file)):
                out[name] = make(say, keep)
            file.write_text(json.dumps(out[name], indent=1) + "\n", encoding="utf-8")
    return out


def table(results: dict[str, Any]) -> str:
    """The measurements as Markdown."""
    held = {"rows": "rows", "domains": "whole domains"}
    lines = [
        "| set | held out | prompt length | lexical | encoder | lexical, the pair's | encoder, the pair's | cascade |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for key, general_ in results.get("general", {}).items():
        label, how = key.split(" | ")
        cells = [_cell(general_["length"], general_["length_ci"]), _cell(general_["apgr"], general_["ci"])]
        for name in ("general-encoder", "pair", "pair-encoder", "cascade"):
            found = results.get(name, {}).get(key)
            cells.append("" if found is None else _cell(found["apgr"], found["ci"]))
        lines.append(f"| {label} | {held[how]} | " + " | ".join(cells) + " |")
    lines += ["", "| everyday prompts, AUROC | lexical | encoder |", "|---|---|---|"]
    beside = results.get("everyday-encoder", {})
    for how, found in results.get("everyday", {}).items():
        name = f"prompt {how}" if how == "length" else how if how.startswith("language ") else f"{how} held out"
        cells = [_cell(f["auroc"], f["ci"]) for f in (found, beside.get(how)) if f is not None]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += ["", "| other sets | scorer | prompt length | APGR |", "|---|---|---|---|"]
    for key, found in results.get("others", {}).items():
        label, name = key.split(" | ")
        own = _cell(found["apgr"], found["ci"])
        lines.append(f"| {label} | {name} | {_cell(found['length'], found['length_ci'])} | {own} |")
    return "\n".join(lines) + "\n"
