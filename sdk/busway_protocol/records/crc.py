"""CRC-32C (Castagnoli), in native code: the checksum of every record batch."""

from crc32c import crc32c

__all__ = ["crc32c"]
