"""The frame around a registered value: a zero byte, four bytes of schema id, the body (Confluent's wire format).

What lives here: putting it on and taking it off. What does not: the body (`avro`).
"""

import struct
from typing import Final

FRAME_BYTES: Final = 5
_FRAME: Final = struct.Struct(">bI")


class NotFramed(ValueError):
    """The bytes were not written by a serializer of a schema registry."""


def frame(schema_id: int) -> bytes:
    """What goes before the body."""
    return _FRAME.pack(0, schema_id)


def unframe(data: bytes | memoryview) -> int:
    """The schema id; the body begins at `FRAME_BYTES`.

    Raises:
        NotFramed: the bytes are too short or do not begin with zero.
    """
    if len(data) < FRAME_BYTES:
        raise NotFramed(
            f"{len(data)} bytes are too few for a schema id; the value was not written through a schema registry"
        )
    magic, schema_id = _FRAME.unpack_from(data)
    if magic != 0:
        raise NotFramed(f"the first byte is {magic & 0xFF}, not 0; the value was not written through a schema registry")
    return int(schema_id)
