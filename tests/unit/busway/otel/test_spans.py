"""Spans of records: names, attributes, parents and links."""

from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, set_span_in_context

from busway.otel.propagation import inject
from busway.otel.spans import processing, start_send, tracer_of


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(exporter: InMemorySpanExporter) -> TracerProvider:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider


def record(offset: int, headers: Any = (), value: bytes | None = b"v") -> Any:
    return SimpleNamespace(topic="rides", partition=2, offset=offset, value=value, headers=headers)


def sent(provider: TracerProvider) -> tuple[Any, list[tuple[str, bytes | None]]]:
    """Return the context of a "send" span, and the headers that carry it."""
    span = start_send(tracer_of(provider), "rides")
    headers = list(inject((), set_span_in_context(span)))
    span.end()
    return span.get_span_context(), headers


def test_a_send_names_its_topic(provider: TracerProvider, exporter: InMemorySpanExporter) -> None:
    """A tombstone is marked."""
    start_send(tracer_of(provider), "rides", tombstone=True).end()
    (span,) = exporter.get_finished_spans()
    assert (span.name, span.kind) == ("send rides", SpanKind.PRODUCER)
    assert dict(span.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "rides",
        "messaging.kafka.message.tombstone": True,
    }


def test_a_record_is_a_child_of_the_span_that_sent_it(provider: TracerProvider, exporter: InMemorySpanExporter) -> None:
    """It has the record's place."""
    sender, headers = sent(provider)
    with processing(tracer_of(provider), [record(7, headers)], {"group": "g"}, batch=False):
        pass
    span = exporter.get_finished_spans()[-1]
    assert span.parent is not None
    assert (span.parent.trace_id, span.parent.span_id) == (sender.trace_id, sender.span_id)
    attributes = dict(span.attributes or {})
    assert (attributes["messaging.destination.partition.id"], attributes["messaging.kafka.offset"]) == ("2", 7)
    assert attributes["group"] == "g"


def test_a_batch_links_to_each_sender(provider: TracerProvider, exporter: InMemorySpanExporter) -> None:
    """One of a record without a trace has no link."""
    first, headers = sent(provider)
    second, others = sent(provider)
    records = [record(1, headers), record(2), record(3, others)]
    with processing(tracer_of(provider), records, {}, batch=True):
        pass
    span = exporter.get_finished_spans()[-1]
    assert span.parent is None
    assert [link.context.span_id for link in span.links] == [first.span_id, second.span_id]
    assert [dict(link.attributes or {}) for link in span.links] == [
        {"messaging.kafka.offset": 1},
        {"messaging.kafka.offset": 3},
    ]
    assert dict(span.attributes or {})["messaging.batch.message_count"] == 3


def test_a_failure_is_named(provider: TracerProvider, exporter: InMemorySpanExporter) -> None:
    """By the exception's type, which is raised on."""
    with pytest.raises(LookupError), processing(tracer_of(provider), [record(1)], {}, batch=False):
        raise LookupError
    assert dict(exporter.get_finished_spans()[-1].attributes or {})["error.type"] == "LookupError"
