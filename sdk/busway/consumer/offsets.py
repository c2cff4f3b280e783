"""The offsets of a group: committing and asking.

What lives here: both requests, and what a rebalance means for a commit that is under way. What does not: what may be committed
(`consumer`, the app's worker).
"""

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from busway.cluster.coordinator import PASSING
from busway.consumer.coordinator import Coordinator
from busway.consumer.membership_classic import Membership
from busway.errors import BrokerError, BuswayError, CommitFailed, ConnectionFailed, RequestTimedOut
from busway.types import OffsetAndMetadata, TopicPartition
from busway_protocol.errors import ErrorCode, error_for
from busway_protocol.messages.groups_classic import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)

_ONE_GROUP_OFFSET_FETCH: Final = 7
_NAMED_COMMIT: Final = 9
_REBALANCED: Final = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION})
"""Commits are refused so from the moment that all have joined until this member is told its share."""
_OUT: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID})


class GroupOffsets:
    """What a group has committed.

    Args:
        settled: set while the member is in no rebalance.
        stable: whether offsets of transactions that are open are waited for (KIP-447), which is what a reader of committed records needs:
            its predecessor may be fenced, and its last transaction not be aborted yet.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        membership: Membership,
        settled: asyncio.Event,
        *,
        group: str,
        timeout_s: float,
        stable: bool,
    ) -> None:
        self._coordinator = coordinator
        self._membership = membership
        self._settled = settled
        self._group = group
        self._timeout_s = timeout_s
        self._stable = stable

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Committed offsets; partitions without one are left out.

        Raises:
            BrokerError, ConnectionFailed, RequestTimedOut.
        """
        asked = list(partitions)
        deadline = asyncio.get_running_loop().time() + self._timeout_s
        backoff = self._coordinator.backoff()
        while True:
            try:
                return await self._committed_now(asked)
            except BrokerError as problem:
                undecided = problem.code is ErrorCode.UNSTABLE_OFFSET_COMMIT
                if not undecided or asyncio.get_running_loop().time() >= deadline:
                    raise
            await asyncio.sleep(backoff.next())

    async def _committed_now(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        topics: dict[str, OffsetFetchRequestTopic] = {}
        for partition in partitions:
            topic = topics.setdefault(
                partition.topic, OffsetFetchRequestTopic(name=partition.topic, partition_indexes=[])
            )
            topic.partition_indexes.append(partition.partition)
        request = OffsetFetchRequest(group_id=self._group, topics=list(topics.values()), require_stable=self._stable)
        answer = await self._coordinator.ask(request, at_most=_ONE_GROUP_OFFSET_FETCH)
        self._check(answer.error_code)
        found = {}
        for topic_answer in answer.topics:
            for partition_answer in topic_answer.partitions:
                self._check(partition_answer.error_code)
                if partition_answer.committed_offset >= 0:
                    key = TopicPartition(topic_answer.name, partition_answer.partition_index)
                    found[key] = OffsetAndMetadata(
                        partition_answer.committed_offset,
                        partition_answer.metadata or "",
                        partition_answer.committed_leader_epoch,
                    )
        return found

    def _check(self, number: int) -> None:
        code = error_for(number)
        if code in PASSING:
            self._coordinator.forget()
        if code is not ErrorCode.NONE:
            raise BrokerError(code, f"offsets of group {self._group}")

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit; tries again while that can help.

        A rebalance under way is waited for: what stayed this member's without a break is then committed in the new generation. The rest
        is not: sent in the name of the new generation, offsets of the old one would undo what their owners commit.

        Raises:
            CommitFailed: partitions have gone to others, or the member was out of its group.
            BrokerError: the offsets are refused.
            ConnectionFailed, RequestTimedOut: after the request timeout.
        """
        if not offsets:
            return
        left = dict(offsets)
        tenures = {partition: self._membership.tenure(partition) for partition in left}
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout_s
        backoff = self._coordinator.backoff()
        while True:
            generation = self._membership.generation
            problem = await self._try(left, generation)
            if problem is None:
                break
            if loop.time() >= deadline:
                raise problem
            await asyncio.sleep(backoff.next())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await self._settled.wait()
            if self._membership.generation != generation:
                left = {
                    partition: offset
                    for partition, offset in left.items()
                    if tenures[partition] is not None and tenures[partition] == self._membership.tenure(partition)
                }
        if gone := offsets.keys() - left.keys():
            raise self._failed(gone, "it was joined anew while its offsets were being committed")

    async def _try(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], generation: int) -> BuswayError | None:
        """Commit; why it has to be tried again."""
        if not offsets:
            return None
        try:
            code = await self._commit_once(offsets)
        except (ConnectionFailed, RequestTimedOut) as failed:
            return failed
        if code is ErrorCode.NONE:
            return None
        here = self._settled.is_set() and self._membership.generation == generation
        if code in _OUT or (code is ErrorCode.ILLEGAL_GENERATION and here):
            raise self._failed(offsets, code.name)
        problem = BrokerError(code, f"committing offsets of group {self._group}")
        if not code.retriable and code not in _REBALANCED:
            raise problem
        if code in PASSING:
            self._coordinator.forget()
        return problem

    def _failed(self, partitions: Iterable[TopicPartition], why: str) -> CommitFailed:
        shown = ", ".join(f"{topic}-{number}" for topic, number in sorted(partitions))
        return CommitFailed(
            f"group {self._group} has moved on ({why}): the offsets of {shown} were not committed, their records will be read again "
            "by whoever has the partitions now"
        )

    async def _commit_once(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> ErrorCode:
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for partition, offset in offsets.items():
            topic = topics.setdefault(partition.topic, OffsetCommitRequestTopic(name=partition.topic, partitions=[]))
            topic.partitions.append(
                OffsetCommitRequestPartition(
                    partition_index=partition.partition,
                    committed_offset=offset.offset,
                    committed_leader_epoch=offset.leader_epoch,
                    committed_metadata=offset.metadata,
                )
            )
        membership = self._membership
        answer: Any = await self._coordinator.ask(
            OffsetCommitRequest(
                group_id=self._group,
                generation_id_or_member_epoch=membership.generation,
                member_id=membership.member_id,
                group_instance_id=membership.instance_id,
                topics=list(topics.values()),
            ),
            at_most=_NAMED_COMMIT - 1,
        )
        codes = {error_for(found.error_code) for topic in answer.topics for found in topic.partitions}
        return next((code for code in codes if code is not ErrorCode.NONE), ErrorCode.NONE)
