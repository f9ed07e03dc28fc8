"""Scorers: estimates of how hard a prompt is, behind one protocol (`seams.Scorer`).

`SCORERS` lists the kinds, `build` makes one from what the operator wrote, and `Cached` remembers scores by
prompt digest. To add a kind: write a module with a class that has `score`, add a function here that reads
its options, and add both to the table and to `ScorerSpec.kind`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from router.config import ScorerSpec
from router.errors import ConfigError, Mistake
from router.scorers import calibration, encoder, generative, lexical, off_loop
from router.scorers.cascade import Cascade
from router.scorers.fixed import Fixed
from router.scorers.header import Header
from router.scorers.lexical import Lexical
from router.scorers.remote import Ask, Remote
from router.scorers.signalled import Signalled, signalled
from router.seams import Scorer
from router.types import Abstain, Prompt, Score

CACHE_SIZE = 16384  # prompts remembered per scorer: about 3 MB


def _known(options: Mapping[str, Any], *names: str) -> None:
    unknown = sorted(set(options) - set(names))
    if unknown:
        raise ValueError(f"unknown option {unknown[0]!r}; known: {', '.join(names) or 'none'}")


def _lexical(spec: ScorerSpec) -> Scorer:
    """Options: `artifact`, a path written by `pointsman eval train`; the shipped one when absent."""
    _known(spec.options, "artifact")
    artifact = spec.options.get("artifact")
    scorer = Lexical(spec.name, None if artifact is None else Path(artifact))
    try:
        scorer.load()  # what cannot be read is told now, and the first request does not wait for it
    except OSError as error:
        raise ValueError(f"artifact: cannot read {artifact} ({error.strerror})") from error
    return signalled(Cached(scorer), scorer.model.signals)


def _fixed(spec: ScorerSpec) -> Scorer:
    """Options: `value` in [0, 1], or null to abstain."""
    _known(spec.options, "value")
    value = spec.options.get("value")
    return Fixed(spec.name, None if value is None else float(value))


def _header(spec: ScorerSpec) -> Scorer:
    """Options: `header`, the name to read; `x-difficulty` when absent."""
    _known(spec.options, "header")
    return Header(spec.name, str(spec.options.get("header", "x-difficulty")))


def _remote(spec: ScorerSpec) -> Scorer:
    """Options: `url` up to /v1, `model`, and those of `remote.Ask`; `calibration`, a result of `eval calibrate`."""
    _known(spec.options, *Ask.__struct_fields__, "calibration")
    given = dict(spec.options)
    curve = calibration.read(_path(given.pop("calibration", None)))
    try:
        ask = msgspec.convert(given, Ask)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error
    return Cached(Remote(spec.name, ask, curve=curve))


def _generative(spec: ScorerSpec) -> Scorer:
    """Options: `model` or `artifact` (written by `pointsman eval train --scorer generative`), the other fields of
    `generative.Source`, those of `off_loop.Limits`, and `calibration`, a result of `eval calibrate`."""
    how, room = generative.Source.__struct_fields__, off_loop.Limits.__struct_fields__
    _known(spec.options, *how, *room, "artifact", "calibration")
    given = dict(spec.options)
    curve = calibration.read(_path(given.pop("calibration", None)))
    folder = _path(given.pop("artifact", None))
    limits = {key: given.pop(key) for key in room if key in given}
    artifact = None if folder is None else generative.read(folder)
    if artifact is not None:
        given = {"model": artifact.note.model, "revision": artifact.note.revision} | given
    try:
        source, bounds = msgspec.convert(given, generative.Source), msgspec.convert(limits, off_loop.Limits)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error
    return Cached(generative.build(spec.name, source, artifact, curve=curve, limits=bounds))


def _cascade(spec: ScorerSpec) -> Scorer:
    """Options: `artifact`, a path written by `pointsman eval train --cascade`. Not cached: it depends on answers."""
    _known(spec.options, "artifact")
    artifact = _path(spec.options.get("artifact"))
    if artifact is None:
        raise ValueError("a cascade scorer needs artifact: a folder written by `pointsman eval train --cascade`")
    return Cascade(spec.name, artifact)


def _encoder(spec: ScorerSpec) -> Scorer:
    """Options: `artifact`, written by `pointsman eval train --scorer encoder`, the shipped one when absent; fields of
    `encoder.Source` and of `off_loop.Limits`; `calibration`, a result of `eval calibrate`."""
    room = off_loop.Limits.__struct_fields__
    _known(spec.options, "artifact", "model", "threads", *room, "calibration")
    given = dict(spec.options)
    curve = calibration.read(_path(given.pop("calibration", None)))
    artifact = _path(given.pop("artifact", None))
    limits = {key: given.pop(key) for key in room if key in given}
    try:
        source, bounds = msgspec.convert(given, encoder.Source), msgspec.convert(limits, off_loop.Limits)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error
    part = None if artifact is None else encoder.read(artifact)[0].signals  # the shipped heads have none
    own = curve if part is None else None  # else it maps what the signals have been added to
    return signalled(Cached(encoder.build(spec.name, source, artifact, curve=own, limits=bounds)), part, curve)


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


SCORERS: dict[str, Callable[[ScorerSpec], Scorer]] = {
    "lexical": _lexical,
    "encoder": _encoder,
    "fixed": _fixed,
    "header": _header,
    "remote": _remote,
    "generative": _generative,
    "cascade": _cascade,
}


def build(spec: ScorerSpec) -> Scorer:
    """The scorer that `spec` describes. Raises ConfigError where its kind or an option is not usable."""
    make = SCORERS.get(spec.kind)
    if make is None:
        known = ", ".join(SCORERS)
        raise _unusable(spec, f"no scorer {spec.kind!r}: {known}")
    try:
        return make(spec)
    except (ValueError, TypeError) as e:
        raise _unusable(spec, str(e)) from e


def _unusable(spec: ScorerSpec, why: str) -> ConfigError:
    return ConfigError([Mistake(file="scorers.yaml", line=1, column=1, path=f"scorers.{spec.name}", message=why)])


# Offline everything is waited for: a deadline would make abstentions of a slow machine.
_PATIENT: dict[str, dict[str, Any]] = {
    "encoder": {"deadline_s": None, "queue": 1 << 20},
    "remote": {"deadline_s": 600.0},
    "generative": {"deadline_s": None, "queue": 1 << 20},
}


def offline(spec: ScorerSpec) -> Scorer:
    """As `build`, for evals. Raises ConfigError."""
    return build(replace(spec, options={**spec.options, **_PATIENT.get(spec.kind, {})}))


def named_headers(specs: Iterable[ScorerSpec]) -> frozenset[str]:
    """Lower-case names of the request headers that these scorers read: they must be kept in the signals."""
    return frozenset(str(s.options.get("header", "x-difficulty")).lower() for s in specs if s.kind == "header")


_Key = tuple[int, int]


class Cached:
    """Remembers the scores of the last `size` prompts; abstentions from failure are not kept.

    By the text's hash and length. Python's hash has 64 bits and a key that each process draws: nobody can look for two
    texts with the same one. An answer that was waited for is remembered when it arrives, so two equal prompts in flight
    both ask.
    """

    def __init__(self, scorer: Scorer, size: int = CACHE_SIZE) -> None:
        self.scorer = scorer
        self.name = scorer.name
        self.size = size
        self.hits = 0
        self._kept: OrderedDict[_Key, Score | Abstain] = OrderedDict()

    def score(self, prompt: Prompt) -> Score | Abstain | Awaitable[Score | Abstain]:
        key = hash(prompt.text), len(prompt.text)
        kept = self._kept.get(key)
        if kept is not None:
            self._kept.move_to_end(key)
            self.hits += 1
            return kept
        answer = self.scorer.score(prompt)
        if isinstance(answer, Score | Abstain):
            return self._keep(key, answer)
        return self._await(key, answer)

    def kept(self, prompt: Prompt) -> Score | Abstain | None:
        """What is remembered of a prompt, without asking."""
        return self._kept.get((hash(prompt.text), len(prompt.text)))

    async def _await(self, key: _Key, answer: Awaitable[Score | Abstain]) -> Score | Abstain:
        return self._keep(key, await answer)

    def _keep(self, key: _Key, answer: Score | Abstain) -> Score | Abstain:
        if isinstance(answer, Score) or answer.reason in ("unsure", "empty"):
            self._kept[key] = answer
            if len(self._kept) > self.size:
                self._kept.popitem(last=False)
        return answer

    async def aclose(self) -> None:
        self._kept.clear()
        await self.scorer.aclose()


__all__ = [
    "SCORERS",
    "Cached",
    "Fixed",
    "Header",
    "Lexical",
    "Remote",
    "Signalled",
    "build",
    "named_headers",
    "offline",
    "top_features",
]


def top_features(scorer: Scorer, prompt: Prompt) -> list[tuple[str, float]]:
    """What moved the score of a prompt most, where its scorer can tell; some 20 ms, so not for the hot path."""
    part = scorer.part if isinstance(scorer, Signalled) else None
    inner = scorer.scorer if isinstance(scorer, Signalled) else scorer
    if not isinstance(inner, Cached):
        return []
    if isinstance(inner.scorer, Lexical):
        return lexical.explain(inner.scorer, prompt)
    told = inner.kept(prompt)
    if part is None or not isinstance(told, Score):
        return []
    return sorted(part.effects(told.value, prompt.signals), key=lambda effect: -abs(effect[1]))[:8]
