"""The coordinator of groups as handlers see it: one method for each thing that may be asked for.

What lives here: which shard is asked, whether the answer has to be durable, and the making of the topic that keeps the groups. What does
not: any rule about groups (`groups.shard`), storage and waiting (`runtime`).
"""

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from busway_bus.coordinator.consumer_groups import consumer_limits, matching
from busway_bus.coordinator.transactional import TransactionalRuntime
from busway_bus.coordinator.verifications import TransactionalProducer, Verifications
from busway_bus.groups.classic_values import GroupLimits, Join, Joined, Sync, Synced
from busway_bus.groups.consumer_values import Beat, Beaten
from busway_bus.groups.group import Committer, Group
from busway_bus.groups.offsets import CommittedOffset, NewOffset, Place
from busway_bus.groups.shard import GroupShard
from busway_bus.groups.topics import Topics
from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.decision import Decision
from busway_bus.kernel.limits import OFFSETS_PER_COMMIT_MAX
from busway_bus.kernel.topics import OFFSETS_TOPIC
from busway_bus.kernel.transactions import EndTransaction, TransactionVerifier
from busway_bus.metadata.image import ClusterImage
from busway_bus.replication.manager import ReplicaManager
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.machine import Machine
from busway_protocol.types import ZERO_UUID

log = logging.getLogger("busway.groups")
LOAD_GRACE_S: Final = 0.5
"""How long a start waits for the groups: a small node answers for them from its first moment, a large one serves all else."""
_COME_AGAIN: Final = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
}
"""What coordinators of transactions do not know as answers to a marker, as in Kafka."""
Parked = Callable[["asyncio.Future[Any]"], None]


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
        self._limits = GroupLimits(
            min_session_timeout_ms=config.get("group.min.session.timeout.ms"),
            max_session_timeout_ms=config.get("group.max.session.timeout.ms"),
            initial_rebalance_delay_ms=config.get("group.initial.rebalance.delay.ms"),
            max_size=config.get("group.max.size"),
            max_offset_metadata_bytes=config.get("offset.metadata.max.bytes"),
            consumer=consumer_limits(config),
        )
        topics = Topics(cluster)
        self.runtime = TransactionalRuntime(
            OFFSETS_TOPIC,
            lambda: GroupShard(limits=self._limits, new_member_id=self._new_member_id, topics=topics),
            replicas=replicas,
            machine=machine,
            image=lambda: cluster().topics.get(OFFSETS_TOPIC),
        )
        self._creating = asyncio.Lock()
        self._verifications = Verifications()

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

    async def join(self, group_id: str, request: Join, parked: Parked) -> Joined:
        """Join a group; returns when the rebalance is over.

        Args:
            parked: see `Runtime.park`.

        Raises:
            KafkaError: the coordinator is not here, is loading, or cannot write; so for all that follow.
        """
        number, now = self.runtime.partition_of(group_id), self.runtime.now()
        self.runtime.decide(number, lambda shard: shard.create(group_id, request, now))
        return await self.runtime.park(number, lambda shard, waiter: shard.join(group_id, request, waiter, now), parked)

    async def sync(self, group_id: str, request: Sync, parked: Parked) -> Synced:
        """Hand in or fetch assignments; returns when they are durable."""
        number, now = self.runtime.partition_of(group_id), self.runtime.now()
        return await self.runtime.park(number, lambda shard, waiter: shard.sync(group_id, request, waiter, now), parked)

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Note that a member is alive; REBALANCE_IN_PROGRESS asks it to join again."""
        number, now = self.runtime.partition_of(group_id), self.runtime.now()
        return self.runtime.decide(
            number, lambda shard: shard.heartbeat(group_id, member_id, instance_id, generation, now)
        )

    async def leave(self, group_id: str, identities: Sequence[tuple[str, str | None]]) -> list[ErrorCode]:
        """Take members, named by member id and instance id, out of their group; a code for each."""
        number, now = self.runtime.partition_of(group_id), self.runtime.now()
        return await self.runtime.write(number, lambda shard: shard.leave(group_id, identities, now))

    async def beat(self, group_id: str, beat: Beat) -> Beaten:
        """A member of a consumer group joins, stays or leaves; returns when that is durable.

        Raises:
            KafkaError: see `GroupShard.beat` too.
        """
        number, now = self.runtime.partition_of(group_id), self.runtime.now()
        beaten = await self.runtime.write(number, lambda shard: shard.beat(group_id, beat, now))
        if beaten.unresolved:
            task = asyncio.ensure_future(self._resolve(number, group_id, beaten.unresolved))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return beaten

    async def _resolve(self, number: int, group_id: str, regexes: Sequence[str]) -> None:
        """Look which topics the regular expressions of a group match, a little at a time, and write it down."""
        try:
            version, found = await self._replicas.turns.run("", matching(regexes, self._cluster()))
            now = self.runtime.now()
            await self.runtime.write(number, lambda shard: shard.resolve(group_id, found, version, now))
        except KafkaError as problem:
            log.warning("what the regular expressions of group %s match cannot be written: %s", group_id, problem)
            shard = self.runtime.shards().get(number)
            if shard is not None:
                shard.resolution_failed(group_id)

    def close(self) -> None:
        """The node stops."""
        for task in self._tasks:
            task.cancel()
        self.runtime.close()

    # Offsets

    async def commit(
        self, group_id: str, committer: Committer, offsets: Mapping[Place, NewOffset]
    ) -> dict[Place, ErrorCode]:
        """Store how far a group has read; a code for each, when it is durable.

        Raises:
            KafkaError: see `GroupShard.commit` too.
        """
        number, wall_ms = self.runtime.partition_of(group_id), self._machine.wall_ms()

        def write(part: Mapping[Place, NewOffset]) -> Awaitable[dict[Place, ErrorCode]]:
            now = self.runtime.now()
            return self.runtime.write(
                number,
                lambda shard: shard.commit(group_id, committer, part, now=now, wall_ms=wall_ms),
            )

        return await _in_stretches(offsets, write)

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
        """Store how far a group has read, to be in force when the producer's transaction is committed; a code for each, when it is durable.

        Args:
            verifier: asked whether the partition that keeps the group belongs to the transaction, before its first offsets there.
            add: have it added where it does not (KIP-890).

        Raises:
            KafkaError: see `GroupShard.commit` too; what `verifier` says; TRANSACTION_ABORTABLE where the transaction has ended
                meanwhile; INVALID_PRODUCER_EPOCH where a newer producer has taken over.
        """
        number = self.runtime.partition_of(group_id)
        if not self.runtime.is_open(number, producer.producer_id, producer.epoch):
            await self._verifications.verify(verifier, producer, (OFFSETS_TOPIC, number), add=add)
        wall_ms = self._machine.wall_ms()

        def write(part: Mapping[Place, NewOffset]) -> Awaitable[dict[Place, ErrorCode]]:
            now = self.runtime.now()
            return self.runtime.write_in_transaction(
                number,
                producer.producer_id,
                producer.epoch,
                lambda shard: shard.commit(group_id, committer, part, now=now, wall_ms=wall_ms),
            )

        return await _in_stretches(offsets, write)

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

    def group(self, group_id: str) -> Group | None:
        """The group, None where there is none."""
        return self.shard(group_id).groups.get(group_id)

    def shard(self, group_id: str) -> GroupShard:
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
                    log.error("what has expired in %s-%d cannot be removed: %s", OFFSETS_TOPIC, number, problem)
                    return
                await asyncio.sleep(0)

    def _expired(self, shard: GroupShard, part: Mapping[str, Sequence[Place]]) -> Decision[None]:
        retention_ms = self._config.get("offsets.retention.minutes") * 60_000
        return shard.expire(part, self._machine.wall_ms(), retention_ms, self._lives)

    def _lives(self, topic: str, topic_id: UUID) -> bool:
        """Whether it is still the topic that an offset was committed for; one without an id may be any of that name."""
        return topic in self._cluster().topics and (topic_id == ZERO_UUID or self._replicas.name_of(topic_id) == topic)


async def _in_stretches(
    offsets: Mapping[Place, NewOffset], write: Callable[[Mapping[Place, NewOffset]], Awaitable[dict[Place, ErrorCode]]]
) -> dict[Place, ErrorCode]:
    """Write offsets, so many at a time that others are served in between; a code for each. Each stretch is judged as a commit by itself:
    what was written before one that is refused stays.

    Raises:
        KafkaError: the first stretch is refused.
    """
    if len(offsets) <= OFFSETS_PER_COMMIT_MAX:
        return await write(offsets)
    codes: dict[Place, ErrorCode] = {}
    places = tuple(offsets)
    for start in range(0, len(places), OFFSETS_PER_COMMIT_MAX):
        part = {place: offsets[place] for place in places[start : start + OFFSETS_PER_COMMIT_MAX]}
        try:
            codes.update(await write(part))
        except KafkaError as problem:
            if not codes:
                raise
            codes.update(dict.fromkeys(part, problem.code))
        await asyncio.sleep(0)
    return codes
