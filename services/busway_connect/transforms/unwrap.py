"""`io.debezium.transforms.ExtractNewRecordState`: the row from Debezium's envelope.

Here: that transform. Settings: `delete.tombstone.handling.mode` (tombstone, drop, rewrite, rewrite-with-tombstone,
delete-to-tombstone; tombstone is the default, as in Debezium) and `add.fields` (`op`, `source.ts_ms`, …, with
`add.fields.prefix`, `__`).
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from busway_connect.connector import Setting
from busway_connect.converters.interface import BySchema
from busway_connect.schema import Field, Schema
from busway_connect.transforms.interface import R, Transform, TransformFailed

_MODES: Final = ("tombstone", "drop", "rewrite", "rewrite-with-tombstone", "delete-to-tombstone")
_DELETED: Final = Field(name="__deleted", schema=Schema(type="string", optional=True))


def is_envelope(schema: Schema | None, value: Any) -> bool:
    if schema is not None and schema.name is not None:
        return schema.name.endswith(".Envelope")
    return isinstance(value, Mapping) and {"op", "source"} <= value.keys() and ("after" in value or "before" in value)


def part_schema(schema: Schema | None, name: str) -> Schema | None:
    if schema is None:
        return None
    return next((field.schema for field in schema.fields if field.name == name), None)


class ExtractNewRecordState(Transform):
    settings: ClassVar[tuple[Setting, ...]] = (
        Setting(name="delete.tombstone.handling.mode", doc="What becomes of a delete", default="tombstone"),
        Setting(name="add.fields", doc="Members of the envelope to add to the row, with commas", default=""),
        Setting(name="add.fields.prefix", doc="Put before their names", default="__"),
    )

    def __init__(self, settings: Mapping[str, str]) -> None:
        super().__init__(settings)
        self._mode = settings.get("delete.tombstone.handling.mode", "tombstone")
        if self._mode not in _MODES:
            raise ValueError(f"delete.tombstone.handling.mode is one of {', '.join(_MODES)}, not {self._mode!r}")
        prefix = settings.get("add.fields.prefix", "__")
        self._adds = [
            (added, prefix + added.rpartition(":")[2].replace(".", "_"))
            for added in (text.strip() for text in settings.get("add.fields", "").split(","))
            if added
        ]
        self._schemas: dict[bool, BySchema[Schema]] = {True: BySchema(), False: BySchema()}

    def apply(self, record: R) -> R | None:
        """Return the row after the change; other records pass unchanged."""
        value = record.value
        if value is None:
            # The mode decides on the tombstone after a delete.
            return None if self._mode in {"drop", "rewrite", "delete-to-tombstone"} else record
        if not is_envelope(record.value_schema, value):
            return record
        if value["op"] == "d":
            return self._deleted(record, value)
        if value["op"] in {"t", "m"}:
            return None
        return self._row(record, value, "after")

    def _deleted(self, record: R, value: Any) -> R | None:
        if self._mode in {"tombstone", "drop"}:
            return None
        if self._mode == "delete-to-tombstone":
            return dataclasses.replace(record, value=None, value_schema=None)
        return self._row(record, value, "before")

    def _row(self, record: R, value: Any, which: str) -> R:
        row = value.get(which)
        if row is None:
            raise TransformFailed(f"the envelope of a change {value['op']!r} has no {which!r}")
        made = dict(row)
        rewrites = self._mode.startswith("rewrite")
        for path, name in self._adds:
            made[name] = _at(value, path.rpartition(":")[2])
        if rewrites:
            made["__deleted"] = "true" if which == "before" else "false"
        return dataclasses.replace(
            record, value=made, value_schema=self._schema(record.value_schema, which, rewrites=rewrites)
        )

    def _schema(self, envelope: Schema | None, which: str, *, rewrites: bool) -> Schema | None:
        if envelope is None:
            return None
        kept = self._schemas[which == "after"]
        unwrapped = kept.get(envelope)
        if unwrapped is not None:
            return unwrapped
        row = part_schema(envelope, which)
        if row is None:
            raise TransformFailed(f"the schema {envelope.name} has no {which!r}")
        added = []
        for path, name in self._adds:
            schema: Schema | None = envelope
            for part in path.rpartition(":")[2].split("."):
                schema = part_schema(schema, part)
            if schema is None:
                raise TransformFailed(f"add.fields: the envelope {envelope.name} has no {path}")
            added.append(Field(name=name, schema=dataclasses.replace(schema, optional=True)))
        fields = (*row.fields, *added, *((_DELETED,) if rewrites else ()))
        return kept.put(envelope, dataclasses.replace(row, fields=fields, optional=False))


def _at(value: Any, path: str) -> Any:
    for part in path.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(part)
    return value
