"""Traces by OpenTelemetry, over HTTP. Prompts and answers are never part of them."""

import asyncio
import threading

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from pydantic_ai.capabilities.instrumentation import Instrumentation
from pydantic_ai.models.instrumented import InstrumentationSettings

POLL_SECONDS = 0.05


def start(settings, environment):
    """Begins to export. Gives the capabilities that the agent needs for it."""
    name = environment.get("OTEL_SERVICE_NAME") or settings.name
    provider = TracerProvider(resource=Resource.create({"service.name": name}))
    endpoint = settings.telemetry.endpoint
    url = f"{endpoint.rstrip('/')}/v1/traces" if endpoint else None
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=url, timeout=5)))
    trace.set_tracer_provider(provider)
    return [Instrumentation(InstrumentationSettings(tracer_provider=provider, include_content=False))]


async def stop():
    """Sends what is left. It has a thread of its own, which does not keep the process."""
    last = threading.Thread(target=trace.get_tracer_provider().shutdown, daemon=True)
    last.start()
    while last.is_alive():
        await asyncio.sleep(POLL_SECONDS)
