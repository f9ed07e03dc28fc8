"""`python -m evals.bench.flips`: a gateway under load whose configuration changes ten times a second.

Two configurations differ in where the small group is; every answer has to come from the place that the configuration it
names leads to. What a reload costs is not measured here.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import httpx

from evals.bench.gateway import serving
from evals.bench.run import body
from router.policy_files import load
from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import chat

POLICY = "version: 1\nname: default\nmodels: [auto]\nroutes: []\ndefault: small\n"
PERIOD_S = 0.1
_CLIENTS, _PAUSE_S = 8, 0.03


def groups(urls: dict[str, str], chosen: str) -> str:
    lines = ["version: 1", f"groups: {{small: {{deployments: [{chosen}]}}}}", "deployments:"]
    lines += [f'  {name}: {{upstream: openai, base_url: "{url}", model: {name}}}' for name, url in urls.items()]
    return "\n".join(lines) + "\n"


def put(config: Path, content: str) -> None:
    beside = config / ".groups.yaml.tmp"
    beside.write_text(content)
    beside.replace(config / "groups.yaml")


async def client(url: str, until: asyncio.Event, seen: Counter[tuple[int, str, str]]) -> None:
    """Requests until the event: status, digest and the text of the answer."""
    async with httpx.AsyncClient(timeout=30) as http:
        while not until.is_set():
            reply = await http.post(url, content=body(), headers={"content-type": "application/json"})
            named = reply.headers.get("x-pointsman-policy", "").partition("@")[2]
            said = reply.json()["choices"][0]["message"]["content"] if reply.status_code == 200 else ""
            seen[reply.status_code, named, said] += 1
            await asyncio.sleep(_PAUSE_S)


async def flips(port: int, admin: int, config: Path, files: list[str], seconds: float) -> dict[str, Any]:
    seen: Counter[tuple[int, str, str]] = Counter()
    until, loop = asyncio.Event(), asyncio.get_running_loop()
    sides = dict.fromkeys(("a", "b"), "")
    for name, content in zip(sides, files, strict=True):
        put(config, content)
        sides[name] = load(config).digest[:12]
    clients = [
        asyncio.create_task(client(f"http://127.0.0.1:{port}/v1/chat/completions", until, seen))
        for _ in range(_CLIENTS)
    ]
    begun, count, refused = loop.time(), 0, 0
    async with httpx.AsyncClient(timeout=30) as http:
        while loop.time() - begun < seconds:
            put(config, files[count % 2])
            refused += (await http.post(f"http://127.0.0.1:{admin}/admin/reload")).status_code != 200
            count += 1
            # The next one is due by the clock and not after a pause, so that a slow reload does not make fewer of them.
            await asyncio.sleep(max(0.0, begun + count * PERIOD_S - loop.time()))
    until.set()
    await asyncio.gather(*clients)
    right = {(200, digest, f"from {name}") for name, digest in sides.items()}
    return {
        "seconds": seconds,
        "flips": count,
        "flips_per_s": round(count / seconds, 1),
        "reloads_refused": refused,
        "requests": seen.total(),
        "of_each": {name: seen[200, digest, f"from {name}"] for name, digest in sides.items()},
        "failed": sum(n for (status, _, _), n in seen.items() if status != 200),
        "mixed": sum(n for key, n in seen.items() if key[0] == 200 and key not in right),
    }


async def measure(seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        config = Path(name) / "config"
        config.mkdir()
        async with ScriptedServer(chat("from a")) as a, ScriptedServer(chat("from b")) as b:
            urls = {"a": a.base_url, "b": b.base_url}
            files = [groups(urls, chosen) for chosen in urls]
            put(config, files[0])
            (config / "default.yaml").write_text(POLICY)
            async with serving(config, Path(name)) as gateway:
                return await flips(gateway.port, gateway.admin, config, files, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    print(json.dumps(asyncio.run(measure(parser.parse_args().seconds)), indent=1))


if __name__ == "__main__":
    main()
