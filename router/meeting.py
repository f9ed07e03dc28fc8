"""What this process tells the replicas that share its store, a few times a second, and what it hears from them.

It has its load and its cooldowns told, takes theirs, and is given its places in the groups that have a limit. Requests
wait for none of it. What is kept where is the store's; what comes of it is `health`'s and `admission`'s.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Sequence
from secrets import token_hex

from router.admission import Admission
from router.flight import Snapshot
from router.health import Health
from router.seams import Presence, Store

log = logging.getLogger("pointsman.meeting")

EVERY_S = 0.25  # so late does a replica know what another one found
# A deployment whose limit is over is asked by the replicas one after the other, as their names go: were it asked by all
# at once, and still limited, each of them would find that out for itself. The last of many wait no longer than this.
LATER_S, LATEST_S = 3 * EVERY_S, 3.0


class Meeting:
    """One per process, of which its machine has `workers`. `others`: what the others told last."""

    def __init__(
        self, store: Store, health: Health, admission: Admission, snapshot: Callable[[], Snapshot], workers: int
    ) -> None:
        self.replica = f"{socket.gethostname()}-{os.getpid()}-{token_hex(3)}"
        self.others: Sequence[Presence] = ()
        self._store = store
        self._health = health
        self._admission = admission
        self._snapshot = snapshot
        self._workers = workers

    async def run(self) -> None:
        """Until cancelled; while the process drains as well, since its streams are still with the deployments."""
        while True:
            try:
                if not await self.once():
                    return
            except Exception:  # a mistake of ours here must not cut this process off for good
                log.exception("the other replicas were not heard of")
            await asyncio.sleep(EVERY_S)

    async def once(self) -> bool:
        """False where nothing is shared."""
        snapshot, clock = self._snapshot(), asyncio.get_running_loop().time
        in_flight, cooling, limited = self._health.presence(clock())
        mine = Presence(
            replica=self.replica,
            digest=snapshot.config.digest,
            generation=snapshot.generation,
            in_flight=in_flight,
            cooling=cooling,
            limited=limited,
        )
        try:
            others = await self._store.meet(mine)
            if others is None:
                return False
            self.others = others.told
            before = sum(told.replica < self.replica for told in others.told)
            self._health.meet(others, clock(), min(LATEST_S, before * LATER_S))
            there = max(self._workers, len(others.told) + 1)
            self._admission.divide(there, there - 1)
            wishes = self._admission.wishes()
            while wishes:  # what is given up is told at once: another one may wait for it
                wishes = self._admission.grant(await self._store.share(self.replica, wishes), wishes)
        except ConnectionError:  # the store counts and tells
            pass
        return True
