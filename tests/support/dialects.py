"""Upstreams of each dialect and a gateway's configuration in front of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from router.types import Dialect
from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import JSON, SSE, Head, Script, Seen, Send, Step, status
from tests.support.rig import Rig
from tests.wire.translated import BODIES
from tests.wire.upstreams import ANSWERS, STREAMS

DIALECTS: tuple[Dialect, ...] = ("chat", "messages", "responses")
PATHS = {"chat": "/chat/completions", "messages": "/messages", "responses": "/responses"}

ONE_GROUP = "version: 1\nname: default\nmodels: [auto]\nroutes: []\ndefault: small\n"


def speaks(dialect: Dialect) -> Script:
    """An upstream that says one content in its dialect, streamed when asked, and refuses every other path."""

    def script(seen: Seen) -> Sequence[Step]:
        if not seen.path.split("?")[0].endswith(PATHS[dialect]):
            return status(404)
        if seen.json().get("stream"):
            return [Head(200, SSE), Send(STREAMS[dialect])]
        return [Head(200, JSON), Send(json.dumps(ANSWERS[dialect]).encode())]

    return script


def config(*deployments: tuple[ScriptedServer, str]) -> str:
    """One group of deployments, tried in order: each but the first is a group's fallback of its own."""
    lines = ["version: 1", "groups:"]
    lines += [f"  {'small' if at == 0 else f'g{at}'}: {{deployments: [d{at}]}}" for at in range(len(deployments))]
    lines.append("deployments:")
    for at, (server, more) in enumerate(deployments):
        lines.append(f'  d{at}: {{upstream: openai, base_url: "{server.base_url}", model: m-up, {more}}}')
    return "\n".join(lines) + "\n"


def listed(dialect: str) -> str:
    return f"dialects: [{dialect}], api_key: none"


async def post(rig: Rig, dialect: Dialect, body: dict[str, Any], **headers: str) -> Any:
    return await rig.client.post("/v1" + PATHS[dialect], json=body, headers=headers)


def body_of(dialect: Dialect, **more: Any) -> dict[str, Any]:
    return {**BODIES[dialect], "model": "auto", **more}
