"""Work put aside for a thread is done in order and in batches, and what is not done is counted."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

from router.batch import Batcher


class Sink:
    """Keeps the batches; holds the thread while `gate` is closed."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.gate = threading.Event()
        self.entered = threading.Event()
        self.gate.set()

    def __call__(self, items: list[int]) -> None:
        self.entered.set()
        self.gate.wait(5)
        if 13 in items:
            raise ArithmeticError("unlucky")
        self.batches.append(items)

    @property
    def items(self) -> list[int]:
        return [item for batch in self.batches for item in batch]


@pytest.fixture
def sink() -> Sink:
    return Sink()


@pytest.fixture
def batcher(sink: Sink) -> Iterator[Batcher[int]]:
    made = Batcher[int]("test", sink, limit=100, linger_s=0.01, batch=40)
    made.start()
    yield made
    sink.gate.set()
    made.stop()


def test_everything_put_is_drained_in_order_and_no_batch_is_larger_than_said(sink: Sink, batcher: Batcher[int]):
    for number in range(100):
        batcher.put(number + 100)
    assert batcher.flush()
    assert sink.items == list(range(100, 200))
    assert max(map(len, sink.batches)) <= 40


def test_what_does_not_fit_while_the_drain_is_stuck_is_counted_and_put_returns(sink: Sink, batcher: Batcher[int]):
    sink.gate.clear()
    batcher.put(0)
    assert sink.entered.wait(5)
    for number in range(150):
        batcher.put(number + 100)
    assert batcher.dropped == 50
    sink.gate.set()
    assert batcher.flush()
    assert len(sink.items) == 101


def test_a_flush_that_takes_too_long_says_so(sink: Sink, batcher: Batcher[int]):
    sink.gate.clear()
    batcher.put(1)
    assert not batcher.flush(0.05)


def test_a_batch_that_raises_is_counted_and_the_next_one_is_done(
    sink: Sink, batcher: Batcher[int], caplog: pytest.LogCaptureFixture
):
    batcher.put(13)
    batcher.flush()
    batcher.put(1)
    batcher.flush()
    assert (sink.items, batcher.dropped) == ([1], 1)
    assert [r.levelno for r in caplog.records] == [logging.ERROR]


def test_stopping_drains_what_is_left_and_later_puts_are_counted(sink: Sink, batcher: Batcher[int]):
    batcher.put(1)
    assert batcher.stop()
    assert sink.items == [1]
    batcher.put(2)
    assert batcher.dropped == 1


def test_many_threads_put_and_none_of_it_is_lost(sink: Sink):
    batcher = Batcher[int]("test", sink, limit=100_000, linger_s=0.0)
    batcher.start()
    threads = [threading.Thread(target=lambda: [batcher.put(20) for _ in range(5_000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert batcher.stop()
    assert len(sink.items) == 20_000
