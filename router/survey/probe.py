"""Asks the engines of a plan over HTTP whether they live, what they serve, what they show, and for one token: a dead
rank behind a living first one shows only there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import httpx

from router.cluster.values import Group, Plan, Replica
from router.launch import network
from router.survey.values import Answered

WITHIN_S = 5.0
TOKEN_S = 60.0  # a loaded engine lets a new request wait
ENGINES = ("vllm:", "sglang:", "trtllm_", "llamacpp:")


async def probe(plan: Plan, *, token: bool = True) -> list[Answered]:
    """Every replica's answers, in the plan's order."""
    async with httpx.AsyncClient(timeout=WITHIN_S, follow_redirects=False, trust_env=False) as client:
        found: Sequence[Answered] = await asyncio.gather(
            *(_one(client, plan, group, replica, token) for group in plan.groups for replica in group.replicas)
        )
    return list(found)


async def _one(client: httpx.AsyncClient, plan: Plan, group: Group, replica: Replica, token: bool) -> Answered:
    url = f"http://{network.address(plan.cluster, replica.nodes[0])}:{replica.port}"
    health = await _get(client, f"{url}/health")
    if isinstance(health, str):
        return Answered(replica=replica.name, url=url, health=health)
    return Answered(
        replica=replica.name,
        url=url,
        health=health.status_code,
        models=_models(await _get(client, f"{url}/v1/models")),
        metrics=_metrics(await _get(client, f"{url}/metrics")),
        completed=await _token(client, url, group.served) if token else None,
    )


async def _get(client: httpx.AsyncClient, url: str) -> httpx.Response | str:
    """The answer, or what went wrong in a few words."""
    try:
        return await client.get(url)
    except httpx.TimeoutException:
        return f"no answer within {WITHIN_S:g} s"
    except httpx.HTTPError as error:
        return str(error) or type(error).__name__


def _models(reply: httpx.Response | str) -> tuple[str, ...] | str:
    if isinstance(reply, str):
        return reply
    if reply.status_code != 200:
        return f"status {reply.status_code}"
    try:
        listed: Any = reply.json()["data"]
        return tuple(str(one["id"]) for one in listed)
    except (ValueError, KeyError, TypeError):
        return "its answer is no list of models"


def _metrics(reply: httpx.Response | str) -> int | str:
    if isinstance(reply, str):
        return reply
    if reply.status_code != 200:
        return f"status {reply.status_code}"
    return sum(line.startswith(ENGINES) for line in reply.text.splitlines())


async def _token(client: httpx.AsyncClient, url: str, model: str) -> int | str:
    body = {"model": model, "messages": [{"role": "user", "content": "Say yes."}], "max_tokens": 1}
    try:
        reply = await client.post(f"{url}/v1/chat/completions", json=body, timeout=TOKEN_S)
    except httpx.TimeoutException:
        return f"no answer within {TOKEN_S:g} s"
    except httpx.HTTPError as error:
        return str(error) or type(error).__name__
    return reply.status_code
