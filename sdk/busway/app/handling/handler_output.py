"""The output of one exactly_once handler call.

Here: records and rows of a call until it returns, and callbacks for the outcome.
Not here: sending (`transactor`), rows (`busway.app.tables`).

Nothing is sent before the call returns: a failed call has nothing to take back, and one that waits for its next attempt
keeps no transaction open.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from contextvars import ContextVar
from typing import Final, Protocol

from busway.app.handling.in_flight_record import InFlightRecord
from busway.app.handling.partition_offsets import PartitionOffsets
from busway.errors import BuswayError, MessageTooLarge
from busway.types import ProducerRecord, TopicPartition

CALL_BYTES_MAX: Final = 32 * 1024 * 1024
"""Bytes of keys and values that one call may send: all stay in memory until it returns."""
RECORD_BYTES: Final = 64
"""Assumed overhead of a record, beside its key and value."""


class SentTooLate(BuswayError):
    """A task that outlived its handler sent something; the transaction does not wait for it."""


class Change(Protocol):
    def finish(self, output: "HandlerOutput") -> None:
        """Queue its records, after the call returned."""

    def undo(self) -> None:
        """Undo it, after the call failed."""


class HandlerOutput:
    """A call's output on its way into a transaction.

    Args:
        items: the records of the call, by offset; none outside of handlers.

    Attributes:
        records: to be sent, in order.
        size: their approximate bytes.
        changes: in memory; None for none, as in most calls, which saves a list for each record.
    """

    __slots__ = ("_callbacks", "_closed", "changes", "items", "partition", "records", "size", "turns")

    def __init__(self, items: Sequence[InFlightRecord], partition: PartitionOffsets) -> None:
        self.items: Sequence[InFlightRecord] = items
        self.partition: PartitionOffsets = partition
        self.records: list[ProducerRecord] = []
        self.size: int = 0
        self.changes: list[Change] | None = None
        self.turns: AsyncExitStack | None = None
        self._callbacks: list[Callable[[bool], None]] | None = None
        self._closed = False

    def keep(self, record: ProducerRecord) -> None:
        """Send the record when the call has returned.

        Raises:
            SentTooLate: the call has returned already.
            MessageTooLarge: it sends more than `CALL_BYTES_MAX`.
        """
        if self._closed:
            raise SentTooLate(
                f"a record for {record.topic} was sent by a task that outlived its handler, which is exactly_once; wait for the task in the "
                "handler, or start it elsewhere"
            )
        self.size += len(record.key or b"") + len(record.value or b"") + RECORD_BYTES
        if self.size > CALL_BYTES_MAX:
            raise MessageTooLarge(
                f"one call sends more than {CALL_BYTES_MAX} bytes, which exactly_once keeps until it has returned; spread it over more records"
            )
        self.records.append(record)

    def change(self, change: Change) -> None:
        if self.changes is None:
            self.changes = []
        self.changes.append(change)

    def finish(self) -> None:
        for change in self.changes or ():
            change.finish(self)
        self._closed = True

    def undo(self) -> None:
        self._closed = True
        for change in reversed(self.changes or ()):
            change.undo()
        self.settle(committed=False)

    def on_settled(self, callback: Callable[[bool], None]) -> None:
        """Call back with whether it was committed; False when its partition was revoked or restarted."""
        if self._callbacks is None:
            self._callbacks = []
        self._callbacks.append(callback)

    def settle(self, committed: bool) -> None:
        callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            callback(committed)

    async def release(self) -> None:
        if self.turns is not None:
            turns, self.turns = self.turns, None
            await turns.aclose()


class OutsideOutput(HandlerOutput):
    """Changes made outside of handlers; `add` queues them to commit with `partition`."""

    __slots__ = ("_add",)

    def __init__(self, partition: PartitionOffsets, add: Callable[[HandlerOutput], None]) -> None:
        super().__init__((), partition)
        self._add = add

    def commit(self) -> None:
        self._add(self)


def firsts(outputs: Iterable[HandlerOutput]) -> dict[TopicPartition, int]:
    offsets: dict[TopicPartition, int] = {}
    for output in outputs:
        for item in output.items:
            offsets.setdefault(output.partition.partition, item.record.offset)
    return offsets


current_output: ContextVar[HandlerOutput | None] = ContextVar("current_output", default=None)
"""Output of the current exactly_once call; None elsewhere."""
