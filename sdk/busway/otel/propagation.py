"""Trace context in record headers, by OpenTelemetry's global propagator: W3C `traceparent`, `tracestate`, `baggage`.

Here: `inject`, `extract`.
Not here: spans (`spans`).
"""

from collections.abc import Sequence

from opentelemetry import propagate
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Getter

from busway.types import Headers


class _HeaderGetter(Getter[Headers]):
    def get(self, carrier: Headers, key: str) -> list[str] | None:
        values = [value.decode(errors="replace") for name, value in carrier if name == key and value is not None]
        return values or None

    def keys(self, carrier: Headers) -> list[str]:
        return [name for name, _ in carrier]


_GETTER = _HeaderGetter()


def inject(headers: Headers = (), context: Context | None = None) -> Headers:
    """Return headers with a trace context in place of an earlier one.

    Args:
        context: by default the current one. Without a trace and baggage in it the headers stay as they are.
    """
    fields: dict[str, str] = {}
    propagate.inject(fields, context)
    if not fields:
        return headers
    replaced = propagate.get_global_textmap().fields
    return (
        *((name, value) for name, value in headers if name not in replaced),
        *((name, value.encode()) for name, value in fields.items()),
    )


def extract(headers: Sequence[tuple[str, bytes | None]]) -> Context:
    """Return the trace context of a record; an empty one without it."""
    return propagate.extract(headers, Context(), _GETTER)
