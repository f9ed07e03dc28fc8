"""The `litellm` upstream: providers whose APIs are not OpenAI's, through the litellm library.

The client's body is never handed on as arguments (CVE-2024-6587): what goes to litellm is built from the two lists
here, so that addresses, keys and headers come from the configuration alone. litellm takes 200 MB and seconds to
import, so that happens at the start of the first deployment that needs it. `options` of the deployment: `OPTIONS`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from importlib import import_module
from typing import Any, Protocol

from msgspec.json import decode, encode

from router.config import Deployment
from router.errors import BadAnswer, CannotStart, ConnectFailed, UpstreamError, UpstreamStatus
from router.seams import Call, Reply
from router.wire.loose import is_object, mapping, objects, text

# Fields of a chat body that litellm takes as arguments of the same meaning. `metadata` is not one: litellm reads
# settings of its own from it.
FIELDS = frozenset(
    (
        *("messages", "tools", "tool_choice", "parallel_tool_calls", "functions", "function_call"),
        *("temperature", "top_p", "n", "stop", "seed", "max_tokens", "max_completion_tokens"),
        *("presence_penalty", "frequency_penalty", "logit_bias", "logprobs", "top_logprobs"),
        *("response_format", "reasoning_effort", "verbosity", "modalities", "audio", "prediction"),
        *("stream", "stream_options", "user", "service_tier", "web_search_options"),
        *("safety_identifier", "prompt_cache_key", "store"),
    )
)
OPTIONS = frozenset(
    (
        *("api_version", "custom_llm_provider", "drop_params", "organization"),
        *("aws_region_name", "aws_access_key_id", "aws_secret_access_key", "aws_session_token", "aws_profile_name"),
        *("aws_role_name", "aws_session_name", "aws_bedrock_runtime_endpoint"),
        *("vertex_project", "vertex_location", "vertex_credentials"),
    )
)
_JSON = {"content-type": "application/json"}
_SSE = {"content-type": "text/event-stream"}


def unsaid(body: bytes) -> tuple[str, ...]:
    """Fields of a chat body that litellm is not given."""
    return tuple([name for name in mapping(decode(body)) if name not in FIELDS and name != "model"])


class LitellmUpstream:
    """Calls one deployment through litellm; `seams.Upstream`."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self._litellm: Any = None

    async def start(self) -> None:
        unknown = sorted(set(self.deployment.options) - OPTIONS)
        if unknown:
            raise CannotStart(f"litellm has no option {unknown[0]}; it has {', '.join(sorted(OPTIONS))}")
        if self.deployment.dialects != ("chat",):
            raise CannotStart("litellm is asked in the chat dialect; leave `dialects` out, the others are translated")
        self._litellm = await asyncio.to_thread(_imported)

    async def wait_ready(self, timeout_s: float) -> None:
        """A provider is not ours to wait for."""

    async def open(self, call: Call) -> Reply:
        litellm = self._litellm
        if litellm is None:
            raise ConnectFailed("the deployment has not started")
        try:
            answer = await litellm.acompletion(**self._arguments(call))
            if not call.stream:
                return Ready(200, _JSON, encode(_answer(answer.model_dump(exclude_none=True, warnings=False))))
            stream = Stream(answer)
            await stream.begin()  # some providers are called only now, and their status is the answer's
            return stream
        except UpstreamError:
            raise
        except Exception as error:  # noqa: BLE001  the seam to litellm: every fault of a provider leaves as ours
            return _refusal(error)

    def _arguments(self, call: Call) -> dict[str, Any]:
        body: Any = decode(call.body)
        said = {name: value for name, value in body.items() if name in FIELDS and value is not None}
        _refuse_remote(said)
        own: dict[str, Any] = {
            "model": self.deployment.model,
            "timeout": self.deployment.timeouts.total_s,
            "max_retries": 0,  # the gateway alone retries (L02)
            "num_retries": 0,
            **self.deployment.options,
        }
        if self.deployment.api_key not in ("", "none"):
            own["api_key"] = self.deployment.api_key
        if self.deployment.base_url:
            own["api_base"] = self.deployment.base_url
        return said | own

    async def aclose(self) -> None:
        self._litellm = None


class Chunks(Protocol):
    """litellm's stream."""

    def __aiter__(self) -> AsyncIterator[Any]: ...

    async def aclose(self) -> None: ...


class Ready:
    """An answer that is whole already; `seams.Reply`."""

    ended = False

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self._body = body

    def whole(self) -> None:
        return None

    def pour(self, take: Callable[[bytes], bool]) -> None:
        return None

    async def read(self) -> bytes:
        body, self._body = self._body, b""
        return body

    async def aclose(self) -> None:
        self._body = b""


class Stream:
    """litellm's chunks as the events of a chat stream; `seams.Reply`."""

    ended = False

    status = 200
    headers: Mapping[str, str] = _SSE

    def __init__(self, chunks: Chunks) -> None:
        self._chunks = chunks
        self._iterator = chunks.__aiter__()
        self._first: bytes | None = None
        self._ended = False

    async def begin(self) -> None:
        self._first = await self._next()

    def whole(self) -> None:
        return None

    def pour(self, take: Callable[[bytes], bool]) -> None:
        return None

    async def read(self) -> bytes:
        if self._first is not None:
            first, self._first = self._first, None
            return first
        if self._ended:
            return b""
        try:
            return await self._next()
        except UpstreamError:
            raise
        except Exception as error:  # noqa: BLE001  the seam to litellm
            refused = _refusal(error)
            raise UpstreamStatus(refused.status, refused.headers, await refused.read(), retry_after_s=None) from None

    async def _next(self) -> bytes:
        try:
            chunk = await self._iterator.__anext__()
        except StopAsyncIteration:
            self._ended = True
            return b"data: [DONE]\n\n"
        return b"data: %b\n\n" % encode(_event(chunk.model_dump(exclude_none=True, warnings=False)))

    async def aclose(self) -> None:
        self._ended = True
        await self._chunks.aclose()


def _answer(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer with the fields that OpenAI's API always has."""
    choices = [
        {"logprobs": None, **choice, "message": {"content": None, "refusal": None, **mapping(choice.get("message"))}}
        for choice in objects(answer.get("choices"))
    ]
    return {**answer, "choices": choices}


def _event(chunk: dict[str, Any]) -> dict[str, Any]:
    """A chunk as OpenAI's API has it: a finish reason always, and usage beside no choice (S12)."""
    choices = [{"finish_reason": None, **choice} for choice in objects(chunk.get("choices"))]
    if "usage" in chunk and not any(choice.get("delta") or choice["finish_reason"] for choice in choices):
        choices = []
    return {**chunk, "choices": choices}


def _imported() -> Any:
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else it fetches prices from the net
    try:
        litellm: Any = import_module("litellm")
    except ImportError:
        raise CannotStart("litellm is not installed; pip install 'pointsman[litellm]'") from None
    litellm.suppress_debug_info = True
    return litellm


def _refuse_remote(said: Mapping[str, Any]) -> None:
    """litellm itself fetches remote images and files for providers that take none, from wherever a client says."""
    for message in objects(said.get("messages")):
        for part in objects(message.get("content")):
            kind = text(part.get("type"))
            if kind == "text" or not any(_remote(value) for value in part.values()):
                continue
            what = kind if kind.isidentifier() else "part"
            told = f"a remote {what} cannot be sent to this model; send its data"
            error = {"message": told, "type": "invalid_request_error", "param": "messages", "code": "remote_media"}
            raise UpstreamStatus(400, {}, encode({"error": error}), retry_after_s=None)


def _remote(value: Any) -> bool:
    places = [mapping(value).get(key) for key in ("url", "file_id", "file_data")] if is_object(value) else [value]
    return any("://" in text(place)[:64] for place in places)


def _refusal(error: Exception) -> Ready:
    """A provider's error as the answer that an OpenAI-compatible server would give, or an error of ours."""
    error = getattr(error, "original_exception", None) or error  # of a stream that failed at its first read
    status = getattr(error, "status_code", None)
    kind = type(error).__name__
    if kind in ("APIConnectionError", "Timeout") or not isinstance(status, int):
        raise ConnectFailed(f"the provider could not be reached ({kind})") from None
    if not 400 <= status <= 599:
        raise BadAnswer(f"litellm could not read the provider's answer ({kind})") from None
    code = "context_length_exceeded" if kind == "ContextWindowExceededError" else None
    told = {"message": text(getattr(error, "message", "")), "type": kind, "param": None, "code": code}
    headers: Mapping[str, str] = getattr(error, "litellm_response_headers", None) or {}
    kept = {name.lower(): value for name, value in headers.items() if name.lower().startswith("retry-after")}
    return Ready(status, {**_JSON, **kept}, encode({"error": told}))
