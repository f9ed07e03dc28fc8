"""Who is asked for models: local engines on their usual ports, servers that were named, and providers whose key is in
the environment. Nothing is generated and nothing is paid: each is asked for its list of models, and what it says of
itself. A place that does not answer as it should is not an error here, but a `Place` that says what is wrong.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
from msgspec import Struct

from router.starter import sizes
from router.starter.asked import Asked
from router.starter.found import Model, Place
from router.wire.loose import count, mapping, objects, text

OURS: Final = "pointsman"
_NEAR_S, _FAR_S = 1.5, 8.0


class Engine(Struct, frozen=True, kw_only=True):
    """A server of models on one's own machine, and the ports that it is usually found on."""

    title: str
    ports: tuple[int, ...]


class Provider(Struct, frozen=True, kw_only=True):
    """Somebody's API. `variables`: where its key is usually kept; `base`: the one that moves its address."""

    title: str
    variables: tuple[str, ...]
    base_url: str
    base: str = ""
    dialects: tuple[str, ...] = ()


ENGINES: Final[Mapping[str, Engine]] = {
    "ollama": Engine(title="Ollama", ports=(11434,)),
    "lmstudio": Engine(title="LM Studio", ports=(1234,)),
    "llamacpp": Engine(title="llama-server", ports=(8080, 8081, 8082)),
    "vllm": Engine(title="vLLM", ports=(8000, 8001)),
    "sglang": Engine(title="SGLang", ports=(30000,)),
}
# In this order they are preferred for the large group.
PROVIDERS: Final[Mapping[str, Provider]] = {
    "anthropic": Provider(
        title="Anthropic",
        variables=("ANTHROPIC_API_KEY",),
        base_url="https://api.anthropic.com/v1",
        base="ANTHROPIC_BASE_URL",
        dialects=("messages",),
    ),
    "openai": Provider(
        title="OpenAI",
        variables=("OPENAI_API_KEY",),
        base_url="https://api.openai.com/v1",
        base="OPENAI_BASE_URL",
        dialects=("chat", "responses"),
    ),
    "gemini": Provider(
        title="Google Gemini",
        variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        base_url="https://generativelanguage.googleapis.com/v1beta/openai",
    ),
    "mistral": Provider(title="Mistral", variables=("MISTRAL_API_KEY",), base_url="https://api.mistral.ai/v1"),
    "deepseek": Provider(title="DeepSeek", variables=("DEEPSEEK_API_KEY",), base_url="https://api.deepseek.com/v1"),
    "xai": Provider(title="xAI", variables=("XAI_API_KEY",), base_url="https://api.x.ai/v1"),
    "openrouter": Provider(
        title="OpenRouter", variables=("OPENROUTER_API_KEY",), base_url="https://openrouter.ai/api/v1"
    ),
    "groq": Provider(title="Groq", variables=("GROQ_API_KEY",), base_url="https://api.groq.com/openai/v1"),
    "together": Provider(title="Together", variables=("TOGETHER_API_KEY",), base_url="https://api.together.xyz/v1"),
    "cerebras": Provider(title="Cerebras", variables=("CEREBRAS_API_KEY",), base_url="https://api.cerebras.ai/v1"),
}


def look(
    host: str, urls: Iterable[str] = (), environ: Mapping[str, str] = os.environ, providers: bool = True
) -> list[Place]:
    """Everything that answers: on the usual ports of `host` and where OLLAMA_HOST says, at `urls`, and the providers
    whose key is in `environ`.

    A url may end in `#NAME`, the variable that holds its key.
    """
    return asyncio.run(_look(host, list(urls), environ, providers))


async def _look(host: str, urls: list[str], environ: Mapping[str, str], providers: bool) -> list[Place]:
    # No proxy: the gateway calls deployments directly, so what only a proxy reaches is of no use to it.
    async with httpx.AsyncClient(trust_env=False, follow_redirects=False) as client:
        ports = [port for engine in ENGINES.values() for port in engine.ports] if host else []
        origins = [f"http://{host}:{port}" for port in ports]
        if host and (told := environ.get("OLLAMA_HOST", "").strip()):
            origins.append(_ollama_at(told, host))
        near = [_engine(client, origin, "", environ, named=False) for origin in dict.fromkeys(origins)]
        named = [_engine(client, *_parted(url), environ, named=True) for url in urls]
        far = [
            _provider(client, kind, provider, name, environ)
            for kind, provider in (PROVIDERS.items() if providers else ())
            if (name := next((one for one in provider.variables if environ.get(one)), ""))
        ]
        found = await asyncio.gather(*near, *named, *far)
    seen: dict[str, Place] = {}
    for place in found:
        if place is not None:
            seen.setdefault(place.base_url, place)
    return list(seen.values())


def _ollama_at(told: str, host: str) -> str:
    """Where OLLAMA_HOST says that Ollama is: a host, a port or both, perhaps with a scheme; Ollama reads it so too.

    An address that it listens on everywhere is reached at `host`.
    """
    scheme, given, rest = told.rpartition("://")
    parts = urlsplit(f"//{rest}")
    try:
        port = parts.port
    except ValueError:
        port = None
    usual = {"http": 80, "https": 443}.get(scheme, 11434) if given else 11434
    name = parts.hostname or "127.0.0.1"
    name = host if name in ("0.0.0.0", "::") else name  # noqa: S104
    return f"{scheme or 'http'}://{f'[{name}]' if ':' in name else name}:{port or usual}"


def _parted(url: str) -> tuple[str, str]:
    """A server's origin, and the variable of its key: ("http://host:8000", "KEY") for http://host:8000/v1#KEY."""
    address, _, variable = url.partition("#")
    return address.rstrip("/").removesuffix("/v1"), variable


# --- engines ---------------------------------------------------------------------------------------------


async def _engine(
    client: httpx.AsyncClient, origin: str, variable: str, environ: Mapping[str, str], *, named: bool
) -> Place | None:
    """What serves models there; None where nothing does, unless somebody `named` it."""
    asked = Asked(client, origin, environ.get(variable, ""), _FAR_S if named else _NEAR_S)
    base_url = f"{origin}/v1"
    said = await asked.json("/v1/models")
    listed = objects(mapping(said).get("data"))
    if not listed:
        if asked.status in (401, 403):
            wrong = f"asks for a key; name its variable: --url '{origin}/v1#NAME'"
            return Place(kind="server", title="a server", base_url=base_url, variable=variable, wrong=wrong)
        why = asked.wrong or f"answers GET /v1/models with {asked.status} and no list of models"
        return (
            Place(kind="server", title="a server", base_url=base_url, variable=variable, wrong=why)
            if named or said is not None
            else None
        )
    owner = text(listed[0].get("owned_by"))
    if owner == OURS:
        wrong = "is a gateway itself, and left alone"
        return Place(kind=OURS, title="a Pointsman", base_url=base_url, wrong=wrong)
    kind = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llamacpp"}.get(owner, "")
    models, more = [_plain(one) for one in listed if not one.get("parent")], {}
    if kind in ("vllm", "sglang"):
        more = await _watched(asked)
    elif kind == "llamacpp":
        models, more = await _llamacpp(asked, listed), await _watched(asked)
    elif tags := await asked.json("/api/tags"):
        kind, models = "ollama", _ollama(tags)
    elif known := await asked.json("/api/v0/models"):
        kind, models = "lmstudio", _lmstudio(known)
    chatting = tuple(model for model in models if model.name and sizes.chats(model.name))
    wrong = "" if chatting else "serves no model that can chat; load one there"
    title = ENGINES[kind].title if kind else "a server"
    return Place(
        kind=kind or "server",
        title=title,
        base_url=base_url,
        variable=variable,
        models=chatting,
        wrong=wrong,
        more=more,
    )


async def _watched(asked: Asked) -> dict[str, str]:
    """Where a server says how it is, if it does."""
    more: dict[str, str] = {}
    metrics = await asked.get("/metrics")
    if metrics is not None and metrics.status_code == 200 and "# TYPE " in metrics.text:
        more["metrics_url"] = "/metrics"
    if (health := await asked.get("/health")) is not None and health.status_code == 200:
        more["health_url"] = "/health"
    return more


def _plain(said: Mapping[str, Any]) -> Model:
    """A model of an OpenAI-compatible list: vLLM, SGLang, providers."""
    more: dict[str, Any] = {}
    for key in ("max_model_len", "context_length", "context_window", "max_context_length"):
        if window := count(said.get(key)):
            more["context_window"] = window
            break
    price = {
        ours: round(float(theirs) * 1e6, 4)
        for ours, theirs in (
            ("input", mapping(said.get("pricing")).get("prompt")),
            ("output", mapping(said.get("pricing")).get("completion")),
        )
        if isinstance(theirs, str) and theirs.replace(".", "", 1).isdigit()
    }
    if len(price) == 2:
        more["price"] = price
    name = text(said.get("id"))
    return Model(name=name, size_b=sizes.billions(name), created=float(count(said.get("created")) or 0), more=more)


def _ollama(said: Any) -> list[Model]:
    models: list[Model] = []
    for one in objects(mapping(said).get("models")):
        details = mapping(one.get("details"))
        if "bert" in text(details.get("family")):
            continue  # embeddings
        name = text(one.get("model")) or text(one.get("name"))
        told = sizes.billions(text(details.get("parameter_size")))
        models.append(Model(name=name, size_b=told or sizes.billions(name)))
    return models


def _lmstudio(said: Any) -> list[Model]:
    models: list[Model] = []
    for one in objects(mapping(said).get("data")):
        kind, name = text(one.get("type")), text(one.get("id"))
        if kind not in ("llm", "vlm"):
            continue
        more: dict[str, Any] = {"images": False} if kind == "llm" else {}
        if window := count(one.get("loaded_context_length")):
            more["context_window"] = window
        models.append(Model(name=name, size_b=sizes.billions(name), more=more))
    return models


async def _llamacpp(asked: Asked, listed: list[dict[str, Any]]) -> list[Model]:
    """A slot's context and what the model reads are told by /props, for the one model that it has loaded."""
    props = mapping(await asked.json("/props")) if len(listed) == 1 else {}
    models: list[Model] = []
    for one in listed:
        parameters = count(mapping(one.get("meta")).get("n_params"))
        more: dict[str, Any] = {}
        if window := count(mapping(props.get("default_generation_settings")).get("n_ctx")):
            more["context_window"] = window
        if mapping(props.get("modalities")).get("vision") is False:
            more["images"] = False
        name = text(one.get("id"))
        size_b = parameters / 1e9 if parameters else sizes.billions(name)
        models.append(Model(name=name, size_b=size_b, more=more))
    return models


# --- providers -------------------------------------------------------------------------------------------


async def _provider(
    client: httpx.AsyncClient, kind: str, provider: Provider, variable: str, environ: Mapping[str, str]
) -> Place:
    base_url = provider.base_url
    if moved := environ.get(provider.base, "").rstrip("/"):
        base_url = moved if kind != "anthropic" or moved.endswith("/v1") else f"{moved}/v1"
    key = environ[variable].strip()
    asked = Asked(client, base_url, key, _FAR_S)
    special = {"x-api-key": key, "anthropic-version": "2023-06-01"} if kind == "anthropic" else None
    said = await asked.json("/models?limit=1000" if kind == "anthropic" else "/models", special)
    listed = objects(said if isinstance(said, list) else mapping(said).get("data"))
    ours = bool(listed) and text(listed[0].get("owned_by")) == OURS
    models = tuple(
        model for model in (_plain(one) for one in listed) if sizes.chats(model.name) and not _dear(kind, model.name)
    )
    return Place(
        kind=kind,
        title=provider.title,
        base_url=base_url,
        variable=variable,
        dialects=provider.dialects,
        hosted=True,
        models=() if ours else models,
        wrong=_wrong(asked, provider, base_url, environ, ours, bool(models)),
    )


def _dear(kind: str, name: str) -> bool:
    """OpenAI's `pro` models take no chat requests; OpenRouter's `:free` and the like are other offers of the same."""
    said = sizes.words(name).split()
    return (kind == "openai" and "pro" in said) or (kind == "openrouter" and ":" in name)


def _wrong(
    asked: Asked, provider: Provider, base_url: str, environ: Mapping[str, str], ours: bool, models: bool
) -> str:
    host = urlsplit(base_url).netloc
    if ours:
        return f"{provider.base} leads to a Pointsman, and is left alone; unset it to use {provider.title}"
    if asked.status in (401, 403):
        return f"{host} refuses the key; check it, or unset it"
    if asked.wrong:
        proxied = any(environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"))
        hint = "; a proxy is set, and deployments are called without one" if proxied else ""
        return f"{host} {asked.wrong}{hint}"
    if asked.status != 200:
        return f"{host} answers with status {asked.status}"
    return "" if models else f"{host} lists no model that can chat"
