"""A bounded queue that one thread empties in batches, so that the hot path pays only for an append.

Used where work may wait a tenth of a second: rows of the records database and the log's request lines. It
knows nothing of either.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

log = logging.getLogger(__name__)


class Batcher(Generic[T]):
    """`put` costs well under a microsecond and never blocks: what does not fit, or comes after the end, is counted
    in `dropped`.

    `drain` is called in the thread with a non-empty list; it may block. If it raises, its list is dropped.
    `stopping` is set when `stop` is called, so that a `drain` that waits can give up. `idle` is called in the thread
    at its start, after every batch and about every `idle_s` seconds, for rare chores.
    """

    def __init__(
        self,
        name: str,
        drain: Callable[[list[T]], None],
        *,
        limit: int,
        linger_s: float,
        batch: int = 2_000,
        idle: Callable[[], None] | None = None,
        idle_s: float = 60.0,
    ) -> None:
        self.dropped = 0
        self.stopping = threading.Event()
        self.hurried = False  # somebody waits in `flush` or `stop`: what could be put off is not
        self._drain = drain
        self._limit = limit
        self._linger_s = linger_s
        self._batch = batch
        self._idle = idle
        self._idle_s = idle_s
        self._queue: deque[T] = deque()
        self._wake = threading.Event()
        self._awake = False
        self._flushes: list[threading.Event] = []
        self._flushing = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Apart from the constructor, so that the owner is complete before its methods are called."""
        self._thread.start()

    def put(self, item: T) -> None:
        if len(self._queue) >= self._limit:
            self.dropped += 1
            return
        self._queue.append(item)
        if not self._awake:  # one wake-up a batch: setting an event costs more than the append
            self._awake = True
            self._wake.set()

    def flush(self, timeout_s: float = 10.0) -> bool:
        """Waits until everything put before has been through `drain`, and `idle` was called; False when that took too
        long."""
        done = threading.Event()
        with self._flushing:
            self._flushes.append(done)
        self._wake.set()
        if self.stopping.is_set():  # nobody may be left to answer: `logging` flushes once more when the process ends
            self._thread.join(timeout_s)
            return not self._thread.is_alive()
        return done.wait(timeout_s)

    def stop(self, timeout_s: float = 5.0) -> bool:
        """Drains what is left and ends the thread; False when it still runs after the time. Idempotent."""
        self.stopping.set()
        self._wake.set()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def __len__(self) -> int:
        return len(self._queue)

    def _run(self) -> None:
        self._rest()
        while True:
            self._wake.wait(self._idle_s)
            self._wake.clear()
            if not self._flushes:
                self.stopping.wait(self._linger_s)  # let a batch gather
            self._awake = False  # before emptying: a later put wakes the next round
            with self._flushing:
                flushes, self._flushes = self._flushes, []
            self.hurried = bool(flushes) or self.stopping.is_set()
            self._empty()
            self._rest()
            for done in flushes:
                done.set()
            if self.stopping.is_set() and not self._queue:
                self._limit = 0
                return

    def _empty(self) -> None:
        queue = self._queue
        while queue:
            items = [queue.popleft() for _ in range(min(len(queue), self._batch))]
            try:
                self._drain(items)
            except Exception:  # the thread's seam: a mistake in one batch must not end the work
                self.dropped += len(items)
                log.exception("%s: %d items dropped by an internal error", self._thread.name, len(items))

    def _rest(self) -> None:
        if self._idle is None:
            return
        try:
            self._idle()
        except Exception:  # the same seam
            log.exception("%s: internal error in a chore", self._thread.name)
