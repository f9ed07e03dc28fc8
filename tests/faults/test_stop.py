"""Ending: a gateway that is told to stop does not wait for what has ended already."""

from __future__ import annotations

from router.batch import Batcher


def test_a_flush_after_the_end_answers_instead_of_waiting_for_a_thread_that_is_gone() -> None:
    drained: list[int] = []
    batcher = Batcher[int]("test", drained.extend, limit=10, linger_s=0.0)
    batcher.start()
    batcher.put(1)
    assert batcher.stop(10.0)
    assert batcher.flush(3600.0)
    assert drained == [1]
