"""Cascades through a whole gateway: the first answer held back, verified, released or replaced."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from router.decide import decide
from router.types import Load, Record
from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import (
    Script,
    Seen,
    Send,
    Wait,
    chat,
    chat_stream,
)
from tests.support.rig import Rig, parse, running, text

BOTH = pytest.mark.parametrize("stream", [False, True])


def groups(servers: Mapping[str, ScriptedServer | str], more: Mapping[str, str] | None = None) -> str:
    """One deployment a group; large costs ten times what the others do."""
    lines = ["version: 1", "groups:", *(f"  {name}: {{deployments: [{name}-a]}}" for name in servers), "deployments:"]
    for name, server in servers.items():
        url = server if isinstance(server, str) else server.base_url
        price = "{input: 10, output: 20}" if name == "large" else "{input: 1, output: 2}"
        extra = (more or {}).get(name, "")
        lines.append(f'  {name}-a: {{upstream: openai, base_url: "{url}", model: m-{name}, price: {price}{extra}}}')
    return "\n".join(lines) + "\n"


def policy(cascade: str = "", more: str = "") -> str:
    return f"""\
version: 1
name: default
models: [auto]
routes:
  - {{name: try-small, cascade: {{first: small, then: large{cascade}}}}}
default: large
{more}
"""


def words(answer: str) -> Script:
    return chat(answer)


def silent(_: Seen) -> Sequence[Wait]:
    return [Wait(60)]


@asynccontextmanager
async def cascade(
    folder: Path,
    scripts: Mapping[str, Script],
    cascade: str = "",
    more: str = "",
    deployments: Mapping[str, str] | None = None,
) -> AsyncIterator[tuple[Rig, dict[str, ScriptedServer]]]:
    """A gateway in front of one scripted server a group."""
    servers = {name: ScriptedServer(script) for name, script in scripts.items()}
    for server in servers.values():
        await server.start()
    try:
        async with running(folder, groups(servers, deployments), policy(cascade, more), None) as rig:
            yield rig, servers
    finally:
        for server in servers.values():
            await server.stop()


def said(reply: httpx.Response, stream: bool) -> str:
    if stream:
        events = parse(reply.content)
        assert events[-1] == "[DONE]"
        return text(events).strip()
    return reply.json()["choices"][0]["message"]["content"] or ""


async def one(rig: Rig) -> Record:
    (record,) = await rig.records()
    assert record.decision is not None
    assert record.signals is not None
    chosen = rig.gateway.service.snapshot.config.policies["default"]
    again = decide(
        chosen, record.signals, record.scores, record.pinned, record.load or Load(), record.draw, record.checked
    )
    assert again == record.decision
    return record


# --- accepted and escalated ------------------------------------------------------------------------------


@BOTH
async def test_an_answer_that_passes_is_released_and_the_large_group_is_not_asked(tmp_path: Path, stream: bool) -> None:
    async with cascade(tmp_path, {"small": words("Paris it is"), "large": words("never")}) as (rig, servers):
        reply = await rig.ask(stream=stream)
        assert said(reply, stream) == "Paris it is"
        assert reply.headers["x-pointsman-group"] == "small"
        assert reply.headers["x-pointsman-route"] == "try-small"
        assert reply.headers["x-pointsman-attempts"] == "1"
        assert servers["large"].visits == []
        record = await one(rig)
        assert record.decision is not None
        assert (record.decision.why, record.decision.group, record.outcome) == ("verified", "small", "ok")
        assert [(a.deployment, a.error, a.scout) for a in record.attempts] == [("small-a", None, False)]


async def test_the_events_of_a_released_stream_are_those_of_the_upstream_byte_for_byte(tmp_path: Path) -> None:
    steps = chat_stream(["a ", "b\u2028 ", "c "])
    whole = b"".join(step.data for step in steps if isinstance(step, Send))
    async with cascade(tmp_path, {"small": lambda _: steps, "large": words("never")}) as (rig, _):
        reply = await rig.ask(stream=True)
        assert reply.content == whole
        assert reply.headers["content-type"].startswith("text/event-stream")


REJECTED: dict[str, tuple[str, Script]] = {
    "not_empty": ("", words("")),
    "no_refusal": ("", words("I'm sorry, but I can't help with that.")),
    "agreement_at_least": (", scouts: [scout], verify: {agreement_at_least: 1}", words("The answer is (B).")),
    "logprob_at_least": (", verify: {logprob_at_least: -0.5}", words("No word of how likely")),
}


@BOTH
@pytest.mark.parametrize("check", REJECTED)
async def test_an_answer_that_fails_a_check_is_replaced_and_the_record_says_which(
    tmp_path: Path, check: str, stream: bool
) -> None:
    keys, script = REJECTED[check]
    scripts = {"small": script, "large": words("from large"), "scout": words("(C)")}
    async with cascade(tmp_path, scripts, keys) as (rig, _):
        reply = await rig.ask(stream=stream)
        assert said(reply, stream) == "from large"
        assert reply.headers["x-pointsman-group"] == "large"
        record = await one(rig)
        assert record.decision is not None
        assert (record.decision.why, record.decision.check) == ("escalated", check)
        assert [a.deployment for a in record.attempts if not a.scout] == ["small-a", "large-a"]
        assert [a.error for a in record.attempts] == [None] * len(record.attempts)
