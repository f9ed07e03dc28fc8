"""The image: there is no container engine in the tests, so its steps are read, and on request run by hand."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from fnmatch import fnmatch
from pathlib import Path

import httpx
import pytest

from router.cli.serve import command
from tests.support.ports import free_port
from tests.support.validators import DEPLOY, ROOT

TEXT = (DEPLOY / "Dockerfile").read_text()


def steps() -> list[list[tuple[str, str]]]:
    """The instructions of each stage, in order, each with its argument on one line."""
    lines = re.sub(r"\\\n\s*", " ", TEXT).splitlines()
    stages: list[list[tuple[str, str]]] = []
    for line in (line for line in lines if line and not line.startswith("#")):
        name, _, rest = line.partition(" ")
        if name == "FROM":
            stages.append([])
        elif stages:
            stages[-1].append((name, rest.strip()))
    return stages


BUILD, FINAL = steps()


def values(stage: list[tuple[str, str]], name: str) -> list[str]:
    return [value for key, value in stage if key == name]


def ignored(path: str) -> bool:
    """Whether .dockerignore keeps a path from the build; the last rule that matches it or a folder of it holds."""
    kept = True
    parts = Path(path).parts
    for rule in (ROOT / ".dockerignore").read_text().split():
        pattern = rule.lstrip("!")
        if any(fnmatch("/".join(parts[:end]), pattern) for end in range(1, len(parts) + 1)):
            kept = rule.startswith("!")
    return not kept


def test_every_file_that_a_step_copies_is_there_and_goes_into_the_build():
    copied = [
        word for value in values([*BUILD, *FINAL], "COPY") if "--from" not in value for word in value.split()[:-1]
    ]
    assert {"requirements/serve.txt", "router", "deploy/config/groups.yaml"} <= set(copied)
    assert [path for path in copied if not (ROOT / path).exists() or ignored(path)] == []
    assert ignored("docs/design.md")
    assert ignored(".git")


def test_the_gateway_runs_as_nobody_in_particular_and_is_asked_whether_it_lives():
    (user,) = values(FINAL, "USER")
    assert int(user.split(":")[0]) >= 10000
    assert values(FINAL, "STOPSIGNAL") == ["SIGTERM"]
    assert "/healthz" in values(FINAL, "HEALTHCHECK")[0]


def test_the_command_is_one_that_the_gateway_understands():
    argv = json.loads(values(FINAL, "CMD")[0])
    assert json.loads(values(FINAL, "ENTRYPOINT")[0]) == ["pointsman"]
    assert argv[0] == "serve"
    options = command.make_context("serve", argv[1:]).params
    assert f"EXPOSE {options['port']} {options['admin_port']}" in TEXT


def test_the_configuration_it_carries_is_that_of_deploy_config():
    (copied,) = [value for value in values(FINAL, "COPY") if "deploy/config" in value]
    assert {Path(name).name for name in copied.split()[:-1]} == {
        path.name for path in (DEPLOY / "config").glob("*.yaml")
    }


@pytest.mark.slow
@pytest.mark.skipif(
    not os.environ.get("POINTSMAN_DOWNLOADS"), reason="installs from a package index: POINTSMAN_DOWNLOADS=1"
)
def test_the_steps_run_by_hand_make_a_gateway_that_serves_and_is_healthy(tmp_path: Path):
    """What the build stage runs, under a folder of its own, and then what the final stage starts."""
    source, venv = tmp_path / "src", tmp_path / "venv"
    (source / "requirements").mkdir(parents=True)
    here = lambda text: text.replace("/opt/pointsman", str(venv))  # noqa: E731
    for name, value in BUILD:
        if name == "COPY":
            *files, _ = value.split()
            for file in files:
                copy = shutil.copytree if (ROOT / file).is_dir() else shutil.copy
                copy(ROOT / file, source / file)
        elif name == "RUN":
            argv = shlex.split(here(value))
            argv[0] = sys.executable if argv[0] == "python" else argv[0]
            subprocess.run(
                argv, cwd=source, check=True, timeout=600, env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
            )
    port = free_port()
    argv = [str(venv / "bin" / "pointsman"), *json.loads(values(FINAL, "CMD")[0])]
    argv = [str(DEPLOY / "config") if word == "/etc/pointsman" else word for word in argv]
    argv += [
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--admin-port",
        str(free_port()),
        "--state",
        str(tmp_path / "state"),
    ]
    process = subprocess.Popen(argv, cwd=tmp_path)
    try:
        until = time.monotonic() + 60
        while not _alive(port):
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.1)
        (check,) = re.findall(r"CMD (\[.*\])", values(FINAL, "HEALTHCHECK")[0])
        probe = [word.replace(":8080", f":{port}") for word in json.loads(check)]
        assert subprocess.run([str(venv / "bin" / "python"), *probe[1:]]).returncode == 0
        process.terminate()
        assert process.wait(30) == 0
        assert subprocess.run([str(venv / "bin" / "python"), *probe[1:]], stderr=subprocess.DEVNULL).returncode != 0
    finally:
        process.kill()


def _alive(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/healthz").status_code == 200
    except httpx.TransportError:
        return False
