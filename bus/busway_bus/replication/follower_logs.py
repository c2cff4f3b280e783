"""Changes of a follower's logs.

Here: appends of fetched batches, truncation, the sync that a fetch waits for.
Not here: what to do (`following`), when (`fetcher`), the files (`log`).
"""

import asyncio
import functools
import logging
from collections.abc import Callable

from busway_bus.log.disk_failures import DiskFailures
from busway_bus.log.flusher import Flusher
from busway_bus.log.producer_state import ProducerState
from busway_bus.log.store import LogStore
from busway_bus.replication.following import Append, ReplicaLog
from busway_bus.replication.log_manager import LogManager
from busway_bus.replication.partition import Partition
from busway_protocol.errors import ErrorCode, KafkaError, ProtocolError
from busway_protocol.machine import Machine
from busway_protocol.records.batch import iter_batches

logger = logging.getLogger("busway.replication")


def view(partition: Partition) -> ReplicaLog:
    """Return a partition's log as `following` needs it."""
    log = partition.log
    return ReplicaLog(
        start_offset=log.start_offset,
        end_offset=log.end_offset,
        leader_epoch=partition.state.leader_epoch,
        epochs=log.epochs,
    )


class FollowerLogs:
    """The logs of this node's followers.

    Cuts run in a thread, with nothing else that changes the log: this module's caller waits, and who registers another
    leader or deletes the partition waits for `Partition.uncut`. A cut that fails is repeated before anything else, also
    under another leader: `Partition.finish_cut`.
    """

    def __init__(
        self, store: LogStore, logs: LogManager, flusher: Flusher, failures: DiskFailures, machine: Machine
    ) -> None:
        self._store, self._logs, self._flusher, self._failures = store, logs, flusher, failures
        self._wall_ms = machine.wall_ms
        self._cutting: set[asyncio.Task[None]] = set()

    def must_restart(self, partition: Partition, step: Append) -> int | None:
        """Return where an empty log has to begin for the first batch, which may be below its leader's start offset."""
        log = partition.log
        if log.start_offset != log.end_offset:
            return None
        try:
            header = next((header for header, _ in iter_batches(step.records)), None)
        except ProtocolError:
            return None  # `append` says so
        if header is None or header.base_offset >= log.end_offset:
            return None
        return header.base_offset if header.last_offset >= log.end_offset else None

    def append(self, partition: Partition, step: Append) -> int:
        """Append fetched batches, then take over the leader's high watermark and start offset; return the bytes.

        Raises:
            CorruptBatch: a batch is damaged or does not follow; those before it are appended.
            KafkaError: KAFKA_STORAGE_ERROR, as before.
        """
        if self._flusher.failed is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the disk failed: {self._flusher.failed}")
        size_bytes = 0
        now_ms = self._wall_ms()
        log, leader_epoch = partition.log, partition.state.leader_epoch
        try:
            for header, batch in iter_batches(step.records):
                if header.partition_leader_epoch > leader_epoch:
                    break  # of a later leader: fetched again in its epoch
                if header.base_offset != log.end_offset:
                    self._gap(partition, header.base_offset)
                partition.appended(log.append_as_follower(batch, now_ms=now_ms))
                size_bytes += len(batch)
        except OSError as problem:
            self._failures.failed(log.directory, problem)
            text = f"cannot write {log.directory}: {problem}"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, text) from problem
        if self._failures.failing and size_bytes:
            self._failures.worked()
        if size_bytes and log.config.durability == "interval":
            self._logs.written(partition)
        partition.leader_high_watermark(step.high_watermark)
        start_offset = min(step.log_start_offset, partition.high_watermark)
        if start_offset > log.start_offset:
            log.advance_start(start_offset, now_ms)
        return size_bytes

    def _gap(self, partition: Partition, base_offset: int) -> None:
        """Prepare for a batch that does not begin at the end of the log.

        Before it compaction removed records: a restart accepts the gap below the cleaned offset.
        """
        log = partition.log
        if base_offset > log.end_offset and not log.config.compacted:
            self._store.note_cleaned((partition.topic, partition.index), base_offset)

    async def truncate(self, partition: Partition, offset: int) -> None:
        """Cut a log from `offset`; it goes on if the caller is cancelled.

        Raises:
            OSError: `Partition.finish_cut` repeats it, nothing may be appended before that succeeds.
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        log = partition.log
        if offset >= log.end_offset:
            log.end_epoch()
            return
        if offset < partition.high_watermark:
            logger.warning(
                "%s-%d is truncated from %d to %d, below the high watermark %d: the leader has other records",
                partition.topic,
                partition.index,
                log.end_offset,
                offset,
                partition.high_watermark,
            )
        if offset < log.start_offset:
            await self.restart(partition, offset)
            return
        key = partition.topic, partition.index
        await self._cut(
            partition, functools.partial(self._store.cut, key, offset, self._wall_ms()), partition.truncated
        )

    async def restart(self, partition: Partition, offset: int) -> None:
        """Remove all records; the log begins at `offset`. As `truncate`."""
        key = partition.topic, partition.index
        await self._cut(
            partition, functools.partial(self._store.begin_at, key, offset, self._wall_ms()), partition.restarted
        )

    async def _cut(self, partition: Partition, work: Callable[[], ProducerState], done: Callable[[], None]) -> None:
        assert partition.cutting is None, "a cut begins without a wait after `uncut`"
        partition.unfinished = functools.partial(self._cut, partition, work, done)
        cutting = partition.cutting = asyncio.ensure_future(self._run(partition, work, done))
        self._cutting.add(cutting)
        cutting.add_done_callback(self._ended)
        await asyncio.shield(cutting)

    async def _run(self, partition: Partition, work: Callable[[], ProducerState], done: Callable[[], None]) -> None:
        try:
            await self._flusher.cut(partition.log, work)
            done()
            partition.unfinished = None
        finally:
            partition.cutting = None

    def _ended(self, cutting: "asyncio.Task[None]") -> None:
        self._cutting.discard(cutting)
        if not cutting.cancelled():
            cutting.exception()  # its caller gets it, unless it was cancelled

    async def close(self) -> None:
        """Wait for cuts in progress."""
        if self._cutting:
            await asyncio.wait(self._cutting)

    async def synced(self, partitions: "list[Partition]") -> None:
        """Wait until what was appended counts as this node's own.

        KafkaError: the disk failed.
        """
        flushes = [
            self._flusher.request(partition.log, partition.flushed)
            for partition in partitions
            if partition.state.local_end_offset < partition.log.end_offset or partition.log.wants_flush
        ]
        if flushes:
            await asyncio.gather(*flushes)
