"""docs/recipes: short, what they set is what the tests of the clients set, and what can be run here is."""

from __future__ import annotations

import asyncio
import json
import os
import re
import tomllib
from pathlib import Path

import pytest

from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import chat
from tests.support import console
from tests.support.rig import POLICY, groups, running

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "docs" / "recipes"
CLIENTS = (ROOT / "tests" / "clients" / "test_command_lines.py").read_text()
LEXICAL = "version: 1\nscorers: {difficulty: {kind: lexical}}\n"


def code(name: str) -> list[tuple[str, str]]:
    """The blocks of a recipe: language and text."""
    return re.findall(r"^```(\w+)\n(.*?)^```", (RECIPES / f"{name}.md").read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", sorted(RECIPES.glob("*.md")), ids=lambda page: page.stem)
def test_a_recipe_is_short_and_listed(page: Path) -> None:
    if page.stem != "index":
        assert len(page.read_text().splitlines()) <= 20
        assert f"]({page.name})" in (RECIPES / "index.md").read_text()
        assert all(len(text.splitlines()) <= 10 for _, text in code(page.stem))


async def test_the_curl_lines_are_answered(tmp_path: Path) -> None:
    async with ScriptedServer(chat("Hello there.")) as server:
        config = groups({"a": server, "b": server}, {"small": ["a"], "large": ["b"]})
        async with running(tmp_path, config, POLICY, LEXICAL) as rig:
            printed: list[str] = []
            for command in console.commands(RECIPES / "curl.md"):
                process = await asyncio.create_subprocess_exec(
                    *("bash", "-c", command.text.replace("127.0.0.1:8080", f"127.0.0.1:{rig.port}")),
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.DEVNULL,
                )
                printed.append((await process.communicate())[0].decode())
    listed, answered, streamed, decided = printed
    assert {model["id"] for model in json.loads(listed)["data"]} == {"auto", "small", "large"}
    assert "x-pointsman-group: small" in answered
    assert "Hello there." in answered
    assert "event: message_stop" in streamed
    assert "decision  group large" in decided


async def test_what_open_webui_asks_is_answered(tmp_path: Path) -> None:
    """It lists models with its key, then streams chat with fields of its own. docs.openwebui.com."""
    environ = dict(re.findall(r"-e (\w+)=(\S+)", code("open-webui")[0][1]))
    assert environ["OPENAI_API_BASE_URL"].endswith(":8080/v1")
    async with ScriptedServer(chat("Hello there.")) as server:
        config = groups({"a": server}, {"small": ["a"], "large": ["a"]})
        async with running(tmp_path, config, POLICY, LEXICAL) as rig:
            headers = {"authorization": f"Bearer {environ['OPENAI_API_KEY']}"}
            listed = (await rig.client.get("/v1/models", headers=headers)).json()
            assert "auto" in {model["id"] for model in listed["data"]}
            body = {"model": "auto", "stream": True, "stream_options": {"include_usage": True}, "user": "me"}
            asked = body | {"messages": [{"role": "user", "content": "hi"}], "metadata": {"chat_id": "1"}}
            reply = await rig.client.post("/v1/chat/completions", json=asked, headers=headers)
    assert reply.status_code == 200
    assert reply.content.rstrip().endswith(b"data: [DONE]")


def test_claude_codes_variables_are_those_that_its_test_sets() -> None:
    for name in re.findall(r"\b(ANTHROPIC_\w+)=", code("claude-code")[0][1]):
        assert f'"{name}"' in CLIENTS
    assert "http://127.0.0.1:8080 " in code("claude-code")[0][1]  # without /v1, as in the test


def test_codexs_provider_is_the_one_of_its_test() -> None:
    given = re.search(r"model_providers\.gw=(\{.*\})'", code("codex")[0][1])
    assert given is not None
    provider = tomllib.loads(f"gw = {given[1]}")["gw"]
    assert provider == {"name": "gw", "base_url": "http://127.0.0.1:8080/v1", "env_key": "KEY", "wire_api": "responses"}
    assert 'name="gw",base_url="{rig.base_url}",env_key="KEY",wire_api="responses"' in CLIENTS


def test_opencodes_settings_are_those_of_its_test() -> None:
    provider = json.loads(code("opencode")[0][1])["provider"]["gw"]
    assert (provider["npm"], sorted(provider["options"])) == ("@ai-sdk/openai-compatible", ["apiKey", "baseURL"])
    assert '"npm": "@ai-sdk/openai-compatible"' in CLIENTS
    assert '"options": {"baseURL": rig.base_url, "apiKey": "k"}' in CLIENTS


@pytest.mark.clients
@pytest.mark.slow
@pytest.mark.parametrize(("name", "module"), [("langchain", "langchain_openai"), ("pydantic-ai", "pydantic_ai")])
async def test_a_frameworks_recipe_runs_as_it_stands(tmp_path: Path, name: str, module: str) -> None:
    pytest.importorskip(module, reason=f"{module} is not installed; make test-clients installs it")
    import sys

    async with ScriptedServer(chat("There is no largest one.")) as server:
        config = groups({"a": server, "b": server}, {"small": ["a"], "large": ["b"]})
        async with running(tmp_path, config, POLICY, LEXICAL) as rig:
            program = code(name)[0][1].replace("127.0.0.1:8080", f"127.0.0.1:{rig.port}")
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", program),
                env=dict(os.environ),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            out, err = await process.communicate()
    assert process.returncode == 0, err.decode()[-2000:]
    assert out.decode().splitlines()[0] == "There is no largest one."
