"""CORE: what a plan becomes: the files that start its model groups on their nodes, and the gateway's own configuration
for them, as text by path. Nothing here touches a file, a node or a clock; plans themselves belong to `router.cluster`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from router.cluster.values import Model, Plan
from router.launch import kubernetes, machines

Models = Mapping[str, Model]  # by the name that the plan uses; what is not known of one is left to the engine

# To add one: a function from a plan to files, a line here, and a validator of what it writes in tests/launch.
TARGETS: Final[Mapping[str, Callable[[Plan, Models, str], dict[str, str]]]] = {
    "systemd": machines.systemd,
    "compose": machines.compose,
    "ansible": machines.ansible,
    "lws": kubernetes.leaderworkerset,
    "rayservice": kubernetes.rayservice,
}


def render(plan: Plan, target: str, models: Models, *, image: str = "") -> dict[str, str]:
    """The files for one target, by their paths under the folder to be written. `image`: of the engine, where one is
    used and it is not the engine's own. Raises Impossible."""
    return TARGETS[target](plan, models, image)
