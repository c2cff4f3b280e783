"""What one call of a handler leaves behind, where that is to happen exactly once.

What lives here: `Work`: the records and rows of a call, which are kept until it has returned, and who is told what became of them. What
does not: sending them (`transactor`), rows (`busway.app.tables`).

Nothing of a call is sent before it has returned. So a call that fails leaves nothing to be taken back, and one that waits for its next
attempt keeps no transaction open.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from contextvars import ContextVar
from typing import Final, Protocol

from busway.app.handling.item import Item
from busway.app.handling.partition_offsets import PartitionOffsets
from busway.app.model.topic import Outgoing
from busway.errors import BuswayError, MessageTooLarge
from busway.types import TopicPartition

CALL_BYTES_MAX: Final = 32 * 1024 * 1024
"""Keys and values that one call may send: all of them wait in memory until it has returned."""
RECORD_BYTES: Final = 64
"""What a record is taken to need beside its key and value."""


class SentTooLate(BuswayError):
    """A task that outlived its handler has sent something: the handler's transaction does not wait for it."""


class Change(Protocol):
    """What a call changed in memory, in a table say."""

    def finish(self, work: "Work") -> None:
        """The call has returned: keep what has to be sent for it."""

    def undo(self) -> None:
        """The call has failed."""


class Work:
    """What a call left behind, on its way into a transaction.

    Args:
        items: the records that the call was for, in the order of their offsets; none for what is changed outside of handlers.
        home: the partition that they are counted in.

    Attributes:
        records: that are to be sent, in the order in which they were.
        size: about how many bytes they take.
        changes: in memory; None, as for most calls, is none, which is a list less for each record.
    """

    __slots__ = ("_callbacks", "_closed", "changes", "home", "items", "records", "size", "turns")

    def __init__(self, items: Sequence[Item], home: PartitionOffsets) -> None:
        self.items = items
        self.home = home
        self.records: list[Outgoing] = []
        self.size = 0
        self.changes: list[Change] | None = None
        self.turns: AsyncExitStack | None = None
        self._callbacks: list[Callable[[bool], None]] | None = None
        self._closed = False

    def keep(self, record: Outgoing) -> None:
        """Send it when the call has returned.

        Raises:
            SentTooLate: it has.
            MessageTooLarge: it is more than a call may send.
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
        """The call has changed something in memory."""
        if self.changes is None:
            self.changes = []
        self.changes.append(change)

    def finish(self) -> None:
        """The call has returned."""
        for change in self.changes or ():
            change.finish(self)
        self._closed = True

    def undo(self) -> None:
        """The call has failed: it leaves nothing behind."""
        self._closed = True
        for change in reversed(self.changes or ()):
            change.undo()
        self.settle(committed=False)

    def on_settled(self, callback: Callable[[bool], None]) -> None:
        """Call back with whether it was committed; False when its partition went or was begun again."""
        if self._callbacks is None:
            self._callbacks = []
        self._callbacks.append(callback)

    def settle(self, committed: bool) -> None:
        """It is committed, or will not be."""
        callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            callback(committed)

    async def release(self) -> None:
        """Let others have their turn at the rows that the call was alone with."""
        if self.turns is not None:
            turns, self.turns = self.turns, None
            await turns.aclose()


class OutsideWork(Work):
    """Hold what is changed outside of handlers, for one of the app's transactions.

    Args:
        home: the partition that it goes with.
        add: takes it when it is complete.
    """

    __slots__ = ("_add",)

    def __init__(self, home: PartitionOffsets, add: Callable[[Work], None]) -> None:
        super().__init__((), home)
        self._add = add

    def commit(self) -> None:
        """Put it into one of the next transactions; `on_settled` says what became of it."""
        self._add(self)


def firsts(works: Iterable[Work]) -> dict[TopicPartition, int]:
    """For steps: the first record of each partition."""
    found: dict[TopicPartition, int] = {}
    for one in works:
        for item in one.items:
            found.setdefault(one.home.partition, item.record.offset)
    return found


work: ContextVar[Work | None] = ContextVar("work", default=None)
"""Inside a handler that is exactly_once: what it leaves behind."""
