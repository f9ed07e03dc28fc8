"""The machine: Python, what may be open, the two ports and who has them, who can read the files."""

from __future__ import annotations

import resource
import socket
import stat
import sys
from pathlib import Path

import httpx

from router import __version__
from router.config import Config
from router.doctor.finding import Finding, fail, ok, warn
from router.policy_files import KEYS, is_config_file
from router.starter.asked import Asked
from router.starter.places import OURS
from router.wire.loose import mapping, objects, text

FILES = 1024  # open at a time; a request takes two
_PORT_S = 2.0


def program() -> list[Finding]:
    version = ".".join(str(part) for part in sys.version_info[:3])
    findings = [ok("program", f"pointsman {__version__} on Python {version}")]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < FILES:
        todo = f"raise it: ulimit -n {min(hard, 65536) if hard > 0 else 65536}"
        findings.append(warn("open files", f"at most {soft}, and each request takes two", todo))
    return findings


def readable_by_others(directory: Path, config: Config) -> list[Finding]:
    """Files with a key in them that other users of the machine can read."""
    findings: list[Finding] = []
    for path in sorted(one for one in directory.iterdir() if is_config_file(one)):
        content = path.read_text(encoding="utf-8", errors="replace")
        keys = [one.api_key for one in config.deployments.values() if one.api_key not in ("", "none")]
        secret = any(f" {key}" in content or f'"{key}"' in content for key in keys if len(key) > 8)
        if path.stat().st_mode & stat.S_IROTH and secret:
            findings.append(warn("permissions", f"{path} holds a key, and every user can read it", f"chmod 600 {path}"))
        if path.name == KEYS and path.stat().st_mode & stat.S_IWOTH:
            findings.append(fail("permissions", f"every user can write {path}", f"chmod 600 {path}"))
    return findings


async def ports(
    client: httpx.AsyncClient, host: str, port: int, admin_host: str, admin_port: int, config: Config | None
) -> list[Finding]:
    """Whether the gateway runs there, or could."""
    data, control = f"http://{_shown(host)}:{port}", f"http://{_shown(admin_host)}:{admin_port}"
    if _free(host, port):
        return [
            ok("data port", f"{host}:{port} is free; no gateway runs there"),
            _admin_free(admin_host, admin_port),
        ]
    asked = Asked(client, data, "", _PORT_S)
    ready = text(mapping(await asked.json("/readyz")).get("status"))
    if not ready and asked.status == 503:
        ready = "not ready"
    listed = objects(mapping(await asked.json("/v1/models")).get("data"))
    if not ready or (listed and text(listed[0].get("owned_by")) != OURS):
        return [fail("data port", f"something else listens on {host}:{port}", "stop it, or serve with --port 8090")]
    findings = [
        ok("data port", f"a gateway serves on {data}")
        if ready == "ready"
        else warn("data port", f"a gateway runs on {data} and is not ready", "wait for its models, or read its log")
    ]
    return [*findings, *await _in_force(Asked(client, control, "", _PORT_S), control, config)]


def _admin_free(host: str, port: int) -> Finding:
    if _free(host, port):
        return ok("admin port", f"{host}:{port} is free")
    return fail("admin port", f"something listens on {host}:{port}", "stop it, or serve with --admin-port 9091")


async def _in_force(asked: Asked, control: str, config: Config | None) -> list[Finding]:
    """Whether the running gateway has these files in force."""
    said = mapping(await asked.json("/admin/config"))
    if not said:
        if asked.status in (401, 403):
            return [ok("admin port", f"{control} asks for its token")]
        return [
            warn("admin port", f"{control} does not answer", "name the one that serve was started with: --admin-port")
        ]
    if said.get("reload_ok") is False:
        why = text(said.get("reload_error"))
        return [
            fail(
                "configuration",
                f"the running gateway refused the files: {why}",
                "mend them; the old ones stay in force",
            )
        ]
    if config is not None and text(said.get("digest")) != config.digest:
        theirs, ours = text(said.get("digest"))[:12], config.digest[:12]
        told = f"the running gateway has {theirs} in force, and these files are {ours}"
        return [warn("configuration", told, "was it started with this folder? a changed file takes up to 2 s")]
    return [ok("admin port", f"{control}: the running gateway has these files in force")]


def _free(host: str, port: int) -> bool:
    if port == 0:
        return True
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
        except OSError:
            return False
    return True


def _shown(host: str) -> str:
    """An address to call where a wildcard is listened on."""
    return {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104
