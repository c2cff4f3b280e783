"""Varints and identifiers for the compiled codecs.

Here: the slow paths of varints (one byte, the fast path, is inlined by the compiler). Encoding as in the Kafka protocol
guide: unsigned LEB128 of at most five bytes; zigzag for signed.
"""

from functools import lru_cache
from uuid import UUID

from busway_protocol.errors import MalformedMessage
from busway_protocol.types import Buffer

_UVARINT_SHIFT_MAX = 28
_UVARINT_TWO_BYTES_MAX = 0x3FFF


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return the unsigned varint, up to 32 bits, and the position behind it.

    Raise `MalformedMessage` beyond five bytes or 32 bits, `IndexError` if the buffer ends inside it.
    """
    value = 0
    shift = 0
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                raise MalformedMessage("varint is larger than 32 bits")
            return value, position
        shift += 7
        if shift > _UVARINT_SHIFT_MAX:
            raise MalformedMessage("varint is longer than 5 bytes")


def uvarint(value: int) -> bytes:
    """Encode `value` (0 to 2^32 - 1) as an unsigned varint."""
    if value <= _UVARINT_TWO_BYTES_MAX:
        return bytes((value,) if value <= 0x7F else (value & 0x7F | 0x80, value >> 7))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


@lru_cache(maxsize=4096)
def uuid_of(raw: bytes) -> UUID:
    """Return the UUID of 16 bytes; cached, since a connection repeats a few topics."""
    return UUID(bytes=raw)
