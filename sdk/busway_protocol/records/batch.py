"""Headers of record batches, and iterating over batches without decoding records.

Not here: records (`record`, `builder`). Layout of format v2 (KIP-98): base offset, length, leader epoch, magic, CRC-32C
of all that follows, attributes, last offset delta, base and maximum timestamp, producer id, epoch and base sequence,
count.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from busway_protocol.errors import ProtocolError
from busway_protocol.records.crc import crc32c
from busway_protocol.types import Buffer

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = HEADER.size
LENGTH_OVERHEAD: Final = 12
"""Base offset and length, which the length excludes."""
CRC_START: Final = 21
MAGIC: Final = 2

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40

_PREFIX: Final = struct.Struct(">qiib")
_SPAN: Final = struct.Struct(">qi4xb6xi")
_OFFSET: Final = struct.Struct(">q")
_EPOCH: Final = struct.Struct(">i")
_CRC: Final = struct.Struct(">I")
_ATTRIBUTES: Final = struct.Struct(">h")


class CorruptBatch(ProtocolError):
    """Bytes that are not an intact record batch."""


class BatchHeader(NamedTuple):
    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size_bytes(self) -> int:
        return self.batch_length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        """Offset of the last record, even if compaction removed it."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> int:
        """Codec number, as in `compression.CODECS`."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> int:
        """0 for CreateTime, 1 for LogAppendTime."""
        return (self.attributes & LOG_APPEND_TIME) >> 3

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, wrapping after 2^31 - 1; -1 without one."""
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF if self.base_sequence >= 0 else -1


def read_header(buffer: Buffer, offset: int = 0) -> BatchHeader:
    """Return the header at `offset`; raise `CorruptBatch` if it is cut off or its format is not v2."""
    try:
        header = BatchHeader._make(HEADER.unpack_from(buffer, offset))
    except struct.error:
        raise CorruptBatch(f"{len(buffer) - offset} bytes are too few for a record batch") from None
    if header.magic != MAGIC:
        raise CorruptBatch(f"record format {header.magic} is not served, only 2 is")
    return header


def read_span(buffer: Buffer, offset: int = 0) -> tuple[int, int]:
    """Return the last offset, and the size in bytes, of the batch at `offset`; raise `CorruptBatch`."""
    try:
        base_offset, length, magic, last_offset_delta = _SPAN.unpack_from(buffer, offset)
    except struct.error:
        raise CorruptBatch(f"{len(buffer) - offset} bytes are too few for a record batch") from None
    if magic != MAGIC:
        raise CorruptBatch(f"record format {magic} is not served, only 2 is")
    if length < HEADER_BYTES - LENGTH_OVERHEAD:
        raise CorruptBatch(f"a batch of {length} bytes is shorter than its own header")
    return base_offset + last_offset_delta, length + LENGTH_OVERHEAD


def iter_batches(buffer: Buffer) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield every whole batch, not one cut off at the end; raise `CorruptBatch`."""
    view = memoryview(buffer)
    position, end = 0, len(view)
    while end - position >= _PREFIX.size:
        _, length, _, magic = _PREFIX.unpack_from(view, position)
        if length < HEADER_BYTES - LENGTH_OVERHEAD:
            raise CorruptBatch(f"a batch of {length} bytes is shorter than its own header")
        if magic != MAGIC:
            raise CorruptBatch(f"record format {magic} is not served, only 2 is")
        stop = position + length + LENGTH_OVERHEAD
        if stop > end:
            return
        yield read_header(view, position), view[position:stop]
        position = stop


def computed_crc(batch: Buffer) -> int:
    return crc32c(memoryview(batch)[CRC_START:])


def verify_crc(batch: Buffer, header: BatchHeader) -> None:
    """Check the checksum of a whole batch, or raise `CorruptBatch`."""
    computed = computed_crc(batch)
    if computed != header.crc:
        raise CorruptBatch(
            f"the checksum of the batch at offset {header.base_offset} is {computed:#x}, not {header.crc:#x}"
        )


def assign_offset(batch: bytearray | memoryview, *, base_offset: int, leader_epoch: int) -> None:
    """Write the two fields outside the checksum."""
    _OFFSET.pack_into(batch, 0, base_offset)
    _EPOCH.pack_into(batch, LENGTH_OVERHEAD, leader_epoch)


def set_max_timestamp(batch: bytearray | memoryview, timestamp_ms: int) -> None:
    _OFFSET.pack_into(batch, 35, timestamp_ms)
    _CRC.pack_into(batch, 17, computed_crc(batch))


def set_log_append_time(batch: bytearray | memoryview, timestamp_ms: int) -> None:
    """Set the broker's time and update the checksum (KIP-32)."""
    (attributes,) = _ATTRIBUTES.unpack_from(batch, CRC_START)
    _ATTRIBUTES.pack_into(batch, CRC_START, attributes | LOG_APPEND_TIME)
    set_max_timestamp(batch, timestamp_ms)
