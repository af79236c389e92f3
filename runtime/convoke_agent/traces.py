"""The trace that a request belongs to (W3C Trace Context), whether it is exported or not."""

import contextlib

from opentelemetry import context, trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

QUIET = ("/health", "/ready")
KNOWN = ("", "v1", ".well-known", "memory")
HEADERS = (b"traceparent", b"tracestate")


@contextlib.contextmanager
def of_request(scope):
    """Runs a request within the trace that its headers name, in a span of its own."""
    if scope["type"] != "http" or scope["path"] in QUIET:
        yield
        return
    carrier = {name.decode(): value.decode("latin-1") for name, value in scope["headers"] if name in HEADERS}
    token = context.attach(TraceContextTextMapPropagator().extract(carrier))
    try:
        # A path may name a session or be anybody's text: only a known beginning goes into the span.
        first = scope["path"].split("/")[1]
        name = f"{scope['method']} /{first if first in KNOWN else '*'}"
        tracer = trace.get_tracer("convoke_agent")
        # What an error says may quote a prompt, an answer or a key: only its type is told.
        with tracer.start_as_current_span(
            name, kind=trace.SpanKind.SERVER, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield
            except Exception as error:
                kind = type(error).__name__
                span.add_event("exception", {"exception.type": kind})
                span.set_status(trace.StatusCode.ERROR, kind)
                raise
    finally:
        context.detach(token)
