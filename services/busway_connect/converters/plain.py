"""Unchanged text and bytes: `StringConverter`, `ByteArrayConverter`."""

from typing import Any, ClassVar

from busway_connect.connector import Setting
from busway_connect.converters.interface import ConversionFailed, Converter
from busway_connect.schema import Schema

_OPTIONAL_STRING = Schema(type="string", optional=True)
_OPTIONAL_BYTES = Schema(type="bytes", optional=True)


class StringConverter(Converter):
    """UTF-8 text (`converter.encoding` for another encoding); other values as text."""

    settings: ClassVar[tuple[Setting, ...]] = (Setting(name="converter.encoding", doc="Of the text", default="utf-8"),)

    def _encoding(self) -> str:
        return self.config.get("converter.encoding", "utf-8")

    async def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if value is None:
            return None
        try:
            return (value if isinstance(value, str) else _java_text(value)).encode(self._encoding())
        except (UnicodeEncodeError, LookupError) as problem:
            raise ConversionFailed(f"no text in {self._encoding()}: {problem}") from None

    async def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        if data is None:
            return _OPTIONAL_STRING, None
        try:
            return _OPTIONAL_STRING, data.decode(self._encoding())
        except (UnicodeDecodeError, LookupError) as problem:
            raise ConversionFailed(f"no text in {self._encoding()}: {problem}") from None


def _java_text(value: Any) -> str:
    """Format booleans, maps and structs like Java's `toString`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return (
            "Struct{"
            + ",".join(f"{name}={_java_text(content)}" for name, content in value.items() if content is not None)
            + "}"
        )
    return str(value)


class ByteArrayConverter(Converter):
    async def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        if schema is not None and schema.type != "bytes":
            raise ConversionFailed(f"the ByteArrayConverter writes bytes only, and the schema says {schema.type}")
        if value is not None and not isinstance(value, bytes | bytearray | memoryview):
            raise ConversionFailed(f"the ByteArrayConverter writes bytes only, not {type(value).__name__}")
        return None if value is None else bytes(value)

    async def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        return _OPTIONAL_BYTES, data
