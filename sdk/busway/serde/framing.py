"""Confluent's wire format: a zero byte, four bytes of schema id (big-endian), the body.

Not here: the body (`avro`).
"""

import struct
from typing import Final

FRAME_BYTES: Final = 5
_FRAME: Final = struct.Struct(">bI")


class NotFramed(ValueError):
    """The bytes were not written by a schema registry's serializer."""


def frame(schema_id: int) -> bytes:
    return _FRAME.pack(0, schema_id)


def unframe(data: bytes | memoryview) -> int:
    if len(data) < FRAME_BYTES:
        raise NotFramed(
            f"{len(data)} bytes are too few for a schema id; the value was not written through a schema registry"
        )
    magic, schema_id = _FRAME.unpack_from(data)
    if magic != 0:
        raise NotFramed(f"the first byte is {magic & 0xFF}, not 0; the value was not written through a schema registry")
    return int(schema_id)
