"""The process that serves one model: `python -m router.upstreams.local.child`, started only by `process.LocalChild`.

It reads one JSON line of settings from standard input, writes one JSON line to standard output when it serves or
cannot, sends everything that llama.cpp prints to standard error, and ends when standard input does. It holds no
policy: when to start, restart or give up is the parent's.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import sys
import threading

import msgspec
from msgspec import Struct

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_NICENESS = 5  # below the gateway: both run on the same cores, and a late token hurts less than a late request


class Settings(Struct, frozen=True, kw_only=True):
    """What to serve and how. Sent through a pipe: a command line, with its key, is readable by every user."""

    path: str
    alias: str
    api_key: str
    parent: int  # process id
    template: str = ""  # "" = the file's own
    context: int = 4096  # tokens per slot
    parallel: int = 2  # slots
    threads: int = 1


class Report(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The child's one line: where it serves, or why it does not."""

    address: str | None = None  # http://127.0.0.1:PORT
    failed: str | None = None


def main() -> None:
    line = sys.stdin.buffer.readline()
    settings = msgspec.json.decode(line, type=Settings)
    _die_with(settings.parent)
    os.nice(_NICENESS)
    with os.fdopen(os.dup(1), "wb", buffering=0) as reports:
        os.dup2(2, 1)  # llama.cpp prints to both
        try:
            server = _serve(settings)
        except (ImportError, RuntimeError, OSError, ValueError, AttributeError, TypeError, MemoryError) as error:
            reports.write(msgspec.json.encode(Report(failed=f"{type(error).__name__}: {error}")) + b"\n")
            sys.exit(1)
        reports.write(msgspec.json.encode(Report(address=server.listening_address)) + b"\n")
    threading.Event().wait()  # the watch on standard input ends the process


def _die_with(parent: int) -> None:
    """Let the kernel end this process when the parent dies (Linux), and watch the pipe from it (anywhere)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_until_stdin_ends, daemon=True).start()
    if os.getppid() != parent:  # it died before the lines above
        os._exit(0)


def _until_stdin_ends() -> None:
    while os.read(0, 4096):
        pass
    os._exit(0)  # no unwinding: llama.cpp waits for running answers, and nothing here needs saving


class _Server:
    """The part of xllamacpp's Server that is used."""

    listening_address: str


def _serve(settings: Settings) -> _Server:
    """Load the model (seconds) and start the HTTP server in threads of its own. Raises RuntimeError when it cannot."""
    llama = importlib.import_module("xllamacpp")
    params = llama.CommonParams()
    params.model.path = settings.path
    params.model_alias = {settings.alias}
    params.hostnames = ["127.0.0.1"]
    params.port = 0  # the system picks a free one
    params.api_keys = [settings.api_key]
    params.n_ctx = settings.context * settings.parallel  # llama.cpp shares it out among the slots
    params.n_parallel = settings.parallel
    params.cpuparams.n_threads = settings.threads
    params.cpuparams_batch.n_threads = settings.threads
    params.endpoint_metrics = True
    params.endpoint_slots = False  # shows prompts
    params.ui = False
    params.use_jinja = True
    if settings.template:
        params.chat_template = settings.template
    params.cache_ram_mib = 0  # saved prompts of idle slots: 8 GiB unless told
    server: _Server = llama.Server(params)
    return server


if __name__ == "__main__":
    main()
