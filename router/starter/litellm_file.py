"""LiteLLM's `config.yaml` as a draft: each `model_name` a group, each entry of `model_list` a deployment, aliases and
complexity routers policies. What means something else here, or nothing, is told in a sentence instead of dropped.

Read from its documentation, docs.litellm.ai/docs/proxy/configs, October 2026.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import yaml

from router.errors import BadRequest
from router.starter import first, sizes
from router.starter.draft import Bands, Draft, Line, PolicyDraft, examples_of, flow, slug
from router.starter.places import PROVIDERS
from router.wire.loose import count, is_array, is_object, mapping, objects, text

# Its prefixes for servers that speak OpenAI's API, and where they are when the entry does not say.
COMPATIBLE: Final[Mapping[str, str]] = {
    **{name: provider.base_url for name, provider in PROVIDERS.items() if name != "together"},
    "together_ai": PROVIDERS["together"].base_url,
    "hosted_vllm": "",
    "openai_like": "",
    "custom_openai": "",
    "ollama": "http://127.0.0.1:11434/v1",
    "ollama_chat": "http://127.0.0.1:11434/v1",
    "lm_studio": "http://127.0.0.1:1234/v1",
    "llamafile": "http://127.0.0.1:8080/v1",
}
_NO_V1: Final = {"ollama", "ollama_chat", "anthropic", "lm_studio"}  # their api_base may stand without /v1
_LITELLMS_OWN: Final = (  # options that the `litellm` upstream takes
    *("api_version", "organization", "drop_params", "custom_llm_provider"),
    *("aws_region_name", "aws_profile_name", "aws_role_name", "aws_session_name"),
    *("vertex_project", "vertex_location"),
)
_SECRET: Final = re.compile(r"(^|_)(key|token|secret|credentials?|password)s?($|_)")
_UNDERSTOOD: Final = {
    *("model", "api_base", "api_key", "base_url", "timeout", "stream_timeout", "max_parallel_requests"),
    *("input_cost_per_token", "output_cost_per_token", "cache_read_input_token_cost"),
    *("complexity_router_config", "complexity_router_default_model"),
}
_TIERS: Final = ("SIMPLE", "MEDIUM", "COMPLEX", "REASONING")
_ENVIRON = re.compile(r"os\.environ/([A-Za-z_][A-Za-z0-9_]*)")


def read(content: bytes) -> Draft:
    """The draft of a file. Raises BadRequest where it is none of LiteLLM's."""
    try:
        data: Any = yaml.safe_load(content)
    except yaml.MarkedYAMLError as error:
        where = "" if error.problem_mark is None else f" at line {error.problem_mark.line + 1}"
        raise BadRequest(f"this is not valid YAML{where}: {error.problem}") from None
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        raise BadRequest(f"this is not valid YAML: {str(error).splitlines()[0]}") from None
    if not is_object(data) or not objects(data.get("model_list")):
        raise BadRequest("there is no `model_list` in it, so this is no configuration of LiteLLM's")
    return _Reading(data).draft()


class _Reading:
    """One file on its way to a draft."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data
        self.left: list[str] = []
        self.lines: list[Line] = []
        self.groups: dict[str, tuple[str, ...]] = {}
        self.named: dict[str, str] = {}  # its model names -> groups
        self.falling: set[str] = set()  # its model names that have fallbacks
        self.policies: list[PolicyDraft] = []
        self.variables: set[str] = set()
        self.settings = mapping(data.get("litellm_settings")) | mapping(data.get("router_settings"))

    def draft(self) -> Draft:
        routers: list[tuple[str, dict[str, Any]]] = []
        general = bool(self.settings.get("default_fallbacks"))
        self.falling = {name for one in objects(self.settings.get("fallbacks")) for name in one}
        for entry in objects(self.data.get("model_list")):
            name, params = str(entry.get("model_name") or ""), mapping(entry.get("litellm_params"))
            self.falling |= {name} if general else set()
            if text(params.get("model")).startswith("auto_router/"):
                routers.append((name, params))
            else:
                self._entry(name, params, mapping(entry.get("model_info")))
        if not self.lines:
            raise BadRequest("no entry of its `model_list` could be carried over: " + "; ".join(self.left))
        fallback = self._fallbacks()
        for name, params in routers:
            self._router(name, params, fallback)
        for name in sorted(self.falling & set(self.named)):
            self._add(name, "its own group, and where that cannot serve another.", self.named[name], None, fallback)
        self._aliases(fallback)
        self._default(fallback)
        self._settings()
        return Draft(
            about=(
                "Groups and the deployments that serve them, carried over from a LiteLLM configuration by `init`.",
                "Clients may ask for a group by its name, as they asked LiteLLM for a `model_name`.",
            ),
            deployments=tuple(self.lines),
            groups=self.groups,
            policies=tuple(self.policies),
            store=self._store(),
            left=tuple(dict.fromkeys(self.left)),
            variables=tuple(sorted(self.variables)),
        )

    # --- deployments ---

    def _entry(self, name: str, params: dict[str, Any], info: dict[str, Any]) -> None:
        model = text(params.get("model"))
        if not name or not model or "*" in name + model:
            self.left.append(f"`{name or model}`: a wildcard; name the models that are to be served")
            return
        # A group that is asked for by its name has no fallback: only a policy has. So the policy takes the name.
        wanted = _group_name(name) + (".group" if name in self.falling else "")
        group = self.named.setdefault(name, wanted if name in self.named else first.unused(wanted, list(self.groups)))
        deployment = first.unused(
            f"{slug(group)}-{len(self.groups.get(group, ())) + 1}", [one.name for one in self.lines]
        )
        self.groups[group] = (*self.groups.get(group, ()), deployment)
        if group != wanted or _group_name(name) != name:
            self.left.append(f"`{name}`: is the group `{group}`, since a name here has no such characters")
        keys = self._where(name, model, params, deployment) | self._limits(params, info)
        if text(info.get("mode")) == "embedding" and keys["upstream"] == "openai":
            keys["dialects"] = ["embeddings"]
        self.lines.append(Line(name=deployment, keys=keys))
        known = _UNDERSTOOD | set(_LITELLMS_OWN)
        for key, value in params.items():
            if key in ("rpm", "tpm", "weight"):
                self.left.append(
                    f"`{key}`: load is balanced by what is in flight and waits; for a limit set max_in_flight"
                )
            elif key not in known and not _SECRET.search(key):
                shown = f" ({value})" if isinstance(value, int | float) else ""
                self.left.append(
                    f"`{name}`: `{key}`{shown} was a default that clients override; under `set` it would always hold"
                )

    def _where(self, name: str, model: str, params: dict[str, Any], deployment: str) -> dict[str, Any]:
        """Upstream, address, model and key."""
        prefix, _, rest = model.partition("/")
        if not rest:
            prefix, rest = ("anthropic" if model.startswith("claude") else "openai"), model
        base = self._value(params.get("api_base") or params.get("base_url")).rstrip("/")
        if prefix not in COMPATIBLE or not (base or COMPATIBLE[prefix]):
            keys: dict[str, Any] = {"upstream": "litellm", "model": model}
            if base:
                keys["base_url"] = base
            options = {key: self._value(params[key]) for key in _LITELLMS_OWN if key in params}
            keys |= self._key(params, deployment, "")
            self.left.append(f"`{name}`: `{prefix}` is called through litellm: pip install 'pointsman[litellm]'")
            for key in (key for key in params if _SECRET.search(key) and key != "api_key"):
                options[key] = f"${{{self._variable(deployment, key)}}}"
                self.left.append(f"`{name}`: `{key}` is read from {options[key]}")
            return keys | ({"options": options} if options else {})
        if base and prefix in _NO_V1 and not base.endswith("/v1"):
            base = f"{base}/v1"
        keys = {"upstream": "openai", "base_url": base or COMPATIBLE[prefix], "model": rest}
        usual = PROVIDERS[prefix].variables[0] if prefix in PROVIDERS and not base else ""
        keys |= self._key(params, deployment, usual)
        if prefix == "anthropic":
            keys["dialects"] = ["messages"]
        return keys

    def _key(self, params: dict[str, Any], deployment: str, usual: str) -> dict[str, str]:
        given = params.get("api_key")
        if given is None:
            if usual:
                self.variables.add(usual)
            return {"api_key": f"${{{usual}}}"} if usual else {}
        if found := _ENVIRON.fullmatch(str(given).strip()):
            self.variables.add(found[1])
            return {"api_key": f"${{{found[1]}}}"}
        if str(given).lower() in ("", "none", "dummy", "empty", "sk-none"):
            return {}
        variable = self._variable(deployment, "key")
        self.left.append(f"a key stands in the file; it is not copied: put it into the variable {variable}")
        return {"api_key": f"${{{variable}}}"}

    def _variable(self, deployment: str, key: str) -> str:
        name = re.sub(r"[^A-Z0-9]+", "_", f"{deployment}_{key}".upper()).strip("_")
        self.variables.add(name if not name[0].isdigit() else f"KEY_{name}")
        return name if not name[0].isdigit() else f"KEY_{name}"

    def _value(self, value: Any) -> str:
        """A value with `os.environ/NAME` as `${NAME}`."""
        shown = "" if value is None else str(value)
        self.variables.update(_ENVIRON.findall(shown))
        return _ENVIRON.sub(r"${\1}", shown)

    def _limits(self, params: dict[str, Any], info: dict[str, Any]) -> dict[str, Any]:
        keys: dict[str, Any] = {}
        price = {
            ours: round(float(value) * 1e6, 6)
            for ours, theirs in (
                ("input", "input_cost_per_token"),
                ("output", "output_cost_per_token"),
                ("cached", "cache_read_input_token_cost"),
            )
            if (value := _number(params.get(theirs, info.get(theirs)))) is not None
        }
        if "input" in price or "output" in price:
            keys["price"] = price
        if window := count(info.get("max_input_tokens")):
            keys["context_window"] = window
        if most := count(params.get("max_parallel_requests")):
            keys["max_in_flight"] = most
        timeouts = {
            ours: value
            for ours, theirs in (("total_s", "timeout"), ("first_byte_s", "stream_timeout"))
            if (value := _number(params.get(theirs))) is not None and value > 0
        }
        return keys | ({"timeouts": timeouts} if timeouts else {})

    # --- policies ---

    def _fallbacks(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for one in objects(self.settings.get("fallbacks")):
            for name, others in one.items():
                self._fall_back(found, name, _names(others))
        general = _names(self.settings.get("default_fallbacks"))
        for name in self.named if general else ():
            self._fall_back(found, name, general)
        if self.settings.get("context_window_fallbacks"):
            self.left.append(
                "`context_window_fallbacks`: give each deployment its context_window and the group a fallback; prompts "
                "that are too long then go there"
            )
        if self.settings.get("content_policy_fallbacks"):
            self.left.append("`content_policy_fallbacks`: an answer that a provider refuses is not asked for elsewhere")
        return found

    def _fall_back(self, found: dict[str, tuple[str, ...]], name: str, others: Sequence[str]) -> None:
        known = [self.named[other] for other in others if other in self.named and other != name]
        self.left += [f"`fallbacks`: `{other}` is not in the model_list" for other in others if other not in self.named]
        if name in self.named and known:
            group = self.named[name]
            found[group] = tuple(dict.fromkeys((*found.get(group, ()), *known)))

    def _router(self, name: str, params: dict[str, Any], fallback: Mapping[str, tuple[str, ...]]) -> None:
        """A complexity router: four tiers of difficulty are bands of our score."""
        tiers = mapping(mapping(params.get("complexity_router_config")).get("tiers"))
        said = [tiers.get(tier) for tier in _TIERS]
        names = [text(one) or text(mapping(one).get("model")) for one in said]
        groups = [self.named[one] for one in names if one in self.named]
        if not groups:
            self.left.append(f"`{name}`: routers other than the complexity router choose by topic; write routes for it")
            return
        parted = list(dict.fromkeys(groups))
        edges = tuple(round((at + 1) / len(parted), 2) for at in range(len(parted) - 1))
        bands = Bands(groups=tuple(parted), edges=edges) if edges else None
        default = self.named.get(text(params.get("complexity_router_default_model")), parted[-1])
        self._add(
            name,
            f"carried over from the complexity router `{name}`, with the shipped scorer.",
            default,
            bands,
            fallback,
        )
        self.left.append(
            f"`{name}`: its tiers are bands of the shipped scorer, evenly spaced; `pointsman eval` tells better edges"
        )

    def _aliases(self, fallback: Mapping[str, tuple[str, ...]]) -> None:
        for alias, target in mapping(self.settings.get("model_group_alias")).items():
            named = text(target) or text(mapping(target).get("model"))
            if named in self.named and alias not in self.groups:
                self._add(alias, f"`{alias}` is another name for `{named}`.", self.named[named], None, fallback)
            else:
                self.left.append(f"`model_group_alias`: `{alias}` leads to no model of the model_list")

    def _default(self, fallback: Mapping[str, tuple[str, ...]]) -> None:
        """`auto`, for clients that leave the choice to the gateway."""
        if "auto" in self.groups or any("auto" in policy.models for policy in self.policies):
            return
        talking = [name for name in self.named if sizes.chats(name) and not self._embeds(self.named[name])]
        ordered = sorted(talking or self.named, key=lambda name: sizes.guess(name, self._model(name)))
        small, large = self.named[ordered[0]], self.named[ordered[-1]]
        bands = Bands(groups=(small, large), edges=(0.5,)) if small != large else None
        about = (
            f"easy prompts to `{small}`, hard ones to `{large}`, a guess from their names; put others in their place."
        )
        self._add("auto", about if bands else "everything to the one group that there is.", large, bands, fallback)

    def _add(
        self, name: str, about: str, default: str, bands: Bands | None, fallback: Mapping[str, tuple[str, ...]]
    ) -> None:
        reached = {default, *(bands.groups if bands else ())}
        self.policies.append(
            PolicyDraft(
                name=first.unused(slug(name), [policy.name for policy in self.policies]),
                models=(_group_name(name),),
                default=default,
                about=f"The policy behind the model name `{name}`: {about}",
                bands=bands,
                fallback={group: others for group, others in fallback.items() if group in reached},
                examples=examples_of(bands, default) if bands else (f"{{expect: {{group: {flow(default)}}}}}",),
            )
        )

    def _embeds(self, group: str) -> bool:
        return any(
            line.keys.get("dialects") == ["embeddings"] for line in self.lines if line.name in self.groups[group]
        )

    def _model(self, name: str) -> str:
        member = self.groups[self.named[name]][0]
        return next(text(line.keys.get("model")) for line in self.lines if line.name == member)

    # --- settings ---

    def _store(self) -> str:
        host = self._value(self.settings.get("redis_host"))
        if not host:
            return ""
        password = self._value(self.settings.get("redis_password"))
        if password and "${" not in password:
            password = "${REDIS_PASSWORD}"  # noqa: S105  a variable
            self.variables.add("REDIS_PASSWORD")
            self.left.append("`redis_password`: it is not copied: put it into the variable REDIS_PASSWORD")
        port = self._value(self.settings.get("redis_port")) or "6379"
        return f"redis://{f':{password}@' if password else ''}{host}:{port}/0"

    def _settings(self) -> None:
        carried = {"fallbacks", "default_fallbacks", "context_window_fallbacks", "content_policy_fallbacks"}
        carried |= {"model_group_alias", "redis_host", "redis_port", "redis_password"}
        self.left += [f"`{key}`: {why}" for key, why in _SETTINGS.items() if key in self.settings]
        others = sorted(set(self.settings) - carried - set(_SETTINGS))
        self.left += [f"`{key}`: has no counterpart here" for key in others]
        general = mapping(self.data.get("general_settings"))
        if "master_key" in general or "database_url" in general:
            self.left.append("`master_key` and virtual keys: `pointsman keys create` makes keys, with limits for each")
        self.left += [
            f"`general_settings.{key}`: has no counterpart here"
            for key in sorted(set(general) - {"master_key", "database_url"})
        ]
        if self.data.get("environment_variables"):
            self.left.append("`environment_variables`: set them where the gateway is started; files hold only names")


_SETTINGS: Final[Mapping[str, str]] = {
    "num_retries": "another deployment is tried, within a budget; there is no number to set",
    "request_timeout": "set `timeouts` of a deployment: connect_s, first_byte_s, idle_s, total_s",
    "timeout": "set `timeouts` of a deployment: connect_s, first_byte_s, idle_s, total_s",
    "allowed_fails": "a deployment that fails is left out by itself, for growing times",
    "cooldown_time": "a deployment that fails is left out by itself, for growing times",
    "routing_strategy": "of a group's deployments the least busy one is tried first",
    "drop_params": "fields that a translation cannot carry are left out and listed in x-pointsman-dropped",
    "success_callback": "every request leaves a record: docs/operating.md, Records",
    "failure_callback": "every request leaves a record: docs/operating.md, Records",
    "callbacks": "every request leaves a record: docs/operating.md, Records",
    "cache": "answers are not kept",
}


def _group_name(name: str) -> str:
    """A model name as a group's name, which may hold `. _ : / @ + -`."""
    return re.sub(r"[^A-Za-z0-9._:/@+-]+", "-", name).lstrip("._:/@+-")[:128] or "model"


def _names(value: Any) -> list[str]:
    return [str(one) for one in value] if is_array(value) else []


def _number(value: Any) -> float | None:
    try:
        return float(value) if value is not None and not isinstance(value, bool) else None
    except (TypeError, ValueError):
        return None
