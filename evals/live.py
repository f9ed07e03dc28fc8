"""`pointsman eval run --live`: asks the operator's own models through the gateway, has their answers judged, and
makes labelled rows of them.

What belongs here: who is asked what, and going on after a stop. One call is `asking`'s, verdicts are `judges`',
figures `run`'s.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from evals import judges
from evals.asking import Answer, Asker, Failed, Stopped, client, read_answer
from evals.cases import LEAST_ROWS, BadData, Table, texts
from evals.console import progress, say
from evals.journal import Journal
from router.judging import questions

_FAILED_IN_A_ROW = 10  # rows; then something is wrong with more than a row
_JUDGE_TOKENS = 1024  # a model that thinks first needs more than its one letter


class Settings(Struct, frozen=True, kw_only=True):
    """What is asked of whom. Everything but `url`, `concurrency`, `tries` and `timeout_s` shapes the answers."""

    url: str
    weak: str
    strong: str
    judge: judges.Kind
    judge_model: str | None = None
    reference: str | None = None
    pattern: str | None = None
    system: str | None = None
    fields: Mapping[str, Any] = {}  # of every request to the two models
    sample: int | None = None
    seed: int = 0
    concurrency: int = 8
    tries: int = 6
    timeout_s: float = 600.0


class Verdict(Struct, frozen=True, kw_only=True):
    """What a model that judges gave two answers, from 0 to 1, both orders averaged."""

    row: int
    judge: str  # digest of what was asked of it
    weak: float
    strong: float
    input: int = 0
    output: int = 0


Entry = Answer | Verdict


def check(table: Table, s: Settings) -> list[int]:
    """The rows to ask, after everything that can be told before a call. Raises `BadData`."""
    if s.weak == s.strong:
        raise BadData(f"--weak-model and --strong-model are both {s.weak!r}")
    if s.judge == "llm":
        if s.judge_model is None:
            raise BadData("--judge llm needs --judge-model: the model that judges, as the gateway knows it")
        if s.judge_model in (s.weak, s.strong):
            raise BadData(f"--judge-model {s.judge_model!r} is one of the two that are judged; name a third")
    else:
        if s.reference is None:
            raise BadData(f"--judge {s.judge} needs --reference: the column that holds the right answers")
        judges.checker(s.judge, s.pattern)
    references = texts(table, s.reference) if s.reference is not None else []
    if s.judge == "regex" and s.pattern is None:
        for i, reference in enumerate(references, 1):
            judges.compiled(reference, f"{table.path}: column {s.reference!r}, row {i}")
    rows = np.arange(len(table))
    if s.sample is not None and s.sample < len(rows):
        rows = np.sort(np.random.default_rng(s.seed).permutation(rows)[: s.sample])
    if len(rows) < LEAST_ROWS:
        raise BadData(f"{len(rows)} rows tell nothing; at least {LEAST_ROWS} are needed")
    return [int(r) for r in rows]


def digest(table: Table, s: Settings) -> str:
    """What the answers depend on; another judge judges the same answers."""
    asked = [table.digest, s.weak, s.strong, s.system, dict(s.fields)]
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


def judge_named(name: str) -> judges.Kind:
    """The judge of this name. Raises `BadData`."""
    for kind in judges.KINDS:
        if kind == name:
            return kind
    raise BadData(f"--judge is one of {', '.join(judges.KINDS)}, not {name!r}")


def _judge_digest(s: Settings) -> str:
    return hashlib.sha256(json.dumps([s.judge_model, s.reference]).encode()).hexdigest()[:12]


# --- all of them -----------------------------------------------------------------------------------------


class Run:
    """One live run: which rows are answered and judged, and the work that is left."""

    def __init__(self, table: Table, s: Settings, rows: Sequence[int], journal: Journal) -> None:
        self.table, self.s, self.rows, self.journal = table, s, rows, journal
        self.prompts = table.prompts
        self.references = texts(table, s.reference) if s.reference is not None else None
        self.answers: dict[tuple[int, str], Answer] = {}
        self.verdicts: dict[int, Verdict] = {}
        self.failed: dict[str, str] = {}  # why, by "row/model"
        self._judge = _judge_digest(s)
        self._in_a_row = 0
        for entry in journal.entries:
            self._take(_entry(journal.path, entry))
        self.reused = len(self.answers)

    def _take(self, entry: Entry) -> None:
        if isinstance(entry, Answer):
            self.answers[entry.row, entry.model] = entry
        elif entry.judge == self._judge:
            self.verdicts[entry.row] = entry

    def _keep(self, entry: Entry) -> None:
        kind = "answer" if isinstance(entry, Answer) else "verdict"
        self.journal.add({"kind": kind, **msgspec.to_builtins(entry)})
        self._take(entry)
        self._in_a_row = 0

    def left(self) -> list[int]:
        """Rows that lack an answer or a verdict."""
        return [r for r in self.rows if not self._done(r)]

    def _done(self, row: int) -> bool:
        answered = all((row, m) in self.answers for m in (self.s.weak, self.s.strong))
        return answered and (self.s.judge != "llm" or row in self.verdicts)

    async def go(self, step: Callable[[], None]) -> None:
        """Ask what is left. Raises `Stopped`."""
        left = iter(self.left())
        async with client(self.s.url, self.s.timeout_s, self.s.concurrency) as open_client:
            asker = Asker(open_client, self.s.tries)
            await asker.knows([m for m in (self.s.weak, self.s.strong, self.s.judge_model) if m is not None])

            async def work() -> None:
                for row in left:
                    await self._row(asker, row)
                    step()

            workers = [asyncio.ensure_future(work()) for _ in range(self.s.concurrency)]
            try:
                await asyncio.gather(*workers)
            finally:
                for worker in workers:
                    worker.cancel()
                await asyncio.gather(*workers, return_exceptions=True)

    async def _row(self, asker: Asker, row: int) -> None:
        s = self.s
        prompt = self.prompts[row].encode("utf-8", "replace").decode()  # JSON lines may hold half a character
        messages = [{"role": "user", "content": prompt}]
        if s.system is not None:
            messages.insert(0, {"role": "system", "content": s.system})
        asked = sum(len(m["content"]) for m in messages)
        for model in (s.weak, s.strong):
            if (row, model) not in self.answers:
                try:
                    body = await asker.ask(model, messages, s.fields)
                    self._keep(read_answer(row, model, body, asked))
                except Failed as e:
                    self._fail(row, model, e)
        both = [self.answers.get((row, m)) for m in (s.weak, s.strong)]
        if s.judge == "llm" and s.judge_model is not None and row not in self.verdicts and None not in both:
            try:
                self._keep(await self._judged(asker, s.judge_model, row))
            except Failed as e:
                self._fail(row, s.judge_model, e)

    async def _judged(self, asker: Asker, model: str, row: int) -> Verdict:
        """Both orders; the second answer's points are averaged, so that a liking for a place cancels out."""
        weak, strong = (self.answers[row, m].text for m in (self.s.weak, self.s.strong))
        reference = self.references[row] if self.references is not None else None
        points, tokens = 0.0, [0, 0]
        for first, second, strong_second in ((weak, strong, True), (strong, weak, False)):
            messages = questions.comparison(self.prompts[row], first, second, reference)
            asked = sum(len(m["content"]) for m in messages)
            reply = read_answer(row, model, await asker.ask(model, messages, {"max_tokens": _JUDGE_TOKENS}), asked)
            given = questions.second_better(reply.text)
            if given is None:
                raise Failed("the judge gave no verdict")
            points += given if strong_second else 1.0 - given
            tokens[0] += reply.input
            tokens[1] += reply.output
        strong_won = points / 2.0
        return Verdict(
            row=row, judge=self._judge, weak=1.0 - strong_won, strong=strong_won, input=tokens[0], output=tokens[1]
        )

    def _fail(self, row: int, model: str, why: Failed) -> None:
        self.failed[f"{row}/{model}"] = str(why)
        self._in_a_row += 1
        if self._in_a_row >= _FAILED_IN_A_ROW:
            raise Stopped(f"{self._in_a_row} calls in a row failed, the last of row {row + 1} to {model}: {why}")

    # --- what came of it ---

    def labels(self, row: int) -> tuple[float | None, float | None]:
        """The quality of the weak and the strong answer; None where it is not known."""
        found = [self.answers.get((row, m)) for m in (self.s.weak, self.s.strong)]
        if self.s.judge == "llm":
            verdict = self.verdicts.get(row)
            return (None, None) if verdict is None else (verdict.weak, verdict.strong)
        if self.references is None:
            return None, None
        judge, reference = judges.checker(self.s.judge, self.s.pattern), self.references[row]
        weak, strong = (None if a is None else judge(a.text, reference) for a in found)
        return weak, strong

    def labelled(self) -> dict[str, list[Any]]:
        """The rows asked, with both models' quality, answers and tokens: what `eval train` and `eval run` read."""
        weak, strong = self.s.weak, self.s.strong
        added = [f"{kind}:{m}" for m in (weak, strong) for kind in _ADDED]
        bare = {weak, strong, f"score:{weak}", f"score:{strong}"}  # an older label of the same name would be read
        out = {n: [v[r] for r in self.rows] for n, v in self.table.columns.items() if n not in bare}
        out |= {name: [] for name in added}
        for row in self.rows:
            for model, label in zip((weak, strong), self.labels(row), strict=True):
                answer = self.answers.get((row, model))
                told = (None,) * 3 if answer is None else (answer.text, answer.input, answer.output)
                for kind, value in zip(_ADDED, (label, *told), strict=True):
                    out[f"{kind}:{model}"].append(value)
        return out

    def told(self) -> dict[str, Any]:
        """What the result says of the calls."""
        answers = [a for (row, _), a in self.answers.items() if row in set(self.rows)]
        out: dict[str, Any] = {
            "answers": len(answers),
            "reused": self.reused,
            "failed": self.failed,
            "cut_short": {m: sum(a.cut for a in answers if a.model == m) for m in (self.s.weak, self.s.strong)},
            "tokens_estimated": sum(a.estimated for a in answers),
            "judge": {"kind": self.s.judge, "model": self.s.judge_model},
        }
        if self.s.judge == "llm":
            held = list(self.verdicts.values())
            out["judge"] |= {
                "ties": sum(v.weak == v.strong for v in held),
                "tokens": {"input": sum(v.input for v in held), "output": sum(v.output for v in held)},
            }
        return out


_ADDED = ("correct", "answer", "input_tokens", "output_tokens")


def _entry(path: Path, line: Mapping[str, Any]) -> Entry:
    kinds: dict[str, type[Entry]] = {"answer": Answer, "verdict": Verdict}
    kind = kinds.get(str(line.get("kind")))
    if kind is None:
        raise BadData(f"{path}: a line of no known kind; remove the file to begin anew")
    try:
        return msgspec.convert({k: v for k, v in line.items() if k != "kind"}, kind)
    except msgspec.ValidationError as e:
        raise BadData(f"{path}: {e}; remove the file to begin anew") from e


def run(table: Table, s: Settings, journal: Path) -> Run:
    """Ask everything that `journal` does not hold yet. Raises `BadData`, after which the same call goes on."""
    rows = check(table, s)
    kept = Journal(journal, digest(table, s))
    try:
        made = Run(table, s, rows, kept)
        left = made.left()
        if made.reused:
            say(f"{journal}: {made.reused} answers are there already")
        if left:
            with progress("rows answered and judged", len(rows), len(rows) - len(left)) as step:
                asyncio.run(made.go(step))
    except Stopped as e:
        raise BadData(f"{e}\n{len(kept.entries)} lines were there before; run the same command again to go on") from e
    finally:
        kept.close()
    if made.failed:
        where, why = next(iter(made.failed.items()))
        say(f"{len(made.failed)} calls failed and are asked again by the same command; {where}: {why}")
    return made
