"""The gateway that we are compared with: NeMo Switchyard, in an environment of its own, never in ours.

What belongs here: where it is installed, its configuration for the same mock upstream, how it is started.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

REQUIREMENT = "nemo-switchyard==0.3.0"
FOLDER = Path(sys.prefix) / "peers"

_SERVE = """\
import sys, threading
from switchyard_rust.server import Server
server = Server(sys.argv[1], int(sys.argv[2]))
threading.Event().wait()
"""
_ROUTES = """\
schema_version = 1

[llm_clients.mock]
format = "openai_chat"
base_url = "{url}/v1"

[targets.capable]
id = "m-large"
llm_client = "mock"

[targets.efficient]
id = "m-small"
llm_client = "mock"

[routes.auto]
id = "auto"
type = "stage_router"
capable_target = "capable"
efficient_target = "efficient"
picker = "efficient_first"
confidence_threshold = 0.5
"""


def interpreter(installed: Path = FOLDER) -> Path | None:
    """The Python that has Switchyard; None where it was not installed."""
    python = installed / "bin" / "python"
    return python if python.exists() and (installed / "ready").exists() else None


def install() -> None:
    """Installs Switchyard into its own environment, once. Raises SystemExit where that fails."""
    if interpreter() is not None:
        return
    venv.create(FOLDER, with_pip=True, clear=True)
    argv = [str(FOLDER / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    if subprocess.run([*argv, REQUIREMENT]).returncode:
        raise SystemExit(f"bench: {REQUIREMENT} could not be installed into {FOLDER}; run without --peers to skip it")
    (FOLDER / "ready").write_text(f"{REQUIREMENT}\n")


def command(folder: Path, port: int, upstream: str, installed: Path = FOLDER) -> list[str] | None:
    """How to serve the stage route on `port` in front of `upstream`; None where Switchyard is not installed."""
    python = interpreter(installed)
    if python is None:
        return None
    routes = folder / "routes.toml"
    routes.write_text(_ROUTES.format(url=upstream))
    return [str(python), "-c", _SERVE, str(routes), str(port)]
