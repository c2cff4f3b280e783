"""Appending to the partitions of this node for the handlers, and the chores of all logs.

What lives here: append with group commit, retention, checkpoints. What does not: which partitions there are (`local_partitions`), rules
of the protocol (handlers) or of the disk (log).
"""

import asyncio
import functools
import logging

from busway_bus.kernel.config import BrokerConfig
from busway_bus.log.flusher import Flusher
from busway_bus.log.partition_log import AppendInfo, PartitionLog
from busway_bus.log.store import LogStore
from busway_bus.replication.cleaning import Compactor, off_loop
from busway_bus.replication.local_partitions import LocalPartitions, wall_ms
from busway_bus.replication.partition import Partition
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.types import Buffer

__all__ = ["ReplicaManager", "wall_ms"]

log = logging.getLogger("busway.replication")


class ReplicaManager:
    """Every partition that this node leads."""

    def __init__(self, config: BrokerConfig, store: LogStore, flusher: Flusher) -> None:
        self._config = config
        self._store = store
        self._flusher = flusher
        self.local = LocalPartitions(config, store)
        self.find, self.name_of = self.local.find, self.local.name_of
        self._compactor = Compactor(store)
        self._checkpointing = asyncio.Lock()

    def append(
        self, partition: Partition, records: Buffer, *, own: bool = False
    ) -> tuple[AppendInfo, "asyncio.Future[None] | None"]:
        """Write a batch; the future is done when it counts as acknowledged, None when it does already.

        Raises:
            KafkaError: the batch is refused, or the disk failed.
        """
        written = partition.log
        write = written.append_own if own else written.append
        if self._flusher.failed is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the disk failed: {self._flusher.failed}")
        try:
            info = write(records, leader_epoch=partition.leader_epoch, now_ms=wall_ms())
        except OSError as problem:
            text = f"cannot write {written.directory}: {problem}"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, text) from problem
        if written.config.durability != "flush":
            if written.unsynced_rolls:
                self._flush_later(partition)
            partition.wake()
            return info, None
        if info.duplicate and info.last_offset < written.flushed_offset:
            return info, None
        done = self._flusher.request(written)
        done.add_done_callback(lambda _: partition.wake())
        return info, done

    def _flush_later(self, partition: Partition) -> "asyncio.Future[None]":
        """Have a log synced although nobody is to be answered; the flusher itself reports a failure."""
        done = self._flusher.request(partition.log)
        done.add_done_callback(lambda future: future.cancelled() or future.exception())
        return done

    def flush_unforced(self) -> None:
        """Sync what topics with durability=interval wrote; the node calls this every 100 ms."""
        for partition in self.local:
            written = partition.log
            if written.config.durability == "interval" and written.flushed_offset < written.end_offset:
                self._flush_later(partition)

    async def maintain(self) -> None:
        """Retention, rolls, expiry, compaction and checkpoints; whatever waits for the disk does so in another thread."""
        for problem in self._store.maintain(wall_ms(), self._config.get("producer.id.expiration.ms")):
            log.error("cannot roll a segment of %s", problem)
        flushes = [self._flush_later(each) for each in self.local if each.log.unsynced_rolls]
        if flushes:
            await asyncio.wait(flushes)
        for partition in self.local:
            if partition.log.has_deleted:
                await self._remove_deleted(partition.log)
        if self._config.get("log.cleaner.enable"):
            await self._compactor.run(wall_ms())
        await self.checkpoint()

    @staticmethod
    async def _remove_deleted(cut: PartitionLog) -> None:
        try:
            await off_loop(functools.partial(cut.remove_deleted, wall_ms()))
        except OSError as problem:
            log.error("cannot remove deleted segments of %s: %s", cut.directory, problem)

    async def checkpoint(self) -> None:
        """Write the offset checkpoints."""
        async with self._checkpointing:
            while True:
                taken = self._store.checkpoint({(each.topic, each.number): each.high_watermark for each in self.local})
                if await off_loop(functools.partial(self._store.write, taken)):
                    return
