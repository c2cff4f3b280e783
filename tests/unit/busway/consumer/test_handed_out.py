"""What was handed out, in whose name, and what becomes of it when partitions go and come back."""

from collections.abc import Iterable, Mapping
from uuid import UUID

import pytest

from busway.consumer.handed_out import HandedOut
from busway.errors import InvalidTransactionState, TransactionAbortable
from busway.types import GroupMetadata, OffsetAndMetadata, TopicPartition

MINE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


class Reader:
    """A consumer in generation 3 that has two partitions."""

    def __init__(self, *, automatic: bool = False) -> None:
        self.tenures = {MINE: 1, OTHER: 2}
        self.positions: dict[TopicPartition, int] = {}
        self.generation, self.name = 3, "m"
        self.subscribes = self.settled = True
        self.sought: dict[TopicPartition, int] = {}
        self.forgotten: list[TopicPartition] = []
        self.topic_id, self.read_id = UUID(int=1), UUID(int=1)
        self.resets: dict[TopicPartition, OffsetAndMetadata] = {}
        self.under_way: list[TopicPartition] = []
        self.handed = HandedOut(self, self, self, automatic=automatic)

    def tenure(self, partition: TopicPartition) -> int | None:
        """As the test has set it."""
        return self.tenures.get(partition)

    def known_position(self, partition: TopicPartition) -> int | None:
        """As the test has set it."""
        return self.positions.get(partition)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Keep it for the test."""
        self.sought[partition] = offset

    def read_topic_id(self, partition: TopicPartition) -> UUID | None:
        """As the test has set it."""
        return self.read_id

    def is_replaced(self, partition: TopicPartition, topic_id: UUID | None) -> bool:
        """Whether the test has set another one since."""
        return topic_id != self.topic_id

    def places(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """As the test has set them."""
        return dict(self.resets)

    def placed(self, places: dict[TopicPartition, OffsetAndMetadata]) -> None:
        """Drop them."""
        for partition in places:
            del self.resets[partition]

    def committing(self, partitions: Iterable[TopicPartition] | None = None) -> list[TopicPartition]:
        """As the test has set it."""
        return [partition for partition in self.under_way if partitions is None or partition in partitions]

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Keep it for the test."""
        self.forgotten += partitions

    def member(self) -> GroupMetadata:
        """In the generation that the test has set."""
        return GroupMetadata(group_id="g", generation=self.generation, member_id=self.name)

    def is_subscribed(self) -> bool:
        """As the test has set it."""
        return self.subscribes

    def is_settled(self) -> bool:
        """As the test has set it."""
        return self.settled

    def poll(self, polled: Mapping[TopicPartition, range]) -> None:
        """Hand records of these offsets out."""
        self.handed.polling()
        self.handed.polled()
        for partition, offsets in polled.items():
            self.handed.hand_out(partition, offsets.start, OffsetAndMetadata(offsets.stop, "", 7))

    def lose(self, partition: TopicPartition) -> None:
        """The group has moved on."""
        self.generation += 1
        self.tenures.pop(partition, None)

    def get_back(self, partition: TopicPartition) -> None:
        """The partition comes back in a later generation."""
        self.lose(partition)
        self.tenures[partition] = 10 + self.generation


def send(reader: Reader, *partitions: TopicPartition) -> GroupMetadata:
    """Ask as a producer does that sends offsets of these partitions."""
    member = reader.handed.metadata()
    assert member.guard is not None
    member.guard.check(partitions, member)
    member.guard.settled({partition: OffsetAndMetadata(99) for partition in partitions})
    return member


def test_the_member_is_the_one_of_the_last_poll() -> None:
    """Until the next one, an empty one too; before the first it is the one of now."""
    reader = Reader()
    assert reader.handed.metadata().generation == 3
    reader.poll({MINE: range(5)})
    reader.generation, reader.name = -1, ""
    assert (reader.handed.metadata().generation, reader.handed.metadata().member_id) == (3, "m")
    reader.generation, reader.name = 4, "n"
    assert reader.handed.metadata().generation == 3
    reader.settled = False  # it has joined the generation, and does not know its share
    reader.poll({MINE: range(5, 6)})
    assert reader.handed.metadata().generation == 3
    reader.settled = True
    reader.poll({})
    assert reader.handed.metadata() == GroupMetadata(group_id="g", generation=4, member_id="n")


def test_what_is_kept_may_be_committed() -> None:
    """Whatever has become of other partitions."""
    reader = Reader()
    reader.poll({MINE: range(5), OTHER: range(5)})
    reader.lose(OTHER)
    assert send(reader, MINE).generation == 3
    with pytest.raises(TransactionAbortable, match="given t-1 up since"):
        send(reader, OTHER)


def test_what_came_back_may_not_until_it_is_handed_out_again() -> None:
    """After a refusal and a poll, it is as if nothing had been handed out."""
    reader = Reader()
    reader.poll({MINE: range(5)})
    reader.get_back(MINE)
    for _ in range(2):
        with pytest.raises(TransactionAbortable, match="given t-0 up since"):
            send(reader, MINE)
    reader.poll({MINE: range(5, 7)})
    assert send(reader, MINE).generation == 4


def test_what_was_handed_out_before_and_after_may_not() -> None:
    """The program has records of both times, and sends them in one transaction."""
    reader = Reader()
    reader.poll({MINE: range(5)})
    reader.get_back(MINE)
    reader.poll({MINE: range(5)})
    with pytest.raises(TransactionAbortable, match="given t-0 up since"):
        send(reader, MINE)


def test_what_was_sent_before_is_not_sent_again_when_the_partition_is_back() -> None:
    """As by a program that keeps the offsets of all partitions that it has ever had."""
    reader = Reader()
    reader.poll({MINE: range(5), OTHER: range(5)})
    send(reader, MINE, OTHER)
    reader.get_back(MINE)
    reader.poll({OTHER: range(5, 6)})
    with pytest.raises(TransactionAbortable, match="given t-0 up since"):
        send(reader, MINE, OTHER)


def test_no_member_commits_nothing() -> None:
    """Such offsets would be believed by a broker."""
    reader = Reader()
    reader.generation, reader.name = -1, ""
    with pytest.raises(TransactionAbortable, match=r"not a member of group g .*continue to poll"):
        send(reader, MINE)
    reader.subscribes = False
    assert reader.handed.metadata() == GroupMetadata(group_id="g")
    send(reader, MINE)


def test_commits_beside_transactions_know_what_was_given_up() -> None:
    """It is what was handed out last that counts there, and what the program has sought."""
    reader = Reader()
    reader.poll({MINE: range(5), OTHER: range(5)})
    reader.get_back(MINE)
    assert reader.handed.given_up([MINE, OTHER]) == [MINE]
    reader.subscribes = False
    assert reader.handed.given_up([MINE, OTHER]) == []
    reader.subscribes = True
    reader.handed.sought(MINE)
    assert reader.handed.given_up([MINE, OTHER]) == []
    reader.get_back(OTHER)
    reader.poll({OTHER: range(9, 10)})
    assert reader.handed.given_up([MINE, OTHER]) == []


def test_nothing_is_kept_of_topics_that_are_gone() -> None:
    """Unless they are still assigned."""
    reader = Reader()
    reader.poll({MINE: range(5), OTHER: range(5)})
    reader.lose(MINE)
    reader.handed.keep([])
    assert list(reader.handed._handed) == [OTHER]


# With a transaction around it


def test_a_transaction_commits_where_the_consumer_goes_on() -> None:
    """Behind the last record, behind markers, or where the program has sought."""
    reader = Reader()
    reader.handed.begin()
    third = TopicPartition("t", 2)
    reader.tenures[third] = 3
    reader.poll({MINE: range(5), OTHER: range(5), third: range(5)})
    reader.positions = {MINE: 5, OTHER: 6, third: 2}
    reader.handed.sought(third)
    offsets, member = reader.handed.offsets()
    assert offsets == {MINE: OffsetAndMetadata(5, "", 7), OTHER: OffsetAndMetadata(6), third: OffsetAndMetadata(2)}
    assert (member.generation, member.guard) == (3, None)
    reader.handed.ended(committed=True)
    assert (reader.sought, set(reader.forgotten)) == ({}, {MINE, OTHER, third})
    reader.handed.begin()
    assert reader.handed.offsets()[0] == {}


def test_an_abort_goes_back_in_what_was_kept() -> None:
    """What came back is read from what is committed; of what was handed out since then, nothing is skipped."""
    reader = Reader()
    reader.handed.begin()
    reader.poll({MINE: range(5, 8), OTHER: range(5, 8)})
    reader.poll({MINE: range(8, 9)})
    reader.get_back(OTHER)
    with pytest.raises(TransactionAbortable, match="given t-1 up since"):
        reader.handed.offsets()
    reader.handed.ended(committed=False)
    assert reader.sought == {MINE: 5}
    reader.handed.begin()
    reader.poll({OTHER: range(7, 9)})
    reader.get_back(OTHER)
    reader.poll({OTHER: range(8, 9)})
    reader.handed.sought(OTHER)
    with pytest.raises(TransactionAbortable, match="given t-1 up since"):
        reader.handed.offsets()
    reader.handed.ended(committed=False)
    assert reader.sought == {MINE: 5, OTHER: 8}


def test_an_abort_after_the_offsets_were_sent_goes_back_too() -> None:
    """With what was handed out meanwhile, by another task."""
    reader = Reader()
    reader.handed.begin()
    reader.poll({MINE: range(5)})
    reader.handed.offsets()
    reader.poll({MINE: range(5, 6), OTHER: range(3, 6)})
    reader.handed.ended(committed=False)
    assert reader.sought == {MINE: 0, OTHER: 3}


def test_what_was_handed_out_outside_is_not_taken_along() -> None:
    """The program may not have worked on it: it says what becomes of it."""
    reader = Reader()
    reader.poll({MINE: range(5), OTHER: range(5)})
    reader.lose(OTHER)
    with pytest.raises(InvalidTransactionState, match=r"records of t-0 were handed out before .*inside"):
        reader.handed.begin()
    reader.handed.settled({MINE: OffsetAndMetadata(4)})
    with pytest.raises(InvalidTransactionState, match="records of t-0 were"):
        reader.handed.begin()
    reader.handed.settled({MINE: OffsetAndMetadata(5)})
    reader.handed.begin()
    with pytest.raises(InvalidTransactionState, match="part of another transaction"):
        reader.handed.begin()
    reader.handed.offsets()
    reader.poll({MINE: range(5, 6)})  # by another task, while the transaction is being committed
    reader.handed.ended(committed=True)
    with pytest.raises(InvalidTransactionState, match="records of t-0 were"):
        reader.handed.begin()


def test_what_was_handed_out_before_a_seek_keeps_no_transaction_from_beginning() -> None:
    """The program reads it again, or has passed over it; no commit of where it sought would be behind it."""
    reader = Reader()
    reader.poll({MINE: range(5)})
    reader.handed.sought(MINE)
    reader.handed.begin()
    reader.poll({MINE: range(2, 5)})
    assert reader.handed.offsets()[0] == {MINE: OffsetAndMetadata(5, "", 7)}
    reader.handed.ended(committed=False)
    assert reader.sought == {MINE: 2}
    reader.poll({MINE: range(2, 5)})
    reader.handed.sought(MINE)
    reader.get_back(MINE)
    assert reader.handed.given_up([MINE]) == [MINE]


def test_who_assigns_itself_goes_back_where_it_has_not_assigned_anew() -> None:
    """And commits without a member id, as Kafka allows."""
    reader = Reader()
    reader.subscribes, reader.generation, reader.name = False, -1, ""
    reader.handed.begin()
    reader.poll({MINE: range(5), OTHER: range(5)})
    reader.tenures[OTHER] = 9
    offsets, member = reader.handed.offsets()
    assert offsets == {MINE: OffsetAndMetadata(5, "", 7), OTHER: OffsetAndMetadata(5, "", 7)}
    assert member == GroupMetadata(group_id="g")
    reader.handed.ended(committed=False)
    assert reader.sought == {MINE: 0}


def test_nothing_goes_back_to_offsets_of_a_topic_that_was_created_again() -> None:
    """Nor is one of them committed, by a transaction or a commit; what comes of the new topic is."""
    reader = Reader()
    reader.handed.begin()
    reader.poll({MINE: range(5), OTHER: range(5)})
    reader.topic_id = UUID(int=2)
    assert reader.handed.of_replaced_topics([MINE, OTHER]) == [MINE, OTHER]
    reader.read_id = UUID(int=2)
    reader.poll({OTHER: range(2)})
    assert reader.handed.of_replaced_topics([MINE, OTHER]) == [MINE]
    assert reader.handed.offsets()[0] == {OTHER: OffsetAndMetadata(2, "", 7)}
    reader.handed.ended(committed=False)
    assert reader.sought == {OTHER: 0}
    reader.handed.begin()
    reader.poll({OTHER: range(2)})
    reader.topic_id = UUID(int=3)
    assert reader.handed.offsets()[0] == {}
    reader.handed.ended(committed=True)
    assert reader.forgotten == []


def test_a_transaction_commits_positions_without_a_record() -> None:
    """In the name of the member of the last poll alone: the next transaction takes what it cannot, and what was aborted."""
    reader = Reader()
    reader.resets = {MINE: OffsetAndMetadata(4), OTHER: OffsetAndMetadata(6)}
    reader.handed.begin()
    reader.poll({MINE: range(4, 5)})
    reader.generation = 4
    assert reader.handed.offsets()[0] == {MINE: OffsetAndMetadata(5, "", 7)}
    reader.handed.ended(committed=False)
    for committed in (False, True):
        reader.handed.begin()
        reader.poll({})
        assert reader.handed.offsets()[0] == {MINE: OffsetAndMetadata(4), OTHER: OffsetAndMetadata(6)}
        reader.handed.ended(committed=committed)
    assert reader.resets == {}


def test_other_commits_are_refused_beside_a_transaction() -> None:
    """Those that are under way, of the same partitions or before a block, and automatic ones."""
    reader = Reader()
    reader.under_way = [OTHER]
    reader.handed.allow([MINE])
    with pytest.raises(InvalidTransactionState, match=r"commit of t-1 is under way.*await commit\(\) first"):
        reader.handed.allow([MINE, OTHER])
    with pytest.raises(InvalidTransactionState, match="commit of t-1 is under way"):
        reader.handed.begin()
    with pytest.raises(ValueError, match="enable_auto_commit=False is needed"):
        Reader(automatic=True).handed.allow([MINE])
