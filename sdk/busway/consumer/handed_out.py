"""Records handed out to the program, and whether their partitions were kept since.

Not here: positions and commits (`consumer`).

Rebalances run while the program works on records. So offsets are committed as the member that received the records, and
only of partitions kept without a break: after a revocation another member may have committed them.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from busway.errors import InvalidTransactionState, TransactionAbortable
from busway.types import GroupMetadata, OffsetAndMetadata, TopicPartition


class Place(Protocol):
    def tenure(self, partition: TopicPartition) -> int | None:
        """Return a number that is constant while the partition stays assigned, else None."""

    def known_position(self, partition: TopicPartition) -> int | None:
        """Return the offset of the next record; None if unknown."""

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at `offset`."""

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Treat what was handed out as committed."""

    def committing(self, partitions: Iterable[TopicPartition] | None = None) -> list[TopicPartition]:
        """Return partitions (of these, or all) with a commit in progress."""

    def member(self) -> GroupMetadata:
        """Return the current identity of the member."""

    def is_settled(self) -> bool:
        """Return whether the member is in no rebalance."""

    def is_subscribed(self) -> bool:
        """Return whether a group assigns the partitions."""


class Topics(Protocol):
    def read_topic_id(self, partition: TopicPartition) -> UUID | None:
        """Return the topic id of the position."""

    def is_replaced(self, partition: TopicPartition, topic_id: UUID | None) -> bool:
        """Return whether this topic was deleted and recreated."""


class Places(Protocol):
    def places(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the uncommitted ones, of partitions without a record since."""

    def placed(self, places: dict[TopicPartition, OffsetAndMetadata]) -> None:
        """Mark positions as committed."""


@dataclass(slots=True)
class _Handed:
    """Records of one partition.

    Attributes:
        is_open: no offset behind them was committed or sent to a transaction.
        oldest: tenure of the first open record.
        tenure: tenure of the last record.
        first: offset of the first open record in `tenure`.
        behind: what to commit after the last record.
        topic_id: None without topic ids.
    """

    is_open: bool
    oldest: int | None
    tenure: int | None
    first: int
    behind: OffsetAndMetadata
    topic_id: UUID | None


class HandedOut:
    """Tracker of the records that a consumer handed out; `automatic` if it commits at intervals."""

    def __init__(self, consumer: Place, topics: Topics, chosen: Places, *, automatic: bool) -> None:
        self._consumer = consumer
        self._topics = topics
        self._chosen = chosen
        self._automatic = automatic
        self._handed: dict[TopicPartition, _Handed] = {}
        self._refused: set[TopicPartition] = set()
        self._member: GroupMetadata | None = None
        self.in_transaction: bool = False
        self._taken: dict[TopicPartition, _Handed] = {}
        self._places: dict[TopicPartition, OffsetAndMetadata] = {}

    # Called by the consumer

    def polling(self) -> None:
        for partition in self._refused:
            self._handed.pop(partition, None)
        self._refused.clear()

    def polled(self) -> None:
        if self._consumer.is_subscribed() and self._consumer.is_settled():
            self._member = self._consumer.member()

    def hand_out(self, partition: TopicPartition, first: int, behind: OffsetAndMetadata) -> None:
        """Track records from offset `first` on; `behind` is committed after them."""
        tenure, topic_id = self._consumer.tenure(partition), self._topics.read_topic_id(partition)
        known = self._handed.get(partition)
        if known is None or not known.is_open or self._is_replaced(partition, known):
            self._handed[partition] = _Handed(True, tenure, tenure, first, behind, topic_id)
            return
        if known.tenure != tenure:
            known.tenure, known.first = tenure, first
        known.behind = behind

    def sought(self, partition: TopicPartition) -> None:
        """Record a seek outside a transaction; its position is committed, not earlier records."""
        known = self._handed.get(partition)
        if known is None or self.in_transaction:
            return
        known.is_open = False
        if known.tenure != self._consumer.tenure(partition):
            del self._handed[partition]

    def settled(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Mark offsets as committed, or sent to a transaction."""
        for partition, offset in offsets.items():
            known = self._handed.get(partition)
            if known is not None and offset.offset >= known.behind.offset:
                known.is_open = False

    def keep(self, topics: Collection[str]) -> None:
        for partition in [partition for partition in self._handed if partition.topic not in topics]:
            if self._consumer.tenure(partition) is None:
                del self._handed[partition]

    # Permission to commit

    def metadata(self) -> GroupMetadata:
        member = (self._member if self._consumer.is_subscribed() else None) or self._consumer.member()
        return dataclasses.replace(member, guard=self)

    def given_up(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return and refuse partitions revoked since their last records were handed out."""
        if not self._consumer.is_subscribed():
            return []
        gone = [
            partition
            for partition in partitions
            if (known := self._handed.get(partition)) is not None and known.tenure != self._consumer.tenure(partition)
        ]
        self._refused.update(gone)
        return gone

    def of_replaced_topics(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        return [
            partition
            for partition in partitions
            if (known := self._handed.get(partition)) is not None and self._is_replaced(partition, known)
        ]

    def _is_replaced(self, partition: TopicPartition, known: _Handed) -> bool:
        return self._topics.is_replaced(partition, known.topic_id)

    def allow(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Check that a transaction with these partitions (default all) excludes other commits.

        Raise `ValueError` if the consumer commits automatically, `InvalidTransactionState` while a commit is in
        progress.
        """
        if self._automatic:
            raise ValueError(
                "a transaction commits what its consumer reads, and nothing else may: enable_auto_commit=False is needed"
            )
        if committing := self._consumer.committing(partitions):
            raise InvalidTransactionState(
                f"a commit of {_names(committing)} is under way, and could take the group back behind what the transaction commits; "
                "await commit() first"
            )

    def check(self, partitions: Iterable[TopicPartition], member: GroupMetadata) -> None:
        """Check that these partitions may join a transaction.

        Raise `TransactionAbortable` if the member was in no generation, or partitions were revoked since they were
        handed out.
        """
        if not self._consumer.is_subscribed():
            return
        gone = [partition for partition in partitions if not self._is_kept(partition)]
        self._refused.update(gone)
        if member.generation < 0 or not member.member_id:
            raise TransactionAbortable(
                f"this consumer is not a member of group {member.group_id} at this moment (generation {member.generation}), so offsets in "
                "its name would not be fenced; abort the transaction and continue to poll, which joins the group again"
            )
        if gone:
            raise TransactionAbortable(
                f"group {member.group_id} has moved on: this consumer has given {_names(gone)} up since the records were handed out, and "
                "other members may have read and committed them; abort the transaction and continue to poll, without these records"
            )

    def _is_kept(self, partition: TopicPartition) -> bool:
        tenure, known = self._consumer.tenure(partition), self._handed.get(partition)
        return tenure is not None and (known is None or known.oldest == tenure)

    # A transaction that commits what is handed out in it

    def begin(self) -> None:
        """Collect what is handed out from now on for a transaction.

        Raises:
            InvalidTransactionState: another transaction is open, or earlier records are uncommitted.
        """
        if self.in_transaction:
            raise InvalidTransactionState(
                "this consumer is part of another transaction that has not ended; if that one's outcome is not known, or its producer was "
                "fenced, start a new consumer as well"
            )
        self.allow()
        before = [
            partition for partition, known in self._handed.items() if known.is_open and self._is_here(partition, known)
        ]
        if before:
            raise InvalidTransactionState(
                f"records of {_names(before)} were handed out before the transaction began and are not committed; ask for records inside "
                "of the block, `async with producer.transaction(consumer):`, or commit() those first"
            )
        self._handed = {partition: known for partition, known in self._handed.items() if not known.is_open}
        self._refused.clear()
        self.in_transaction = True

    def offsets(self) -> tuple[dict[TopicPartition, OffsetAndMetadata], GroupMetadata]:
        """Return what the transaction commits, including positions without a record since; raise as `check`."""
        wanted = {partition: known for partition, known in self._handed.items() if known.is_open}
        member = self.metadata()
        if wanted:
            self.check(wanted, member)
        for partition in wanted:
            del self._handed[partition]
        self._taken = {
            partition: known for partition, known in wanted.items() if not self._is_replaced(partition, known)
        }
        now = self._consumer.member()
        is_same = (now.generation, now.member_id) == (member.generation, member.member_id)
        if not self._consumer.is_subscribed() or (is_same and self._consumer.is_settled() and now.generation >= 0):
            self._places = {
                partition: at for partition, at in self._chosen.places().items() if partition not in self._taken
            }
        offsets = {partition: self._behind(partition, known) for partition, known in self._taken.items()}
        return offsets | self._places, dataclasses.replace(member, guard=None)

    def _behind(self, partition: TopicPartition, known: _Handed) -> OffsetAndMetadata:
        position = self._consumer.known_position(partition)
        if position is None or position == known.behind.offset or known.tenure != self._consumer.tenure(partition):
            return known.behind
        return OffsetAndMetadata(position)

    def ended(self, *, committed: bool) -> None:
        """Continue after a commit; otherwise seek back in partitions kept without a break.

        A partition that was revoked and assigned again already reads from its committed offset.
        """
        taken, self._taken = self._taken, {}
        places, self._places = self._places, {}
        self.in_transaction = False
        if committed:
            self._chosen.placed(places)
            self._consumer.forget(partition for partition in taken if partition not in self._handed)
            for partition, known in taken.items():
                known.is_open = False
                self._handed.setdefault(partition, known)
            return
        back = {partition: known for partition, known in self._handed.items() if known.is_open} | taken
        self._handed.clear()
        self._refused.clear()
        for partition, known in back.items():
            if self._is_here(partition, known):
                self._consumer.seek(partition, known.first)

    def _is_here(self, partition: TopicPartition, known: _Handed) -> bool:
        is_kept = known.tenure is not None and known.tenure == self._consumer.tenure(partition)
        return is_kept and not self._is_replaced(partition, known)


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{partition_index}" for topic, partition_index in sorted(partitions))
