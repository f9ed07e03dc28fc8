"""The first minute: what `make run` and `pointsman serve` say at a start, and when something is in the way."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from router.config import Access, Config, Deployment
from router.listening import announce, bind
from tests.support.config_files import write
from tests.support.served import free_port

ROOT = Path(__file__).parents[2]


def serve(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "router", "serve", "--config", str(folder), "--state", str(folder / "state"), *more]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_port_that_is_taken_is_one_sentence_that_says_what_to_do(tmp_path: Path, workers: str) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        ran = serve(write(tmp_path), "--port", str(port), "--admin-port", "0", "--workers", workers)
    assert ran.returncode == 2
    told = [line for line in ran.stderr.splitlines() if line.startswith("pointsman: ")]
    assert len(told) == 1
    assert told[0].startswith(
        f"pointsman: cannot listen on 127.0.0.1:{port}: Address already in use; something listens"
    )
    assert "say --port " in told[0]
    assert "Traceback" not in ran.stderr


def test_an_address_that_is_not_this_machines_is_told(tmp_path: Path) -> None:
    ran = serve(write(tmp_path), "--host", "192.0.2.1", "--port", str(free_port()), "--open-to-everyone")
    assert ran.returncode == 2
    assert "this machine has no such address; check --host and --admin-host" in ran.stderr


def _config(*deployments: Deployment, access: Access | None = None) -> Config:
    by_name = {one.name: one for one in deployments}
    return Config(policies={}, models={}, groups={}, deployments=by_name, scorers={}, digest="d", access=access)


def test_what_is_printed_can_be_clicked_and_pasted(capsys: pytest.CaptureFixture[str]) -> None:
    announce("0.0.0.0", 8080, "::1", 9090, _config(Deployment(name="a", upstream="openai")))
    shown = capsys.readouterr().out
    assert "Pointsman serves on http://127.0.0.1:8080/v1 " in shown
    assert "dashboard           http://[::1]:9090/" in shown
    assert "curl http://127.0.0.1:8080/v1/chat/completions" in shown
    assert "270M" not in shown
    assert "Bearer" not in shown


def test_with_the_shipped_model_alone_the_way_to_ones_own_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    announce("127.0.0.1", 8080, "127.0.0.1", 9090, _config(Deployment(name="a", upstream="local")))
    assert "for your own models: pointsman init mine" in capsys.readouterr().out


def test_where_keys_are_needed_the_line_to_try_has_one(capsys: pytest.CaptureFixture[str]) -> None:
    access = Access(keys={}, tenants={})
    announce("127.0.0.1", 1, "127.0.0.1", 2, _config(Deployment(name="a", upstream="local"), access=access))
    assert "-H 'authorization: Bearer KEY'" in capsys.readouterr().out


# --- make ------------------------------------------------------------------------------------------------

make = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def tree(folder: Path) -> Path:
    """A checkout as far as `make run` looks at it."""
    shutil.copy(ROOT / "Makefile", folder)
    shutil.copy(ROOT / "pyproject.toml", folder)
    shutil.copytree(ROOT / "requirements", folder / "requirements")
    return folder


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def run(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(["make", "run", *more], cwd=folder, env=env, capture_output=True, text=True, check=False)


@make
def test_an_old_python_is_told_by_name(tmp_path: Path) -> None:
    old = program(tmp_path / "python3.10", "exit 1")
    ran = run(tree(tmp_path), f"PYTHON={old}")
    assert ran.returncode != 0
    assert ran.stdout.strip() == f"Pointsman needs Python 3.11 or newer, and {old} is older."
    assert not (tmp_path / ".venv").exists()


@make
def test_a_python_without_venv_is_told_what_to_install(tmp_path: Path) -> None:
    odd = program(tmp_path / "python3", 'test "$1" = -c')
    ran = run(tree(tmp_path), f"PYTHON={odd}")
    assert ran.returncode != 0
    assert "Python's venv module is incomplete; on Debian: apt-get install python3-venv" in ran.stdout


@make
def test_a_download_that_fails_says_what_to_do_and_the_next_run_goes_on(tmp_path: Path) -> None:
    folder = tree(tmp_path)
    program(folder / ".venv/bin/python", "echo 'ERROR: No matching distribution found' >&2; exit 1")
    (folder / ".venv/made.stamp").touch()
    failed = run(folder)
    assert failed.returncode != 0
    assert "The installation did not finish: the last lines above say why. Without a network" in failed.stdout
    assert "HTTPS_PROXY names a proxy" in failed.stdout
    program(folder / ".venv/bin/python", "exit 0")
    program(folder / ".venv/bin/pointsman", 'echo "ran $*"')
    assert run(folder).stdout.splitlines()[-1] == "ran serve"
    again = run(folder, "ARGS=--port 9000")
    assert again.stdout == "ran serve --port 9000\n"  # nothing is installed a second time


def test_no_process_of_a_model_holds_the_gateways_port() -> None:
    """Else it stays taken after the gateway, and whoever connects waits for nobody."""
    listening = bind("127.0.0.1", 0)
    port = listening.getsockname()[1]
    code = (
        "import os\n"
        "for one in os.scandir('/proc/self/fd'):\n"
        "    print(os.readlink(one.path) if os.path.lexists(one.path) else '')\n"
    )
    inode = os.fstat(listening.fileno()).st_ino
    ran = subprocess.run([sys.executable, "-c", code], close_fds=False, capture_output=True, text=True, check=False)
    listening.close()
    assert f"socket:[{inode}]" not in ran.stdout
    with bind("127.0.0.1", port):
        pass
