"""What a consumer has still to commit: a commit never takes the group back behind an earlier one."""

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from busway.consumer.fetcher import Fetcher
from busway.consumer.subscription import FetchPosition
from busway.consumer.uncommitted import Uncommitted
from busway.options import ConsumerOptions
from busway.types import OffsetAndMetadata, TopicPartition

P = TopicPartition("orders", 0)


def behind(offset: int) -> OffsetAndMetadata:
    """As after records of leader epoch 0."""
    return OffsetAndMetadata(offset, "", 0)


@pytest.fixture
def assigned() -> FetchPosition:
    """A partition that a reset has begun at offset 0."""
    position = FetchPosition(P, "earliest")
    position.reset_to(0)
    return position


@pytest.fixture
def uncommitted(assigned: FetchPosition) -> Uncommitted:
    """What is uncommitted of that partition."""
    fetcher: Any = SimpleNamespace(assigned={P: assigned}, read_topic_id=lambda _: None, is_replaced=lambda *_: False)
    return Uncommitted(cast("Fetcher", fetcher))


def poll(uncommitted: Uncommitted, assigned: FetchPosition, end: int) -> None:
    """As `getmany` that hands out records up to that offset."""
    uncommitted.polling()
    uncommitted.take_resets()
    if end > (assigned.position or 0):
        assigned.position = end
        uncommitted.hand_out(P, behind(end))


@pytest.mark.parametrize("polls", [1, 2])
def test_a_commit_leaves_nothing_from_before_it(uncommitted: Uncommitted, assigned: FetchPosition, polls: int) -> None:
    """Neither where a reset began nor what an earlier poll handed out; a later commit would take the group back to it."""
    for number in range(1, polls + 1):
        poll(uncommitted, assigned, 10 * number)
    offsets, before = uncommitted.all(), uncommitted.handled()
    assert offsets == {P: behind(10 * polls)}
    uncommitted.committed(offsets, before)
    assert uncommitted.handled() == {}
    poll(uncommitted, assigned, 0)
    assert uncommitted.all() == {}


def test_a_commit_of_chosen_offsets_leaves_nothing_from_before_it(
    uncommitted: Uncommitted, assigned: FetchPosition
) -> None:
    """An automatic commit that follows would take the group back to where the reset began."""
    poll(uncommitted, assigned, 10)
    before = uncommitted.handled()
    uncommitted.committed({P: OffsetAndMetadata(10)}, before)
    assert uncommitted.handled() == {}


def test_a_seek_during_a_commit_is_committed_by_the_next(uncommitted: Uncommitted, assigned: FetchPosition) -> None:
    """Also one back, to the same offset as before."""
    poll(uncommitted, assigned, 10)
    offsets, before = uncommitted.all(), uncommitted.handled()
    uncommitted.place(P, 0)
    uncommitted.committed(offsets, before)
    assert uncommitted.all() == {P: OffsetAndMetadata(0)}


def test_records_handed_out_during_a_commit_are_committed_by_the_next(
    uncommitted: Uncommitted, assigned: FetchPosition
) -> None:
    """What the program asked for more after counts as handled; where the reset began does not come up again."""
    poll(uncommitted, assigned, 10)
    offsets, before = uncommitted.all(), uncommitted.handled()
    poll(uncommitted, assigned, 20)
    uncommitted.committed(offsets, before)
    assert uncommitted.handled() == {}
    assert uncommitted.all() == {P: behind(20)}


def test_a_reset_counts_as_handled_when_the_program_asks_for_more(
    uncommitted: Uncommitted, assigned: FetchPosition
) -> None:
    """A log that has lost its end still has records that the program works on."""
    poll(uncommitted, assigned, 50)
    poll(uncommitted, assigned, 60)
    assigned.reset_to(55)
    assert uncommitted.handled() == {P: behind(50)}
    assert uncommitted.all() == {P: OffsetAndMetadata(55)}
    uncommitted.polling()
    assert uncommitted.handled() == {P: OffsetAndMetadata(55)}


def test_a_reset_below_what_was_handled_counts_at_once(uncommitted: Uncommitted, assigned: FetchPosition) -> None:
    """The log is another one: no offset of the old one may be committed."""
    poll(uncommitted, assigned, 50)
    poll(uncommitted, assigned, 60)
    assigned.reset_to(3)
    assert uncommitted.handled() == {P: OffsetAndMetadata(3)}


async def test_no_offset_is_committed_of_a_topic_that_was_created_again(assigned: FetchPosition) -> None:
    """Neither before nor after the position in the new one is found, whose place is committed then."""
    topics = {P.topic: SimpleNamespace(topic_id=UUID(int=1))}
    cluster: Any = SimpleNamespace(metadata=SimpleNamespace(topics=topics))
    fetcher = Fetcher(cluster, ConsumerOptions(auto_offset_reset="earliest"), cast("Any", None))
    fetcher.assigned = {P: assigned}
    uncommitted = Uncommitted(fetcher)
    assert fetcher._is_same_topic(assigned)
    for number in (1, 2):
        poll(uncommitted, assigned, 10 * number)
    topics[P.topic] = SimpleNamespace(topic_id=UUID(int=2))
    assert uncommitted.all() == {}
    for number in (3, 4):
        poll(uncommitted, assigned, 10 * number)  # fetched before
    assert not fetcher._is_same_topic(assigned)
    assert uncommitted.all() == {}
    assigned.reset_to(0)
    assert uncommitted.places() == uncommitted.all() == {P: OffsetAndMetadata(0)}


def test_a_position_without_a_record_is_told_until_it_is_committed(
    uncommitted: Uncommitted, assigned: FetchPosition
) -> None:
    """What is sought while it is being committed stays, and so does what is handed out."""
    places = uncommitted.places()
    assert places == {P: OffsetAndMetadata(0)}
    uncommitted.place(P, 0)
    uncommitted.placed(places)
    assert uncommitted.places() == {P: OffsetAndMetadata(0)}
    places = uncommitted.places()
    poll(uncommitted, assigned, 10)
    assert uncommitted.places() == {}
    uncommitted.placed(places)
    assert uncommitted.all() == {P: behind(10)}
