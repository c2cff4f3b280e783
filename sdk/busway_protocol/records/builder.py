"""Building one record batch, the producer's way.

What lives here: `BatchBuilder`. What does not: when a batch is full (the accumulator of the SDK decides). Records are encoded
as they are added; compression, header and checksum come once, at `build`.
"""

from collections.abc import Sequence

from busway_protocol.records.batch import (
    CONTROL,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    MAGIC,
    TRANSACTIONAL,
)
from busway_protocol.records.compression import CODECS, compress
from busway_protocol.records.crc import crc32c

Headers = Sequence[tuple[str, bytes | None]]


def _zigzag(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_SMALL_MAX = 8 * 1024
_SMALL = [bytes((value << 1,)) for value in range(64)]
_SMALL += [bytes((value << 1 & 0x7F | 0x80, value >> 6)) for value in range(64, _SMALL_MAX)]
"""Varints of everyday lengths and deltas, one byte or two, made once."""
_NULL = _zigzag(-1)


def varint(value: int) -> bytes:
    """`value` as a zigzag varint."""
    return _SMALL[value] if 0 <= value < _SMALL_MAX else _zigzag(value)


class BatchBuilder:
    """Collects records into one batch.

    Args:
        compression: codec name: none, gzip, snappy, lz4 or zstd.
        producer_id, producer_epoch, base_sequence: identity of an idempotent producer, -1 without one.
        transactional: whether the batch belongs to a transaction.
        timestamp_type: 0 for CreateTime, 1 for LogAppendTime.
        control: whether the one record in it is a control record.
    """

    __slots__ = (
        "_body",
        "_codec",
        "_flags",
        "base_sequence",
        "base_timestamp",
        "count",
        "max_timestamp",
        "producer_epoch",
        "producer_id",
    )

    def __init__(
        self,
        compression: str = "none",
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
        timestamp_type: int = 0,
        control: bool = False,
    ) -> None:
        self._codec = CODECS[compression]
        self._flags = (
            (TRANSACTIONAL if transactional else 0)
            | (CONTROL if control else 0)
            | (LOG_APPEND_TIME if timestamp_type else 0)
        )
        self._body = bytearray()
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.base_timestamp = -1
        self.max_timestamp = -1
        self.count = 0

    @property
    def size_bytes(self) -> int:
        """Size of the batch before compression, header included."""
        return HEADER_BYTES + len(self._body)

    def append(self, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Headers = ()) -> None:
        """Add one record; its offset is the number of records before it."""
        count = self.count
        if count:
            self.max_timestamp = max(self.max_timestamp, timestamp_ms)
        else:
            self.base_timestamp = self.max_timestamp = timestamp_ms
        small = _SMALL
        record = bytearray(1)  # attributes, unused
        record += varint(timestamp_ms - self.base_timestamp)
        record += small[count] if count < _SMALL_MAX else _zigzag(count)
        if key is None:
            record += _NULL
        else:
            length = len(key)
            record += small[length] if length < _SMALL_MAX else _zigzag(length)
            record += key
        if value is None:
            record += _NULL
        else:
            length = len(value)
            record += small[length] if length < _SMALL_MAX else _zigzag(length)
            record += value
        if headers:
            record += varint(len(headers))
            for name, content in headers:
                encoded = name.encode()
                record += varint(len(encoded))
                record += encoded
                if content is None:
                    record += _NULL
                else:
                    record += varint(len(content))
                    record += content
        else:
            record.append(0)
        length = len(record)
        body = self._body
        body += small[length] if length < _SMALL_MAX else _zigzag(length)
        body += record
        self.count = count + 1

    def build(self, base_offset: int = 0, leader_epoch: int = -1) -> bytes:
        """The finished batch; the builder can be built again, with another sequence say."""
        assert self.count, "an empty batch is never sent"
        body = compress(self._codec, self._body) if self._codec else self._body
        size = HEADER_BYTES + len(body)
        batch = bytearray(
            HEADER.pack(
                base_offset,
                size - LENGTH_OVERHEAD,
                leader_epoch,
                MAGIC,
                0,
                self._codec | self._flags,
                self.count - 1,
                self.base_timestamp,
                self.max_timestamp,
                self.producer_id,
                self.producer_epoch,
                self.base_sequence,
                self.count,
            )
        )
        batch += body
        batch[17:CRC_START] = crc32c(memoryview(batch)[CRC_START:]).to_bytes(4, "big")
        return bytes(batch)
