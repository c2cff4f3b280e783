"""Converters between Connect's data model and record bytes.

Here: the interface and its errors.
Not here: formats, choosing one (`plugins`).
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Generic, TypeVar

from busway_connect.connector import Configurable
from busway_connect.schema import Schema

T = TypeVar("T")
CACHED_SCHEMAS: Final = 1000
"""Kafka Connect's `schemas.cache.size`: limit of a converter's cached schemas."""


class ConversionFailed(ValueError):
    """A value does not fit its schema, or bytes have another format. A retry does not help."""


class Converter(Configurable):
    """Kafka Connect's `Converter`.

    Args:
        settings: after `key.converter.` or `value.converter.`.
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
        """Return bytes for a record of this topic.

        Raises:
            ConversionFailed: the value does not fit.
            Retriable: a required service is unreachable.
        """
        raise NotImplementedError

    async def to_connect(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        """Return a record's value, with its schema if any. Errors as in `from_connect`."""
        raise NotImplementedError

    async def close(self) -> None:
        """Close connections."""


class BySchema(Generic[T]):
    """A bounded cache keyed by schema object; the oldest entry is removed first.

    Identity is the key, as comparing schemas of a hundred fields would cost more than converting the record.
    """

    def __init__(self) -> None:
        self._kept: dict[int, tuple[Schema, T]] = {}

    def get(self, schema: Schema) -> T | None:
        entry = self._kept.get(id(schema))
        return None if entry is None else entry[1]

    def put(self, schema: Schema, made: T) -> T:
        """Store a value with its schema, so that the id stays unique."""
        if len(self._kept) >= CACHED_SCHEMAS:
            del self._kept[next(iter(self._kept))]
        self._kept[id(schema)] = (schema, made)
        return made
