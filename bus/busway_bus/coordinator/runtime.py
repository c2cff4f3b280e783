"""Runs the shards of an internal topic, one for each of its partitions, whatever they keep.

What lives here: finding a shard, deciding, appending, applying, holding answers until they are durable, timers, unloading. What does
not: what a shard decides (`shard`), reading its log (`loading`), who is told what (`replies`).

A decision is appended and applied before anything else is decided, so a shard is at every moment what its log says. A record that
cannot be appended has not happened. One that was appended and does not become durable takes its shard along: it is loaded again.
"""

import asyncio
import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from busway_bus.coordinator import replies
from busway_bus.coordinator.loading import Loader
from busway_bus.coordinator.placement import partition_for
from busway_bus.coordinator.replies import Durable
from busway_bus.coordinator.shard import IncrementalShard, Record, Shard
from busway_bus.kernel.decision import Decision, Unanswered, Waiter
from busway_bus.kernel.limits import RECORDS_PER_OWN_BATCH_MAX
from busway_bus.metadata.image import TopicImage
from busway_bus.replication.manager import ReplicaManager
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.machine import Machine
from busway_protocol.records.builder import BatchBuilder

S = TypeVar("S", bound=Shard)
R = TypeVar("R")
logger = logging.getLogger("busway.coordinator")


class Loaded(Generic[S]):
    """A shard that is served.

    Attributes:
        durable: done when all that was appended is; None when it is already.
        incremental: the shard, where it is told of offsets.
        timer: when it is looked at next, with the moment of its deadline.
    """

    __slots__ = ("durable", "incremental", "number", "shard", "timer")

    def __init__(self, number: int, shard: S) -> None:
        self.number = number
        self.shard = shard
        self.incremental: IncrementalShard | None = shard if isinstance(shard, IncrementalShard) else None
        self.durable: Durable | None = None
        self.timer: tuple[int, asyncio.TimerHandle] | None = None


class Runtime(Generic[S]):
    """All shards of a topic on this node.

    Args:
        new_shard: makes an empty one.
        image: the topic in the cluster's current picture, None while it is not there; another object whenever anything of it changes.
        loaded: told of each partition whose shard is served from now on.
        unloaded: called with each shard that is served here no longer.
    """

    def __init__(
        self,
        topic: str,
        new_shard: Callable[[], S],
        *,
        replicas: ReplicaManager,
        machine: Machine,
        image: Callable[[], TopicImage | None],
        loaded: Callable[[int, S], None] = lambda number, shard: None,
        unloaded: Callable[[S], None] = lambda shard: None,
    ) -> None:
        self._topic = topic
        self._replicas = replicas
        self._machine = machine
        self._image = image
        self._told_loaded = loaded
        self._notify_unloaded = unloaded
        self._followed: TopicImage | None = None
        self._loaded: dict[int, Loaded[S]] = {}
        self._loader = Loader(topic, replicas, new_shard, self.now, self._serve)
        self._epoch_ms = machine.wall_ms() - int(machine.monotonic_s() * 1000)

    def now(self) -> int:
        """Wall time in ms that never jumps: sessions are counted with it, and setting the clock must not end them."""
        return self._epoch_ms + int(self._machine.monotonic_s() * 1000)

    # Finding

    @property
    def partitions(self) -> int:
        """How many the topic has, 0 while it is not there."""
        image = self._image()
        return 0 if image is None else len(image.partitions)

    def partition_of(self, key: str) -> int:
        """The partition that keeps `key`.

        Raises:
            KafkaError: NOT_COORDINATOR, there is no topic yet: nobody has asked for a coordinator.
        """
        count = self.partitions
        if count == 0:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"{self._topic} is not there yet")
        return partition_for(key, count)

    def shard(self, number: int) -> S:
        """What a partition holds by now, durable or not.

        Raises:
            KafkaError: COORDINATOR_LOAD_IN_PROGRESS while its log is being read, COORDINATOR_NOT_AVAILABLE when it cannot be,
                NOT_COORDINATOR where another broker may be.
        """
        return self._find(number).shard

    def shards(self) -> dict[int, S]:
        """All that are served by now, by partition, whatever else is being read."""
        return {number: loaded.shard for number, loaded in sorted(self._loaded.items())}

    def all_shards(self) -> dict[int, S]:
        """All that can be served, by partition.

        Raises:
            KafkaError: COORDINATOR_LOAD_IN_PROGRESS, some are still being read.
        """
        self.load()
        if self._loader.busy:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{self._topic} is being read")
        return self.shards()

    def _find(self, number: int) -> Loaded[S]:
        if number not in self._loaded:
            self.load()
        loaded = self._loaded.get(number)
        if loaded is not None:
            return loaded
        raise self._loader.refusal(number)

    # Deciding

    def decide(self, number: int, operation: Callable[[S], Decision[R]]) -> R:
        """Decide, append and apply, and answer at once: for what may be told before it is durable.

        Raises:
            KafkaError: as `shard`; what the operation raises; NOT_COORDINATOR or COORDINATOR_NOT_AVAILABLE when it cannot be written.
        """
        return self._decide(self._find(number), operation).reply

    async def write(self, number: int, operation: Callable[[S], Decision[R]]) -> R:
        """Decide, append and apply; the reply when that, and all that it may have been decided on, is durable.

        Raises:
            KafkaError: as `decide`, also when it does not become durable.
        """
        loaded = self._find(number)
        decision = self._decide(loaded, operation)
        await replies.durably(loaded.durable)
        return decision.reply

    async def write_batch(
        self, number: int, batch: BatchBuilder, records: Sequence[Record], check: Callable[[S], None]
    ) -> None:
        """Append and apply a prepared batch, all of it or nothing; returns when it is durable.

        Args:
            batch: holds the records.
            check: refuses them at the moment of the write, or returns.

        Raises:
            KafkaError: as `write`, and what `check` raises.
        """
        loaded = self._find(number)
        check(loaded.shard)
        if records:
            self._append_batch(loaded, records, batch, loaded.shard.apply)
            self._set_timer(loaded)
        await replies.durably(loaded.durable)

    async def park(
        self,
        number: int,
        operation: Callable[[S, Waiter], Decision[R | Unanswered]],
        parked: Callable[["asyncio.Future[Any]"], None],
    ) -> R:
        """As `write`, but the operation may reply `PARKED`: the reply comes with the decision that has its waiter among what is `due`.

        Args:
            parked: told of the future that the answer is waited for with then; whoever ends it ends the wait, not what it is for.
        """
        loaded = self._find(number)
        waiter: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        decision = self._decide(loaded, lambda shard: operation(shard, waiter))
        reply = decision.reply
        if isinstance(reply, Unanswered):
            parked(waiter)
            return await waiter
        await replies.durably(loaded.durable)
        return reply

    async def read(self, number: int, operation: Callable[[S], R]) -> R:
        """What `operation` finds, once all that it may have found is durable: a crash must not take back what was told.

        Raises:
            KafkaError: as `write`.
        """
        return await self.write(number, lambda shard: Decision(reply=operation(shard)))

    def _decide(self, loaded: Loaded[S], operation: Callable[[S], Decision[R]]) -> Decision[R]:
        decision = operation(loaded.shard)
        try:
            if decision.records:
                self._append(loaded, decision, BatchBuilder, loaded.shard.apply)
        except KafkaError as problem:
            replies.fail([waiter for waiter, _ in decision.due], problem)
            raise
        finally:
            self._set_timer(loaded)
        if loaded.durable is None:
            replies.answer(decision.due, None)
        elif decision.due:
            loaded.durable.add_done_callback(functools.partial(replies.answer, decision.due))
        return decision

    def _append(
        self,
        loaded: Loaded[S],
        decision: Decision[Any],
        new_batch: Callable[[], BatchBuilder],
        apply: Callable[[Record, int], None],
    ) -> None:
        """Append and apply; no await in between, so that what was decided still holds.

        Raises:
            KafkaError: they cannot be written; those of batches before are, and are applied.
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
        """Append the batch that holds these records, and apply them.

        Raises:
            KafkaError: it cannot be written, and nothing is applied.
        """
        try:
            partition = self._replicas.find(self._topic, loaded.number)
            info, durable = self._replicas.append(partition, batch.build())
        except KafkaError as problem:
            raise replies.refusal(problem) from problem
        now = self.now()
        for offset, record in enumerate(records, info.first_offset):
            if loaded.incremental is not None:
                loaded.incremental.at(offset)
            apply(record, now)
        self._appended(loaded, durable)

    def _appended(self, loaded: Loaded[S], durable: Durable | None) -> None:
        """All of the log is durable when this is."""
        if durable is not None:
            loaded.durable = durable
            durable.add_done_callback(functools.partial(self._settled, loaded))

    def _settled(self, loaded: Loaded[S], durable: Durable) -> None:
        problem = durable.exception()
        if loaded.durable is durable and problem is None:
            loaded.durable = None
        if problem is not None and self._loaded.get(loaded.number) is loaded:
            self._unload(loaded)
            self.load()

    # Timers

    def _set_timer(self, loaded: Loaded[S]) -> None:
        deadline = loaded.shard.next_deadline()
        if deadline is None or (loaded.timer is not None and loaded.timer[0] <= deadline):
            return  # a timer that comes too early finds nothing to do, and costs less than one that is set anew each time
        if loaded.timer is not None:
            loaded.timer[1].cancel()
        delay_s = max(0, deadline - self.now()) / 1000
        loaded.timer = deadline, asyncio.get_running_loop().call_later(delay_s, self._tick, loaded)

    def _tick(self, loaded: Loaded[S]) -> None:
        loaded.timer = None
        try:
            self._decide(loaded, lambda shard: shard.tick(self.now()))
        except KafkaError as problem:
            logger.debug("what was due in %s-%d cannot be written: %s", self._topic, loaded.number, problem)

    # Loading

    def load(self) -> None:
        """Begin to load every shard that is not loaded yet."""
        self.follow()
        for number in range(self.partitions):
            if number not in self._loaded:
                self._loader.begin(number)

    async def wait_loaded(self, *, within_s: float) -> None:
        """Return when all is loaded that was begun, or the time is over."""
        await self._loader.wait(within_s=within_s)

    def look_again(self) -> None:
        """Load what the disk refused to give, and may not refuse now."""
        self._loader.look_again()
        self.load()

    def _serve(self, number: int, shard: S) -> None:
        loaded = self._loaded[number] = Loaded(number, shard)
        self._set_timer(loaded)
        self._told_loaded(number, shard)

    # Unloading

    def follow(self) -> None:
        """Let go of the shards of a topic that was deleted, and of partitions that this node leads no more: who waits has to look for
        the coordinator again. The node calls it whenever the metadata changes."""
        image, before = self._image(), self._followed
        if image is before:
            return
        self._followed = image
        if image is None or before is None or image.topic_id != before.topic_id:
            self._loader.stop()
            for loaded in tuple(self._loaded.values()):
                self._unload(loaded)
            return
        for number, (placed, placed_before) in enumerate(zip(image.partitions, before.partitions, strict=False)):
            if placed is not placed_before and number in self._loaded and not self._loader.led(number):
                self._unload(self._loaded[number])

    def _unload(self, loaded: Loaded[S]) -> None:
        del self._loaded[loaded.number]
        if loaded.timer is not None:
            loaded.timer[1].cancel()
        where = f"{self._topic}-{loaded.number} is looked after here no longer"
        self._notify_unloaded(loaded.shard)
        replies.fail(loaded.shard.unloaded(), KafkaError(ErrorCode.NOT_COORDINATOR, where))

    def close(self) -> None:
        """Stop the timers, and what is being loaded."""
        self._loader.stop()
        for loaded in self._loaded.values():
            if loaded.timer is not None:
                loaded.timer[1].cancel()
