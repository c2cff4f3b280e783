"""The share coordinator: states of share partitions for their leaders (KIP-932).

Here: choosing the shard, periodic work: new snapshots, deletion of old records and of states of deleted topics.
Not here: the rules (`share_state.shard`), storage and waiting (`runtime`).
"""

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator
from uuid import UUID

from busway_bus.coordinator.runtime import Runtime
from busway_bus.coordinator.shared_call import SharedCall
from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.decision import Decision
from busway_bus.kernel.limits import SHARE_STATE_BATCHES_PER_TICK_MAX, SHARE_STATES_BYTES_MAX, SHARE_STATES_PER_TICK_MAX
from busway_bus.kernel.share_state import SharePartitionKey, ShareState
from busway_bus.kernel.topics import SHARE_STATE_TOPIC
from busway_bus.log.checkpoints import uuid_text
from busway_bus.metadata.delta import Delta
from busway_bus.metadata.image import ClusterImage, TopicImage
from busway_bus.replication.manager import ReplicaManager
from busway_bus.share_state.shard import ShareStateShard
from busway_protocol.errors import KafkaError
from busway_protocol.machine import Machine

logger = logging.getLogger("busway.share")


def coordinator_key(key: SharePartitionKey) -> str:
    """Return Kafka's FindCoordinator key of a share partition."""
    return f"{key.group_id}:{uuid_text(key.topic_id)}:{key.partition}"


class ShareCoordinator:
    """All states on this node; a `SharePersister`.

    Args:
        image: `__share_group_state`, as for `Runtime`; `create_topic` creates it.

    Attributes:
        reinitialized: called after a reset or deletion: the share partition leader's state is stale.
    """

    def __init__(
        self,
        config: BrokerConfig,
        replicas: ReplicaManager,
        machine: Machine,
        *,
        create_topic: Callable[[], Awaitable[None]],
        image: Callable[[], TopicImage | None],
        exists: Callable[[UUID, int], bool],
    ) -> None:
        self._replicas = replicas
        self._machine = machine
        self._creation = SharedCall(create_topic)
        updates = config.get("share.coordinator.snapshot.update.records.per.snapshot")
        self.runtime = Runtime(
            SHARE_STATE_TOPIC,
            lambda: ShareStateShard(exists=exists, updates_per_snapshot=updates),
            replicas=replicas,
            machine=machine,
            timeout_ms=config.get("share.coordinator.write.timeout.ms"),
            image=image,
        )
        self.reinitialized: Callable[[SharePartitionKey], None] = lambda _: None

    async def ensure(self) -> None:
        if self.runtime.partitions == 0:
            await self._creation.made()
        self.runtime.load()

    def _partition_of(self, key: SharePartitionKey) -> int:
        return self.runtime.partition_of(coordinator_key(key))

    def _held_bytes(self) -> int:
        return sum(shard.held_bytes for shard in self.runtime.shards().values())

    # `SharePersister`

    async def initialize(self, key: SharePartitionKey, *, state_epoch: int, start_offset: int) -> None:
        """As `SharePersister`; creates the topic if necessary."""
        if self.runtime.partitions == 0:
            await self.ensure()
        has_room = self._held_bytes() < SHARE_STATES_BYTES_MAX
        try:
            await self.runtime.write(
                self._partition_of(key),
                lambda shard: shard.initialize(
                    key,
                    state_epoch=state_epoch,
                    start_offset=start_offset,
                    wall_ms=self._machine.wall_ms(),
                    has_room=has_room,
                ),
            )
        finally:
            self.reinitialized(key)

    async def read(self, key: SharePartitionKey, *, leader_epoch: int) -> ShareState:
        return await self.runtime.write(
            self._partition_of(key),
            lambda shard: shard.read(key, leader_epoch=leader_epoch, wall_ms=self._machine.wall_ms()),
        )

    async def write(self, key: SharePartitionKey, change: ShareState) -> None:
        room_bytes = SHARE_STATES_BYTES_MAX - self._held_bytes()
        await self.runtime.write(
            self._partition_of(key),
            lambda shard: shard.write(key, change, wall_ms=self._machine.wall_ms(), room_bytes=room_bytes),
        )

    async def summary(self, key: SharePartitionKey) -> ShareState:
        return await self.runtime.read(self._partition_of(key), lambda shard: shard.summary(key))

    async def delete(self, key: SharePartitionKey) -> None:
        try:
            await self.runtime.write(self._partition_of(key), lambda shard: shard.delete(key))
        finally:
            self.reinitialized(key)

    # Time

    async def follow(self, image: ClusterImage, delta: Delta) -> None:
        if delta.removed:
            await self._forget(tuple(delta.removed))

    async def renew(self, *, older_ms: int) -> None:
        """Rewrite snapshots of at least this age.

        A `quiet` shard is skipped: its log must not grow.
        """
        self.runtime.load()
        for partition, shard in self.runtime.shards().items():
            if shard.quiet:
                continue
            wall_ms = self._machine.wall_ms()
            for part in _parts(shard):
                decide = functools.partial(ShareStateShard.renewed, keys=part, wall_ms=wall_ms, older_ms=older_ms)
                if not await self._written(partition, shard, decide):
                    break

    async def prune(self) -> None:
        """Advance each log's start past records that durable ones replace.

        Also retry deletions of states that could not be written.
        """
        self.runtime.load()
        for partition, shard in self.runtime.shards().items():
            gone = shard.gone()
            if gone:
                await self._forget(gone)
            needed_from = shard.needed_from()
            try:
                await self.runtime.read(partition, lambda shard: None)
                self._cut(partition, shard, needed_from)
            except KafkaError as problem:
                logger.error("%s-%d cannot be cut: %s", SHARE_STATE_TOPIC, partition, problem)
        await self._replicas.logs.checkpoint()

    def _cut(self, partition: int, shard: ShareStateShard, needed_from: int) -> None:
        if self.runtime.shards().get(partition) is not shard:
            return
        replica = self._replicas.find(SHARE_STATE_TOPIC, partition)
        offset = min(needed_from, replica.high_watermark)
        if offset > replica.log.start_offset:
            replica.log.advance_start(offset, self._machine.wall_ms())

    async def _forget(self, topic_ids: Collection[UUID]) -> None:
        for partition, shard in self.runtime.shards().items():
            decide = functools.partial(ShareStateShard.forget, topic_ids=topic_ids, at_most=SHARE_STATES_PER_TICK_MAX)
            while await self._written(partition, shard, decide):
                pass

    async def _written(
        self, partition: int, shard: ShareStateShard, decide: Callable[[ShareStateShard], Decision[bool]]
    ) -> bool:
        if self.runtime.shards().get(partition) is not shard:
            return False  # unloaded or reloaded
        try:
            more = self.runtime.decide(partition, decide)
        except KafkaError as problem:
            logger.error("what is due in %s-%d cannot be written: %s", SHARE_STATE_TOPIC, partition, problem)
            return False
        await asyncio.sleep(0)
        return more


def _parts(shard: ShareStateShard) -> Iterator[list[SharePartitionKey]]:
    part: list[SharePartitionKey] = []
    batches = 0
    for key in tuple(shard.partitions):
        kept = shard.partitions.get(key)
        part.append(key)
        batches += 0 if kept is None else len(kept.state.batches)
        if len(part) >= SHARE_STATES_PER_TICK_MAX or batches >= SHARE_STATE_BATCHES_PER_TICK_MAX:
            yield part
            part, batches = [], 0
    if part:
        yield part
