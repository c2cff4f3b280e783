"""Cuts of a follower's log: in a thread, alone on the log, whole although the caller ends, and before anything else changes it."""

import asyncio
import errno
import itertools
import threading
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any, NamedTuple, cast
from uuid import UUID

import pytest
from tests.support.waiting import until

from busway.net.machine import OS
from busway_bus.kernel.config import BrokerConfig
from busway_bus.log.disk_failures import DiskFailures
from busway_bus.log.file_names import EPOCHS
from busway_bus.log.flusher import Flusher
from busway_bus.log.store import LogStore
from busway_bus.metadata.delta import Delta
from busway_bus.metadata.image import ClusterImage
from busway_bus.metadata.records import PartitionChangeRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from busway_bus.replication.follower_logs import FollowerLogs
from busway_bus.replication.following import Append
from busway_bus.replication.local_partitions import LocalPartitions
from busway_bus.replication.log_manager import LogManager
from busway_bus.replication.partition import Partition
from busway_bus.testing.sim_files import SimFiles
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.records.batch import assign_offset
from busway_protocol.records.builder import BatchBuilder

T, NOW = UUID(int=0x77), 1_700_000_000_000


class Gate(SimFiles):
    """A disk whose syncs wait for `opened`, and that notes those of the event loop's thread."""

    def __init__(self) -> None:
        super().__init__()
        self.opened = threading.Event()
        self.opened.set()
        self.loop_thread = -1
        self.waits = 0
        self.full = False

    def replace(self, path: str, content: bytes) -> None:
        if self.full and path.endswith(EPOCHS):
            raise OSError(errno.ENOSPC, "No space left on device")
        super().replace(path, content)

    def check_sync(self) -> None:
        assert threading.get_ident() != self.loop_thread, "the event loop waits for the disk"
        if not self.opened.is_set():
            self.waits += 1
            self.opened.wait(30)
        super().check_sync()


class Follower(NamedTuple):
    files: Gate
    local: LocalPartitions
    logs: FollowerLogs
    partition: Partition
    image: ClusterImage


async def followed(local: LocalPartitions, image: ClusterImage, *records: Any) -> ClusterImage:
    delta = Delta(image)
    for record in records:
        delta.apply(record)
    after = delta.image()
    await local.follow(after, delta)
    return after


def batches(first: int, count: int) -> bytes:
    """Batches of one record."""
    content = b""
    for offset in range(first, first + count):
        builder = BatchBuilder()
        builder.append(NOW, b"k", b"v")
        batch = bytearray(builder.build())
        assign_offset(batch, base_offset=offset, leader_epoch=0)
        content += batch
    return content


def copied(first: int, count: int) -> Append:
    return Append(records=batches(first, count), high_watermark=4, log_start_offset=0)


@pytest.fixture
async def follower() -> AsyncIterator[Follower]:
    """Ten flushed records, copied from broker 2."""
    files, numbers = Gate(), itertools.count(100)
    store = LogStore(files, node_id=1, new_ids=lambda: UUID(int=next(numbers)))
    local = LocalPartitions(BrokerConfig.from_properties({"node.id": "1"}), store, lambda _: None)
    flusher = Flusher()
    manager = cast(
        "LogManager", SimpleNamespace(flush=lambda partition: flusher.flush(partition.log, partition.flushed))
    )
    logs = FollowerLogs(store, manager, flusher, DiskFailures(OS.monotonic_s), OS)
    record = PartitionRecord(
        partition_id=0,
        topic_id=T,
        replicas=[1, 2],
        isr=[2],
        removing_replicas=[],
        adding_replicas=[],
        leader=2,
        leader_epoch=0,
    )
    image = await followed(local, ClusterImage(), TopicRecord(name="t", topic_id=T), record)
    partition = local.find("t", 0)
    logs.append(partition, copied(0, 10))
    await logs.synced([partition])
    files.loop_thread = threading.get_ident()
    yield Follower(files, local, logs, partition, image)
    files.opened.set()
    await logs.close()
    await local.close()
    await flusher.drain()
    flusher.close()


async def begun(follower: Follower, cut: Callable[[], Any]) -> "asyncio.Task[None]":
    """Begin a cut, which waits for the disk."""
    follower.files.opened.clear()
    task = asyncio.ensure_future(cut())
    await until(lambda: follower.files.waits > 0)
    return task


async def test_what_a_fetch_brought_is_synced_once(follower: Follower) -> None:
    """The next fetch and the high watermark wait for the same sync."""
    partition, before = follower.partition, follower.files.syncs
    follower.logs.append(partition, copied(10, 2))
    await follower.logs.synced([partition])
    assert (partition.state.local_end_offset, follower.files.syncs - before) == (12, 1)


async def test_a_truncation_does_not_hold_the_event_loop(follower: Follower) -> None:
    """It is refused to readers meanwhile; then the log ends there, and so does what counts as its own."""
    partition = follower.partition
    task = await begun(follower, lambda: follower.logs.truncate(partition, 6))
    with pytest.raises(KafkaError) as refused:
        partition.check_epoch(-1)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    follower.files.opened.set()
    await task
    partition.check_epoch(-1)
    assert (partition.log.end_offset, partition.log.flushed_offset, partition.state.log_end_offset) == (6, 6, 6)
    follower.logs.append(partition, copied(6, 2))
    await follower.logs.synced([partition])
    assert partition.state.local_end_offset == 8


async def test_a_cut_goes_on_without_its_caller(follower: Follower) -> None:
    """And whatever changes the partition then comes after it: a new leader, a deletion."""
    partition = follower.partition
    task = await begun(follower, lambda: follower.logs.restart(partition, 20))
    task.cancel()
    await asyncio.wait([task])
    leads = PartitionChangeRecord(topic_id=T, partition_id=0, leader=1, isr=[1, 2])
    following = asyncio.ensure_future(followed(follower.local, follower.image, leads))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not partition.leads
    follower.files.opened.set()
    image = await following
    assert partition.leads
    assert (partition.log.start_offset, partition.log.end_offset, partition.high_watermark) == (20, 20, 20)
    await followed(follower.local, image, RemoveTopicRecord(topic_id=T))
    assert follower.local.get(("t", 0)) is None


async def test_a_deletion_waits_for_a_cut(follower: Follower) -> None:
    """The files are set aside when nothing writes them any more."""
    partition = follower.partition
    task = await begun(follower, lambda: follower.logs.truncate(partition, 6))
    deleting = asyncio.ensure_future(followed(follower.local, follower.image, RemoveTopicRecord(topic_id=T)))
    for _ in range(10):
        await asyncio.sleep(0)
    assert follower.local.get(("t", 0)) is partition
    follower.files.opened.set()
    await task
    await deleting
    assert follower.local.get(("t", 0)) is None


@pytest.mark.parametrize("leader", [1, 3])
async def test_a_cut_that_failed_is_finished_under_the_next_leader(follower: Follower, leader: int) -> None:
    """The files end there already, and what counts as the log's end does not: nothing is read, appended or led before."""
    partition, files = follower.partition, follower.files
    files.full = True
    with pytest.raises(OSError, match="No space"):
        await follower.logs.truncate(partition, 6)
    assert (partition.log.end_offset, partition.state.log_end_offset) == (6, 10)
    change = PartitionChangeRecord(topic_id=T, partition_id=0, leader=leader, isr=[1, 2])
    await followed(follower.local, follower.image, change)
    assert not partition.leads
    with pytest.raises(KafkaError) as refused:
        partition.check_epoch(-1)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    files.full = False
    await (follower.local.reopen() if leader == 1 else partition.finish_cut())
    partition.check_epoch(-1)
    assert (partition.leads, partition.leader) == (leader == 1, leader)
    assert (partition.log.end_offset, partition.state.log_end_offset) == (6, 6)


async def test_an_empty_log_begins_where_its_leaders_first_batch_does(follower: Follower) -> None:
    """The leader's start offset may be within a batch; other batches are appended as they come."""
    must_restart, partition = follower.logs.must_restart, follower.partition
    assert must_restart(partition, copied(10, 1)) is None
    assert must_restart(partition, copied(8, 1)) is None
    assert must_restart(partition, copied(0, 0)) is None
    await follower.logs.restart(partition, 20)
    assert must_restart(partition, copied(25, 1)) is None
    builder = BatchBuilder()
    for _ in range(5):
        builder.append(NOW, b"k", b"v")
    batch = bytearray(builder.build())
    assign_offset(batch, base_offset=18, leader_epoch=0)
    assert must_restart(partition, Append(records=batch, high_watermark=23, log_start_offset=20)) == 18
    batch[8:12] = (5).to_bytes(4, "big")  # no batch is so short: `append` refuses it for this partition only
    assert must_restart(partition, Append(records=batch, high_watermark=23, log_start_offset=20)) is None
