"""The shipped policy for agents, at work on a conversation that gets stuck."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import chat, chat_stream
from tests.support.rig import SCORERS, groups, running

AGENTS = Path(__file__).parents[2] / "policies" / "examples" / "agents.yaml"
HEADERS = {"content-type": "application/json", "x-score": "0.1"}
USER = {"role": "user", "content": "make the tests pass"}


def calls(*commands: str, result: str = "ok") -> list[dict[str, Any]]:
    """A tool loop of these commands, each answered."""
    turns: list[dict[str, Any]] = []
    for at, command in enumerate(commands):
        call = {"id": f"c{at}", "type": "function", "function": {"name": "bash", "arguments": command}}
        turns.append({"role": "assistant", "content": None, "tool_calls": [call]})
        turns.append({"role": "tool", "tool_call_id": f"c{at}", "content": result})
    return turns


@pytest.mark.parametrize("stream", [False, True])
async def test_each_step_of_a_large_conversation_reaches_the_upstream_byte_for_byte(
    tmp_path: Path, stream: bool
) -> None:
    async with (
        ScriptedServer((lambda _: chat_stream(("one", "two"))) if stream else chat("small")) as a,
        running(tmp_path, groups({"a": a}, {"small": ["a"], "large": ["a"]}, ", stream_usage: true")) as rig,
    ):
        said: list[dict[str, Any]] = [{"role": "system", "content": "Be brief. " * 3000}, USER]
        for step in range(4):
            around = {"model": "auto", "stream": stream, "tools": [{"type": "function", "function": {"name": "bash"}}]}
            sent = json.dumps({"messages": said, **around}).encode()
            reply = await rig.client.post("/v1/chat/completions", content=sent, headers=HEADERS)
            assert reply.status_code == 200
            asked = b',"stream_options":{"include_usage":true}}' if stream else b"}"
            assert a.visits[-1].seen.body == sent.replace(b'"model": "auto"', b'"model": "m-a"')[:-1] + asked
            said += calls(f"step {step}")
        records = await rig.records(4)
        assert [record.signals.tool_calls for record in records if record.signals is not None] == [3, 2, 1, 0]


@pytest.mark.parametrize(
    ("loop", "group"),
    [
        (calls("edit", "test", "edit", "test", "edit", "test"), "large"),
        (calls("test", "test", "test"), "large"),
        (calls("a", "b", result="Error: no such file"), "large"),
        (calls("a", "b", "c", "d", "e", "f"), "small"),
    ],
)
async def test_K06_a_stuck_conversation_keeps_its_group_in_the_tool_loop_and_moves_up_at_the_next_user_turn(
    tmp_path: Path, loop: list[dict[str, Any]], group: str
) -> None:
    async with (
        ScriptedServer(chat("small")) as a,
        ScriptedServer(chat("large")) as b,
        running(
            tmp_path, groups({"a": a, "b": b}, {"small": ["a"], "large": ["b"]}), AGENTS.read_text(), SCORERS
        ) as rig,
    ):

        async def ask(*turns: dict[str, Any]) -> str:
            reply = await rig.ask(model="auto-code", messages=[USER, *turns], score=0.1)
            return reply.headers["x-pointsman-group"]

        assert await ask() == "small"
        for done in range(2, len(loop) + 1, 2):
            assert await ask(*loop[:done]) == "small"
        answered = {"role": "assistant", "content": "It still fails."}
        assert await ask(*loop, answered, {"role": "user", "content": "go on"}) == group
