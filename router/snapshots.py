"""Builds a Snapshot from a Config, puts it in force, and closes what only the old one used.

Boot and reload go through the same `build`. Deployments that did not change keep their upstream, with its
connections and child processes; scorers likewise.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from router import scorers, upstreams
from router.config import Config, Deployment
from router.errors import CannotStart, ConfigError, Mistake
from router.flight import Snapshot
from router.keys import Ring
from router.policy import named_headers
from router.record import book
from router.seams import Scorer, Upstream

log = logging.getLogger("pointsman.config")

READY_S = 120.0  # a large local model on a slow disk


async def build(config: Config, old: Snapshot | None) -> Snapshot:
    """A snapshot whose upstreams have started. Raises ConfigError; then nothing of it is left running."""
    kept: Mapping[str, Upstream] = old.upstreams if old is not None else {}
    built: dict[str, Upstream] = {}
    fresh: list[Upstream] = []
    try:
        for name, deployment in config.deployments.items():
            if name in kept and kept[name].deployment == deployment:
                built[name] = kept[name]
            else:
                built[name] = _upstream(deployment)
                fresh.append(built[name])
        made = _scorers(config, old)
        await asyncio.gather(*(_started(upstream) for upstream in fresh))
    except BaseException:
        for upstream in fresh:
            await upstream.aclose()
        raise
    return Snapshot(
        config=config,
        upstreams=built,
        scorers=made,
        book=book(config),
        named_headers=named_headers(config) | scorers.named_headers(config.scorers.values()),
        generation=1 if old is None else old.generation + 1,
        ring=Ring(config.access, config) if config.access is not None else None,
    )


def _upstream(deployment: Deployment) -> Upstream:
    try:
        return upstreams.build(deployment)
    except ValueError:  # whose text may quote the URL, and that may hold a secret
        raise _unusable(deployment, "base_url is none that can be called; write http://HOST:PORT/v1") from None


async def _started(upstream: Upstream) -> None:
    try:
        await upstream.start()
    except CannotStart as error:
        raise _unusable(upstream.deployment, error.message) from None


def _unusable(deployment: Deployment, why: str) -> ConfigError:
    path = f"deployments.{deployment.name}"
    return ConfigError([Mistake(file="groups.yaml", line=1, column=1, path=path, message=why)])


async def ready(snapshot: Snapshot, old: Snapshot | None = None) -> None:
    """Wait for local models to load. One that does not is logged; its requests fall back meanwhile.

    What `old` runs already is not waited for: one that is restarting must not hold up a change of the files.
    """
    for name, upstream in snapshot.upstreams.items():
        if old is not None and old.upstreams.get(name) is upstream:
            continue
        try:
            await upstream.wait_ready(READY_S)
        except CannotStart as error:
            log.error("deployment %s is not ready: %s", name, error.message)


def _scorers(config: Config, old: Snapshot | None) -> Mapping[str, Scorer]:
    made: dict[str, Scorer] = {}
    for name, spec in config.scorers.items():
        same = old is not None and old.config.scorers.get(name) == spec and name in old.scorers
        made[name] = old.scorers[name] if same and old is not None else scorers.build(spec)
    return made


async def retire(old: Snapshot, new: Snapshot) -> None:
    """Close what `old` alone used, once no request holds it."""
    await old.idle()
    for name, upstream in old.upstreams.items():
        if new.upstreams.get(name) is not upstream:
            await upstream.aclose()
    for name, scorer in old.scorers.items():
        if new.scorers.get(name) is not scorer:
            await scorer.aclose()


async def close(snapshot: Snapshot) -> None:
    """Close everything of a snapshot."""
    for upstream in snapshot.upstreams.values():
        await upstream.aclose()
    for scorer in snapshot.scorers.values():
        await scorer.aclose()
