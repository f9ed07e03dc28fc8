"""What the admin port asks of the gateway, and nothing more. `serving.Gateway` has all of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from router.metrics import Metrics
from router.records import SqlReader
from router.types import Config


class Snapshot(Protocol):
    config: Config
    generation: int


class Health(Protocol):
    """Health and load by deployment. `of` gives in_flight, cooling_s, failures, last_error, draining, up."""

    def of(self, name: str, now: float, /) -> Mapping[str, Any]: ...

    def drain(self, deployment: str, /) -> None: ...

    def undrain(self, deployment: str, /) -> None: ...


class Recorder(Protocol):
    written: int
    reader: SqlReader

    @property
    def dropped(self) -> int: ...


class AdminState(Protocol):
    """Read and called on the event loop's thread, but for `recorder.reader`, which blocks and is thread-safe."""

    started: float  # Unix seconds
    draining: bool
    config_ok: bool  # False while the last change of the files is refused
    last_error: str | None  # why it is
    metrics: Metrics

    @property
    def snapshot(self) -> Snapshot: ...

    @property
    def health(self) -> Health: ...

    @property
    def recorder(self) -> Recorder: ...

    async def reload(self) -> bool:
        """Puts the files' present content in force; False, with the old one kept, when it is refused."""
        ...
