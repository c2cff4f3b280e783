"""Display of record bytes.

Here: Avro through the registry, text, otherwise base 64.
Not here: printing (`output`), selecting records (`records`, `dlq`).
"""

import json
from collections.abc import Iterable
from typing import Any

from busway.cli.output import in_base64
from busway.errors import BuswayError
from busway.serde.avro import AvroCodec
from busway.serde.framing import FRAME_BYTES, NotFramed, unframe
from busway.serde.registry import RegistryClient, RegistryUnreachable


class Decoder:
    """Decodes keys and values for display; requests each schema once. An unreachable registry has no schemas."""

    def __init__(self, registry: RegistryClient) -> None:
        self._registry = registry
        self.problem: RegistryUnreachable | None = None
        """The last failure to reach the registry."""
        self._codecs: dict[int, AvroCodec[Any] | None] = {}

    async def decode(self, data: bytes | None) -> Any:
        if data is None:
            return None
        try:
            schema_id = unframe(data)
        except NotFramed:
            return printable(data)
        codec = await self._codec(schema_id)
        if codec is None:
            return printable(data)
        try:
            return codec.decode(data, schema_id, FRAME_BYTES)
        except ValueError:
            return printable(data)

    async def _codec(self, schema_id: int) -> AvroCodec[Any] | None:
        if schema_id not in self._codecs:
            try:
                text = await self._registry.schema(schema_id)
                codec: AvroCodec[Any] = AvroCodec(dict, schema=json.loads(text))
                codec.add_writer(schema_id, text)
                self._codecs[schema_id] = codec
            except RegistryUnreachable as problem:
                self.problem = problem
                self._codecs[schema_id] = None
            except (BuswayError, ValueError):
                self._codecs[schema_id] = None
        return self._codecs[schema_id]


def printable(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return in_base64(data)
    return text if text.isprintable() or not any(ord(character) < 9 for character in text) else in_base64(data)


def headers_shown(headers: Iterable[tuple[str, bytes | None]]) -> list[tuple[str, str | None]]:
    """Return headers as pairs in order, because a name may repeat. A value may be None."""
    return [(name, content if content is None else content.decode(errors="replace")) for name, content in headers]
