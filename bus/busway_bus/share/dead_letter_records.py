"""Dead letters of share groups as records (KIP-1191).

Here: Kafka's headers, packing a batch, finding records in a batch of the source.
Not here: reading and writing (`dead_letters`).
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from busway_bus.share.in_flight import Letter
from busway_protocol.records.batch import HEADER_BYTES, CorruptBatch, read_header, verify_crc
from busway_protocol.records.builder import BatchBuilder, encode_headers
from busway_protocol.records.compression import inflate, inflated_max
from busway_protocol.records.record import read_varint

_STEP_RECORDS: Final = 500
"""Records scanned in one step, well under a millisecond."""
_RECORD_OVERHEAD: Final = 40
"""Maximum bytes of a record's varints and attributes."""


class Content(NamedTuple):
    key: bytes | None
    value: bytes | None


NOTHING: Final = Content(None, None)


class Origin(NamedTuple):
    """Source partition, and the group that gave the records up."""

    topic: str
    partition: int
    group_id: str


class Packed(NamedTuple):
    """One batch of dead letters.

    Attributes:
        records: number of its letters, from the first on.
        cut: the first letter lacks its key and value, which exceed the limit.
    """

    batch: bytes
    records: int
    cut: bool


def offsets_of(letters: Sequence[Letter]) -> Iterator[tuple[int, Letter]]:
    return ((offset, letter) for letter in letters for offset in range(letter.first, letter.last + 1))


def pack(
    letters: Sequence[Letter],
    contents: Mapping[int, Content],
    origin: Origin,
    *,
    wall_ms: int,
    max_bytes: int,
) -> Packed:
    """Pack dead letters into one batch, at least one.

    Args:
        contents: keys and values to copy, by offset.
        max_bytes: batch limit of the topic. A letter with larger headers is packed all the same: the append reports it.
    """
    builder, cut = BatchBuilder(), False
    for offset, letter in offsets_of(letters):
        key, value = contents.get(offset, NOTHING)
        headers = encode_headers(_headers(offset, letter, origin))
        size = len(key or b"") + len(value or b"") + len(headers) + _RECORD_OVERHEAD
        if builder.count and builder.size_bytes + size > max_bytes:
            break
        builder.append_encoded(wall_ms, key, value, headers)
        if builder.count == 1 and builder.size_bytes > max_bytes and (key or value):
            builder, cut = BatchBuilder(), True
            builder.append_encoded(wall_ms, None, None, headers)
    return Packed(builder.build(), builder.count, cut)


def _headers(offset: int, letter: Letter, origin: Origin) -> list[tuple[str, bytes | None]]:
    return [
        ("__dlq.errors.topic", origin.topic.encode()),
        ("__dlq.errors.partition", str(origin.partition).encode()),
        ("__dlq.errors.offset", str(offset).encode()),
        ("__dlq.errors.group", origin.group_id.encode()),
        ("__dlq.errors.delivery.count", str(letter.delivery_count).encode()),
        ("__dlq.errors.message", letter.cause.encode()),
    ]


def first_of(letters: Sequence[Letter], count: int) -> list[Letter]:
    first: list[Letter] = []
    for letter in letters:
        if count <= 0:
            break
        last = min(letter.last, letter.first + count - 1)
        first.append(letter._replace(last=last))
        count -= last - letter.first + 1
    return first


def contents_of(batch: bytes, wanted: Sequence[int]) -> Generator[None, None, dict[int, Content]]:
    """Find keys and values by ascending offsets, in steps; omit missing ones.

    Raises:
        CorruptBatch: the records are damaged or do not fill their batch: copies would be false, yet valid.
        ProtocolError: they cannot be decompressed.
    """
    header = read_header(batch)
    verify_crc(batch, header)
    data = inflate(header.compression, memoryview(batch)[HEADER_BYTES:], inflated_max(len(batch)))
    yield
    contents: dict[int, Content] = {}
    left, position = set(wanted), 0
    try:
        for index in range(header.records_count):
            if not left:
                break
            size, start = read_varint(data, position)
            position = start + size
            _, at = read_varint(data, start + 1)
            delta, at = read_varint(data, at)
            offset = header.base_offset + delta
            if offset in left:
                left.discard(offset)
                key, at = _field(data, at)
                value, _ = _field(data, at)
                contents[offset] = Content(key, value)
            if index % _STEP_RECORDS == _STEP_RECORDS - 1:
                yield
    except IndexError:
        raise CorruptBatch(f"the records of the batch at offset {header.base_offset} are damaged") from None
    return contents


def _field(data: bytes | bytearray, position: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    if length < 0:
        return None, position
    if position + length > len(data):
        raise IndexError
    return bytes(data[position : position + length]), position + length
