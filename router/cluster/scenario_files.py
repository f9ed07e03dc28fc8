"""Scenarios and their traces from files; what they mean stands in `scenario`. Mistakes are told at their place."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from router.cluster import reader
from router.cluster.scenario import Objective, Reading, Routing, Scenario
from router.cluster.simulate import Recorded
from router.cluster.traffic import Arrivals
from router.cluster.values import Model
from router.errors import ConfigError, Mistake
from router.policy_files.positions import Document

COLUMNS = ("score", "prompt_tokens", "small_tokens", "large_tokens", "small_quality", "large_quality")
LAYOUTS = ("large_only", "small_only", "routed")


class _Models(Struct, forbid_unknown_fields=True):
    large: str
    small: str
    classifier: str | None = None


class _Prompts(Struct, forbid_unknown_fields=True):
    trace: str
    extra_tokens: int = 0
    output_scale: float = 1.0


class _File(Struct, forbid_unknown_fields=True):
    version: int
    cluster: str
    models: _Models
    prompts: _Prompts
    routing: Routing
    objective: Objective
    arrivals: Arrivals
    requests: int = 20_000
    streams: dict[str, int] = {}
    layouts: dict[str, str] = {}
    classifier: Reading = Reading()
    loads: tuple[float, ...] = ()
    shares: tuple[float, ...] = ()
    about: str = ""
    sources: tuple[str, ...] = ()


def scenario(name: str, catalog: Path = reader.SHIPPED) -> Scenario:
    """One scenario, by its file or its name in the catalogue. Raises ConfigError, NotFound."""
    path = reader.find("scenarios", name, catalog)
    document = reader.document_of(path)
    file = reader.onto(document, _File)
    reader.versioned(document, file.version)
    wrong = _mistakes(document, file)
    if wrong:
        raise ConfigError(wrong)

    def named(given: str) -> str:
        return str(path.parent / given) if given.endswith((".yaml", ".yml")) else given

    models: dict[str, Model] = {
        "large": reader.model(named(file.models.large), catalog),
        "small": reader.model(named(file.models.small), catalog),
    }
    if file.models.classifier is not None:
        models["classifier"] = reader.model(named(file.models.classifier), catalog)
    times = _times(path.parent / file.arrivals.file) if file.arrivals.process == "records" else ()
    return Scenario(
        name=path.stem,
        cluster=reader.cluster(named(file.cluster), catalog),
        models=models,
        layouts=file.layouts,
        recorded=trace(path.parent / file.prompts.trace, file.prompts.extra_tokens, file.prompts.output_scale),
        objective=file.objective,
        routing=file.routing,
        arrivals=file.arrivals,
        requests=file.requests,
        streams=file.streams,
        classifier=file.classifier,
        times=times,
        loads=file.loads,
        shares=file.shares,
        about=file.about,
        sources=file.sources,
    )


def _mistakes(document: Document, file: _File) -> list[Mistake]:
    wrong: list[Mistake] = []
    for key in file.layouts:
        if key not in LAYOUTS:
            wrong.append(document.mistake(("layouts", key), f"unknown arm; known: {', '.join(LAYOUTS)}", at_key=True))
    if (file.routing.threshold is None) == (file.routing.large_share is None):
        wrong.append(document.mistake(("routing",), "give either a threshold or a large_share"))
    above: list[tuple[tuple[str, ...], float]] = [
        (("requests",), file.requests),
        (("prompts", "output_scale"), file.prompts.output_scale),
        (("objective", "ttft_s"), file.objective.ttft_s),
        (("objective", "tpot_s"), file.objective.tpot_s),
        (("classifier", "deadline_s"), file.classifier.deadline_s),
        (("arrivals", "per_s"), file.arrivals.per_s),
    ]
    for place, value in above:
        if not (value > 0 and math.isfinite(value)):
            wrong.append(document.mistake(place, f"{value:g} is not above zero"))
    for role, count in file.streams.items():
        if role not in ("large", "small") or count < 1:
            wrong.append(document.mistake(("streams", role), "give large and small one stream or more"))
    for index, load in enumerate(file.loads):
        if not load > 0:
            wrong.append(document.mistake(("loads", index), f"{load:g} is not above zero"))
    for index, share in enumerate(file.shares):
        if not 0 < share < 1:
            wrong.append(document.mistake(("shares", index), "a share lies between 0 and 1"))
    if file.arrivals.process == "records" and not file.arrivals.file:
        wrong.append(document.mistake(("arrivals",), "arrivals as recorded need `file`, of `pointsman records export`"))
    return wrong


def trace(path: Path, extra_tokens: int = 0, output_scale: float = 1.0) -> Recorded:
    """Recorded prompts from CSV. Raises ConfigError, NotFound."""
    columns: dict[str, list[float]] = {name: [] for name in COLUMNS}
    with reader.opened(path) as file:
        rows = csv.DictReader(file)
        lacking = [name for name in COLUMNS if name not in (rows.fieldnames or ())]
        if lacking:
            raise _bad(path, 1, f"a trace has the columns {', '.join(COLUMNS)}; this one lacks {', '.join(lacking)}")
        for row in rows:
            for name in COLUMNS:
                columns[name].append(_number(path, rows.line_num, name, row[name]))
    if not columns["score"]:
        raise _bad(path, 1, "a trace has at least one row")
    held = {name: np.array(values) for name, values in columns.items()}
    return Recorded(
        scores=held["score"],
        prompt=held["prompt_tokens"] + extra_tokens,
        asked=held["prompt_tokens"],
        output={"small": held["small_tokens"] * output_scale, "large": held["large_tokens"] * output_scale},
        quality={"small": held["small_quality"], "large": held["large_quality"]},
    )


def _number(path: Path, line: int, name: str, text: str | None) -> float:
    if name == "score" and not text:
        return math.nan
    try:
        value = float(text or "")
    except ValueError:
        raise _bad(path, line, f"{name} is not a number") from None
    share = name.endswith("quality") or name == "score"
    if not (0 <= value <= 1 if share else 1 <= value < math.inf):
        raise _bad(path, line, f"{name} is {value:g}; it lies {'in 0..1' if share else 'at one or above'}")
    return value


def _times(path: Path) -> tuple[float, ...]:
    """When recorded requests came, from what `pointsman records export` writes."""
    found: list[float] = []
    with reader.opened(path) as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    held: dict[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
                    found.append(float(held["time"]))
                except (msgspec.MsgspecError, KeyError, TypeError, ValueError):
                    raise _bad(path, number, "is not a record as `pointsman records export` writes it") from None
    return tuple(found)


def _bad(path: Path, line: int, message: str) -> ConfigError:
    return ConfigError([Mistake(file=str(path), line=line, column=1, path="(file)", message=message)])
