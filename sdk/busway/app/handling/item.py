"""A record on its way through its handlers.

What lives here: `Item`. What does not: calling handlers (`attempts`), how far its partition is (`partition_offsets`).
"""

from typing import Any

from busway.app.handling.completed_offsets import CompletedOffsets
from busway.app.handling.partition_offsets import PartitionOffsets
from busway.app.model.topic import ConsumerRecord
from busway.types import Record


class Item:
    """A record on its way through the handlers of its topic.

    Attributes:
        done: where it is marked when all are done with it.
        record: as it came.
        size: bytes of its key and value.
        typed: as handlers see it, once it was read; None before, and when it is unreadable.
        pending: handlers that are not done with it.
        home: the partition that it is counted in; `queues.worker.NO_OFFSETS` in a queue.
        buried: whether it lies among the dead letters for one of them.
        unreadable: whether one of them found that nobody can read it.
        handed_on: whether it is on its way into a transaction.
    """

    __slots__ = ("buried", "done", "handed_on", "home", "pending", "record", "size", "typed", "unreadable")

    def __init__(self, done: CompletedOffsets, record: Record, pending: int, home: PartitionOffsets) -> None:
        self.done = done
        self.record = record
        self.size = len(record.key or b"") + len(record.value or b"")
        self.pending = pending
        self.home = home
        self.typed: ConsumerRecord[Any, Any] | None = None
        self.buried = False
        self.unreadable = False
        self.handed_on = False

    @property
    def where(self) -> str:
        """In messages."""
        return f"{self.record.topic}-{self.record.partition} offset {self.record.offset}"
