"""Makes .venv and installs into it what `make` needs, with pip; where that does not come to an end, the last line says
why and what to do. The standard library alone, as nothing is installed yet.

    python3 requirements/install.py                          # .venv alone
    python3 requirements/install.py requirements/run.txt .   # what one file locks, and this project

Exit code 0, 1 where it failed, 130 where it was stopped.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

VENV = Path(".venv")
PIP = [str(VENV / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install"]
ON = "The same command goes on from here."
PROXIES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "HTTP_PROXY", "http_proxy", "PIP_PROXY")

# In what pip writes to standard error; the first that is found is the cause, and those below it what follows from it.
DISK = re.compile(r"No space left on device|Errno 28\b|Disk quota exceeded")
PROXY = re.compile(r"ProxyError|Cannot connect to proxy|Tunnel connection failed|Proxy Authentication Required")
CERTIFICATE = re.compile(r"CERTIFICATE_VERIFY_FAILED|certificate verify failed")
DIGEST = re.compile(r"DO NOT MATCH THE HASHES")
NETWORK = re.compile(
    r"NewConnectionError|ConnectTimeoutError|ReadTimeoutError|Read timed out|name resolution|Name or service not known"
    r"|Network is unreachable|Connection refused|Connection reset|Connection aborted|Remote end closed"
)
PERMISSION = re.compile(r"Errno 13\b|Permission denied")
NO_WHEEL = re.compile(r"No matching distribution found for (\S+)|Failed building wheel for (\S+)")


def reason(said: str, named: Sequence[str] = ()) -> str:
    """What is in the way, and what to do, from what pip or venv wrote; `named`: what was to be installed."""
    here, temporary = VENV.absolute() if VENV.exists() else Path.cwd(), Path(tempfile.gettempdir())
    if DISK.search(said) or shutil.disk_usage(here).free < 1 << 20:  # venv keeps to itself what ensurepip wrote
        free = [f"{shutil.disk_usage(folder).free >> 20} MB in {folder}" for folder in (here, temporary)]
        return (
            f"The disk is full: about 1 GB is needed, and free are {free[0]} and {free[1]} for what is on its way "
            "(TMPDIR=/another/folder changes that)."
        )
    if PROXY.search(said):
        given = [f"{name}={_address(os.environ[name])}" for name in PROXIES if os.environ.get(name)]
        which = ", ".join(given) or "that pip's configuration names (`python3 -m pip config list`)"
        return f"The proxy does not let this through: {which}. Mend it, or unset it where there is a way without."
    if CERTIFICATE.search(said):
        return (
            f"The certificate shown for {_host(said)} is not one that Python knows, as where a company's proxy looks "
            "into connections: PIP_CERT=/path/to/certificates.pem names those to trust."
        )
    if DIGEST.search(said):
        files = " ".join(named) or "requirements"
        return (
            f"A package is not the one that {files} names by its digest, so a mirror or a proxy has changed it: "
            "PIP_INDEX_URL names another one."
        )
    if NETWORK.search(said):
        return (
            f"{_host(said)} cannot be reached, and packages come from there: look at the network; HTTPS_PROXY names a "
            "proxy, PIP_INDEX_URL a mirror."
        )
    if PERMISSION.search(said):
        return f"You may not write in {VENV.absolute()}, which another user made: have it removed (sudo rm -rf {VENV})."
    if found := NO_WHEEL.search(said):
        python = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
        return (
            f"There is no package {found[1] or found[2]} for {python}: make run PYTHON=/path/to/python3.12 takes "
            "another one; where PIP_INDEX_URL names a mirror, it may lack the package."
        )
    return "The installation did not finish: the last lines above say why."


def _host(said: str) -> str:
    found = re.search(r"host='([^']+)'", said)
    return found[1] if found else _address(os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple"))


def _address(url: str) -> str:
    """Host and port of a URL, without what is secret in it."""
    parts = urlsplit(url if "//" in url else f"//{url}")
    return parts.netloc.rpartition("@")[2] or url


def called(argv: Sequence[str]) -> tuple[int, str]:
    """A command's exit code and what it wrote to standard error, shown as it comes. Standard output stays the
    terminal's, so that progress is drawn."""
    said: list[str] = []
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, errors="replace") as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                said.append(line)
                sys.stderr.write(line)
        except KeyboardInterrupt:
            process.wait()  # it was interrupted as well, and says so itself
            raise
    return process.returncode, "".join(said)


def make() -> str:
    """Makes .venv. What is in the way, "" where nothing is."""
    print(f"Making {VENV} with {sys.executable}.", flush=True)
    ran = subprocess.run([sys.executable, "-m", "venv", str(VENV)], capture_output=True, text=True, check=False)
    if not ran.returncode:
        return ""
    said = ran.stdout + ran.stderr
    sys.stderr.write(said)
    return reason(said)


def install(named: Sequence[str]) -> str:
    """Installs files of requirements, each package by its digest, and folders. What is in the way, or ""."""
    for one in named:
        how = ["--require-hashes", "--no-deps", "--requirement", one]
        if Path(one).is_dir():
            how = ["--quiet", "--no-deps", "--no-build-isolation", "--editable", one]
        code, said = called([*PIP, *how])
        if code:
            return reason(said, [one])
    return ""


def main(named: Sequence[str]) -> int:
    try:
        wrong = install(named) if named else make()
    except KeyboardInterrupt:
        print(f"\nStopped before the installation was done. {ON}", file=sys.stderr)
        return 130
    if wrong:
        print(f"{wrong} {ON}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
