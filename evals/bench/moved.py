"""A name that changes its address under load (F29): `python -m evals.bench.moved`.

The gateway has a hosts file of its own (`unshare --mount`), which says where the one server of its first group is. The
file is changed to another address, where a second server has the same port; the first server goes on answering, or it
stops. A bar for each: how soon the new address is used, until when the old one is, and that no request failed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

import uvloop

from evals.bench.added import request
from evals.bench.gateway import serving
from evals.bench.line import Answer, ask
from evals.bench.outages import met
from evals.bench.run import body
from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import Seen, Step, chat_answer

NAME = "moved.test"
OLD, NEW = "127.0.0.2", "127.0.0.3"
RATE = 50.0  # requests a second
ANSWER_S = 0.1  # so that several connections are in use
WARM_S = 5.0
BOUND_S = 60.0
PATIENCE_S = 10.0
POLICY = "version: 1\nname: default\nmodels: [auto]\ndefault: small\nfallback: {small: [large]}\n"


class Hosts:
    """A hosts file for one process."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "hosts"
        self.path.write_text("127.0.0.1 localhost\n")

    def say(self, address: str) -> None:
        """In one write, and to the same file, which is what is mounted."""
        with self.path.open("r+b", buffering=0) as file:
            file.write(f"{address} {NAME}\n127.0.0.1 localhost\n".encode())

    @property
    def before(self) -> list[str]:
        """The command that runs another one with this file."""
        root = [] if os.geteuid() == 0 else ["--map-root-user"]
        return ["unshare", *root, "--mount", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', str(self.path)]

    def permitted(self) -> bool:
        try:
            return subprocess.run([*self.before, "true"], capture_output=True, check=False).returncode == 0
        except OSError:
            return False


def script(_: Seen) -> Sequence[Step]:
    return chat_answer("fine", delay_s=ANSWER_S)


async def load(port: int, until: asyncio.Event) -> list[Answer]:
    """Answers that are not streamed: those of a server that is killed can be had elsewhere."""
    chance, due = Random(7), monotonic()
    asked, tasks = request(body()), list[asyncio.Task[Answer]]()
    while not until.is_set():
        due += chance.expovariate(RATE)
        await asyncio.sleep(max(0.0, due - monotonic()))
        tasks.append(asyncio.create_task(ask(port, asked, PATIENCE_S)))
    return await asyncio.gather(*tasks)


async def change(hosts: Hosts, port: int, old: ScriptedServer, new: ScriptedServer, stops: bool) -> dict[str, Any]:
    until = asyncio.Event()
    loading = asyncio.create_task(load(port, until))
    await asyncio.sleep(WARM_S)
    if new.visits:
        raise SystemExit("moved: the new address was used before it was the name's")
    hosts.say(NEW)
    moved = monotonic()
    if stops:
        await old.stop()
    await asyncio.sleep(BOUND_S + WARM_S)
    until.set()
    answers = await loading
    bars = {
        "first call to the new address, s": (
            min((v.started for v in new.visits), default=1e9) - moved,
            f"<= {BOUND_S}",
        ),
        "last call to the old address, s": (max(v.started for v in old.visits) - moved, f"<= {BOUND_S}"),
        "requests failed": (sum(not answer.whole for answer in answers), "<= 0"),
    }
    return {what: [round(found, 2), bar, met(found, bar)] for what, (found, bar) in bars.items()} | {
        "requests": [len(answers), ">= 1", bool(answers)]
    }


async def measure(stops: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        hosts = Hosts(folder)
        if not hosts.permitted():
            raise SystemExit("moved: a hosts file of its own cannot be mounted here (needs unshare and mount)")
        async with (
            ScriptedServer(script, host=OLD) as old,
            ScriptedServer(script, old.port, NEW) as new,
            ScriptedServer(script) as other,
        ):
            hosts.say(OLD)
            config = folder / "config"
            config.mkdir()
            (config / "groups.yaml").write_text(groups(f"http://{NAME}:{old.port}/v1", other.base_url))
            (config / "default.yaml").write_text(POLICY)
            async with serving(config, folder, before=hosts.before) as gateway:
                return await change(hosts, gateway.port, old, new, stops)


def groups(named: str, other: str) -> str:
    return (
        "version: 1\ngroups: {small: {deployments: [a]}, large: {deployments: [b]}}\ndeployments:\n"
        f'  a: {{upstream: openai, base_url: "{named}", model: a}}\n'
        f'  b: {{upstream: openai, base_url: "{other}", model: b}}\n'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    found = {
        "the old server goes on answering": uvloop.run(measure(stops=False)),
        "the old server stops": uvloop.run(measure(stops=True)),
    }
    print(json.dumps(found, indent=1))
    sys.exit(not all(fine for bars in found.values() for _, _, fine in bars.values()))


if __name__ == "__main__":
    main()
