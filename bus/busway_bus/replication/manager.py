"""Appending to the partitions of this node for the handlers, and the chores of all logs.

What lives here: append with group commit, retention, checkpoints. What does not: which partitions there are (`local_partitions`), rules
of the protocol (handlers) or of the disk (log).
"""

import asyncio
import functools
import logging
from collections.abc import Callable

from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.limits import INSPECTIONS_MAX
from busway_bus.log.flusher import Flusher
from busway_bus.log.inspection import RECORDS_ON_LOOP_MAX, inspect, inspected_at_once
from busway_bus.log.partition_log import AppendInfo, PartitionLog
from busway_bus.log.store import LogStore
from busway_bus.log.validate import check_batch
from busway_bus.replication.cleaning import Compactor, off_loop
from busway_bus.replication.local_partitions import LocalPartitions
from busway_bus.replication.partition import Partition
from busway_bus.replication.slices import Slices
from busway_bus.replication.turns import Turns
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.machine import Machine
from busway_protocol.records.batch import BatchHeader
from busway_protocol.types import Buffer

log = logging.getLogger("busway.replication")


Acknowledgement = tuple[AppendInfo, "asyncio.Future[None] | None"]
"""Where a batch was put, and a future that is done when it counts as acknowledged, None when it does already."""


class Allowance:
    """What one request may have looked through while all others wait."""

    __slots__ = ("_records",)

    def __init__(self) -> None:
        self._records = RECORDS_ON_LOOP_MAX

    def take(self, records: int) -> bool:
        """Whether so many records more are allowed."""
        self._records -= records
        return self._records >= 0


class ReplicaManager:
    """Every partition that this node leads.

    Attributes:
        slices: for what computes for long.
        turns: whose turn it is on the event loop.
    """

    def __init__(self, config: BrokerConfig, store: LogStore, flusher: Flusher, machine: Machine) -> None:
        self._wall_ms = machine.wall_ms
        self._config = config
        self._store = store
        self._flusher = flusher
        self.local = LocalPartitions(config, store, self._reconfigured, machine)
        self.find, self.name_of = self.local.find, self.local.name_of
        self._compactor = Compactor(store, machine)
        self._checkpointing = asyncio.Lock()
        self._inspections: set[asyncio.Task[Acknowledgement]] = set()
        self._inspecting = asyncio.Semaphore(INSPECTIONS_MAX)
        self.slices = Slices(machine)
        self.turns = Turns(machine)

    def may_have_lost(self) -> list[tuple[str, int]]:
        """After a start on what a killed process or a power cut left: the partitions that may have lost records that were read.

        Such offsets are given again, and only a new leader epoch tells a consumer so (KIP-320). Where the current epoch has not
        begun nothing was written in it, unless the topic shows records before anything of them is on disk. Nobody knows of those
        that are offline, and they may be back at any time.
        """
        return self.local.awaited() + [
            (each.topic, each.number)
            for each in self.local
            if each.log.epochs.latest >= each.leader_epoch or each.log.config.durability != "flush"
        ]

    def _reconfigured(self, partition: Partition) -> None:
        """Where records count as acknowledged on disk from now on, all get there at once."""
        partition.advance()
        if partition.log.config.durability == "flush" and partition.log.flushed_offset < partition.log.end_offset:
            self._flush_later(partition)

    def take_in(
        self, partition: Partition, records: Buffer, allowance: Allowance
    ) -> "Acknowledgement | asyncio.Task[Acknowledgement]":
        """Write the batch that a client sent; a task where looking through it takes long. Batches are written in the order in which
        they come, whether their senders are still there or not.

        Raises:
            KafkaError: the batch is refused, or the disk failed; the task's exception too.
        """
        header = check_batch(records, partition.log.config)
        if partition.turn is None and allowance.take(header.records_count):
            batch = inspected_at_once(records, header, partition.log.config, self._wall_ms())
            if batch is not None:
                return self._append(partition, functools.partial(partition.log.append_inspected, batch))
        before = partition.turn
        turn = partition.turn = asyncio.get_running_loop().create_future()
        task = asyncio.ensure_future(self._in_turn(partition, records, header, before, turn))
        self._inspections.add(task)
        task.add_done_callback(self._inspections.discard)
        return task

    async def _in_turn(
        self,
        partition: Partition,
        records: Buffer,
        header: BatchHeader,
        before: "asyncio.Future[None] | None",
        turn: "asyncio.Future[None]",
    ) -> Acknowledgement:
        try:
            try:
                async with self._inspecting:
                    batch = await self.slices.run(inspect(records, header, partition.log.config, self._wall_ms()))
            finally:
                if before is not None:  # also where this one is refused: those behind it wait for it alone
                    await asyncio.wait([before])
            if self.local.get((partition.topic, partition.number)) is not partition:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{partition.topic} was deleted meanwhile")
            return self._append(partition, functools.partial(partition.log.append_inspected, batch))
        finally:
            turn.set_result(None)
            if partition.turn is turn:
                partition.turn = None

    def append(self, partition: Partition, batch: Buffer) -> Acknowledgement:
        """Write a batch that this broker built itself.

        Raises:
            KafkaError: the disk failed.
        """
        return self._append(partition, functools.partial(partition.log.append_own, batch))

    def _append(self, partition: Partition, write: Callable[..., AppendInfo]) -> Acknowledgement:
        written = partition.log
        if self._flusher.failed is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the disk failed: {self._flusher.failed}")
        try:
            info = write(leader_epoch=partition.leader_epoch, now_ms=self._wall_ms())
        except OSError as problem:
            text = f"cannot write {written.directory}: {problem}"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, text) from problem
        if written.config.durability != "flush":
            if written.wants_flush:
                self._flush_later(partition)
            partition.advance()
            return info, None
        if info.duplicate and info.last_offset < written.flushed_offset:
            return info, None
        done = self._flusher.request(written)
        done.add_done_callback(lambda _: partition.advance())
        return info, done

    def _flush_later(self, partition: Partition) -> "asyncio.Future[None]":
        """Have a log synced although nobody is to be answered; the flusher itself reports a failure."""
        done = self._flusher.request(partition.log)
        done.add_done_callback(lambda future: future.cancelled() or future.exception())
        done.add_done_callback(lambda _: partition.advance())
        return done

    def flush_unforced(self) -> None:
        """Sync what topics with durability=interval wrote; the node calls this every 100 ms."""
        for partition in self.local:
            written = partition.log
            if written.config.durability == "interval" and written.flushed_offset < written.end_offset:
                self._flush_later(partition)

    async def close(self) -> None:
        """Drop what is being looked through: nobody is left to be answered."""
        for task in self._inspections:
            task.cancel()
        if self._inspections:
            await asyncio.wait(self._inspections)
        self.slices.close()

    async def maintain(self) -> None:
        """Retention, rolls, expiry, compaction and checkpoints; whatever waits for the disk does so in another thread, and what a
        thousand logs take is done in turns with what clients ask."""
        steps = self._store.maintain(self._wall_ms(), self._config.get("producer.id.expiration.ms"))
        for problem in await self.turns.run("", steps):
            log.error("cannot roll a segment of %s", problem)
        flushes = [self._flush_later(each) for each in self.local if each.log.wants_flush]
        if flushes:
            await asyncio.wait(flushes)
        for partition in self.local:
            if partition.log.has_deleted:
                await self._remove_deleted(partition.log)
        if self._config.get("log.cleaner.enable"):
            await self._compactor.run(self._wall_ms())
        await self.checkpoint()

    async def _remove_deleted(self, cut: PartitionLog) -> None:
        try:
            await off_loop(functools.partial(cut.remove_deleted, self._wall_ms()))
        except OSError as problem:
            log.error("cannot remove deleted segments of %s: %s", cut.directory, problem)

    async def checkpoint(self) -> None:
        """Write the offset checkpoints."""
        async with self._checkpointing:
            while True:
                taken = self._store.checkpoint({(each.topic, each.number): each.high_watermark for each in self.local})
                if await off_loop(functools.partial(self._store.write, taken)):
                    return
