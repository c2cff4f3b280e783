"""Validation of a batch's records without decoding them.

Not here: decoding (`record`). Kafka's broker validates every batch too (`LogValidator`): one unreadable batch would
stop all consumers permanently.

Short varints are inlined as in `record`. If a C compiler was
available at installation, valid records are checked by the loop's twin (`_walk.c`), some hundred times as fast; from
the first other one on, this loop finds the error.
"""

from collections.abc import Callable, Iterator
from typing import Final

from busway_protocol.records.batch import BatchHeader, CorruptBatch
from busway_protocol.records.record import read_varint

_Plain = Callable[[bytes | bytearray, int, int, int, list[int], int], tuple[int, int, int, int, int]]
plain: _Plain | None
try:
    from busway_protocol.records._walk import plain
except ImportError:
    plain = None
RECORDS_A_MS: Final = 1_500 if plain is None else 60_000
"""Records checked in a millisecond on a slow machine."""
OFFENDERS_MAX: Final = 1_000


class RecordWalk:
    """Validation of one batch, in steps.

    `data` is decompressed.

    Attributes:
        keyless: indexes of the first records without a key, at most `OFFENDERS_MAX`; `keyless_count` counts all.
        earliest, latest: minimum and maximum timestamp so far, in ms, independent of the header's maximum.
    """

    __slots__ = ("_data", "_header", "_position", "_walked", "earliest", "keyless", "keyless_count", "latest")

    def __init__(self, header: BatchHeader, data: bytes | bytearray) -> None:
        self._header = header
        self._data = data
        self._position = 0
        self._walked = 0
        self.keyless: list[int] = []
        self.keyless_count = 0
        self.earliest = self.latest = header.base_timestamp

    def step(self, records: int) -> bool:
        """Check `records` more; return False after the last, raise `CorruptBatch` if they do not fill the batch."""
        header = self._header
        last = min(self._walked + records, header.records_count)
        try:
            self._walk(last)
        except IndexError:
            raise _corrupt(header, "a record reaches beyond its batch") from None
        if last < header.records_count:
            return True
        if self._position != len(self._data):
            raise _corrupt(header, f"{len(self._data) - self._position} bytes follow the last record")
        return False

    def _walk(self, last: int) -> None:  # noqa: PLR0912, PLR0915 - one loop, written out for speed
        data, position, first = self._data, self._position, self._walked
        earliest = latest = 0
        if plain is not None:
            position, first, earliest, latest, keyless = plain(data, position, first, last, self.keyless, OFFENDERS_MAX)
            self.keyless_count += keyless
        for number in range(first, last):
            byte = data[position]
            if byte < 0x80:
                position += 1
            elif data[position + 1] < 0x80:
                byte = byte & 0x7F | data[position + 1] << 7
                position += 2
            else:
                size, position = read_varint(data, position)
                byte = size << 1 if size >= 0 else 1
            if byte & 1:
                raise _corrupt(self._header, f"record {number} has a negative size")
            stop = position + (byte >> 1)
            position += 1  # the attributes of a record are unused
            byte = data[position]
            if byte < 0x80:
                delta = (byte >> 1) ^ -(byte & 1)
                position += 1
            else:
                delta, position = read_varint(data, position)
            if delta > latest:
                latest = delta
            elif delta < earliest:
                earliest = delta
            if number < 0x40:
                wrong = data[position] != number << 1
                position += 1
            elif number < 0x2000:
                wrong = data[position] != (number << 1 & 0x7F | 0x80) or data[position + 1] != number >> 6
                position += 2
            else:
                delta, position = read_varint(data, position)
                wrong = delta != number
            if wrong:
                raise _corrupt(self._header, f"record {number} does not have the offset behind the one before it")
            byte = data[position]
            if byte < 0x80:
                position += 1
                if byte & 1:
                    self._without_key(number)
                else:
                    position += byte >> 1
            else:
                size, position = read_varint(data, position)
                if size < 0:
                    self._without_key(number)
                else:
                    position += size
            byte = data[position]
            if byte < 0x80:
                position += 1 if byte & 1 else 1 + (byte >> 1)
            elif data[position + 1] < 0x80:
                position += 2
                if not byte & 1:
                    position += (byte & 0x7F | data[position - 1] << 7) >> 1
            else:
                size, position = read_varint(data, position)
                position += max(size, 0)
            if data[position]:
                position = self._skip_headers(position, stop, number)
            else:
                position += 1
            if position != stop:
                raise _corrupt(self._header, f"record {number} has another size than it announces")
        self._position, self._walked = position, last
        self.earliest = min(self.earliest, self._header.base_timestamp + earliest)
        self.latest = max(self.latest, self._header.base_timestamp + latest)

    def _skip_headers(self, position: int, stop: int, number: int) -> int:
        data = self._data
        count, position = read_varint(data, position)
        if count < 0 or count > stop - position:
            raise _corrupt(self._header, f"record {number} cannot have {count} headers")
        for _ in range(count):
            size, position = read_varint(data, position)
            if size < 0:
                raise _corrupt(self._header, f"record {number} has a header without a name")
            size, position = read_varint(data, position + size)
            position += max(size, 0)
        return position

    def _without_key(self, number: int) -> None:
        self.keyless_count += 1
        if self.keyless_count <= OFFENDERS_MAX:
            self.keyless.append(number)


def record_times(header: BatchHeader, data: bytes | bytearray) -> Iterator[tuple[int, int]]:
    """Yield the offset and timestamp, in ms, of each decompressed record, without further checks."""
    position, append_time = 0, header.timestamp_type == 1
    try:
        for number in range(header.records_count):
            size, start = read_varint(data, position)
            position = start + size
            delta, start = read_varint(data, start + 1)
            offset, _ = read_varint(data, start)
            if size < 0 or position > len(data):
                raise _corrupt(header, f"record {number} reaches beyond its batch")
            yield header.base_offset + offset, header.max_timestamp if append_time else header.base_timestamp + delta
    except IndexError:
        raise _corrupt(header, f"record {number} reaches beyond its batch") from None


def _corrupt(header: BatchHeader, problem: str) -> CorruptBatch:
    return CorruptBatch(f"the records of the batch at offset {header.base_offset} are damaged: {problem}")
