"""The two ports at a start: sockets to listen on, or a sentence on why there is none, and what a person is told once
the gateway serves. Nothing is accepted here."""

from __future__ import annotations

import errno
import socket

import click

from router.called import program
from router.config import Config

PORT, ADMIN_PORT = 8080, 9090  # where `serve` listens when it is not told
BODY = '{"model": "auto", "messages": [{"role": "user", "content": "What is the capital of France?"}]}'


def bind(host: str, port: int, *, shared: bool = False, beside: tuple[str, int] | None = None) -> socket.socket:
    """A socket to listen on, or a SystemExit that says what to do.

    `shared`: workers may listen there as well. `beside`: the admin port that is wanted next, told with this one where
    neither can be had.
    """
    try:
        return _bound(host, port, shared=shared)
    except OSError as error:
        told = f"pointsman: cannot listen on {host}:{port}: {error.strerror}; {_instead(error, port, beside)}"
        click.echo(told, err=True)
        raise SystemExit(2) from None


def _bound(host: str, port: int, *, shared: bool = False) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    return sock


def _instead(error: OSError, port: int, beside: tuple[str, int] | None) -> str:
    """What to do where a port cannot be had."""
    if error.errno == errno.EADDRINUSE:
        other = f"--admin-port {port + 1}" if port == ADMIN_PORT else f"--port {port % 65000 + 10}"
        if beside is not None and _taken(*beside):
            other += f" --admin-port {beside[1] + 1}"
        return f"something listens there, perhaps another pointsman; stop it, or say {other} (make run ARGS='{other}')"
    if error.errno == errno.EACCES:
        return "ports below 1024 are for root alone; choose a higher one with --port"
    return "this machine has no such address; check --host and --admin-host"


def _taken(host: str, port: int) -> bool:
    try:
        _bound(host, port).close()
    except OSError as error:
        return error.errno == errno.EADDRINUSE
    return False


def announce(host: str, port: int, admin_host: str, admin_port: int, config: Config) -> None:
    """What a person sees when the gateway is up."""
    base = f"http://{_reached(host)}:{port}"
    models = ", ".join(sorted(config.models)) or "none"
    lines = [
        "",
        f"  Pointsman serves on {base}/v1   (models: {models})",
        f"  dashboard           http://{_reached(admin_host)}:{admin_port}/",
        "  try:",
        f"    curl {base}/v1/chat/completions -H 'content-type: application/json' \\",
        f"      -i -d '{BODY}'" + ("" if config.access is None else " -H 'authorization: Bearer KEY'"),
    ]
    if all(one.upstream == "local" and not one.path for one in config.deployments.values()):
        lines += [f"  every group runs the shipped 270M model; for your own models: {program()} init mine"]
    click.echo("\n".join([*lines, "  Ctrl-C stops it once answers under way are done", ""]))


def _reached(host: str) -> str:
    """A host that stands in a URL and can be clicked, also where every address is listened on."""
    return {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104
