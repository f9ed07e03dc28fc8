"""Runs the gateway: one process, two listeners (data and admin), signals, drain, reload.

Wiring only. `Gateway` holds the parts and is what the admin port asks.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import uvicorn
import uvloop
from msgspec import Struct

from router import admin, history, logs, policy_files, records, snapshots, state, store, tracing
from router.app import App, rest
from router.changes import Changes
from router.config import Config
from router.errors import ConfigError, Mistake
from router.flight import Snapshot
from router.front import Front, tick
from router.health import Health
from router.hosts import is_loopback
from router.limits import Limits
from router.listening import announce, bind
from router.meeting import Meeting
from router.metrics import Metrics
from router.reports import Reports
from router.seams import Presence
from router.service import Service
from router.steering import Steering
from router.trials import Trials

log = logging.getLogger("pointsman.serving")

PRE_STOP_S = 3.0  # the listener stays open this long after SIGTERM, until load balancers have seen /readyz
STEER_S = 1.0
DRAIN_S = 600.0  # streams in flight may take this long


class Options(Struct, frozen=True, kw_only=True):
    """What `pointsman serve` was asked for."""

    config: Path = Path("policies")
    host: str = "127.0.0.1"
    port: int = 8080
    admin_host: str = "127.0.0.1"
    admin_port: int = 9090
    state: Path | None = None
    redis: str | None = None
    otlp: str | None = None  # where traces go; None: where the environment says, if it does
    records_days: float | None = 30.0  # how long records stay, and how much they take; None: for ever, without limit
    records_gib: float | None = 1.0
    open_to_everyone: bool = False  # without keys, on an address that others reach
    drain_s: float = DRAIN_S
    pre_stop_s: float = PRE_STOP_S
    workers: int = 1
    worker: Worker | None = None  # this process is one of several


class Worker(Struct, frozen=True, kw_only=True):
    """Which of the workers, and where its keeper asks it."""

    number: int
    socket: Path  # of its admin port

    @property
    def ready(self) -> Path:
        """The file that says that it serves."""
        return self.socket.with_suffix(".ready")


def load(options: Options) -> Config:
    """The files' configuration. Raises ConfigError, also where it would let in everyone without anybody's word."""
    config = policy_files.load(options.config)
    if config.access is None and not options.open_to_everyone and not is_loopback(options.host):
        made = f"make a key with `pointsman keys create --config {options.config} --tenant NAME`"
        doors = f"listen on 127.0.0.1, {made}, or say --open-to-everyone"
        message = f"is missing, and the gateway listens on {options.host}, where others reach it: {doors}"
        place = Mistake(file=str(options.config / "keys.yaml"), line=1, column=1, path="(file)", message=message)
        raise ConfigError([place])
    return config


class Gateway:
    """The parts of one running gateway."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.started = time.time()
        self.draining = False
        self.ready = False  # local models have loaded
        self.health = Health()
        self.reports = Reports(self.health)
        self.config_ok = True
        self.last_error: str | None = None
        self._reloading = asyncio.Lock()
        self._retiring: set[asyncio.Task[None]] = set()
        self._last_retired: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Load, build and connect everything. Raises ConfigError."""
        self._seen = policy_files.stamps(self.options.config)  # before they are read: a change meanwhile is one
        config, given = load(self.options), self.options.redis
        logs.redact(config)
        logs.hide_url(given)
        self.metrics = Metrics(config)
        sessions = store.build(given, file="serve", path="--redis") if given else store.build(config.store)
        folder = state.folder(self.options.state)
        self.recorder = records.open_recorder(
            folder, records.limits(self.options.records_days, self.options.records_gib)
        )
        snapshot = await snapshots.build(config, None)
        self.changes = Changes(state.changes_file(folder))
        self.steering = Steering(self.metrics, self.changes)
        self.steering.use(config)
        self.trials = Trials(self.metrics, self.changes)
        self.trials.use(config)
        limiter = store.limiter(given, file="serve", path="--redis") if given else store.limiter(config.store)
        limits = Limits(limiter, self.metrics.limited)
        parts = (snapshot, sessions, self.recorder, self.metrics, self.health, self.steering, self.trials)
        self.service = Service(*parts, limits)
        if self.options.otlp or tracing.wanted():
            self.service.tracing = traces = tracing.Tracing(self.options.otlp)
            self.metrics.count("spans_dropped", lambda: traces.dropped)
        worker = self.options.worker
        self.judging = self.service.judging
        self.judging.outlive(
            self.recorder.sample,
            self.recorder.reader,
            folder,
            workers=self.options.workers,
            first=worker is None or worker.number == 0,
        )
        self.metrics.config(snapshot.generation, ok=True)
        self.health.use(config, asyncio.get_running_loop().time())
        self.service.admission.divide(self.options.workers, 0 if worker is None else worker.number)
        self.meeting = Meeting(
            sessions, self.health, self.service.admission, lambda: self.snapshot, self.options.workers
        )
        await self.meeting.once()
        self.reports.use(config)
        self.metrics.count("store_errors", lambda: sessions.errors + limiter.errors)
        await self._keep("start")

    @property
    def snapshot(self) -> Snapshot:
        return self.service.snapshot

    @property
    def others(self) -> Sequence[Presence]:
        return self.meeting.others

    @property
    def directory(self) -> Path:
        """Where the configuration's files are."""
        return self.options.config

    def waiting(self) -> dict[str, int]:
        return self.service.admission.waiting()

    def places(self) -> dict[str, int]:
        return self.service.admission.places()

    def unready(self) -> str | None:
        """Why this process should get no new traffic, or None."""
        if self.draining:
            return "draining"
        return None if self.ready else "starting"

    async def wait_ready(self) -> None:
        await snapshots.ready(self.snapshot)
        self.ready = True

    async def reload(self) -> bool:
        """Put the files' present content in force, or keep the last good configuration and say why not."""
        async with self._reloading:
            old = self.snapshot
            try:
                config = await asyncio.to_thread(load, self.options)
                if config == old.config:
                    if not self.config_ok:
                        log.info("the files are again those of configuration %s, which is in force", config.digest[:12])
                    self.config_ok, self.last_error = True, None
                    self.metrics.config(old.generation, ok=True)
                    await self._keep("reload")
                    return True
                new = await snapshots.build(config, old)
                await snapshots.ready(new, old)
            except ConfigError as error:
                for mistake in error.mistakes:
                    log.error("%s", mistake)
                return self._refused(error.message)
            except Exception:  # a mistake of ours must not end the watch, nor pass for a configuration in force
                log.exception("reload failed")
                return self._refused("the files could not be put in force; the log has the reason")
            logs.redact(config)
            if config.store != old.config.store and self.options.redis is None:
                log.warning("`store` is another one now; restart the gateway to use it")
            self.service.snapshot = new
            self.service.judging.use(new)
            self.health.use(config, asyncio.get_running_loop().time())
            self.service.admission.use(config)
            self.reports.use(config)
            self.config_ok, self.last_error = True, None
            self.metrics.config(new.generation, ok=True, current=config)
            self.steering.use(config)
            self.trials.use(config)
            log.info("configuration %s in force, generation %d", config.digest[:12], new.generation)
            task = self._last_retired = asyncio.create_task(_retire(self._last_retired, old, new))
            self._retiring.add(task)
            task.add_done_callback(self._retiring.discard)
            await self._keep("reload")
            return True

    def _refused(self, why: str) -> bool:
        old = self.snapshot
        self.config_ok, self.last_error = False, why
        self.metrics.config(old.generation, ok=False)
        log.error("reload refused; configuration %s stays in force", old.config.digest[:12])
        return False

    async def _keep(self, how: history.How) -> None:
        """The files in force, for `history` and `rollback`; without them requests are served all the same."""
        folder, config = state.folder(self.options.state), self.options.config
        if self.options.worker is not None and self.options.worker.number:
            return  # the first of the workers keeps them for all
        try:
            await asyncio.to_thread(history.keep, folder, config, self.snapshot.config.digest, how, time.time())
        except (OSError, ConfigError) as error:
            log.error(
                "history: this configuration is not kept in %s, so `rollback` will not know it (%s)", folder, error
            )

    async def watch(self) -> None:
        """Reload when the files change, and look at what moves by itself, until cancelled."""
        async with asyncio.TaskGroup() as both:
            both.create_task(policy_files.watch(self.options.config, self.reload, seen=self._seen))
            both.create_task(self._steer())
            both.create_task(self.judging.run())

    async def _steer(self) -> None:
        """Once a second: move thresholds that should move, judge canaries that are due, weigh deployments anew."""
        while True:
            await asyncio.sleep(STEER_S)
            try:
                self.health.publish()
                self.steering.look()
                self.trials.look()
            except Exception:  # a mistake of ours here must not end the watch of the files beside it
                log.exception("weights, thresholds and canaries stay as they are")

    async def close(self) -> None:
        for task in self._retiring:
            task.cancel()
        await self.judging.aclose()
        await self.reports.aclose()
        await snapshots.close(self.snapshot)
        await self.service.store.aclose()
        await self.service.limits.aclose()
        await self.recorder.aclose()
        if self.service.tracing is not None:
            await self.service.tracing.aclose()
        await self.changes.aclose()


async def _retire(before: asyncio.Task[None] | None, old: Snapshot, new: Snapshot) -> None:
    """One after another: a stream that began two configurations ago may hold an upstream that the last one kept."""
    if before is not None:
        await asyncio.wait({before})
    await snapshots.retire(old, new)


class Listener(uvicorn.Server):
    """A uvicorn server that leaves signals to us."""

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        ticking = asyncio.create_task(tick(self.server_state.connections))
        try:
            await super().serve(sockets)
        finally:
            ticking.cancel()


def listener(app: Any, drain_s: float) -> Listener:
    config = uvicorn.Config(
        app,
        fd=None,
        loop="none",
        http=Front,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",  # it warns of every request that is no HTTP: strangers could fill the log
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=int(drain_s),
        backlog=2048,
    )
    return Listener(config)


async def run(options: Options, lines: logs.Handler, announce: Callable[[Gateway], None]) -> int:
    """Serve until SIGTERM or SIGINT, then drain. Returns the exit code."""
    data, control = _sockets(options)
    gateway = Gateway(options)
    try:
        await gateway.start()
    except ConfigError as error:
        click.echo(error.message, err=True)
        return 2
    try:
        token = os.environ.get(logs.ADMIN_TOKEN_VARIABLE) or None
        gateway.metrics.count("log_lines_dropped", lambda: lines.dropped)
        back = listener(admin.build(gateway, host=options.admin_host, token=token), 1.0)
    except ConfigError as error:
        click.echo(error.message, err=True)
        await gateway.close()
        return 2
    local = is_loopback(options.host) and not options.open_to_everyone
    app = App(gateway.service, rest(gateway.service, gateway), local=local)
    gateway.metrics.count("unauthorized", lambda: app.unauthorized)
    front = listener(app, options.drain_s)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    loop.add_signal_handler(signal.SIGHUP, lambda: asyncio.ensure_future(gateway.reload()))
    if options.worker is not None:
        loop.add_reader(sys.stdin.fileno(), _orphaned, loop, stopping)
    serving = [asyncio.create_task(front.serve(sockets=[data])), asyncio.create_task(back.serve(sockets=[control]))]
    watching = asyncio.create_task(gateway.watch())
    meeting = asyncio.create_task(gateway.meeting.run())
    getting_ready = asyncio.create_task(_get_ready(gateway, announce))
    await asyncio.wait({asyncio.create_task(stopping.wait()), *serving}, return_when=asyncio.FIRST_COMPLETED)
    gateway.draining = True
    pre_stop_s = options.pre_stop_s if gateway.ready and stopping.is_set() else 0  # before, nobody was sent here
    if gateway.ready:
        log.info("draining: no new work after %g s, streams may finish for %g s", pre_stop_s, options.drain_s)
    else:
        log.info("stopped before it served")
    watching.cancel()
    getting_ready.cancel()
    await gateway.judging.aclose()
    await asyncio.sleep(pre_stop_s)
    front.should_exit = True
    await serving[0]
    back.should_exit = True
    await asyncio.gather(*serving, return_exceptions=True)
    meeting.cancel()
    await asyncio.wait({meeting})
    await gateway.close()
    return 0


def _sockets(options: Options) -> tuple[socket.socket, socket.socket]:
    """To listen on: the data port and the admin port."""
    if options.worker is None:
        admin_address = (options.admin_host, options.admin_port)
        return bind(options.host, options.port, beside=admin_address), bind(*admin_address)
    control = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    options.worker.socket.unlink(missing_ok=True)
    control.bind(str(options.worker.socket))
    return bind(options.host, options.port, shared=True), control


def _orphaned(loop: asyncio.AbstractEventLoop, stopping: asyncio.Event) -> None:
    """The keeper is gone: nobody would start this worker anew, pass a signal on or show its numbers."""
    loop.remove_reader(sys.stdin.fileno())
    log.error("the process that keeps the workers is gone")
    stopping.set()


async def _get_ready(gateway: Gateway, announce: Callable[[Gateway], None]) -> None:
    local = [d.name for d in gateway.snapshot.config.deployments.values() if d.upstream == "local"]
    if local:
        log.info("loading local models: %s", ", ".join(local))
    await gateway.wait_ready()
    _settle_memory()
    announce(gateway)


def _settle_memory() -> None:
    """Takes what was built for good out of the garbage collector's sight, and lets it look less often.

    A full collection walks every object of the libraries, and all streams stand still meanwhile; what requests make is
    nearly all freed by its count.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


def _stop_early(number: int, frame: object) -> None:
    """A stop before the gateway serves: there is nothing to drain."""
    raise SystemExit(0)


def serve(options: Options) -> int:
    """`pointsman serve`."""
    signal.signal(signal.SIGTERM, _stop_early)
    lines = logs.configure()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(run(options, lines, _announce))
    except KeyboardInterrupt:  # while the files are read and the model's weights put together
        log.info("stopped before it served")
        return 130
    finally:
        lines.close()


def _announce(gateway: Gateway) -> None:
    if gateway.options.worker is None:
        told = gateway.options
        announce(told.host, told.port, told.admin_host, told.admin_port, gateway.snapshot.config)
    else:
        gateway.options.worker.ready.touch()
