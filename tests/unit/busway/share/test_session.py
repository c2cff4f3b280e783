"""Share sessions and acknowledgements as the wire has them."""

import asyncio
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway.errors import AcknowledgementFailed
from busway.options import ShareConsumerOptions
from busway.share.acquired import ACCEPT, GAP, REJECT, RELEASE, RENEW
from busway.share.held import AcknowledgementSet, HeldPartition, PendingAcknowledgement
from busway.share.session import ShareSession
from busway.types import TopicPartition

JOBS, MAILS = UUID(int=1), UUID(int=2)


def session() -> ShareSession:
    """A new one."""
    return ShareSession(ShareConsumerOptions(group_id="workers"), "me")


def partitions(topics: list[Any]) -> list[tuple[UUID, int]]:
    """Of a request."""
    return [(topic.topic_id, part.partition_index) for topic in topics for part in topic.partitions]


async def acknowledgements(*offsets: int, kind: int = ACCEPT) -> AcknowledgementSet:
    """Something became of these."""
    loop = asyncio.get_running_loop()
    return AcknowledgementSet(
        {offset: PendingAcknowledgement(offset, offset, kind, 10.0, loop.create_future()) for offset in offsets}
    )


def holding(*offsets: int) -> HeldPartition:
    """They are locked until the tenth second."""
    held = HeldPartition(TopicPartition("jobs", 0))
    held.hand_out(offsets, 10.0)
    return held


def offsets(acknowledged: AcknowledgementSet | None) -> list[int]:
    """Of which it tells."""
    return [] if acknowledged is None else sorted(acknowledged.words)


async def test_a_session_names_what_comes_and_what_goes() -> None:
    """Everything at first, then only changes; acknowledgements name their partition again."""
    share_session = session()
    first = share_session.fetch([(JOBS, 0), (JOBS, 1)], {}, 5)
    assert first.share_session_epoch == 0
    assert partitions(first.topics) == [(JOBS, 0), (JOBS, 1)]
    assert (first.max_records, first.batch_size) == (5, 5)
    share_session.advance_epoch()
    second = share_session.fetch([(JOBS, 1), (MAILS, 0)], {(JOBS, 1): await acknowledgements(7)}, 5)
    assert second.share_session_epoch == 1
    assert partitions(second.topics) == [(JOBS, 1), (MAILS, 0)]
    assert [(gone.topic_id, gone.partitions) for gone in second.forgotten_topics_data] == [(JOBS, [0])]
    share_session.ended()
    third = share_session.fetch([(MAILS, 0)], {}, 5)
    assert third.share_session_epoch == 0
    assert partitions(third.topics) == [(MAILS, 0)]
    assert third.forgotten_topics_data == []


async def test_epochs_begin_again_behind_the_last_one() -> None:
    """At 1: 0 would open another session."""
    share_session = session()
    share_session.epoch = 2**31 - 1
    share_session.advance_epoch()
    assert share_session.epoch == 1


async def test_the_last_request_of_a_session_says_so() -> None:
    """With what is still to be sent."""
    share_session = session()
    share_session.advance_epoch()
    request = share_session.acknowledge({(JOBS, 0): await acknowledgements(3)}, final=True)
    assert request.share_session_epoch == -1
    assert partitions(request.topics) == [(JOBS, 0)]
    assert not request.is_renew_ack
    assert share_session.acknowledge({(JOBS, 0): await acknowledgements(3, kind=RENEW)}).is_renew_ack


@given(st.dictionaries(st.integers(0, 40), st.sampled_from([ACCEPT, RELEASE, REJECT, RENEW])))
def test_batches_are_in_order_and_say_of_each_offset_once_what_was_told(kinds: dict[int, int]) -> None:
    """However many there are; neighbours with the same fate share a batch."""
    loop = asyncio.new_event_loop()
    try:
        said_of = [*((offset, offset, kind) for offset, kind in kinds.items()), (50, 2**60, GAP)]
        acknowledged = AcknowledgementSet(
            {
                first: PendingAcknowledgement(first, last, kind, 10.0, loop.create_future())
                for first, last, kind in said_of
            }
        )
        batches = acknowledged.batches()
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
    held = holding(1, 2)
    renewing = held.acknowledge(1, RENEW)
    out = held.take(5.0, renewals=True)
    assert out is not None
    held.renewed(out, 20.0)
    out.done(None)
    await renewing
    held.expire(15.0)
    assert held.until_s == {1: 20.0}
    held.acknowledge(1, ACCEPT)
    assert held.until_s == {}


async def test_the_last_word_on_an_offset_counts() -> None:
    """A record that is renewed and then done before either was sent is done, for all that wait for either."""
    held = holding(1)
    renewal = held.acknowledge(1, RENEW)
    final = held.acknowledge(1, REJECT)
    assert held.take(5.0, renewals=True) is None
    out = held.take(5.0, renewals=False)
    assert out is not None
    assert [(part.first_offset, part.last_offset, part.acknowledge_types) for part in out.batches()] == [
        (1, 1, [REJECT])
    ]
    out.done(None)
    await asyncio.gather(renewal, final)


async def test_what_is_locked_no_more_is_left_out() -> None:
    """A leader would refuse all others with it; a lock that is renewed meanwhile is as long as it says."""
    held = holding(1)
    held.hand_out([2, 3], 12.0)
    held.acknowledge(3, RENEW)
    on_its_way = held.take(9.0, renewals=True)
    assert on_its_way is not None
    said = [held.acknowledge(offset, ACCEPT) for offset in (1, 2, 3)]
    held.renewed(on_its_way, 30.0)
    held.settle([(4, 6, GAP)], 10.0)
    assert offsets(held.take(11.0, renewals=False)) == [2, 3]
    with pytest.raises(AcknowledgementFailed, match="jobs-0 offset 1: its lock has ended"):
        await said[0]
    assert not said[1].done()
    assert held.take(11.0, renewals=False) is None


@given(st.sets(st.integers(0, 60), min_size=1), st.sets(st.integers(0, 60)), st.sampled_from([ACCEPT, RENEW]))
def test_only_what_is_wrong_is_refused(all_of_them: set[int], wrong: set[int], kind: int) -> None:
    """Whatever is wrong among the acknowledgements, all else is taken, in fewer requests than two for each."""

    async def tell() -> None:
        held = holding(*all_of_them)
        said = {offset: held.acknowledge(offset, kind) for offset in all_of_them}
        requests = 0
        while (out := held.take(5.0, renewals=kind == RENEW)) is not None:
            requests += 1
            if wrong & set(out.words):
                held.refused(out, AcknowledgementFailed("no"))
            else:
                out.done(None)
        assert requests < 2 * len(all_of_them)
        assert all(future.done() for future in said.values())
        assert {offset for offset, future in said.items() if future.exception() is not None} == all_of_them & wrong

    asyncio.run(tell())


async def test_a_renewal_that_is_refused_is_not_told_again_of_what_is_done_meanwhile() -> None:
    """Its last word waits already."""
    held = holding(1, 2, 3)
    renewals = [held.acknowledge(offset, RENEW) for offset in (1, 2, 3)]
    out = held.take(5.0, renewals=True)
    assert out is not None
    done = held.acknowledge(2, ACCEPT)
    held.refused(out, AcknowledgementFailed("no"))
    late = held.acknowledge(1, RELEASE)
    assert offsets(held.take(5.0, renewals=True)) == [3]
    assert held.take(5.0, renewals=True) is None
    assert [future.done() for future in renewals] == [False, True, False]
    assert offsets(held.take(5.0, renewals=False)) == [1, 2]
    assert late is renewals[0]
    assert not done.done()
