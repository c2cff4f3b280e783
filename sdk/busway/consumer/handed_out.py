"""What a consumer has handed out to its program, and whether its partitions have stayed its own since.

What lives here: the identity of the member at the last poll, each partition's tenure when records of it were handed out, and what a
transaction takes along of that. What does not: positions and commits (`consumer`), requests (`busway.producer`).

Rebalances go on in the background while the program works on what it was handed. So offsets are committed in the name of the member that
the records were handed to, and only of partitions that it has kept without a break: those that were given up in between may have been
read, and committed, by another member, also where they have come back.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from busway.errors import InvalidTransactionState, TransactionAbortable
from busway.types import GroupMetadata, OffsetAndMetadata, TopicPartition


class Place(Protocol):
    """A consumer, as far as it matters here."""

    def tenure(self, partition: TopicPartition) -> int | None:
        """Return a number that stays the same while the partition is assigned without a break; None while it is not."""

    def place(self, partition: TopicPartition) -> int | None:
        """Return the offset of the next record; None while it is not known."""

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at `offset`."""

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Take what was handed out of these partitions for committed."""

    def committing(self, partitions: Iterable[TopicPartition] | None = None) -> list[TopicPartition]:
        """Return those of these partitions, or of all, that a commit under way is about."""

    def member(self) -> GroupMetadata:
        """Return the member as its group knows it now."""

    def is_settled(self) -> bool:
        """Return whether the member is in no rebalance: not between joining a generation and being given its share of it."""

    def is_subscribed(self) -> bool:
        """Return whether a group shares the partitions out."""


class Topics(Protocol):
    """Which topics the consumer reads."""

    def read_topic_id(self, partition: TopicPartition) -> UUID | None:
        """Return the id of the topic that the position is of."""

    def is_replaced(self, partition: TopicPartition, topic_id: UUID | None) -> bool:
        """Return whether the topic of this id was deleted and created again."""


class Places(Protocol):
    """Positions that resets and seeks chose."""

    def places(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return those that are not committed, of partitions without a record since."""

    def placed(self, places: dict[TopicPartition, OffsetAndMetadata]) -> None:
        """Note that these of `places` are committed."""


@dataclass(slots=True)
class _Handed:
    """Records of one partition.

    Attributes:
        is_open: whether no offset behind them has been committed or sent to a transaction.
        oldest: the tenure in which the first record that is open was handed out.
        tenure: the tenure in which the last one was.
        first: the offset of the first record that is open and was handed out in `tenure`.
        behind: what to commit, as of the last record.
        topic_id: of the topic that they are of; None where the cluster has no ids.
    """

    is_open: bool
    oldest: int | None
    tenure: int | None
    first: int
    behind: OffsetAndMetadata
    topic_id: UUID | None


class HandedOut:
    """Keeps track of what one consumer has handed out.

    Args:
        automatic: whether the consumer commits that at intervals.

    Attributes:
        in_transaction: a transaction takes along what is handed out.
    """

    def __init__(self, consumer: Place, topics: Topics, chosen: Places, *, automatic: bool) -> None:
        self._consumer = consumer
        self._topics = topics
        self._chosen = chosen
        self._automatic = automatic
        self._handed: dict[TopicPartition, _Handed] = {}
        self._refused: set[TopicPartition] = set()
        self._member: GroupMetadata | None = None
        self.in_transaction = False
        self._taken: dict[TopicPartition, _Handed] = {}
        """What the transaction that is being committed takes along."""
        self._places: dict[TopicPartition, OffsetAndMetadata] = {}
        """And the positions without records."""

    # What the consumer does

    def polling(self) -> None:
        """Note that the program asks for records: it goes on after a refusal."""
        for partition in self._refused:
            self._handed.pop(partition, None)
        self._refused.clear()

    def polled(self) -> None:
        """Note who the member is when a poll returns."""
        if self._consumer.is_subscribed() and self._consumer.is_settled():
            self._member = self._consumer.member()

    def hand_out(self, partition: TopicPartition, first: int, behind: OffsetAndMetadata) -> None:
        """Note records from the offset `first` on, and what to commit once they are handled."""
        tenure, topic_id = self._consumer.tenure(partition), self._topics.read_topic_id(partition)
        known = self._handed.get(partition)
        if known is None or not known.is_open or self._is_replaced(partition, known):
            self._handed[partition] = _Handed(True, tenure, tenure, first, behind, topic_id)
            return
        if known.tenure != tenure:
            known.tenure, known.first = tenure, first
        known.behind = behind

    def sought(self, partition: TopicPartition) -> None:
        """Note that the program has chosen itself where it goes on, and commits that rather than what it was handed before."""
        known = self._handed.get(partition)
        if known is None or self.in_transaction:
            return
        known.is_open = False
        if known.tenure != self._consumer.tenure(partition):
            del self._handed[partition]

    def settled(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Note that these offsets are committed, or part of a transaction."""
        for partition, offset in offsets.items():
            known = self._handed.get(partition)
            if known is not None and offset.offset >= known.behind.offset:
                known.is_open = False

    def keep(self, topics: Collection[str]) -> None:
        """Forget partitions that are not assigned any more and whose topic is not among these."""
        for partition in [one for one in self._handed if one.topic not in topics]:
            if self._consumer.tenure(partition) is None:
                del self._handed[partition]

    # Who may commit

    def metadata(self) -> GroupMetadata:
        """Return the member as of the last poll; a producer asks this object whether it may commit."""
        member = (self._member if self._consumer.is_subscribed() else None) or self._consumer.member()
        return dataclasses.replace(member, guard=self)

    def given_up(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return those of which the last records were handed out before the partition was given up."""
        if not self._consumer.is_subscribed():
            return []
        gone = [
            one
            for one in partitions
            if (known := self._handed.get(one)) is not None and known.tenure != self._consumer.tenure(one)
        ]
        self._refused.update(gone)
        return gone

    def of_replaced_topics(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return those whose last records are of a topic that was deleted and created again."""
        return [
            one for one in partitions if (known := self._handed.get(one)) is not None and self._is_replaced(one, known)
        ]

    def _is_replaced(self, partition: TopicPartition, known: _Handed) -> bool:
        return self._topics.is_replaced(partition, known.topic_id)

    def allow(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Refuse a transaction that has to do with these partitions, or with all, beside other commits.

        Raises:
            ValueError: the consumer commits by itself.
            InvalidTransactionState: a commit is under way.
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
        """Refuse what must not become part of a transaction.

        Raises:
            TransactionAbortable: the member was in no generation of its group, or partitions were given up since they were handed out.
        """
        if not self._consumer.is_subscribed():
            return
        gone = [one for one in partitions if not self._is_kept(one)]
        self._refused.update(gone)
        if member.generation < 0 or not member.member_id:
            raise TransactionAbortable(
                f"this consumer is not a member of group {member.group_id} at this moment (generation {member.generation}), so offsets in "
                "its name would not be fenced; abort the transaction and go on polling, which joins the group again"
            )
        if gone:
            raise TransactionAbortable(
                f"group {member.group_id} has moved on: this consumer has given {_names(gone)} up since the records were handed out, and "
                "other members may have read and committed them; abort the transaction and go on polling, without these records"
            )

    def _is_kept(self, partition: TopicPartition) -> bool:
        tenure, known = self._consumer.tenure(partition), self._handed.get(partition)
        return tenure is not None and (known is None or known.oldest == tenure)

    # A transaction that takes along what is handed out in it

    def begin(self) -> None:
        """Take along what is handed out from now on.

        Raises:
            InvalidTransactionState: another transaction takes it along, or records were handed out before and not committed.
            ValueError: the consumer commits by itself.
        """
        if self.in_transaction:
            raise InvalidTransactionState(
                "this consumer is part of another transaction that has not ended; if that one's outcome is not known, or its producer was "
                "fenced, start a new consumer as well"
            )
        self.allow()
        before = [one for one, known in self._handed.items() if known.is_open and self._is_here(one, known)]
        if before:
            raise InvalidTransactionState(
                f"records of {_names(before)} were handed out before the transaction began and are not committed; ask for records inside "
                "of the block, `async with producer.transaction(consumer):`, or commit() those first"
            )
        self._handed = {one: known for one, known in self._handed.items() if not known.is_open}
        self._refused.clear()
        self.in_transaction = True

    def offsets(self) -> tuple[dict[TopicPartition, OffsetAndMetadata], GroupMetadata]:
        """Return what the transaction commits: behind everything handed out in it, and positions without a record since.

        Raises:
            TransactionAbortable: as `check`.
        """
        wanted = {one: known for one, known in self._handed.items() if known.is_open}
        member = self.metadata()
        if wanted:
            self.check(wanted, member)
        for partition in wanted:
            del self._handed[partition]
        self._taken = {one: known for one, known in wanted.items() if not self._is_replaced(one, known)}
        now = self._consumer.member()
        is_same = (now.generation, now.member_id) == (member.generation, member.member_id)
        if not self._consumer.is_subscribed() or (is_same and self._consumer.is_settled() and now.generation >= 0):
            self._places = {one: at for one, at in self._chosen.places().items() if one not in self._taken}
        offsets = {one: self._behind(one, known) for one, known in self._taken.items()}
        return offsets | self._places, dataclasses.replace(member, guard=None)

    def _behind(self, partition: TopicPartition, known: _Handed) -> OffsetAndMetadata:
        """Where the consumer goes on: behind markers and aborted records too, or where the program has sought."""
        place = self._consumer.place(partition)
        if place is None or place == known.behind.offset or known.tenure != self._consumer.tenure(partition):
            return known.behind
        return OffsetAndMetadata(place)

    def ended(self, *, committed: bool) -> None:
        """Go on behind what was committed; or go back, in partitions that were kept without a break.

        A partition that was given up and came back is read from its committed offset already.
        """
        taken, self._taken = self._taken, {}
        places, self._places = self._places, {}
        self.in_transaction = False
        if committed:
            self._chosen.placed(places)
            self._consumer.forget(one for one in taken if one not in self._handed)
            for partition, known in taken.items():
                known.is_open = False
                self._handed.setdefault(partition, known)
            return
        back = {one: known for one, known in self._handed.items() if known.is_open} | taken
        self._handed.clear()
        self._refused.clear()
        for partition, known in back.items():
            if self._is_here(partition, known):
                self._consumer.seek(partition, known.first)

    def _is_here(self, partition: TopicPartition, known: _Handed) -> bool:
        """Whether the offsets are those of the consumer's partition: kept without a break, its topic not created again."""
        is_kept = known.tenure is not None and known.tenure == self._consumer.tenure(partition)
        return is_kept and not self._is_replaced(partition, known)


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{number}" for topic, number in sorted(partitions))
