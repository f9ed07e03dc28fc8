"""The gateway's own configuration for a plan: groups.yaml, scorers.yaml and one policy, which `pointsman check` takes.
Where a replica is reached is the target's business; what a policy may say besides is the operator's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import yaml

from router.cluster.values import Group, Plan, Replica

CLASSIFIER = "classifier"
MADE = "Written by `pointsman plan render`"
FULL = 1.5  # requests at a time for each place: a short line keeps an engine busy, a long one is waiting elsewhere

Url = Callable[[Group, Replica], str]  # of a replica, up to and including /v1


def files(plan: Plan, url: Url, *, single: bool = False, store: str = "") -> dict[str, str]:
    """The configuration directory. `single`: one deployment a group, where something else spreads over its replicas.
    `store`: where gateways share their state, of a target that has several."""
    answering = [group for group in plan.groups if group.name != CLASSIFIER]
    return {
        "gateway/groups.yaml": _groups(plan, answering, url, single, store),
        "gateway/scorers.yaml": _scorers(plan, url),
        "gateway/default.yaml": _policy(plan, answering),
    }


def _groups(plan: Plan, answering: Sequence[Group], url: Url, single: bool, store: str) -> str:
    deployments: dict[str, Any] = {}
    groups: dict[str, Any] = {}
    for group in answering:
        served = group.replicas[:1] if single else group.replicas
        copies = len(group.replicas) // len(served)
        groups[group.name] = {"deployments": [_name(group, one, single) for one in served]}
        for replica in served:
            deployments[_name(group, replica, single)] = {
                "upstream": "openai",
                "base_url": url(group, replica),
                "model": group.served,
                "context_window": group.context,
                "max_in_flight": math.ceil(FULL * group.sequences * copies),
                "health_url": "/-/healthz" if single else "/health",
                # Ray's proxy tells of no engine, and TensorRT-LLM's numbers are in JSON.
                **({} if single or plan.engine == "trtllm" else {"metrics_url": "/metrics"}),
                "timeouts": {"first_byte_s": 300},
                "partition": {
                    "nodes": sorted({n for one in group.replicas for n in one.nodes} if single else replica.nodes)
                },
            }
    head = [f"{MADE}: the groups of", f"{plan.name}.", *plan.why]
    shared = {"store": store} if store else {}
    return text({"version": 1, **shared, "groups": groups, "deployments": deployments}, *head)


def _name(group: Group, replica: Replica, single: bool) -> str:
    return f"{group.name}-serve" if single else replica.name


def _scorers(plan: Plan, url: Url) -> str:
    judge = next((group for group in plan.groups if group.name == CLASSIFIER), None)
    if judge is None:
        return text({"version": 1, "scorers": {"difficulty": {"kind": "lexical"}}}, f"{MADE}.")
    asked = {"kind": "remote", "url": url(judge, judge.replicas[0]), "model": judge.served, "deadline_s": 0.5}
    head = [
        f"{MADE}.",
        "A model that was never trained to judge may know nothing: measure it with `pointsman eval run --scorer",
        "difficulty`, map its scores with `pointsman eval calibrate`, or use {kind: lexical}.",
    ]
    others = [url(judge, one) for one in judge.replicas[1:]]
    if others and others[0] != asked["url"]:
        head.append(f"Its other replicas: {', '.join(others)}.")
    return text({"version": 1, "scorers": {"difficulty": asked}}, *head)


def _policy(plan: Plan, answering: Sequence[Group]) -> str:
    names = [group.name for group in reversed(answering)]  # from cheap to dear
    largest, last = names[-1], len(names)
    policy: dict[str, Any] = {"version": 1, "name": "default", "models": ["auto"]}
    examples: list[dict[str, Any]] = []
    if last > 1:
        cuts = [round((index + 1) / last, 2) for index in range(last - 1)]
        bands: list[dict[str, Any]] = [{"below": cut, "group": name} for cut, name in zip(cuts, names, strict=False)]
        bands.append({"group": largest})
        policy["routes"] = [{"name": "difficulty", "score": {"scorer": "difficulty", "bands": bands}}]
        for name, low, high in zip(names, [0.0, *cuts], [*cuts, 1.0], strict=True):
            score = round((low + high) / 2, 2)
            given: dict[str, Any] = {"scores": {"difficulty": score}}
            examples.append(given | {"expect": {"route": "difficulty", "group": name}})
        policy["order"] = names
    policy["default"] = largest
    policy["pin"] = {"scope": "conversation", "ttl": "1h", "upgrade": "user_turn"}
    if last > 1:
        policy["fallback"] = {name: _nearest(names, name) for name in names}
    examples.append(
        {"scores": {"difficulty": None}, "expect": {"group": largest}} if last > 1 else {"expect": {"group": largest}}
    )
    policy["examples"] = examples
    return text(policy, f"{MADE}. The cuts are even, not measured: docs/policies.md and `pointsman eval sweep`.")


def _nearest(names: Sequence[str], name: str) -> list[str]:
    """The other groups, nearest in size first, the larger of two."""
    at = names.index(name)
    return sorted(
        (one for one in names if one != name), key=lambda one: (abs(names.index(one) - at), -names.index(one))
    )


class _Dumper(yaml.SafeDumper):
    """Small collections on one line, as people write them."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        return super().increase_indent(flow, False)


def _mapping(dumper: yaml.SafeDumper, data: dict[str, Any]) -> yaml.Node:
    node = dumper.represent_mapping("tag:yaml.org,2002:map", data, flow_style=None)
    plain = all(isinstance(value, str | int | float | bool | None) for value in data.values())
    node.flow_style = plain and len(str(data)) < 100 and len(data) < 6
    return node


def _sequence(dumper: yaml.SafeDumper, data: list[Any]) -> yaml.Node:
    node = dumper.represent_sequence("tag:yaml.org,2002:seq", data)
    node.flow_style = all(isinstance(one, str | int | float) for one in data) and len(str(data)) < 100
    return node


def _string(dumper: yaml.SafeDumper, data: str) -> yaml.Node:
    return yaml.ScalarNode("tag:yaml.org,2002:str", data, style="|") if "\n" in data else dumper.represent_str(data)


_Dumper.add_representer(dict, _mapping)
_Dumper.add_representer(list, _sequence)
_Dumper.add_representer(str, _string)


def text(document: Any, *head: str) -> str:
    """YAML in the order given, under comments."""
    body = yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)
    return "".join(f"# {line}\n" for line in head) + body
