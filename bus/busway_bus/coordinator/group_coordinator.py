"""The coordinator of groups as handlers see it: one method for each thing that may be asked for.

What lives here: which shard is asked, whether the answer has to be durable, and the making of the topic that keeps the groups. What does
not: any rule about groups (`groups.shard`), storage and waiting (`runtime`).
"""

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, Final, Protocol
from uuid import UUID

from busway_bus.coordinator.consumer_groups import consumer_limits, matching
from busway_bus.coordinator.fencing import MemberFencing
from busway_bus.coordinator.leaving import leave_in_parts
from busway_bus.coordinator.member_connections import Carrier
from busway_bus.coordinator.offset_commit_batches import OffsetsInBatch, offsets_in_batch
from busway_bus.coordinator.offset_commit_verification import OffsetCommitVerifications, TransactionalProducer
from busway_bus.coordinator.refusals import Refusals
from busway_bus.coordinator.transactional import TransactionalRuntime
from busway_bus.groups.classic.requests import GroupLimits, Join, JoinResult, Sync, SyncResult
from busway_bus.groups.explained import ExplainedShard
from busway_bus.groups.group import Committer, Group
from busway_bus.groups.history import History
from busway_bus.groups.memory_quota import GroupMemory, pending_share
from busway_bus.groups.modern.balance import Plan
from busway_bus.groups.modern.consumer_target import plan_of, write_part
from busway_bus.groups.modern.group import Assignment
from busway_bus.groups.modern.requests import ConsumerHeartbeat, HeartbeatResult
from busway_bus.groups.modern.topics import Topics
from busway_bus.groups.offsets import CommittedOffset, NewOffset, Place
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
"""How long a start waits for the groups: a small node answers for them from its first moment, a large one serves all else."""
_COME_AGAIN: Final = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
}
"""What coordinators of transactions do not know as answers to a marker, as in Kafka."""
Parked = Callable[["asyncio.Future[Any]"], None]


class WaitingCarrier(Carrier, Protocol):
    """A connection whose end ends the waits that were named."""

    def waits(self, future: "asyncio.Future[Any]") -> None:
        """End the wait for this future when the connection ends."""


class GroupCoordinator:
    """All groups of this node.

    Args:
        create_topic: makes the offsets topic.
        cluster: the current picture of the cluster.
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
        self._create_topic = create_topic
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
            image=lambda: cluster().topics.get(OFFSETS_TOPIC),
            loaded=self._live,
            unloaded=self._unloaded,
        )
        self.fencing = MemberFencing(config.get("group.disconnect.grace.ms"), self.runtime, self._go_on)
        self.connections = self.fencing.connections
        self._creating = asyncio.Lock()
        self._resolving = asyncio.Semaphore(GROUPS_RESOLVED_AT_ONCE_MAX)
        self._verifications = OffsetCommitVerifications()

    def _live(self, number: int, shard: ExplainedShard) -> None:
        """What is written from now on is news."""
        shard.live = True
        if self._limits.offsets.full:
            logger.warning(
                "with the groups and offsets of %s-%d there are more than may be let in: new ones are refused",
                OFFSETS_TOPIC,
                number,
            )

    def _unloaded(self, shard: ExplainedShard) -> None:
        self.fencing.unloaded(shard)

    def _new_member_id(self, prefix: str) -> str:
        """A member id as Kafka makes them: what the client calls itself, and a random part."""
        return f"{prefix}-{self._machine.uuid4()}"

    async def ensure(self) -> None:
        """Make sure that the offsets topic is there and loaded, or begun to be."""
        async with self._creating:
            if self.runtime.partitions == 0:
                await self._create_topic()
            self.runtime.load()

    # Members

    async def join(self, group_id: str, request: Join, peer: WaitingCarrier) -> JoinResult:
        """Join a group; returns when the rebalance is over.

        Args:
            peer: the connection, whose end ends the wait.

        Raises:
            KafkaError: the coordinator is not here, is loading, or cannot write; so for all that follow.
        """
        number, now = self.runtime.partition_of(group_id), self.runtime.now()

        def parked(waiter: "asyncio.Future[Any]") -> None:
            if not request.member_id:
                self.fencing.parked(peer, group_id, waiter)
            peer.waits(waiter)

        self.runtime.decide(number, lambda shard: shard.create(group_id, request, now))
        joined = await self.runtime.park(
            number, lambda shard, waiter: shard.join(group_id, request, waiter, now), parked
        )
        if joined.unassigned:
            self._balance(number, group_id)
        return joined

    async def sync(self, group_id: str, request: Sync, parked: Parked) -> SyncResult:
        """Hand in or fetch assignments; returns when they are durable."""
        number, now = self.runtime.partition_of(group_id), self.runtime.now()
        return await self.runtime.park(number, lambda shard, waiter: shard.sync(group_id, request, waiter, now), parked)

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Note that a member is alive; REBALANCE_IN_PROGRESS asks it to join again."""
        number, now = self.runtime.partition_of(group_id), self.runtime.now()
        return self.runtime.decide(
            number, lambda shard: shard.heartbeat(group_id, member_id, instance_id, generation, now)
        )

    async def leave(
        self, group_id: str, identities: Sequence[tuple[str, str | None]], reasons: Sequence[str | None] = ()
    ) -> list[ErrorCode]:
        """Take members, named by member id and instance id, out of their group, each for its reason; a code for each."""
        codes = await leave_in_parts(self.runtime, group_id, identities, reasons)
        for (member_id, _), code in zip(identities, codes, strict=True):
            if code is ErrorCode.NONE:
                self.connections.forget((group_id, member_id))
        return codes

    async def beat(self, group_id: str, beat: ConsumerHeartbeat) -> HeartbeatResult:
        """A member of a consumer group joins, stays or leaves; returns when that is durable.

        Raises:
            KafkaError: see `GroupShard.beat` too.
        """
        number, now = self.runtime.partition_of(group_id), self.runtime.now()
        beaten = await self.runtime.write(number, lambda shard: shard.beat(group_id, beat, now))
        if beaten.unresolved:
            self._go_on(self._resolve(number, group_id, beaten.unresolved))
        if beaten.unassigned:
            self._balance(number, group_id)
        return beaten

    def _go_on(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _balance(self, number: int, group_id: str) -> None:
        """Balance a large consumer group a step at a time, where nobody does it already."""
        shard, now = self.runtime.shards().get(number), self.runtime.now()
        plan = None if shard is None else plan_of(shard.groups, group_id, now)
        if plan is not None:
            self._go_on(self._carry_out(number, plan))

    async def _carry_out(self, number: int, plan: Plan) -> None:
        """Balance a consumer group as it was when it was planned; who is to have what is written in parts, and counts with the last."""
        try:
            targets = await self._replicas.turns.run("", plan.steps)
            for part, last in plan.parts(targets):
                write = functools.partial(_write_part, plan=plan, part=part, now=self.runtime.now(), last=last)
                if not await self.runtime.write(number, write):
                    break
        except KafkaError as problem:
            logger.warning("who is to have what in group %s cannot be written: %s", plan.group.group_id, problem)
        finally:
            plan.group.unplanned()

    async def _resolve(self, number: int, group_id: str, regexes: Sequence[str]) -> None:
        """Look which topics the regular expressions of a group match, a little at a time, and write it down, one after the other."""
        try:
            async with self._resolving:
                image = self._cluster()
                for regex in regexes:
                    _, found = await self._replicas.turns.run("", matching([regex], image))
                    version = image.topics if regex == regexes[-1] else None
                    resolve = functools.partial(
                        _resolved, group_id=group_id, found=found, version=version, now=self.runtime.now()
                    )
                    if not await self.runtime.write(number, resolve):
                        return
        except KafkaError as problem:
            logger.warning("what the regular expressions of group %s match cannot be written: %s", group_id, problem)
            shard = self.runtime.shards().get(number)
            if shard is not None:
                shard.resolution_failed(group_id)

    def close(self) -> None:
        """The node stops."""
        self.connections.close()
        for task in self._tasks:
            task.cancel()
        self.runtime.close()

    # Offsets

    async def commit(
        self, group_id: str, committer: Committer, offsets: Mapping[Place, NewOffset]
    ) -> dict[Place, ErrorCode]:
        """Store how far a group has read; a code for each, when it is durable. They are one batch, as in Kafka: all are stored or none.

        Raises:
            KafkaError: see `GroupShard.check_commit` too; INVALID_COMMIT_OFFSET_SIZE where they are more than a batch holds.
        """
        number, wall_ms = self.runtime.partition_of(group_id), self._machine.wall_ms()
        if len(offsets) <= OFFSETS_PER_COMMIT_MAX:
            now = self.runtime.now()
            return await self.runtime.write(
                number, lambda shard: shard.commit(group_id, committer, offsets, now=now, wall_ms=wall_ms)
            )
        batch = BatchBuilder()
        steps = self._in_batch(group_id, offsets, batch)
        records, codes = await self._replicas.turns.run(committer.host, steps)
        now = self.runtime.now()
        await self.runtime.write_batch(
            number, batch, records, lambda shard: shard.check_commit(group_id, committer, offsets, now)
        )
        return codes

    def _in_batch(self, group_id: str, offsets: Mapping[Place, NewOffset], batch: BatchBuilder) -> OffsetsInBatch:
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
        offsets: Mapping[Place, NewOffset],
        *,
        producer: TransactionalProducer,
        verifier: TransactionVerifier,
        add: bool,
    ) -> dict[Place, ErrorCode]:
        """Store offsets that are in force when the producer's transaction is committed.

        They are one batch, as in Kafka: the transaction has all of them or none, whatever ends it meanwhile. A code for each, when it is
        durable.

        Args:
            verifier: asked whether the partition that keeps the group belongs to the transaction, before its first offsets there.
            add: have it added where it does not (KIP-890).

        Raises:
            KafkaError: see `GroupShard.check_commit` too; what `verifier` says; TRANSACTION_ABORTABLE where the transaction has ended
                meanwhile; INVALID_PRODUCER_EPOCH where a newer producer has taken over; INVALID_COMMIT_OFFSET_SIZE where they are more
                than a batch holds.
        """
        number = self.runtime.partition_of(group_id)
        batch = BatchBuilder(
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=0,  # of every batch, as in Kafka: the broker does not send itself anything twice
            transactional=True,
        )
        steps = self._in_batch(group_id, offsets, batch)
        small = len(offsets) <= OFFSETS_PER_COMMIT_MAX
        records, codes = finished(steps) if small else await self._replicas.turns.run(committer.host, steps)
        if not self.runtime.is_open(number, producer.producer_id, producer.epoch):
            await self._verifications.verify(verifier, producer, (OFFSETS_TOPIC, number), add=add, host=committer.host)
        # From the answer on nothing is awaited before they are in the log.
        now = self.runtime.now()
        await self.runtime.write_in_transaction(
            number,
            batch,
            records,
            lambda shard: shard.check_commit(group_id, committer, offsets, now),
            committer.host,
        )
        return codes

    async def end_transaction(self, number: int, marker: EndTransaction) -> ErrorCode:
        """Write the end of a producer's transaction to a partition of the offsets topic, and let what it committed there be in force;
        NOT_LEADER_OR_FOLLOWER where the transaction's coordinator has to come again."""
        self._verifications.ended(marker.producer_id)
        try:
            await self.runtime.end_transaction(number, marker)
        except KafkaError as problem:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER if problem.code in _COME_AGAIN else problem.code
        return ErrorCode.NONE

    async def offsets(
        self, group_id: str, member_id: str | None = None, epoch: int = -1
    ) -> tuple[dict[Place, CommittedOffset], frozenset[Place]]:
        """How far a group has read, and the partitions of which an open transaction may change that; both as far as it is durable.

        Args:
            member_id: who asks, where the member says so; with its epoch.

        Raises:
            KafkaError: see `Group.check_fetch` too.
        """
        number = self.runtime.partition_of(group_id)

        def read(shard: GroupShard) -> tuple[dict[Place, CommittedOffset], frozenset[Place]]:
            group = shard.groups.get(group_id)
            if group is not None:
                group.check_fetch(member_id, epoch)
            return dict(shard.offsets.get(group_id, {})), frozenset(shard.pending.of(group_id))

        return await self.runtime.read(number, read)

    async def delete_offsets(self, group_id: str, places: Collection[Place]) -> dict[Place, ErrorCode]:
        """Forget offsets of a group; a code for each.

        Raises:
            KafkaError: see `GroupShard.delete_offsets` too.
        """
        number = self.runtime.partition_of(group_id)
        return await self.runtime.write(number, lambda shard: shard.delete_offsets(group_id, places))

    # Groups

    def explanation(self, group_id: str) -> str | None:
        """The last rebalances of a group, as `History.text` has them; None where nothing is known of it.

        Raises:
            KafkaError: the coordinator is not here, or is loading.
        """
        return self.shard(group_id).explanation(group_id)

    def group(self, group_id: str) -> Group | None:
        """The group, None where there is none."""
        return self.shard(group_id).groups.get(group_id)

    def shard(self, group_id: str) -> ExplainedShard:
        """What is kept beside the group, in the same partition."""
        return self.runtime.shard(self.runtime.partition_of(group_id))

    def groups(self) -> list[Group]:
        """All groups, by partition and name."""
        return [group for shard in self.runtime.all_shards().values() for _, group in sorted(shard.groups.items())]

    async def delete(self, group_id: str) -> ErrorCode:
        """Delete a group that is empty, with its offsets."""
        if self.runtime.partitions == 0:
            return ErrorCode.GROUP_ID_NOT_FOUND
        number = self.runtime.partition_of(group_id)
        return await self.runtime.write(number, lambda shard: shard.delete_group(group_id))

    async def expire(self) -> None:
        """Remove offsets that nobody needs any more, and groups that have nothing left."""
        self.runtime.load()
        for number, shard in self.runtime.shards().items():
            for part in shard.expirable():
                if self.runtime.shards().get(number) is not shard:
                    break  # the topic was deleted meanwhile
                try:
                    await self.runtime.write(number, functools.partial(self._expired, part=part))
                except KafkaError as problem:
                    logger.error("what has expired in %s-%d cannot be removed: %s", OFFSETS_TOPIC, number, problem)
                    return
                await asyncio.sleep(0)

    def _expired(self, shard: GroupShard, part: Mapping[str, Sequence[Place]]) -> Decision[None]:
        retention_ms = self._config.get("offsets.retention.minutes") * 60_000
        return shard.expire(part, self._machine.wall_ms(), retention_ms, self._lives)

    def _lives(self, topic: str, topic_id: UUID) -> bool:
        """Whether it is still the topic that an offset was committed for; one without an id may be any of that name."""
        return topic in self._cluster().topics and (topic_id == ZERO_UUID or self._replicas.name_of(topic_id) == topic)


def _resolved(
    shard: GroupShard, group_id: str, found: Mapping[str, frozenset[str]], version: object, now: int
) -> Decision[bool]:
    return shard.resolve(group_id, found, version, now)


def _write_part(
    shard: GroupShard, plan: Plan, part: Mapping[str, Assignment], now: int, *, last: bool
) -> Decision[bool]:
    return write_part(shard.groups, plan, part, now, last=last)
