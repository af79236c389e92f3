"""Traces by OpenTelemetry, over HTTP. Prompts and answers are never part of them."""

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from pydantic_ai.capabilities.instrumentation import Instrumentation
from pydantic_ai.models.instrumented import InstrumentationSettings


def start(settings, environment):
    """Begins to export. Gives the capabilities that the agent needs for it."""
    name = environment.get("OTEL_SERVICE_NAME") or settings.name
    provider = TracerProvider(resource=Resource.create({"service.name": name}))
    endpoint = settings.telemetry.endpoint
    url = f"{endpoint.rstrip('/')}/v1/traces" if endpoint else None
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=url, timeout=5)))
    trace.set_tracer_provider(provider)
    return [Instrumentation(InstrumentationSettings(tracer_provider=provider, include_content=False))]


def stop():
    """Sends what is left."""
    trace.get_tracer_provider().shutdown()
