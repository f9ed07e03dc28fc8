"""Targets for machines without Kubernetes: systemd units, compose files and ansible hosts, by node."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from router.cluster.values import Engine, Group, Model, Plan, Replica
from router.launch import gateway, network
from router.launch.gateway import MADE, text
from router.launch.ranks import IMAGES, Rank, in_pods, ranks
from router.launch.units import ENGINE_UNIT, PLAYBOOK

FOLDER = "/etc/pointsman/engines"


def systemd(plan: Plan, models: Mapping[str, Model], image: str) -> dict[str, str]:
    """For each node a folder with its ranks' scripts and environments, and one that installs and starts them."""
    del image
    files = _configuration(plan) | {"pointsman-engine@.service": ENGINE_UNIT}
    for node, here in by_node(ranks(plan, models)).items():
        for rank in here:
            files |= {f"{node}/{name}": content for name, content in launched(rank, plan.engine).items()}
        files[f"{node}/install.sh"] = _installer(node, here)
    return files


def by_node(found: Sequence[Rank]) -> dict[str, list[Rank]]:
    nodes: dict[str, list[Rank]] = {}
    for rank in found:
        nodes.setdefault(rank.node, []).append(rank)
    return nodes


def launched(rank: Rank, engine: Engine) -> dict[str, str]:
    """What `pointsman-engine@NAME` reads of one rank."""
    command = " \\\n  ".join(shlex.join(option) for option in rank.command)
    script = f"#!/bin/sh\n# {rank.told}. {MADE}.\nexec {command}\n"
    environment = {"PATH": f"/opt/{engine}/bin:/usr/local/bin:/usr/bin:/bin"} | dict(rank.environment)
    lines = "".join(f"{key}={value}\n" for key, value in environment.items())
    return {f"{rank.name}.sh": script, f"{rank.name}.env": f"# {rank.told}. {MADE}.\n{lines}"} | dict(rank.files)


def _installer(node: str, here: Sequence[Rank]) -> str:
    names = sorted(name for rank in here for name in launched(rank, "vllm"))
    units = " ".join(f"pointsman-engine@{rank.name}.service" for rank in here)
    return f"""#!/bin/sh
# Installs and starts what {node} has to run; as root, in this folder. {MADE}.
set -eu
cd "$(dirname "$0")"
id pointsman >/dev/null 2>&1 || useradd --system --home-dir /var/lib/pointsman --shell /usr/sbin/nologin pointsman
install -d -m 0750 -g pointsman {FOLDER}
install -m 0640 -g pointsman -t {FOLDER} {" ".join(names)}
install -m 0644 -t /etc/systemd/system ../pointsman-engine@.service
systemctl daemon-reload
systemctl enable --now {units}
"""


def compose(plan: Plan, models: Mapping[str, Model], image: str) -> dict[str, str]:
    """For each node a compose file of its ranks."""
    in_pods(plan)
    files = _configuration(plan)
    for node, here in by_node(ranks(plan, models)).items():
        services = {rank.name: _service(rank, image or IMAGES[plan.engine]) for rank in here}
        document: dict[str, Any] = {"name": "pointsman-engines", "services": services, "volumes": {"cache": {}}}
        files[f"{node}/compose.yaml"] = text(document, f"The ranks of {node}. {MADE}.")
    return files


def _service(rank: Rank, image: str) -> dict[str, Any]:
    spread = len(rank.replica.nodes) > 1
    service: dict[str, Any] = {
        "image": image,
        "entrypoint": [],
        "command": [word.replace("$", "$$") for word in rank.argv],
        "network_mode": "host",
        "ipc": "host",
        "restart": "always",
        "volumes": ["cache:/root/.cache/huggingface"],
        "deploy": {
            "resources": {"reservations": {"devices": [{"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}]}}
        },
    }
    if spread:
        service["environment"] = dict(rank.environment)
        service |= {"devices": ["/dev/infiniband"], "cap_add": ["IPC_LOCK"], "ulimits": {"memlock": -1}}
    if rank.number == 0:
        probe = f"import urllib.request as u; u.urlopen('http://127.0.0.1:{rank.replica.port}/health', timeout=5)"
        # Weights of hundreds of gigabytes load for a quarter of an hour.
        service["healthcheck"] = {
            "test": ["CMD", "python3", "-c", probe],
            "interval": "10s",
            "timeout": "10s",
            "start_period": "40m",
        }
    return service


def ansible(plan: Plan, models: Mapping[str, Model], image: str) -> dict[str, str]:
    """An inventory, a playbook and each node's files; the ranks are those of systemd."""
    del image
    files = _configuration(plan) | {"files/pointsman-engine@.service": ENGINE_UNIT, "site.yml": PLAYBOOK}
    hosts: dict[str, Any] = {}
    for node, here in by_node(ranks(plan, models)).items():
        kept = {name: content for rank in here for name, content in launched(rank, plan.engine).items()}
        files |= {f"files/{node}/{name}": content for name, content in kept.items()}
        hosts[node] = {
            "ansible_host": network.address(plan.cluster, node),
            "engine_ranks": [rank.name for rank in here],
            "rank_files": sorted(kept),
        }
    inventory = {"all": {"children": {"engines": {"hosts": hosts}}}}
    files["inventory.yml"] = text(inventory, f"{MADE}: the nodes of", f"{plan.name}.")
    return files


def _configuration(plan: Plan) -> dict[str, str]:
    def url(group: Group, replica: Replica) -> str:
        del group
        return f"http://{network.address(plan.cluster, replica.nodes[0])}:{replica.port}/v1"

    return gateway.files(plan, url)
