"""What traces tell of errors: their types, and nothing that they say."""

import unittest
from unittest import mock

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from convoke_agent import telemetry, traces

CANARY = "canary_of_an_error"


class Spans(unittest.TestCase):
    def setUp(self):
        self.exporter = InMemorySpanExporter()

    def tracer(self, exporter):
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        self.addCleanup(provider.shutdown)
        return provider.get_tracer("test")

    def exported(self):
        """The one span, which does not say what the error did."""
        [span] = self.exporter.get_finished_spans()
        self.assertNotIn(CANARY, span.to_json())
        return span

    def test_an_error_in_a_span_of_a_library_is_told_by_its_type(self):
        tracer = self.tracer(telemetry.Wordless(self.exporter))
        with self.assertRaises(ValueError), tracer.start_as_current_span("chat m", attributes={"kept": 1}):
            raise ValueError(CANARY) from KeyError(CANARY)
        span = self.exported()
        self.assertEqual((span.status.status_code, span.status.description), (trace.StatusCode.ERROR, "ValueError"))
        self.assertEqual(span.events[0].attributes["exception.type"], "ValueError")
        self.assertEqual((span.name, span.attributes["kept"], span.instrumentation_scope.name), ("chat m", 1, "test"))

    def test_what_a_library_says_in_a_status_is_not_told(self):
        with self.tracer(telemetry.Wordless(self.exporter)).start_as_current_span("tools/call") as span:
            span.set_status(trace.StatusCode.ERROR, CANARY)
        span = self.exported()
        self.assertEqual((span.status.status_code, span.status.description), (trace.StatusCode.ERROR, None))

    def test_an_error_of_a_request_is_told_by_its_type(self):
        scope = {"type": "http", "method": "POST", "path": "/", "headers": []}
        with mock.patch.object(trace, "get_tracer", lambda _: self.tracer(self.exporter)):
            with self.assertRaises(ValueError), traces.of_request(scope):
                raise ValueError(CANARY)
        span = self.exported()
        self.assertEqual((span.status.status_code, span.status.description), (trace.StatusCode.ERROR, "ValueError"))


if __name__ == "__main__":
    unittest.main()
