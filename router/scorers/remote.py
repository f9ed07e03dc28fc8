"""The `remote` scorer: asks a model behind any OpenAI-compatible endpoint how hard a prompt is.

One chat completion of one token, scored by the log-probabilities of a closed label set; or, where a server gives
none, a JSON verdict. It has one deadline, a breaker, and no other answer than a score or an abstention.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from router.config import Deployment, Timeouts
from router.errors import PointsmanError, TimedOut
from router.scorers import question
from router.scorers.breaker import Breaker, Reason, guarded
from router.scorers.calibration import Curve
from router.scorers.question import Order
from router.seams import Call
from router.types import Abstain, Prompt, Score
from router.upstreams.openai import OpenAIUpstream

DEADLINE_S = 0.15
TOP = 20  # alternatives asked for; the most that OpenAI's API and vLLM's default allow
JUDGE_TOKENS = 40  # {"p_solve": 0.123} and a model's favourite blanks
ANSWER_LIMIT = 256 * 1024  # bytes read of an answer that should be a few kilobytes

Mode = Literal["logprobs", "json"]
_BAD: frozenset[Reason] = frozenset(("timeout", "error", "overload"))


class Ask(Struct, frozen=True, kw_only=True):
    """What is asked of which endpoint."""

    url: str  # up to and including /v1
    model: str
    api_key: str = "none"
    mode: Mode = "logprobs"
    deadline_s: Annotated[float, Meta(gt=0.0)] = DEADLINE_S
    both_orders: bool = False  # two calls with the labels swapped, against a model's liking for one letter
    no_thinking: bool = True  # tell vLLM and llama.cpp templates not to think; other servers may refuse the field

    def __repr__(self) -> str:
        return f"Ask(url={self.url!r}, model={self.model!r}, mode={self.mode!r})"


class BadVerdict(ValueError):
    """An answer that is no verdict: unreadable, an unknown label, a number out of range."""


class _Refused(Exception):
    """The endpoint answered with an error status."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


class _Alternative(Struct):
    token: str
    logprob: float


class _Place(Struct):
    top_logprobs: list[_Alternative]


class _Logprobs(Struct):
    content: list[_Place]


class _Message(Struct):
    content: str | None = None


class _Choice(Struct):
    message: _Message
    logprobs: _Logprobs | None = None


class _Answer(Struct):
    choices: list[_Choice]


class _Judgement(Struct, forbid_unknown_fields=True):
    p_solve: Annotated[float, Meta(ge=0.0, le=1.0)]


_ANSWER = msgspec.json.Decoder(_Answer)
_JUDGEMENT = msgspec.json.Decoder(_Judgement)
_SHAPE: Mapping[str, Any] = {
    "type": "json_schema",
    "json_schema": {
        "name": "verdict",
        "strict": True,
        "schema": {
            "type": "object",
            "properties": {"p_solve": {"type": "number"}},
            "required": ["p_solve"],
            "additionalProperties": False,
        },
    },
}


def body(ask: Ask, data: str, order: Order) -> bytes:
    """The request's body."""
    fields: dict[str, Any] = {"model": ask.model, "temperature": 0, "stream": False}
    if ask.mode == "logprobs":
        fields |= {"messages": question.labelled(data, order), "max_tokens": 1, "logprobs": True, "top_logprobs": TOP}
    else:
        fields |= {"messages": question.judged(data), "max_tokens": JUDGE_TOKENS, "response_format": _SHAPE}
    if ask.no_thinking:
        fields["chat_template_kwargs"] = {"enable_thinking": False}
    return msgspec.json.encode(fields)


def verdict(mode: Mode, answer: bytes, order: Order) -> float:
    """P(hard) from an answer's body. Raises BadVerdict."""
    try:
        choices = _ANSWER.decode(answer).choices
        if not choices:
            raise BadVerdict("no choice")
        if mode == "json":
            return 1.0 - _JUDGEMENT.decode((choices[0].message.content or "").encode()).p_solve
        logprobs = choices[0].logprobs
        if logprobs is None or not logprobs.content:
            raise BadVerdict("no log-probabilities; use mode: json")
        margin = question.margin(((a.token, a.logprob) for a in logprobs.content[0].top_logprobs), order)
    except (ValueError, RecursionError) as error:
        raise BadVerdict(str(error)) from error
    if margin is None:
        raise BadVerdict("no label of the closed set")
    return question.chance(margin)


class Remote:
    """Scores by asking one endpoint; `seams.Scorer`."""

    def __init__(self, name: str, ask: Ask, *, curve: Curve | None = None, breaker: Breaker | None = None) -> None:
        self.name = name
        self.ask = ask
        self._curve = curve or Curve()
        self._breaker = breaker or Breaker()
        self._orders = question.ORDERS if ask.both_orders and ask.mode == "logprobs" else question.ORDERS[:1]
        self._http: OpenAIUpstream | None = None
        # Checked here so that a wrong address is told with the files; the connections belong to the running loop.
        if not ask.url.startswith(("http://", "https://")):
            raise ValueError(f"url must be http(s)://host[:port]/v1, not {ask.url!r}")

    def score(self, prompt: Prompt) -> Score | Abstain | Awaitable[Score | Abstain]:
        return self._score(prompt.text)

    async def _score(self, raw: str) -> Score | Abstain:
        answer = await guarded(self._breaker, lambda: self._answer(raw), _BAD)
        if isinstance(answer, str):
            return Abstain(scorer=self.name, reason=answer)
        return Score(scorer=self.name, value=self._curve(answer))

    async def _answer(self, raw: str) -> float | Reason:
        """P(hard), or why there is none: the one place where the endpoint's faults become reasons."""
        data = question.readable(raw)
        if not data:
            return "empty"
        http = await self._started()
        calls = [asyncio.ensure_future(self._one(http, data, order)) for order in self._orders]
        try:
            async with asyncio.timeout(self.ask.deadline_s):
                chances = await asyncio.gather(*calls)
        except (TimeoutError, TimedOut):
            return "timeout"
        except _Refused as refused:
            return "overload" if refused.status in (429, 503) else "error"
        except (PointsmanError, BadVerdict):
            return "error"
        finally:
            for call in calls:  # where one failed, the other has nobody left who waits for it
                call.cancel()
        return math.fsum(chances) / len(chances)

    async def _one(self, http: OpenAIUpstream, data: str, order: Order) -> float:
        reply = await http.open(Call(path="/chat/completions", body=body(self.ask, data, order)))
        try:
            parts: list[bytes] = []
            size = 0
            while part := await reply.read():
                parts.append(part)
                size += len(part)
                if size > ANSWER_LIMIT:
                    raise BadVerdict("the answer is too large")
        finally:
            await reply.aclose()
        if reply.status != 200:
            raise _Refused(reply.status)
        return verdict(self.ask.mode, b"".join(parts), order)

    async def _started(self) -> OpenAIUpstream:
        if self._http is None:
            ask = self.ask
            self._http = OpenAIUpstream(
                Deployment(
                    name=self.name,
                    upstream="openai",
                    model=ask.model,
                    base_url=ask.url,
                    api_key=ask.api_key,
                    timeouts=Timeouts(connect_s=ask.deadline_s),
                )
            )
            await self._http.start()
        return self._http

    async def aclose(self) -> None:
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()
