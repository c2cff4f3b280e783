"""Maintenance of all logs: retention, rolls, expiry, compaction, checkpoints, background flushes.

Here: scheduling beside client requests.
Not here: appending (`manager`), the choice and cleaning of segments (`log`).
"""

import asyncio
import functools
import logging

from busway_bus.kernel.config import BrokerConfig
from busway_bus.log.flusher import Flusher
from busway_bus.log.partition_log import PartitionLog
from busway_bus.log.store import LogStore
from busway_bus.replication.local_partitions import LocalPartitions
from busway_bus.replication.log_cleaner import LogCleaner
from busway_bus.replication.partition import Partition
from busway_bus.scheduling.fair_share import FairScheduler
from busway_bus.scheduling.off_loop import off_loop
from busway_protocol.machine import Machine

logger = logging.getLogger("busway.replication")


class LogManager:
    def __init__(
        self,
        config: BrokerConfig,
        store: LogStore,
        flusher: Flusher,
        partitions: LocalPartitions,
        *,
        scheduler: FairScheduler,
        machine: Machine,
    ) -> None:
        self._config = config
        self._store = store
        self._flusher = flusher
        self._partitions = partitions
        self._scheduler = scheduler
        self._wall_ms = machine.wall_ms
        self._log_cleaner = LogCleaner(store, machine)
        self._checkpointing = asyncio.Lock()
        self._unforced: dict[Partition, None] = {}
        """Partitions with durability=interval and possibly unflushed records."""

    def written(self, partition: Partition) -> None:
        """Register a written or reconfigured partition for `flush_intervals`."""
        if partition.log.config.durability == "interval":
            self._unforced[partition] = None

    def flush_intervals(self) -> None:
        """Sync partitions with durability=interval; the node calls this every 100 ms."""
        for partition in tuple(self._unforced):
            if (
                partition.log.config.durability == "interval"
                and partition.log.flushed_offset < partition.log.end_offset
                and self._partitions.get((partition.topic, partition.index)) is partition
            ):
                self.flush(partition)
            else:
                del self._unforced[partition]

    def flush(self, partition: Partition) -> None:
        self._flusher.flush(partition.log, partition.flushed)

    async def expire_producers(self) -> None:
        after_ms = self._config.get("producer.id.expiration.ms")
        await self._scheduler.run("", self._store.expire_producers(self._wall_ms(), after_ms))

    async def maintain(self) -> None:
        """Run retention, rolls, compaction and checkpoints.

        Disk I/O runs in another thread; work alternates with client requests.
        """
        steps = self._store.maintain(self._wall_ms())
        for problem in await self._scheduler.run("", steps):
            logger.error("cannot roll a segment of %s", problem)
        await self._flush_rolled()
        for partition in self._partitions:
            if partition.log.has_deleted and not partition.log.busy:
                await self._remove_deleted(partition.log)
        if self._config.get("log.cleaner.enable"):
            await self._log_cleaner.run(self._wall_ms())
        while await off_loop(self._store.settle_new):
            pass
        await self.checkpoint()

    async def _flush_rolled(self) -> None:
        flushes = [
            self._flusher.request(partition.log, partition.flushed)
            for partition in self._partitions
            if partition.log.wants_flush
        ]
        await asyncio.gather(*flushes, return_exceptions=True)

    async def _remove_deleted(self, cut: PartitionLog) -> None:
        try:
            await off_loop(functools.partial(cut.remove_deleted, self._wall_ms()))
        except OSError as problem:
            logger.error("cannot remove deleted segments of %s: %s", cut.directory, problem)

    async def checkpoint(self) -> None:
        async with self._checkpointing:
            while True:
                high_watermarks = {
                    (partition.topic, partition.index): min(partition.high_watermark, partition.log.flushed_offset)
                    if partition.log.busy
                    else partition.high_watermark
                    for partition in self._partitions
                }
                if await off_loop(functools.partial(self._store.write, self._store.checkpoint(high_watermarks))):
                    return
