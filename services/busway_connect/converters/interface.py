"""What a converter is: values of Connect's data model ↔ the bytes of a record.

What lives here: the interface and its errors. What does not: the formats, one module each; which one is meant (`registry`).
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Generic, TypeVar

from busway_connect.connector import Configurable
from busway_connect.schema import Schema

T = TypeVar("T")
CACHED_SCHEMAS: Final = 1000
"""As Kafka Connect's `schemas.cache.size`: how many schemas a converter keeps ready."""


class ConversionFailed(ValueError):
    """A value does not fit its schema, or bytes are not what the converter reads; trying again does not help."""


class Converter(Configurable):
    """Kafka Connect's `Converter`.

    Args:
        settings: what follows `key.converter.` or `value.converter.` in the configuration.
        is_key: whether it converts keys.
    """

    inert: ClassVar[Mapping[str, str]] = {
        "schemas.cache.size": "how many schemas are kept ready",
        "schemas.cache.config": "how many schemas are kept ready",
        "schemas.enable": "a converter that has no schemas around its values, or has them always, has nothing to enable",
    }

    def __init__(self, settings: Mapping[str, str], *, is_key: bool) -> None:
        self.config = settings
        self.is_key = is_key

    async def from_connect(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
        """Bytes for a record of this topic.

        Raises:
            ConversionFailed: the value does not fit.
            Retriable: what is needed to convert cannot be reached.
        """
        raise NotImplementedError

    async def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        """What is in a record of this topic, with its schema if it has one.

        Raises:
            ConversionFailed: the bytes are something else.
            Retriable: what is needed to convert cannot be reached.
        """
        raise NotImplementedError

    async def close(self) -> None:
        """Let go of connections."""


class BySchema(Generic[T]):
    """What was worked out for a schema, kept by which object it is: comparing schemas of a hundred fields for every record costs more
    than the conversion. The oldest goes when there are too many.
    """

    def __init__(self) -> None:
        self._kept: dict[int, tuple[Schema, T]] = {}

    def get(self, schema: Schema) -> T | None:
        """What is kept for this very object."""
        entry = self._kept.get(id(schema))
        return None if entry is None else entry[1]

    def put(self, schema: Schema, made: T) -> T:
        """Keep it, and the schema, so that its id stays its own."""
        if len(self._kept) >= CACHED_SCHEMAS:
            del self._kept[next(iter(self._kept))]
        self._kept[id(schema)] = (schema, made)
        return made
