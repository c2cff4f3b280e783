"""Interfaces of the state that one partition of an internal topic holds.

Here: the interface, with extensions for transactions and incremental records.
Not here: implementations; they need not import this module.

A shard is pure. Its operations are further methods that return a `Decision`. They may change what is lost with the
coordinator anyway, such as waiters and timers. Only `apply` changes what the log keeps: a decision that cannot be
written has no effect.
"""

from typing import Any, Protocol, runtime_checkable

from busway_bus.kernel.decision import Decision, Waiter

Record = Any
"""A shard's record, opaque to the runtime."""


class Shard(Protocol):
    """The state of one partition. Times in ms of a clock that never goes back."""

    @staticmethod
    def encode(record: Record, /) -> tuple[bytes, bytes | None]:
        """Return the record's key and value.

        The log is compacted: the latest value of a key wins, None is a tombstone. An `IncrementalShard` needs all
        records.
        """
        ...

    @staticmethod
    def decode(key: bytes, value: bytes | None, /) -> Record | None:
        """Return the record; None for an unknown type. ProtocolError: damage."""
        ...

    def apply(self, record: Record, now: int, /) -> None: ...

    def next_deadline(self) -> int | None:
        """Return the time of the next `tick`; None for never."""
        ...

    def tick(self, now: int, /) -> Decision[None]:
        """Do a bounded part of what is due."""
        ...

    def unloaded(self) -> list[Waiter]:
        """Return the waiters of all parked requests."""
        ...


@runtime_checkable
class TransactionalShard(Shard, Protocol):
    """The state of a partition to which transactions of producers may write.

    Of committed and non-transactional records the latest value of a key wins. A replay keeps only the order per key.
    """

    def apply_pending(self, record: Record, producer_id: int, now: int, /, host: str = ...) -> None:
        """Keep a record until its transaction ends, charged to a known host."""
        ...

    def end_transaction(self, producer_id: int, now: int, /, *, committed: bool) -> None:
        """Apply the marker of a transaction; it may have written nothing here."""
        ...


@runtime_checkable
class IncrementalShard(Shard, Protocol):
    """The state of a partition whose records build on earlier ones.

    All are applied in order, each after its offset. No transaction writes there.
    """

    def at(self, offset: int, /) -> None:
        """Note the offset of the next applied record."""
        ...
