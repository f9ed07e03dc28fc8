"""`pointsman init`: it finds what serves models, chooses, and writes files that check; keys are never in them.

Engines are scripted servers on their real usual ports, each test on an address of its own in 127.0.0.0/8.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from router.policy_files import review
from router.starter import places, sizes
from router.starter.choice import Choice, choose
from router.starter.found import Place
from router.upstreams.scripted_server import ScriptedServer
from tests.support import engines
from tests.support.engines import answering
from tests.support.served import serving

KEYS = {"OLLAMA_HOST"} | {
    name for provider in places.PROVIDERS.values() for name in (*provider.variables, provider.base)
} - {""}
_TAKEN: list[int] = []


@pytest.fixture
def host() -> str:
    """A loopback address where nothing else listens."""
    _TAKEN.append(len(_TAKEN))
    address = f"127.{70 + os.getpid() % 100}.{os.getpid() // 100 % 250}.{len(_TAKEN) + 1}"
    with socket.socket() as sock:
        try:
            sock.bind((address, 0))
        except OSError:
            pytest.skip("this system has one loopback address only, and its usual ports may be in use")
    return address


@asynccontextmanager
async def up(host: str, servers: Mapping[int, Mapping[str, Any]]) -> AsyncIterator[dict[int, ScriptedServer]]:
    async with AsyncExitStack() as stack:
        yield {
            port: await stack.enter_async_context(ScriptedServer(answering(paths), port, host))
            for port, paths in servers.items()
        }


async def init(folder: Path, *arguments: str, environ: Mapping[str, str] | None = None) -> tuple[int, str, str]:
    """Exit code, output, errors of `pointsman init FOLDER ...` as a process."""
    clean = {name: value for name, value in os.environ.items() if name not in KEYS}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "router", "init", str(folder), *arguments),
        env={**clean, **(environ or {})},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


def checked(folder: Path, environ: Mapping[str, str] | None = None) -> dict[str, list[str]]:
    """The models of each group in a folder that must check, by deployment's `model`."""
    found = review(folder, dict(environ or {}))
    assert found.mistakes == ()
    assert found.config is not None
    assert found.examples >= 3
    deployments = found.config.deployments
    return {name: [deployments[one].model for one in group.deployments] for name, group in found.config.groups.items()}


async def test_each_engine_is_found_on_its_usual_port_by_what_it_answers(host: str) -> None:
    servers = {
        11434: engines.OLLAMA,
        1234: engines.LM_STUDIO,
        8080: engines.LLAMACPP,
        8000: engines.VLLM,
        30000: engines.SGLANG,
    }
    async with up(host, servers):
        found = await asyncio.to_thread(places.look, host, (), {})
    assert {place.kind: place.base_url for place in found} == {
        "ollama": f"http://{host}:11434/v1",
        "lmstudio": f"http://{host}:1234/v1",
        "llamacpp": f"http://{host}:8080/v1",
        "vllm": f"http://{host}:8000/v1",
        "sglang": f"http://{host}:30000/v1",
    }
    models = {place.kind: {model.name: (model.size_b, dict(model.more)) for model in place.models} for place in found}
    assert models == {
        "ollama": {"llama3.2:1b": (1.2, {}), "qwen3:8b": (8.2, {}), "gemma3:latest": (4.3, {})},
        "lmstudio": {
            "qwen2-vl-7b-instruct": (7.0, {}),
            "qwen3-32b": (32.0, {"images": False, "context_window": 16384}),
        },
        "llamacpp": {
            "../models/Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf": (8.030261312, {"context_window": 8192, "images": False})
        },
        "vllm": {"Qwen/Qwen3-235B-A22B": (235.0, {"context_window": 40960})},
        "sglang": {"openai/gpt-oss-120b": (120.0, {"context_window": 131072})},
    }
    more = {place.kind: dict(place.more) for place in found}
    assert more["vllm"] == {"metrics_url": "/metrics", "health_url": "/health"}
    assert more["llamacpp"] == more["sglang"] == {"health_url": "/health"}


@pytest.mark.parametrize("told", ["{host}:{port}", "http://{host}:{port}/", "0.0.0.0:{port}", " {host}:{port} "])
async def test_ollama_is_found_where_its_own_variable_says(host: str, told: str) -> None:
    async with ScriptedServer(answering(engines.OLLAMA), 0, host) as server:
        environ = {"OLLAMA_HOST": told.format(host=host, port=server.port)}
        found = await asyncio.to_thread(places.look, host, (), environ)
    assert [(place.kind, place.base_url) for place in found] == [("ollama", f"http://{host}:{server.port}/v1")]


async def test_ollama_on_its_usual_port_is_one_place_whatever_its_variable_says(host: str) -> None:
    async with up(host, {11434: engines.OLLAMA}):
        found = await asyncio.to_thread(places.look, host, (), {"OLLAMA_HOST": host})
    assert [place.kind for place in found] == ["ollama"]


async def test_the_files_check_and_a_request_goes_through_ones_own_models(host: str, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    async with up(host, {11434: engines.OLLAMA, 8000: engines.VLLM}):
        code, out, err = await init(folder, "--host", host)
        assert (code, err) == (0, "")
        assert checked(folder) == {"small": ["gemma3:latest"], "large": ["Qwen/Qwen3-235B-A22B"]}
        assert "gemma3:latest" in out
        assert f"check {folder}" in out
        async with serving(tmp_path, folder) as (_, client, _admin):
            told = [await _ask(client, text) for text in ("What is the capital of France?", _HARD)]
    assert told == ["I am gemma3:latest.", "I am Qwen/Qwen3-235B-A22B."]


_HARD = "Prove that the square root of 2 is irrational and generalise the argument to all primes."


async def _ask(client: httpx.AsyncClient, text: str) -> str:
    body = {"model": "auto", "messages": [{"role": "user", "content": text}]}
    reply = await client.post("/v1/chat/completions", json=body)
    return str(reply.json()["choices"][0]["message"]["content"])


async def test_others_that_were_found_stand_in_the_file_ready_to_be_used(host: str, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    async with up(host, {11434: engines.OLLAMA}):
        assert (await init(folder, "--host", host))[0] == 0
    text = (folder / "groups.yaml").read_text()
    assert checked(folder) == {"small": ["gemma3:latest"], "large": ["qwen3:8b"]}
    line = next(line for line in text.splitlines() if line.startswith("  # ollama-llama3.2-1b: "))
    (folder / "groups.yaml").write_text(
        text.replace(line, line.replace("# ", "", 1)).replace("[ollama-gemma3-latest]", "[ollama-llama3.2-1b]")
    )
    assert checked(folder) == {"small": ["llama3.2:1b"], "large": ["qwen3:8b"]}


async def test_keys_of_providers_are_asked_with_and_never_written(host: str, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    async with (
        ScriptedServer(answering(engines.OPENAI, key="sk-secret-1")) as openai,
        ScriptedServer(answering(engines.ANTHROPIC, key="sk-ant-secret-2")) as anthropic,
    ):
        environ = {
            "OPENAI_API_KEY": "sk-secret-1",
            "OPENAI_BASE_URL": openai.base_url,
            "ANTHROPIC_API_KEY": "sk-ant-secret-2",
            "ANTHROPIC_BASE_URL": anthropic.base_url.removesuffix("/v1"),
        }
        code, out, err = await init(folder, "--host", host, environ=environ)
    assert (code, err) == (0, "")
    assert checked(folder, environ) == {"small": ["claude-haiku-4-5-20251001"], "large": ["claude-opus-4-7"]}
    text = (folder / "groups.yaml").read_text()
    assert 'api_key: "${ANTHROPIC_API_KEY}", dialects: [messages]' in text
    assert "# openai-gpt-5.6-luna: " in text
    assert "# openai-gpt-5.6-sol: " in text
    assert "secret" not in "".join(path.read_text() for path in folder.iterdir()) + out
    assert "secret" not in str([visit.seen.path for visit in (*openai.visits, *anthropic.visits)])


async def test_a_key_that_is_refused_and_a_provider_that_is_not_reached_are_told_and_not_used(
    host: str, tmp_path: Path
) -> None:
    async with ScriptedServer(answering(engines.OPENAI, key="another")) as openai:
        environ = {
            "OPENAI_API_KEY": "sk-wrong",
            "OPENAI_BASE_URL": openai.base_url,
            "ANTHROPIC_API_KEY": "k",
            "ANTHROPIC_BASE_URL": "http://127.0.0.1:9",
            "HTTPS_PROXY": "http://proxy.example:3128",
        }
        code, out, _ = await init(tmp_path / "mine", "--host", host, environ=environ)
    assert code == 0
    assert f"127.0.0.1:{openai.port} refuses the key; check it, or unset it" in out
    assert "127.0.0.1:9 cannot be reached (ConnectError); a proxy is set, and deployments are called without one" in out
    assert checked(tmp_path / "mine") == {"small": [""], "large": [""]}  # the embedded model


async def test_with_nothing_found_the_embedded_model_serves_both(host: str, tmp_path: Path) -> None:
    code, out, _ = await init(tmp_path, "--host", host)
    assert code == 0
    assert out.startswith("Nothing was found")
    assert "Both groups get the shipped 270M model" in out
    found = review(tmp_path, {})
    assert found.config is not None
    assert [one.upstream for one in found.config.deployments.values()] == ["local", "local"]


async def test_one_model_alone_serves_both_groups_and_the_file_says_so(host: str, tmp_path: Path) -> None:
    async with up(host, {30000: engines.SGLANG}):
        assert (await init(tmp_path, "--host", host))[0] == 0
    assert checked(tmp_path) == {"small": ["openai/gpt-oss-120b"], "large": ["openai/gpt-oss-120b"]}
    assert "Only one model was found" in (tmp_path / "groups.yaml").read_text()


async def test_two_servers_of_one_model_are_two_deployments_of_its_group(host: str, tmp_path: Path) -> None:
    async with up(host, {8000: engines.VLLM, 8001: engines.VLLM, 11434: engines.OLLAMA}):
        assert (await init(tmp_path, "--host", host))[0] == 0
    assert checked(tmp_path)["large"] == ["Qwen/Qwen3-235B-A22B"] * 2


async def test_a_gateway_of_ours_is_no_upstream_and_its_port_is_minded(host: str, tmp_path: Path) -> None:
    ours = {"/v1/models": engines.listing({"id": "auto"}, owner="pointsman")}
    async with up(host, {8080: ours, 11434: engines.OLLAMA}):
        code, out, _ = await init(tmp_path, "--host", host)
    assert code == 0
    assert "is a gateway itself, and left alone" in out
    assert "--port 8090 --admin-port 9091" in out
    assert checked(tmp_path) == {"small": ["gemma3:latest"], "large": ["qwen3:8b"]}


async def test_a_server_can_be_named_with_the_variable_of_its_key(tmp_path: Path) -> None:
    async with ScriptedServer(answering(engines.VLLM, key="vk")) as server:
        arguments = ("--no-search", "--url", f"{server.base_url}#VLLM_KEY")
        code, _, _ = await init(tmp_path / "with", *arguments, environ={"VLLM_KEY": "vk"})
        assert code == 0
        told = await init(tmp_path / "without", "--no-search", "--url", server.base_url)
    assert 'api_key: "${VLLM_KEY}"' in (tmp_path / "with" / "groups.yaml").read_text()
    assert f"asks for a key; name its variable: --url '{server.base_url}#NAME'" in told[1]


async def test_something_else_on_a_usual_port_is_nothing_of_ours(host: str) -> None:
    async with up(host, {8080: {"/": "hello"}, 8000: {"/v1/models": {"detail": "no"}}}):
        assert [place.kind for place in await asyncio.to_thread(places.look, host, (), {}) if place.models] == []


async def test_files_that_are_there_are_kept_unless_it_is_forced(host: str, tmp_path: Path) -> None:
    (tmp_path / "groups.yaml").write_text("mine: 1\n")
    code, _, err = await init(tmp_path, "--host", host)
    assert (code, (tmp_path / "groups.yaml").read_text()) == (1, "mine: 1\n")
    assert f"{tmp_path} holds groups.yaml already; nothing was written. Name another folder" in err
    assert [path.name for path in tmp_path.iterdir()] == ["groups.yaml"]
    assert (await init(tmp_path, "--host", host, "--force"))[0] == 0
    assert (tmp_path / "groups.yaml.bak").read_text() == "mine: 1\n"
    assert review(tmp_path, {}).mistakes == ()


async def test_a_folder_that_would_not_check_is_left_as_it_is(host: str, tmp_path: Path) -> None:
    other = "version: 1\nname: other\nmodels: [other]\ndefault: huge\n"
    (tmp_path / "other.yaml").write_text(other)
    code, _, err = await init(tmp_path, "--host", host, "--force")
    assert code == 1
    assert "nothing was written" in err
    assert "other.yaml:4:10: default: there is no group 'huge'" in err
    assert [path.name for path in tmp_path.iterdir()] == ["other.yaml"]


async def test_json_holds_what_was_found_chosen_and_written(host: str, tmp_path: Path) -> None:
    async with up(host, {11434: engines.OLLAMA}):
        code, out, _ = await init(tmp_path, "--host", host, "--json")
    told = json.loads(out)
    assert code == 0
    assert told["found"][0]["models"] == ["llama3.2:1b", "qwen3:8b", "gemma3:latest"]
    assert told["chosen"]["large"]["models"] == [[f"http://{host}:11434/v1", "qwen3:8b"]]
    assert [Path(path).name for path in told["written"]] == ["groups.yaml", "default.yaml", "schema.json"]


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("llama3.1:8b", 8),
        ("qwen3:30b-a3b", 30),
        ("mixtral-8x7b-instruct", 56),
        ("gemma-3-270m-it", 0.27),
        ("Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf", 8),
        ("kimi-k2-1t", 1000),
        ("gemma3n:e4b", 4),
        ("gpt-5.6-luna", None),
        ("claude-3-5-haiku-20241022", None),
    ],
)
def test_a_name_tells_its_size(name: str, size: float | None) -> None:
    assert sizes.billions(name) == pytest.approx(size) if size else sizes.billions(name) is None


def test_prices_and_windows_that_a_provider_lists_go_into_the_file() -> None:
    """As OpenRouter has them: dollars a token, as text. openrouter.ai/docs/api-reference/list-available-models"""
    listed = {"id": "x/y", "context_length": 200000, "pricing": {"prompt": "0.000003", "completion": "0.000015"}}
    assert places._plain(listed).more == {"context_window": 200000, "price": {"input": 3.0, "output": 15.0}}
    assert places._plain({"id": "x/y", "pricing": {"prompt": "-1", "completion": "-1"}}).more == {}


def _hosted(kind: str, *names: str) -> Place:
    provider = places.PROVIDERS[kind]
    models = tuple(places._plain({"id": name}) for name in names)
    return Place(kind=kind, title=provider.title, base_url=provider.base_url, hosted=True, models=models)


@pytest.mark.parametrize(
    ("place", "small", "large"),
    [
        (
            _hosted("gemini", "models/gemini-2.5-flash-lite", "models/gemini-2.5-flash", "models/gemini-2.5-pro"),
            "models/gemini-2.5-flash",
            "models/gemini-2.5-pro",
        ),
        (
            _hosted("mistral", "mistral-large-2512", "mistral-large-latest", "mistral-small-latest", "open-mistral-7b"),
            "mistral-small-latest",
            "mistral-large-latest",
        ),
        (_hosted("deepseek", "deepseek-chat", "deepseek-reasoner"), "deepseek-chat", "deepseek-reasoner"),
        (
            _hosted("groq", "llama-3.1-8b-instant", "llama-3.3-70b-versatile", "openai/gpt-oss-120b"),
            "llama-3.1-8b-instant",
            "openai/gpt-oss-120b",
        ),
        (
            _hosted(
                "openrouter", "openai/gpt-5-mini", "anthropic/claude-opus-4.7", "anthropic/claude-haiku-4.5", "x/y-1t"
            ),
            "anthropic/claude-haiku-4.5",
            "anthropic/claude-opus-4.7",
        ),
    ],
)
def test_of_a_provider_the_newest_small_and_the_newest_large_are_taken(place: Place, small: str, large: str) -> None:
    choice = choose([place])
    assert choice is not None
    assert [pick.places[0][1].name for pick in (choice.small, choice.large)] == [small, large]


def test_a_provider_serves_only_what_no_model_of_ones_own_is_large_enough_for() -> None:
    def local(*names: str) -> Place:
        return Place(
            kind="vllm", title="vLLM", base_url="http://h/v1", models=tuple(places._plain({"id": n}) for n in names)
        )

    far = _hosted("anthropic", "claude-haiku-4-5", "claude-opus-4-7")
    names: Callable[[Choice | None], list[str]] = lambda choice: [  # noqa: E731
        pick.places[0][1].name for pick in (choice.small, choice.large) if choice
    ]
    assert names(choose([local("qwen3-8b", "qwen3-32b"), far])) == ["qwen3-8b", "claude-opus-4-7"]
    assert names(choose([local("qwen3-8b", "qwen3-235b"), far])) == ["qwen3-8b", "qwen3-235b"]
    assert names(choose([local("tiny-1b", "qwen3-8b")])) == ["tiny-1b", "qwen3-8b"]
    assert choose([]) is None
