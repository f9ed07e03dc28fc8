"""The shipped policy for agents, at work on a conversation that gets stuck."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import chat
from tests.support.rig import SCORERS, groups, running

AGENTS = Path(__file__).parents[2] / "policies" / "examples" / "agents.yaml"
USER = {"role": "user", "content": "make the tests pass"}


def calls(*commands: str, result: str = "ok") -> list[dict[str, Any]]:
    """A tool loop of these commands, each answered."""
    turns: list[dict[str, Any]] = []
    for at, command in enumerate(commands):
        call = {"id": f"c{at}", "type": "function", "function": {"name": "bash", "arguments": command}}
        turns.append({"role": "assistant", "content": None, "tool_calls": [call]})
        turns.append({"role": "tool", "tool_call_id": f"c{at}", "content": result})
    return turns


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
