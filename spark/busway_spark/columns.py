"""Record batches as Arrow columns, without a Python object for each record.

Here: finding the records of many batches at once, extracting fields with NumPy and Arrow.
Not here: fetching (`busway.read_batches`), Spark's interface (`source`).

Only the lengths that chain the records are read one by one; other varints are decoded together. Keys and values are
taken from the fetched bytes: an Arrow array with offsets alternating between field and gap, of which the fields stay.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from busway import TopicPartition
from busway_protocol.records.batch import HEADER_BYTES, BatchHeader, CorruptBatch
from busway_protocol.records.compression import decompress, inflated_max
from busway_protocol.records.record import read_headers

Batch = tuple[BatchHeader, memoryview]
Integers: TypeAlias = npt.NDArray[np.int64]
BATCH_BYTES: Final = 8 * 1024 * 1024
"""Bytes of decompressed records in an Arrow batch; a fetch of compressed batches may have many times that."""
_VARINT_BITS: Final = 64
_HEADER: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
SCHEMA: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(_HEADER)),
    ]
)
"""Names, types and order of Spark's Kafka source with `includeHeaders`."""


def to_arrow(batches: Sequence[Batch], partition: TopicPartition, start: int, end: int) -> Iterator[pa.RecordBatch]:
    """Return records from `start` to before `end` as batches of `SCHEMA`.

    Raises:
        CorruptBatch: the records do not match their batch's header.
        ProtocolError: the codec is unknown, or its data damaged or too large.
    """
    bodies: list[memoryview] = []
    headers: list[BatchHeader] = []
    size = 0
    for header, batch in batches:
        bodies.append(decompress(header.compression, batch[HEADER_BYTES:], inflated_max(len(batch))))
        headers.append(header)
        size += len(bodies[-1])
        if size >= BATCH_BYTES:
            yield _checked(bodies, headers, partition, start, end)
            bodies, headers, size = [], [], 0
    if bodies:
        yield _checked(bodies, headers, partition, start, end)


def _checked(
    bodies: list[memoryview], headers: list[BatchHeader], partition: TopicPartition, start: int, end: int
) -> pa.RecordBatch:
    try:
        return _columns(bodies, headers, partition, start, end)
    except (IndexError, UnicodeDecodeError) as problem:
        raise CorruptBatch(f"records behind offset {headers[0].base_offset} are damaged: {problem}") from None


def _columns(
    bodies: list[memoryview], headers: list[BatchHeader], partition: TopicPartition, start: int, end: int
) -> pa.RecordBatch:
    data = b"".join(bodies)
    records, stops = _records(data, [len(body) for body in bodies], headers)
    raw = np.frombuffer(data, np.uint8)
    timestamps, position = _varints(raw, records + 1)  # after the unused attributes
    deltas, position = _varints(raw, position)
    key_sizes, keys = _varints(raw, position)
    value_sizes, values = _varints(raw, keys + np.maximum(key_sizes, 0))
    header_counts, header_starts = _varints(raw, values + np.maximum(value_sizes, 0))
    plain = header_counts == 0
    in_order = (keys <= values) & (values <= header_starts) & (header_starts <= stops)
    if np.any(header_starts[plain] != stops[plain]) or not np.all(in_order):
        raise CorruptBatch("a record has another size than it announces")
    counts = np.array([header.records_count for header in headers])
    offsets = deltas + np.repeat(_of(headers, "base_offset"), counts)
    append_time: Integers = np.repeat(_of(headers, "timestamp_type"), counts)
    moments = timestamps + np.repeat(_of(headers, "base_timestamp"), counts)
    if append_time.any():
        moments = np.where(append_time == 1, np.repeat(_of(headers, "max_timestamp"), counts), moments)
    wanted = np.flatnonzero((offsets >= start) & (offsets < end))
    count = len(wanted)
    columns = [
        _binary(data, keys, key_sizes, wanted),
        _binary(data, values, value_sizes, wanted),
        pa.repeat(pa.scalar(partition.topic), count),
        pa.repeat(pa.scalar(partition.partition, pa.int32()), count),
        pa.array(offsets[wanted]),
        pa.array(moments[wanted] * 1000).view(SCHEMA.field("timestamp").type),
        pa.array(append_time[wanted].astype(np.int32)),
        _headers(data, header_counts[wanted], header_starts[wanted], stops[wanted]),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _of(headers: list[BatchHeader], name: str) -> Integers:
    return np.array([getattr(header, name) for header in headers], np.int64)


def _records(data: bytes, sizes: list[int], headers: list[BatchHeader]) -> tuple[Integers, Integers]:
    """Return each record's beginning, after its length, and its end."""
    starts: list[int] = []
    stops: list[int] = []
    add_start, add_stop = starts.append, stops.append
    position = edge = 0
    for size, header in zip(sizes, headers, strict=True):
        edge += size
        if not 0 <= header.records_count <= size:
            raise CorruptBatch(f"{header.records_count} records cannot be in {size} bytes")
        for _ in range(header.records_count):
            length = data[position]
            position += 1
            if length > 0x7F:
                length &= 0x7F
                shift = 7
                while True:
                    byte = data[position]
                    position += 1
                    length |= (byte & 0x7F) << shift
                    if byte < 0x80:
                        break
                    shift += 7
            add_start(position)
            position += length >> 1
            if length & 1 or position > edge:
                raise CorruptBatch("a record reaches beyond its batch")
            add_stop(position)
        if position != edge:
            raise CorruptBatch(f"{edge - position} bytes follow the last record of a batch")
    return np.array(starts, np.int64), np.array(stops, np.int64)


def _varints(raw: npt.NDArray[np.uint8], position: Integers) -> tuple[Integers, Integers]:
    """Return the zigzag varint at each position, and the positions after them."""
    byte = raw[position]
    value = (byte & 0x7F).astype(np.uint64)
    position = position + 1
    longer = np.flatnonzero(byte > 0x7F)
    shift = 7
    while longer.size:
        if shift >= _VARINT_BITS:
            raise CorruptBatch("a varint is longer than 10 bytes")
        byte = raw[position[longer]]
        value[longer] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        position[longer] += 1
        longer = longer[byte > 0x7F]
        shift += 7
    return (value >> np.uint64(1)).astype(np.int64) ^ -(value & np.uint64(1)).astype(np.int64), position


def _binary(data: bytes, starts: Integers, sizes: Integers, wanted: Integers) -> pa.Array:
    """Return a binary column of pieces of `data`, in order; a negative size is null."""
    starts, sizes = starts[wanted], sizes[wanted]
    count = len(starts)
    if not count:
        return pa.array([], pa.binary())
    edges: Any = np.empty(2 * count, np.int32)
    edges[0::2] = starts
    edges[1::2] = starts + np.maximum(sizes, 0)
    pieces = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(edges), pa.py_buffer(data)])
    taken: Any = np.arange(0, 2 * count, 2, dtype=np.int32)
    return pieces.take(pa.array(taken, mask=sizes < 0))


def _headers(data: bytes, counts: Integers, starts: Integers, stops: Integers) -> pa.Array:
    with_headers = np.flatnonzero(counts)
    if not with_headers.size:
        return pa.nulls(len(counts), SCHEMA.field("headers").type)
    names: list[str] = []
    contents: list[Any] = []
    for row in with_headers.tolist():
        headers, position = read_headers(data, int(starts[row]), int(counts[row]), int(stops[row]))
        if position != stops[row]:
            raise CorruptBatch("a record has another size than it announces")
        names += [name for name, _ in headers]
        contents += [content for _, content in headers]
    flat = pa.StructArray.from_arrays(
        [pa.array(names, pa.string()), pa.array(contents, pa.binary())], fields=list(_HEADER)
    )
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), flat, mask=pa.array(counts == 0)).cast(
        SCHEMA.field("headers").type
    )
