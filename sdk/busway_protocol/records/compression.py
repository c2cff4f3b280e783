"""Codecs of record batches, with bounded output.

Here: codecs in native libraries. Snappy is written in the framing of Java's library, and read with or without it, since
clients write both. Output grows stepwise up to the caller's limit, so that a small batch that inflates to gigabytes has
a bounded cost. Brokers and clients share the limit `inflated_max`: what a broker accepts, it can later check and clean,
and clients can read.
"""

import struct
from collections.abc import Callable, Generator, Mapping
from typing import Any, Final

import cramjam

from busway_protocol.errors import ProtocolError

CODECS: Final[Mapping[str, int]] = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
NAMES: Final[Mapping[int, str]] = {number: name for name, number in CODECS.items()}

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = struct.Struct(">8sii")
_XERIAL_BLOCK: Final = 32 * 1024
_LZ4_HEADER: Final = bytes.fromhex("04224d18604082")
"""Frame magic, version 1 with independent blocks (Java reads no others), 64 KiB blocks, and the checksum of both."""
_LZ4_BLOCK: Final = 64 * 1024
_LZ4_FLAGS_AT: Final = 4
_LZ4_FRAME_HEADER: Final = 7
"""Bytes before the first block; a content size (flag 8) adds eight, a dictionary (flag 1) four."""
_LZ4_INDEPENDENT: Final = 0x20
_LZ4_STORED: Final = 0x80000000
BLOCKS_A_STEP: Final = 256
"""Compressed blocks per step, about 100 microseconds; a batch of 1 MiB has 16 of lz4, or 32 of snappy."""
_TOO_SMALL: Final = "failed to write whole buffer"

INFLATION_FACTOR_MAX: Final = 16
"""Normal data stays well below; decompression bombs reach 1,000 and more."""
MESSAGE_BYTES_DEFAULT: Final = 1_048_588


def inflated_max(size_bytes: int, message_bytes_max: int = 0) -> int:
    """Return the maximum decompressed bytes: 16 times the size, or the largest batch that may be sent.

    A batch may be older than the topic's max.message.bytes, so at least the default counts.
    """
    return INFLATION_FACTOR_MAX * max(size_bytes, message_bytes_max, MESSAGE_BYTES_DEFAULT)


class UnknownCodec(ProtocolError):
    """A codec number that Kafka does not define."""


class DamagedCompression(ProtocolError):
    """Compressed bytes that cannot be decompressed."""


class OutputTooLarge(ProtocolError):
    """Decompressed bytes beyond the limit."""


def compress(codec: int, data: bytes | bytearray, level: int | None = None) -> bytes:
    """Compress `data` with a codec of `CODECS`.

    `level` is for gzip, lz4 and zstd; None is the library's default, for lz4 its fast compressor.
    """
    if codec == 0:
        return bytes(data)
    if codec == 1:
        return bytes(cramjam.gzip.compress(data, level=level))
    if codec == 2:
        return _xerial_compress(data)
    if codec == 3:
        return _lz4_compress(data, level)
    if codec == 4:
        return bytes(cramjam.zstd.compress(data, level=level))
    raise UnknownCodec(f"compression codec {codec} is not known; {', '.join(CODECS)} are")


def decompress(codec: int, data: memoryview | bytes, max_size: int) -> memoryview:
    return memoryview(data) if codec == 0 else memoryview(inflate(codec, data, max_size))


def inflate(codec: int, data: memoryview | bytes, max_size: int) -> bytes | bytearray:
    """Decompress `data` to at most `max_size` bytes; raise `UnknownCodec`, `DamagedCompression`, `OutputTooLarge`."""
    if codec == 0:
        return bytes(data)
    if codec == 2:
        return _snappy_decompress(bytes(data), max_size)
    formats: Mapping[int, Callable[[Any, Any], int]] = {
        1: cramjam.gzip.decompress_into,
        3: cramjam.lz4.decompress_into,
        4: cramjam.zstd.decompress_into,
    }
    if codec not in formats:
        raise UnknownCodec(f"compression codec {codec} is not known; {', '.join(CODECS)} are")
    size = min(max_size, max(4 * len(data), 4096))
    source = bytes(data)
    while True:
        output = bytearray(size)
        try:
            written = formats[codec](source, output)
        except cramjam.DecompressionError as problem:
            if _TOO_SMALL not in str(problem):
                raise DamagedCompression(f"{NAMES[codec]} data is damaged: {problem}") from problem
            if size >= max_size:
                raise OutputTooLarge(
                    f"{len(data)} bytes of {NAMES[codec]} become more than {max_size}; raise the limit or send smaller batches"
                ) from problem
            size = min(max_size, size * 4)
            continue
        del output[written:]
        return output


def check_framing(codec: int, data: memoryview | bytes) -> None:
    for _ in framing_steps(codec, data):
        pass


def framing_steps(codec: int, data: memoryview | bytes) -> Generator[None, None, None]:
    """Refuse data that Java's reader would not inflate, or not fully.

    Otherwise Java's clients would stop at the stored batch. Only lz4 is concerned: Java reads one frame, with
    independent blocks and no dictionary, and skips what follows. Yields after every `BLOCKS_A_STEP` blocks of lz4, and
    of snappy in Java's framing, since very many small blocks take long.
    """
    if codec == CODECS["snappy"]:
        yield from _xerial_steps(data)
    if codec != CODECS["lz4"]:
        return
    if len(data) < _LZ4_FRAME_HEADER or bytes(data[:4]) != _LZ4_HEADER[:4]:
        raise DamagedCompression("lz4 data does not begin with a frame")
    flags, blocks = data[_LZ4_FLAGS_AT], data[_LZ4_FLAGS_AT + 1]
    if flags >> 6 != 1 or flags & 3 or blocks & 0x8F:
        raise DamagedCompression(
            "an lz4 frame has a dictionary, or bits that are reserved, which Java's clients cannot read"
        )
    if not flags & _LZ4_INDEPENDENT:
        raise DamagedCompression(
            "an lz4 frame has linked blocks, which Java's clients cannot read; write independent blocks"
        )
    position, count = _LZ4_FRAME_HEADER + 8 * (flags >> 3 & 1), 0
    # Java treats an empty block as the end, with or without the flag for stored ones.
    while size := int.from_bytes(data[position : position + 4], "little") & ~_LZ4_STORED:
        position += 4 + size + 4 * (flags >> 4 & 1)
        count += 1
        if count % BLOCKS_A_STEP == 0:
            yield
    if position + 4 + 4 * (flags >> 2 & 1) != len(data):
        raise DamagedCompression("lz4 data is more, or less, than one frame")


def _xerial_steps(data: memoryview | bytes) -> Generator[None, None, None]:
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return
    position, count = _XERIAL_HEADER.size, 0
    while position < len(data):
        position += 4 + max(int.from_bytes(data[position : position + 4], "big", signed=True), 0)
        count += 1
        if count % BLOCKS_A_STEP == 0:
            yield


def _lz4_compress(data: bytes | bytearray, level: int | None) -> bytes:
    parts = [_LZ4_HEADER]
    for start in range(0, len(data), _LZ4_BLOCK):
        plain = bytes(data[start : start + _LZ4_BLOCK])
        block = _lz4_block(plain, level)
        if len(block) < len(plain):
            parts += (len(block).to_bytes(4, "little"), block)
        else:
            parts += ((len(plain) | _LZ4_STORED).to_bytes(4, "little"), plain)
    parts.append(bytes(4))
    return b"".join(parts)


def _lz4_block(plain: bytes, level: int | None) -> bytes:
    """Compress one block, which may not become shorter; the library has levels for whole frames only."""
    if level is None:
        return bytes(cramjam.lz4.compress_block(plain, store_size=False))
    frame = bytes(cramjam.lz4.compress(plain, level=level))
    flags = frame[_LZ4_FLAGS_AT]
    start = _LZ4_FRAME_HEADER + 8 * (flags >> 3 & 1) + 4 * (flags & 1)
    size = int.from_bytes(frame[start : start + 4], "little") & ~_LZ4_STORED
    return frame[start + 4 : start + 4 + size]


def _xerial_compress(data: bytes | bytearray) -> bytes:
    parts = [_XERIAL_HEADER.pack(_XERIAL_MAGIC, 1, 1)]
    for start in range(0, len(data), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK]))
        parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)


def _snappy_decompress(data: bytes, max_size: int) -> bytes | bytearray:
    if not data.startswith(_XERIAL_MAGIC):
        return _raw_snappy(data, max_size)
    output = bytearray()
    position = _XERIAL_HEADER.size
    while position < len(data):
        size = int.from_bytes(data[position : position + 4], "big", signed=True)
        position += 4
        if size < 0 or position + size > len(data):
            raise DamagedCompression("snappy data is damaged: a block reaches beyond its end")
        output += _raw_snappy(data[position : position + size], max_size - len(output))
        position += size
    return output


def _raw_snappy(data: bytes, max_size: int) -> bytes:
    try:
        size = cramjam.snappy.decompress_raw_len(data)
        if size > max_size:
            raise OutputTooLarge(f"{len(data)} bytes of snappy become {size}, more than the limit allows")
        return bytes(cramjam.snappy.decompress_raw(data))
    except cramjam.DecompressionError as problem:
        raise DamagedCompression(f"snappy data is damaged: {problem}") from problem
