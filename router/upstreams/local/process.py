"""Keeps one serving process alive: prepares its model file, starts it, learns its address, restarts it with
back-off when it ends, and takes it along when the gateway goes. No request passes through here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import sys
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from router.config import Deployment
from router.errors import CannotStart
from router.upstreams.local.child import Report, Settings
from router.upstreams.local.template import TEMPLATE
from router.upstreams.local.weights import available_memory, check_memory, named, require, shipped

log = logging.getLogger(__name__)

State = Literal["new", "starting", "ready", "failed", "closed"]

_STOP_S = 2.0  # from the end of its input to SIGKILL
_KEPT_LINES = 40  # of the child's log, shown when it fails
_LINE_CHARS = 300

# The child gets these and nothing else: the gateway's environment holds provider keys.
_PASSED = ("PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES")


class Options(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`options` of a local deployment. `sha256` pins a file of the operator's own."""

    threads: int | None = None  # None: half of the cores
    context: int = 4096  # tokens per slot
    parallel: int = 2  # slots: answers at the same time
    sha256: str | None = None


class Backoff(Struct, frozen=True, kw_only=True):
    """Seconds before the n-th restart in a row: `first_s` doubled each time up to `most_s`.

    A child that served for `healthy_s` starts the row anew.
    """

    first_s: float = 0.5
    most_s: float = 30.0
    healthy_s: float = 60.0

    def delay_s(self, failures: int) -> float:
        return min(self.most_s, self.first_s * 2 ** min(max(failures, 1) - 1, 30))


def read_options(deployment: Deployment) -> Options:
    """Raises CannotStart, naming the key, on an unknown option or a value out of range."""
    try:
        options = msgspec.convert(dict(deployment.options), Options)
    except msgspec.ValidationError as error:
        raise CannotStart(f"options of {deployment.name}: {error}") from error
    for name, value, least in (
        ("threads", options.threads, 1),
        ("context", options.context, 256),
        ("parallel", options.parallel, 1),
    ):
        if value is not None and value < least:
            raise CannotStart(f"options of {deployment.name}: {name} must be at least {least}")
    return options


def default_threads() -> int:
    """Half of the cores, 8 at most: `small` and `large` may both be local, and the gateway needs a core too.

    llama.cpp's threads spin at barriers, so two busy children with two threads each on a loaded 2-core machine fall
    to 0.4 tokens/s, with one thread each they keep 9 to 17; alone on idle cores one thread decodes 25, two 40.
    """
    return min(8, max(1, (os.cpu_count() or 1) // 2))


class LocalChild:
    """One supervised llama.cpp server.

    `base_url` is None whenever it does not serve, and may differ after a restart. `restarts` counts the starts
    after the first.
    """

    def __init__(self, deployment: Deployment, *, backoff: Backoff | None = None) -> None:
        self.deployment = deployment
        self.api_key = secrets.token_urlsafe(32)  # other users of this machine reach the port, but not the model
        self.base_url: str | None = None
        self.restarts = 0
        self.pid: int | None = None
        self.state: State = "new"
        self._backoff = backoff or Backoff()
        self._reason = "it has not been started"
        self._changed = asyncio.Condition()
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._task: asyncio.Task[None] | None = None

    @property
    def ready(self) -> bool:
        return self.state == "ready"

    @property
    def log_lines(self) -> tuple[str, ...]:
        """The newest lines that the child printed, oldest first."""
        return tuple(self._lines)

    async def start(self) -> None:
        """Prepare the model file and let the process be started; returns before the model is loaded.

        Raises CannotStart when trying again cannot help: a missing package, a wrong file, too little memory.
        """
        options = read_options(self.deployment)
        require("xllamacpp")
        path = await asyncio.to_thread(self._prepare, options)
        settings = Settings(
            path=str(path),
            alias=self.deployment.model or path.stem,
            api_key=self.api_key,
            parent=os.getpid(),
            template="" if self.deployment.path else TEMPLATE,
            context=options.context,
            parallel=options.parallel,
            threads=options.threads or default_threads(),
        )
        await self._set("starting", "it is starting")
        self._task = asyncio.create_task(self._supervise(settings), name=f"local {self.deployment.name}")

    async def wait_ready(self, timeout_s: float) -> None:
        """Returns once the child serves. Raises CannotStart, with the end of its log, when it fails or is too slow."""
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(lambda: self.state in ("ready", "failed", "closed"))
        except TimeoutError:
            raise CannotStart(self._explain(f"is not ready after {timeout_s:g} s")) from None
        if self.state != "ready":
            raise CannotStart(self._explain(self._reason))

    async def aclose(self) -> None:
        """End the process (at once when it obeys, within 2 s when not) and the supervision of it."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        await self._set("closed", "it was closed")

    def _prepare(self, options: Options) -> Path:
        path = named(self.deployment.path, options.sha256) if self.deployment.path else shipped()
        check_memory(path, available_memory())
        return path

    async def _supervise(self, settings: Settings) -> None:
        failures = 0
        while True:
            began = time.monotonic()
            try:
                reason = await self._serve_once(settings)
            except (OSError, ValueError) as error:  # no process to be had, or not a report of ours
                reason = f"cannot be started: {error}"
            served = self.ready
            failures = 1 if served and time.monotonic() - began >= self._backoff.healthy_s else failures + 1
            delay_s = self._backoff.delay_s(failures)
            log.warning("local model %s %s; next start in %.1f s", self.deployment.name, reason, delay_s)
            await self._set("starting" if served else "failed", reason)
            await asyncio.sleep(delay_s)
            self.restarts += 1
            await self._set("starting", "it is starting")

    async def _serve_once(self, settings: Settings) -> str:
        """Run one process until it ends, and say why it did."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "router.upstreams.local.child", self.deployment.name),  # the name is for ps
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=_environment(os.environ),
            start_new_session=True,  # Ctrl-C in a terminal is the gateway's to handle: it drains first
        )
        stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
        if stdin is None or stdout is None or stderr is None:
            raise OSError("no pipes to the process")
        self.pid = process.pid
        log_task = asyncio.create_task(self._keep_log(stderr))
        try:
            stdin.write(msgspec.json.encode(settings) + b"\n")
            line = await stdout.readline()
            failed = await self._heed(line, settings.path) if line else None
            await process.wait()
            return failed or _why(process.returncode)
        finally:
            self.base_url, self.pid = None, None
            await _end(process, stdin, _STOP_S if self.ready else 0)  # one that loads would not hear of it
            await asyncio.wait({log_task}, timeout=_STOP_S)  # it ends with the pipe
            log_task.cancel()

    async def _heed(self, line: bytes, path: str) -> str | None:
        """Take note of the child's report. Returns why it cannot serve, or None when it does."""
        report = msgspec.json.decode(line, type=Report)
        if report.address is None:
            return f"cannot load {path}: {report.failed}"
        if not report.address.startswith("http://127.0.0.1:"):
            raise ValueError(f"it listens on {report.address}")
        self.base_url = f"{report.address}/v1"
        log.info("local model %s serves %s", self.deployment.name, path)
        await self._set("ready", "")
        return None

    async def _keep_log(self, stream: asyncio.StreamReader) -> None:
        """Keep the newest lines. Read in pieces, since `readline` refuses a line longer than its buffer."""
        rest = ""
        while data := await stream.read(65536):
            *lines, rest = (rest + data.decode("utf-8", "replace")).split("\n")
            rest = rest[:_LINE_CHARS]
            for line in lines:
                self._lines.append(line[:_LINE_CHARS])
                log.debug("%s: %s", self.deployment.name, line[:_LINE_CHARS])

    async def _set(self, state: State, reason: str) -> None:
        async with self._changed:
            self.state, self._reason = state, reason
            self._changed.notify_all()

    def _explain(self, what: str) -> str:
        tail = "\n".join(f"  {line}" for line in list(self._lines)[-8:])
        return f"local model {self.deployment.name} {what}" + (f"; its last words:\n{tail}" if tail else "")


def _environment(ours: Mapping[str, str]) -> dict[str, str]:
    root = str(Path(__file__).resolve().parents[3])  # where `router` is found, installed or not
    return {name: ours[name] for name in _PASSED if name in ours} | {"PYTHONPATH": root}


def _why(returncode: int | None) -> str:
    if returncode is not None and returncode < 0:
        hint = " (out of memory?)" if returncode == -9 else ""
        return f"ended by signal {-returncode}{hint}"
    return f"ended with status {returncode}"


async def _end(process: asyncio.subprocess.Process, stdin: asyncio.StreamWriter, patience_s: float) -> None:
    """Close the child's input, which ends it; kill it when it does not obey. Safe on a process that has ended."""
    stdin.close()
    try:
        async with asyncio.timeout(patience_s):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
