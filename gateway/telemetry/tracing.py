"""OpenTelemetry: a span for each request, and one for each script call and commit, linked to the requests
that it carries.

A batch serves many requests, so it is no child of any of them: it is a trace of its own with a link to each
(OpenTelemetry specification, "Links between spans"). A batch that carries a recorded request is recorded.
Imported only where traces are on. Settings are the SDK's own, OTEL_*; nothing of it is global.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Final

from opentelemetry import context, trace
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import Span, SpanContext, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from gateway.telemetry.redact import reason

CLOSE_S: Final = 3.0
"""For the last spans at the end: a collector that is away must not hold up a restart."""
_LINKS_MAX: Final = 1_000
"""Requests that one commit may carry, about; the SDK's 128 would cut off the half of a large one."""
_SCOPE: Final = "sluice"
_W3C: Final = TraceContextTextMapPropagator()


class OtelTracing:
    """The spans of one gateway. `processor` takes them when they end."""

    def __init__(self, processor: SpanProcessor, version: str) -> None:
        # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES overrule these.
        resource = Resource({SERVICE_NAME: "sluice", SERVICE_VERSION: version}).merge(_from_environment())
        limits = SpanLimits(max_links=_LINKS_MAX)
        self._processor = processor
        requests = TracerProvider(resource=resource, shutdown_on_exit=False)
        batches = TracerProvider(ALWAYS_ON, resource, shutdown_on_exit=False, span_limits=limits)
        requests.add_span_processor(processor)
        batches.add_span_processor(processor)
        self._requests = requests.get_tracer(_SCOPE, version)
        self._batches = batches.get_tracer(_SCOPE, version)

    def begin_request(self, method: str, route: str, headers: Mapping[str, str]) -> RequestSpan:
        """The span of a request; it continues the trace that `traceparent` and `tracestate` name, if they
        do. It is the current one until it ends."""
        span = self._requests.start_span(
            f"{method} {route}",
            _W3C.extract(headers),
            SpanKind.SERVER,
            {"http.request.method": method, "http.route": route},
        )
        return RequestSpan(span)

    def current(self) -> SpanContext | None:
        """The request's own span; None when it is not recorded."""
        told = trace.get_current_span().get_span_context()
        return told if told.trace_flags.sampled else None

    def begin_batch(self, name: str, partition: int, links: Sequence[object]) -> _BatchSpan:
        linked = [trace.Link(each) for each in links if isinstance(each, SpanContext)]
        attributes = {"sluice.partition": partition, "sluice.requests": len(linked)}
        nothing = context.Context()
        return _BatchSpan(self._batches.start_span(name, nothing, attributes=attributes, links=linked))

    def close(self) -> None:
        """Sends what has not been sent; blocks for CLOSE_S at most."""
        # The SDK would try for as long as an export may take; a daemon thread does not keep the process.
        sending = threading.Thread(target=self._processor.shutdown, daemon=True)
        sending.start()
        sending.join(CLOSE_S)


class RequestSpan:
    """Current from its making to its end, both within one task."""

    def __init__(self, span: Span) -> None:
        self._span = span
        self._token = context.attach(trace.set_span_in_context(span))

    def answered(self, status: int, correlation_id: str | None) -> None:
        self._span.set_attribute("http.response.status_code", status)
        if correlation_id is not None:
            self._span.set_attribute("sluice.correlation_id", correlation_id)
        if status >= 500:
            self._span.set_status(Status(StatusCode.ERROR))

    def end(self, failure: BaseException | None) -> None:
        context.detach(self._token)
        _end(self._span, failure)


class _BatchSpan:
    def __init__(self, span: Span) -> None:
        self._span = span

    def end(self, failure: BaseException | None) -> None:
        _end(self._span, failure)


def _end(span: Span, failure: BaseException | None) -> None:
    if failure is not None:
        span.set_status(Status(StatusCode.ERROR, reason(failure)))
    span.end()


def _from_environment() -> Resource:
    """Only what OTEL_* says: the SDK's default would name the service `unknown_service`."""
    from opentelemetry.sdk.resources import OTELResourceDetector

    return OTELResourceDetector().detect()


def to_otlp(version: str) -> OtelTracing:
    """Spans are sent in batches, by a thread, to the OTLP endpoint that OTEL_EXPORTER_OTLP_* name
    (http://localhost:4318 if they don't), as protobuf over HTTP."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    return OtelTracing(BatchSpanProcessor(OTLPSpanExporter()), version)
