"""Says when the configuration directory has changed. What is done then is the caller's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path as FilePath

from router.policy_files.files import is_config_file

# Editors and `kubectl` write in several steps; the wait joins them, and stays far below the promised 2 s.
DEBOUNCE_MS = 300
STEP_MS = 50


async def watch(
    directory: FilePath, on_change: Callable[[], Awaitable[object]], stop: asyncio.Event | None = None
) -> None:
    """Await `on_change` after every burst of changes to the files, until cancelled or `stop` is set.

    Mounted ConfigMaps change by swapping a hidden link, so a change to a hidden entry counts too.
    """
    import watchfiles  # only a gateway watches, and `pointsman check` is to start fast

    changes: AsyncIterator[object] = watchfiles.awatch(  # pyright: ignore[reportUnknownMemberType] - anyio's Event
        directory, watch_filter=_counts, debounce=DEBOUNCE_MS, step=STEP_MS, stop_event=stop, recursive=False
    )
    async for _ in changes:
        await on_change()


def _counts(_: object, path: str) -> bool:
    file = FilePath(path)
    return is_config_file(file) or file.name == "..data"
