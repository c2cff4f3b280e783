"""Runs the group shards on the partitions of `__consumer_offsets`.

What lives here: loading, appending decisions, holding replies until they are on disk, timers. What does not: any rule about
groups. The topic is made when the first group asks for its coordinator.
"""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final

from busway_bus.groups.classic import ClassicGroup, GroupLimits, Join, Joined, Synced
from busway_bus.groups.records import GroupMetadataKey, key_bytes, parse, value_bytes
from busway_bus.groups.shard import Change, GroupShard
from busway_bus.kernel.config import BrokerConfig
from busway_bus.replication.manager import ReplicaManager, wall_ms
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.records.builder import BatchBuilder
from busway_protocol.records.record import decode_records

log = logging.getLogger("busway.groups")
OFFSETS_TOPIC: Final = "__consumer_offsets"


def java_hash(text: str) -> int:
    """Java's String.hashCode: over UTF-16 units, as a signed 32-bit number."""
    hashed = 0
    for unit in memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H"):
        hashed = (hashed * 31 + unit) & 0xFFFFFFFF
    return hashed - 2**32 if hashed >= 2**31 else hashed


def partition_for(group_id: str, partitions: int) -> int:
    """The partition that keeps a group, as Kafka computes it: the hash without its sign, and 0 for the least int."""
    hashed = java_hash(group_id)
    return 0 if hashed == -(2**31) else abs(hashed) % partitions


def new_member_id(prefix: str) -> str:
    """A member id as Kafka makes them: what the client calls itself, and a random part."""
    return f"{prefix}-{uuid.uuid4()}"


class GroupCoordinator:
    """All groups of this node.

    Args:
        create_topic: makes the offsets topic.
    """

    def __init__(
        self,
        config: BrokerConfig,
        replicas: ReplicaManager,
        *,
        create_topic: Callable[[], Awaitable[None]],
        partitions: Callable[[], int],
        topic_exists: Callable[[str], bool],
    ) -> None:
        self._config = config
        self._replicas = replicas
        self._create_topic = create_topic
        self._partitions = partitions
        self._topic_exists = topic_exists
        self._limits = GroupLimits(
            min_session_timeout_ms=config.get("group.min.session.timeout.ms"),
            max_session_timeout_ms=config.get("group.max.session.timeout.ms"),
            initial_rebalance_delay_ms=config.get("group.initial.rebalance.delay.ms"),
            max_size=config.get("group.max.size"),
        )
        self._shards: dict[int, GroupShard] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._creating = asyncio.Lock()

    # Loading

    async def ensure(self) -> None:
        """Make sure that the offsets topic is there and loaded."""
        async with self._creating:
            if self._partitions() == 0:
                await self._create_topic()
            self.load()

    def load(self) -> None:
        """Load every shard that is not loaded yet."""
        for number in range(self._partitions()):
            if number not in self._shards:
                shard = GroupShard(limits=self._limits, new_member_id=new_member_id)
                shard.load(self._stored(number), wall_ms())
                self._shards[number] = shard
                for group in shard.groups.values():
                    self._set_timer(group)

    def _stored(self, number: int) -> Iterable[Change]:
        for batch in self._replicas.find(OFFSETS_TOPIC, number).log.batches():
            for record in decode_records(batch):
                found = parse(record.key, record.value) if record.key is not None else None
                if found is not None:
                    yield found

    def shard(self, group_id: str) -> GroupShard:
        """The shard of a group.

        Raises:
            KafkaError: INVALID_GROUP_ID, or NOT_COORDINATOR before anyone has asked for a coordinator.
        """
        if self._partitions() == 0:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        self.load()
        return self._shards[partition_for(group_id, self._partitions())]

    @property
    def shards(self) -> Iterable[GroupShard]:
        """All shards."""
        self.load()
        return self._shards.values()

    # Writing

    async def write(self, group_id: str, changes: Sequence[Change]) -> None:
        """Append the changes, apply them, and return when they are on disk.

        Raises:
            KafkaError: the disk failed.
        """
        done = self._append(group_id, changes)
        if done is not None:
            await done

    def _append(self, group_id: str, changes: Sequence[Change]) -> "asyncio.Future[None] | None":
        if not changes:
            return None
        shard = self.shard(group_id)
        partition = self._replicas.find(OFFSETS_TOPIC, partition_for(group_id, self._partitions()))
        builder = BatchBuilder()
        now = wall_ms()
        for key, value in changes:
            builder.append(now, key_bytes(key), value_bytes(value))
        _, done = self._replicas.append(partition, builder.build(), own=True)
        for key, value in changes:
            shard.apply(key, value, now)
        return done

    # The group machine

    async def join(self, group_id: str, request: Join) -> Joined:
        """Join a group; returns when the rebalance is over."""
        waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        group = self.shard(group_id).group(group_id)
        answer = group.join(request, waiter, wall_ms())
        self._settle(group)
        found = answer if answer is not None else await waiter
        assert isinstance(found, Joined)
        return found

    async def sync(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        assignments: Sequence[tuple[str, bytes]],
    ) -> Synced:
        """Hand in or fetch assignments; returns when they are on disk."""
        waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        group = self.shard(group_id).group(group_id)
        answer = group.sync(member_id, instance_id, generation, assignments, waiter=waiter, now=wall_ms())
        self._settle(group)
        found = answer if answer is not None else await waiter
        assert isinstance(found, Synced)
        return found

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Note that a member is alive."""
        group = self.shard(group_id).groups.get(group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = group.heartbeat(member_id, instance_id, generation, wall_ms())
        self._settle(group)
        return error

    def leave(self, group_id: str, member_id: str, instance_id: str | None) -> ErrorCode:
        """Take a member out of its group."""
        group = self.shard(group_id).groups.get(group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = group.leave(member_id, instance_id, wall_ms())
        self._settle(group)
        return error

    async def delete(self, group_id: str) -> ErrorCode:
        """Delete a group that is empty, with its offsets."""
        shard = self.shard(group_id)
        if not shard.known(group_id):
            return ErrorCode.GROUP_ID_NOT_FOUND
        group = shard.groups.get(group_id)
        if group is not None:
            error = group.delete(wall_ms())
            if error is not ErrorCode.NONE:
                return error
        await self.write(group_id, shard.delete_group(group_id))
        return ErrorCode.NONE

    def _settle(self, group: ClassicGroup) -> None:
        """Write down what changed, then answer who is due; arm the next timer."""
        due, group.outbox = group.outbox, []
        written = None
        if group.dirty:
            group.dirty = False
            written = self._append(group.group_id, [(GroupMetadataKey(group=group.group_id), group.record())])
        if written is None:
            _answer(due)
        else:
            written.add_done_callback(lambda done: _answer(due, done.exception()))
        self._set_timer(group)

    def _set_timer(self, group: ClassicGroup) -> None:
        old = self._timers.pop(group.group_id, None)
        if old is not None:
            old.cancel()
        deadline = group.next_deadline()
        if deadline is not None:
            loop = asyncio.get_running_loop()
            delay = max(0.0, (deadline - wall_ms()) / 1000)
            self._timers[group.group_id] = loop.call_later(delay, self._tick, group)

    def _tick(self, group: ClassicGroup) -> None:
        self._timers.pop(group.group_id, None)
        group.tick(wall_ms())
        self._settle(group)

    async def expire(self) -> None:
        """Remove offsets that nobody needs any more."""
        retention_ms = self._config.get("offsets.retention.minutes") * 60_000
        for shard in tuple(self.shards):
            by_group: dict[str, list[Change]] = {}
            for change in shard.expired(wall_ms(), retention_ms, self._topic_exists):
                by_group.setdefault(change[0].group, []).append(change)
            for group_id, changes in by_group.items():
                await self.write(group_id, changes)

    def close(self) -> None:
        """Stop the timers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()


def _answer(due: list[tuple[Any, Joined | Synced]], problem: BaseException | None = None) -> None:
    for waiter, answer in due:
        if waiter.done():
            continue
        if problem is None:
            waiter.set_result(answer)
        else:
            kind = Joined if isinstance(answer, Joined) else Synced
            waiter.set_result(kind(error=ErrorCode.COORDINATOR_NOT_AVAILABLE))
