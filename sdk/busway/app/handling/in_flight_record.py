"""A record on its way through its handlers.

Here: `InFlightRecord`.
Not here: calling handlers (`attempts`), offsets (`partition_offsets`).
"""

from typing import Any

from busway.app.handling.completed_offsets import CompletedOffsets
from busway.app.handling.partition_offsets import PartitionOffsets
from busway.app.model.topic import ConsumerRecord
from busway.types import Record


class InFlightRecord:
    """A record on its way through the handlers of its topic.

    Attributes:
        size: bytes of its key and value.
        typed: None before it is decoded, and when it is unreadable.
        pending: number of handlers not done with it.
        partition: `queues.worker.NO_OFFSETS` in a queue.
        buried: whether a handler dead-lettered it.
        completed: whether it is queued for a transaction.
    """

    __slots__ = ("buried", "completed", "done", "partition", "pending", "record", "size", "typed", "unreadable")

    def __init__(self, done: CompletedOffsets, record: Record, pending: int, partition: PartitionOffsets) -> None:
        self.done: CompletedOffsets = done
        self.record: Record = record
        self.size: int = len(record.key or b"") + len(record.value or b"")
        self.pending: int = pending
        self.partition: PartitionOffsets = partition
        self.typed: ConsumerRecord[Any, Any] | None = None
        self.buried: bool = False
        self.unreadable: bool = False
        self.completed: bool = False

    @property
    def where(self) -> str:
        return f"{self.record.topic}-{self.record.partition} offset {self.record.offset}"
