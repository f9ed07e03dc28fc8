"""`pointsman eval`: offline routing quality. Reads options, calls the module of each command, writes JSON.

The heavy libraries are imported by what needs them, when it runs. No arithmetic here.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from time import perf_counter
from typing import Any, ParamSpec, TypeVar

import click

from evals.cases import BadData
from evals.libraries import NotInstalled
from router.errors import ConfigError
from router.policy_files.review import load
from router.scorers.generative import NotInstalled as MissingLibrary

P = ParamSpec("P")
R = TypeVar("R")

FILE = click.Path(path_type=Path, dir_okay=False)
DIRECTORY = click.Path(path_type=Path, file_okay=False)


def _plainly(call: Callable[P, R]) -> Callable[P, R]:
    """Data or configuration that cannot be used ends the command with one line and exit code 1."""

    @wraps(call)
    def plain(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return call(*args, **kwargs)
        except (BadData, NotInstalled, MissingLibrary, ConfigError) as e:
            raise click.ClickException(str(e)) from e

    return plain


def _say(line: str) -> None:
    click.echo(line, err=True)


def _write(result: Any, out: Path | None, *, show: bool) -> None:
    text = json.dumps(result, ensure_ascii=False, indent=1)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text + "\n", encoding="utf-8")
    if show or out is None:
        click.echo(text)


@click.group()
def command() -> None:
    """Measure, train and explain routing on labelled prompts.

    Data is parquet, CSV or JSON lines: a `prompt` column and one column per model holding 0..1, named
    `correct:MODEL`, `score:MODEL` or `MODEL`; a negative or empty value means that the model was not run.
    """


def _pair_options(call: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(
        (
            click.option("--data", type=FILE, required=True, help="Labelled prompts."),
            click.option("--weak", required=True, metavar="COLUMN", help="Quality of the cheap model."),
            click.option("--strong", required=True, metavar="COLUMN", help="Quality of the dear model."),
        )
    ):
        call = option(call)
    return call


def _scorer_options(call: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(
        (
            click.option("--scorer", default="lexical", show_default=True, metavar="NAME|DIR", help="What to measure."),
            click.option("--config", type=DIRECTORY, help="Where scorers and the policy are looked up."),
        )
    ):
        call = option(call)
    return call


def _cascade_options(call: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(
        (
            click.option("--cascade", is_flag=True, help="Score after the weak model has answered."),
            click.option("--answer", metavar="COLUMN", help="The weak model's answers."),
            click.option("--scouts", metavar="COLUMN,COLUMN", help="Other small models' answers."),
        )
    ):
        call = option(call)
    return call


@command.command()
@_pair_options
@_scorer_options
@_cascade_options
@click.option("--holdout", metavar="COLUMN", help="Report by this column; with --folds, hold out its values whole.")
@click.option("--folds", type=int, help="Train for this pair and measure out of fold. Without it nothing is fitted.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--draws", type=click.IntRange(100), default=2000, show_default=True, help="Bootstrap draws.")
@click.option("--costs", metavar="WEAK,STRONG", help="Mean cost of a call to each model; in strong calls when absent.")
@click.option("--json", "out", type=FILE, help="Where the result goes; standard output when absent.")
@_plainly
def run(
    data: Path,
    weak: str,
    strong: str,
    scorer: str,
    config: Path | None,
    cascade: bool,
    answer: str | None,
    scouts: str | None,
    holdout: str | None,
    folds: int | None,
    seed: int,
    draws: int,
    costs: str | None,
    out: Path | None,
) -> None:
    """Quality of one scorer on one file, with intervals, against random, length, domain and oracle."""
    from evals import cascade as cascades
    from evals import cases, decisions, train
    from evals import run as runs

    pair = cases.pair(cases.read(data), weak, strong)
    _say(f"{len(pair)} rows of {data.name}")
    started = perf_counter()
    policy, name, count = None, "difficulty", 0
    parts = None if folds is None else runs.folds(pair, folds, holdout)
    if cascade:
        told = cascades.told(pair, *_asked(answer, scouts))
        count = len(told.scouts)
        scored = train.cascade_scores(pair, told, scorer, parts, _say)
    elif parts is not None:
        scored = runs.cross_validated(pair, parts, lambda p: train.for_pair(p, groups=holdout), _say)
    else:
        scored = decisions.score(decisions.find(scorer, config), pair.prompts)
        if config is not None:
            policy, name = decisions.policy_with(config, scorer), scorer
    result = runs.measure(
        pair,
        scored,
        holdout=holdout,
        seed=seed,
        draws=draws,
        policy=policy,
        scorer=name,
        scouts=count,
        costs=_costs(costs),
    )
    result["scorer"] = {"name": scorer, "folds": folds, "holdout": holdout, "cascade": cascade}
    if config is not None:
        result["config"] = {"sha256": load(config).digest}
    result["seconds"] = round(perf_counter() - started, 2)
    _write(result, out, show=False)
    ci = result["apgr_ci"]
    _say(f"APGR {result['apgr']:.3f} [{ci[0]:.3f}, {ci[1]:.3f}], length {result['length']:.3f}, random 0.5")


def _costs(text: str | None) -> tuple[float, float]:
    if text is None:
        return 0.0, 1.0
    try:
        weak, strong = (float(v) for v in text.split(","))
    except ValueError as e:
        raise BadData(f"--costs wants two numbers such as 0.02,0.60, not {text!r}") from e
    if not 0.0 <= weak < strong:
        raise BadData("--costs wants the weak model's cost first, and lower than the strong one's")
    return weak, strong


def _asked(answer: str | None, scouts: str | None) -> tuple[str, list[str]]:
    if not answer or not scouts:
        raise BadData("--cascade needs --answer COLUMN and --scouts COLUMN,COLUMN")
    return answer, [s.strip() for s in scouts.split(",") if s.strip()]


@command.command()
@_pair_options
@_scorer_options
@click.option("--points", type=click.IntRange(3, 1000), default=100, show_default=True)
@click.option("--json", "out", type=FILE, help="Where the result goes; standard output when absent.")
@_plainly
def sweep(data: Path, weak: str, strong: str, scorer: str, config: Path | None, points: int, out: Path | None) -> None:
    """What every cut on the score would do, by production's own decision; scores are computed once."""
    from evals import cases, decisions
    from evals import run as runs

    pair = cases.pair(cases.read(data), weak, strong)
    scored = decisions.score(decisions.find(scorer, config), pair.prompts)
    _write({"n": len(pair), "points": runs.sweep(pair, scored, points)}, out, show=False)


@command.command()
@click.option("--data", type=FILE, multiple=True, help="Labelled prompts; may be repeated. The shipped sets if absent.")
@click.option(
    "--weak", metavar="COLUMN", help="Quality of the cheap model; without a pair the general scorer is built."
)
@click.option("--strong", metavar="COLUMN", help="Quality of the dear model.")
@click.option("--scorer", type=click.Choice(["lexical", "generative"]), default="lexical", show_default=True)
@click.option("--model", metavar="ID|DIR", help="With --scorer generative: the causal language model.")
@click.option("--lora", type=click.IntRange(0), default=0, help="With --scorer generative: epochs of LoRA; 0 is none.")
@click.option("--holdout", metavar="COLUMN", help="Domain column, for blends that work on unseen domains.")
@_cascade_options
@click.option("--out", type=DIRECTORY, required=True, help="Artifact directory, for scorers.yaml.")
@_plainly
def train(
    data: tuple[Path, ...],
    weak: str | None,
    strong: str | None,
    scorer: str,
    model: str | None,
    lora: int,
    holdout: str | None,
    cascade: bool,
    answer: str | None,
    scouts: str | None,
    out: Path,
) -> None:
    """Train a scorer and write its artifact; the same data gives the same bytes."""
    from evals import cascade as cascades
    from evals import train as training
    from router.scorers import heads

    started = perf_counter()
    if scorer == "generative":
        from evals import generative

        if model is None:
            raise BadData("--scorer generative needs --model: a Hugging Face id, or a folder")
        settings = generative.Settings(epochs=lora)
        generative.train_generative(data, weak, strong, out, generative.Source(model=model), settings, _say)
        return
    if (weak is None) != (strong is None):
        raise BadData("give both --weak and --strong, or neither")
    if cascade:
        pair = training.pairs(data, weak, strong)
        training.write_cascade(pair, cascades.told(pair, *_asked(answer, scouts)), out)
        _say(f"wrote {out} in {perf_counter() - started:.0f} s")
    else:
        path = heads.dump(training.model(data, weak, strong, holdout, _say), out)
        _say(f"wrote {path} ({path.stat().st_size / 1024:.0f} KiB) in {perf_counter() - started:.0f} s")


@command.command()
@click.option("--data", type=FILE, required=True, help="A file with a prompt column.")
@_scorer_options
@_cascade_options
@click.option("--out", type=FILE, required=True, help="The same rows with a `score` column: .parquet, .csv or .jsonl.")
@_plainly
def score(
    data: Path, scorer: str, config: Path | None, cascade: bool, answer: str | None, scouts: str | None, out: Path
) -> None:
    """Add a `score` column; empty where the scorer abstained."""
    from evals import cascade as cascades
    from evals import cases, decisions

    table = cases.read(data)
    if cascade:
        told = cascades.told_of(table, *_asked(answer, scouts))
        values = cascades.read(Path(scorer)).scores(table.prompts, told)
    else:
        values = decisions.score(decisions.find(scorer, config), table.prompts).values
    scores = [None if v != v else float(v) for v in values]
    cases.write(out, {**table.columns, "score": scores})
    _say(f"{len(scores)} rows, {sum(v is None for v in scores)} abstained")


@command.command()
@click.option("--data", type=FILE, required=True, help="Labelled prompts.")
@click.option("--weak", required=True, metavar="COLUMN", help="Quality of the cheap model: below 0.5 is a failure.")
@_scorer_options
@click.option("--out", type=DIRECTORY, help="Write a recalibrated copy of the artifact here.")
@click.option("--json", "report_to", type=FILE, help="Where the result goes; standard output when absent.")
@_plainly
def calibrate(
    data: Path, weak: str, scorer: str, config: Path | None, out: Path | None, report_to: Path | None
) -> None:
    """Fit the scores to how often the cheap model fails: Platt under 1,000 rows, isotonic above."""
    from evals import calibrate as calibration
    from evals import cases, decisions

    table = cases.read(data)
    found = decisions.find(scorer, config)
    result = calibration.fit(table, cases.quality(table, weak), found, out)
    _write(result, report_to, show=False)


@command.command()
@click.option("--result", "results", type=FILE, multiple=True, required=True, help="Written by `eval run --json`.")
@click.option("--out", type=FILE, required=True, help="One self-contained HTML page.")
@_plainly
def report(results: tuple[Path, ...], out: Path) -> None:
    """Draw results of `eval run` as one page that needs nothing else."""
    from evals import report as reports

    out.write_text(reports.page([json.loads(r.read_text(encoding="utf-8")) for r in results]), encoding="utf-8")
    _say(f"wrote {out} ({out.stat().st_size / 1024:.0f} KiB)")


@command.command()
@click.option("--out", type=FILE, help="Where the Markdown table goes; standard output when absent.")
@click.option("--quick", is_flag=True, help="Only the shipped scorer: minutes instead of an hour.")
@click.option("--keep", type=DIRECTORY, default=Path(".quality"), show_default=True, help="Finished measurements.")
@click.option("--only", multiple=True, metavar="NAME", help="everyday, general, cascade or pair; may be repeated.")
@_plainly
def table(out: Path | None, quick: bool, keep: Path, only: tuple[str, ...]) -> None:
    """The table of docs/quality.md: every scorer on every shipped set, out of fold, with intervals."""
    from evals import quality

    text = quality.table(quality.measure(_say, keep, only=only or (quality.QUICK if quick else None)))
    if out is None:
        click.echo(text)
    else:
        out.write_text(text, encoding="utf-8")
