"""Spans of requests, and of the batches that carry them."""

from __future__ import annotations

import asyncio
import gzip
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from gateway.config import Config
from gateway.http.routes import route_named
from gateway.http.tracing import TracingMiddleware
from gateway.pools import CannotStart
from gateway.setting_rows import MIB
from gateway.telemetry import tracing
from gateway.telemetry.tracing import OtelTracing
from tests.http import raw
from tests.support.accounts import Account
from tests.support.calls import bulk, bulk_line, envelope, new_client, new_id
from tests.support.drive import until
from tests.support.serving import child_serving, serving

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
SAMPLED = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=1"}
POST = "POST /{type}/{id}/{event_type}"


class Spans:
    """What a gateway has exported."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracing = OtelTracing(SimpleSpanProcessor(self.exporter), "0")

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    async def one(self, name: str) -> ReadableSpan:
        await until(lambda: self.named(name))
        (found,) = self.named(name)
        return found


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    """Where the gateways of the test send their spans."""
    for name in ("OTEL_SDK_DISABLED", "OTEL_TRACES_SAMPLER", "OTEL_EXPORTER_OTLP_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    spans = Spans()
    monkeypatch.setattr(tracing, "to_otlp", lambda _version: spans.tracing)
    yield spans


@pytest.fixture
async def client(spans: Spans, config: Config, account: Account) -> AsyncIterator[httpx.AsyncClient]:
    traced = replace(config, otel=True)
    async with serving(traced) as served, new_client(served.url, account.admin) as client:
        yield client


def links_of(span: ReadableSpan) -> set[int]:
    return {link.context.span_id for link in span.links}


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


async def post(client: httpx.AsyncClient, headers: Any = None) -> httpx.Response:
    response = await client.post(f"/order/{new_id()}/was_noted", json=envelope(), headers=headers)
    assert response.status_code == 201, response.text
    return response


async def test_a_post_is_a_span_that_continues_its_callers_trace(
    client: httpx.AsyncClient, spans: Spans
) -> None:
    response = await post(client, SAMPLED)
    span = await spans.one(POST)
    assert span.context is not None and span.parent is not None
    assert (f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, PARENT)
    assert span.context.trace_state["vendor"] == "1"
    assert span.kind is SpanKind.SERVER
    assert dict(span.attributes or {}) == {
        "http.request.method": "POST",
        "http.route": "/{type}/{id}/{event_type}",
        "http.response.status_code": 201,
        "sluice.correlation_id": response.headers["x-correlation-id"],
    }


async def test_answers_that_are_not_read_are_bounded_with_traces_too(
    spans: Spans, config: Config, client: httpx.AsyncClient, account: Account
) -> None:
    key = new_id()
    for _ in range(6):
        large = envelope() | {"data": {"text": "x" * 200_000}}
        response = await client.post(f"/order/{key}/was_noted", json=large)
        assert response.status_code == 201, response.text
    asking = raw.request("GET", f"/order/{key}/events", account.read)
    few = replace(config, otel=True, key_unread_bytes_max=MIB)
    async with (
        serving(few) as served,
        new_client(served.url, account.read) as reader,
        AsyncExitStack() as held,
    ):

        async def is_refused() -> bool:
            connection = await held.enter_async_context(raw.connected(served.port, receive_bytes=4096))
            connection.read_no_more()
            await connection.send(asking * 8)
            response = await reader.get(f"/order/{key}/events")
            return response.status_code == 429

        async with asyncio.timeout(20):
            while not await is_refused():
                pass


async def test_its_script_call_and_its_commit_are_traces_of_their_own_with_a_link_to_it(
    client: httpx.AsyncClient, spans: Spans
) -> None:
    await post(client, SAMPLED)
    request = await spans.one(POST)
    commit = await spans.one("commit")
    calls = spans.named("sequence")  # a new stream is cold: it is sequenced a second time
    for batch in (commit, *calls):
        assert batch.parent is None and batch.context is not None
        assert f"{batch.context.trace_id:032x}" != TRACE
        assert links_of(batch) == {id_of(request)}
        assert batch.attributes is not None and batch.attributes["sluice.requests"] == 1
    assert 1 <= len(calls) <= 2


async def test_every_request_is_linked_by_one_commit_and_no_other(
    client: httpx.AsyncClient, spans: Spans
) -> None:
    await asyncio.gather(*[post(client) for _ in range(30)])
    await until(lambda: len(spans.named(POST)) == 30)
    linked = [link for commit in spans.named("commit") for link in links_of(commit)]
    assert sorted(linked) == sorted(id_of(span) for span in spans.named(POST))


async def test_the_lines_of_a_bulk_request_are_one_link(client: httpx.AsyncClient, spans: Spans) -> None:
    await bulk(client, *[bulk_line(new_id()) for _ in range(50)])
    request = await spans.one("POST /_/bulk")
    commits = spans.named("commit")
    assert commits
    assert all(links_of(commit) == {id_of(request)} for commit in commits)


async def test_a_caller_that_does_not_sample_leaves_no_spans(client: httpx.AsyncClient, spans: Spans) -> None:
    await post(client, {"traceparent": f"00-{TRACE}-{PARENT}-00"})
    await post(client, SAMPLED)
    await until(lambda: spans.named(POST))
    assert len(spans.named(POST)) == len(spans.named("commit")) == 1


async def test_a_traceparent_that_cant_be_read_begins_a_trace(
    client: httpx.AsyncClient, spans: Spans
) -> None:
    await post(client, {b"traceparent": b"00-nonsense\xff-01"})
    assert (await spans.one(POST)).parent is None


async def test_health_and_metrics_leave_no_spans_and_a_refusal_does(
    client: httpx.AsyncClient, spans: Spans
) -> None:
    await client.get("/_/health/live")
    await client.get("/_/metrics")
    await client.get("/order/none")
    span = await spans.one("GET /{type}/{id}")
    assert span.attributes is not None and span.attributes["http.response.status_code"] == 422
    assert span.status.status_code is StatusCode.UNSET
    assert {each.name for each in spans.exporter.get_finished_spans()} == {"GET /{type}/{id}"}


async def test_a_failing_application_ends_its_span_with_the_fault_and_without_its_text(spans: Spans) -> None:
    async def failing(_scope: object, _receive: object, send: object) -> None:
        raise ValueError("the client's data")

    scope = {"method": "GET", "raw_path": b"/order", "headers": []}
    with pytest.raises(ValueError, match="data"):
        await TracingMiddleware(failing, spans.tracing)(scope, receive_nothing, send_nothing)
    (span,) = spans.exporter.get_finished_spans()
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "ValueError")
    assert not span.events
    assert spans.tracing.current() is None


async def receive_nothing() -> dict[str, object]:
    return {"type": "http.disconnect"}


async def send_nothing(_message: object) -> None:
    return


@pytest.mark.parametrize(
    ("path", "named"),
    [
        (b"/order", "/{type}"),
        (b"/order/a%2Fb", "/{type}/{id}"),
        (b"/order/a/was_placed", "/{type}/{id}/{event_type}"),
        (b"/order/a/events", "/{type}/{id}/events"),
        (b"/order/a/length", "/{type}/{id}/length"),
        (b"/order/a/events/7", "/{type}/{id}/events/{version}"),
        (b"/order/a/b/c/d", "/{path}"),
        (b"*", "/{path}"),
        (b"/", "/{path}"),
        (b"/_/spec", "/_/spec"),
        (b"/_/events/0190", "/_/events/{event_id}"),
        (b"/_/resolve/@VNO-1", "/_/resolve/{alias}"),
        (b"/order/x/aliases", "/{type}/{id}/aliases"),
        (b"/_/whatever/a/client/sends", "/_/{path}"),
    ],
)
def test_a_span_is_named_by_its_route_and_never_by_what_a_client_chose(path: bytes, named: str) -> None:
    assert route_named(path) == named


# -- on and off


async def test_without_being_asked_for_there_are_no_spans(
    spans: Spans, config: Config, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    for otel, endpoint in ((None, ""), (False, "http://127.0.0.1:1")):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        off = replace(config, otel=otel)
        async with serving(off) as served, new_client(served.url, account.admin) as client:
            await post(client, SAMPLED)
    assert not spans.exporter.get_finished_spans()


@pytest.mark.parametrize("name", ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"])
async def test_the_standard_endpoint_turns_them_on(
    spans: Spans, config: Config, account: Account, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with serving(config) as served, new_client(served.url, account.admin) as client:
        await post(client)
    assert spans.named(POST)


async def test_the_standard_switch_turns_them_off(
    spans: Spans, config: Config, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    on = replace(config, otel=True)
    async with serving(on) as served, new_client(served.url, account.admin) as client:
        await post(client)
    assert not spans.exporter.get_finished_spans()


async def test_without_the_sdk_a_gateway_that_was_told_to_trace_says_what_to_install(
    config: Config, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "gateway.telemetry.tracing", None)
    monkeypatch.delattr("gateway.telemetry.tracing")
    with pytest.raises(CannotStart, match=r"sluice-gateway\[otel\]"):
        async with serving(replace(config, otel=True)):
            pytest.fail("it started")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    async with serving(config):
        assert "tracing_disabled" in caplog.messages


def test_what_speaks_to_the_sdk_is_imported_only_where_traces_are_on() -> None:
    code = "import sys, gateway.app; sys.exit('gateway.telemetry.tracing' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class Collector:
    """An OTLP endpoint: keeps what it is sent."""

    def __init__(self) -> None:
        self.spans: list[str] = []
        self.services: set[str] = set()

    def take(self, body: bytes) -> None:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            named = {each.key: each.value.string_value for each in resource.resource.attributes}
            self.services.add(named["service.name"])
            self.spans += [span.name for scope in resource.scope_spans for span in scope.spans]


@pytest.fixture
def collector() -> Iterator[tuple[Collector, str]]:
    kept = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            zipped = self.headers.get("Content-Encoding") == "gzip"
            kept.take(gzip.decompress(body) if zipped else body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield kept, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


async def test_a_process_sends_its_spans_to_the_collector_before_it_ends(
    config: Config, account: Account, collector: tuple[Collector, str], tmp_path: Path
) -> None:
    kept, endpoint = collector
    more = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
    async with child_serving(config.postgres_url, config.redis_url, tmp_path, **more) as child:
        async with new_client(child.served.url, account.admin) as client:
            await post(client)
        child.terminate()
        assert await child.ended() == 0
    assert {POST, "sequence", "commit"} <= set(kept.spans)
    assert kept.services == {"sluice"}


async def test_a_collector_that_is_away_holds_up_neither_requests_nor_the_end(
    config: Config, account: Account, tmp_path: Path
) -> None:
    more = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
    async with child_serving(config.postgres_url, config.redis_url, tmp_path, **more) as child:
        async with new_client(child.served.url, account.admin) as client:
            await post(client)
        child.terminate()
        async with asyncio.timeout(25):
            assert await child.ended() == 0
