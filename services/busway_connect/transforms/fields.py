"""`RegexRouter`, `ReplaceField` and `InsertField` of Kafka Connect.

Here: their effect on topic, key, value and schemas, each schema changed once.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

import regex

from busway_connect.connector import Setting, SinkRecord
from busway_connect.converters.interface import BySchema
from busway_connect.patterns import BadPattern, Pattern, TooLong
from busway_connect.schema import Field, Schema
from busway_connect.transforms.interface import R, Transform, TransformFailed

_TIMESTAMP: Final = "org.apache.kafka.connect.data.Timestamp"


class RegexRouter(Transform):
    """Routes topics that match `regex` as a whole to `replacement`; `$1` is the first group."""

    settings: ClassVar[tuple[Setting, ...]] = (
        Setting(name="regex", doc="Of the whole topic name", required=True),
        Setting(name="replacement", doc="The new name", required=True),
    )

    def __init__(self, settings: Mapping[str, str]) -> None:
        super().__init__(settings)
        for name in ("regex", "replacement"):
            if name not in settings:
                raise ValueError(f"{name} is missing")
        try:
            self._regex = Pattern(settings["regex"])
        except BadPattern as problem:
            raise ValueError(f"regex: {problem}") from None
        self._replacement = re.sub(r"\$(\d+)", r"\\g<\1>", settings["replacement"].replace("\\", r"\\"))

    def apply(self, record: R) -> R | None:
        try:
            match = self._regex.match(record.topic)
        except TooLong as problem:
            raise TransformFailed(f"regex: {problem}") from None
        if match is None:
            return record
        try:
            return dataclasses.replace(record, topic=match.expand(self._replacement))
        except (regex.error, IndexError) as problem:
            raise TransformFailed(f"replacement: {problem}") from None


class _OnStruct(Transform):
    on_key: ClassVar[bool] = False

    def __init__(self, settings: Mapping[str, str]) -> None:
        super().__init__(settings)
        self._schemas: BySchema[Schema] = BySchema()

    def _part(self, record: R) -> tuple[Schema | None, Any]:
        schema, value = (record.key_schema, record.key) if self.on_key else (record.value_schema, record.value)
        if value is not None and not isinstance(value, Mapping):
            raise TransformFailed(f"{type(self).__name__} works on structs and maps, not on {type(value).__name__}")
        return schema, value

    def _with(self, record: R, schema: Schema | None, value: Any) -> R:
        if self.on_key:
            return dataclasses.replace(record, key=value, key_schema=schema)
        return dataclasses.replace(record, value=value, value_schema=schema)

    def _changed(self, schema: Schema | None, change: Callable[[Schema], tuple[Field, ...]]) -> Schema | None:
        if schema is None:
            return None
        return self._schemas.get(schema) or self._schemas.put(
            schema, dataclasses.replace(schema, fields=change(schema))
        )


class ReplaceField(_OnStruct):
    """Removes (`exclude`), keeps (`include`) or renames fields (`renames`, `old:new` with commas)."""

    settings: ClassVar[tuple[Setting, ...]] = (
        Setting(name="exclude", doc="Fields to exclude", default="", type="LIST"),
        Setting(name="include", doc="Fields to include", default="", type="LIST"),
        Setting(name="renames", doc="Field rename mappings", default="", type="LIST"),
    )

    def __init__(self, settings: Mapping[str, str]) -> None:
        super().__init__(settings)
        self._exclude = set(_listed(settings, "exclude"))
        self._include = set(_listed(settings, "include"))
        self._renames: dict[str, str] = {}
        for rename in _listed(settings, "renames"):
            old, colon, new = rename.partition(":")
            if not colon or not old or not new:
                raise ValueError(f"renames: {rename!r} is not old:new")
            self._renames[old] = new

    def _kept(self, name: str) -> bool:
        return name not in self._exclude and (not self._include or name in self._include)

    def apply(self, record: R) -> R | None:
        schema, value = self._part(record)
        if value is None:
            return record
        made = {self._renames.get(name, name): content for name, content in value.items() if self._kept(name)}
        return self._with(record, self._changed(schema, self._fields), made)

    def _fields(self, schema: Schema) -> tuple[Field, ...]:
        return tuple(
            dataclasses.replace(field, name=self._renames.get(field.name, field.name))
            for field in schema.fields
            if self._kept(field.name)
        )


class ReplaceKeyField(ReplaceField):
    on_key: ClassVar[bool] = True


class InsertField(_OnStruct):
    """Adds metadata: `topic.field`, `partition.field`, `offset.field`, `timestamp.field`, `static.field` with
    `static.value`.

    A `!` after a name makes the field required, `?` optional (default). Partition and offset exist in sinks only.
    """

    settings: ClassVar[tuple[Setting, ...]] = (
        *(
            Setting(name=f"{inserted}.field", doc=f"Field name for the {inserted}")
            for inserted in ("topic", "partition", "offset", "timestamp", "static")
        ),
        Setting(name="static.value", doc="Of the static field"),
    )

    def __init__(self, settings: Mapping[str, str]) -> None:
        super().__init__(settings)
        self._adds: list[tuple[str, str, bool]] = []
        for kind in ("topic", "partition", "offset", "timestamp", "static"):
            text = settings.get(f"{kind}.field", "").strip()
            if text:
                self._adds.append((kind, text.rstrip("!?"), not text.endswith("!")))
        if not self._adds:
            raise ValueError("No field insertion configured")
        if any(kind == "static" for kind, _, _ in self._adds) and "static.value" not in settings:
            raise ValueError("static.value: No value specified for static field")

    def apply(self, record: R) -> R | None:
        schema, value = self._part(record)
        if value is None:
            return record
        made = {**value, **{name: self._known(record, kind) for kind, name, _ in self._adds}}
        return self._with(record, self._changed(schema, self._fields), made)

    def _known(self, record: R, kind: str) -> Any:
        if kind == "topic":
            return record.topic
        if kind == "timestamp":
            return record.timestamp_ms
        if kind == "static":
            return self.config["static.value"]
        if not isinstance(record, SinkRecord):
            raise TransformFailed(f"{kind}.field: only a sink knows the {kind} of a record")
        return record.partition if kind == "partition" else record.offset

    def _fields(self, schema: Schema) -> tuple[Field, ...]:
        added = []
        for kind, name, optional in self._adds:
            if kind == "timestamp":
                inserted = Schema(type="int64", name=_TIMESTAMP, version=1, optional=optional)
            elif kind == "partition":
                inserted = Schema(type="int32", optional=optional)
            elif kind == "offset":
                inserted = Schema(type="int64", optional=optional)
            else:
                inserted = Schema(type="string", optional=optional)
            added.append(Field(name=name, schema=inserted))
        return (*schema.fields, *added)


class InsertKeyField(InsertField):
    on_key: ClassVar[bool] = True


def _listed(settings: Mapping[str, str], name: str) -> list[str]:
    return [part.strip() for part in settings.get(name, "").split(",") if part.strip()]
