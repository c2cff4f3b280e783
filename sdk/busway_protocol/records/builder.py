"""Building one record batch, as a producer does.

Not here: when a batch is full (the SDK's accumulator). Records are encoded when added; compression, header and checksum
follow in `build`.
"""

from collections.abc import Sequence
from typing import Final

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
from busway_protocol.records.record import read_varint

Headers = Sequence[tuple[str, bytes | None]]
NO_HEADERS: Final = b"\0"
"""End of a record without headers."""


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
"""Precomputed varints of common lengths and deltas, one or two bytes."""
_NULL = _zigzag(-1)
_ATTRIBUTES: Final = b"\0"


def varint(value: int) -> bytes:
    return _SMALL[value] if 0 <= value < _SMALL_MAX else _zigzag(value)


def encode_headers(headers: Headers) -> bytes:
    out = bytearray(varint(len(headers)))
    for name, content in headers:
        encoded = name.encode()
        out += varint(len(encoded))
        out += encoded
        if content is None:
            out += _NULL
        else:
            out += varint(len(content))
            out += content
    return bytes(out)


class BatchBuilder:
    """Builder of one batch.

    Args:
        compression: codec name: none, gzip, snappy, lz4 or zstd.
        producer_id, producer_epoch, base_sequence: of an idempotent producer, else -1.
        timestamp_type: 0 for CreateTime, 1 for LogAppendTime.
        control: its one record is a control record.
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
        self.producer_id: int = producer_id
        self.producer_epoch: int = producer_epoch
        self.base_sequence: int = base_sequence
        self.base_timestamp: int = -1
        self.max_timestamp: int = -1
        self.count: int = 0

    @property
    def size_bytes(self) -> int:
        return HEADER_BYTES + len(self._body)

    def append(self, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Headers = ()) -> None:
        """Add a record; its offset delta is the number of earlier records."""
        self.append_encoded(timestamp_ms, key, value, encode_headers(headers) if headers else NO_HEADERS)

    def append_encoded(self, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: bytes) -> None:
        """Add a record with headers from `encode_headers`, which many records may share."""
        count = self.count
        if not count:
            self.base_timestamp = self.max_timestamp = timestamp_ms
        elif timestamp_ms > self.max_timestamp:
            self.max_timestamp = timestamp_ms
        small, delta = _SMALL, timestamp_ms - self.base_timestamp
        parts = [
            _ATTRIBUTES,
            small[delta] if 0 <= delta < _SMALL_MAX else _zigzag(delta),
            small[count] if count < _SMALL_MAX else _zigzag(count),
        ]
        for content in (key, value):
            if content is None:
                parts.append(_NULL)
            else:
                length = len(content)
                parts.append(small[length] if length < _SMALL_MAX else _zigzag(length))
                parts.append(content)
        parts.append(headers)
        record = b"".join(parts)
        length = len(record)
        body = self._body
        body += small[length] if length < _SMALL_MAX else _zigzag(length)
        body += record
        self.count = count + 1

    def halves(self) -> tuple["BatchBuilder", "BatchBuilder"]:
        """Split into two builders, in order and about equal in bytes; needs two records."""
        assert self.count > 1, "one record cannot be halved"
        first, second = self._empty(), self._empty()
        body, position = bytes(self._body), 0
        for number in range(self.count):
            length, start = read_varint(body, position)
            position = start + length
            delta, rest = read_varint(body, start + 1)
            _, rest = read_varint(body, rest)
            early = not number or (position * 2 <= len(body) and number < self.count - 1)
            (first if early else second)._append_content(self.base_timestamp + delta, body[rest:position])
        return first, second

    def _append_content(self, timestamp_ms: int, content: bytes) -> None:
        if not self.count:
            self.base_timestamp = timestamp_ms
        self.max_timestamp = max(self.max_timestamp, timestamp_ms)
        record = _ATTRIBUTES + varint(timestamp_ms - self.base_timestamp) + varint(self.count) + content
        self._body += varint(len(record)) + record
        self.count += 1

    def _empty(self) -> "BatchBuilder":
        other = BatchBuilder()
        other._codec, other._flags = self._codec, self._flags
        return other

    def build(self, base_offset: int = 0, leader_epoch: int = -1) -> bytes:
        """Return the batch; may be called again, for instance with another sequence."""
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
