"""Several processes that serve one port, and the one that keeps them: it starts workers, starts those anew that die,
passes signals on, and has the admin port. It serves no request itself.

Each worker is a whole gateway on a listening socket of its own; the kernel spreads connections over them
(SO_REUSEPORT). Its standard input tells it first what was asked for, and by its end that its keeper is gone: then it
drains and ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import click
import httpx
import msgspec
import uvloop
from msgspec.structs import replace

import router
from router import listening, logs, serving
from router.admin import many, sums
from router.config import Config
from router.errors import ConfigError
from router.serving import Options

log = logging.getLogger("pointsman.workers")

AGAIN_S = (0.1, 4.0)  # before a worker that died is started anew: doubling from here, up to there
STEADY_S = 10.0  # a worker that lived so long begins at the first of these again
LOOK_S = 1.0  # so much of a dead worker's counts may be missing


class Worker:
    """One worker process, and what is known of it."""

    def __init__(self, number: int, folder: Path) -> None:
        self.number = number
        self.socket = folder / f"{number}.sock"
        self.ready_file = folder / f"{number}.ready"
        self.process: asyncio.subprocess.Process | None = None
        self.counts: dict[sums.Key, float] = {}
        transport = httpx.AsyncHTTPTransport(uds=str(self.socket))
        self.client = httpx.AsyncClient(transport=transport, base_url="http://localhost")

    @property
    def ready(self) -> bool:
        return self.process is not None and self.ready_file.exists()

    def counted(self, text: str) -> None:
        self.counts = sums.counted(text)

    async def start(self, options: Options) -> None:
        self.ready_file.unlink(missing_ok=True)
        argv = [sys.executable, "-P", "-m", "router", "serve", "--worker"]
        asked = replace(options, worker=serving.Worker(number=self.number, socket=self.socket))
        path = os.pathsep.join([str(Path(router.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        env = {**os.environ, "PYTHONPATH": path.rstrip(os.pathsep)}
        self.process = await asyncio.create_subprocess_exec(*argv, stdin=asyncio.subprocess.PIPE, env=env)
        if self.process.stdin is not None:  # not in the arguments, which every user of the machine can read
            self.process.stdin.write(msgspec.json.encode(asked, enc_hook=str) + b"\n")

    def tell(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(number)


class Keeper:
    """Keeps `options.workers` workers alive. `gone`: what those that died had counted."""

    def __init__(self, options: Options, folder: Path) -> None:
        self.gone: dict[sums.Key, float] = {}
        self.stopping = asyncio.Event()
        self.refused = False  # a worker could not start, and none had
        self._options = options
        self._workers = [Worker(number, folder) for number in range(options.workers)]
        self._served = False

    @property
    def alive(self) -> list[Worker]:
        return [worker for worker in self._workers if worker.ready]

    def tell(self, number: signal.Signals) -> None:
        for worker in self._workers:
            worker.tell(number)

    def reload(self) -> None:
        """One that is being started would end; it notices by itself what has changed since it read the files."""
        for worker in self.alive:
            worker.tell(signal.SIGHUP)

    def stop(self) -> None:
        self.stopping.set()
        self.tell(signal.SIGTERM)

    async def run(self) -> int:
        """Until every worker has ended after `stop`. Returns the exit code."""
        looking = asyncio.create_task(self._look())
        try:
            codes = await asyncio.gather(*(self._keep(worker) for worker in self._workers))
        finally:
            looking.cancel()
            for worker in self._workers:
                await worker.client.aclose()
        return 2 if self.refused else int(any(codes))

    async def _keep(self, worker: Worker) -> int:
        """One worker after the other in this place. Returns the last one's exit code."""
        wait_s, longest_s = AGAIN_S
        while True:
            began = time.monotonic()
            await worker.start(self._options)
            if self.stopping.is_set():  # told to stop while it was started
                worker.tell(signal.SIGTERM)
            assert worker.process is not None  # noqa: S101  `start` has set it
            code = await worker.process.wait()
            worker.ready_file.unlink(missing_ok=True)
            if self.stopping.is_set():
                return code
            sums.add(self.gone, worker.counts)
            worker.counts = {}
            if code == 2 and not self._served:
                self.refused = True
                self.stop()
                return code
            wait_s = AGAIN_S[0] if time.monotonic() - began > STEADY_S else wait_s
            log.error("worker %d ended with %d; it is started anew in %g s", worker.number, code, wait_s)
            try:
                await asyncio.wait_for(self.stopping.wait(), wait_s)
            except TimeoutError:
                wait_s = min(wait_s * 2, longest_s)
            else:
                return 0

    async def _look(self) -> None:
        """Reads what each worker has counted, for when it dies."""
        port = many.Many(self)
        while True:
            await asyncio.sleep(LOOK_S)
            if self.alive:
                await port.metrics()

    async def until_ready(self) -> None:
        while len(self.alive) < len(self._workers):  # noqa: ASYNC110  files say it, and no event
            await asyncio.sleep(0.05)
        self._served = True


def told(line: bytes) -> Options:
    """What a worker's keeper tells it first."""
    return msgspec.json.decode(line, type=Options, dec_hook=lambda kind, value: kind(value))


def serve(options: Options) -> int:
    """`pointsman serve --workers N`."""
    try:
        config = serving.load(options)
    except ConfigError as error:
        click.echo(error.message, err=True)
        return 2
    lines = logs.configure()
    logs.redact(config)
    logs.hide_url(options.redis)
    folder = Path(tempfile.mkdtemp(prefix="pointsman-"))
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_run(options, config, folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        lines.close()


async def _run(options: Options, config: Config, folder: Path) -> int:
    # Bound and never listening: it keeps the port, and its number where that was left to the system.
    # First alone, or it would come to share the port with another gateway.
    alone = listening.bind(options.host, options.port, beside=(options.admin_host, options.admin_port))
    options = replace(options, port=alone.getsockname()[1])
    alone.close()
    held = listening.bind(options.host, options.port, shared=True)
    control = listening.bind(options.admin_host, options.admin_port)
    options = replace(options, admin_port=control.getsockname()[1])
    _warn(options, config)
    keeper = Keeper(options, folder)
    try:
        app = many.build(keeper, host=options.admin_host, token=os.environ.get(logs.ADMIN_TOKEN_VARIABLE) or None)
    except ConfigError as error:
        click.echo(error.message, err=True)
        return 2
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, keeper.stop)
    loop.add_signal_handler(signal.SIGHUP, keeper.reload)
    back = serving.listener(app, 1.0)
    serving_admin = asyncio.create_task(back.serve(sockets=[control]))
    announcing = asyncio.create_task(_announce(keeper, options, config))
    code = await keeper.run()
    announcing.cancel()
    back.should_exit = True
    await asyncio.gather(serving_admin, announcing, return_exceptions=True)
    held.close()
    return code


async def _announce(keeper: Keeper, options: Options, config: Config) -> None:
    await keeper.until_ready()
    listening.announce(options.host, options.port, options.admin_host, options.admin_port, config)


def _warn(options: Options, config: Config) -> None:
    if options.redis is None and config.store is None:
        log.warning(
            "%d workers without a shared store: each knows only its own conversations, cooldowns and limits, so a "
            "conversation may change its group when another worker takes it; give --redis",
            options.workers,
        )
    local = [d.name for d in config.deployments.values() if d.upstream == "local"]
    if local:
        log.warning("each of the %d workers loads local models of its own: %s", options.workers, ", ".join(local))
