"""Made-up recorded traffic: conversations whose every request is decided, pinned and recorded as the service does it,
and whose answers have a quality that is known, so that estimates can be held to it.

Nothing here is served or measured.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from hashlib import blake2b

from msgspec import Struct

from router import record as records
from router.config import Config
from router.decide import decide, remember
from router.policy import select
from router.service import draw_of
from router.types import (
    Attempt,
    Caller,
    Load,
    NeedScore,
    Record,
    Request,
    Score,
    Session,
    Signals,
    Target,
    Timing,
    Usage,
)

GROUPS = """\
version: 1
groups: {small: {deployments: [small-a]}, large: {deployments: [large-a, large-b]}}
deployments:
  small-a: {upstream: openai, base_url: "http://127.0.0.1:9/v1", model: s, price: {input: 0.1, output: 0.4}}
  large-a: {upstream: openai, base_url: "http://127.0.0.1:9/v1", model: l, price: {input: 1.0, output: 4.0}}
  large-b: {upstream: openai, base_url: "http://127.0.0.1:9/v1", model: l, price: {input: 1.0, output: 4.0}}
"""
POLICY = """\
version: 1
name: default
models: [auto]
routes:
  - {name: images, when: {has_images: true}, group: large}
  - {name: stuck, when: {tool_errors: {at_least: 3}}, group: large}
  - {name: difficulty, score: {scorer: difficulty, bands: [{below: 0.5, group: small}, {group: large}]}}
default: large
fallback: {small: [large], large: [small]}
"""
EXPLORE = "explore: {share: 0.1, within: 0.15}\n"
_START = 1_790_000_000.0
_TARGETS = {"small": ("small-a",), "large": ("large-a", "large-b")}


class Made(Struct, frozen=True, kw_only=True):
    """One record, and what its answer was worth on average."""

    record: Record
    quality: float


class _Talk(Struct, kw_only=True):
    key: str
    hardness: float
    left: int
    turns: int = 0
    loop: bool = False
    tokens: int


def quality(group: str, hardness: float) -> float:
    """How good an answer is: the small group's falls with how hard the request is."""
    return 0.95 - 0.7 * hardness if group == "small" else 0.9 - 0.1 * hardness


def traffic(config: Config, count: int, seed: int, *, rate: float = 3.0, drift: float = 0.0) -> Iterator[Made]:
    """`count` requests in time order, `rate` of them a second, in overlapping conversations. Same seed, same users.

    `drift`: how much the requests of one conversation differ in how hard they are.
    """
    chance = random.Random(seed)
    book = records.book(config)
    kept: dict[str, Session] = {}
    waiting: list[tuple[float, int, _Talk]] = []
    begun = 0
    for number in range(count):
        now = _START + number / rate
        if waiting and waiting[0][0] <= now:
            talk = heapq.heappop(waiting)[2]
        else:
            begun += 1
            talk = _talk(chance, f"{seed}-{begun}")
        made = _request(config, book, chance, talk, kept, f"req_{seed}_{number:07d}", now, drift)
        yield made
        talk.left -= 1
        if talk.left > 0:
            talk.loop = chance.random() < 0.4
            heapq.heappush(waiting, (now + chance.expovariate(1 / 40), number, talk))


def _talk(chance: random.Random, name: str) -> _Talk:
    left = 1 + min(7, int(chance.expovariate(1 / 1.5)))
    key = blake2b(name.encode(), digest_size=16).hexdigest()
    return _Talk(key=key, hardness=chance.betavariate(2, 2.5), left=left, tokens=chance.randint(40, 4000))


def _request(
    config: Config,
    book: records.Book,
    chance: random.Random,
    talk: _Talk,
    kept: dict[str, Session],
    name: str,
    now: float,
    drift: float,
) -> Made:
    talk.turns += not talk.loop
    talk.tokens += chance.randint(50, 600)
    hard = min(1.0, max(0.0, talk.hardness + chance.gauss(0, drift)))
    signals = Signals(
        input_tokens=talk.tokens,
        prompt_chars=chance.randint(10, 2000),
        turns=talk.turns,
        tools=8 if talk.loop else 0,
        tool_calls=2 if talk.loop else 0,
        tool_errors=chance.choice((0, 0, 0, 0, 1, 3)) if talk.loop else 0,
        tool_loop=talk.loop,
        has_images=chance.random() < 0.02,
        stream=True,
        language="en",
        model="auto",
        hour=int(now // 3600) % 24,
    )
    chosen = select(config, "auto")
    session, draw, load = kept.get(talk.key), draw_of(name), Load(now=now)
    scores: dict[str, Score] = {}
    while isinstance(step := decide(chosen, signals, scores, session, load, draw), NeedScore):
        scores[step.scorer] = Score(scorer=step.scorer, value=hard)
    deployments = _TARGETS[step.group]
    served = deployments[int(draw * len(deployments))]
    output = chance.randint(20, 900)
    written = records.build(
        book=book,
        caller=Caller(id=name),
        time=now,
        dialect="chat",
        outcome="ok",
        request=Request(dialect="chat", body=b"{}", model="auto", model_span=(0, 0), stream=True),
        signals=signals,
        scores=dict(scores),
        decision=step,
        attempts=(Attempt(deployment=served, group=step.group, status=200, ttft_s=0.2),),
        usage=Usage(input=talk.tokens, output=output, cached=talk.tokens // 2 if session is not None else 0),
        timing=Timing(ttft_s=0.2, tpot_s=0.01, total_s=0.2 + output / 100, overhead_s=0.001),
        session=talk.key,
        draw=draw,
        pinned=session,
        load=load,
    )
    after = remember(chosen, signals, step, session, key=talk.key, served=Target(deployment=served, group=step.group))
    if after is not None:
        kept[talk.key] = after
    return Made(record=written, quality=quality(step.group, hard))
