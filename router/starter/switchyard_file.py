"""Switchyard's TOML as a draft: each target a group of one deployment, each route a policy behind its `id`. Its judges
and signals are not ours: a route that asks a judge becomes bands of the shipped scorer, and the draft says so.

Read from its documentation, docs/reference/toml_schema.md, 2026.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import Any, Final

from router.errors import BadRequest
from router.starter import first
from router.starter.draft import Bands, Draft, Line, PolicyDraft, examples_of, flow, slug
from router.wire.loose import is_array, mapping, text

_DIALECTS: Final[Mapping[str, list[str]]] = {
    "openai_chat": ["chat"],
    "openai_responses": ["responses"],
    "anthropic_messages": ["messages"],
}
_JUDGED: Final = (
    "the shipped scorer decides in place of its judge; the edge 0.5 is ours, `pointsman eval` tells better ones"
)


def read(content: bytes) -> Draft:
    """The draft of a file. Raises BadRequest where it is none of Switchyard's."""
    try:
        data: dict[str, Any] = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"this is not valid TOML: {error}") from None
    if data.get("schema_version") != 1 or not mapping(data.get("targets")) or not mapping(data.get("routes")):
        raise BadRequest("schema_version 1 with [targets] and [routes] was looked for, and this has not all of them")
    return _Reading(data).draft()


class _Reading:
    """One file on its way to a draft."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data
        self.left: list[str] = []
        self.lines: list[Line] = []
        self.groups: dict[str, tuple[str, ...]] = {}  # by target's name, and named after it
        self.policies: list[PolicyDraft] = []
        self.variables: set[str] = set()

    def draft(self) -> Draft:
        for name, target in mapping(self.data["targets"]).items():
            self._target(name, mapping(target))
        if not self.groups:
            raise BadRequest("none of its targets could be carried over: " + "; ".join(self.left))
        for name, route in mapping(self.data["routes"]).items():
            self._route(name, mapping(route))
        if not self.policies:
            raise BadRequest("none of its routes could be carried over: " + "; ".join(self.left))
        routed = {group for policy in self.policies for group in (policy.default, *_of(policy.bands))}
        self.left += [f"targets.{name}: no policy routes to it" for name in self.groups if name not in routed]
        return Draft(
            about=("Groups and the deployments that serve them, carried over from a Switchyard file by `init`.",),
            deployments=tuple(self.lines),
            groups=self.groups,
            policies=tuple(self.policies),
            left=tuple(dict.fromkeys(self.left)),
            variables=tuple(sorted(self.variables)),
        )

    def _target(self, name: str, target: dict[str, Any]) -> None:
        client_name = text(target.get("llm_client"))
        client = mapping(mapping(self.data.get("llm_clients")).get(client_name))
        form = text(client.get("format"))
        if form not in _DIALECTS:
            self.left.append(
                f"targets.{name}: its client speaks `{form or 'nothing known'}`, which no upstream here does"
            )
            return
        keys: dict[str, Any] = {
            "upstream": "openai",
            "base_url": text(client.get("base_url")).rstrip("/"),
            "model": text(target.get("id")),
        }
        if variable := text(client.get("api_key_env")):
            self.variables.add(variable)
            keys["api_key"] = f"${{{variable}}}"
        if form != "openai_chat":
            keys["dialects"] = _DIALECTS[form]
        if extra := mapping(target.get("extra_body")):
            keys["set"] = extra
            self.left.append(f"targets.{name}.extra_body: is `set`, which holds over what the request says")
        for key, why in _CLIENT.items():
            if key in client:
                self.left.append(f"llm_clients.{client_name}.{key}: {why}")
        group = first.unused(slug(name), list(self.groups))
        deployment = f"{group}-1"
        self.groups[group] = (deployment,)
        self.lines.append(Line(name=deployment, keys=keys))

    def _route(self, name: str, route: dict[str, Any]) -> None:
        kind = text(route.get("type"))
        build = {
            "passthrough": self._passthrough,
            "random": self._random,
            "llm_classifier": self._classifier,
            "stage_router": self._stages,
        }.get(kind)
        if build is None:
            self.left.append(f"routes.{name}: `{kind}` has no counterpart here")
            return
        if not build(name, text(route.get("id")) or name, route):
            self.left.append(f"routes.{name}: a target that it names was not carried over")
        self.left += [f"routes.{name}.{key}: {why}" for key, why in _ROUTE.items() if key in route]

    def _passthrough(self, name: str, public: str, route: dict[str, Any]) -> bool:
        target = slug(text(route.get("target")))
        if target not in self.groups:
            return False
        self._add(name, public, f"everything goes to `{target}`.", target, None)
        return True

    def _random(self, name: str, public: str, route: dict[str, Any]) -> bool:
        """Equal shares among targets are one group of their deployments."""
        given = route.get("targets")
        targets = [slug(str(one)) for one in given] if is_array(given) else []
        members = tuple(member for target in targets for member in self.groups.get(target, ()))
        if not members:
            return False
        group = first.unused(slug(f"{name}-any"), list(self.groups))
        self.groups[group] = members
        self.left.append(
            f"routes.{name}: its targets are one group, whose least busy deployment serves; weights are not"
        )
        self._add(name, public, f"any deployment of `{group}` serves.", group, None)
        return True

    def _classifier(self, name: str, public: str, route: dict[str, Any]) -> bool:
        weak, strong = slug(text(route.get("weak_target"))), slug(text(route.get("strong_target")))
        if text(route.get("mode")) == "custom" or not {weak, strong} <= set(self.groups):
            default = slug(text(route.get("default_target")))
            if default not in self.groups:
                return False
            self.left.append(f"routes.{name}: its judge chooses by a schema of its own; write routes for what it asks")
            self._add(name, public, "everything goes to the default target until you write routes.", default, None)
            return True
        self.left.append(f"routes.{name}: {_JUDGED}")
        if text(route.get("mode")) == "escalation" or "escalation" in route:
            self.left.append(
                f"routes.{name}: a `cascade` route judges each answer before the client has it (docs/policies.md)"
            )
        self._add(name, public, f"easy prompts to `{weak}`, hard ones to `{strong}`.", strong, (weak, strong))
        return True

    def _stages(self, name: str, public: str, route: dict[str, Any]) -> bool:
        weak, strong = slug(text(route.get("efficient_target"))), slug(text(route.get("capable_target")))
        if not {weak, strong} <= set(self.groups):
            return False
        routes = (
            f"{{name: stuck, when: {{tool_errors: {{at_least: 2}}}}, group: {flow(strong)}}}",
            f"{{name: circle, when: {{spinning: {{at_least: 3}}}}, group: {flow(strong)}}}",
        )
        self.left.append(
            f"routes.{name}: its stages are two routes on signals (failing tools, going in circles) before the shipped "
            "scorer; policies/examples/agents.yaml has more of them"
        )
        default = weak if text(route.get("picker")) == "efficient_first" else strong
        self._add(name, public, "work that is stuck goes to the capable target.", default, (weak, strong), routes)
        return True

    def _add(
        self,
        name: str,
        public: str,
        about: str,
        default: str,
        pair: tuple[str, str] | None,
        routes: tuple[str, ...] = (),
    ) -> None:
        bands = Bands(groups=pair, edges=(0.5,)) if pair is not None and pair[0] != pair[1] else None
        asked = re.sub(r"[^A-Za-z0-9._:/@+-]+", "-", public)
        if asked in self.groups:
            self.left.append(f"routes.{name}: clients ask for `{asked}`, which is the group's name and needs no policy")
            return
        stuck = ("{given: {turns: 1, tool_errors: 2}, expect: stuck}",) if routes else ()
        self.policies.append(
            PolicyDraft(
                name=slug(name),
                models=(asked,),
                default=default,
                about=f"The policy behind the model name `{asked}`: {about}",
                bands=bands,
                routes=routes,
                fallback={bands.groups[0]: (bands.groups[1],)} if bands else {},
                examples=(*stuck, *examples_of(bands, default))
                if bands
                else (f"{{expect: {{group: {flow(default)}}}}}",),
            )
        )


_CLIENT: Final[Mapping[str, str]] = {
    "extra_headers": "headers of one's own are not sent to upstreams",
    "max_retries": "another deployment is tried, within a budget; there is no number to set",
}
_ROUTE: Final[Mapping[str, str]] = {
    "classifier_target": "the judge is not asked; scorers.yaml can name one as a scorer of kind `remote`",
    "base_threshold": "is a judge's probability, and no edge of this scorer",
    "prompt": "the scorer takes no prompt",
    "handoff_notes": "nothing is written into a conversation",
    "capable_system_prompt": "nothing is written into a conversation",
    "efficient_system_prompt": "nothing is written into a conversation",
    "confidence_threshold": "a signal either holds or does not",
    "recent_turn_window": "signals count since the last user turn",
    "capable_hold_turns": "a conversation that moved up stays there, by the policy's `pin`",
    "session_affinity": "is the policy's `pin`, which every policy here has",
    "context_window": "is a key of deployments here, and then it is kept to",
    "seed": "chance is drawn from the request's id",
}


def _of(bands: Bands | None) -> tuple[str, ...]:
    return bands.groups if bands is not None else ()
