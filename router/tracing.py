"""Traces of requests for OpenTelemetry: a span for each request and one for the call that served it, made from the
record when all is over, and sent in batches by a thread of their own. GenAI semantic conventions, and the decision.

On only where `serve --otlp`, `OTEL_EXPORTER_OTLP_ENDPOINT` or `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` says where to; the
exporter's other `OTEL_` variables hold too. Ids follow from the request's id: upstreams are told of a span before
it is made. No prompt, no answer and no credential is in one.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping
from hashlib import sha256
from importlib import import_module
from typing import Any

from msgspec import Struct

from router import __version__
from router.batch import Batcher
from router.errors import ConfigError, Mistake
from router.record import served
from router.types import Record

VARIABLES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
OPERATIONS = {"completions": "text_completion", "embeddings": "embeddings"}  # the other dialects are "chat"
FAILED = ("upstream_error", "upstream_truncated", "timeout", "refused")
_PARENT = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})")  # W3C trace context
_SAMPLED = 1


class Place(Struct, frozen=True, kw_only=True, gc=False):
    """Where a request stands in a trace."""

    trace: int
    span: int
    parent: int | None
    flags: int


def place(request_id: str, traceparent: str | None) -> Place:
    """In the caller's trace where it has one, else in a trace of its own."""
    digest = sha256(request_id.encode()).digest()
    span = int.from_bytes(digest[16:24]) or 1
    found = _PARENT.fullmatch(traceparent) if traceparent else None
    if found is None:
        return Place(trace=int.from_bytes(digest[:16]) or 1, span=span, parent=None, flags=_SAMPLED)
    return Place(trace=int(found[1], 16), span=span, parent=int(found[2], 16), flags=int(found[3], 16))


class Tracing:
    """One per process. `put` costs an append."""

    def __init__(self, url: str | None = None, environ: Mapping[str, str] = os.environ) -> None:
        """`url` of the receiver, http://HOST:4318; None: as the environment says. Raises ConfigError where the packages
        of the extra `otel` are not installed."""
        try:
            trace = import_module("opentelemetry.trace")
            sdk = import_module("opentelemetry.sdk.trace")
            resources = import_module("opentelemetry.sdk.resources")
            exporter = import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
            scope = import_module("opentelemetry.sdk.util.instrumentation")
        except ImportError:
            message = "traces need `pip install 'pointsman[otel]'`"
            raise ConfigError([Mistake(file="serve", line=1, column=1, path="--otlp", message=message)]) from None
        self._trace, self._sdk = trace, sdk
        name = environ.get("OTEL_SERVICE_NAME", "pointsman")
        self._resource = resources.Resource.create({"service.name": name, "service.version": __version__})
        self._scope = scope.InstrumentationScope("pointsman", __version__)
        self._exporter = exporter.OTLPSpanExporter(endpoint=f"{url.rstrip('/')}/v1/traces" if url else None)
        self._refused = 0
        self._batcher = Batcher[tuple[Record, Place]]("traces", self._send, limit=5_000, linger_s=0.5, batch=500)
        self._batcher.start()

    @property
    def dropped(self) -> int:
        """Requests whose spans were not taken since the start."""
        return self._refused + self._batcher.dropped

    def forwarded(self, headers: Mapping[str, str], request_id: str) -> Mapping[str, str]:
        """What upstreams are told: that their work belongs to this request's span."""
        here = place(request_id, headers.get("traceparent"))
        return {**headers, "traceparent": f"00-{here.trace:032x}-{here.span:016x}-{here.flags:02x}"}

    def put(self, of: Record, traceparent: str | None) -> None:
        """A request has ended. One whose caller's trace is not sampled leaves no span."""
        here = place(of.id, traceparent)
        if here.flags & _SAMPLED:
            self._batcher.put((of, here))

    def flush(self, timeout_s: float = 10.0) -> bool:
        return self._batcher.flush(timeout_s)

    async def aclose(self) -> None:
        await asyncio.to_thread(self._batcher.stop, 2.0)

    # --- in the thread ---

    def _send(self, batch: list[tuple[Record, Place]]) -> None:
        spans = [span for of, here in batch for span in self._spans(of, here)]
        if self._exporter.export(spans).name != "SUCCESS":
            self._refused += len(batch)

    def _spans(self, of: Record, here: Place) -> list[Any]:
        start, end = of.time - of.timing.total_s, of.time
        kinds = self._trace.SpanKind
        parent = self._context(here, here.parent, remote=True) if here.parent is not None else None
        mine = self._context(here, here.span)
        operation = OPERATIONS.get(of.dialect, "chat")
        events = [
            self._sdk.Event(
                "pointsman.attempt",
                _given(
                    deployment=one.deployment, group=one.group, status=one.status, error=one.error, ttft_s=one.ttft_s
                ),
                timestamp=_ns(end),
            )
            for one in of.attempts
        ]
        request = self._span(
            f"{operation} {of.model}", mine, parent, kinds.SERVER, start, end, attributes(of), events, of
        )
        by = served(of)
        if by is None:
            return [request]
        # When the call began is not in the record, but when its content came is, and how long that had taken.
        first = of.timing.ttft_s
        begun = start + max(0.0, first - by.ttft_s) if first is not None and by.ttft_s is not None else start
        about = {
            "gen_ai.operation.name": operation,
            "pointsman.deployment": by.deployment,
            "pointsman.group": by.group,
            **_given(http_response_status_code=by.status),
        }
        child = int.from_bytes(sha256(f"call {of.id}".encode()).digest()[:8]) or 1
        call = self._span(
            f"{operation} {by.deployment}", self._context(here, child), mine, kinds.CLIENT, begun, end, about, [], of
        )
        return [request, call]

    def _span(
        self,
        name: str,
        context: Any,
        parent: Any,
        kind: Any,
        start: float,
        end: float,
        about: Mapping[str, Any],
        events: list[Any],
        of: Record,
    ) -> Any:
        code = self._trace.StatusCode
        status = self._trace.Status(code.ERROR, of.outcome) if of.outcome in FAILED else self._trace.Status(code.UNSET)
        return self._sdk.ReadableSpan(
            name=name,
            context=context,
            parent=parent,
            resource=self._resource,
            attributes=about,
            events=events,
            kind=kind,
            instrumentation_scope=self._scope,
            status=status,
            start_time=_ns(start),
            end_time=_ns(end),
        )

    def _context(self, here: Place, span: int, *, remote: bool = False) -> Any:
        flags = self._trace.TraceFlags(here.flags)
        return self._trace.SpanContext(trace_id=here.trace, span_id=span, is_remote=remote, trace_flags=flags)


def attributes(of: Record) -> dict[str, Any]:
    """Of a request's span: the GenAI conventions' names where they have one, `pointsman.` before the rest."""
    decision, timing = of.decision, of.timing
    about: dict[str, Any] = {
        "gen_ai.operation.name": OPERATIONS.get(of.dialect, "chat"),
        "gen_ai.provider.name": "pointsman",
        "gen_ai.request.model": of.model,
        "gen_ai.request.stream": of.stream,
        "gen_ai.usage.input_tokens": of.usage.input,
        "gen_ai.usage.output_tokens": of.usage.output,
        "gen_ai.usage.cache_read.input_tokens": of.usage.cached,
        "pointsman.request_id": of.id,
        "pointsman.dialect": of.dialect,
        "pointsman.outcome": of.outcome,
        "pointsman.digest": of.digest[:12],
        "pointsman.attempts": len(of.attempts),
        "pointsman.overhead_s": timing.overhead_s,
    }
    optional = {
        "gen_ai.conversation.id": of.session,
        "gen_ai.response.time_to_first_chunk": timing.ttft_s,
        "pointsman.tpot_s": timing.tpot_s,
        "pointsman.cost": of.cost,
        "pointsman.cost_large": of.cost_large,
        "pointsman.tenant": (of.signals.tenant or None) if of.signals is not None else None,
        "error.type": of.outcome if of.outcome in FAILED else None,
    }
    if decision is not None:
        optional |= {
            "pointsman.policy": decision.policy,
            "pointsman.route": decision.route,
            "pointsman.group": decision.group,
            "pointsman.why": decision.why,
            "pointsman.scorer": decision.scorer,
            "pointsman.score": decision.score,
            "pointsman.threshold": decision.threshold,
        }
    return about | {name: value for name, value in optional.items() if value is not None}


def _given(**values: str | float | None) -> dict[str, str | float]:
    return {name.replace("http_response_", "http.response."): v for name, v in values.items() if v is not None}


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)


def wanted(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the environment says where traces go."""
    return any(environ.get(name) for name in VARIABLES)
