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

from busway_bus.coordinator.transactional import TransactionalRuntime
from busway_bus.coordinator.verifications import TransactionalProducer, Verifications
from busway_bus.groups.classic import ClassicGroup
from busway_bus.groups.classic_values import GroupLimits, Join, Joined, Sync, Synced
from busway_bus.groups.offsets import CommittedOffset, NewOffset, Place
from busway_bus.groups.shard import GroupShard
from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.decision import Decision
from busway_bus.kernel.limits import OFFSETS_PER_COMMIT_MAX
from busway_bus.kernel.topics import OFFSETS_TOPIC
from busway_bus.kernel.transactions import EndTransaction, TransactionVerifier
from busway_bus.metadata.image import TopicImage
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
        image: that topic as `Runtime` wants it.
        topic_exists: whether there is a topic of this name.
    """

    def __init__(
        self,
        config: BrokerConfig,
        replicas: ReplicaManager,
        machine: Machine,
        *,
        create_topic: Callable[[], Awaitable[None]],
        image: Callable[[], TopicImage | None],
        topic_exists: Callable[[str], bool],
    ) -> None:
        self._config = config
        self._replicas = replicas
        self._machine = machine
        self._create_topic = create_topic
        self._topic_exists = topic_exists
        self._limits = GroupLimits(
            min_session_timeout_ms=config.get("group.min.session.timeout.ms"),
            max_session_timeout_ms=config.get("group.max.session.timeout.ms"),
            initial_rebalance_delay_ms=config.get("group.initial.rebalance.delay.ms"),
            max_size=config.get("group.max.size"),
            max_offset_metadata_bytes=config.get("offset.metadata.max.bytes"),
        )
        self.runtime = TransactionalRuntime(
            OFFSETS_TOPIC,
            lambda: GroupShard(limits=self._limits, new_member_id=self._new_member_id),
            replicas=replicas,
            machine=machine,
            image=image,
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

    # Offsets

    async def commit(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        offsets: Mapping[Place, NewOffset],
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
                lambda shard: shard.commit(
                    group_id, member_id, instance_id, generation, part, now=now, wall_ms=wall_ms
                ),
            )

        return await _in_stretches(offsets, write)

    async def commit_in_transaction(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
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
            KafkaError: see `GroupShard.commit_in_transaction` too; what `verifier` says; TRANSACTION_ABORTABLE where the transaction has ended
                meanwhile; INVALID_PRODUCER_EPOCH where a newer producer has taken over.
        """
        number = self.runtime.partition_of(group_id)
        if not self.runtime.is_open(number, producer.producer_id, producer.epoch):
            await self._verifications.verify(verifier, producer, (OFFSETS_TOPIC, number), add=add)
        wall_ms = self._machine.wall_ms()

        def write(part: Mapping[Place, NewOffset]) -> Awaitable[dict[Place, ErrorCode]]:
            return self.runtime.write_in_transaction(
                number,
                producer.producer_id,
                producer.epoch,
                lambda shard: shard.commit_in_transaction(
                    group_id, member_id, instance_id, generation, part, wall_ms=wall_ms
                ),
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

    async def offsets(self, group_id: str) -> tuple[dict[Place, CommittedOffset], frozenset[Place]]:
        """How far a group has read, and the partitions of which an open transaction may change that; both as far as it is durable."""
        number = self.runtime.partition_of(group_id)
        return await self.runtime.read(
            number, lambda shard: (dict(shard.offsets.get(group_id, {})), frozenset(shard.pending.of(group_id)))
        )

    async def delete_offsets(self, group_id: str, places: Collection[Place]) -> dict[Place, ErrorCode]:
        """Forget offsets of a group; a code for each.

        Raises:
            KafkaError: see `GroupShard.delete_offsets` too.
        """
        number = self.runtime.partition_of(group_id)
        return await self.runtime.write(number, lambda shard: shard.delete_offsets(group_id, places))

    # Groups

    def group(self, group_id: str) -> ClassicGroup | None:
        """The group, None where there is none."""
        return self.shard(group_id).groups.get(group_id)

    def shard(self, group_id: str) -> GroupShard:
        """What is kept beside the group, in the same partition."""
        return self.runtime.shard(self.runtime.partition_of(group_id))

    def groups(self) -> list[ClassicGroup]:
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
        return self._topic_exists(topic) and (topic_id == ZERO_UUID or self._replicas.name_of(topic_id) == topic)


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
