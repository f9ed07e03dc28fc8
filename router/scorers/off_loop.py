"""Takes a blocking scorer off the event loop: one thread of its own, a bounded queue, batches, a deadline, a breaker.

`OffLoop` is a whole scorer around a function of many texts; `encoder` and `generative` are such functions. The queue
lives on the loop, so it needs no lock: the thread is handed one batch at a time and takes whatever has gathered
meanwhile as the next.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from threading import Event, Thread
from typing import Annotated, Literal

from msgspec import Meta, Struct

from router.scorers.breaker import Breaker, Reason, guarded
from router.types import Abstain, Prompt, Score

log = logging.getLogger("pointsman.scorers")

DEADLINE_S = 0.15
QUEUE = 64  # texts that wait; more would pass their deadline anyhow
BATCH = 16

Answer = float | Literal["empty", "unsure"]  # difficulty in [0, 1], or why there is none
Estimate = Callable[[Sequence[str]], Sequence[Answer]]  # blocking; one answer a text

_BAD: frozenset[Reason] = frozenset(("timeout", "error"))  # an overflow is no fault of the model's


class Limits(Struct, frozen=True, kw_only=True):
    """What a text may take of time and room. `deadline_s` None: offline, where everything is waited for."""

    deadline_s: Annotated[float, Meta(gt=0.0)] | None = DEADLINE_S
    queue: Annotated[int, Meta(ge=1)] = QUEUE
    batch: Annotated[int, Meta(ge=1)] = BATCH


class _Waiting(Struct, frozen=True, eq=False):
    text: str
    answer: asyncio.Future[float | Reason]


class _Batch(Struct, frozen=True, eq=False):
    loop: asyncio.AbstractEventLoop
    entries: Sequence[_Waiting]


class OffLoop:
    """A scorer around `make()`, which loads a model and gives its `Estimate`; `seams.Scorer`.

    Loading starts at once, in the thread. Until it is done the scorer abstains as "missing", so that nobody waits for
    it; one that cannot load abstains as "error".
    """

    def __init__(
        self, name: str, make: Callable[[], Estimate], limits: Limits | None = None, breaker: Breaker | None = None
    ) -> None:
        self.name = name
        self._make = make
        self._limits = limits or Limits()
        self._breaker = breaker or Breaker()
        self._waiting: deque[_Waiting] = deque()
        self._busy = False
        self._thread: _Thread | None = _Thread(self, make)

    def load(self) -> None:
        """Wait until the model has loaded. Raises what loading raised."""
        thread = self._running()
        thread.loaded.wait()
        if thread.failure is not None:
            raise thread.failure

    def score(self, prompt: Prompt) -> Score | Abstain | Awaitable[Score | Abstain]:
        return self._score(prompt.text)

    async def _score(self, text: str) -> Score | Abstain:
        answer = await guarded(self._breaker, lambda: self._ask(text), _BAD)
        if isinstance(answer, str):
            return Abstain(scorer=self.name, reason=answer)
        return Score(scorer=self.name, value=answer)

    async def _ask(self, text: str) -> float | Reason:
        thread, limits = self._running(), self._limits
        if thread.failure is not None:
            return "error"
        if not thread.loaded.is_set() and limits.deadline_s is not None:
            return "missing"
        if len(self._waiting) >= limits.queue:
            return "overload"
        entry = _Waiting(text, asyncio.get_running_loop().create_future())
        self._waiting.append(entry)
        self._send(thread)
        try:
            async with asyncio.timeout(limits.deadline_s):
                return await entry.answer
        except TimeoutError:
            return "timeout"
        finally:
            with suppress(ValueError):  # given up before its batch: its place is free again
                self._waiting.remove(entry)

    def _running(self) -> _Thread:
        if self._thread is None:  # asked again after it was closed
            self._thread = _Thread(self, self._make)
        return self._thread

    def _send(self, thread: _Thread) -> None:
        """Hand over what waits, unless a batch is under way."""
        if self._busy or not self._waiting:
            return
        self._busy = True
        take = min(len(self._waiting), self._limits.batch)
        entries = [self._waiting.popleft() for _ in range(take)]
        thread.batches.put(_Batch(asyncio.get_running_loop(), entries))

    def came(self, thread: _Thread, entries: Sequence[_Waiting], answers: Sequence[float | Reason]) -> None:
        """A batch is done; called on the loop."""
        for entry, answer in zip(entries, answers, strict=True):
            if not entry.answer.done():
                entry.answer.set_result(answer)
        if thread is self._thread:
            self._busy = False
            self._send(thread)

    async def aclose(self) -> None:
        """Let the thread end after what it does now, and its model with it."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.batches.put(None)
        self._busy = False
        while self._waiting:
            entry = self._waiting.popleft()
            if not entry.answer.done():
                entry.answer.set_result("missing")


class _Thread:
    """The thread that loads the model and runs it. A daemon, so that a model that hangs cannot keep the process."""

    def __init__(self, owner: OffLoop, make: Callable[[], Estimate]) -> None:
        self.batches: SimpleQueue[_Batch | None] = SimpleQueue()
        self.loaded = Event()
        self.failure: Exception | None = None
        self._owner = owner
        Thread(target=self._run, args=(make,), name=f"scorer-{owner.name}", daemon=True).start()

    def _run(self, make: Callable[[], Estimate]) -> None:
        name = self._owner.name
        try:
            estimate = make()
        except Exception as error:  # noqa: BLE001  the seam to models: what one raises is an abstention
            log.error("scorer %s does not load, so it abstains: %s: %s", name, type(error).__name__, error)
            self.failure = error
            estimate = None
        self.loaded.set()
        while (batch := self.batches.get()) is not None:
            answers = _errors(len(batch.entries)) if estimate is None else self._answers(estimate, batch)
            with suppress(RuntimeError):  # the loop has closed: nobody waits any more
                batch.loop.call_soon_threadsafe(self._owner.came, self, batch.entries, answers)

    def _answers(self, estimate: Estimate, batch: _Batch) -> Sequence[float | Reason]:
        texts = [entry.text for entry in batch.entries]
        try:
            answers = estimate(texts)
            if len(answers) != len(texts):
                raise ValueError(f"{len(answers)} answers to {len(texts)} texts")
        except Exception as error:  # noqa: BLE001  the seam to models: what one raises is an abstention
            log.warning("scorer %s failed: %s", self._owner.name, type(error).__name__)
            return _errors(len(texts))
        return [_checked(answer) for answer in answers]


def _errors(count: int) -> Sequence[Reason]:
    return ("error",) * count


def _checked(answer: Answer) -> float | Reason:
    """NaN, a number out of range and an unknown word are errors."""
    if isinstance(answer, str):
        return answer if answer in ("empty", "unsure") else "error"
    return float(answer) if 0.0 <= answer <= 1.0 else "error"


def threads() -> int:
    """Cores that a model on the CPU may use: all but the one that serves."""
    return max(1, len(os.sched_getaffinity(0)) - 1)
