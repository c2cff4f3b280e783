"""Reading the records of a batch.

Not here: writing (`builder`). A record is a length, attributes, timestamp and offset deltas, key, value and headers,
all lengths zigzag varints (KIP-98). Varint code is inlined in the loop: a call for each would double its time.
"""

from typing import NamedTuple

from busway_protocol.records.batch import HEADER_BYTES, BatchHeader, CorruptBatch, read_header
from busway_protocol.records.compression import decompress, inflated_max
from busway_protocol.types import Buffer


class Record(NamedTuple):
    """One record as stored; `timestamp` in ms, `timestamp_type` 0 for CreateTime, 1 for LogAppendTime."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def decode_records(batch: Buffer, *, max_decompressed: int | None = None) -> list[Record]:
    """Return the records of one whole batch.

    Args:
        batch: with its header; its checksum is not verified.
        max_decompressed: limit in bytes; None for `compression.inflated_max`.

    Raises:
        CorruptBatch: the records do not fill the batch as its header says.
        ProtocolError: the codec is unknown, or its data damaged or too large (see `compression`).
    """
    view = memoryview(batch)
    header = read_header(view)
    body = view[HEADER_BYTES:]
    limit = inflated_max(len(view)) if max_decompressed is None else max_decompressed
    data = bytes(decompress(header.compression, body, limit)) if header.compression else bytes(body)
    try:
        return _read(data, header)
    except IndexError as problem:
        raise CorruptBatch(f"the records of the batch at offset {header.base_offset} are damaged: {problem}") from None


def _read(data: bytes, header: BatchHeader) -> list[Record]:  # noqa: PLR0912, PLR0915 - one loop, written out for speed
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    append_time = header.timestamp_type == 1
    timestamp_type, max_timestamp = header.timestamp_type, header.max_timestamp
    position, end = 0, len(data)
    records: list[Record] = []
    add = records.append
    make = Record._make
    if header.records_count < 0 or header.records_count > end:
        raise CorruptBatch(f"{header.records_count} records cannot be in {end} bytes")
    for _ in range(header.records_count):
        size, position = read_varint(data, position)
        stop = position + size
        if size < 0 or stop > end:
            raise CorruptBatch("a record reaches beyond its batch")
        position += 1  # the attributes of a record are unused
        byte = data[position]
        position += 1
        if byte < 0x80:
            timestamp = (byte >> 1) ^ -(byte & 1)
        else:
            timestamp, position = read_varint(data, position - 1)
        byte = data[position]
        position += 1
        if byte < 0x80:
            delta = (byte >> 1) ^ -(byte & 1)
        else:
            delta, position = read_varint(data, position - 1)
        byte = data[position]
        position += 1
        if byte < 0x80:
            length = (byte >> 1) ^ -(byte & 1)
        else:
            length, position = read_varint(data, position - 1)
        if length < 0:
            key = None
        else:
            key = data[position : position + length]
            position += length
        byte = data[position]
        position += 1
        if byte < 0x80:
            length = (byte >> 1) ^ -(byte & 1)
        else:
            length, position = read_varint(data, position - 1)
        if length < 0:
            value = None
        else:
            value = data[position : position + length]
            position += length
        count = data[position]
        position += 1
        headers: tuple[tuple[str, bytes | None], ...] = ()
        if count:
            count, position = read_varint(data, position - 1)
            headers, position = read_headers(data, position, count, stop)
        if position != stop:
            raise CorruptBatch("a record has another size than it announces")
        moment = max_timestamp if append_time else base_timestamp + timestamp
        add(make((base_offset + delta, moment, timestamp_type, key, value, headers)))
    if position != end:
        raise CorruptBatch(f"{end - position} bytes follow the last record")
    return records


def read_headers(data: bytes, position: int, count: int, stop: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    """Return `count` headers of the record that ends at `stop`, and the position behind them."""
    if count < 0 or count > stop - position:
        raise CorruptBatch(f"{count} headers cannot be in one record")
    headers = []
    for _ in range(count):
        length, position = read_varint(data, position)
        if length < 0 or position + length > stop:
            raise CorruptBatch("the name of a header reaches beyond its record")
        name = data[position : position + length].decode(errors="replace")  # as Java does
        position += length
        length, position = read_varint(data, position)
        if length > stop - position:
            raise CorruptBatch("the value of a header reaches beyond its record")
        headers.append((name, None if length < 0 else data[position : position + length]))
        position += max(length, 0)
    return tuple(headers), position


def read_varint(data: bytes | bytearray, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift > 63:
            raise CorruptBatch("a varint is longer than 10 bytes")
