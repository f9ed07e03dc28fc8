"""`pointsman eval`: offline routing quality. Reads options, calls the module of each command, writes JSON.

The heavy libraries are imported by what needs them, when it runs. No arithmetic here.
"""

from __future__ import annotations

import json
from pathlib import Path
from time import perf_counter

import click

from evals.cases import BadData
from evals.console import DIRECTORY, FILE, plainly, say, write
from evals.run_command import answers_asked, cascade_options, options, run, scorer_options
from evals.work import beside, going


@click.group()
def command() -> None:
    """Measure, train and explain routing on labelled prompts.

    Data is parquet, CSV or JSON lines: a `prompt` column and one column per model holding 0..1, named
    `correct:MODEL`, `score:MODEL` or `MODEL`; a negative or empty value means that the model was not run.
    """


_pair_options = options(
    click.option("--data", type=FILE, required=True, help="Labelled prompts."),
    click.option("--weak", required=True, metavar="COLUMN", help="Quality of the cheap model."),
    click.option("--strong", required=True, metavar="COLUMN", help="Quality of the dear model."),
)

command.add_command(run)


@command.command()
@_pair_options
@scorer_options
@click.option("--points", type=click.IntRange(3, 1000), default=100, show_default=True)
@click.option("--json", "out", type=FILE, help="Where the result goes; standard output when absent.")
@plainly
def sweep(data: Path, weak: str, strong: str, scorer: str, config: Path | None, points: int, out: Path | None) -> None:
    """What every cut on the score would do, by production's own decision; scores are computed once."""
    from evals import cases, decisions
    from evals import run as runs

    pair = cases.pair(cases.read(data), weak, strong)
    scored = decisions.score(decisions.find(scorer, config), pair.prompts)
    write({"n": len(pair), "points": runs.sweep(pair, scored, points)}, out)


@command.command()
@click.option("--data", type=FILE, multiple=True, help="Labelled prompts; may be repeated. The shipped sets if absent.")
@click.option(
    "--weak", metavar="COLUMN", help="Quality of the cheap model; without a pair the general scorer is built."
)
@click.option("--strong", metavar="COLUMN", help="Quality of the dear model.")
@click.option(
    "--from-records",
    "records",
    type=FILE,
    multiple=True,
    help="Exported records instead of --data; --weak and --strong are then groups, small and large when absent.",
)
@click.option("--scorer", type=click.Choice(["lexical", "encoder", "generative"]), default="lexical", show_default=True)
@click.option("--model", metavar="ID|DIR", help="The language model; or the encoder's folder, MiniLM when absent.")
@click.option("--keep", type=DIRECTORY, help="Where the encoder's vectors are kept, to go on after an interruption.")
@click.option("--lora", type=click.IntRange(0), default=0, help="With --scorer generative: epochs of LoRA; 0 is none.")
@cascade_options
@click.option("--out", type=DIRECTORY, required=True, help="Artifact directory, for scorers.yaml.")
@plainly
def train(
    data: tuple[Path, ...],
    weak: str | None,
    strong: str | None,
    records: tuple[Path, ...],
    scorer: str,
    model: str | None,
    keep: Path | None,
    lora: int,
    cascade: bool,
    answer: str | None,
    scouts: str | None,
    out: Path,
) -> None:
    """Train a scorer and write its artifact; the same data gives the same bytes.

    Finished parts wait in OUT.parts until all is done: the same command goes on where it stopped.
    """
    from evals import cascade as cascades
    from evals import encoded
    from evals import train as training
    from router.scorers import heads

    started = perf_counter()
    if records:
        if data or cascade or scorer == "generative":
            raise BadData("--from-records trains lexical and encoder scorers; not with --data or --cascade")
        reader = encoded.reader(scorer, model, keep)
        with going(beside(out)):
            path = heads.dump(training.from_records(records, weak, strong, say, reader), out)
        say(f"wrote {path} in {perf_counter() - started:.0f} s")
        return
    if scorer == "generative":
        from evals import generative

        if model is None:
            raise BadData("--scorer generative needs --model: a Hugging Face id, or a folder")
        settings = generative.Settings(epochs=lora)
        generative.train_generative(data, weak, strong, out, generative.Source(model=model), settings, say)
        return
    if (weak is None) != (strong is None):
        raise BadData("give both --weak and --strong, or neither")
    if cascade:
        pair = training.pairs(data, weak, strong)
        training.write_cascade(pair, cascades.told(pair, *answers_asked(answer, scouts)), out)
        say(f"wrote {out} in {perf_counter() - started:.0f} s")
    else:
        reader = encoded.reader(scorer, model, keep)
        with going(beside(out)):
            path = heads.dump(training.model(data, weak, strong, say, reader), out)
        say(f"wrote {path} ({path.stat().st_size / 1024:.0f} KiB) in {perf_counter() - started:.0f} s")


@command.command()
@click.option("--data", type=FILE, required=True, help="A file with a prompt column.")
@scorer_options
@cascade_options
@click.option("--out", type=FILE, required=True, help="The same rows with a `score` column: .parquet, .csv or .jsonl.")
@plainly
def score(
    data: Path, scorer: str, config: Path | None, cascade: bool, answer: str | None, scouts: str | None, out: Path
) -> None:
    """Add a `score` column; empty where the scorer abstained."""
    from evals import cascade as cascades
    from evals import cases, decisions

    table = cases.read(data)
    if cascade:
        told = cascades.told_of(table, *answers_asked(answer, scouts))
        values = cascades.read(Path(scorer)).scores(table.prompts, told)
    else:
        values = decisions.score(decisions.find(scorer, config), table.prompts).values
    scores = [None if v != v else float(v) for v in values]
    cases.write(out, {**table.columns, "score": scores})
    say(f"{len(scores)} rows, {sum(v is None for v in scores)} abstained")


@command.command()
@click.option("--data", type=FILE, required=True, help="Labelled prompts.")
@click.option("--weak", required=True, metavar="COLUMN", help="Quality of the cheap model: below 0.5 is a failure.")
@scorer_options
@click.option("--out", type=DIRECTORY, help="Write a recalibrated copy of the artifact here.")
@click.option("--json", "report_to", type=FILE, help="Where the result goes; standard output when absent.")
@plainly
def calibrate(
    data: Path, weak: str, scorer: str, config: Path | None, out: Path | None, report_to: Path | None
) -> None:
    """Fit the scores to how often the cheap model fails: Platt under 1,000 rows, isotonic above."""
    from evals import calibrate as calibration
    from evals import cases, decisions

    table = cases.read(data)
    found = decisions.find(scorer, config)
    result = calibration.fit(table, cases.quality(table, weak), found, out)
    write(result, report_to)


@command.command()
@click.option("--result", "results", type=FILE, multiple=True, required=True, help="Written by `eval run --json`.")
@click.option("--out", type=FILE, required=True, help="One self-contained HTML page.")
@plainly
def report(results: tuple[Path, ...], out: Path) -> None:
    """Draw results of `eval run` as one page that needs nothing else."""
    from evals import report as reports

    read: list[reports.Result] = []
    for path in results:
        try:
            given = json.loads(path.read_bytes())
        except ValueError as e:
            raise BadData(f"{path}: not JSON: {e}") from e
        read.append(reports.check(given, str(path)))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(reports.page(read), encoding="utf-8")
    say(f"wrote {out} ({out.stat().st_size / 1024:.0f} KiB)")


@command.command()
@click.option("--out", type=FILE, help="Where the Markdown table goes; standard output when absent.")
@click.option("--quick", is_flag=True, help="Only the shipped lexical scorer: minutes instead of hours.")
@click.option("--keep", type=DIRECTORY, default=Path(".quality"), show_default=True, help="Finished measurements.")
@click.option("--only", multiple=True, metavar="NAME", help="Such as everyday, general-encoder; may be repeated.")
@plainly
def table(out: Path | None, quick: bool, keep: Path, only: tuple[str, ...]) -> None:
    """The table of docs/quality.md: every scorer on every shipped set, out of fold, with intervals."""
    from evals import quality

    text = quality.table(quality.measure(say, keep, only=only or (quality.QUICK if quick else None)))
    if out is None:
        click.echo(text)
    else:
        out.write_text(text, encoding="utf-8")
