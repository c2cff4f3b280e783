"""A batch in the codec that its topic asks for (`compression.type`).

What lives here: taking the records out of one codec and putting them into another; they are not opened. What does not: the codecs
(`records.compression`). A topic that keeps the producer's codec, which is the default, never gets here.
"""

import struct
from typing import Final

from busway_bus.log.log_config import LogConfig
from busway_protocol.errors import ErrorCode, KafkaError, ProtocolError
from busway_protocol.records.batch import (
    CRC_START,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    BatchHeader,
    computed_crc,
    read_header,
)
from busway_protocol.records.compression import CODECS, OutputTooLarge, compress, decompress
from busway_protocol.types import Buffer

_CODEC_BITS: Final = 0x07
_LENGTH: Final = struct.Struct(">i")
_CRC: Final = struct.Struct(">I")
_ATTRIBUTES: Final = struct.Struct(">h")
_LENGTH_AT: Final = 8
_CRC_AT: Final = 17
LZ4_FAST: Final = 9
"""The level that is Kafka's default and stands for the fast compressor; any other is one of the dense one."""
_INFLATED: Final = 16
"""Records may be so many times max.message.bytes long when they are taken out of their codec."""


def wanted_codec(config: LogConfig) -> int | None:
    """The number of the codec that the topic asks for; None to keep the producer's."""
    if config.compression_type == "producer":
        return None
    return 0 if config.compression_type == "uncompressed" else CODECS[config.compression_type]


def recompressed(records: Buffer, header: BatchHeader, codec: int, config: LogConfig) -> tuple[Buffer, BatchHeader]:
    """The batch in another codec, with its header: length, attributes and checksum are new, all else is as it was.

    Raises:
        KafkaError: MESSAGE_TOO_LARGE, the records inflate beyond the limit, or in the new codec beyond max.message.bytes;
            CORRUPT_MESSAGE, they cannot be decompressed.
    """
    limit = _INFLATED * max(config.max_message_bytes, 65_536)
    try:
        plain = decompress(header.compression, memoryview(records)[HEADER_BYTES:], limit)
    except OutputTooLarge as problem:
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, str(problem)) from None
    except ProtocolError as problem:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(problem)) from None
    batch = bytearray(memoryview(records)[:HEADER_BYTES])
    batch += compress(codec, bytes(plain), _level(codec, config))
    if len(batch) > config.max_message_bytes:
        text = f"the batch has {len(batch)} bytes as {config.compression_type}, max.message.bytes allows {config.max_message_bytes}"
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, text)
    _LENGTH.pack_into(batch, _LENGTH_AT, len(batch) - LENGTH_OVERHEAD)
    (attributes,) = _ATTRIBUTES.unpack_from(batch, CRC_START)
    _ATTRIBUTES.pack_into(batch, CRC_START, (attributes & ~_CODEC_BITS) | codec)
    _CRC.pack_into(batch, _CRC_AT, computed_crc(batch))
    return batch, read_header(batch)


def _level(codec: int, config: LogConfig) -> int | None:
    if codec == CODECS["zstd"]:
        return config.compression_zstd_level
    if codec == CODECS["gzip"] and config.compression_gzip_level >= 0:
        return config.compression_gzip_level
    if codec == CODECS["lz4"] and config.compression_lz4_level != LZ4_FAST:
        return config.compression_lz4_level
    return None
