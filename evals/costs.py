"""What each request costs with each model, in US dollars: prices and token counts, or estimates of them.

Tokens come from columns (`input_tokens:MODEL`, `output_tokens:MODEL`), else from lengths. No routing here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from evals.cases import BadData, Pair, Table

Floats = NDArray[np.float64]

DOLLARS = "US$"
_BYTES_PER_TOKEN = 4.0  # as the gateway estimates prompts


class Price(Struct, frozen=True, kw_only=True):
    """US dollars per million tokens; `tokens` is the mean answer where no column tells."""

    input: float
    output: float
    tokens: float | None = None


class Costs(Struct, frozen=True, kw_only=True):
    """What each row costs with the weak and with the strong model, in one unit."""

    weak: Floats
    strong: Floats
    unit: str
    sources: Mapping[str, str] = {}  # where output tokens come from, by model

    @property
    def means(self) -> tuple[float, float]:
        return float(self.weak.mean()), float(self.strong.mean())


def flat(n: int, weak: float, strong: float, unit: str) -> Costs:
    """The same cost on each of `n` rows."""
    return Costs(weak=np.full(n, weak), strong=np.full(n, strong), unit=unit)


def priced(pair: Pair, weak: str, strong: str, given: Mapping[str, Price]) -> Costs:
    """US dollars of each row of a pair. Raises `BadData`."""
    w, s = (of_model(pair.table, pair.rows, name, given) for name in (weak, strong))
    if w.dollars.mean() >= s.dollars.mean():
        raise BadData(f"{weak!r} costs as much as {strong!r} or more; the weak model is the cheaper one")
    return Costs(weak=w.dollars, strong=s.dollars, unit=DOLLARS, sources={weak: w.source, strong: s.source})


class Cost(Struct, frozen=True, kw_only=True):
    """US dollars of each row with one model, and where its output tokens come from."""

    dollars: Floats
    source: str


def prices(given: Sequence[str]) -> dict[str, Price]:
    """Prices as `--price MODEL=INPUT:OUTPUT[:TOKENS]` gives them, by model. Raises `BadData`."""
    out: dict[str, Price] = {}
    for text in given:
        name, _, said = text.rpartition("=")
        try:
            numbers = [float(v) for v in said.split(":")]
        except ValueError:
            numbers = []
        if not name or len(numbers) not in (2, 3) or not all(np.isfinite(numbers)) or min(numbers) < 0:
            raise BadData(
                f"--price wants MODEL=INPUT:OUTPUT in US$ per million tokens, such as small=0.1:0.3, not {text!r}"
            )
        out[bare(name)] = Price(input=numbers[0], output=numbers[1], tokens=numbers[2] if numbers[2:] else None)
    return out


def bare(name: str) -> str:
    return name.split(":", 1)[1] if name.startswith(("correct:", "score:")) else name


def of_model(table: Table, rows: NDArray[np.int64], name: str, given: Mapping[str, Price]) -> Cost:
    """What each of `rows` costs with the model of column `name`. Raises `BadData`."""
    model = bare(name)
    price = given.get(model)
    if price is None:
        raise BadData(f"no price for {model!r}: add --price {model}=INPUT:OUTPUT; there are {', '.join(given)}")
    prompts = table.prompts
    sizes = np.array([len(prompts[int(i)].encode("utf-8", "replace")) / _BYTES_PER_TOKEN for i in rows])
    entered = _numbers(table, rows, f"input_tokens:{model}")
    if entered is None:
        entered = sizes
    made, source = _output(table, rows, model, price)
    return Cost(
        dollars=(np.where(np.isnan(entered), sizes, entered) * price.input + made * price.output) / 1e6, source=source
    )


def _output(table: Table, rows: NDArray[np.int64], model: str, price: Price) -> tuple[Floats, str]:
    """Output tokens of each row: counted, from lengths, or as `--price` says."""
    for name, scale in ((f"output_tokens:{model}", 1.0), (f"chars:{model}", 1.0 / _BYTES_PER_TOKEN)):
        found = _numbers(table, rows, name)
        if found is not None:
            known = found[~np.isnan(found)] * scale
            return np.where(np.isnan(found), known.mean(), found * scale), name
    if price.tokens is not None:
        return np.full(len(rows), price.tokens), "--price"
    raise BadData(
        f"{table.path}: nothing says how long the answers of {model!r} are: no column output_tokens:{model} or "
        f"chars:{model}; give the mean as a third number, --price {model}={price.input:g}:{price.output:g}:250"
    )


def _numbers(table: Table, rows: NDArray[np.int64], name: str) -> Floats | None:
    """A column of counts, nan where it is empty or negative; None where there is none, or nothing in it."""
    held = table.columns.get(name)
    if held is None:
        return None
    out = np.full(len(rows), np.nan)
    for at, i in enumerate(rows):
        value: Any = held[int(i)]
        if value is None or value == "":
            continue
        try:
            out[at] = float(value)
        except (TypeError, ValueError) as e:
            raise BadData(f"{table.path}: column {name!r}, row {int(i) + 1}: {value!r} is not a number") from e
    out[out < 0] = np.nan
    return None if np.isnan(out).all() else out
