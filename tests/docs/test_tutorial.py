"""docs/tutorial.md, typed as it stands: every command after the first two, with scripted models on the port of Ollama,
and what the page shows is what is printed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from router.policy_files import load
from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import Seen, chat_answer
from tests.support import console, engines
from tests.support.ports import free_port

pytest.importorskip("sklearn", reason="the evals extra is not installed")
pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tutorial.md"
BY_HAND = ("make run", "source ")  # `make run` is tests/e2e/test_local.py and tests/shell/test_first_minute.py
RIGHT = {
    line.rpartition(",")[0].strip('"'): line.rpartition(",")[2]
    for line in (ROOT / "docs" / "questions.csv").read_text().splitlines()[1:]
}


def models(seen: Seen) -> Sequence[Any]:
    """Ollama with two models: the large one is always right, the small one where the question is short."""
    if not seen.path.endswith("/chat/completions"):
        return engines.answering(engines.OLLAMA)(seen)
    body = seen.json()
    asked = body["messages"][-1]["content"]
    knows = body["model"] == "qwen3:8b" or len(asked) < 60
    return chat_answer(RIGHT.get(asked, "Paris") if knows else "I am not sure.")


class Shell:
    """Commands typed one after another, with the page's ports and addresses changed to the test's own."""

    def __init__(self, folder: Path, host: str) -> None:
        self.folder, self.host = folder, host
        self.port, self.admin = free_port(), free_port()
        self.gateway: subprocess.Popen[bytes] | None = None
        (folder / "bin").mkdir()
        program = folder / "bin" / "pointsman"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m router "$@"\n')
        program.chmod(0o755)
        (folder / "bin" / "python").symlink_to(sys.executable)
        (folder / "docs").symlink_to(ROOT / "docs")
        path = f"{folder / 'bin'}:{os.environ['PATH']}"
        keys = ("API_KEY", "BASE_URL")
        clean = {name: value for name, value in os.environ.items() if not name.endswith(keys)}
        self.environ = {**clean, "PATH": path, "PYTHONPATH": str(ROOT), "POINTSMAN_STATE": str(folder / "state")}

    def own(self, text: str) -> str:
        changed = text.replace("127.0.0.1:11434", f"{self.host}:11434")
        changed = changed.replace("127.0.0.1:8080", f"127.0.0.1:{self.port}").replace(
            "127.0.0.1:9090", f"127.0.0.1:{self.admin}"
        )
        for begins, more in (
            ("pointsman init mine", f" --host {self.host}"),
            ("pointsman doctor", f" --port {self.port} --admin-port {self.admin}"),
            ("pointsman eval run --live", f" --url http://127.0.0.1:{self.port}"),
        ):
            if changed.startswith(begins):
                changed = changed.replace(begins, begins + more, 1)
        return changed

    def type(self, text: str) -> str:
        ran = subprocess.run(
            ["bash", "-c", self.own(text)],
            cwd=self.folder,
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=300,
            check=False,
        )
        return ran.stdout.decode()

    def serve(self, text: str) -> None:
        words = [*text.split()[1:], "--port", str(self.port), "--admin-port", str(self.admin)]
        with (self.folder / "serve.log").open("wb") as log:
            argv = [sys.executable, "-m", "router", *words]
            self.gateway = subprocess.Popen(argv, cwd=self.folder, env=self.environ, stdout=log, stderr=log)
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                if httpx.get(f"http://127.0.0.1:{self.port}/readyz").status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(0.1)
        raise AssertionError((self.folder / "serve.log").read_text())

    def wait(self) -> None:
        """For a sleep of the page: until the files have come into force, which may take a loaded machine longer."""
        wanted, applied = load(self.folder / "mine").digest, self.folder / "state" / "history" / "applied.jsonl"
        until = time.monotonic() + 60
        while wanted not in applied.read_text():
            assert time.monotonic() < until, (self.folder / "serve.log").read_text()
            time.sleep(0.05)

    def stop(self) -> None:
        if self.gateway is not None:
            self.gateway.send_signal(signal.SIGKILL)
            self.gateway.wait()


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    if shutil.which("bash") is None or shutil.which("curl") is None:
        pytest.skip("bash and curl are needed")
    one = Shell(tmp_path, f"127.{170 + os.getpid() % 70}.{os.getpid() // 70 % 250}.1")
    yield one
    one.stop()


async def test_every_command_of_the_tutorial_does_what_the_page_shows(shell: Shell) -> None:
    import asyncio

    try:
        server = ScriptedServer(models, 11434, shell.host)
        await server.start()
    except OSError:
        pytest.skip("this system has one loopback address only")
    typed = 0
    lacking: list[str] = []
    try:
        for command in console.commands(PAGE):
            if command.text.startswith(BY_HAND):
                continue
            typed += 1
            if command.text.startswith("pointsman serve"):
                await asyncio.to_thread(shell.serve, command.text)
                continue
            if command.text.startswith("sleep "):
                await asyncio.to_thread(shell.wait)
                continue
            printed = await asyncio.to_thread(shell.type, command.text)
            shown = [shell.own(line) for line in command.shown]
            missing = console.differs(shown, printed)
            if missing is not None:
                lacking.append(f"$ {command.text}\n{printed}\n--- lacks: {missing}")
    finally:
        await server.stop()
    assert not lacking, "\n".join(lacking)
    assert typed >= 20
    assert "policy default-next" in (shell.folder / "serve.log").read_text()
    assert (shell.folder / "report.html").stat().st_size > 1000
