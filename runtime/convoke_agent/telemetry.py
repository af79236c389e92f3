"""Traces by OpenTelemetry, over HTTP. Prompts, answers and what errors say are never part of them."""

import asyncio
import threading

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from pydantic_ai.capabilities.instrumentation import Instrumentation
from pydantic_ai.models.instrumented import InstrumentationSettings

POLL_SECONDS = 0.05
# What is kept of an error that a span recorded.
OF_AN_ERROR = ("exception.type", "exception.escaped")


class Wordless(SpanExporter):
    """Exports spans without what errors say, which may quote prompts, answers and keys.

    Libraries start spans, too: that of MCP tells in a span's status what the tool server answered.
    """

    def __init__(self, exporter):
        self._exporter = exporter

    def export(self, spans):
        return self._exporter.export([wordless(span) for span in spans])

    def shutdown(self):
        self._exporter.shutdown()

    def force_flush(self, timeout_millis=30_000):
        return self._exporter.force_flush(timeout_millis)


def wordless(span):
    """The span with only the types of errors, in its events and in its status."""
    events, kind = [], None
    for event in span.events:
        attributes = event.attributes or {}
        if "exception.type" in attributes:
            kind = str(attributes["exception.type"]).rpartition(".")[2]
            attributes = {key: attributes[key] for key in OF_AN_ERROR if key in attributes}
        events.append(Event(event.name, attributes, event.timestamp))
    status = span.status
    if status.status_code is trace.StatusCode.ERROR:
        status = trace.Status(status.status_code, kind)
    return ReadableSpan(
        name=span.name,
        context=span.context,
        parent=span.parent,
        resource=span.resource,
        attributes=span.attributes,
        events=events,
        links=span.links,
        kind=span.kind,
        status=status,
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )


def start(settings, environment):
    """Begins to export. Gives the capabilities that the agent needs for it."""
    name = environment.get("OTEL_SERVICE_NAME") or settings.name
    provider = TracerProvider(resource=Resource.create({"service.name": name}))
    endpoint = settings.telemetry.endpoint
    url = f"{endpoint.rstrip('/')}/v1/traces" if endpoint else None
    provider.add_span_processor(BatchSpanProcessor(Wordless(OTLPSpanExporter(endpoint=url, timeout=5))))
    trace.set_tracer_provider(provider)
    return [Instrumentation(InstrumentationSettings(tracer_provider=provider, include_content=False))]


async def stop():
    """Sends what is left. It has a thread of its own, which does not keep the process."""
    last = threading.Thread(target=trace.get_tracer_provider().shutdown, daemon=True)
    last.start()
    while last.is_alive():
        await asyncio.sleep(POLL_SECONDS)
