"""What a partition remembers of its producers: sequence numbers, so that a retried batch is not written twice (KIP-98).

What lives here: the last five batches of each producer id, the decision about a new batch, and the snapshot in Kafka's format.
What does not: disks and clocks. Transactions will add the open ones here; until then no batch is transactional.
"""

import struct
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.records.batch import BatchHeader
from busway_protocol.records.crc import crc32c

BATCHES_KEPT: Final = 5
SEQUENCES: Final = 2**31
_HEADER: Final = struct.Struct(">hI")
_COUNT: Final = struct.Struct(">i")
_ENTRY: Final = struct.Struct(">qhiqiqiq")
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class BatchSeen:
    """One batch of a producer that was written."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


@dataclass(slots=True)
class ProducerEntry:
    """One producer id; `seen_ms` is when it wrote last by the broker's clock, whatever times its records have."""

    epoch: int
    seen_ms: int
    batches: deque[BatchSeen] = field(default_factory=lambda: deque(maxlen=BATCHES_KEPT))


class ProducerState:
    """The producers of one partition."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[int, ProducerEntry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def check(self, header: BatchHeader) -> BatchSeen | None:
        """Judge a batch before it is written: None to write it, or the earlier batch that it repeats.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH or OUT_OF_ORDER_SEQUENCE_NUMBER.
        """
        entry = self._entries.get(header.producer_id)
        if entry is None:
            return None
        if header.producer_epoch < entry.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} has epoch {entry.epoch} now, the batch has {header.producer_epoch}",
            )
        if header.producer_epoch > entry.epoch:
            if header.base_sequence != 0:
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"a new epoch of producer {header.producer_id} starts at sequence {header.base_sequence}, not 0",
                )
            return None
        last_sequence = header.last_sequence
        for seen in entry.batches:
            if seen.first_sequence == header.base_sequence and seen.last_sequence == last_sequence:
                return seen
        if not entry.batches:
            return None
        expected = (entry.batches[-1].last_sequence + 1) % SEQUENCES
        if header.base_sequence == expected:
            return None
        # Whether a sequence far behind was ever written is not known any more: clients take "duplicate" for an acknowledgement.
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id} sent sequence {header.base_sequence}, {expected} is next",
        )

    def apply(self, header: BatchHeader, now_ms: int) -> None:
        """Remember a batch that was written, now or as far as is known."""
        if header.producer_id < 0 or header.is_control:
            return
        entry = self._entries.get(header.producer_id)
        if entry is None or entry.epoch != header.producer_epoch:
            entry = self._entries[header.producer_id] = ProducerEntry(header.producer_epoch, now_ms)
        entry.seen_ms = now_ms
        entry.batches.append(
            BatchSeen(
                header.base_sequence,
                header.last_sequence,
                header.base_offset,
                header.last_offset,
                header.max_timestamp,
            )
        )

    def expire(self, now_ms: int, after_ms: int) -> None:
        """Forget producers that have been idle for `after_ms`.

        Kafka goes by the records' times, and so forgets a producer that writes old ones while it is at work.
        """
        idle = [producer_id for producer_id, entry in self._entries.items() if now_ms - entry.seen_ms > after_ms]
        for producer_id in idle:
            del self._entries[producer_id]

    def last_offsets(self) -> dict[int, int]:
        """Of each producer id the last offset of its last batch, which compaction must not lose."""
        return {
            producer_id: entry.batches[-1].last_offset for producer_id, entry in self._entries.items() if entry.batches
        }

    def snapshot(self) -> bytes:
        """The state in Kafka's `.snapshot` format, an entry for each batch that is remembered, a producer's newest last.

        Kafka writes the newest alone, so that a batch that was written before a start but answered by none cannot be told
        from a gap after it; it reads these and takes the last of each producer.
        """
        entries = [
            _ENTRY.pack(
                producer_id,
                entry.epoch,
                seen.last_sequence,
                seen.last_offset,
                seen.last_offset - seen.first_offset,
                seen.timestamp,
                -1,
                -1,
            )
            for producer_id, entry in self._entries.items()
            for seen in entry.batches
        ]
        body = _COUNT.pack(len(entries)) + b"".join(entries)
        return _HEADER.pack(_VERSION, crc32c(body)) + body

    @classmethod
    def from_snapshot(cls, content: bytes, now_ms: int) -> "ProducerState | None":
        """The state in a snapshot, all producers seen now; None when it is damaged, so that the caller reads the log instead."""
        try:
            version, crc = _HEADER.unpack_from(content)
            body = content[_HEADER.size :]
            if version != _VERSION or crc != crc32c(body):
                return None
            state = cls()
            for fields in _ENTRY.iter_unpack(body[_COUNT.size :]):
                producer_id, epoch, last_sequence, last_offset, delta, timestamp, _, _ = fields
                entry = state._entries.get(producer_id)
                if entry is None or entry.epoch != epoch:
                    entry = state._entries[producer_id] = ProducerEntry(epoch, now_ms)
                first_sequence = (last_sequence - delta) % SEQUENCES
                entry.batches.append(
                    BatchSeen(first_sequence, last_sequence, last_offset - delta, last_offset, timestamp)
                )
        except struct.error:
            return None
        return state
