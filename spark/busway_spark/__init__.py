"""Spark on Busway: topics as typed DataFrames.

Public: the names listed here, and `busway_spark.session.session`. Each is imported on first use: Spark's workers import
parts of this package very often, and never need PySpark's session.
"""

import importlib
from typing import Any, Final

_WHERE: Final = {
    "avro": ("decode_avro",),
    "errors": ("explain",),
    "jars": ("JarsMissing", "jar_paths"),
    "job": ("Job", "run_job"),
    "keys": ("key_schemas", "key_text"),
    "lag": ("LagListener", "Progress", "commit_group", "progress_of"),
    "schemas": ("NoColumns", "NoSchema", "Schemas", "schemas_of"),
    "source": ("DataLoss", "register"),
    "store": ("delta_writer", "realtime", "to_store"),
    "supervise": ("StreamFailed", "run_stream"),
    "topics": ("NotServed", "read_topic", "rejected", "stream_topic"),
    "write": ("DoesNotFit", "write_topic"),
}
_MODULE_OF: Final = {name: module for module, names in _WHERE.items() for name in names}
__all__ = sorted(_MODULE_OF)  # noqa: PLE0605 - the table above is the list


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'busway_spark' has no attribute {name!r}")
    return getattr(importlib.import_module(f"busway_spark.{_MODULE_OF[name]}"), name)
