"""A running gateway against its upstream called directly: latency, request by request in turns, as ratios."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from typing import Any

import httpx

ASKED = [{"role": "user", "content": "Say hi."}]


def compare(url: str, direct: str, model: str, direct_model: str, count: int) -> dict[str, Any]:
    """Median seconds of `count` whole answers through each, one at a time and alternating."""
    seconds: dict[str, list[float]] = {"gateway": [], "direct": []}
    with httpx.Client(timeout=120) as client:
        for turn in range(count + 2):
            for name, base, asked in (("gateway", url, model), ("direct", direct, direct_model)):
                body = {"model": asked, "messages": ASKED, "max_tokens": 8}
                begun = time.perf_counter()
                reply = client.post(base.rstrip("/") + "/chat/completions", json=body)
                took = time.perf_counter() - begun
                if reply.status_code != 200:
                    raise SystemExit(f"bench: {name} answered {reply.status_code}: {reply.text[:200]}")
                if turn > 1:  # the first two open connections and fill caches
                    seconds[name].append(took)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    return {
        "count": count,
        "gateway_ms": round(medians["gateway"] * 1e3, 3),
        "direct_ms": round(medians["direct"] * 1e3, 3),
        "ratio": round(medians["gateway"] / medians["direct"], 3),
        "added_ms": round((medians["gateway"] - medians["direct"]) * 1e3, 3),
    }


def render(result: Mapping[str, Any]) -> str:
    return (
        f"median of {result['count']}: gateway {result['gateway_ms']} ms, direct {result['direct_ms']} ms, "
        f"ratio {result['ratio']}, added {result['added_ms']} ms"
    )
