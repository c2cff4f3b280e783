"""Share sessions and acknowledgements as the wire has them."""

import asyncio
from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from busway.options import ShareConsumerOptions
from busway.share.acquired import ACCEPT, GAP, REJECT, RELEASE, RENEW
from busway.share.held import HeldPartition, Told
from busway.share.session import ShareSession

JOBS, MAILS = UUID(int=1), UUID(int=2)


def session() -> ShareSession:
    """A new one."""
    return ShareSession(ShareConsumerOptions(group_id="workers"), "me")


def partitions(topics: list[Any]) -> list[tuple[UUID, int]]:
    """Of a request."""
    return [(topic.topic_id, part.partition_index) for topic in topics for part in topic.partitions]


async def told(*offsets: int, kind: int = ACCEPT) -> Told:
    """Something became of these."""
    return Told(asyncio.get_running_loop().create_future(), dict.fromkeys(offsets, kind))


async def test_a_session_names_what_comes_and_what_goes() -> None:
    """Everything at first, then only changes; what is told names its partition again."""
    one = session()
    first = one.fetch([(JOBS, 0), (JOBS, 1)], {}, 5)
    assert first.share_session_epoch == 0
    assert partitions(first.topics) == [(JOBS, 0), (JOBS, 1)]
    assert (first.max_records, first.batch_size) == (5, 5)
    one.went_on()
    second = one.fetch([(JOBS, 1), (MAILS, 0)], {(JOBS, 1): await told(7)}, 5)
    assert second.share_session_epoch == 1
    assert partitions(second.topics) == [(JOBS, 1), (MAILS, 0)]
    assert [(gone.topic_id, gone.partitions) for gone in second.forgotten_topics_data] == [(JOBS, [0])]
    one.ended()
    third = one.fetch([(MAILS, 0)], {}, 5)
    assert third.share_session_epoch == 0
    assert partitions(third.topics) == [(MAILS, 0)]
    assert third.forgotten_topics_data == []


async def test_epochs_begin_again_behind_the_last_one() -> None:
    """At 1: 0 would open another session."""
    one = session()
    one.epoch = 2**31 - 1
    one.went_on()
    assert one.epoch == 1


async def test_the_last_request_of_a_session_says_so() -> None:
    """With what is still to be told."""
    one = session()
    one.went_on()
    request = one.acknowledge({(JOBS, 0): await told(3)}, final=True)
    assert request.share_session_epoch == -1
    assert partitions(request.topics) == [(JOBS, 0)]
    assert not request.is_renew_ack
    assert one.acknowledge({(JOBS, 0): await told(3, kind=RENEW)}).is_renew_ack


@given(st.dictionaries(st.integers(0, 40), st.sampled_from([ACCEPT, RELEASE, REJECT, RENEW])))
def test_batches_are_in_order_and_say_of_each_offset_once_what_was_told(kinds: dict[int, int]) -> None:
    """However many there are; neighbours with the same fate share a batch."""
    loop = asyncio.new_event_loop()
    try:
        one = Told(loop.create_future(), kinds, [(50, 2**60, GAP)])
        batches = one.batches()
    finally:
        loop.close()
    assert (batches[-1].first_offset, batches[-1].last_offset, batches[-1].acknowledge_types) == (50, 2**60, [GAP])
    said: dict[int, int] = {}
    last = -1
    for part in batches[:-1]:
        assert last < part.first_offset <= part.last_offset
        last = part.last_offset
        (kind,) = part.acknowledge_types
        said.update(dict.fromkeys(range(part.first_offset, part.last_offset + 1), kind))
    assert said == kinds


async def test_held_records_are_forgotten_when_their_lock_has_ended() -> None:
    """So that a member that never says anything does not grow; a renewed one is held on."""
    held = HeldPartition()
    held.hand_out([1, 2], 10.0)
    renewing = held.acknowledge(1, RENEW)
    out = held.take()
    assert out is not None
    held.renewed(out, 20.0)
    out.done(None)
    await renewing
    held.expire(15.0)
    assert held.until_s == {1: 20.0}
    held.acknowledge(1, ACCEPT)
    assert held.until_s == {}


async def test_the_last_word_on_an_offset_counts() -> None:
    """A record that is renewed and then done before either was sent is done."""
    held = HeldPartition()
    held.hand_out([1], 10.0)
    held.acknowledge(1, RENEW)
    held.acknowledge(1, REJECT)
    out = held.take()
    assert out is not None
    assert [(part.first_offset, part.last_offset, part.acknowledge_types) for part in out.batches()] == [
        (1, 1, [REJECT])
    ]
    out.done(None)
