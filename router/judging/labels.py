"""The judge's own error: it is put the pairs of answers that people have labelled, once for each file and judge.

What it said is kept in the state folder, so that neither a restart nor another worker asks again. What follows from it
is `quality.judge_error`'s.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Struct

from router.config import Config, Policy
from router.judging import questions
from router.quality.estimates import DECIDED
from router.quality.judge_error import Correction, Outcome, correction

log = logging.getLogger("pointsman.judging")

MOST = 2000  # pairs of a file that are put to a judge
_LABELS: dict[Literal["small", "large", "same"], Outcome] = {
    "small": "small_better",
    "large": "small_worse",
    "same": "same",
}

Text = Annotated[str, msgspec.Meta(min_length=1)]
Ask = Callable[[list[dict[str, str]], str], Awaitable[str]]  # messages and an id to the judge's reply


class Pair(Struct, frozen=True, forbid_unknown_fields=False):
    """One line of a calibration file: two answers to a prompt, and which one people found better."""

    prompt: Text
    small: str
    large: str
    better: Literal["small", "large", "same"]


class Measured(Struct, frozen=True, kw_only=True):
    """What is known of one judge: how to correct its verdicts, or why that cannot be said yet."""

    correction: Correction | None = None
    pairs: int = 0
    why: str | None = None
    later: bool = False  # may be known later without another configuration


def read(path: Path) -> list[Pair]:
    """The pairs in a file. Raises OSError, and ValueError that names the line."""
    pairs: list[Pair] = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if not line.strip():
            continue
        try:
            pairs.append(msgspec.json.decode(line, type=Pair))
        except msgspec.MsgspecError as error:
            raise ValueError(f"{path}:{number}: {error}") from None
    return pairs[:MOST]


def digest(config: Config, policy: Policy, content: bytes) -> str:
    """What the verdicts hold for: these pairs, and the models of this judge."""
    group = config.groups.get(policy.judge.group or "") if policy.judge is not None else None
    names = group.deployments if group is not None else ()
    models = sorted({(config.deployments[n].upstream, config.deployments[n].model) for n in names})
    return sha256(msgspec.json.encode([models, sha256(content).hexdigest()])).hexdigest()[:16]


async def measure(config: Config, policy: Policy, folder: Path | None, ask: Ask | None) -> Measured:
    """What the judge of a policy makes of its labelled pairs; `ask` is None where another worker asks.

    Raises PointsmanError where the judge does not answer: it is asked again later.
    """
    if policy.judge is None or policy.judge.calibration is None:
        return Measured(why="no calibration: the judge is taken at its word")
    path = Path(policy.judge.calibration)
    try:
        content = await asyncio.to_thread(path.read_bytes)
        pairs = await asyncio.to_thread(read, path)
    except OSError as error:
        return Measured(why=f"{path}: {error.strerror}; the judge is taken at its word")
    except ValueError as error:
        return Measured(why=f"{error}; the judge is taken at its word")
    kept = folder / f"judge-{digest(config, policy, content)}.json" if folder is not None else None
    said = await asyncio.to_thread(_kept, kept) if kept is not None else None
    if said is None or len(said) != len(pairs):
        if ask is None:
            return Measured(why="the judge has not been put the labelled pairs yet", pairs=len(pairs), later=True)
        said = await _ask(pairs, ask)
        if kept is not None:
            await asyncio.to_thread(_keep, kept, said)
    decided: list[tuple[Outcome, Outcome]] = [
        (_LABELS[p.better], DECIDED[v]) for p, v in zip(pairs, said, strict=True) if v in DECIDED
    ]
    found = correction(decided)
    if isinstance(found, str):
        return Measured(why=found, pairs=len(decided))
    return Measured(correction=found, pairs=len(decided))


async def _ask(pairs: Sequence[Pair], ask: Ask) -> list[questions.Verdict]:
    said: list[questions.Verdict] = []
    for number, pair in enumerate(pairs):
        large_second = await ask(questions.comparison(pair.prompt, pair.small, pair.large), f"label-{number}")
        large_first = await ask(questions.comparison(pair.prompt, pair.large, pair.small), f"label-{number}")
        points = (questions.second_better(large_second), questions.second_better(large_first))
        said.append(questions.verdict(*points))
    return said


def _kept(path: Path) -> list[questions.Verdict] | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[questions.Verdict])
    except (OSError, msgspec.MsgspecError):
        return None


def _keep(path: Path, said: Sequence[questions.Verdict]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh = path.with_suffix(".new")
        fresh.write_bytes(msgspec.json.encode(said))
        fresh.replace(path)
    except OSError as error:
        log.warning("%s is not written: %s; the judge is asked again after a restart", path, error)
