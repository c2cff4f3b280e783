"""Offsets of a member of a group that its coordinator balances: the epoch that they go by may be one behind."""

import asyncio
from typing import Any, cast

import pytest

from busway.consumer.coordinator import Coordinator
from busway.consumer.membership import Membership
from busway.consumer.offset_requests import MODERN
from busway.consumer.offsets import GroupOffsets
from busway.errors import CommitFailed
from busway.net.retry import Backoff
from busway.types import OffsetAndMetadata, TopicPartition
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.groups_classic import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)

MINE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


class Balancing:
    """A coordinator that is at epoch 5 while the member is at 4, and tells it so only after it has refused something."""

    group = "g"

    def __init__(self, membership: Membership, keeps: tuple[TopicPartition, ...]) -> None:
        self._membership = membership
        self._keeps = keeps
        self.asked: list[tuple[int, int]] = []

    def backoff(self) -> Backoff:
        """None to speak of."""
        return Backoff(lambda: 0.0)

    def forget(self) -> None:
        """It stays where it is."""

    async def ask(self, message: Any, *, at_most: int) -> Any:
        """Refuses what is not of its epoch."""
        if isinstance(message, OffsetFetchRequest):
            epoch = message.groups[0].member_epoch
        else:
            assert isinstance(message, OffsetCommitRequest)
            epoch = message.generation_id_or_member_epoch
        self.asked.append((epoch, at_most))
        code = ErrorCode.NONE if epoch == 5 else ErrorCode.STALE_MEMBER_EPOCH
        self._membership.generation = 5
        self._membership.own(self._keeps)
        if isinstance(message, OffsetFetchRequest):
            return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", error_code=code)])
        partitions = [OffsetCommitResponsePartition(partition_index=0, error_code=code)]
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=partitions)])


def offsets_of(
    keeps: tuple[TopicPartition, ...], *, generation: int = 4, subscribed: bool = True
) -> tuple[GroupOffsets, Balancing]:
    """Of a member with two partitions, that keeps some of them in the next epoch."""
    membership = Membership(instance_id=None, member_id="m", generation=generation)
    membership.own([MINE, OTHER])
    coordinator = Balancing(membership, keeps)
    settled = asyncio.Event()
    settled.set()
    offsets = GroupOffsets(
        cast("Coordinator", coordinator),
        membership,
        settled,
        versions=MODERN,
        timeout_s=10,
        stable=False,
        subscribed=lambda: subscribed,
    )
    return offsets, coordinator


async def test_a_commit_under_an_epoch_that_has_passed_is_made_under_the_next() -> None:
    """In a version by which the coordinator can say that it has."""
    offsets, coordinator = offsets_of((MINE, OTHER))
    await offsets.commit({MINE: OffsetAndMetadata(1)})
    assert coordinator.asked == [(4, 9), (5, 9)]


async def test_what_was_given_up_in_between_is_not_committed() -> None:
    """It is another member's by then; what stayed is committed."""
    offsets, coordinator = offsets_of((MINE,))
    with pytest.raises(CommitFailed, match="t-1 were not committed"):
        await offsets.commit({MINE: OffsetAndMetadata(1), OTHER: OffsetAndMetadata(1)})
    assert coordinator.asked == [(4, 9), (5, 9)]


async def test_offsets_are_asked_for_again_under_the_next_epoch() -> None:
    """In the member's name."""
    offsets, coordinator = offsets_of((MINE,))
    assert await offsets.committed([MINE]) == {}
    assert coordinator.asked == [(4, 9), (5, 9)]


async def test_a_member_that_is_out_of_its_group_commits_nothing() -> None:
    """Without a member id it would be believed, and undo what others commit; who assigns itself commits so."""
    offsets, coordinator = offsets_of((), generation=-1)
    with pytest.raises(CommitFailed, match=r"not a member of it at this moment.*t-0 were not committed"):
        await offsets.commit({MINE: OffsetAndMetadata(1)})
    assert coordinator.asked == []
    offsets, coordinator = offsets_of((MINE,), generation=-1, subscribed=False)
    await offsets.commit({MINE: OffsetAndMetadata(1)})
    assert coordinator.asked[0] == (-1, 9)
