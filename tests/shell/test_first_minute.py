"""The first minute: what `make run` and `pointsman serve` say at a start, and when something is in the way."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from router.called import program
from router.config import Access, Config, Deployment
from router.listening import announce, bind
from tests.support.config_files import write
from tests.support.ports import free_port

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


def test_where_both_ports_are_taken_both_are_named(tmp_path: Path) -> None:
    with socket.socket() as data, socket.socket() as admin:
        for holder in (data, admin):
            holder.bind(("127.0.0.1", 0))
            holder.listen()
        port, control = data.getsockname()[1], admin.getsockname()[1]
        ran = serve(write(tmp_path), "--port", str(port), "--admin-port", str(control))
    assert ran.returncode == 2
    assert f"say --port {port % 65000 + 10} --admin-port {control + 1} (make run ARGS=" in ran.stderr


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
    assert f"for your own models: {program()} init mine" in capsys.readouterr().out


def test_what_is_to_be_run_next_is_named_as_the_program_was_called(tmp_path: Path) -> None:
    """`make run` is not on the path of the shell that it was typed in."""
    called = tmp_path / ".venv" / "bin" / "pointsman"
    called.parent.mkdir(parents=True)
    called.write_text("#!/usr/bin/env python3\nfrom router.called import program\nprint(program())\n")
    called.chmod(0o755)
    paths = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    ran = [
        subprocess.run(
            [sys.executable, str(called)], check=False, cwd=tmp_path, env=paths | more, capture_output=True, text=True
        )
        for more in ({}, {"PATH": f"{called.parent}:{paths['PATH']}"})
    ]
    assert [one.stdout.strip() for one in ran] == [".venv/bin/pointsman", "pointsman"]


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


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def run(folder: Path, *more: str, **environ: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")} | environ
    return subprocess.run(["make", "run", *more], cwd=folder, env=env, capture_output=True, text=True, check=False)


@make
def test_an_old_python_is_told_by_name(tmp_path: Path) -> None:
    old = script(tmp_path / "python3.10", "exit 1")
    ran = run(tree(tmp_path), f"PYTHON={old}")
    assert ran.returncode != 0
    assert ran.stdout.strip() == f"Pointsman needs Python 3.11 or newer, and {old} is older."
    assert not (tmp_path / ".venv").exists()


@make
def test_a_python_without_venv_is_told_what_to_install(tmp_path: Path) -> None:
    odd = script(tmp_path / "python3", 'case "$2" in *ensurepip*) exit 1;; esac')
    ran = run(tree(tmp_path), f"PYTHON={odd}")
    assert ran.returncode != 0
    assert "Python's venv module is incomplete; on Debian: apt-get install python3-venv" in ran.stdout


def with_pip(folder: Path, does: str) -> Path:
    """A checkout whose .venv is made, and whose pip is a shell script."""
    script(tree(folder) / ".venv/bin/python", does)
    (folder / ".venv/made.stamp").touch()
    return folder


@make
def test_an_installation_that_fails_goes_on_the_next_time_and_is_done_once(tmp_path: Path) -> None:
    folder = with_pip(tmp_path, "echo 'ERROR: something odd' >&2; exit 1")
    failed = run(folder)
    assert failed.returncode != 0
    assert failed.stderr.splitlines()[:2] == [
        "ERROR: something odd",
        "The installation did not finish: the last lines above say why. The same command goes on from here.",
    ]
    script(folder / ".venv/bin/python", "exit 0")
    script(folder / ".venv/bin/pointsman", 'echo "ran $*"')
    assert run(folder).stdout.splitlines()[-1] == "ran serve"
    again = run(folder, "ARGS=--port 9000")
    assert again.stdout == "ran serve --port 9000\n"  # nothing is installed a second time


@make
@pytest.mark.parametrize(
    ("pip_says", "told"),
    [
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "The disk is full"),
        ("SSLError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed')", "PIP_CERT=/path/to/"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.", "names by its digest"),
        ("ERROR: [Errno 13] Permission denied: /srv/.venv/lib", "You may not write in"),
        ("ERROR: No matching distribution found for numpy==2.4.6", "There is no package numpy==2.4.6 for Python 3."),
    ],
)
def test_what_is_in_the_way_of_pip_is_one_sentence_that_says_what_to_do(
    tmp_path: Path, pip_says: str, told: str
) -> None:
    ran = run(with_pip(tmp_path, f'echo "{pip_says}" >&2; exit 1'))
    assert ran.returncode != 0
    lines = ran.stderr.splitlines()
    assert lines[0] == pip_says
    assert told in lines[1]
    assert lines[1].endswith("The same command goes on from here.")


@make
def test_a_proxy_that_is_not_there_and_an_index_out_of_reach_are_told_apart(tmp_path: Path) -> None:
    """With pip itself."""
    quick = {"PIP_CONFIG_FILE": os.devnull, "PIP_RETRIES": "1", "PIP_NO_CACHE_DIR": "1", "PIP_FIND_LINKS": ""}
    folder, nobody = tree(tmp_path), f"127.0.0.1:{free_port()}"
    proxied = run(folder, f"PYTHON={sys.executable}", **quick, HTTPS_PROXY=f"http://me:secret@{nobody}")
    assert f"The proxy does not let this through: HTTPS_PROXY={nobody}. " in proxied.stderr
    assert "secret" not in proxied.stderr.splitlines()[-2]
    alone = run(folder, f"PYTHON={sys.executable}", **quick, PIP_INDEX_URL=f"https://{nobody}/simple")
    assert f"{nobody} cannot be reached, and packages come from there: look at the network" in alone.stderr


@make
@pytest.mark.skipif(sys.platform == "win32", reason="no terminals there")
def test_ctrl_c_in_the_middle_of_the_installation_says_how_it_goes_on(tmp_path: Path) -> None:
    """In a session of its own, whose every process the terminal interrupts."""
    folder = with_pip(tmp_path, 'echo "downloading"; exec sleep 60')
    process = subprocess.Popen(
        ["make", "run"],
        cwd=folder,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # what runs the tests may ignore it
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    while process.stdout.readline() != "downloading\n":
        assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "Stopped before the installation was done. The same command goes on from here." in told
    assert "Traceback" not in told
    assert not (folder / ".venv/run.stamp").exists()


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
