"""A gateway in the test's own event loop, on real sockets, in front of scripted servers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from router import admin
from router.app import App, rest
from router.listening import bind
from router.serving import Gateway, Listener, Options, listener
from router.types import Record
from router.upstreams.scripted_server import ScriptedServer

POLICY = """\
version: 1
name: default
models: [auto]
routes:
  - {name: difficulty, score: {scorer: difficulty, bands: [{below: 0.5, group: small}, {group: large}]}}
default: large
fallback: {small: [large], large: [small]}
"""
# The client's own header is the score, so that a test says in its request where it should go.
SCORERS = "version: 1\nscorers: {difficulty: {kind: header, header: x-score}}\n"


def groups(
    deployments: Mapping[str, ScriptedServer | str], members: Mapping[str, Sequence[str]], more: str = ""
) -> str:
    """groups.yaml for these servers; `more` is added to every deployment, as `, key: value`."""
    lines = ["version: 1", "groups:"]
    lines += [f"  {name}: {{deployments: [{', '.join(names)}]}}" for name, names in members.items()]
    lines.append("deployments:")
    for name, server in deployments.items():
        url = server if isinstance(server, str) else server.base_url
        lines.append(f'  {name}: {{upstream: openai, base_url: "{url}", model: m-{name}, api_key: none{more}}}')
    return "\n".join(lines) + "\n"


# httpx may close a connection that has rested for 5 s when a request has just been given it.
STAY = httpx.Limits(max_connections=100, keepalive_expiry=None)


class Rig:
    """A running gateway and a client of it."""

    def __init__(self, gateway: Gateway, client: httpx.AsyncClient, config: Path, port: int, admin_port: int) -> None:
        self.gateway = gateway
        self.client = client
        self.config = config
        self.port = port
        self.admin = f"http://127.0.0.1:{admin_port}"
        self.listeners: list[Listener] = []  # data and admin

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def ask(self, text: str = "hello", *, score: float = 0.1, **fields: Any) -> httpx.Response:
        body = {"model": "auto", "messages": [{"role": "user", "content": text}]} | fields
        return await self.client.post("/v1/chat/completions", json=body, headers={"x-score": str(score)})

    async def events(self, *, score: float = 0.1, **fields: Any) -> list[Any]:
        """The data of each event of a streamed answer, parsed, "[DONE]" as it is, comments left out."""
        body = {"model": "auto", "stream": True, "messages": [{"role": "user", "content": "hello"}]} | fields
        reply = await self.client.post("/v1/chat/completions", json=body, headers={"x-score": str(score)})
        if reply.status_code != 200:
            return [reply.json()]
        return parse(reply.content)

    async def records(self, count: int = 1) -> list[Record]:
        """The newest records, newest first, once so many have been written."""
        until = time.monotonic() + 20
        while time.monotonic() < until:
            await asyncio.to_thread(self.gateway.recorder.flush)
            found = [r async for r in _read(self.gateway, count)]
            if len(found) >= count:
                return found
            await asyncio.sleep(0.02)
        raise AssertionError(f"fewer than {count} records were written")


async def _read(gateway: Gateway, count: int) -> AsyncIterator[Record]:
    for record in await asyncio.to_thread(lambda: list(gateway.recorder.reader.recent(count))):
        yield record


def parse(stream: bytes) -> list[Any]:
    """Events of a stream, split on bytes."""
    data = [event[6:] for event in stream.split(b"\n\n") if event.startswith(b"data: ")]
    return ["[DONE]" if d == b"[DONE]" else json.loads(d) for d in data]


def text(events: Sequence[Any]) -> str:
    """The content that a chat stream carried."""
    deltas = [c["delta"] for e in events if isinstance(e, dict) for c in e.get("choices", ())]
    return "".join(d.get("content") or "" for d in deltas)


@asynccontextmanager
async def running(
    folder: Path, groups_yaml: str, policy: str = POLICY, scorers: str | None = SCORERS, **options: Any
) -> AsyncIterator[Rig]:
    """A gateway with this configuration, until the block ends."""
    config = folder / "config"
    config.mkdir(exist_ok=True)
    (config / "groups.yaml").write_text(groups_yaml)
    (config / "default.yaml").write_text(policy)
    if scorers is not None:
        (config / "scorers.yaml").write_text(scorers)
    gateway = Gateway(Options(config=config, state=folder / "state", port=0, admin_port=0, **options))
    await gateway.start()
    await gateway.wait_ready()
    data, control = bind("127.0.0.1", 0), bind("127.0.0.1", 0)
    port, admin_port = data.getsockname()[1], control.getsockname()[1]
    app = App(gateway.service, rest(gateway.service, gateway), local=not gateway.options.open_to_everyone)
    servers = [listener(app, 1), listener(admin.build(gateway), 1)]
    tasks = [
        asyncio.create_task(server.serve(sockets=[sock])) for server, sock in zip(servers, (data, control), strict=True)
    ]
    watching = [asyncio.create_task(gateway.watch()), asyncio.create_task(gateway.meeting.run())]
    try:
        while not all(server.started for server in servers):
            await asyncio.sleep(0.005)
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}",
            timeout=30,
            verify=False,  # nothing is, over http, and certificates take longer to read than most tests
            limits=STAY,
        ) as client:
            rig = Rig(gateway, client, config, port, admin_port)
            rig.listeners = servers
            yield rig
    finally:
        for task in watching:
            task.cancel()
        await _end(servers)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *watching, return_exceptions=True)
        await gateway.close()


async def _end(servers: Sequence[Listener]) -> None:
    """As `uvicorn.Server.shutdown` does it, which looks every tenth of a second and waits for one more."""
    states = [server.server_state for server in servers]
    for server in servers:
        for listening in server.servers:
            listening.close()
        for connection in list(server.server_state.connections):
            connection.shutdown()
    until = time.monotonic() + 1
    while time.monotonic() < until and any(state.connections or state.tasks for state in states):
        await asyncio.sleep(0.005)
    for task in [task for state in states for task in state.tasks]:
        task.cancel()
