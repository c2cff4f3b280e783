"""Busway Connect: a connector runtime with Kafka Connect's REST API and setting names.

Here: base classes for users' connectors, transforms, predicates and converters (`docs/CONNECT.md`).
Not here: the runtime (`busway connect`).
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
