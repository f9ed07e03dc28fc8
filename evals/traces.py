"""Traces for simulations of a cluster, made from labelled prompts: of each its score out of fold, its length, and the
length and quality of both models' answers; no text. `python -m evals.traces` writes the shipped ones anew.
"""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np

from evals import cases, run, train
from evals.console import plainly, say

ROOT = Path(__file__).parent.parent
MMLU_PRO = ROOT / "evals" / "data" / "benchmarks" / "mmlu_pro_28models.parquet"
TRACES = ROOT / "deploy" / "catalog" / "scenarios" / "traces"

# name -> the columns of the models that stand for the small and the large one
PAIRS = {
    "mmlu-pro-mixtral-gemini": ("Mixtral-8x7B-Instruct-v0.1", "gemini-1.5-pro-002"),
    "mmlu-pro-llama": ("Meta-Llama-3_1-8B-Instruct", "Meta-Llama-3_1-70B-Instruct"),
}
ROWS = 4000
FOLDS = 3
CHARS = 4.0  # of a token


def trace(small: str, large: str, rows: int = ROWS) -> list[str]:
    """The lines of one trace: a header, and a line a prompt. Each score is by a scorer that has not seen its row."""
    table = cases.read(MMLU_PRO)
    pair = cases.pair(table, small, large)
    if rows < len(pair):
        pair = pair.take(np.sort(np.random.default_rng(0).choice(len(pair), rows, replace=False)))
    scored = run.cross_validated(pair, run.folds(pair, FOLDS, None), train.for_pair, say)
    lines = ["score,prompt_tokens,small_tokens,large_tokens,small_quality,large_quality"]
    chars = [[float(v) for v in pair.values(f"chars:{name}")] for name in (small, large)]
    for i, value in enumerate(scored.values):
        sizes = [max(1, round(size / CHARS)) for size in (len(pair.prompts[i]), chars[0][i], chars[1][i])]
        score = "" if value != value else f"{value:.4f}"
        lines.append(",".join([score, *map(str, sizes), f"{pair.weak[i]:g}", f"{pair.strong[i]:g}"]))
    return lines


@click.command()
@click.option("--only", type=click.Choice(list(PAIRS)), help="One of them.")
@plainly
def main(only: str | None) -> None:
    """Write the traces of the shipped scenarios: some minutes."""
    TRACES.mkdir(parents=True, exist_ok=True)
    for name, (small, large) in PAIRS.items():
        if only in (None, name):
            (TRACES / f"{name}.csv").write_text("\n".join(trace(small, large)) + "\n", encoding="utf-8")
            say(f"wrote {TRACES / name}.csv")


if __name__ == "__main__":
    main()
