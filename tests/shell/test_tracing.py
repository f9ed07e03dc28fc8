"""Traces of requests, sent to a local OTLP receiver over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from router.tracing import place, wanted
from router.upstreams.scripted_server import ScriptedServer
from router.upstreams.scripts import Head, Seen, Send, Step, chat, status
from tests.support.rig import Rig, groups, running

service = pytest.importorskip(
    "opentelemetry.proto.collector.trace.v1.trace_service_pb2", reason="the extra `otel` is not installed"
)
pytest.importorskip("opentelemetry.exporter.otlp.proto.http.trace_exporter")

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def taken(_: Seen) -> Sequence[Step]:
    return [Head(200, {"content-type": "application/x-protobuf"}), Send(b"")]


@asynccontextmanager
async def traced(folder: Path, upstream: ScriptedServer, receiver: ScriptedServer) -> AsyncIterator[Rig]:
    files = groups(
        {"small-a": upstream}, {"small": ["small-a"], "large": ["small-a"]}, ", price: {input: 1, output: 1}"
    )
    async with running(folder, files, otlp=receiver.base_url.removesuffix("/v1")) as rig:
        yield rig


async def spans(rig: Rig, receiver: ScriptedServer) -> list[Any]:
    tracing = rig.gateway.service.tracing
    assert tracing is not None
    assert await asyncio.to_thread(tracing.flush)
    found: list[Any] = []
    for visit in receiver.visits:
        assert visit.seen.path == "/v1/traces"
        request = service.ExportTraceServiceRequest.FromString(visit.seen.body)
        found += [span for group in request.resource_spans for scope in group.scope_spans for span in scope.spans]
    return found


def about(span: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


async def test_a_request_is_a_span_in_its_callers_trace_with_the_decision_and_no_prompt(tmp_path: Path):
    async with (
        ScriptedServer(chat("heron-answer two")) as upstream,
        ScriptedServer(taken) as receiver,
        traced(tmp_path, upstream, receiver) as rig,
    ):
        body = {"model": "auto", "messages": [{"role": "user", "content": "heron-prompt"}], "stream": True}
        headers = {"x-score": "0.25", "traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "a=b"}
        await rig.client.post("/v1/chat/completions", json=body, headers=headers)
        (kept,) = await rig.records(1)
        request, call = await spans(rig, receiver)
        assert (request.trace_id.hex(), request.parent_span_id.hex()) == (TRACE, SPAN)
        assert (call.trace_id.hex(), call.parent_span_id) == (TRACE, request.span_id)
        assert (request.name, call.name) == ("chat auto", "chat small-a")
        told = about(request)
        assert told["gen_ai.operation.name"] == "chat"
        assert told["gen_ai.request.model"] == "auto"
        assert told["gen_ai.usage.output_tokens"] == 2
        assert (told["pointsman.policy"], told["pointsman.route"], told["pointsman.group"]) == (
            *("default", "difficulty"),
            "small",
        )
        assert (told["pointsman.score"], told["pointsman.threshold"]) == (0.25, 0.5)
        assert told["pointsman.request_id"] == kept.id
        assert about(call)["pointsman.deployment"] == "small-a"
        length_s = (request.end_time_unix_nano - request.start_time_unix_nano) / 1e9
        assert length_s == pytest.approx(kept.timing.total_s, abs=1e-3)
        assert request.start_time_unix_nano <= call.start_time_unix_nano <= call.end_time_unix_nano
        seen = upstream.visits[0].seen.headers
        assert seen["traceparent"] == f"00-{TRACE}-{request.span_id.hex()}-01"
        assert seen["tracestate"] == "a=b"
        assert b"heron" not in b"".join(visit.seen.body for visit in receiver.visits)


async def test_a_request_without_a_trace_begins_one_that_its_upstream_is_told_of_and_a_failure_is_an_error(
    tmp_path: Path,
):
    async with (
        ScriptedServer(lambda _: status(500)) as upstream,
        ScriptedServer(taken) as receiver,
        traced(tmp_path, upstream, receiver) as rig,
    ):
        await rig.ask()
        (request,) = await spans(rig, receiver)
        assert request.parent_span_id == b""
        assert upstream.visits[0].seen.headers["traceparent"] == (
            f"00-{request.trace_id.hex()}-{request.span_id.hex()}-01"
        )
        assert (request.status.code, about(request)["error.type"]) == (2, "upstream_error")
        assert {event.name for event in request.events} == {"pointsman.attempt"}


async def test_a_trace_that_is_not_sampled_leaves_no_span_and_is_passed_on_as_such(tmp_path: Path):
    async with (
        ScriptedServer(chat("hi")) as upstream,
        ScriptedServer(taken) as receiver,
        traced(tmp_path, upstream, receiver) as rig,
    ):
        body = {"model": "auto", "messages": [{"role": "user", "content": "hello"}]}
        headers = {"x-score": "0.1", "traceparent": f"00-{TRACE}-{SPAN}-00"}
        await rig.client.post("/v1/chat/completions", json=body, headers=headers)
        assert await spans(rig, receiver) == []
        assert upstream.visits[0].seen.headers["traceparent"].endswith("-00")


async def test_a_receiver_that_refuses_costs_no_request_and_is_counted(tmp_path: Path):
    async with (
        ScriptedServer(chat("hi")) as upstream,
        ScriptedServer(lambda _: status(400)) as receiver,
        traced(tmp_path, upstream, receiver) as rig,
    ):
        assert (await rig.ask()).status_code == 200
        await spans_sent(rig)
        assert rig.gateway.service.tracing is not None
        assert rig.gateway.service.tracing.dropped == 1


async def spans_sent(rig: Rig) -> None:
    tracing = rig.gateway.service.tracing
    assert tracing is not None
    assert await asyncio.to_thread(tracing.flush)


async def test_without_an_endpoint_there_is_no_tracing_and_the_callers_trace_passes_untouched(tmp_path: Path):
    async with ScriptedServer(chat("hi")) as upstream:
        files = groups({"small-a": upstream}, {"small": ["small-a"], "large": ["small-a"]})
        async with running(tmp_path, files) as rig:
            assert rig.gateway.service.tracing is None
            body = {"model": "auto", "messages": [{"role": "user", "content": "hello"}]}
            headers = {"x-score": "0.1", "traceparent": f"00-{TRACE}-{SPAN}-01"}
            await rig.client.post("/v1/chat/completions", json=body, headers=headers)
            assert upstream.visits[0].seen.headers["traceparent"] == f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize(
    "given", [None, "", "00-1-2-01", f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01", f"ff-{TRACE}-{SPAN}-01"]
)
def test_a_traceparent_that_is_none_begins_a_trace(given: str | None):
    here = place("req_1", given)
    assert (here.parent, here.flags) == (None, 1)
    assert here == place("req_1", None)
    assert here != place("req_2", None)


def test_tracing_is_wanted_where_the_environment_names_a_place():
    assert not wanted({})
    assert wanted({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4318/v1/traces"})
