"""Spans of records, by OpenTelemetry's semantic conventions for Kafka (1.44).

Here: names and attributes of "send" and "process" spans.
Not here: when they begin and end (`extension`, `clients`), headers (`propagation`).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any, Final, Protocol

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Tracer, TracerProvider
from opentelemetry.util.types import AttributeValue

from busway.otel.propagation import extract

_SYSTEM: Final = {"messaging.system": "kafka"}
PARTITION: Final = "messaging.destination.partition.id"
OFFSET: Final = "messaging.kafka.offset"
ERROR: Final = "error.type"
Attributes = dict[str, AttributeValue]


class ReadRecord(Protocol):
    """The part of records that a span needs: those of a consumer, and of a handler."""

    @property
    def topic(self) -> str: ...

    @property
    def partition(self) -> int: ...

    @property
    def offset(self) -> int: ...

    @property
    def value(self) -> Any: ...

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...


def tracer_of(provider: TracerProvider | None) -> Tracer:
    return trace.get_tracer("busway", version("busway"), provider)


def start_send(tracer: Tracer, topic: str, *, tombstone: bool = False) -> Span:
    """Start a span of the kind PRODUCER, below the current one."""
    attributes: Attributes = {**_SYSTEM, **_operation("send"), "messaging.destination.name": topic}
    if tombstone:
        attributes["messaging.kafka.message.tombstone"] = True
    return tracer.start_span(f"send {topic}", kind=SpanKind.PRODUCER, attributes=attributes)


@contextmanager
def processing(
    tracer: Tracer, records: Sequence[ReadRecord], more: Mapping[str, AttributeValue], *, batch: bool
) -> Iterator[Span]:
    """Enter a span of the kind CONSUMER, as the current one.

    A single record's span is a child of the span that sent the record, and links to the current one. A batch's is a
    child of the current one, and links to those that sent its records.
    """
    first = records[0]
    attributes: Attributes = {
        **_SYSTEM,
        **_operation("process"),
        "messaging.destination.name": first.topic,
        PARTITION: str(first.partition),
        **more,
    }
    parent: Context | None
    if batch:
        attributes["messaging.batch.message_count"] = len(records)
        parent, links = None, [link for record in records for link in _links(extract(record.headers), record)]
    else:
        attributes[OFFSET] = first.offset
        if first.value is None:
            attributes["messaging.kafka.message.tombstone"] = True
        parent = extract(first.headers)
        ambient = trace.get_current_span().get_span_context()
        links = [Link(ambient)] if ambient.is_valid else []
    with tracer.start_as_current_span(
        f"process {first.topic}", context=parent, kind=SpanKind.CONSUMER, attributes=attributes, links=links
    ) as span:
        try:
            yield span
        except BaseException as problem:
            span.set_attribute(ERROR, type(problem).__qualname__)
            raise


def _operation(name: str) -> Attributes:
    return {"messaging.operation.name": name, "messaging.operation.type": name}


def _links(context: Context, record: ReadRecord) -> list[Link]:
    sent = trace.get_current_span(context).get_span_context()
    return [Link(sent, {OFFSET: record.offset})] if sent.is_valid else []
