"""What the admin port asks of the gateway, and nothing more. `serving.Gateway` has all of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from router.flight import Snapshot
from router.health import Health
from router.judging.shadow import Judging
from router.metrics import Metrics
from router.records import SqlRecorder
from router.seams import Presence
from router.service import Service
from router.steering import Steering
from router.trials import Trials


class AdminState(Protocol):
    """Read and called on the event loop's thread, but for `recorder.reader`, which blocks and is thread-safe."""

    started: float  # Unix seconds
    draining: bool
    config_ok: bool  # False while the last change of the files is refused
    last_error: str | None  # why it is
    metrics: Metrics
    health: Health
    recorder: SqlRecorder
    steering: Steering
    trials: Trials
    service: Service
    judging: Judging

    @property
    def others(self) -> Sequence[Presence]:
        """The replicas that share the store, as they told of themselves."""
        ...

    @property
    def directory(self) -> Path:
        """Where the configuration's files are."""
        ...

    @property
    def snapshot(self) -> Snapshot: ...

    def waiting(self) -> dict[str, int]:
        """Requests that wait for a place, by group."""
        ...

    def places(self) -> dict[str, int]:
        """Requests that this process may have at a time, by group that has a limit."""
        ...

    async def reload(self) -> bool:
        """Puts the files' present content in force; False, with the old one kept, when it is refused."""
        ...
