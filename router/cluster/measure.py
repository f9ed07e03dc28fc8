"""Benchmarks of one's own taken in: what `vllm bench serve` and `sglang.bench_serving` write, as measured rows that
estimates then lean on. Reads text that is given; files belong to `reader`.

The rate of all streams is their number by the mean time a token, which is what decoding is once answers have begun; a
file's `output_throughput` has the waiting for first tokens in it. With one stream the time to the first token tells of
prefill.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct

from router.cluster.values import Impossible, Measured

_SIZES = ("nodes", "tensor_parallel_size", "tp_size", "tp")  # as `vllm bench serve --metadata nodes=4` adds them


class Halves(Struct, frozen=True, kw_only=True):
    """A step's time by size: the part that more nodes share, and the part that each of them pays."""

    concurrency: int
    shared_ms: float
    paid_ms: float


def rows(text: str, name: str, nodes: int) -> list[Measured]:
    """The rows of one file, JSON or JSON lines; `nodes` where the file does not say. Raises Impossible."""
    found = [_row(one, name, nodes) for one in _objects(text, name)]
    if not found:
        raise Impossible(f"{name}: there is no result in it; give what the benchmark wrote with --save-result")
    return found


def _objects(text: str, name: str) -> list[Mapping[str, Any]]:
    try:
        whole: Any = msgspec.json.decode(text)
        return _mappings(cast("list[Any]", whole) if isinstance(whole, list) else [whole], name)
    except msgspec.MsgspecError:
        pass
    lines: list[Any] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                lines.append(msgspec.json.decode(line))
            except msgspec.MsgspecError as error:
                raise Impossible(f"{name}:{number}: not JSON, as a benchmark writes it: {error}") from None
    return _mappings(lines, name)


def _mappings(given: list[Any], name: str) -> list[Mapping[str, Any]]:
    if not all(isinstance(one, dict) for one in given):
        raise Impossible(f"{name}: a benchmark's result is an object; this is something else")
    return given


def _row(of: Mapping[str, Any], name: str, nodes: int) -> Measured:
    engine = "SGLang" if str(of.get("backend", "")).startswith("sglang") else "vLLM"
    if not _number(of, "completed"):
        raise Impossible(f"{name}: no request was completed in this benchmark; look at its errors")
    streams = _number(of, "max_concurrency") or _number(of, "concurrency")
    each = _number(of, "mean_tpot_ms") or _number(of, "median_tpot_ms")
    if not streams:
        raise Impossible(f"{name}: it does not say how many streams there were; run it with --max-concurrency")
    if not each:
        raise Impossible(f"{name}: it has no mean_tpot_ms; run it against a streaming endpoint")
    held = next((size for key in _SIZES if (size := _number(of, key))), None)
    first, read = _number(of, "mean_ttft_ms"), _number(of, "total_input_tokens")
    prefill = None
    if streams == 1 and first and read and first > each:
        prefill = read / of["completed"] / (first - each) * 1000
    return Measured(
        nodes=int(held or nodes),
        concurrency=max(1, round(streams)),
        tokens_per_s=streams * 1000 / each,
        prefill_tokens_per_s=prefill,
        source=f"{name}, a benchmark with {engine}",
        engine=engine.lower(),
        note=str(of.get("model_id") or of.get("model") or ""),
    )


def _number(of: Mapping[str, Any], key: str) -> float | None:
    """A number above zero, or as text the way --metadata writes it; None where there is none."""
    value = of.get(key)
    try:
        number = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else 0.0
    except ValueError:
        return None
    return number if 0 < number < 1e12 else None


def halves(measured: Sequence[Measured]) -> list[Halves]:
    """t(n) = shared / n + paid through the two largest sizes of each number of streams."""
    found: list[Halves] = []
    for streams in sorted({row.concurrency for row in measured}):
        steps = {
            row.nodes: streams * 1000 / row.tokens_per_s
            for row in measured
            if row.concurrency == streams and row.tokens_per_s
        }
        if len(steps) < 2:
            continue
        small, large = sorted(steps)[-2:]
        shared = (steps[small] - steps[large]) / (1 / small - 1 / large)
        found.append(Halves(concurrency=streams, shared_ms=shared, paid_ms=steps[large] - shared / large))
    return found
