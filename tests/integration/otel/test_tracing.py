"""One trace through a producer, two handlers and their topics; batches, queues, failures."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from busway import App, Batch, Consumer, DeliveryFailed, MessageTooLarge, Producer, RecordMetadata, Retry
from busway.otel import TracedProducer, Tracing, process_span
from busway_bus.testing.local_cluster import LocalCluster

pytestmark = pytest.mark.slow


class Spans:
    """A provider, and the spans that ended."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def named(self, name: str) -> list[ReadableSpan]:
        """In the order of their ends."""
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def only(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span


@pytest.fixture
def spans() -> Iterator[Spans]:
    """Of one test."""
    made = Spans()
    yield made
    made.provider.shutdown()


def id_of(span: ReadableSpan) -> tuple[int, int]:
    context = span.get_span_context()
    assert context is not None
    return context.trace_id, context.span_id


def parent_of(span: ReadableSpan) -> tuple[int, int] | None:
    return None if span.parent is None else (span.parent.trace_id, span.parent.span_id)


async def test_one_trace_through_two_handlers(spans: Spans) -> None:
    """Each handler is a child of the span that sent its record, in another service or the same one."""
    app = App("traced")
    first = app.topic("first", key=str, value=dict, format="json")
    second = app.topic("second", key=str, value=dict, format="json")
    third = app.topic("third", key=str, value=dict, format="json")
    seen: list[Sequence[tuple[str, bytes | None]]] = []

    @app.subscribe(first)
    async def forward(order: dict) -> None:
        await second.send(order, key="k", headers=[("own", b"1")])

    @app.publish(third)
    @app.subscribe(second)
    def answer(order: dict) -> dict:
        assert trace.get_current_span().is_recording()
        return order

    app.extend(Tracing(tracer_provider=spans.provider))
    async with app.test() as bus:
        async with TracedProducer(app.bootstrap_servers, tracer_provider=spans.provider) as producer:
            await producer.send_and_wait("first", b"{}", b"k")
        await bus.settle()
        seen += [record.headers for record in await bus.records(second)]
        seen += [record.headers for record in await bus.records(third)]
    sent, forwarded = spans.only("send first"), spans.only("process first")
    again, answered, published = spans.only("send second"), spans.only("process second"), spans.only("send third")
    chain = [sent, forwarded, again, answered, published]
    assert [parent_of(span) for span in chain] == [None, *map(id_of, chain[:-1])]
    assert [span.kind for span in chain[:2]] == [SpanKind.PRODUCER, SpanKind.CONSUMER]
    assert dict(forwarded.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "first",
        "messaging.destination.partition.id": "0",
        "messaging.kafka.offset": 0,
        "messaging.client.id": "traced",
        "messaging.consumer.group.name": "traced",
        "code.function.name": f"{__name__}.test_one_trace_through_two_handlers.<locals>.forward",
    }
    assert dict(sent.attributes or {})["messaging.kafka.offset"] == 0
    assert [[name for name, _ in headers] for headers in seen] == [["own", "traceparent"], ["traceparent"]]


async def test_a_failed_attempt_is_an_error(spans: Spans) -> None:
    """Each attempt has a span; the dead letter keeps the trace of its record."""
    app = App("failing")
    topic = app.topic("failing.topic", value=dict, format="json")

    @app.subscribe(topic, retry=Retry(attempts=2, on=(ValueError,)))
    async def fail(order: dict) -> None:
        raise ValueError("no such zone")

    app.extend(Tracing(tracer_provider=spans.provider))
    async with app.test() as bus:
        async with TracedProducer(app.bootstrap_servers, tracer_provider=spans.provider) as producer:
            await producer.send_and_wait("failing.topic", b"{}")
        await bus.settle()
        (letter,) = await bus.dead_letters(topic)
    sent = spans.only("send failing.topic")
    attempts = spans.named("process failing.topic")
    assert [parent_of(span) for span in attempts] == [id_of(sent)] * 2
    assert [(span.status.status_code, (span.attributes or {})["error.type"]) for span in attempts] == [
        (StatusCode.ERROR, "ValueError")
    ] * 2
    traceparent = dict(letter.headers)["traceparent"]
    assert traceparent is not None
    assert f"{id_of(sent)[0]:032x}" in traceparent.decode()


async def test_a_batch_links_to_the_spans_of_its_records(spans: Spans) -> None:
    """It belongs to none of their traces."""
    app = App("batched")
    topic = app.topic("batched.topic", value=dict, format="json", partitions=1)
    sizes: list[int] = []

    @app.subscribe(topic, batch=Batch(max_records=10, max_wait_s=1))
    async def take(orders: list[dict]) -> None:
        sizes.append(len(orders))

    app.extend(Tracing(tracer_provider=spans.provider))
    async with app.test() as bus:
        async with TracedProducer(app.bootstrap_servers, tracer_provider=spans.provider) as producer:
            await asyncio.gather(*await producer.send_many("batched.topic", [(None, b"{}", ())] * 3, partition=0))
            (await producer.send_among("batched.topic", b"{}", partition=0))
        await bus.settle()
    linked: list[Any] = []
    for span in spans.named("process batched.topic"):
        assert span.parent is None
        assert len(span.links) == (span.attributes or {})["messaging.batch.message_count"]
        linked += [(link.context.trace_id, link.context.span_id) for link in span.links]
    assert linked == [id_of(span) for span in spans.named("send batched.topic")]
    assert sum(sizes) == 4


async def test_an_exactly_once_handler_and_a_queue(spans: Spans) -> None:
    """What is kept for the transaction carries the handler's trace, and so does what a queue sends."""
    app = App("once")
    source = app.topic("once.source", value=dict, format="json")
    jobs = app.topic("once.jobs", value=dict, format="json")
    done = app.topic("once.done", value=dict, format="json")

    @app.subscribe(source, guarantee="exactly_once")
    async def move(order: dict) -> None:
        await jobs.send(order)

    @app.queue(jobs, group="once.workers")
    async def work(job: dict) -> None:
        await done.send(job)

    app.extend(Tracing(tracer_provider=spans.provider))
    async with app.test() as bus:
        await bus.send(source, {})
        await bus.settle()
    worked = spans.only("process once.jobs")
    assert parent_of(worked) == id_of(spans.only("send once.jobs"))
    assert (worked.attributes or {})["messaging.consumer.group.name"] == "once.workers"
    assert id_of(spans.only("send once.done"))[0] == id_of(spans.only("process once.source"))[0]


async def test_bare_clients(spans: Spans) -> None:
    """A consumer's records are processed below the spans that sent them, with a link to the current one."""
    tracer = spans.provider.get_tracer("t")
    async with LocalCluster() as cluster:
        where = cluster.bootstrap_servers
        async with TracedProducer(where, tracer_provider=spans.provider) as producer:
            with tracer.start_as_current_span("request") as request:
                await producer.send_and_wait("bare", None, b"k")
            with pytest.raises(MessageTooLarge):
                await producer.send("bare", bytes(2_000_000))
        async with Consumer("bare", bootstrap_servers=where, auto_offset_reset="earliest") as consumer:
            record = await consumer.getone()
        process = process_span(record, group_id="g", tracer_provider=spans.provider)
        with tracer.start_as_current_span("ambient") as ambient, process:
            pass
    refused, sent = sorted(spans.named("send bare"), key=lambda span: span.parent is not None)
    assert (refused.status.status_code, (refused.attributes or {})["error.type"]) == (
        StatusCode.ERROR,
        "MessageTooLarge",
    )
    assert parent_of(sent) == (request.get_span_context().trace_id, request.get_span_context().span_id)
    processed = spans.only("process bare")
    assert parent_of(processed) == id_of(sent)
    assert [link.context.span_id for link in processed.links] == [ambient.get_span_context().span_id]
    assert (processed.attributes or {})["messaging.kafka.message.tombstone"] is True


async def test_a_record_that_is_not_acknowledged_is_an_error(spans: Spans, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its span ends with the future; one that was cancelled ends too."""
    futures: list[asyncio.Future[RecordMetadata]] = []

    async def queued(*_: object, **__: object) -> "asyncio.Future[RecordMetadata]":
        futures.append(asyncio.get_running_loop().create_future())
        return futures[-1]

    monkeypatch.setattr(Producer, "send", queued)
    producer = TracedProducer(tracer_provider=spans.provider)
    for _ in range(2):
        await producer.send("gone", b"x")
    assert spans.named("send gone") == []
    futures[0].set_exception(DeliveryFailed("not in time"))
    futures[1].cancel()
    await asyncio.wait(futures)
    await asyncio.sleep(0)
    failed, cancelled = spans.named("send gone")
    assert (failed.status.status_code, (failed.attributes or {})["error.type"]) == (StatusCode.ERROR, "DeliveryFailed")
    assert cancelled.status.status_code is StatusCode.UNSET


async def test_without_a_tracing_extension_headers_stay() -> None:
    """An app sends what it was given."""
    app = App("plain")
    topic = app.topic("plain.topic", value=dict, format="json")
    async with app.test() as bus:
        await topic.send({}, headers=[("a", b"1")])
        (record,) = await bus.records(topic)
    assert record.headers == (("a", b"1"),)
