"""A scorer behind an address of its own, so that replicas of it can stand anywhere: it answers what the `remote` scorer
asks, as a model would that is sure of its labels. Ray Serve runs the replicas (`build`), any ASGI server one (`App`).
"""

from __future__ import annotations

import inspect
import json
import math
from importlib import import_module
from typing import Any, Literal

import msgspec

from router.config import ScorerSpec
from router.scorers import build as build_scorer
from router.scorers import question
from router.scorers.question import Order
from router.types import Abstain, Prompt, Score, Signals

LIMIT = 1024 * 1024  # bytes of a question, which has some 3 KB
LEAST = 1e-12  # a chance whose logarithm JSON can hold


class _Message(msgspec.Struct):
    role: str
    content: str


class _Question(msgspec.Struct):
    messages: list[_Message]
    model: str = ""
    logprobs: bool = False


class Scored(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A scorer, as scorers.yaml would name it."""

    kind: Literal["lexical", "encoder", "generative", "fixed"]  # what can be scored by the text alone
    name: str = "difficulty"
    options: dict[str, Any] = {}

    @property
    def spec(self) -> ScorerSpec:
        return ScorerSpec(name=self.name, kind=self.kind, options=self.options)


class Given(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a Ray Serve configuration says under `args`."""

    scorer: Scored
    replicas: int = 1
    num_cpus: float = 1.0
    num_gpus: float = 0.0


class App:
    """One scorer as an ASGI application: POST /v1/chat/completions, GET /health, GET /v1/models."""

    def __init__(self, spec: ScorerSpec) -> None:
        self._spec = spec
        self._scorer = build_scorer(spec)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        path = scope["path"]
        if scope["method"] == "GET" and path == "/health":
            await _answer(send, 200, {"status": "ok"})
        elif scope["method"] == "GET" and path == "/v1/models":
            await _answer(send, 200, {"object": "list", "data": [{"id": self._spec.name, "object": "model"}]})
        elif scope["method"] == "POST" and path == "/v1/chat/completions":
            await _answer(send, *await self._complete(await _body(receive)))
        else:
            await _answer(send, 404, _error("no such path; ask POST /v1/chat/completions"))

    async def _complete(self, body: bytes | None) -> tuple[int, dict[str, Any]]:
        if body is None:
            return 413, _error(f"a question has at most {LIMIT} bytes")
        try:
            given = msgspec.json.decode(body, type=_Question)
        except msgspec.ValidationError as error:
            return 400, _error(str(error))
        except msgspec.DecodeError:
            return 400, _error("the body is not JSON")
        asked = question.asked(given.messages[-1].content) if given.messages else None
        if asked is None:
            return 400, _error("this answers the questions of a `remote` scorer and nothing else")
        data, order = asked
        found = self._scorer.score(Prompt(text=data, signals=Signals()))
        score = await found if inspect.isawaitable(found) else found
        if isinstance(score, Abstain):
            return 503, _error(f"no score: {score.reason}")
        return 200, _completion(given, score, order)

    async def aclose(self) -> None:
        await self._scorer.aclose()


def _completion(given: _Question, score: Score, order: Order) -> dict[str, Any]:
    """The score as the log-probabilities of the two labels, and as a verdict in JSON."""
    easy, hard = question.labels(order)
    chances = {hard: max(score.value, LEAST), easy: max(1.0 - score.value, LEAST)}
    content = max(chances, key=lambda label: chances[label])
    choice: dict[str, Any] = {"index": 0, "finish_reason": "stop"}
    if given.logprobs:
        top = [{"token": label, "logprob": math.log(chance)} for label, chance in chances.items()]
        choice["logprobs"] = {
            "content": [{"token": content, "logprob": math.log(chances[content]), "top_logprobs": top}]
        }
    else:
        content = json.dumps({"p_solve": 1.0 - score.value})
    choice["message"] = {"role": "assistant", "content": content}
    return {"id": "score", "object": "chat.completion", "created": 0, "model": given.model, "choices": [choice]}


def _error(message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error"}}


async def _body(receive: Any) -> bytes | None:
    """The request's body; None where it is too large."""
    parts: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        more = message.get("more_body", False)
    return b"".join(parts) if size <= LIMIT else None


async def _answer(send: Any, status: int, value: dict[str, Any]) -> None:
    body = json.dumps(value).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def build(args: dict[str, Any]) -> Any:
    """The Ray Serve application of `import_path: router.replicas:build`; `args` are those of `Given`. Raises
    msgspec.ValidationError."""
    serve: Any = import_module("ray.serve")  # no extra of ours: it is there where Ray runs this
    given = msgspec.convert(args, Given)

    def made() -> App:  # in each replica
        return App(given.scorer.spec)

    options = {"num_cpus": given.num_cpus, "num_gpus": given.num_gpus}
    deployment = serve.deployment(serve.ingress(made)())
    return deployment.options(
        name="scorer", num_replicas=given.replicas, ray_actor_options=options, max_ongoing_requests=64
    ).bind()
