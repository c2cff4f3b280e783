"""Committing and fetching a group's offsets.

Here: retries, and the effect of rebalances on a commit in progress.
Not here: the requests (`offset_requests`).
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from busway.cluster.coordinator import PASSING
from busway.consumer.commit_order import Commit, CommitOrder
from busway.consumer.coordinator import Coordinator
from busway.consumer.membership import Membership
from busway.consumer.offset_requests import OffsetVersions, commit_request, fetch_request, fetched
from busway.errors import BrokerError, BuswayError, CommitFailed, ConnectionFailed, RequestTimedOut
from busway.net.clock import REAL_TIME
from busway.net.retry import RetryTimer
from busway.types import OffsetAndMetadata, TopicPartition
from busway_protocol.errors import ErrorCode, error_for

_REBALANCED: Final = frozenset(
    {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.STALE_MEMBER_EPOCH}
)
"""Errors of commits between the last join and this member's assignment or next epoch."""
_UNDECIDED: Final = frozenset(
    {ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID}
)
"""Errors after which offsets are fetched again: open transaction, outdated epoch, or ended membership."""
_OUT: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID})


class GroupOffsets:
    """Committed offsets of a group.

    Args:
        stable: wait for offsets of open transactions (KIP-447). A read_committed reader needs it: its predecessor may
            be fenced before its last transaction is aborted.
        subscribed: the group assigns partitions to this member; commits then need a membership.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        membership: Membership,
        settled: asyncio.Event,
        *,
        versions: OffsetVersions,
        timeout_s: float,
        stable: bool,
        subscribed: Callable[[], bool],
    ) -> None:
        self._coordinator = coordinator
        self._membership = membership
        self._settled = settled
        self._group = coordinator.group
        self._versions = versions
        self._timeout_s = timeout_s
        self._stable = stable
        self._subscribed = subscribed
        self._order = CommitOrder()

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return committed offsets, with retries; partitions without one are left out.

        ConnectionFailed, RequestTimedOut, BrokerError: after the request timeout.
        """
        asked = list(partitions)
        timer = RetryTimer(self._coordinator.backoff(), self._timeout_s)
        while True:
            try:
                return await self._committed_now(asked)
            except (ConnectionFailed, RequestTimedOut) as problem:
                await timer.sleep_or_raise(problem)
            except BrokerError as problem:
                if problem.code not in _UNDECIDED and problem.code not in PASSING:
                    raise
                await timer.sleep_or_raise(problem)

    async def _committed_now(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        request = fetch_request(self._group, self._membership, self._versions, partitions, stable=self._stable)
        answer = await self._coordinator.ask(request, at_most=self._versions.fetch)
        offsets = {}
        for code, partition, response in fetched(answer, self._versions):
            self._check(code)
            if partition is not None and response.committed_offset >= 0:
                offsets[partition] = OffsetAndMetadata(
                    response.committed_offset, response.metadata or "", response.committed_leader_epoch
                )
        return offsets

    def _check(self, error_code: int) -> None:
        code = error_for(error_code)
        if code in PASSING:
            self._coordinator.forget()
        if code is not ErrorCode.NONE:
            raise BrokerError(code, f"offsets of group {self._group}")

    def under_way(self, partitions: Iterable[TopicPartition] | None = None) -> list[TopicPartition]:
        return self._order.under_way(partitions)

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit, with retries.

        Partitions of a later call are left to it, and its end is awaited. So is a rebalance: then only partitions kept
        without a break are committed. Other offsets, sent in the new generation, would undo the new owners' commits.

        Raises:
            CommitFailed: partitions moved, or the member was out of its group.
            ConnectionFailed, RequestTimedOut: after the request timeout.
        """
        if not offsets:
            return
        with self._order.begin(offsets) as commit:
            await self._commit(offsets, commit)

    async def _commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], commit: Commit) -> None:
        left = dict(offsets)
        tenures = {partition: self._membership.tenure(partition) for partition in left}
        gone: set[TopicPartition] = set()
        timer = RetryTimer(self._coordinator.backoff(), self._timeout_s)
        while True:
            async with self._order.turn:
                for partition in commit.leave(left):
                    del left[partition]
                generation = self._membership.generation
                problem = await self._try(left, generation)
            if problem is None:
                break
            await timer.sleep_or_raise(problem)
            with contextlib.suppress(TimeoutError):
                async with REAL_TIME.timeout_at(timer.deadline):
                    await self._settled.wait()
            if self._membership.generation != generation:
                gone |= {
                    partition
                    for partition in left
                    if tenures[partition] is None or tenures[partition] != self._membership.tenure(partition)
                }
                left = {partition: offset for partition, offset in left.items() if partition not in gone}
        await commit.wait_taken_over(timer.deadline)
        if gone:
            raise self.failed(gone, "it was joined again while its offsets were being committed")

    async def _try(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], generation: int) -> BuswayError | None:
        if not offsets:
            return None
        if generation < 0 and self._subscribed():
            raise self.failed(offsets, "this consumer is not a member of it at this moment")
        try:
            code = await self._commit_once(offsets)
        except (ConnectionFailed, RequestTimedOut) as failed:
            return failed
        if code is ErrorCode.NONE:
            return None
        here = self._settled.is_set() and self._membership.generation == generation
        if code in _OUT or (code is ErrorCode.ILLEGAL_GENERATION and here):
            raise self.failed(offsets, code.name)
        problem = BrokerError(code, f"committing offsets of group {self._group}")
        if not code.retriable and code not in _REBALANCED:
            raise problem
        if code in PASSING:
            self._coordinator.forget()
        return problem

    def failed(self, partitions: Iterable[TopicPartition], why: str) -> CommitFailed:
        shown = ", ".join(f"{topic}-{partition_index}" for topic, partition_index in sorted(partitions))
        return CommitFailed(
            f"group {self._group} has moved on ({why}): the offsets of {shown} were not committed, their records will be read again "
            "by the partitions' new owners"
        )

    async def _commit_once(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> ErrorCode:
        request = commit_request(self._group, self._membership, offsets)
        answer: Any = await self._coordinator.ask(request, at_most=self._versions.commit)
        codes = {error_for(partition.error_code) for topic in answer.topics for partition in topic.partitions}
        return next((code for code in codes if code is not ErrorCode.NONE), ErrorCode.NONE)
