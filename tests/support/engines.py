"""Servers that answer as the documentation of an engine or a provider says it does, over real sockets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from router.upstreams.scripts import JSON, Head, Script, Seen, Send, chat_answer, status


def answering(paths: Mapping[str, Any], key: str = "") -> Script:
    """JSON (or text) by path, 404 elsewhere, chat requests answered; 401 without `key` where there is one."""

    def script(seen: Seen) -> Any:
        path = seen.path.partition("?")[0]
        if key and key not in (seen.headers.get("authorization", "")[7:], seen.headers.get("x-api-key")):
            return status(401, message="Incorrect API key provided")
        if path.endswith("/chat/completions"):
            return chat_answer(f"I am {seen.json()['model']}.")
        said = paths.get(path)
        if said is None:
            return status(404)
        if isinstance(said, str):
            return [Head(200, {"content-type": "text/plain"}), Send(said.encode())]
        return [Head(200, JSON), Send(json.dumps(said).encode())]

    return script


def listing(*models: Mapping[str, Any], owner: str) -> dict[str, Any]:
    whole = [{"object": "model", "created": 1764000000, "owned_by": owner, **model} for model in models]
    return {"object": "list", "data": whole}


def _tag(name: str, size: str, family: str = "llama") -> dict[str, Any]:
    details = {"format": "gguf", "family": family, "parameter_size": size, "quantization_level": "Q4_K_M"}
    return {"name": name, "model": name, "size": 2019393189, "digest": "a80c4f17acd5", "details": details}


# docs.ollama.com/api/tags
OLLAMA = {
    "/v1/models": listing(
        *({"id": name} for name in ("llama3.2:1b", "qwen3:8b", "nomic-embed-text:latest", "gemma3:latest")),
        owner="library",
    ),
    "/api/tags": {
        "models": [
            _tag("llama3.2:1b", "1.2B"),
            _tag("qwen3:8b", "8.2B", "qwen3"),
            _tag("nomic-embed-text:latest", "137M", "nomic-bert"),
            _tag("gemma3:latest", "4.3B", "gemma3"),
        ]
    },
}
# lmstudio.ai/docs/developer/rest/endpoints
LM_STUDIO = {
    "/v1/models": listing({"id": "qwen2-vl-7b-instruct"}, {"id": "qwen3-32b"}, owner="organization_owner"),
    "/api/v0/models": {
        "object": "list",
        "data": [
            {"id": "qwen2-vl-7b-instruct", "object": "model", "type": "vlm", "arch": "qwen2_vl", "state": "not-loaded"},
            {
                "id": "qwen3-32b",
                "object": "model",
                "type": "llm",
                "state": "loaded",
                "max_context_length": 131072,
                "loaded_context_length": 16384,
            },
            {"id": "text-embedding-nomic-embed-text-v1.5", "object": "model", "type": "embeddings"},
        ],
    },
}
# llama.cpp, tools/server/README.md
LLAMACPP = {
    "/v1/models": listing(
        {
            "id": "../models/Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf",
            "meta": {"n_ctx_train": 131072, "n_params": 8030261312},
        },
        owner="llamacpp",
    ),
    "/props": {
        "default_generation_settings": {"n_ctx": 8192},
        "total_slots": 1,
        "modalities": {"vision": False, "audio": False},
    },
    "/health": {"status": "ok"},
}
VLLM = {
    "/v1/models": listing(
        {"id": "Qwen/Qwen3-235B-A22B", "root": "Qwen/Qwen3-235B-A22B", "parent": None, "max_model_len": 40960},
        {"id": "sql-lora", "root": "/adapters/sql", "parent": "Qwen/Qwen3-235B-A22B", "max_model_len": None},
        owner="vllm",
    ),
    "/health": "",
    "/metrics": "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 0\n",
}
SGLANG = {
    "/v1/models": listing(
        {"id": "openai/gpt-oss-120b", "root": "openai/gpt-oss-120b", "max_model_len": 131072}, owner="sglang"
    ),
    "/health": "",
}
OPENAI = {
    "/v1/models": listing(
        *({"id": name} for name in ("gpt-4o-mini", "gpt-5.6", "gpt-5.6-sol", "gpt-5.6-pro", "gpt-5.6-luna")),
        *({"id": name} for name in ("gpt-5-mini", "gpt-5.6-sol-2026-07-02", "text-embedding-3-large", "whisper-1")),
        *({"id": name} for name in ("gpt-image-1", "gpt-5.1-codex-max", "gpt-4o-realtime-preview", "o3")),
        owner="system",
    )
}
ANTHROPIC = {
    "/v1/models": {
        "data": [
            {"type": "model", "id": name, "display_name": name, "created_at": "2026-02-19T00:00:00Z"}
            for name in ("claude-opus-4-7", "claude-sonnet-5", "claude-haiku-4-5-20251001", "claude-3-haiku-20240307")
        ],
        "has_more": False,
        "first_id": "claude-opus-4-7",
        "last_id": "claude-3-haiku-20240307",
    }
}
