"""Appends to the partitions of this node, and their acknowledgement.

Here: inspection, writes in order of arrival, flushes, acknowledgements.
Not here: the partitions (`local_partitions`), commitment (`partition_state`), maintenance (`log_manager`).
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.limits import INSPECTIONS_MAX
from busway_bus.kernel.node_channels import BrokerChannels, ControllerChannel
from busway_bus.kernel.replication_configs import RACK_AWARE
from busway_bus.kernel.transactions import EndTransaction
from busway_bus.log.disk_failures import DiskFailures
from busway_bus.log.flusher import Flusher
from busway_bus.log.inspection import RECORDS_ON_LOOP_MAX, Inspected, inspect, inspected_at_once
from busway_bus.log.partition_log import AppendInfo
from busway_bus.log.producer_state import Verification
from busway_bus.log.store import LogStore
from busway_bus.log.validate import check_batch
from busway_bus.metadata.image import ClusterImage
from busway_bus.replication.acknowledgements import Acknowledged
from busway_bus.replication.isr import AlterPartition, FollowerFetch
from busway_bus.replication.local_partitions import Key, LocalPartitions, Peers
from busway_bus.replication.log_manager import LogManager
from busway_bus.replication.newest_read import NewestRead
from busway_bus.replication.partition import Partition
from busway_bus.replication.partition_state import ACKS_ALL
from busway_bus.replication.transaction_verification import TransactionVerifications
from busway_bus.scheduling.fair_share import FairScheduler
from busway_bus.scheduling.time_slices import Slices
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.machine import Machine
from busway_protocol.records.batch import BatchHeader
from busway_protocol.types import Buffer

if TYPE_CHECKING:
    from busway_bus.replication.replicator import Replicator


class InspectionBudget:
    """One request's records that may be inspected on the event loop."""

    __slots__ = ("_records",)

    def __init__(self) -> None:
        self._records = RECORDS_ON_LOOP_MAX

    def take(self, records: int) -> bool:
        self._records -= records
        return self._records >= 0


class _Peers(Peers):
    """The replicator, once there is one.

    Args:
        flush: syncs what a new leader has appended as a follower.
    """

    def __init__(self, flush: Callable[[Partition], None]) -> None:
        self.replicator: Replicator | None = None
        self._flush = flush

    def moved(self, partition: Partition) -> None:
        if self.replicator is not None:
            self.replicator.moved(partition)
            if partition.leads and partition.state.local_end_offset < partition.log.end_offset:
                self._flush(partition)

    def gone(self, key: Key) -> None:
        if self.replicator is not None:
            self.replicator.gone(key)

    def alter_isr(self, partition: Partition, request: AlterPartition) -> None:
        if self.replicator is not None:
            self.replicator.alter_isr(partition, request)


class ReplicaManager:
    """Every partition of this node.

    Attributes:
        logs: maintenance of the logs of `local`.
        slices: thread for long computations.
    """

    def __init__(
        self, config: BrokerConfig, store: LogStore, flusher: Flusher, scheduler: FairScheduler, machine: Machine
    ) -> None:
        self._wall_ms = machine.wall_ms
        self._failures = DiskFailures(machine.monotonic_s)
        self._flusher = flusher
        self._config, self._monotonic_s = config, machine.monotonic_s
        self._peers = _Peers(self._flush)
        self.local = LocalPartitions(config, store, self._reconfigured, machine, self._peers)
        self._inspections: set[asyncio.Task[AppendInfo]] = set()
        self._inspecting = asyncio.Semaphore(INSPECTIONS_MAX)
        self.slices = Slices(machine)
        self.newest_read = NewestRead()
        self.scheduler = scheduler
        self.verifications = TransactionVerifications()
        self.logs = LogManager(config, store, flusher, self.local, scheduler=self.scheduler, machine=machine)
        self._store, self._machine = store, machine
        self._isr_keeper: asyncio.Task[None] | None = None

    def replicate(
        self, *, brokers: BrokerChannels, controller: ControllerChannel, broker_epoch: Callable[[], int]
    ) -> None:
        """Replicate with other brokers from now on. A node alone does not call this.

        Args:
            broker_epoch: of this process, from the response to its registration; -1 before.
        """
        from busway_bus.replication.follower_logs import FollowerLogs  # keeps the start of a node alone short
        from busway_bus.replication.replicator import Replicator  # as above

        followers = FollowerLogs(self._store, self.logs, self._flusher, self._failures, self._machine)
        replicator = self._peers.replicator = Replicator(
            self._config, followers, brokers=brokers, controller=controller, broker_epoch=broker_epoch
        )
        for partition in self.local:
            replicator.moved(partition)
        lag_max_ms = self._config.get("replica.lag.time.max.ms")
        self._isr_keeper = asyncio.ensure_future(
            replicator.keep_isrs(lambda: self.local, self._monotonic_s, lag_max_ms)
        )

    def reader_rack(self, rack: str) -> str:
        """Return the rack of a consumer that may be sent to a follower; "" for none (KIP-392)."""
        return rack if rack and self._config.get("replica.selector.class") == RACK_AWARE else ""

    def follower_fetch(self, replica: int, broker_epoch: int) -> FollowerFetch:
        """Return what a follower's fetch means for the partitions that this node leads."""
        return FollowerFetch(
            replica=replica,
            broker_epoch=broker_epoch,
            eligible=_may_join(self.local.image, replica, broker_epoch),
            lag_max_ms=self._config.get("replica.lag.time.max.ms"),
            now_ms=int(self._monotonic_s() * 1000),
        )

    def find(self, topic: str, partition: int) -> Partition:
        return self.local.find(topic, partition)

    @property
    def disk_problem(self) -> str | None:
        if self._flusher.failed is not None:
            return f"the disk failed: {self._flusher.failed}"
        return "appends fail; see the broker's log" if self._failures.failing else None

    def name_of(self, topic_id: UUID) -> str | None:
        return self.local.name_of(topic_id)

    def may_have_lost(self) -> list[tuple[str, int]]:
        """List partitions that may have lost consumed records in an unclean stop.

        Lost offsets are assigned again, and consumers detect that only by a new leader epoch (KIP-320). Without an
        entry of the current epoch nothing was written in it, unless records count before they are flushed, or the cut
        end held the epoch. Offline partitions are always included.
        """
        return self.local.awaited() + [
            (partition.topic, partition.index)
            for partition in self.local
            if partition.log.epochs.latest >= partition.leader_epoch
            or partition.state.written_counts
            or partition.log.was_cut
        ]

    def _reconfigured(self, partition: Partition) -> None:
        """Apply new settings; flush at once if now required."""
        partition.reconfigured()
        self.logs.written(partition)
        if partition.state.local_end_offset < partition.log.end_offset:
            self.logs.flush(partition)

    def _flush(self, partition: Partition) -> None:
        self.logs.flush(partition)

    async def started_at(self, partition: Partition, offset: int, within_s: float) -> bool:
        """Wait until no active broker has records of a partition below `offset`; return whether that came in time."""

        def low_watermark() -> int:
            starts = [
                follower.log_start_offset
                for replica, follower in partition.state.followers.items()
                if self.local.image.is_active(replica)
            ]
            return min([partition.log.start_offset, *starts])

        try:
            async with asyncio.timeout(within_s):
                while partition.leads and low_watermark() < offset:
                    await partition.follower_started()
        except TimeoutError:
            return low_watermark() >= offset
        partition.check_leader()
        return True

    # Appending

    def append_from_client(
        self,
        partition: Partition,
        records: Buffer,
        acks: int,
        allowance: InspectionBudget,
        verification: Verification | None = None,
    ) -> "AppendInfo | asyncio.Task[AppendInfo]":
        """Write a client's batch; return a task if its inspection takes long.

        Batches are written in order of arrival, also after their clients have disconnected.

        Args:
            verification: the coordinator's confirmation, for a transaction's first batch here.

        Raises:
            KafkaError: the batch is refused, or the disk failed; also raised by the task.
        """
        partition.check_append(acks)
        header = check_batch(records, partition.log.config)
        write = partition.log.append_inspected
        if verification is not None:
            write = partial(write, verification=verification)
        if partition.turn is None and allowance.take(header.records_count):
            batch = inspected_at_once(records, header, partition.log.config, self._wall_ms())
            if batch is not None:
                return self._append(partition, write, batch)
        previous_turn = partition.turn
        turn = partition.turn = asyncio.get_running_loop().create_future()
        task = asyncio.ensure_future(
            self._in_turn(partition, records, header, write, acks, previous_turn=previous_turn, turn=turn)
        )
        self._inspections.add(task)
        task.add_done_callback(self._inspections.discard)
        return task

    async def _in_turn(
        self,
        partition: Partition,
        records: Buffer,
        header: BatchHeader,
        write: Callable[..., AppendInfo],
        acks: int,
        *,
        previous_turn: "asyncio.Future[None] | None",
        turn: "asyncio.Future[None]",
    ) -> AppendInfo:
        try:
            try:
                async with self._inspecting:
                    batch = await self.slices.run(inspect(records, header, partition.log.config, self._wall_ms()))
            finally:
                if previous_turn is not None:  # also if this batch is refused: later batches wait for this turn only
                    await asyncio.wait([previous_turn])
            if self.local.get((partition.topic, partition.index)) is not partition:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{partition.topic} was deleted meanwhile")
            partition.check_append(acks)
            return self._append(partition, write, batch)
        finally:
            turn.set_result(None)
            if partition.turn is turn:
                partition.turn = None

    def append(self, partition: Partition, batch: Buffer) -> "tuple[AppendInfo, asyncio.Future[None] | None]":
        """Write a batch built by this broker, possibly for a producer's transaction.

        Returns its offsets, and a future that is done when it is acknowledged with acks=all; None if it is. KafkaError,
        also of the future: the disk failed.
        """
        return self._append_own(partition, partition.log.append_own, batch)

    def append_marker(
        self, partition: Partition, marker: EndTransaction
    ) -> "tuple[AppendInfo, asyncio.Future[None] | None]":
        """Write a transaction marker; returns and raises as `append`.

        It is on disk when acknowledged, whatever `durability` says: if a power cut lost it, the transaction would stay
        open for ever.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED.
        """
        info, acknowledged = self._append_own(partition, partition.log.append_marker, marker)
        if acknowledged is None and partition.state.flushed_offset <= info.last_offset:
            acknowledged = self._flusher.request(partition.log, partition.flushed)
        return info, acknowledged

    async def kept(self, partition: Partition, info: AppendInfo) -> None:
        """Wait until an append is acknowledged with acks=all and on disk.

        Whatever `durability` says. KafkaError: it cannot be.
        """
        acknowledged: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.await_acks(partition, info, ACKS_ALL, _settles(acknowledged)):
            await acknowledged
        if partition.state.flushed_offset <= info.last_offset:
            await self._flusher.request(partition.log, partition.flushed)

    def _append_own(
        self, partition: Partition, write: Callable[..., AppendInfo], content: Buffer | EndTransaction
    ) -> "tuple[AppendInfo, asyncio.Future[None] | None]":
        partition.check_append(ACKS_ALL)
        info = self._append(partition, write, content)
        acknowledged: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        return info, acknowledged if self.await_acks(partition, info, ACKS_ALL, _settles(acknowledged)) else None

    def await_acks(self, partition: Partition, info: AppendInfo, acks: int, acknowledged: Acknowledged) -> bool:
        """Call `acknowledged` when an append satisfies `acks`; False if it already does."""
        if partition.state.may_acknowledge(info.last_offset, acks):
            return False
        partition.acknowledgements.add(info.last_offset, acks, acknowledged)
        return True

    def _append(
        self, partition: Partition, write: Callable[..., AppendInfo], batch: Inspected | Buffer | EndTransaction
    ) -> AppendInfo:
        if self._flusher.failed is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the disk failed: {self._flusher.failed}")
        try:
            info = write(batch, leader_epoch=partition.state.leader_epoch, now_ms=self._wall_ms())
        except OSError as problem:
            self._failures.failed(partition.log.directory, problem)
            text = f"cannot write {partition.log.directory}: {problem}"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, text) from problem
        if self._failures.failing:
            self._failures.worked()
        if not info.duplicate:
            counters = partition.counters
            counters.messages_in += info.last_offset - info.first_offset + 1
            counters.bytes_in += info.size_bytes
            partition.appended(info)
        if partition.log.config.durability == "interval":
            self.logs.written(partition)
        if partition.state.local_end_offset <= info.last_offset or partition.log.wants_flush:
            self.logs.flush(partition)
        return info

    async def close(self) -> None:
        if self._isr_keeper is not None:
            self._isr_keeper.cancel()
        if self._peers.replicator is not None:
            await self._peers.replicator.close()
        await self.verifications.close()
        for task in self._inspections:
            task.cancel()
        if self._inspections:
            await asyncio.wait(self._inspections)
        self.slices.close()


def _may_join(image: ClusterImage, replica: int, broker_epoch: int) -> bool:
    """Whether a broker may enter ISRs; an epoch of -1 is not checked."""
    broker = image.brokers.get(replica)
    if broker is None or broker.fenced or broker.in_controlled_shutdown:
        return False
    return broker_epoch in {-1, broker.epoch}


def _settles(acknowledged: "asyncio.Future[None]") -> Acknowledged:

    def settle(problem: KafkaError | None) -> None:
        if acknowledged.done():
            return
        if problem is None:
            acknowledged.set_result(None)
        else:
            acknowledged.set_exception(problem)

    return settle
