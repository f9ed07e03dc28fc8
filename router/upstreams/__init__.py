"""How to call each kind of deployment. `UPSTREAMS` is the whole list; `build` makes one from a deployment."""

from __future__ import annotations

from collections.abc import Callable

from router.config import Deployment
from router.seams import Upstream


def _openai(deployment: Deployment) -> Upstream:
    from router.upstreams.openai import OpenAIUpstream

    return OpenAIUpstream(deployment)


def _local(deployment: Deployment) -> Upstream:
    from router.upstreams.local import LocalUpstream

    return LocalUpstream(deployment, _openai)


def _scripted(deployment: Deployment) -> Upstream:
    from router.upstreams.scripted import ScriptedUpstream

    return ScriptedUpstream(deployment)


def _litellm(deployment: Deployment) -> Upstream:
    from router.upstreams.litellm import LitellmUpstream

    return LitellmUpstream(deployment)


UPSTREAMS: dict[str, Callable[[Deployment], Upstream]] = {
    "openai": _openai,
    "local": _local,
    "scripted": _scripted,
    "litellm": _litellm,
}


def build(deployment: Deployment) -> Upstream:
    """An upstream for a deployment; `start` it before use."""
    return UPSTREAMS[deployment.upstream](deployment)
