"""A scorer behind an address of its own gives, through `remote`, the scores that it gives in the gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.config import ScorerSpec
from router.replicas import App, Given, Scored
from router.scorers import build, question
from router.scorers.question import ORDERS, Order
from router.serving import bind, listener
from router.types import Abstain, Prompt, Score, Signals

PROMPTS = [
    "What is the capital of France?",
    "Prove that every finite integral domain is a field, and say where finiteness is used.",
    "Übersetze «guten Morgen» ins Französische.",
]


@asynccontextmanager
async def running(scored: Scored) -> AsyncIterator[str]:
    """One replica on a real socket; yields its address up to /v1."""
    app = App(scored.spec)
    sock = bind("127.0.0.1", 0)
    server = listener(app, 1)
    task = asyncio.create_task(server.serve(sockets=[sock]))
    try:
        while not server.started:
            await asyncio.sleep(0.005)
        yield f"http://127.0.0.1:{sock.getsockname()[1]}/v1"
    finally:
        server.should_exit = True
        await task
        await app.aclose()


async def scores(spec: ScorerSpec) -> list[Score | Abstain]:
    scorer = build(spec)
    found: list[Score | Abstain] = []
    for text in PROMPTS:
        score = scorer.score(Prompt(text=text, signals=Signals()))
        found.append(score if isinstance(score, Score | Abstain) else await score)
    await scorer.aclose()
    return found


@pytest.mark.parametrize("asked", [{"mode": "logprobs"}, {"mode": "json"}, {"both_orders": True}])
async def test_remote_gets_the_score_that_the_scorer_gives_where_it_stands(asked: dict[str, Any]):
    here = await scores(ScorerSpec(name="difficulty", kind="lexical"))
    async with running(Scored(kind="lexical")) as url:
        options = {"url": url, "model": "difficulty", "deadline_s": 20.0, **asked}
        there = await scores(ScorerSpec(name="difficulty", kind="remote", options=options))
    assert len(here) == 3
    for mine, its in zip(here, there, strict=True):
        assert isinstance(mine, Score)
        assert isinstance(its, Score)
        assert its.value == pytest.approx(mine.value, abs=1e-6)
    assert here[0].value < here[1].value  # type: ignore[union-attr]


async def test_a_scorer_that_abstains_makes_remote_abstain():
    async with running(Scored(kind="fixed", options={"value": None})) as url:
        options = {"url": url, "model": "difficulty", "deadline_s": 20.0}
        found = await scores(ScorerSpec(name="difficulty", kind="remote", options=options))
    assert [one.reason for one in found if isinstance(one, Abstain)] == ["overload"] * 3


async def test_what_is_no_question_is_refused_in_words():
    async with running(Scored(kind="lexical")) as url, httpx.AsyncClient(base_url=url) as client:
        assert (await client.get("/models")).json()["data"][0]["id"] == "difficulty"
        assert (await client.get(url.replace("/v1", "/health"))).status_code == 200
        for body, status in (
            (b'{"messages": [{"role": "user", "content": "hello"}]}', 400),
            (b'{"messages": []}', 400),
            (b"{", 400),
            (b'{"messages": 3}', 400),
            (b"[" * 2_000_000, 413),
        ):
            reply = await client.post("/chat/completions", content=body)
            assert reply.status_code == status
            assert reply.json()["error"]["message"]
        assert (await client.post("/embeddings", content=b"{}")).status_code == 404


@given(text=st.text(max_size=300), order=st.sampled_from(ORDERS))
def test_a_question_can_be_read_back(text: str, order: Order):
    data = question.readable(text)
    for messages, expected in ((question.labelled(data, order), order), (question.judged(data), ORDERS[0])):
        assert question.asked(messages[-1]["content"]) == (question.plain(data), expected)


def test_a_misspelled_key_of_a_ray_configuration_is_refused():
    with pytest.raises(msgspec.ValidationError, match="replica_count"):
        msgspec.convert({"scorer": {"kind": "lexical"}, "replica_count": 2}, Given)
    with pytest.raises(msgspec.ValidationError, match="kind"):
        msgspec.convert({"scorer": {"kind": "header"}}, Given)
