"""The share group coordinator as handlers use it (KIP-932).

Here: choosing the shard, requests to the share coordinator.
Not here: the rules (`groups.share`), states of share partitions (`share_state_coordinator`).
"""

import asyncio
import functools
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from uuid import UUID

from busway_bus.coordinator.group_coordinator import GroupCoordinator
from busway_bus.groups.group import GroupKind
from busway_bus.groups.shard import GroupShard
from busway_bus.groups.share import partitions
from busway_bus.groups.share.group import NamedPartitions, ShareGroup, ShareMember
from busway_bus.groups.share.heartbeat import (
    JOINING,
    LEAVING,
    ShareGroupLimits,
    ShareHeartbeat,
    ShareHeartbeatReply,
    leave,
    share_group_heartbeat,
)
from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.decision import Decision
from busway_bus.kernel.share_state import SharePartitionKey, SharePersister, ShareState
from busway_bus.metadata.delta import Delta
from busway_bus.metadata.group_settings import GroupSettings
from busway_bus.metadata.image import ClusterImage
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.machine import Machine

R = TypeVar("R")
logger = logging.getLogger("busway.share")
TOGETHER: Final = 100
"""Concurrent requests to the share coordinator."""
BEGINNING_AT_ONCE: Final = 10
"""Groups initialized concurrently."""
Wanted = Mapping[UUID, Iterable[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedShareGroup:
    state: str
    epoch: int
    assignment_epoch: int
    members: tuple[ShareMember, ...]


class ShareGroups:
    """All share groups of this node.

    Methods raise KafkaError if the coordinator is elsewhere, is loading or cannot write.
    """

    def __init__(
        self,
        config: BrokerConfig,
        groups: GroupCoordinator,
        persister: SharePersister,
        machine: Machine,
        *,
        setting: GroupSettings,
    ) -> None:
        self._groups = groups
        self._persister = persister
        self._machine = machine
        self._config = config
        self._setting = setting
        self._initializing: dict[asyncio.Task[Any], str] = {}
        self._deleting: Counter[str] = Counter()
        self._semaphore = asyncio.Semaphore(BEGINNING_AT_ONCE)

    def limits(self, group_id: str) -> ShareGroupLimits:
        return ShareGroupLimits(
            max_size=self._config.get("group.share.max.size"),
            session_timeout_ms=self._setting(group_id, "share.session.timeout.ms"),
            heartbeat_interval_ms=self._setting(group_id, "share.heartbeat.interval.ms"),
            assignment_interval_ms=self._setting(group_id, "share.assignment.interval.ms"),
        )

    async def _decide(self, group_id: str, operation: Callable[[GroupShard], Decision[R]]) -> R:
        runtime = self._groups.runtime
        return await runtime.write(runtime.partition_of(group_id), operation)

    # Members

    async def heartbeat(self, heartbeat: ShareHeartbeat) -> ShareHeartbeatReply:
        """Handle a heartbeat; return once its effect is durable.

        New share partitions are initialized afterwards.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND; COORDINATOR_LOAD_IN_PROGRESS on joining a group that is being deleted; from
                `groups.share.heartbeat`.
        """
        now, wall_ms = self._groups.runtime.now(), self._machine.wall_ms()
        limits = self.limits(heartbeat.group_id)

        def decide(shard: GroupShard) -> Decision[ShareHeartbeatReply]:
            group = shard.groups.get(heartbeat.group_id)
            if heartbeat.epoch == JOINING:
                self._check_stays(heartbeat.group_id, "join")
            if group is None and heartbeat.epoch == JOINING:
                shard.offsets.check_group()
                group = shard.new_share_group(heartbeat.group_id)
            share_group = _share_group(heartbeat.group_id, group)
            if heartbeat.epoch == LEAVING:
                return leave(share_group, heartbeat.member_id)
            return shard.watched(
                share_group, share_group_heartbeat(share_group, heartbeat, limits, now=now, wall_ms=wall_ms)
            )

        reply = await self._decide(heartbeat.group_id, decide)
        if reply.initialize:
            self._start_initializing(
                heartbeat.group_id, self._initialize(heartbeat.group_id, reply.state_epoch, reply.initialize)
            )
        return reply

    def _start_initializing(self, group_id: str, initializing: Coroutine[Any, Any, R]) -> "asyncio.Task[R]":
        """Initialize share partitions; a deletion of the group waits for it."""
        task = asyncio.ensure_future(initializing)
        self._initializing[task] = group_id
        task.add_done_callback(self._initializing_ended)
        return task

    def _initializing_ended(self, task: "asyncio.Task[Any]") -> None:
        del self._initializing[task]
        if not task.cancelled():
            task.exception()  # asyncio logs an exception that is never retrieved

    async def _wait_initialized(self, group_id: str) -> None:
        initializing = [task for task, group in self._initializing.items() if group == group_id]
        if initializing:
            await asyncio.wait(initializing)

    def _hold(self, shard: GroupShard, group_id: str, held: list[str]) -> ShareGroup:
        """Block joins and offset changes of an empty group until `_release(held)`.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
        """
        group = _empty(group_id, shard)
        self._deleting[group_id] += 1
        held.append(group_id)
        return group

    def _release(self, held: list[str]) -> None:
        self._deleting.subtract(held)
        self._deleting += Counter()

    def _check_stays(self, group_id: str, what: str) -> None:
        if group_id in self._deleting:
            text = f"share group {group_id} is being deleted, or offsets of it; {what} again when that is done"
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, text)

    async def _initialize(self, group_id: str, state_epoch: int, topics: Mapping[UUID, NamedPartitions]) -> None:
        wanted = {topic_id: topic.partitions for topic_id, topic in topics.items()}
        async with self._semaphore:
            failed = await self._each(
                group_id,
                wanted,
                lambda key: self._persister.initialize(key, state_epoch=state_epoch, start_offset=-1),
            )
            try:
                await self._decide(
                    group_id, lambda shard: _record_initialized(shard, group_id, dict(topics), failed=bool(failed))
                )
            except KafkaError as problem:
                logger.error("what share group %s may read cannot be written down: %s", group_id, problem)
        if failed:
            first = next(iter(failed.values()))
            logger.error(
                "share partitions of group %s cannot be begun; a next heartbeat tries again: %s", group_id, first
            )

    async def _each(
        self, group_id: str, wanted: Wanted, ask: Callable[[SharePartitionKey], Awaitable[object]]
    ) -> dict[tuple[UUID, int], KafkaError]:
        keys = [
            SharePartitionKey(group_id=group_id, topic_id=topic_id, partition=partition)
            for topic_id, partitions in sorted(wanted.items())
            for partition in sorted(partitions)
        ]
        failed: dict[tuple[UUID, int], KafkaError] = {}

        async def attempt(key: SharePartitionKey) -> None:
            try:
                await ask(key)
            except KafkaError as problem:
                failed[key.topic_id, key.partition] = problem

        for start in range(0, len(keys), TOGETHER):
            await asyncio.gather(*(attempt(key) for key in keys[start : start + TOGETHER]))
        return failed

    async def describe(self, group_id: str) -> DescribedShareGroup:
        """Describe a durable group, or raise GROUP_ID_NOT_FOUND."""

        def look(shard: GroupShard) -> Decision[DescribedShareGroup]:
            group = _share_group(group_id, shard.groups.get(group_id))
            described = DescribedShareGroup(
                state=group.state_name,
                epoch=group.epoch,
                assignment_epoch=group.target_epoch,
                members=tuple(group.members.values()),
            )
            return Decision(reply=described)

        return await self._decide(group_id, look)

    def is_share_group(self, group_id: str) -> bool:
        if self._groups.runtime.partitions == 0:
            return False
        group = self._groups.group(group_id)
        return group is not None and group.kind is GroupKind.SHARE

    async def delete(self, group_id: str) -> ErrorCode:
        """Delete an empty share group, after its states at the share coordinator.

        Joins are blocked meanwhile, where Kafka's deletion fails as not empty. Initializations under way are awaited:
        their states would remain for ever, and fence a group of the same name.
        """

        def decide(shard: GroupShard) -> Decision[dict[UUID, frozenset[int]]]:
            wanted, records = partitions.forget_all(self._hold(shard, group_id, held))
            return Decision(records=records, reply=wanted)

        held: list[str] = []
        try:
            wanted = await self._decide(group_id, decide)
            await self._wait_initialized(group_id)
            failed = await self._each(group_id, wanted, self._persister.delete)
            for problem in failed.values():
                if problem.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # else deleted with its topic
                    return problem.code
            return await self._groups.delete(group_id)
        finally:
            self._release(held)

    async def follow(self, image: ClusterImage, delta: Delta) -> None:
        if not delta.removed:
            return
        gone = tuple(delta.removed)
        for partition, shard in self._groups.runtime.shards().items():
            for group_id, group in tuple(shard.groups.items()):
                if not isinstance(group, ShareGroup) or self._groups.runtime.shards().get(partition) is not shard:
                    continue
                try:
                    self._groups.runtime.decide(
                        partition, functools.partial(_deleted, group_id=group_id, topic_ids=gone)
                    )
                except KafkaError as problem:
                    logger.error("share group %s cannot let go of deleted topics: %s", group_id, problem)
                await asyncio.sleep(0)

    # Offsets

    async def initialized(self, group_id: str) -> dict[UUID, frozenset[int]]:
        def look(shard: GroupShard) -> Decision[dict[UUID, frozenset[int]]]:
            group = shard.groups.get(group_id)
            known = group.partitions.initialized if isinstance(group, ShareGroup) else {}
            return Decision(reply={topic_id: topic.partitions for topic_id, topic in known.items()})

        return await self._decide(group_id, look)

    async def summary(self, group_id: str, topic_id: UUID, partition: int) -> ShareState:
        return await self._persister.summary(
            SharePartitionKey(group_id=group_id, topic_id=topic_id, partition=partition)
        )

    async def alter_offsets(
        self, group_id: str, offsets: Mapping[UUID, tuple[str, Mapping[int, int]]]
    ) -> dict[tuple[UUID, int], KafkaError]:
        """Set an empty group's start offsets, by topic and partition; return failures.

        Raises:
            KafkaError: NON_EMPTY_GROUP, or GROUP_ID_NOT_FOUND for a group of another kind; COORDINATOR_LOAD_IN_PROGRESS
                while it is deleted.
        """
        # Shielded: it continues without the client, and a deletion waits for it.
        return await asyncio.shield(self._start_initializing(group_id, self._alter(group_id, offsets)))

    async def _alter(
        self, group_id: str, offsets: Mapping[UUID, tuple[str, Mapping[int, int]]]
    ) -> dict[tuple[UUID, int], KafkaError]:
        topics = {
            topic_id: NamedPartitions(name=name, partitions=frozenset(starts))
            for topic_id, (name, starts) in offsets.items()
            if starts
        }

        def decide(shard: GroupShard) -> Decision[int]:
            self._check_stays(group_id, "set its offsets")
            group = shard.groups.get(group_id)
            if group is None:
                shard.offsets.check_group()
            share_group = _empty(group_id, shard) if group is not None else shard.new_share_group(group_id)
            return Decision(records=(partitions.begin(share_group, topics),) if topics else (), reply=share_group.epoch)

        state_epoch = await self._decide(group_id, decide)

        async def ask(key: SharePartitionKey) -> None:
            start = offsets[key.topic_id][1][key.partition]
            await self._persister.initialize(key, state_epoch=state_epoch, start_offset=start)

        wanted = {topic_id: topic.partitions for topic_id, topic in topics.items()}
        failed = await self._each(group_id, wanted, ask)
        if topics and not failed:
            await self._decide(group_id, lambda shard: _record_initialized(shard, group_id, topics, failed=False))
        return failed

    async def delete_offsets(self, group_id: str, topic_ids: Sequence[UUID]) -> dict[UUID, KafkaError | None]:
        """Remove topics from an empty group; return the outcome of known ones.

        Joins and offset changes are blocked meanwhile: a state initialized then would be deleted, yet recorded as
        present.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
        """

        def hold(shard: GroupShard) -> Decision[None]:
            self._hold(shard, group_id, held)
            return Decision(reply=None)

        def decide(shard: GroupShard) -> Decision[dict[UUID, frozenset[int]]]:
            wanted, records = partitions.forget(_empty(group_id, shard), topic_ids)
            return Decision(records=records, reply=wanted)

        held: list[str] = []
        try:
            await self._decide(group_id, hold)
            await self._wait_initialized(group_id)
            wanted = await self._decide(group_id, decide)
            failed = await self._each(group_id, wanted, self._persister.delete)
            outcomes: dict[UUID, KafkaError | None] = dict.fromkeys(wanted)
            outcomes.update({topic_id: problem for (topic_id, _), problem in failed.items()})
            gone = [topic_id for topic_id, problem in outcomes.items() if problem is None]
            if gone:
                await self._decide(group_id, lambda shard: _forgotten(shard, group_id, gone))
        finally:
            self._release(held)
        return outcomes

    async def close(self) -> None:
        """Cancel initializations; the next start resumes them."""
        for task in self._initializing:
            task.cancel()
        if self._initializing:
            await asyncio.wait(self._initializing)


def _share_group(group_id: str, group: object) -> ShareGroup:
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    if not isinstance(group, ShareGroup):
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
    return group


def _empty(group_id: str, shard: GroupShard) -> ShareGroup:
    group = _share_group(group_id, shard.groups.get(group_id))
    if not group.empty:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
    return group


def _record_initialized(
    shard: GroupShard, group_id: str, topics: dict[UUID, NamedPartitions], *, failed: bool
) -> Decision[None]:
    group = shard.groups.get(group_id)
    if not isinstance(group, ShareGroup):
        return Decision(reply=None)
    if failed:
        return Decision(records=partitions.not_begun(group, topics), reply=None)
    there = {topic_id: topic for topic_id, topic in topics.items() if topic_id in group.partitions.initializing}
    return Decision(records=(partitions.begun(group, there),) if there else (), reply=None)


def _forgotten(shard: GroupShard, group_id: str, topic_ids: Collection[UUID]) -> Decision[None]:
    group = shard.groups.get(group_id)
    return Decision(records=partitions.forgotten(group, topic_ids) if isinstance(group, ShareGroup) else (), reply=None)


def _deleted(shard: GroupShard, group_id: str, topic_ids: Collection[UUID]) -> Decision[None]:
    group = shard.groups.get(group_id)
    return Decision(
        records=partitions.topics_deleted(group, topic_ids) if isinstance(group, ShareGroup) else (), reply=None
    )
