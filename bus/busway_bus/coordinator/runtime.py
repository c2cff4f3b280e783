"""Runs the shards of an internal topic, one per partition.

Here: deciding, appending, applying, replies after durability, timers, unloading.
Not here: the decisions (`shard`), reading the log (`loading`), errors of replies (`replies`).

A decision is appended and applied before the next; a record that cannot be appended has no effect. A shard belongs to
one leader epoch of its partition: it is loaded when that begins, whatever of the log is not committed yet, and
unloaded when it ends. It is reloaded if an appended record does not become durable.
"""

import asyncio
import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from busway_bus.coordinator import replies
from busway_bus.coordinator.loading import Loader, leads
from busway_bus.coordinator.placement import partition_for
from busway_bus.coordinator.replies import Durable
from busway_bus.coordinator.shard import IncrementalShard, Record, Shard
from busway_bus.kernel.decision import Decision, Unanswered, Waiter
from busway_bus.kernel.limits import RECORDS_PER_OWN_BATCH_MAX
from busway_bus.metadata.image import TopicImage
from busway_bus.replication.manager import ReplicaManager
from busway_bus.replication.partition import Partition
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.machine import Machine
from busway_protocol.records.builder import BatchBuilder

S = TypeVar("S", bound=Shard)
R = TypeVar("R")
logger = logging.getLogger("busway.coordinator")
WRITE_TIMEOUT_MS: Final = 5_000
"""Kafka's default for groups and share states (`offsets.commit.timeout.ms`)."""


class Loaded(Generic[S]):
    """A shard that is served.

    Attributes:
        leader_epoch: of the partition, in which alone the shard may decide.
        durable: done once everything in the log is durable; None if it is.
        timer: the deadline and the handle of the next tick.
    """

    __slots__ = ("durable", "incremental", "leader_epoch", "partition", "replica", "shard", "timer")

    def __init__(self, partition: int, replica: Partition, leader_epoch: int, shard: S) -> None:
        self.partition = partition
        self.replica = replica
        self.leader_epoch = leader_epoch
        self.shard = shard
        self.incremental: IncrementalShard | None = shard if isinstance(shard, IncrementalShard) else None
        self.durable: Durable | None = None
        self.timer: tuple[int, asyncio.TimerHandle] | None = None

    @property
    def current(self) -> bool:
        """Whether its leader epoch goes on."""
        return leads(self.replica, self.leader_epoch)


class Runtime(Generic[S]):
    """All shards of a topic on this node.

    Methods raise COORDINATOR_LOAD_IN_PROGRESS while a shard's log is read, COORDINATOR_NOT_AVAILABLE if it cannot be
    read or written, NOT_COORDINATOR where another broker may be, and the operation's errors.

    Args:
        image: the topic in the current image, None if missing; a new object after every change.
        timeout_ms: longest wait of a reply for other replicas; without those it lasts until the disk has the record.
        loaded: called with each partition and shard once served.
        unloaded: called with each shard no longer served.
    """

    def __init__(
        self,
        topic: str,
        new_shard: Callable[[], S],
        *,
        replicas: ReplicaManager,
        machine: Machine,
        image: Callable[[], TopicImage | None],
        timeout_ms: int = WRITE_TIMEOUT_MS,
        loaded: Callable[[int, S], None] = lambda partition, shard: None,
        unloaded: Callable[[S], None] = lambda shard: None,
    ) -> None:
        self._topic = topic
        self._replicas = replicas
        self._machine = machine
        self._image = image
        self._timeout_s = timeout_ms / 1000
        self._notify_loaded = loaded
        self._notify_unloaded = unloaded
        self._followed: TopicImage | None = None
        self._loaded: dict[int, Loaded[S]] = {}
        self._loader = Loader(topic, replicas, new_shard, self.now, self._serve)
        self._epoch_ms = machine.wall_ms() - int(machine.monotonic_s() * 1000)

    def now(self) -> int:
        """Return wall time in ms that never jumps: setting the clock ends no session."""
        return self._epoch_ms + int(self._machine.monotonic_s() * 1000)

    # Finding

    @property
    def partitions(self) -> int:
        image = self._image()
        return 0 if image is None else len(image.partitions)

    def partition_of(self, key: str) -> int:
        """Return the partition that keeps `key`.

        NOT_COORDINATOR: the topic does not exist.
        """
        count = self.partitions
        if count == 0:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"{self._topic} is not there yet")
        return partition_for(key, count)

    def shard(self, partition: int) -> S:
        """Return a partition's state, including what is not durable yet."""
        return self._find(partition).shard

    def shards(self) -> dict[int, S]:
        return {partition: loaded.shard for partition, loaded in sorted(self._loaded.items())}

    def all_shards(self) -> dict[int, S]:
        """Return all shards, or raise COORDINATOR_LOAD_IN_PROGRESS."""
        self.load()
        if self._loader.busy:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{self._topic} is being read")
        return self.shards()

    def _find(self, partition: int) -> Loaded[S]:
        loaded = self._loaded.get(partition)
        if loaded is not None and loaded.current:
            return loaded
        self.follow()
        self._follow(partition)
        loaded = self._loaded.get(partition)
        if loaded is not None:
            return loaded
        raise self._loader.refusal(partition)

    # Deciding

    def decide(self, partition: int, operation: Callable[[S], Decision[R]]) -> R:
        """Decide, append and apply; return the reply before it is durable."""
        return self._decide(self._find(partition), operation).reply

    async def write(self, partition: int, operation: Callable[[S], Decision[R]]) -> R:
        """Decide, append and apply; return the reply once all is durable."""
        loaded = self._find(partition)
        decision = self._decide(loaded, operation)
        await self._durably(loaded)
        return decision.reply

    async def write_batch(
        self, number: int, batch: BatchBuilder, records: Sequence[Record], check: Callable[[S], None]
    ) -> None:
        """Append and apply a prepared batch, all or nothing; return once durable.

        Args:
            check: raises to refuse them at the moment of the write.
        """
        loaded = self._find(number)
        check(loaded.shard)
        if records:
            self._append_batch(loaded, records, batch, loaded.shard.apply)
            self._set_timer(loaded)
        await self._durably(loaded)

    async def park(
        self,
        partition: int,
        operation: Callable[[S, Waiter], Decision[R | Unanswered]],
        parked: Callable[["asyncio.Future[Any]"], None],
    ) -> R:
        """As `write`; after `PARKED`, wait for a later decision's reply.

        `parked` is called with the future of a parked request. Cancelling it ends only the wait.
        """
        loaded = self._find(partition)
        waiter: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        decision = self._decide(loaded, lambda shard: operation(shard, waiter))
        reply = decision.reply
        if isinstance(reply, Unanswered):
            parked(waiter)
            return await waiter
        await self._durably(loaded)
        return reply

    async def read(self, partition: int, operation: Callable[[S], R]) -> R:
        """Read a shard; return once what was read is durable: no crash revokes it."""
        return await self.write(partition, lambda shard: Decision(reply=operation(shard)))

    async def _durably(self, loaded: Loaded[S]) -> None:
        if loaded.durable is not None:
            within_s = self._timeout_s if loaded.replica.state.followers else None
            await replies.durably(loaded.durable, within_s)

    def _decide(self, loaded: Loaded[S], operation: Callable[[S], Decision[R]]) -> Decision[R]:
        decision = operation(loaded.shard)
        try:
            if decision.records:
                self._append(loaded, decision, BatchBuilder, loaded.shard.apply)
        except KafkaError as problem:
            replies.fail([waiter for waiter, _ in decision.responses], problem)
            raise
        finally:
            self._set_timer(loaded)
        if loaded.durable is None:
            replies.answer(decision.responses, None)
        elif decision.responses:
            loaded.durable.add_done_callback(functools.partial(replies.answer, decision.responses))
        return decision

    def _append(
        self,
        loaded: Loaded[S],
        decision: Decision[Any],
        new_batch: Callable[[], BatchBuilder],
        apply: Callable[[Record, int], None],
    ) -> None:
        """Append and apply without an await: the decision still holds.

        KafkaError: a batch cannot be written; those before it are written and applied.
        """
        records: tuple[Record, ...] = decision.records
        at_once = len(records) if decision.whole else RECORDS_PER_OWN_BATCH_MAX
        for start in range(0, len(records), at_once):
            part = records[start : start + at_once]
            builder, wall_ms = new_batch(), self._machine.wall_ms()
            for record in part:
                builder.append(wall_ms, *loaded.shard.encode(record))
            self._append_batch(loaded, part, builder, apply)

    def _append_batch(
        self,
        loaded: Loaded[S],
        records: Sequence[Record],
        batch: BatchBuilder,
        apply: Callable[[Record, int], None],
    ) -> None:
        """Append the batch of these records, then apply them.

        KafkaError: nothing is written or applied.
        """
        try:
            info, durable = self._replicas.append(self._replica(loaded), batch.build())
        except KafkaError as problem:
            raise replies.refusal(problem) from problem
        now = self.now()
        for offset, record in enumerate(records, info.first_offset):
            if loaded.incremental is not None:
                loaded.incremental.at(offset)
            apply(record, now)
        self._appended(loaded, durable)

    def _replica(self, loaded: Loaded[S]) -> Partition:
        """Return the log to append a decision of a shard to.

        KafkaError: the shard's leader epoch is over, so that another broker may have written since.
        """
        replica = self._replicas.find(self._topic, loaded.partition)
        if replica is not loaded.replica or not loaded.current:
            text = f"{self._topic}-{loaded.partition} is not led in epoch {loaded.leader_epoch} any more"
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, text)
        return replica

    def _appended(self, loaded: Loaded[S], durable: Durable | None) -> None:
        if durable is not None:
            loaded.durable = durable
            durable.add_done_callback(functools.partial(self._settled, loaded))

    def _settled(self, loaded: Loaded[S], durable: Durable) -> None:
        problem = durable.exception()
        if loaded.durable is durable and problem is None:
            loaded.durable = None
        if problem is not None and self._loaded.get(loaded.partition) is loaded:
            self._unload(loaded)
            self._loader.begin(loaded.partition)

    # Timers

    def _set_timer(self, loaded: Loaded[S]) -> None:
        deadline = loaded.shard.next_deadline()
        if deadline is None or (loaded.timer is not None and loaded.timer[0] <= deadline):
            return  # an early timer finds nothing to do, and costs less than a reset each time
        if loaded.timer is not None:
            loaded.timer[1].cancel()
        delay_s = max(0, deadline - self.now()) / 1000
        loaded.timer = deadline, asyncio.get_running_loop().call_later(delay_s, self._tick, loaded)

    def _tick(self, loaded: Loaded[S]) -> None:
        loaded.timer = None
        try:
            self._decide(loaded, lambda shard: shard.tick(self.now()))
        except KafkaError as problem:
            logger.debug("what was due in %s-%d cannot be written: %s", self._topic, loaded.partition, problem)

    # Loading

    def load(self) -> None:
        self.follow()
        for partition in range(self.partitions):
            self._follow(partition)

    @property
    def loading(self) -> bool:
        return self._loader.busy

    async def wait_loaded(self, *, within_s: float) -> None:
        await self._loader.wait(within_s=within_s)

    def retry_failed(self) -> None:
        """Load what failed with a disk error."""
        self._loader.retry_failed()
        self.load()

    def _serve(self, partition: int, replica: Partition, leader_epoch: int, shard: S) -> None:
        loaded = self._loaded[partition] = Loaded(partition, replica, leader_epoch, shard)
        self._appended(loaded, replies.committed(replica, replica.log.end_offset))
        self._set_timer(loaded)
        self._notify_loaded(partition, shard)

    # Leadership

    def follow(self) -> None:
        """Load shards of partitions whose leader this node became; unload those of others and of a deleted topic.

        Parked requests fail with NOT_COORDINATOR. Call it on every change of metadata.
        """
        image, before = self._image(), self._followed
        if image is before:
            return
        self._followed = image
        if image is None or before is None or image.topic_id != before.topic_id:
            self._loader.stop()
            for loaded in tuple(self._loaded.values()):
                self._unload(loaded)
            before = None
        placed_before = () if before is None else before.partitions
        for partition, placed in enumerate(() if image is None else image.partitions):
            if partition >= len(placed_before) or placed is not placed_before[partition]:
                self._follow(partition)

    def _follow(self, partition: int) -> None:
        loaded = self._loaded.get(partition)
        if loaded is not None and loaded.current:
            return
        if loaded is not None:
            self._unload(loaded)
        self._loader.begin(partition)

    def _unload(self, loaded: Loaded[S]) -> None:
        del self._loaded[loaded.partition]
        if loaded.timer is not None:
            loaded.timer[1].cancel()
        where = f"{self._topic}-{loaded.partition} is looked after here no longer"
        self._notify_unloaded(loaded.shard)
        replies.fail(loaded.shard.unloaded(), KafkaError(ErrorCode.NOT_COORDINATOR, where))

    def close(self) -> None:
        self._loader.stop()
        for loaded in self._loaded.values():
            if loaded.timer is not None:
                loaded.timer[1].cancel()
