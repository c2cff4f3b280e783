"""Commits under way together: a member's earlier one is not sent behind a later one about the same partitions."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from busway.consumer.coordinator import Coordinator
from busway.consumer.membership import Membership
from busway.consumer.offset_requests import MODERN
from busway.consumer.offsets import GroupOffsets
from busway.errors import BuswayError, ConnectionFailed, RequestTimedOut
from busway.net.retry import Backoff
from busway.types import OffsetAndMetadata, TopicPartition
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.groups_classic import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


class Slow:
    """A coordinator that answers when the test says so.

    Attributes:
        asked: of each request, the offset of each partition.
    """

    group = "g"

    def __init__(self) -> None:
        self.asked: list[dict[int, int]] = []
        self.answers: list[asyncio.Future[ErrorCode]] = []
        self.more = asyncio.Event()

    def backoff(self) -> Backoff:
        """None to speak of."""
        return Backoff(lambda: 0.0)

    def forget(self) -> None:
        """It stays where it is."""

    async def ask(self, message: OffsetCommitRequest, *, at_most: int) -> Any:
        """Waits for its answer."""
        requested = {
            part.partition_index: part.committed_offset for topic in message.topics for part in topic.partitions
        }
        self.asked.append(requested)
        self.answers.append(asyncio.get_running_loop().create_future())
        self.more.set()
        code = await self.answers[-1]
        parts = [OffsetCommitResponsePartition(partition_index=number, error_code=code) for number in requested]
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=parts)])

    async def until_asked(self, count: int) -> None:
        """Return when there were so many requests."""
        while len(self.asked) < count:
            self.more.clear()
            await self.more.wait()


def member(*, timeout_s: float = 10) -> tuple[GroupOffsets, Slow]:
    """With two partitions."""
    membership = Membership(instance_id=None, member_id="m", generation=1)
    membership.own([FIRST, SECOND])
    slow, settled = Slow(), asyncio.Event()
    settled.set()
    offsets = GroupOffsets(
        cast("Coordinator", slow),
        membership,
        settled,
        versions=MODERN,
        timeout_s=timeout_s,
        stable=False,
        subscribed=lambda: True,
    )
    return offsets, slow


def begin(offsets: GroupOffsets, chosen: Sequence[TopicPartition], offset: int) -> asyncio.Task[None]:
    """A commit under way."""
    return asyncio.ensure_future(offsets.commit({partition: OffsetAndMetadata(offset) for partition in chosen}))


async def test_what_is_tried_again_does_not_undo_what_was_committed_since() -> None:
    """Of the partitions that a later call was not about it is tried again."""
    offsets, slow = member()
    early = begin(offsets, [FIRST, SECOND], 6)
    await slow.until_asked(1)
    late = begin(offsets, [FIRST], 11)
    slow.answers[0].set_exception(ConnectionFailed("cut"))
    for number in (1, 2):
        await slow.until_asked(number + 1)
        slow.answers[number].set_result(ErrorCode.NONE)
    await asyncio.gather(early, late)
    assert slow.asked[1:] == [{0: 11}, {1: 6}]


async def test_requests_arrive_in_the_order_of_the_calls() -> None:
    """The second waits for the answer to the first, since they may look for their coordinator at different times."""
    offsets, slow = member()
    early, late = begin(offsets, [FIRST], 6), begin(offsets, [SECOND], 11)
    await slow.until_asked(1)
    assert slow.asked == [{0: 6}]
    slow.answers[0].set_result(ErrorCode.NONE)
    await early
    await slow.until_asked(2)
    slow.answers[1].set_result(ErrorCode.NONE)
    await late


async def test_who_was_taken_over_fails_with_who_took_over() -> None:
    """It was not sent, and cannot say that its offsets are committed."""
    offsets, slow = member()
    blocking = begin(offsets, [SECOND], 1)
    await slow.until_asked(1)
    early, late = begin(offsets, [FIRST], 6), begin(offsets, [FIRST], 11)
    slow.answers[0].set_result(ErrorCode.NONE)
    await blocking
    await slow.until_asked(2)
    assert slow.asked[1:] == [{0: 11}]
    slow.answers[1].set_result(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    for commit in (early, late):
        with pytest.raises(BuswayError, match="GROUP_AUTHORIZATION_FAILED"):
            await commit


async def test_who_was_taken_over_by_one_that_is_given_up_says_so() -> None:
    """It is unknown then where the group stands."""
    offsets, slow = member()
    blocking = begin(offsets, [SECOND], 1)
    await slow.until_asked(1)
    early, late = begin(offsets, [FIRST], 6), begin(offsets, [FIRST], 11)
    await asyncio.sleep(0)
    late.cancel()
    slow.answers[0].set_result(ErrorCode.NONE)
    await blocking
    with pytest.raises(BuswayError, match="given up"):
        await early
    assert slow.asked == [{1: 1}]


async def test_what_was_sent_and_answered_is_committed_whatever_becomes_of_a_later_call() -> None:
    """It neither fails with the later one nor waits for it."""
    offsets, slow = member()
    early = begin(offsets, [FIRST], 6)
    await slow.until_asked(1)
    late = begin(offsets, [FIRST], 11)
    await asyncio.sleep(0)
    slow.answers[0].set_result(ErrorCode.NONE)
    await early
    await slow.until_asked(2)
    slow.answers[1].set_result(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(BuswayError, match="GROUP_AUTHORIZATION_FAILED"):
        await late


async def test_a_commit_may_lose_its_partitions_to_several() -> None:
    """One after the other, also while it waits for the first of them."""
    offsets, slow = member()
    blocking = begin(offsets, [SECOND], 1)
    await slow.until_asked(1)
    calls = [begin(offsets, [FIRST, SECOND], 2), begin(offsets, [FIRST], 3)]
    slow.answers[0].set_result(ErrorCode.NONE)
    await blocking
    await slow.until_asked(2)
    calls += [begin(offsets, [FIRST, SECOND], 4), begin(offsets, [SECOND], 5)]
    for number in (1, 2, 3):
        await slow.until_asked(number + 1)
        slow.answers[number].set_result(ErrorCode.NONE)
    await asyncio.gather(*calls)
    assert slow.asked[1:] == [{1: 2}, {0: 4}, {1: 5}]


async def test_who_was_taken_over_waits_no_longer_than_its_own_time() -> None:
    """Later calls may be made one after the other without an end."""
    offsets, slow = member(timeout_s=0.01)
    blocking = begin(offsets, [SECOND], 1)
    await slow.until_asked(1)
    early, late = begin(offsets, [FIRST], 6), begin(offsets, [FIRST], 11)
    await asyncio.sleep(0)
    slow.answers[0].set_result(ErrorCode.NONE)
    await blocking
    with pytest.raises(RequestTimedOut, match="not ended in time"):
        await early
    slow.answers[1].set_result(ErrorCode.NONE)
    await late
