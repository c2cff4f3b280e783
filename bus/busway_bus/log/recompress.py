"""Recompression of a batch to its topic's codec (`compression.type`).

Here: recompression, unless the setting is the producer's codec.
Not here: the codecs (`records.compression`).
"""

import struct
from typing import Final

from busway_bus.log.log_config import LogConfig
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.records.batch import (
    CRC_START,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    computed_crc,
)
from busway_protocol.records.compression import CODECS, compress
from busway_protocol.types import Buffer

_CODEC_BITS: Final = 0x07
_LENGTH: Final = struct.Struct(">i")
_CRC: Final = struct.Struct(">I")
_ATTRIBUTES: Final = struct.Struct(">h")
_LENGTH_AT: Final = 8
_CRC_AT: Final = 17
LZ4_FAST: Final = 9
"""Kafka's default level, the fast compressor; others are of the high-compression one."""


def wanted_codec(config: LogConfig) -> int | None:
    if config.compression_type == "producer":
        return None
    return 0 if config.compression_type == "uncompressed" else CODECS[config.compression_type]


def recompressed(records: Buffer, plain: Buffer, codec: int, config: LogConfig) -> bytearray:
    """Recompress to `codec`; only length, attributes and checksum of the header change.

    `plain`: the decompressed records. KafkaError: MESSAGE_TOO_LARGE, the result exceeds max.message.bytes.
    """
    batch = bytearray(memoryview(records)[:HEADER_BYTES])
    batch += plain if codec == 0 else compress(codec, bytes(plain), _level(codec, config))
    if len(batch) > config.max_message_bytes:
        text = f"the batch has {len(batch)} bytes as {config.compression_type}, max.message.bytes allows {config.max_message_bytes}"
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, text)
    _LENGTH.pack_into(batch, _LENGTH_AT, len(batch) - LENGTH_OVERHEAD)
    (attributes,) = _ATTRIBUTES.unpack_from(batch, CRC_START)
    _ATTRIBUTES.pack_into(batch, CRC_START, (attributes & ~_CODEC_BITS) | codec)
    _CRC.pack_into(batch, _CRC_AT, computed_crc(batch))
    return batch


def _level(codec: int, config: LogConfig) -> int | None:
    if codec == CODECS["zstd"]:
        return config.compression_zstd_level
    if codec == CODECS["gzip"] and config.compression_gzip_level >= 0:
        return config.compression_gzip_level
    if codec == CODECS["lz4"] and config.compression_lz4_level != LZ4_FAST:
        return config.compression_lz4_level
    return None
