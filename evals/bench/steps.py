"""What each step of a plain request costs by itself: `python -m evals.bench.steps`. One after the other in this
process, on the same values, with nothing of the network: what is left of a request's time is reading, sending and
waking up.
"""

from __future__ import annotations

import tempfile
import timeit
from collections.abc import Callable
from pathlib import Path

from evals.bench import run
from router import policy, policy_files, record, signals
from router.app import caller_of, new_id
from router.config import Policy
from router.decide import decide, remember
from router.logs import Json
from router.metrics import Metrics
from router.plan import plan
from router.records import sql
from router.service import draw_of
from router.types import Attempt, Decision, Load, Score, Timing
from router.wire import CODECS
from router.wire.body import outgoing

_TIMES = 200
_REPEATED = 100
ANSWER = (
    b'{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m-small","choices":[{"index":0,"message":'
    b'{"role":"assistant","content":"Paris is the capital of France."},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":14,"completion_tokens":8,"total_tokens":22}}'
)


def steps(folder: Path) -> dict[str, Callable[[], object]]:
    """Each step of a plain request, ready to be called."""
    run.write_config(folder, "http://127.0.0.1:1")
    config = policy_files.load(folder)
    book, codec = record.book(config), CODECS["chat"]
    body, headers = run.body(), {b"host": b"127.0.0.1", b"content-type": b"application/json"}
    caller = caller_of(new_id(), headers, frozenset())
    request = codec.decode(body)
    text = signals.user_text(request)
    found = signals.extract(request, caller, text=text)
    chosen = policy.select(config, request.model)
    load = Load(now=1.0, in_flight={"small-a": 3, "large-a": 0, "large-b": 1})
    scores = {"difficulty": Score(scorer="difficulty", value=0.2)}
    made = decide(chosen, found, scores, None, load)
    if not isinstance(made, Decision) or not isinstance(chosen, Policy):
        raise SystemExit("steps: the policy of the benchmark decides nothing")
    planned = plan(made, chosen, config, load, found, 0.3)
    attempts = (Attempt(deployment=planned.targets[0].deployment, group=made.group, status=200, ttft_s=0.01),)
    key = signals.conversation(request, caller, text)

    def built() -> record.Record:
        return record.build(
            book,
            caller,
            "chat",
            "ok",
            time=1_800_000_000.5,
            request=request,
            signals=found,
            scores=scores,
            decision=made,
            attempts=attempts,
            usage=codec.usage(ANSWER),
            timing=Timing(ttft_s=0.01, total_s=0.011, overhead_s=0.0002),
            session=None if key is None else key.key,
            load=load,
        )

    written, metrics, lines = built(), Metrics(config), Json()
    return {
        "request id and its draw": lambda: draw_of(new_id()),
        "caller": lambda: caller_of("req_1", headers, frozenset()),
        "decode": lambda: codec.decode(body),
        "signals": lambda: signals.extract(request, caller, text=signals.user_text(request)),
        "conversation": lambda: signals.conversation(request, caller, text),
        "decide, without the score and with it": lambda: (
            decide(chosen, found, {}, None, load),
            decide(chosen, found, scores, None, load),
        ),
        "plan": lambda: plan(made, chosen, config, load, found, 0.3),
        "bytes for the deployment": lambda: outgoing(request, "m-small"),
        "usage of the answer": lambda: codec.usage(ANSWER),
        "pin": lambda: remember(chosen, found, made, None, key="0" * 32, served=planned.targets[0]),
        "record": built,
        "metrics": lambda: metrics.observe(written),
        "row of the database (thread)": lambda: sql.row(written),
        "line of the log (thread)": lambda: lines.requests([written]),
    }


def measure() -> dict[str, float]:
    """Microseconds of each step: the least of several runs, since other work may be in the way."""
    with tempfile.TemporaryDirectory() as temp:
        of = steps(Path(temp, "config"))
        return {
            name: min(timeit.repeat(step, number=_TIMES, repeat=_REPEATED)) / _TIMES * 1e6 for name, step in of.items()
        }


def main() -> None:
    found = measure()
    print("| step | us |\n|---|---|")
    for name, us in found.items():
        print(f"| {name} | {us:.1f} |")
    print(f"| sum | {sum(found.values()):.0f} |")


if __name__ == "__main__":
    main()
