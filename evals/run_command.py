"""`pointsman eval run`: its options, and which of the measurements they ask for.

Two columns of a file, more than two, or two groups asked now. No arithmetic here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import click
import msgspec
from msgspec import Struct

from evals.cases import BadData
from evals.console import DIRECTORY, FILE, plainly, say, write
from evals.work import beside, going
from router.policy_files.review import load


class Asked(Struct, frozen=True, kw_only=True):
    """The options as given."""

    data: Path
    weak: str | None
    strong: str | None
    groups: str | None
    bands: str | None
    shares: str | None
    scorer: str
    config: Path | None
    cascade: bool
    answer: str | None
    scouts: str | None
    holdout: str | None
    folds: int | None
    seed: int
    draws: int
    costs: str | None
    price: tuple[str, ...]
    live: bool
    url: str
    weak_model: str | None
    strong_model: str | None
    judge: str
    judge_model: str | None
    reference: str | None
    pattern: str | None
    system: str | None
    fields: str | None
    sample: int | None
    concurrency: int
    out: Path | None
    json_out: Path | None


def options(*given: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Options as one decorator, in the order of the help."""

    def decorate(call: Any) -> Any:
        for option in reversed(given):
            call = option(call)
        return call

    return decorate


scorer_options = options(
    click.option("--scorer", default="lexical", show_default=True, metavar="NAME|DIR", help="What to measure."),
    click.option("--config", type=DIRECTORY, help="Where scorers and the policy are looked up."),
)

cascade_options = options(
    click.option("--cascade", is_flag=True, help="Score after the weak model has answered."),
    click.option("--answer", metavar="COLUMN", help="The weak model's answers."),
    click.option("--scouts", metavar="COLUMN,COLUMN", help="Other small models' answers."),
)

_columns = options(
    click.option("--data", type=FILE, required=True, help="Labelled prompts; with --live, prompts."),
    click.option("--weak", metavar="COLUMN", help="Quality of the cheap model."),
    click.option("--strong", metavar="COLUMN", help="Quality of the dear model."),
    click.option("--groups", metavar="A,B,C", help="More than two columns instead, ordered by what they cost."),
    click.option("--bands", metavar="0.3,0.6", help="With --groups: where the score changes group."),
    click.option("--shares", metavar="0.5,0.3,0.2", help="With --groups: bands for these shares, cheapest first."),
)

_measured = options(
    click.option("--holdout", metavar="COLUMN", help="Report by this column; with --folds, hold out its values whole."),
    click.option("--folds", type=int, help="Train for this pair and measure out of fold. Without it, nothing fitted."),
    click.option("--seed", type=int, default=0, show_default=True),
    click.option("--draws", type=click.IntRange(100), default=2000, show_default=True, help="Bootstrap draws."),
    click.option("--costs", metavar="WEAK,STRONG", help="Mean cost of a call to each; in strong calls when absent."),
    click.option(
        "--price",
        multiple=True,
        metavar="MODEL=IN:OUT[:TOKENS]",
        help="US$ per million tokens, for costs in dollars; TOKENS is the mean answer where no column tells.",
    ),
)

_live = options(
    click.option("--live", is_flag=True, help="Ask two groups now, through the gateway, and judge their answers."),
    click.option("--url", default="http://127.0.0.1:8080", show_default=True, help="The gateway."),
    click.option("--weak-model", metavar="NAME", help="The cheap group, as a model name of the gateway."),
    click.option("--strong-model", metavar="NAME", help="The dear group."),
    click.option("--judge", type=click.Choice(["exact", "choice", "regex", "llm"]), default="exact", show_default=True),
    click.option("--reference", metavar="COLUMN", help="The right answers; with --judge regex, patterns to be found."),
    click.option("--pattern", metavar="REGEX", help="With --judge regex: its first group is the answer."),
    click.option("--judge-model", metavar="NAME", help="With --judge llm: who judges, a third model of the gateway."),
    click.option("--system", metavar="TEXT", help="A system message for every prompt."),
    click.option("--fields", metavar="JSON", help="More fields of each request, such as '{\"temperature\": 0}'."),
    click.option("--sample", type=click.IntRange(1), help="Ask so many rows only, drawn by --seed."),
    click.option("--concurrency", type=click.IntRange(1, 256), default=8, show_default=True, help="Rows at once."),
    click.option("--out", type=FILE, help="With --live: the labelled rows; what was asked is kept beside it."),
)


@click.command()
@_columns
@scorer_options
@cascade_options
@_measured
@_live
@click.option("--json", "json_out", type=FILE, help="Where the result goes; standard output when absent.")
@plainly
def run(**given: Any) -> None:
    """Quality of one scorer on one file, with intervals, against random, length, domain and oracle.

    With --live the file holds prompts and, for judges other than llm, right answers. Both groups are asked through
    the gateway, and the answers kept in OUT.answers.jsonl: the same command goes on where it stopped. A key for the
    gateway is read from POINTSMAN_API_KEY.
    """
    asked = Asked(**given)
    started = perf_counter()
    if asked.groups is not None:
        result = _groups(asked)
    else:
        result = _live_pair(asked) if asked.live else _pair(asked, asked.data, asked.weak, asked.strong)
    if asked.config is not None:
        result["config"] = {"sha256": load(asked.config).digest}
    result["seconds"] = round(perf_counter() - started, 2)
    write(result, asked.json_out)
    say(_in_short(result))


def _in_short(result: dict[str, Any]) -> str:
    at = result["at_policy"]
    if "groups" in result:
        low, high = at["against_random"]
        cost = f"{at['cost']:g} {result['cost_unit']}"
        return f"quality {at['quality']:.3f} at {cost}; over random [{low:+.3f}, {high:+.3f}]"
    low, high = result["apgr_ci"]
    if result["apgr"] is None or low is None:
        return f"both models have a quality of {result['weak']:.3f}: no gap to recover, so no APGR"
    return f"APGR {result['apgr']:.3f} [{low:.3f}, {high:.3f}], length {result['length']:.3f}, random 0.5"


def _pair(asked: Asked, data: Path, weak: str | None, strong: str | None) -> dict[str, Any]:
    """Two columns of a file."""
    from evals import cascade as cascades
    from evals import cases, costs, decisions, encoded, train
    from evals import run as runs

    if weak is None or strong is None:
        raise BadData("name two columns with --weak and --strong, more with --groups, or ask two groups with --live")
    pair = cases.pair(cases.read(data), weak, strong)
    say(f"{len(pair)} rows of {data.name}")
    policy, name, count, learned = None, "difficulty", 0, False
    parts = None if asked.folds is None else runs.folds(pair, asked.folds, asked.holdout)
    if asked.cascade:
        told = cascades.told(pair, *answers_asked(asked.answer, asked.scouts))
        count = len(told.scouts)
        scored = train.cascade_scores(pair, told, asked.scorer, parts, say)
    elif parts is not None:
        reader = encoded.reader(asked.scorer)
        fit = partial(train.for_pair, reader=reader)
        with going(None if asked.json_out is None else beside(asked.json_out)):
            scored = runs.cross_validated(pair, parts, fit, say, reader)
    else:
        scorer = decisions.find(asked.scorer, asked.config)
        learned = pair.table.digest in decisions.learned_from(scorer)
        if learned:
            say(f"{asked.scorer} learned from this very file, so this is no test of it; --folds 5 is one")
        scored = decisions.score(scorer, pair.prompts)
        if asked.config is not None:
            policy, name = decisions.policy_with(asked.config, asked.scorer), asked.scorer
    result = runs.measure(
        pair,
        scored,
        holdout=asked.holdout,
        seed=asked.seed,
        draws=asked.draws,
        policy=policy,
        scorer=name,
        scouts=count,
        costs=_costs(asked, pair, weak, strong),
    )
    result["models"] = {"weak": costs.bare(weak), "strong": costs.bare(strong)}
    result["scorer"] = {
        "name": asked.scorer,
        "folds": asked.folds,
        "holdout": asked.holdout,
        "cascade": asked.cascade,
        "learned_from_this_file": learned,
    }
    return result


def _costs(asked: Asked, pair: Any, weak: str, strong: str) -> Any:
    from evals import costs

    if asked.price:
        return costs.priced(pair, weak, strong, costs.prices(asked.price))
    if asked.costs is None:
        return None
    numbers = _numbers("--costs", asked.costs)
    if len(numbers) != 2:
        raise BadData(f"--costs wants two numbers such as 0.02,0.60, not {asked.costs!r}")
    if not 0.0 <= numbers[0] < numbers[1]:
        raise BadData("--costs wants the weak model's cost first, and lower than the strong one's")
    return costs.flat(len(pair), numbers[0], numbers[1], "as given")


def _numbers(option: str, text: str) -> list[float]:
    try:
        out = [float(v) for v in text.split(",")]
    except ValueError as e:
        raise BadData(f"{option} wants numbers with commas between, such as 0.02,0.60, not {text!r}") from e
    if not all(-1e300 < v < 1e300 for v in out):
        raise BadData(f"{option}: {text!r} holds what is no number")
    return out


def answers_asked(answer: str | None, scouts: str | None) -> tuple[str, list[str]]:
    """The columns of a cascade. Raises `BadData`."""
    if not answer or not scouts:
        raise BadData("--cascade needs --answer COLUMN and --scouts COLUMN,COLUMN")
    return answer, [s.strip() for s in scouts.split(",") if s.strip()]


def _groups(asked: Asked) -> dict[str, Any]:
    """More than two columns of a file."""
    from evals import cases, costs, decisions, nway

    if asked.live or asked.cascade or asked.folds is not None:
        raise BadData(
            "--groups measures a scorer on columns of a file; it goes with none of --live, --cascade, --folds"
        )
    names = [n.strip() for n in (asked.groups or "").split(",") if n.strip()]
    flat = None if asked.costs is None else _numbers("--costs", asked.costs)
    arms = nway.arms(cases.read(asked.data), names, costs.prices(asked.price), flat)
    say(f"{len(arms.rows)} rows of {asked.data.name}; by cost: {', '.join(arms.names)}")
    scored = decisions.score(decisions.find(asked.scorer, asked.config), arms.prompts)
    policy, name = None, "difficulty"
    if asked.config is not None and asked.bands is None and asked.shares is None:
        policy, name = decisions.policy_with(asked.config, asked.scorer), asked.scorer
    result = nway.measure(
        arms,
        scored,
        edges=None if asked.bands is None else _numbers("--bands", asked.bands),
        shares=None if asked.shares is None else _numbers("--shares", asked.shares),
        policy=policy,
        scorer=name,
        seed=asked.seed,
        draws=asked.draws,
    )
    return {"scorer": {"name": asked.scorer}, **result}


def _live_pair(asked: Asked) -> dict[str, Any]:
    """Two groups asked now."""
    from evals import cases, live

    weak, strong = asked.weak_model, asked.strong_model
    if weak is None or strong is None or asked.out is None:
        raise BadData("--live needs --weak-model, --strong-model and --out FILE for the labelled rows")
    try:
        fields = msgspec.json.decode(asked.fields or "{}", type=dict[str, Any])
    except msgspec.MsgspecError as e:
        raise BadData(f"--fields wants a JSON object: {e}") from e
    settings = live.Settings(
        url=asked.url,
        weak=weak,
        strong=strong,
        judge=live.judge_named(asked.judge),
        judge_model=asked.judge_model,
        reference=asked.reference,
        pattern=asked.pattern,
        system=asked.system,
        fields=fields,
        sample=asked.sample,
        seed=asked.seed,
        concurrency=asked.concurrency,
    )
    cases.check_writable(asked.out)
    done = live.run(cases.read(asked.data), settings, asked.out.with_name(asked.out.name + ".answers.jsonl"))
    cases.write(asked.out, done.labelled())
    say(f"wrote {asked.out}: {len(done.rows)} rows labelled, for eval run and eval train")
    return {**_pair(asked, asked.out, weak, strong), "live": done.told()}
