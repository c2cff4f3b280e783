"""The group coordinator as handlers use it, one method per operation.

Here: choosing the shard, whether a reply must be durable.
Not here: the rules (`groups.shard`), storage and waiting (`runtime`).
"""

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, Final, Protocol
from uuid import UUID

from busway_bus.coordinator.consumer_groups import consumer_limits, matching
from busway_bus.coordinator.fencing import MemberFencing
from busway_bus.coordinator.leave_group import leave_in_parts
from busway_bus.coordinator.member_connections import Carrier
from busway_bus.coordinator.offset_commit_batches import OffsetsInBatch, offsets_in_batch
from busway_bus.coordinator.offset_commit_verification import OffsetCommitVerifications, TransactionalProducer
from busway_bus.coordinator.refusals import Refusals
from busway_bus.coordinator.shared_call import SharedCall
from busway_bus.coordinator.transactional import TransactionalRuntime
from busway_bus.groups.explained import ExplainedShard
from busway_bus.groups.group import Committer, Group
from busway_bus.groups.history import History
from busway_bus.groups.limits import GroupLimits
from busway_bus.groups.memory_quota import GroupMemory, pending_share
from busway_bus.groups.modern.balance import Plan
from busway_bus.groups.modern.consumer_target import plan_of, write_part
from busway_bus.groups.modern.group import Assignment
from busway_bus.groups.modern.requests import ConsumerHeartbeat, HeartbeatResult
from busway_bus.groups.modern.topics import Topics
from busway_bus.groups.offsets import CommittedOffset, NewOffsets, OffsetErrors, TopicPartition
from busway_bus.groups.requests import Join, JoinResult, Sync, SyncResult
from busway_bus.groups.shard import GroupShard
from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.decision import Decision
from busway_bus.kernel.limits import GROUPS_RESOLVED_AT_ONCE_MAX, OFFSETS_PER_COMMIT_MAX
from busway_bus.kernel.steps import finished
from busway_bus.kernel.topics import OFFSETS_TOPIC
from busway_bus.kernel.transactions import EndTransaction, TransactionVerifier
from busway_bus.metadata.group_settings import group_settings
from busway_bus.metadata.image import ClusterImage
from busway_bus.replication.manager import ReplicaManager
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.machine import Machine
from busway_protocol.records.builder import BatchBuilder
from busway_protocol.types import ZERO_UUID

logger = logging.getLogger("busway.groups")
LOAD_GRACE_S: Final = 0.5
"""Wait of a start for groups before it serves."""
_RETRIABLE: Final = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
}
"""Codes that Kafka's transaction coordinators do not expect after a marker."""
Parked = Callable[["asyncio.Future[Any]"], None]


class WaitingCarrier(Carrier, Protocol):
    """A connection that ends its registered waits when it ends."""

    def waits(self, future: "asyncio.Future[Any]") -> None:
        """Register a future to end with the connection."""


class GroupCoordinator:
    """All groups of this node.

    Methods raise KafkaError if the coordinator is elsewhere, is loading or cannot write, or as `GroupShard`'s.
    """

    def __init__(
        self,
        config: BrokerConfig,
        replicas: ReplicaManager,
        machine: Machine,
        *,
        create_topic: Callable[[], Awaitable[None]],
        cluster: Callable[[], ClusterImage],
    ) -> None:
        self._config = config
        self._replicas = replicas
        self._machine = machine
        self._creation = SharedCall(create_topic)
        self._cluster = cluster
        self._tasks: set[asyncio.Task[None]] = set()
        settings = group_settings(config, cluster)
        refusals = Refusals(logger, machine.monotonic_s)
        self._limits = GroupLimits(
            min_session_timeout_ms=config.get("group.min.session.timeout.ms"),
            max_session_timeout_ms=config.get("group.max.session.timeout.ms"),
            initial_rebalance_delay_ms=config.get("group.initial.rebalance.delay.ms"),
            max_size=config.get("group.max.size"),
            max_offset_metadata_bytes=config.get("offset.metadata.max.bytes"),
            consumer=consumer_limits(config, settings),
            memory=GroupMemory(refused=refusals.tell),
            pending=pending_share(refused=refusals.tell),
        )
        topics = Topics(cluster)
        history = History(machine.wall_ms)

        def new_shard() -> ExplainedShard:
            return ExplainedShard(
                history,
                limits=self._limits,
                new_member_id=self._new_member_id,
                topics=topics,
                share_session_ms=lambda group_id: settings(group_id, "share.session.timeout.ms"),
            )

        self.runtime = TransactionalRuntime(
            OFFSETS_TOPIC,
            new_shard,
            replicas=replicas,
            machine=machine,
            timeout_ms=config.get("offsets.commit.timeout.ms"),
            image=lambda: cluster().topics.get(OFFSETS_TOPIC),
            loaded=self._on_loaded,
            unloaded=self._unloaded,
        )
        self.fencing = MemberFencing(config.get("group.disconnect.grace.ms"), self.runtime, self._start_task)
        self.connections = self.fencing.connections
        self._resolving = asyncio.Semaphore(GROUPS_RESOLVED_AT_ONCE_MAX)
        self._verifications = OffsetCommitVerifications()

    def _on_loaded(self, partition: int, shard: ExplainedShard) -> None:
        shard.live = True
        if self._limits.offsets.full:
            logger.warning(
                "with the groups and offsets of %s-%d there are more than may be let in: new ones are refused",
                OFFSETS_TOPIC,
                partition,
            )

    def _unloaded(self, shard: ExplainedShard) -> None:
        self.fencing.unloaded(shard)

    def _new_member_id(self, prefix: str) -> str:
        return f"{prefix}-{self._machine.uuid4()}"

    async def ensure(self) -> None:
        if self.runtime.partitions == 0:
            await self._creation.made()
        self.runtime.load()

    # Members

    async def join(self, group_id: str, request: Join, peer: WaitingCarrier) -> JoinResult:
        """Join a group; return when rebalance or connection ends."""
        partition, now = self.runtime.partition_of(group_id), self.runtime.now()

        def parked(waiter: "asyncio.Future[Any]") -> None:
            if not request.member_id:
                self.fencing.parked(peer, group_id, waiter)
            peer.waits(waiter)

        self.runtime.decide(partition, lambda shard: shard.create(group_id, request, now))
        joined = await self.runtime.park(
            partition, lambda shard, waiter: shard.join(group_id, request, waiter, now), parked
        )
        if joined.unassigned:
            self._balance(partition, group_id)
        return joined

    async def sync(self, group_id: str, request: Sync, parked: Parked) -> SyncResult:
        partition, now = self.runtime.partition_of(group_id), self.runtime.now()
        return await self.runtime.park(
            partition, lambda shard, waiter: shard.sync(group_id, request, waiter, now), parked
        )

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        partition, now = self.runtime.partition_of(group_id), self.runtime.now()
        return self.runtime.decide(
            partition, lambda shard: shard.heartbeat(group_id, member_id, instance_id, generation, now)
        )

    async def leave(
        self, group_id: str, identities: Sequence[tuple[str, str | None]], reasons: Sequence[str | None] = ()
    ) -> list[ErrorCode]:
        codes = await leave_in_parts(self.runtime, group_id, identities, reasons)
        for (member_id, _), code in zip(identities, codes, strict=True):
            if code is ErrorCode.NONE:
                self.connections.forget((group_id, member_id))
        return codes

    async def consumer_heartbeat(self, group_id: str, heartbeat: ConsumerHeartbeat) -> HeartbeatResult:
        partition, now = self.runtime.partition_of(group_id), self.runtime.now()
        result = await self.runtime.write(partition, lambda shard: shard.consumer_heartbeat(group_id, heartbeat, now))
        if result.unresolved:
            self._start_task(self._resolve(partition, group_id, result.unresolved))
        if result.unassigned:
            self._balance(partition, group_id)
        return result

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _balance(self, partition: int, group_id: str) -> None:
        shard, now = self.runtime.shards().get(partition), self.runtime.now()
        plan = None if shard is None else plan_of(shard.groups, group_id, now)
        if plan is not None:
            self._start_task(self._assign_in_steps(partition, plan))

    async def _assign_in_steps(self, partition: int, plan: Plan) -> None:
        try:
            targets = await self._replicas.scheduler.run("", plan.steps)
            for part, last in plan.parts(targets):
                write = functools.partial(_write_part, plan=plan, part=part, now=self.runtime.now(), last=last)
                if not await self.runtime.write(partition, write):
                    break
        except KafkaError as problem:
            logger.warning("the target assignment of group %s cannot be written: %s", plan.group.group_id, problem)
        finally:
            plan.group.unplanned()

    async def _resolve(self, partition: int, group_id: str, regexes: Sequence[str]) -> None:
        """Match regular expressions in steps; write each result."""
        try:
            async with self._resolving:
                image = self._cluster()
                for regex in regexes:
                    _, matches = await self._replicas.scheduler.run("", matching([regex], image))
                    version = image.topics if regex == regexes[-1] else None
                    resolve = functools.partial(
                        _resolved, group_id=group_id, matches=matches, version=version, now=self.runtime.now()
                    )
                    if not await self.runtime.write(partition, resolve):
                        return
        except KafkaError as problem:
            logger.warning("what the regular expressions of group %s match cannot be written: %s", group_id, problem)
            shard = self.runtime.shards().get(partition)
            if shard is not None:
                shard.resolution_failed(group_id)

    def close(self) -> None:
        self.connections.close()
        for task in self._tasks:
            task.cancel()
        self.runtime.close()

    # Offsets

    async def commit(self, group_id: str, committer: Committer, offsets: NewOffsets) -> OffsetErrors:
        """Commit offsets in one batch, as in Kafka; return codes once durable.

        INVALID_COMMIT_OFFSET_SIZE: they exceed one batch.
        """
        partition, wall_ms = self.runtime.partition_of(group_id), self._machine.wall_ms()
        metadata = sum(len(offset.metadata) for offset in offsets.values())
        if len(offsets) <= OFFSETS_PER_COMMIT_MAX and metadata <= self.runtime.batch_bytes_max(partition) // 8:
            now = self.runtime.now()
            return await self.runtime.write(
                partition, lambda shard: shard.commit(group_id, committer, offsets, now=now, wall_ms=wall_ms)
            )
        batch = BatchBuilder()
        steps = self._in_batch(group_id, offsets, batch)
        records, codes = await self._replicas.scheduler.run(committer.host, steps)
        now = self.runtime.now()
        await self.runtime.write_batch(
            partition, batch, records, lambda shard: shard.check_commit(group_id, committer, offsets, now)
        )
        return codes

    def _in_batch(self, group_id: str, offsets: NewOffsets, batch: BatchBuilder) -> OffsetsInBatch:
        return offsets_in_batch(
            group_id,
            offsets,
            batch,
            bytes_max=self.runtime.batch_bytes_max(self.runtime.partition_of(group_id)),
            metadata_bytes_max=self._limits.max_offset_metadata_bytes,
            wall_ms=self._machine.wall_ms(),
        )

    async def commit_in_transaction(
        self,
        group_id: str,
        committer: Committer,
        offsets: NewOffsets,
        *,
        producer: TransactionalProducer,
        verifier: TransactionVerifier,
        add: bool,
    ) -> OffsetErrors:
        """Write offsets that count on commit of the transaction; return their codes.

        Durable on return, and one batch, as in Kafka: the transaction has all or none.

        Args:
            verifier: checks that the offsets partition belongs to the transaction, before its first offsets there.
            add: add it if not (KIP-890).

        Raises:
            KafkaError: from `verifier`; TRANSACTION_ABORTABLE if the transaction ended meanwhile;
                INVALID_PRODUCER_EPOCH; INVALID_COMMIT_OFFSET_SIZE; NOT_COORDINATOR, also if the shard was loaded again
                meanwhile.
        """
        partition = self.runtime.partition_of(group_id)
        batch = BatchBuilder(
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=0,  # in every batch, as in Kafka: the broker resends nothing to itself
            transactional=True,
        )
        steps = self._in_batch(group_id, offsets, batch)
        small = len(offsets) <= OFFSETS_PER_COMMIT_MAX
        before = self.runtime.shard(partition)
        records, codes = finished(steps) if small else await self._replicas.scheduler.run(committer.host, steps)
        if not self.runtime.is_open(partition, producer.producer_id, producer.epoch):
            await self._verifications.verify(
                verifier, producer, (OFFSETS_TOPIC, partition), add=add, host=committer.host
            )
        # Nothing may be awaited from here until they are in the log.
        now = self.runtime.now()

        def check(shard: GroupShard) -> None:
            if shard is not before:
                text = "the partition was elsewhere meanwhile, and the marker may be written"
                raise KafkaError(ErrorCode.NOT_COORDINATOR, text)
            shard.check_commit(group_id, committer, offsets, now)

        await self.runtime.write_in_transaction(partition, batch, records, check, committer.host)
        return codes

    async def end_transaction(self, partition: int, marker: EndTransaction) -> ErrorCode:
        """Write and apply a marker. NOT_LEADER_OR_FOLLOWER makes the transaction coordinator retry."""
        self._verifications.ended(marker.producer_id)
        try:
            await self.runtime.end_transaction(partition, marker)
        except KafkaError as problem:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER if problem.code in _RETRIABLE else problem.code
        return ErrorCode.NONE

    async def offsets(
        self, group_id: str, member_id: str | None = None, epoch: int = -1
    ) -> tuple[dict[TopicPartition, CommittedOffset], frozenset[TopicPartition]]:
        """Return durable committed offsets, and partitions with pending offsets."""
        partition = self.runtime.partition_of(group_id)

        def read(shard: GroupShard) -> tuple[dict[TopicPartition, CommittedOffset], frozenset[TopicPartition]]:
            group = shard.groups.get(group_id)
            if group is not None:
                group.check_fetch(member_id, epoch)
            return dict(shard.offsets.get(group_id, {})), frozenset(shard.pending.of(group_id))

        return await self.runtime.read(partition, read)

    async def delete_offsets(self, group_id: str, partitions: Collection[TopicPartition]) -> OffsetErrors:
        partition = self.runtime.partition_of(group_id)
        return await self.runtime.write(partition, lambda shard: shard.delete_offsets(group_id, partitions))

    # Groups

    def explanation(self, group_id: str) -> str | None:
        return self.shard(group_id).explanation(group_id)

    def group(self, group_id: str) -> Group | None:
        return self.shard(group_id).groups.get(group_id)

    def shard(self, group_id: str) -> ExplainedShard:
        return self.runtime.shard(self.runtime.partition_of(group_id))

    def groups(self) -> list[Group]:
        return [group for shard in self.runtime.all_shards().values() for _, group in sorted(shard.groups.items())]

    async def delete(self, group_id: str) -> ErrorCode:
        if self.runtime.partitions == 0:
            return ErrorCode.GROUP_ID_NOT_FOUND
        partition = self.runtime.partition_of(group_id)
        return await self.runtime.write(partition, lambda shard: shard.delete_group(group_id))

    async def expire(self) -> None:
        self.runtime.load()
        for partition, shard in self.runtime.shards().items():
            for part in shard.expirable():
                if self.runtime.shards().get(partition) is not shard:
                    break  # unloaded or reloaded
                try:
                    await self.runtime.write(partition, functools.partial(self._expired, part=part))
                except KafkaError as problem:
                    logger.error("what has expired in %s-%d cannot be removed: %s", OFFSETS_TOPIC, partition, problem)
                    return
                await asyncio.sleep(0)

    def _expired(self, shard: GroupShard, part: Mapping[str, Sequence[TopicPartition]]) -> Decision[None]:
        retention_ms = self._config.get("offsets.retention.minutes") * 60_000
        return shard.expire(part, self._machine.wall_ms(), retention_ms, self._topic_exists)

    def _topic_exists(self, topic: str, topic_id: UUID) -> bool:
        """Whether an offset's topic exists; without an id, any of that name."""
        image = self._cluster()
        return topic in image.topics and (topic_id == ZERO_UUID or image.names.get(topic_id) == topic)


def _resolved(
    shard: GroupShard, group_id: str, matches: Mapping[str, frozenset[str]], version: object, now: int
) -> Decision[bool]:
    return shard.resolve(group_id, matches, version, now)


def _write_part(
    shard: GroupShard, plan: Plan, part: Mapping[str, Assignment], now: int, *, last: bool
) -> Decision[bool]:
    return write_part(shard.groups, plan, part, now, last=last)
