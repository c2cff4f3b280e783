"""What the runtime asks of the state that one partition of an internal topic holds.

What lives here: the interface, and what more it asks where records may be part of a transaction, or build on those before. What does not:
any such state; it need not know this module, as it only has to have these methods.

A shard is pure. Its operations are methods of its own that return a `Decision`; they may change what is lost with the coordinator
anyway (who waits, timers), but what the log keeps changes by `apply` alone, now and when the log is read. So where a decision's
records cannot be written, nothing has happened.
"""

from typing import Any, Protocol, runtime_checkable

from busway_bus.kernel.decision import Decision, Waiter

Record = Any
"""One record as a shard knows it; the runtime hands it on and never looks into it."""


class Shard(Protocol):
    """The state of one partition. Times are milliseconds of a clock that never goes back."""

    @staticmethod
    def encode(record: Record, /) -> tuple[bytes, bytes | None]:
        """The record's key and value as they are stored. Of all records with one key the last says everything: None ends it. Only of an
        `IncrementalShard` all count."""
        ...

    @staticmethod
    def decode(key: bytes, value: bytes | None, /) -> Record | None:
        """The record that is stored so; None for a type that this version does not know, and goes past.

        Raises:
            ProtocolError: the bytes are damaged.
        """
        ...

    def apply(self, record: Record, now: int, /) -> None:
        """Let a record that is in the log be in force."""
        ...

    def next_deadline(self) -> int | None:
        """When `tick` may have something to do; None for never."""
        ...

    def tick(self, now: int, /) -> Decision[None]:
        """Do what is due, a bounded part of it; what is left keeps `next_deadline` where it is."""
        ...

    def unloaded(self) -> list[Waiter]:
        """This node looks after it no longer: the waiters of all requests that are parked."""
        ...


@runtime_checkable
class TransactionalShard(Shard, Protocol):
    """The state of a partition in which producers' transactions may write too.

    Of records with one key the last of those says everything that belong to no transaction, or to one that was committed. What an open
    one has written and what was taken over before may be told of in any order that leaves the order for each key.
    """

    def apply_pending(self, record: Record, producer_id: int, now: int, /, host: str = ...) -> None:
        """Keep a record that is in the log until the producer's transaction is over; for a host where that is known."""
        ...

    def end_transaction(self, producer_id: int, now: int, /, *, committed: bool) -> None:
        """The marker that ends the producer's transaction is in the log; there may be nothing that it has written."""
        ...


@runtime_checkable
class IncrementalShard(Shard, Protocol):
    """The state of a partition whose records build on those before: it is told of all of them in order, and where each is.

    No transaction writes there.
    """

    def at(self, offset: int, /) -> None:
        """The record that is applied next is at this offset of the log."""
        ...
