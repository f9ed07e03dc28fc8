"""Sessions in this process's memory, bounded in time and in number.

It keeps ids as they are given; the service gives digests. For several workers or gateways that share
sessions, a store of another kind is configured.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

from router.seams import Presence, Wish
from router.types import Session


class MemoryStore:
    """Forgets a session `ttl_s` after its last touch, and the longest unused one when `limit` is reached.

    One session takes about 600 bytes, so the default bound is about 60 MB. `clock` is monotonic seconds.
    """

    errors = 0  # memory does not fail

    def __init__(self, *, limit: int = 100_000, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._sessions: OrderedDict[str, tuple[Session, float]] = OrderedDict()  # longest unused first

    async def session(self, *ids: str) -> Session | None:
        for session_id in ids:
            if (session := self._known(session_id)) is not None:
                return session
        return None

    async def sessions(self, *ids: str) -> list[Session | None]:
        return [self._known(session_id) for session_id in ids]

    def _known(self, session_id: str) -> Session | None:
        found = self._sessions.get(session_id)
        if found is None:
            return None
        session, until = found
        if self._clock() >= until:
            del self._sessions[session_id]
            return None
        self._sessions.move_to_end(session_id)
        return session

    def items(self) -> list[tuple[Session, float]]:
        """Every session, and the clock's time until which it is kept."""
        return list(self._sessions.values())

    async def meet(self, mine: Presence) -> None:
        """There is nobody else."""

    async def share(self, replica: str, wishes: Sequence[Wish]) -> Mapping[str, int]:
        """Likewise."""
        return {wish.group: wish.limit for wish in wishes}

    def touch(self, session: Session, ttl_s: float) -> None:
        now, known, key = self._clock(), self._sessions, session.id
        known[key] = (session, now + ttl_s)
        known.move_to_end(key)
        # Two at most a touch: the oldest by use are the likeliest to have expired, and no touch pays for all.
        for _ in range(2):
            oldest = next(iter(known))
            if oldest == key or (known[oldest][1] > now and len(known) <= self._limit):
                break
            del known[oldest]

    async def aclose(self) -> None:
        self._sessions.clear()

    def __len__(self) -> int:
        return len(self._sessions)
