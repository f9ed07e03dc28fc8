"""Agent command lines from npm, run without a terminal against a whole gateway: each calls a tool and finishes, in
front of an upstream of each dialect. `make test-clients` installs them.

The upstream is scripted and the only command it has run is an echo.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from router.types import Dialect
from router.upstreams.scripted_server import ScriptedServer
from tests.support.agent import DONE, ECHO, works
from tests.support.dialects import DIALECTS, ONE_GROUP, config, listed
from tests.support.rig import Rig, running

CLIENTS = Path(os.environ.get("POINTSMAN_CLIENTS") or Path(__file__).parents[2] / ".venv" / "clients")
PATIENCE_S = 120.0

pytestmark = [pytest.mark.clients, pytest.mark.slow]
each_dialect = pytest.mark.parametrize("upstream", DIALECTS)


def command(name: str) -> Path:
    found = CLIENTS / "node_modules" / ".bin" / name
    if not found.exists():
        pytest.skip(f"{name} is not installed; make test-clients installs it")
    return found


async def run(folder: Path, words: Sequence[str | Path], given: Mapping[str, str]) -> str:
    """What the command line printed, once it ended well. It sees a home of its own and none of our settings."""
    home = folder / "home"
    work = folder / "work"
    home.mkdir()
    work.mkdir(exist_ok=True)
    environ = {"HOME": str(home), "PATH": os.environ["PATH"], "CI": "1", "NO_COLOR": "1", **given}
    process = await asyncio.create_subprocess_exec(
        *map(str, words),
        cwd=work,
        env=environ,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            out = (await process.communicate())[0].decode()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, out[-3000:]
    return out


async def check(rig: Rig, server: ScriptedServer, out: str, dialect: Dialect) -> None:
    """The tool's output came back through the gateway, and the last answer reached the terminal."""
    assert DONE in out
    results = [visit for visit in server.visits if ECHO in visit.seen.body.decode().replace(f"echo {ECHO}", "")]
    assert results, "the tool ran and its output came back"
    records = await rig.records(2)
    assert {record.dialect for record in records} == {dialect}
    assert {record.outcome for record in records} == {"ok"}


@each_dialect
async def test_claude_code_finishes_a_task(tmp_path: Path, upstream: Dialect) -> None:
    claude = command("claude")
    async with (
        ScriptedServer(works(upstream)) as server,
        running(tmp_path, config((server, listed(upstream))), ONE_GROUP, None) as rig,
    ):
        given = {
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{rig.port}",
            "ANTHROPIC_API_KEY": "k",
            "ANTHROPIC_MODEL": "auto",
            "ANTHROPIC_SMALL_FAST_MODEL": "auto",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
        }
        out = await run(tmp_path, [claude, "-p", "say hello with echo", "--allowedTools", "Bash"], given)
        await check(rig, server, out, "messages")


@each_dialect
async def test_codex_finishes_a_task(tmp_path: Path, upstream: Dialect) -> None:
    codex = command("codex")
    async with (
        ScriptedServer(works(upstream)) as server,
        running(tmp_path, config((server, listed(upstream))), ONE_GROUP, None) as rig,
    ):
        provider = f'{{name="gw",base_url="{rig.base_url}",env_key="KEY",wire_api="responses"}}'
        words = [codex, "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
        words += ["-c", "model_provider=gw", "-c", "model=auto", "-c", f"model_providers.gw={provider}"]
        out = await run(tmp_path, [*words, "say hello with echo"], {"KEY": "k"})
        await check(rig, server, out, "responses")


@each_dialect
async def test_opencode_finishes_a_task(tmp_path: Path, upstream: Dialect) -> None:
    opencode = command("opencode")
    async with (
        ScriptedServer(works(upstream)) as server,
        running(tmp_path, config((server, listed(upstream))), ONE_GROUP, None) as rig,
    ):
        settings = {
            "provider": {
                "gw": {
                    "npm": "@ai-sdk/openai-compatible",
                    "options": {"baseURL": rig.base_url, "apiKey": "k"},
                    "models": {"auto": {"name": "auto"}},
                }
            },
            "autoupdate": False,
            "share": "disabled",
        }
        (tmp_path / "work").mkdir()
        (tmp_path / "work" / "opencode.json").write_text(json.dumps(settings))
        out = await run(tmp_path, [opencode, "run", "--model", "gw/auto", "say hello with echo"], {})
        await check(rig, server, out, "chat")
