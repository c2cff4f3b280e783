"""What a partition remembers of one producer, and how that of all of them is written down in Kafka's `.snapshot` format.

What lives here: the last five batches of a producer in few bytes, and the snapshot to and from bytes. What does not: the decision about a
batch (`producer_state`), when a snapshot is taken (`snapshots`) and written (`flush_point`).
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
    """One batch of a producer that was written."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


@dataclass(slots=True)
class ProducerEntry:
    """One producer id.

    Attributes:
        seen_ms: when it wrote last by the broker's clock, whatever times its records have.
        coordinator_epoch: of the last marker that ended a transaction of it, -1 before the first.
        transaction_start: the first offset of its open transaction, -1 without one.
        marker_timestamp: of the last marker, in ms.
        last_sequence: of the last batch of its epoch, -1 before the first.
        generation: how many snapshots had been taken when it changed last: one that a snapshot holds is copied before it changes.
        packed: its last batches in its epoch, oldest first: there may be very many producers.
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
        """A batch of its epoch was written."""
        self.packed = self.packed[_KEPT_BEFORE:] + _SEEN.pack(
            first_sequence, last_sequence, first_offset, last_offset, timestamp
        )
        self.last_sequence = last_sequence

    def begin(self, epoch: int) -> None:
        """It has a new epoch, with no batch yet."""
        self.epoch, self.last_sequence, self.packed = epoch, -1, b""

    def copy(self, generation: int) -> "ProducerEntry":
        """The same, for this generation."""
        return replace(self, generation=generation)

    @property
    def batches(self) -> list[BatchSeen]:
        """The last batches of its epoch that are remembered, oldest first."""
        return list(map(BatchSeen._make, _SEEN.iter_unpack(self.packed)))

    @property
    def last_batch(self) -> BatchSeen | None:
        """The last batch of its epoch."""
        packed = self.packed
        return BatchSeen._make(_SEEN.unpack_from(packed, len(packed) - _SEEN.size)) if packed else None

    @property
    def last_timestamp(self) -> int:
        """Of what was written last, a marker included, in ms; -1 where nothing is known."""
        last = self.last_batch
        return max(-1 if last is None else last.timestamp, self.marker_timestamp)


class ProducersAt:
    """All producers of a partition as they were at one moment; they are put into bytes by whoever writes them, in any thread."""

    __slots__ = ("_entries",)

    def __init__(self, entries: dict[int, ProducerEntry]) -> None:
        self._entries = entries

    def encode(self) -> bytes:
        """In Kafka's format, an entry for each batch that is remembered, a producer's newest last.

        Kafka writes the newest alone, so that a batch that was written before a start but answered by none cannot be told
        from a gap after it; it reads these and takes the last of each producer.
        """
        entries = self._entries
        count = sum(max(len(entry.packed) // _SEEN.size, 1) for entry in entries.values())
        content = bytearray(_HEADER.size + _COUNT.size + count * _ENTRY.size)
        _COUNT.pack_into(content, _HEADER.size, count)
        position = _HEADER.size + _COUNT.size
        for producer_id, entry in entries.items():
            # What a producer has that has written nothing in its epoch but the end of a transaction.
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
    """The producers in a snapshot, all of them seen now; None when it is damaged."""
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
