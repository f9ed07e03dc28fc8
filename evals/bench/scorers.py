"""What one prompt costs a scorer: time until it answers and CPU time, for prompts of several sizes, one at a time.

No prompt is asked twice, so nothing that is remembered helps.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from evals import decisions
from evals.cases import BadData
from router.scorers import Cached, Signalled
from router.scorers.off_loop import OffLoop
from router.seams import Scorer
from router.types import Abstain, Prompt, Score, Signals

_FIFTY = (
    "I have a spreadsheet with {0} years of monthly sales for {1} shops, and finance want to know which of them may "
    "miss their targets next quarter. Suggest a method that copes with seasons and {0} closed shops, and explain how I "
    "would check that it works before {1} managers rely on it."
)
_CHINESE = "我有{0}年的月度销售数据，共{1}家门店，财务部门想知道哪些门店可能完不成目标。请给出方法并说明如何验证。"
_CODE = "def total_{0}(rows):\n    return sum(row.price * row.count for row in rows if row.shop == {1})\n"

SHAPES: Mapping[str, tuple[str, int]] = {  # a text with two numbers, and how often it is repeated
    "50 words": (_FIFTY, 1),
    "400 words": (_FIFTY, 8),
    "100 KB of words": (_FIFTY, 400),
    "12,000 Chinese characters": (_CHINESE, 200),
    "40 KB of code": (_CODE, 400),
}
_WARM = 3  # prompts before those that are counted


def prompts(shape: str, count: int) -> list[str]:
    """Prompts of one shape, all different in every clause that has a number."""
    text, times = SHAPES[shape]
    numbers = range(count * times)
    return ["".join(text.format(3 + k, 7001 + k) + " " for k in numbers[i::count]) for i in range(count)]


async def _ask(scorer: Scorer, text: str) -> Score | Abstain:
    answer = scorer.score(Prompt(text=text, signals=Signals(prompt_chars=len(text))))
    return answer if isinstance(answer, Score | Abstain) else await answer


async def _all(scorer: Scorer, count: int, shapes: Iterable[str]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    inside = scorer
    while isinstance(inside, Cached | Signalled):
        inside = inside.scorer
    if isinstance(inside, OffLoop):
        await asyncio.to_thread(inside.load)
    for shape in shapes:
        wall: list[float] = []
        cpu: list[float] = []
        for i, text in enumerate(prompts(shape, count + _WARM)):
            begun, spent = time.perf_counter(), time.process_time()
            answer = await _ask(scorer, text)
            took, used = time.perf_counter() - begun, time.process_time() - spent
            if isinstance(answer, Abstain) and answer.reason not in ("unsure", "empty"):
                raise BadData(f"the scorer abstained: {answer.reason}")
            if i >= _WARM:
                wall.append(took * 1e3)
                cpu.append(used * 1e3)
        out[shape] = {
            "ms": round(statistics.median(wall), 3),
            "ms_p95": round(statistics.quantiles(wall, n=20)[-1], 3),
            "cpu_ms": round(statistics.median(cpu), 3),
        }
    await scorer.aclose()
    return out


def measure(name: str, config: Path | None, count: int, shapes: Iterable[str] = tuple(SHAPES)) -> dict[str, Any]:
    """Milliseconds a prompt, by shape. Raises click.ClickException where the scorer cannot be used."""
    try:
        scorer = decisions.find(name, config)
        rows = asyncio.run(_all(scorer, count, shapes))
    except BadData as error:
        raise click.ClickException(str(error)) from error
    return {"scorer": name, "count": count, "rows": rows}


def render(result: Mapping[str, Any]) -> str:
    lines = [f"{'prompt':28}{'median ms':>12}{'95% ms':>10}{'CPU ms':>10}"]
    for shape, row in result["rows"].items():
        lines.append(f"{shape:28}{row['ms']:>12.3f}{row['ms_p95']:>10.3f}{row['cpu_ms']:>10.3f}")
    return "\n".join([*lines, f"{result['count']} prompts each, one at a time"])
