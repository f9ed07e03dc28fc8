"""One call through a gateway on behalf of the evals: the client, what is tried again and when, and what is read of
an answer. Which calls are made is not decided here.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Annotated, Any

import httpx
import msgspec
from msgspec import Struct

KEY_VARIABLE = "POINTSMAN_API_KEY"  # sent as a bearer token where the gateway asks for keys
_AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_STOP = frozenset({401, 403, 404})  # the next row would fare no better
_LONGEST_WAIT_S = 600.0  # a server that asks for more is not waited for


class Answer(Struct, frozen=True, kw_only=True):
    """One model's answer to one row."""

    row: int
    model: str
    text: str
    input: int  # tokens
    output: int
    estimated: bool = False  # the tokens are, from lengths
    cut: bool = False  # at the token limit


class Stopped(Exception):
    """Nothing further can be asked; what there is stays."""


class Failed(Exception):
    """One call gave no answer."""


def client(url: str, timeout_s: float, connections: int) -> httpx.AsyncClient:
    """A client of the gateway at `url`, with or without its /v1."""
    bare = url.rstrip("/")
    if not bare.startswith(("http://", "https://")):
        raise Stopped(f"--url wants an address such as http://127.0.0.1:8080, not {url!r}")
    key = os.environ.get(KEY_VARIABLE)
    return httpx.AsyncClient(
        base_url=bare if bare.endswith("/v1") else bare + "/v1",
        headers={"authorization": f"Bearer {key}"} if key else {},
        timeout=timeout_s,
        limits=httpx.Limits(max_connections=connections),
        trust_env=False,
    )


class Asker:
    """Calls through the gateway: again after what may pass, and not before a server's Retry-After."""

    def __init__(self, client: httpx.AsyncClient, tries: int) -> None:
        self.client = client
        self.tries = tries
        self._not_before: dict[str, float] = {}  # by model, monotonic

    async def knows(self, models: Sequence[str]) -> None:
        """Raises `Stopped` where the gateway is not there or does not know one of the models."""
        url = self.client.base_url
        try:
            reply = await self.client.get("/models")
        except httpx.TransportError as e:
            raise Stopped(f"no gateway answers at {url}: {e}") from e
        if reply.status_code != 200:
            raise Stopped(f"{url} answered {reply.status_code} for its models: {_message(reply)}")
        try:
            there = [str(m["id"]) for m in reply.json()["data"]]
        except (ValueError, KeyError, TypeError) as e:
            raise Stopped(f"{url} does not list its models; is it a gateway?") from e
        for model in models:
            if model not in there:
                raise Stopped(f"the gateway has no model {model!r}; it has {', '.join(there[:20])}")

    async def ask(self, model: str, messages: Sequence[Mapping[str, str]], fields: Mapping[str, Any]) -> bytes:
        """The body of a whole answer. Raises `Failed` for this call alone and `Stopped` for all."""
        body = {**fields, "model": model, "messages": list(messages)}
        told = ""
        for attempt in range(self.tries):
            await self._pause(model)
            try:
                reply = await self.client.post("/chat/completions", json=body)
            except httpx.TransportError as e:
                told, wait = f"{type(e).__name__} {e}".strip(), min(30.0, 0.5 * 2**attempt)
            else:
                if reply.status_code == 200:
                    return reply.content
                told = f"{reply.status_code} {_message(reply)}"
                if reply.status_code in _STOP:
                    raise Stopped(f"{model}: {told}")
                if reply.status_code not in _AGAIN:
                    raise Failed(told)
                wait = max(retry_after(reply.headers) or 0.0, min(30.0, 0.5 * 2**attempt))
            if wait > _LONGEST_WAIT_S:
                raise Stopped(f"{model}: {told}; it asks to wait {wait:.0f} s")
            self._not_before[model] = max(self._not_before.get(model, 0.0), time.monotonic() + wait)
        raise Failed(told)

    async def _pause(self, model: str) -> None:
        """Until the model may be asked again; other calls may put that off meanwhile."""
        wait = self._not_before.get(model, 0.0) - time.monotonic()
        if wait > 0:
            await asyncio.sleep(wait)
            await self._pause(model)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds from a Retry-After header: a number or a date; None where there is none that can be read."""
    said = headers.get("retry-after", "").strip()
    try:
        return max(0.0, float(said))
    except ValueError:
        pass
    try:
        at = parsedate_to_datetime(said)
    except ValueError:
        return None
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return max(0.0, (at - datetime.now(UTC)).total_seconds())


def _message(reply: httpx.Response) -> str:
    try:
        return str(reply.json()["error"]["message"])[:300]
    except (ValueError, KeyError, TypeError):
        return reply.text[:300]


class _Message(Struct):
    content: str | None = None


class _Choice(Struct):
    message: _Message
    finish_reason: str | None = None


class _Usage(Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Completion(Struct):
    choices: Annotated[list[_Choice], msgspec.Meta(min_length=1)]
    usage: _Usage | None = None


_completion = msgspec.json.Decoder(_Completion).decode


def read_answer(row: int, model: str, body: bytes, asked: int) -> Answer:
    """An answer from a chat completion; `asked` is the request's length in characters. Raises `Failed`."""
    try:
        read = _completion(body)
    except msgspec.MsgspecError as e:
        raise Failed(f"the answer is no chat completion: {e}") from e
    first = read.choices[0]
    text, usage = first.message.content or "", read.usage or _Usage()
    estimated = not usage.prompt_tokens or usage.completion_tokens is None
    return Answer(
        row=row,
        model=model,
        text=text,
        input=usage.prompt_tokens or asked // 4,
        output=len(text) // 4 if usage.completion_tokens is None else usage.completion_tokens,
        estimated=estimated,
        cut=first.finish_reason == "length",
    )
