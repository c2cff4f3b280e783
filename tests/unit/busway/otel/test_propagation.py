"""Trace context in headers, as W3C names it."""

from opentelemetry import baggage, trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider

from busway.otel import extract, inject

TRACEPARENT = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_a_context_goes_into_headers_and_comes_out() -> None:
    """The others stay, in their order; an earlier context is replaced."""
    span = TracerProvider().get_tracer("t").start_span("s")
    context = baggage.set_baggage("tenant", "a", trace.set_span_in_context(span, Context()))
    headers = inject([("a", b"1"), ("traceparent", TRACEPARENT), ("a", None)], context)
    assert [name for name, _ in headers] == ["a", "a", "traceparent", "baggage"]
    extracted = extract(tuple(headers))
    assert trace.get_current_span(extracted).get_span_context().span_id == span.get_span_context().span_id
    assert baggage.get_all(extracted) == {"tenant": "a"}


def test_without_a_trace_the_headers_stay() -> None:
    """So does what is no trace context in them."""
    given = (("a", b"1"),)
    assert inject(given, Context()) is given
    for broken in (b"nonsense", b"\xff", None):
        context = extract((("traceparent", broken),))
        assert not trace.get_current_span(context).get_span_context().is_valid


def test_a_header_of_another_client() -> None:
    """Such as Java's."""
    context = extract((("traceparent", TRACEPARENT), ("tracestate", b"k=v")))
    remote = trace.get_current_span(context).get_span_context()
    assert (f"{remote.trace_id:032x}", remote.is_remote) == ("4bf92f3577b34da6a3ce929d0e0e4736", True)
    assert remote.trace_state.get("k") == "v"
