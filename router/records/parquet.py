"""Records as a Parquet file: a column for each of the table's, and the whole record as JSON. Needs pyarrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from router import record
from router.record import served
from router.types import Record, Score

_ROWS = 20_000  # of a row group
_KINDS: dict[str, tuple[str, ...]] = {
    "string": (
        *("id", "policy", "digest", "dialect", "model", "route", "group", "deployment"),
        *("outcome", "why", "tenant", "record"),
    ),
    "float64": (
        *("score", "threshold", "cost", "cost_large", "ttft_s", "tpot_s", "total_s", "overhead_s", "feedback"),
    ),
    "int64": ("input_tokens", "output_tokens", "cached_tokens", "attempts"),
}


class NotInstalled(Exception):
    """pyarrow is not there."""


def write(lines: Iterable[str], to: Path) -> int:
    """Writes exported lines to a new file; how many there were. Raises NotInstalled and OSError."""
    try:
        pa, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise NotInstalled("Parquet needs pyarrow: pip install 'pointsman[evals]'") from None
    columns = [(name, getattr(pa, kind)()) for kind, names in _KINDS.items() for name in names]
    schema = pa.schema([("time", pa.timestamp("us", tz="UTC")), *columns])
    count = 0
    rest = iter(lines)
    with parquet.ParquetWriter(to, schema, compression="zstd") as file:
        while batch := list(islice(_rows(rest), _ROWS)):
            file.write_table(pa.Table.from_pylist(batch, schema=schema))
            count += len(batch)
    return count


class _Opinion(msgspec.Struct):
    score: float


class _Judged(msgspec.Struct):
    feedback: _Opinion | None = None


def _rows(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        judged = msgspec.json.decode(line, type=_Judged).feedback
        row = _row(record.decode(line))
        yield {**row, "feedback": judged.score if judged is not None else None, "record": line}


def _row(of: Record) -> dict[str, Any]:
    decision, by = of.decision, served(of)
    score = decision.score if decision is not None else None
    if score is None:
        score = next((one.value for one in of.scores.values() if isinstance(one, Score)), None)
    return {
        "time": int(of.time * 1e6),
        "id": of.id,
        "policy": of.policy,
        "digest": of.digest,
        "dialect": of.dialect,
        "model": of.model,
        "route": decision.route if decision is not None else None,
        "group": record.group(of),
        "deployment": by.deployment if by is not None else None,
        "outcome": of.outcome,
        "why": decision.why if decision is not None else None,
        "tenant": of.signals.tenant if of.signals is not None else None,
        "score": score,
        "threshold": decision.threshold if decision is not None else None,
        "cost": of.cost,
        "cost_large": of.cost_large,
        "ttft_s": of.timing.ttft_s,
        "tpot_s": of.timing.tpot_s,
        "total_s": of.timing.total_s,
        "overhead_s": of.timing.overhead_s,
        "input_tokens": of.usage.input,
        "output_tokens": of.usage.output,
        "cached_tokens": of.usage.cached,
        "attempts": len(of.attempts),
    }
