"""Traces of OpenTelemetry through record headers: `pip install 'busway[otel]'`.

Here: the public names; `import busway` does not load them.
Not here: exporters, sampling and the service's name, which are those of the OpenTelemetry SDK.

    from busway.otel import Tracing

    app.extend(Tracing())
"""

from busway.extras import need

need("otel", "busway.otel")

from busway.otel.clients import TracedProducer, process_span
from busway.otel.extension import Tracing
from busway.otel.propagation import extract, inject

__all__ = ["TracedProducer", "Tracing", "extract", "inject", "process_span"]
