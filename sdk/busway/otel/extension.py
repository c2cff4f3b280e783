"""`Tracing`: an app's records in traces of OpenTelemetry.

Here: a span for each call of a handler, and for each record that the app sends.
Not here: names and attributes (`spans`), bare clients (`clients`).
"""

from typing import Any

from opentelemetry import trace
from opentelemetry.trace import TracerProvider
from opentelemetry.util.types import AttributeValue

from busway.app.extending.extension import Call, Extension
from busway.app.model.topic import Route
from busway.app.service import RunningService
from busway.otel.propagation import inject
from busway.otel.spans import processing, start_send, tracer_of
from busway.types import Headers


class Tracing(Extension):
    """Continues the traces of records.

    Each attempt at a record is a span "process TOPIC", a child of the span that sent the record; a batch's has links
    instead. Each record that the app sends is a span "send TOPIC", whose context is in the record's headers; it ends
    when the record is passed to the producer. Rows of tables and records of an `Outbox` have none.

    Args:
        tracer_provider: by default OpenTelemetry's global one.
    """

    def __init__(self, *, tracer_provider: TracerProvider | None = None) -> None:
        self._tracer = tracer_of(tracer_provider)
        self._client_id = self._group_id = ""

    async def starting(self, app: RunningService) -> None:
        self._client_id, self._group_id = app.name, app.group_id

    def around(self, route: Route, call: Call) -> Call:
        is_batch = route.batch is not None
        more: dict[str, AttributeValue] = {
            "messaging.client.id": self._client_id,
            "messaging.consumer.group.name": route.group or self._group_id,
            "code.function.name": route.name,
        }

        async def traced(record: Any) -> Any:
            records = record if is_batch else (record,)
            with processing(self._tracer, records, more, batch=is_batch):
                return await call(record)

        return traced

    def sending(self, topic: str, headers: Headers) -> Headers:
        span = start_send(self._tracer, topic)
        try:
            return inject(headers, trace.set_span_in_context(span))
        finally:
            span.end()
