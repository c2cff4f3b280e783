"""Busway Connect: a connector runtime with Kafka Connect's REST API and config names.

What lives here: the names for connectors, transforms, predicates and converters of one's own (`docs/CONNECT.md`). What does not: the runtime,
which the `busway connect` command brings.
"""

from busway_connect.connector import (
    Boundaries,
    Config,
    ConfigInvalid,
    Offset,
    RecordRefused,
    Retriable,
    Setting,
    Sink,
    SinkRecord,
    Source,
    SourceRecord,
)
from busway_connect.converters.interface import ConversionFailed, Converter
from busway_connect.schema import Field, Schema
from busway_connect.transforms.interface import Predicate, Transform, TransformFailed

__all__ = [
    "Boundaries",
    "Config",
    "ConfigInvalid",
    "ConversionFailed",
    "Converter",
    "Field",
    "Offset",
    "Predicate",
    "RecordRefused",
    "Retriable",
    "Schema",
    "Setting",
    "Sink",
    "SinkRecord",
    "Source",
    "SourceRecord",
    "Transform",
    "TransformFailed",
]
