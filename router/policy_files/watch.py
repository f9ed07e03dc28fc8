"""Says when the configuration directory has changed. What is done then is the caller's.

The kernel's notices tell of most changes at once. They do not tell of a directory that is replaced as a whole, of a
file behind a link, or of a file on a network share, so the files' stamps are compared every `POLL_S` too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from pathlib import Path as FilePath

from router.policy_files.files import Stamp, is_config_file, stamp, stamps

# Editors write in several steps, and the wait joins them. Together with the poll it stays below the promised 2 s.
DEBOUNCE_MS = 300
STEP_MS = 50
POLL_S = 1.0


async def watch(
    directory: FilePath,
    on_change: Callable[[], Awaitable[object]],
    stop: asyncio.Event | None = None,
    *,
    seen: Mapping[str, Stamp] | None = None,
) -> None:
    """Await `on_change` after every burst of changes to the files, until cancelled or `stop` is set; with `seen`, the
    files as they were, after those since then too."""
    seen = stamps(directory) if seen is None else seen
    stop = stop or asyncio.Event()
    while not stop.is_set():
        folder = stamp(directory, inside=False)
        async with aclosing(_notices(directory, stop)) as notices:
            async for noticed in notices:
                now = stamps(directory)
                if noticed or now != seen:
                    seen = now
                    await on_change()
                if stamp(directory, inside=False) != folder:
                    break  # the notices are of a directory that is no longer there


async def _notices(directory: FilePath, stop: asyncio.Event) -> AsyncGenerator[bool, None]:
    """True for a change that the kernel tells of, False every `POLL_S` without one; ends with `stop`."""
    try:
        import watchfiles  # only a gateway watches, and `pointsman check` is to start fast

        changes: AsyncGenerator[set[object], None] = watchfiles.awatch(  # pyright: ignore - its type names anyio's Event
            directory,
            watch_filter=_counts,
            debounce=DEBOUNCE_MS,
            step=STEP_MS,
            stop_event=stop,
            rust_timeout=int(POLL_S * 1000),
            yield_on_timeout=True,
            recursive=False,
        )
        async with aclosing(changes):
            async for noticed in changes:
                yield bool(noticed)
    except (OSError, RuntimeError):  # no directory, no descriptors, no notices left for this user: look again later
        await asyncio.sleep(POLL_S)
        yield False


def _counts(_: object, path: str) -> bool:
    """Mounted ConfigMaps change by swapping the hidden link `..data`."""
    file = FilePath(path)
    return is_config_file(file) or file.name == "..data"
