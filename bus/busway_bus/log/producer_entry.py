"""State of one producer in a partition, and Kafka's `.snapshot` format.

Here: the last five batches, the encoding.
Not here: validation (`producer_state`), when to write (`snapshots`, `flush_point`).
"""

import struct
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from busway_protocol.records.crc import crc32c

BATCHES_KEPT: Final = 5
SEQUENCES: Final = 2**31
_SEEN: Final = struct.Struct("=iiqqq")
_KEPT_BEFORE: Final = -(BATCHES_KEPT - 1) * _SEEN.size
_HEADER: Final = struct.Struct(">hI")
_COUNT: Final = struct.Struct(">i")
_ENTRY: Final = struct.Struct(">qhiqiqiq")
_VERSION: Final = 1


class BatchSeen(NamedTuple):
    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


@dataclass(slots=True)
class ProducerEntry:
    """One producer id.

    Attributes:
        seen_ms: last write, by the broker's clock, not by record timestamps.
        coordinator_epoch: of its last transaction marker, -1 before the first.
        transaction_start: first offset of its open transaction, else -1.
        marker_timestamp: of its last marker, in ms.
        last_sequence: in its epoch, -1 before the first.
        generation: snapshots before its last change; an entry held by one is copied on write.
        packed: last batches of its epoch, oldest first.
    """

    epoch: int
    seen_ms: int
    coordinator_epoch: int = -1
    transaction_start: int = -1
    marker_timestamp: int = -1
    last_sequence: int = -1
    generation: int = 0
    packed: bytes = b""

    def add(self, first_sequence: int, last_sequence: int, first_offset: int, last_offset: int, timestamp: int) -> None:
        self.packed = self.packed[_KEPT_BEFORE:] + _SEEN.pack(
            first_sequence, last_sequence, first_offset, last_offset, timestamp
        )
        self.last_sequence = last_sequence

    def begin(self, epoch: int) -> None:
        self.epoch, self.last_sequence, self.packed = epoch, -1, b""

    def copy(self, generation: int) -> "ProducerEntry":
        return replace(self, generation=generation)

    @property
    def batches(self) -> list[BatchSeen]:
        """The last batches of its epoch, at most `BATCHES_KEPT`, oldest first."""
        return list(map(BatchSeen._make, _SEEN.iter_unpack(self.packed)))

    @property
    def last_batch(self) -> BatchSeen | None:
        packed = self.packed
        return BatchSeen._make(_SEEN.unpack_from(packed, len(packed) - _SEEN.size)) if packed else None

    @property
    def last_timestamp(self) -> int:
        """Largest timestamp of its last batch and marker in ms, else -1."""
        last = self.last_batch
        return max(-1 if last is None else last.timestamp, self.marker_timestamp)


class ProducersAt:
    """Producers of a partition at one time, encodable in any thread."""

    __slots__ = ("_entries",)

    def __init__(self, entries: dict[int, ProducerEntry]) -> None:
        self._entries = entries

    def encode(self) -> bytes:
        """Encode one entry for each kept batch, a producer's newest last.

        Kafka writes only the newest, so that after a restart retries of earlier ones are no duplicates. It reads this
        snapshot, and uses a producer's last entry.
        """
        entries = self._entries
        count = sum(max(len(entry.packed) // _SEEN.size, 1) for entry in entries.values())
        content = bytearray(_HEADER.size + _COUNT.size + count * _ENTRY.size)
        _COUNT.pack_into(content, _HEADER.size, count)
        position = _HEADER.size + _COUNT.size
        for producer_id, entry in entries.items():
            # An entry without batches, for a producer with only a marker in its epoch.
            batches = _SEEN.iter_unpack(entry.packed) if entry.packed else ((-1, -1, -1, -1, entry.marker_timestamp),)
            for _, last_sequence, first_offset, last_offset, timestamp in batches:
                _ENTRY.pack_into(
                    content,
                    position,
                    producer_id,
                    entry.epoch,
                    last_sequence,
                    last_offset,
                    last_offset - first_offset,
                    timestamp,
                    entry.coordinator_epoch,
                    entry.transaction_start,
                )
                position += _ENTRY.size
        _HEADER.pack_into(content, 0, _VERSION, crc32c(memoryview(content)[_HEADER.size :]))
        return bytes(content)


def from_snapshot(content: bytes, now_ms: int) -> dict[int, ProducerEntry] | None:
    """Decode a snapshot, None if damaged. `now_ms`: last use of each producer."""
    entries: dict[int, ProducerEntry] = {}
    try:
        version, crc = _HEADER.unpack_from(content)
        body = content[_HEADER.size :]
        if version != _VERSION or crc != crc32c(body):
            return None
        for fields in _ENTRY.iter_unpack(body[_COUNT.size :]):
            producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, start = fields
            entry = entries.get(producer_id)
            if entry is None or entry.epoch != epoch:
                entry = entries[producer_id] = ProducerEntry(epoch, now_ms)
            entry.coordinator_epoch, entry.transaction_start = coordinator_epoch, max(start, -1)
            if last_offset < 0:
                entry.marker_timestamp = timestamp
                continue
            first_sequence = (last_sequence - delta) % SEQUENCES if last_sequence >= 0 else -1
            entry.add(first_sequence, last_sequence, last_offset - delta, last_offset, timestamp)
    except struct.error:
        return None
    return entries
