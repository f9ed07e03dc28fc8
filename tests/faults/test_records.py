"""Records under hostile numbers: one strange answer costs no other request its record."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import JSON, Head, Seen, Send, Step, chat_answer
from tests.support.rig import groups, running


async def test_a_token_count_beyond_any_column_is_recorded_and_spoils_no_other_record(tmp_path: Path) -> None:
    answer = json.loads(next(step for step in chat_answer("hi") if isinstance(step, Send)).data)
    answer["usage"] = {"prompt_tokens": 10**25, "completion_tokens": 10**19, "total_tokens": 1}

    def script(seen: Seen) -> Sequence[Step]:
        if "odd" in seen.json()["messages"][0]["content"]:
            return [Head(200, JSON), Send(json.dumps(answer).encode())]
        return chat_answer("hi")

    async with (
        ScriptedServer(script) as a,
        running(tmp_path, groups({"a": a}, {"small": ["a"], "large": ["a"]})) as rig,
    ):
        for words in ("plain", "odd", "plain"):
            assert (await rig.ask(words)).status_code == 200
        assert len(await rig.records(3)) == 3
        assert rig.gateway.recorder.dropped == 0
