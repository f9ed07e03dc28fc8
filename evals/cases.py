"""Reading labelled prompts: parquet, CSV or JSON lines with a `prompt` column and one column per model.

A file that cannot be used gives one `BadData` that says what is wrong and what was there. No scoring here.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from evals.libraries import library

Floats = NDArray[np.float64]

LEAST_ROWS = 20  # fewer tell nothing: an interval would span everything
_TRUTH = {"True": 1.0, "true": 1.0, "False": 0.0, "false": 0.0}
_PREFIXES = ("", "correct:", "score:")
_GROUPS = ("subject", "category", "task", "domain", "kind", "benchmark")  # columns that usually name a domain


class BadData(ValueError):
    """A data file that cannot be used, and why."""


class Table(Struct, frozen=True, kw_only=True):
    """One file: columns by name, all of the same length."""

    path: Path
    columns: dict[str, list[Any]]
    digest: str  # sha256 of the file's bytes

    def __len__(self) -> int:
        return len(self.columns["prompt"])

    @property
    def prompts(self) -> list[str]:
        return [str(p) for p in self.columns["prompt"]]

    @property
    def models(self) -> list[str]:
        """Columns that hold a model's quality, without their prefix."""
        found = [c for c in self.columns if c.startswith(("correct:", "score:"))]
        return [c.split(":", 1)[1] for c in found]


def _parquet(path: Path) -> dict[str, list[Any]]:
    damaged: type[Exception] = library("pyarrow.lib").ArrowException
    try:
        table = library("pyarrow.parquet").read_table(path)
    except damaged as e:
        raise BadData(f"{path}: not a parquet file: {e}") from e
    _once(path, table.column_names)
    return table.to_pydict()


def _csv(path: Path) -> dict[str, list[Any]]:
    csv.field_size_limit(2**31 - 1)  # a prompt may be long
    with path.open(newline="", encoding="utf-8-sig") as f:
        reader = csv.reader(f)
        try:
            names = next(reader, list[str]())
            _once(path, names)
            rows: list[list[str]] = []
            for row in reader:
                if row and len(row) != len(names):
                    raise BadData(f"{path}:{reader.line_num}: {len(row)} fields under {len(names)} column names")
                rows += [row] if row else []
        except csv.Error as e:
            raise BadData(f"{path}:{reader.line_num}: not CSV: {e}") from e
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}


def _once(path: Path, names: Sequence[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise BadData(f"{path}: two columns are called {twice[0]!r}; rename one")


def _jsonl(path: Path) -> dict[str, list[Any]]:
    rows: list[dict[str, Any]] = []
    with path.open(encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except json.JSONDecodeError as e:
                raise BadData(f"{path}:{number}: not JSON: {e.msg}") from e
            except (ValueError, RecursionError) as e:  # an integer of 4,300 digits; a thousand brackets
                raise BadData(f"{path}:{number}: not JSON that can be read") from e
            if not isinstance(row, dict):
                raise BadData(f"{path}:{number}: a line must be an object")
            rows.append(cast("dict[str, Any]", row))
    names = list(dict.fromkeys(k for row in rows for k in row))
    return {name: [row.get(name) for row in rows] for name in names}


READERS = {".parquet": _parquet, ".csv": _csv, ".jsonl": _jsonl, ".ndjson": _jsonl}


def read(path: Path) -> Table:
    """One data file. Raises `BadData`."""
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise BadData(f"{path}: unknown kind of file; use {', '.join(READERS)}")
    if not path.is_file():
        raise BadData(f"{path}: no such file")
    try:
        columns = reader(path)
    except UnicodeDecodeError as e:
        raise BadData(f"{path}: not UTF-8 text, at byte {_byte(path)}; save it as UTF-8") from e
    if not columns:
        raise BadData(f"{path}: empty; a file has a `prompt` column and one for each model")
    if "prompt" not in columns:
        raise BadData(f"{path}: no `prompt` column; it has {_some(list(columns))}")
    holes = [i for i, p in enumerate(columns["prompt"]) if not isinstance(p, str) or not p.strip()]
    if holes:
        raise BadData(f"{path}: {len(holes)} rows have no prompt, the first is row {holes[0] + 1}")
    if not columns["prompt"]:
        raise BadData(f"{path}: no rows")
    return Table(path=path, columns=columns, digest=hashlib.sha256(path.read_bytes()).hexdigest())


def _byte(path: Path) -> int:
    """Where the first byte stands that is not UTF-8."""
    try:
        path.read_bytes().decode()
    except UnicodeDecodeError as e:
        return e.start
    return 0


def texts(table: Table, name: str) -> list[str]:
    """A column as text on every row. Raises `BadData` where it is missing or has holes."""
    if name not in table.columns:
        raise BadData(f"{table.path}: no column {name!r}; it has {_some(list(table.columns))}")
    held = table.columns[name]
    holes = [i for i, v in enumerate(held) if v is None or not str(v).strip()]
    if holes:
        raise BadData(f"{table.path}: column {name!r} is empty on {len(holes)} rows, the first is row {holes[0] + 1}")
    return [str(v) for v in held]


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:12])
    return shown + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def column(table: Table, name: str) -> str:
    """The full name of a column given with or without `correct:` or `score:`. Raises `BadData`."""
    for prefix in _PREFIXES:
        if prefix + name in table.columns:
            return prefix + name
    bare = name.split(":", 1)[-1]
    if ":" in name and bare in table.columns:
        return bare
    close = [c for c in table.columns if bare.lower() in c.lower()]
    hint = f"; did you mean {_some(close)}?" if close else f"; it has {_some(list(table.columns))}"
    raise BadData(f"{table.path}: no column {name!r}{hint}")


def quality(table: Table, name: str) -> Floats:
    """A model's quality per row in [0, 1]; nan where it was not run (negative or empty). Raises `BadData`."""
    full = column(table, name)
    out = np.full(len(table), np.nan)
    for i, value in enumerate(table.columns[full]):
        if value is None or value == "":
            continue
        try:
            number = _TRUTH[value] if isinstance(value, str) and value in _TRUTH else float(value)
        except (TypeError, ValueError) as e:
            raise BadData(f"{table.path}: column {full!r}, row {i + 1}: {value!r} is not a number") from e
        if number > 1.0:
            raise BadData(f"{table.path}: column {full!r}, row {i + 1}: {number:g} is above 1; quality lies in 0..1")
        if number >= 0.0:
            out[i] = number
    return out


class Pair(Struct, frozen=True, kw_only=True):
    """The rows of a table on which both models were run."""

    table: Table
    rows: NDArray[np.int64]  # into the table
    prompts: list[str]
    weak: Floats
    strong: Floats

    def __len__(self) -> int:
        return len(self.prompts)

    def values(self, name: str) -> list[str]:
        """Another column for the same rows, as text."""
        if name not in self.table.columns:
            raise BadData(f"{self.table.path}: no column {name!r}; it has {_some(list(self.table.columns))}")
        held = self.table.columns[name]
        return [str(held[i]) for i in self.rows]

    def take(self, rows: NDArray[np.int64]) -> Pair:
        """Some rows only."""
        return Pair(
            table=self.table,
            rows=self.rows[rows],
            prompts=[self.prompts[i] for i in rows],
            weak=self.weak[rows],
            strong=self.strong[rows],
        )

    def domain(self) -> list[str] | None:
        """The rows' domains, where a column of a usual name holds between 2 and n/5 different ones."""
        for name in _GROUPS:
            if name in self.table.columns:
                values = self.values(name)
                if 2 <= len(set(values)) <= max(2, len(values) // 5):
                    return values
        return None


def pair(table: Table, weak: str, strong: str, *, least: int = LEAST_ROWS) -> Pair:
    """The rows where both models have a quality. Raises `BadData` where too few do or labels are constant."""
    w, s = quality(table, weak), quality(table, strong)
    if column(table, weak) == column(table, strong):
        raise BadData(f"{table.path}: weak and strong are the same column {weak!r}")
    both = np.flatnonzero(~np.isnan(w) & ~np.isnan(s))
    if len(both) < least:
        raise BadData(f"{table.path}: only {len(both)} rows have both {weak!r} and {strong!r}; at least {least} needed")
    gain = s[both] - w[both]
    if np.ptp(gain) == 0:
        raise BadData(f"{table.path}: {strong!r} minus {weak!r} is {gain[0]:g} on every row; nothing to rank")
    prompts = table.prompts
    return Pair(table=table, rows=both, prompts=[prompts[i] for i in both], weak=w[both], strong=s[both])


def check_writable(path: Path) -> None:
    """Before the work whose result goes to `path`. Raises `BadData`."""
    if path.suffix.lower() not in READERS:
        raise BadData(f"{path}: unknown kind of file; use {', '.join(READERS)}")


def write(path: Path, columns: dict[str, list[Any]]) -> None:
    """Columns of one length as parquet, CSV or JSON lines, by the file's name. Raises `BadData`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = path.suffix.lower()
    names = list(columns)
    rows = zip(*columns.values(), strict=True)
    if kind == ".parquet":
        library("pyarrow.parquet").write_table(library("pyarrow").table(columns), path)
    elif kind == ".csv":
        with path.open("w", newline="", encoding="utf-8") as f:
            out = csv.writer(f, lineterminator="\n")
            out.writerow(names)
            out.writerows(["" if v is None else v for v in row] for row in rows)
    elif kind in (".jsonl", ".ndjson"):
        with path.open("w", encoding="utf-8") as f:
            for row in rows:
                f.write(json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False, default=str) + "\n")
    else:
        raise BadData(f"{path}: unknown kind of file; use {', '.join(READERS)}")
