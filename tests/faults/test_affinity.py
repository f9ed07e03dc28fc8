"""Where a conversation's next request goes among equal deployments, through a whole gateway."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import chat
from tests.support.rig import Rig, groups, running

NAMES = ("a", "b", "c", "d")


async def rig(stack: AsyncExitStack, folder: Path, more: str = "", members: tuple[str, ...] = NAMES) -> Rig:
    folder.mkdir(exist_ok=True)
    servers = {name: await stack.enter_async_context(ScriptedServer(chat("fine"))) for name in members}
    text = groups(servers, {"small": members, "large": members}).replace("]}", f"]{more}}}", 1)
    return await stack.enter_async_context(running(folder, text))


def talk(opening: str, turns: int) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = [{"role": "system", "content": "be brief"}, {"role": "user", "content": opening}]
    for n in range(1, turns):
        out += [{"role": "assistant", "content": f"answer {n}"}, {"role": "user", "content": f"question {n}"}]
    return out


async def served(one: Rig, messages: list[dict[str, Any]], model: str = "auto") -> str:
    body = {"model": model, "messages": messages}
    reply = await one.client.post("/v1/chat/completions", json=body, headers={"x-score": "0.1"})
    assert reply.status_code == 200, reply.text
    return reply.headers["x-pointsman-deployment"]


async def test_two_gateways_that_share_nothing_send_a_conversation_to_the_same_deployment(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        one, two = await rig(stack, tmp_path / "one"), await rig(stack, tmp_path / "two")
        places = [
            (await served(one, talk(f"hello {n}", 3)), await served(two, talk(f"hello {n}", 3))) for n in range(12)
        ]
        assert all(first == second for first, second in places)
        assert len({first for first, _ in places}) > 1


async def test_a_conversation_with_a_group_asked_for_by_name_stays_with_its_deployment(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        one = await rig(stack, tmp_path)
        for n in range(5):
            assert len({await served(one, talk(f"hello {n}", turns), "large") for turns in range(2, 9)}) == 1


async def test_a_long_prompt_of_an_agent_leads_its_new_conversations_to_one_place(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        one = await rig(stack, tmp_path)
        system = {"role": "system", "content": "You are an agent. " * 400}
        places = {await served(one, [system, {"role": "user", "content": f"task {n}"}]) for n in range(8)}
        assert len(places) == 1
        told = await one.client.post(
            "/v1/decision",
            json={"model": "auto", "messages": [system, {"role": "user", "content": "task"}]},
            headers={"x-score": "0.1"},
        )
        claims = {d["deployment"]: d["claim"] for d in told.json()["explanation"]["deployments"] if d["place"]}
        assert max(claims, key=claims.__getitem__) == places.pop()


async def test_without_affinity_it_is_load_and_chance_alone(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        one = await rig(stack, tmp_path, ", affinity: 0")
        system = {"role": "system", "content": "You are an agent. " * 400}
        places = {await served(one, [system, {"role": "user", "content": f"task {n}"}]) for n in range(30)}
        assert len(places) > 1
