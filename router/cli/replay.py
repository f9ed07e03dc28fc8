"""`pointsman replay`: recorded traffic decided again by another configuration, before it is put in force."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path

import click
import msgspec

from router import history, records, replay, scorers
from router import state as states
from router.config import Config
from router.errors import ConfigError, NotFound, Overloaded
from router.policy_files.review import load
from router.replay import Past, Side
from router.seams import Scorer
from router.types import Abstain, Decision, NeedScore, Prompt, Score

_CHUNK = 500  # records read ahead, so that a scorer that is waited for is asked of many at once
_IN_FLIGHT = 32
_TEXTLESS = frozenset(("fixed", "header"))  # kinds of scorers that do not read the prompt


@click.command()
@click.argument("records_file", metavar="[RECORDS]", type=click.Path(path_type=Path, allow_dash=True), required=False)
@click.option(
    "--config", metavar="NEW", default="policies", show_default=True, help="A directory, or a digest of `history`."
)
@click.option("--against", metavar="OLD", help="Compare with this instead of with what the records say was decided.")
@click.option("--max-moved", type=click.FloatRange(0, 1), help="Most that the share of requests that move may be.")
@click.option("--max-cost", type=click.FloatRange(0), help="Most that new cost divided by old may be.")
@click.option(
    "--min-quality", type=click.FloatRange(-1, 1), help="Least that the low end of the quality change may be."
)
@click.option("--since", metavar="T", help="Only records from then on: Unix seconds or ISO 8601.")
@click.option("--state", "state_dir", type=click.Path(path_type=Path), help="Folder of records and history.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    records_file: Path | None,
    config: str,
    against: str | None,
    max_moved: float | None,
    max_cost: float | None,
    min_quality: float | None,
    since: str | None,
    state_dir: Path | None,
    as_json: bool,
) -> None:
    """Decide recorded traffic again under configuration NEW: what moves, what it costs, what is known of quality.

    RECORDS is a file of `pointsman records export`, or - for standard input; without it the records of the state folder
    are read. No upstream is called. A limit that cannot be told counts as passed.

    Exit code 0, 1 when records cannot be read, 2 on a configuration with mistakes, 3 when a limit is passed.
    """
    folder = states.folder(state_dir)
    try:
        after = records.instant(since) if since is not None else None
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--since") from None
    try:
        new = _config(config, folder)
        old = _config(against, folder) if against is not None else None
    except (ConfigError, NotFound) as error:
        click.echo(error.message, err=True)
        raise SystemExit(2) from None
    unknown: set[str] = set()
    sides = [Side(one, _changes(one, old, new, folder, unknown)) for one in (new, old) if one is not None]
    run = replay.Run(sides[0], sides[1] if old is not None else None)
    pasts = _pasts(_lines(records_file, folder, after), after, records_file or folder)
    asyncio.run(_replay(run, pasts))
    limits = replay.Limits(max_moved=max_moved, max_cost=max_cost, min_quality=min_quality)
    report = replay.Report(run, limits, list(_notes(unknown)))
    if not report.tally.n and not as_json:
        click.echo("there is nothing to decide again: no record holds a decision", err=True)
    click.echo(_json(report) if as_json else report.text())
    raise SystemExit(0 if report.ok else 3)


def _config(named: str, folder: Path) -> Config:
    """A configuration by its directory, or by its digest in the history. Raises ConfigError and NotFound."""
    path = Path(named)
    if not path.exists() and named.isalnum():
        return load(history.directory(folder, history.find(folder, named)))
    return load(path)


def _json(report: replay.Report) -> str:
    return msgspec.json.format(msgspec.json.encode(report.plain()), indent=2).decode()


# --- which recorded scores still hold --------------------------------------------------------------------


def _changes(
    of: Config, old: Config | None, new: Config, folder: Path, unknown: set[str]
) -> Callable[[str], frozenset[str]]:
    """Of a record's configuration, by digest: the scorers that `of` has otherwise. What is neither given nor in the
    history goes into `unknown`, and is taken to have had the scorers of `old`, or of `of` itself."""

    @cache
    def changed(digest: str) -> frozenset[str]:
        was = next((one for one in (of, old, new) if one is not None and one.digest == digest), None)
        was = was or _kept(folder, digest)
        if was is None:
            unknown.add(digest)
            was = old or of
        return frozenset(name for name, spec in of.scorers.items() if was.scorers.get(name) != spec)

    return changed


def _kept(folder: Path, digest: str) -> Config | None:
    try:
        return load(history.directory(folder, digest)) if digest.isalnum() else None
    except ConfigError:
        return None


def _notes(unknown: set[str]) -> Iterator[str]:
    if unknown:
        some = ", ".join(sorted(one[:12] for one in unknown)[:5])
        yield (
            f"scores: {len(unknown)} of the configurations that these records were made under are not in the history "
            f"({some}); their scores are taken as recorded, as if those scorers had not changed"
        )


# --- records ---------------------------------------------------------------------------------------------


def _lines(source: Path | None, folder: Path, after: float | None) -> Iterator[bytes]:
    if source is not None and str(source) != "-" and source.is_dir():
        folder, source = source, None
    if source is not None:
        try:
            with click.open_file(str(source), "rb") as file:
                yield from file
        except OSError as error:
            raise click.ClickException(f"cannot read {source}: {error.strerror}") from None
        return
    url = states.records_url(folder)
    if url.startswith("sqlite:") and not states.records_file(folder).exists():
        raise click.ClickException(
            f"there are no records in {folder}; --state names the folder that `serve` used, or give an exported file"
        )
    engine = records.open_engine(url)
    try:
        for line in records.SqlReader(engine).export(after, whole=False):
            yield line.encode()
    except Overloaded as error:
        raise click.ClickException(error.message) from None
    finally:
        engine.dispose()


def _pasts(lines: Iterator[bytes], after: float | None, source: Path) -> Iterator[Past]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            past = replay.read(line)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise click.ClickException(
                f"{source}:{number}: not a record as `pointsman records export` writes it: {error}"
            ) from None
        if after is None or past.record.time >= after:
            yield past


# --- deciding --------------------------------------------------------------------------------------------


async def _replay(run: replay.Run, pasts: Iterator[Past]) -> None:
    scoring = Scoring()
    try:
        while chunk := list(islice(pasts, _CHUNK)):
            chunk = [past for past in chunk if run.takes(past)]
            await scoring.ahead(run, chunk)
            for past in chunk:
                await _one(run, past, scoring)
    finally:
        await scoring.aclose()


async def _one(run: replay.Run, past: Past, scoring: Scoring) -> None:
    scores = [side.scores(past) for side in run.sides()]
    made: list[Decision | None] = []
    for side, known in zip(run.sides(), scores, strict=True):
        while isinstance(step := side.decide(past, known), NeedScore):
            answer = await scoring.score(side.config, step.scorer, past)
            if answer is None:
                run.unscored[step.scorer] += 1
                return
            known[step.scorer] = answer
        if side.unsettled(past, step):
            run.unverified += 1
            return
        made.append(step)
    old = past.record.decision if run.old is None else made[0]
    run.add(past, old, made[-1], (scores[0], scores[-1]))


class Scoring:
    """The configurations' own scorers, built when they are first needed."""

    def __init__(self) -> None:
        self._built: dict[tuple[str, str], Scorer] = {}
        self._gate = asyncio.Semaphore(_IN_FLIGHT)

    async def ahead(self, run: replay.Run, pasts: Iterable[Past]) -> None:
        """Asks for what a chunk needs, many at once; the scorers remember their answers by the prompt."""
        needed = [
            self.score(side.config, step.scorer, past)
            for past in pasts
            if past.record.prompt is not None
            for side in run.sides()
            if isinstance(step := side.decide(past, side.scores(past)), NeedScore)
        ]
        await asyncio.gather(*needed)

    async def score(self, config: Config, name: str, past: Past) -> Score | Abstain | None:
        """One scorer's answer; None where the prompt it would need was not recorded."""
        spec = config.scorers.get(name)
        if past.record.signals is None or (
            spec is not None and past.record.prompt is None and spec.kind not in _TEXTLESS
        ):
            return None
        if spec is None:
            return Abstain(scorer=name, reason="missing")
        key = (config.digest, name)
        if key not in self._built:
            self._built[key] = scorers.offline(spec)
        async with self._gate:
            try:
                answer = self._built[key].score(Prompt(text=past.record.prompt or "", signals=past.record.signals))
                return await answer if inspect.isawaitable(answer) else answer
            except Exception as error:  # noqa: BLE001 - the seam to scorers: in the service too they only abstain
                click.echo(f"the scorer {name} failed: {type(error).__name__}", err=True)
                return Abstain(scorer=name, reason="error")

    async def aclose(self) -> None:
        for scorer in self._built.values():
            await scorer.aclose()
