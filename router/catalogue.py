"""What a client may ask before it asks for an answer: which models there are, and where a request would go."""

from __future__ import annotations

from datetime import UTC, datetime
from time import perf_counter
from typing import Any

import msgspec

from router import explain
from router.errors import NotFound
from router.flight import Flight
from router.policy import visible_models
from router.service import Service, draw_of
from router.types import Caller, Config
from router.wire import CODECS


def listing(config: Config, since: float) -> dict[str, Any]:
    """Every visible model, in a shape that both OpenAI's and Anthropic's SDKs read. `since` is Unix seconds."""
    names = visible_models(config)
    return {
        "object": "list",
        "data": [_entry(name, since) for name in names],
        "has_more": False,
        "first_id": names[0] if names else None,
        "last_id": names[-1] if names else None,
    }


def entry(config: Config, name: str, since: float) -> dict[str, Any]:
    """One visible model. Raises NotFound for every other name, deployments that may not be named included."""
    if name not in visible_models(config):
        raise NotFound(f"the model {name[:100]!r} does not exist; GET /v1/models lists those that do")
    return _entry(name, since)


def _entry(name: str, since: float) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": int(since),
        "owned_by": "pointsman",
        "type": "model",
        "display_name": name,
        "created_at": datetime.fromtimestamp(int(since), UTC).isoformat().replace("+00:00", "Z"),
    }


async def decision(service: Service, body: bytes, caller: Caller) -> dict[str, Any]:
    """Where a request would go, and why; no upstream is called, nothing is pinned or recorded."""
    flight = Flight(caller, service.snapshot, perf_counter(), draw_of(caller.id))
    flight.request = CODECS["chat"].decode(body)
    found = await service.decide(flight)
    config = service.snapshot.config
    told = explain.explain(
        config, flight.policy, flight.signals, flight.scores, flight.session, flight.load, flight.draw
    )
    return {
        "policy": f"{found.policy}@{config.digest[:12]}",
        "route": found.route,
        "group": found.group,
        "deployment": flight.plan.targets[0].deployment if flight.plan.targets else None,
        "score": found.score,
        "threshold": found.threshold,
        "why": found.why,
        "explanation": msgspec.to_builtins(told),
    }
