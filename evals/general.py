"""The shipped general scorer: what it is trained on, and how.

One head per form of prompt. Questions with few options learn from MMLU, with many from MMLU-Pro, both on
expected gain (strong minus weak); everyday prompts learn from the labelled set; stories with sums to do
follow length, which is the best known there. Each head is then calibrated to the probability that the weak
model fails. Everything reads from `evals/data`, so that it rebuilds anywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from evals import cases
from evals.cases import Pair
from evals.encoded import Reader
from evals.fit import (
    Examples,
    Fit,
    Floats,
    Ints,
    Read,
    boosted,
    curve,
    hashed,
    head,
    kernel,
    length,
    meaning,
    out_of_fold,
    row_folds,
    standing,
)
from evals.targets import smoothed_gain
from router.scorers.features import DENSE, OPTIONS, SUPPORT_BITS, SURFACE, pieces
from router.scorers.heads import Gate, Head, Model, Support

DATA = Path(__file__).parent / "data"
BENCHMARKS = DATA / "benchmarks"
EVERYDAY = DATA / "everyday"

FILES = ("mmlu_pro_28models.parquet", "routellm_mmlu_gsm8k.parquet", "ulab_llmrouter_9models.parquet")  # learned from

FORM: Ints = np.arange(len(SURFACE) + len(OPTIONS))  # columns that say nothing of the kind of work
PART_OF_OWN_LABEL = 0.3  # the rest of the target is what the other models say
PAIRS = {
    "MMLU-Pro, Llama-3.1 8B to 70B": ("Meta-Llama-3_1-8B-Instruct", "Meta-Llama-3_1-70B-Instruct"),
    "MMLU-Pro, Mixtral to Gemini-1.5-pro": ("Mixtral-8x7B-Instruct-v0.1", "gemini-1.5-pro-002"),
}


def everyday() -> tuple[list[str], Floats, list[str], list[str]]:
    """The everyday prompts: text, 1 for hard, language, kind."""
    prompts: list[str] = []
    hard: list[float] = []
    langs: list[str] = []
    kinds: list[str] = []
    for path in sorted(EVERYDAY.glob("*.jsonl")):
        t = cases.read(path)
        prompts += t.prompts
        hard += [float(v == "hard") for v in t.columns["label"]]
        langs += [str(v) for v in t.columns["lang"]]
        kinds += [str(v) for v in t.columns["kind"]]
    return prompts, np.array(hard), langs, kinds


Views = dict[str, tuple[Fit, float]]  # name -> how to fit it, and its part in the stack


MEANING = 10.0  # ridge of the encoder's view, in every head that has one


def with_meaning(fits: Views, read: Read, part: float) -> Views:
    """The encoder's view beside the others, where prompts are read with an encoder."""
    return fits if read is Examples else fits | {"meaning": (meaning(ridge=MEANING), part)}


def _stack(name: str, x: Examples, y: Floats, target: Floats, fits: Views) -> Head:
    folds = row_folds(len(x), 5, seed=1)
    oof = [out_of_fold(f, x, y, folds) for f, _ in fits.values()]
    return head(name, x, y, [f for f, _ in fits.values()], [p for _, p in fits.values()], oof, target)


class Part(Struct, frozen=True, kw_only=True):
    """What one exam head learns from: prompts, target, outcome, views, domains, and the pairs it is judged by."""

    name: str
    x: Examples
    target: Floats
    fail: Floats
    fits: Views
    domains: list[str]
    pairs: dict[str, Pair]

    def head(self) -> Head:
        return _stack(self.name, self.x, self.target, self.fail, self.fits)


def few_options() -> Part:
    """Four-option questions: Mixtral-8x7B against GPT-4 on MMLU.

    Never with an encoder's view: it adds .004 on subjects that training has seen and costs as much on others.
    """
    p = cases.pair(cases.read(BENCHMARKS / "routellm_mmlu_gsm8k.parquet"), "mixtral_8x7b", "gpt4_1106")
    fits: Views = {
        "form": (kernel(FORM, gamma=0.01, ridge=10.0, points=700), 1.0),
        "chars": (hashed("chars", ridge=100.0), 0.8),
        "trees": (boosted(FORM, rounds=120, rate=0.05, leaves=8, least=40), 1.0),
    }
    return Part(
        name="few",
        x=Examples(p.prompts),
        target=p.strong - p.weak,
        fail=1.0 - p.weak,
        fits=fits,
        domains=p.values("subject"),
        pairs={"MMLU, Mixtral to GPT-4": p},
    )


def many_options(read: Read = Examples) -> Part:
    """Questions with up to ten options: two pairs of MMLU-Pro at once, the labels smoothed by the other models."""
    table = cases.read(BENCHMARKS / "mmlu_pro_28models.parquet")
    n = len(table)
    target, fail = np.zeros(n), np.zeros(n)
    pairs: dict[str, Pair] = {}
    for label, (weak, strong) in PAIRS.items():
        p = pairs[label] = cases.pair(table, weak, strong)
        gain = smoothed_gain(p, PART_OF_OWN_LABEL)
        target[p.rows] += gain / standing(gain)[1]
        fail[p.rows] += (1.0 - p.weak) / len(PAIRS)
    fits: Views = {
        "form": (kernel(FORM, gamma=0.01, ridge=10.0, points=700), 1.0),
        "chars": (hashed("chars", ridge=100.0), 0.7),
        "trees": (boosted(FORM, rounds=100, rate=0.05, leaves=8, least=40), 0.7),
    }
    domains = [str(c) for c in table.columns["category"]]
    return Part(
        name="many",
        x=read(table.prompts),
        target=target,
        fail=fail,
        fits=with_meaning(fits, read, 1.0),
        domains=domains,
        pairs=pairs,
    )


def stories() -> tuple[Head, Head]:
    """Sums told as a story: a head that recognises them, and one that ranks them by length."""
    table = cases.read(BENCHMARKS / "ulab_llmrouter_9models.parquet")
    tasks = [str(t) for t in table.columns["task"]]
    prompts, _, _, _ = everyday()
    x = Examples([*table.prompts, *prompts])
    y = np.array([float(t == "gsm8k") for t in tasks] + [0.0] * len(prompts))
    open_rows = x.options < 3
    x, y = x.take(open_rows), y[open_rows]
    fits: Views = {"form": (kernel(FORM, gamma=0.01, ridge=1.0, points=400), 1.0)}
    gate = _stack("is_problem", x, y, y, fits)
    rows = np.array([t == "gsm8k" for t in tasks])
    fail = np.nan_to_num(1.0 - cases.quality(table, "llama-3.1-8b-instruct"))[rows]
    sums = Examples([p for p, r in zip(table.prompts, rows, strict=True) if r])
    sizes = sums.dense[:, 0].astype(np.float64)
    centre, spread = standing(sizes)
    xs, ys = curve((sizes - centre) / spread, fail)
    return gate, Head(
        name="problem",
        views=(length(sums, fail),),
        weights=(1.0 / spread,),
        bias=-centre / spread,
        knots_x=xs,
        knots_y=ys,
    )


def everyday_head(read: Read = Examples) -> tuple[Head, Examples]:
    """Everything without options: easy or hard for a person who pays for the answer."""
    prompts, hard, _, _ = everyday()
    x = read(prompts)
    return _stack("open", x, hard, hard, open_views(read)), x


def open_views(read: Read = Examples) -> Views:
    """The views of the everyday head; the options of exam questions are none of its columns."""
    columns: Ints = np.array([i for i in range(len(DENSE)) if not len(SURFACE) <= i < len(FORM)])
    fits: Views = {
        "all": (kernel(columns, gamma=0.004, ridge=0.5, points=800), 1.0),
        "trees": (boosted(columns, rounds=150, rate=0.08, leaves=8, least=15), 1.0),
        "chars": (hashed("chars", ridge=3.0), 0.8),
        "words": (hashed("words", ridge=3.0), 0.6),
    }
    return with_meaning(fits, read, 1.5)


def support(x: Examples) -> Support:
    """Character pairs and trigrams seen in any everyday prompt. A prompt whose pieces are mostly new is too far away.

    The least shares lie a third below what all but a few training prompts have when their own pieces are not
    counted.
    """
    rows = [pieces(f.reading.text) for f in x.features]
    counts = np.bincount(np.concatenate([np.unique(r) for r in rows]), minlength=1 << SUPPORT_BITS)
    shared = np.array([(counts[r] >= 2).mean() for r in rows])
    cjk = np.array([f.reading.cjk for f in x.features])
    return Support(
        seen=counts >= 1,
        least=float(np.quantile(shared[~cjk], 0.002)) * 0.67,
        least_cjk=float(np.quantile(shared[cjk], 0.02)) * 0.67,
    )


def notes(everyday: int) -> dict[str, Any]:
    """What the artifact says of itself: which files (sha256) it learned from: no run on them is a test of it."""
    data = [cases.read(BENCHMARKS / name).digest for name in FILES]
    return {"kind": "general", "everyday": everyday, "data": data}


def train(say: Callable[[str], None] = lambda line: None, reader: Reader | None = None) -> Model:
    """The whole artifact, the encoder scorer's with a `reader`. A few minutes on one core, and a quarter of
    an hour more where MiniLM reads the prompts."""
    read = reader or Examples
    say("sums told as stories")
    gate, problem = stories()
    say("everyday prompts")
    open_head, x = everyday_head(read)
    say("questions with few options")
    few = few_options().head()
    say("questions with many options")
    heads = (few, many_options(read).head(), gate, problem, open_head)
    return Model(
        heads={h.name: h for h in heads},
        gate=Gate(few="few", many="many", problem="problem", open="open"),
        support=support(x),
        notes=notes(len(x)),
        encoder=reader and reader.encoded,
    )
