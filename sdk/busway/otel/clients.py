"""Traces of bare clients.

Here: `TracedProducer`, and `process_span` for records of a `Consumer` or `ShareConsumer`.
Not here: apps (`extension`).
"""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from opentelemetry import trace
from opentelemetry.trace import Span, Status, StatusCode, TracerProvider

from busway.otel.propagation import inject
from busway.otel.spans import ERROR, OFFSET, PARTITION, ReadRecord, processing, start_send, tracer_of
from busway.producer.producer import KeyValueHeaders, Producer
from busway.types import Addresses, Headers, RecordMetadata


class TracedProducer(Producer):
    """A `Producer` whose records carry a trace context.

    Each record is a span "send TOPIC" below the current one. It ends with the acknowledgement; with `send_many` and
    `send_among` when the record is queued.

    Args:
        tracer_provider: by default OpenTelemetry's global one.
        bootstrap_servers, client_id, options: as of `Producer`.
    """

    def __init__(
        self,
        bootstrap_servers: Addresses = "localhost:9092",
        *,
        client_id: str = "busway",
        tracer_provider: TracerProvider | None = None,
        **options: Any,
    ) -> None:
        super().__init__(bootstrap_servers, client_id=client_id, **options)
        self._tracer = tracer_of(tracer_provider)

    async def send(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> "asyncio.Future[RecordMetadata]":
        """As `Producer.send`."""
        span = start_send(self._tracer, topic, tombstone=value is None)
        try:
            future = await super().send(
                topic,
                value,
                key,
                partition=partition,
                timestamp_ms=timestamp_ms,
                headers=inject(headers, trace.set_span_in_context(span)),
            )
        except BaseException as problem:
            _fail(span, problem)
            span.end()
            raise
        future.add_done_callback(partial(_acknowledged, span))
        return future

    async def send_among(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> "asyncio.Future[RecordMetadata]":
        """As `Producer.send_among`."""
        return await super().send_among(
            topic,
            value,
            key,
            partition=partition,
            timestamp_ms=timestamp_ms,
            headers=self._queued(topic, value, headers),
        )

    async def send_many(
        self,
        topic: str,
        records: Iterable[KeyValueHeaders],
        *,
        partition: int,
        timestamp_ms: int | None = None,
        linger: bool = True,
    ) -> "list[asyncio.Future[RecordMetadata]]":
        """As `Producer.send_many`."""

        def traced() -> Iterator[KeyValueHeaders]:
            for key, value, headers in records:
                yield key, value, tuple(self._queued(topic, value, headers))

        return await super().send_many(topic, traced(), partition=partition, timestamp_ms=timestamp_ms, linger=linger)

    def _queued(self, topic: str, value: bytes | None, headers: Headers) -> Headers:
        span = start_send(self._tracer, topic, tombstone=value is None)
        try:
            return inject(headers, trace.set_span_in_context(span))
        finally:
            span.end()


def process_span(
    record: ReadRecord, *, group_id: str | None = None, tracer_provider: TracerProvider | None = None
) -> AbstractContextManager[Span]:
    """Return a context manager: the span "process TOPIC" of a record, a child of the span that sent it.

        async for record in consumer:
            with process_span(record, group_id="shop"):
                await handle(record)

    Args:
        group_id: of the consumer.
        tracer_provider: by default OpenTelemetry's global one.
    """
    more = {} if group_id is None else {"messaging.consumer.group.name": group_id}
    return processing(tracer_of(tracer_provider), (record,), more, batch=False)


def _acknowledged(span: Span, future: "asyncio.Future[RecordMetadata]") -> None:
    if future.cancelled():
        span.end()
        return
    if (problem := future.exception()) is not None:
        _fail(span, problem)
    else:
        written = future.result()
        span.set_attributes({PARTITION: str(written.partition), OFFSET: written.offset})
    span.end()


def _fail(span: Span, problem: BaseException) -> None:
    span.record_exception(problem)
    span.set_status(Status(StatusCode.ERROR, str(problem)))
    span.set_attribute(ERROR, type(problem).__qualname__)
