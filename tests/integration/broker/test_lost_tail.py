"""A log that lost its end in a power cut: consumers that were ahead of the cut learn of it (KIP-320)."""

from pathlib import Path
from uuid import UUID

import pytest
from tests.integration.broker.test_storage import LOG, NOW, call

from busway_bus.controller.leaders import begin_epochs
from busway_bus.log.os_files import OsFile, OsFiles
from busway_bus.metadata.delta import Delta
from busway_bus.metadata.image import ClusterImage
from busway_bus.metadata.records import PartitionRecord, TopicRecord
from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from busway_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from busway_protocol.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from busway_protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from busway_protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from busway_protocol.records.batch import iter_batches
from busway_protocol.records.builder import BatchBuilder


async def create(cluster: LocalCluster, durability: str) -> None:
    """Topic t with one partition."""
    configs = [CreatableTopicConfig(name="durability", value=durability)]
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=configs)
    made = await call(cluster, CreateTopicsRequest(topics=[topic]), ApiKey.CREATE_TOPICS, 4, CreateTopicsResponse)
    assert made.topics[0].error_code == ErrorCode.NONE


async def produce(cluster: LocalCluster, count: int, name: str) -> int:
    """Write so many records in batches of ten; answers the first offset."""
    first = -1
    for start in range(0, count, 10):
        builder = BatchBuilder()
        for number in range(start, start + 10):
            builder.append(NOW, b"k", f"{name}{number}".encode())
        data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=builder.build())])
        message = ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[data])
        (answer,) = (await call(cluster, message, ApiKey.PRODUCE, 9, ProduceResponse)).responses[0].partition_responses
        assert answer.error_code == ErrorCode.NONE
        first = answer.base_offset if first < 0 else first
    return first


async def end_of_epoch(cluster: LocalCluster, epoch: int) -> tuple[int, int]:
    """OffsetForLeaderEpoch: the epoch and its end."""
    wanted = OffsetForLeaderPartition(partition=0, leader_epoch=epoch)
    message = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=[wanted])])
    answer = await call(cluster, message, ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, OffsetForLeaderEpochResponse)
    (partition,) = answer.topics[0].partitions
    assert partition.error_code == ErrorCode.NONE
    return partition.leader_epoch, partition.end_offset


async def fetch(cluster: LocalCluster, offset: int, *, read_epoch: int, leader_epoch: int = -1):
    """Fetch version 12, as a consumer that read the record before `offset` in `read_epoch`."""
    wanted = FetchPartition(
        partition=0,
        fetch_offset=offset,
        partition_max_bytes=10**6,
        last_fetched_epoch=read_epoch,
        current_leader_epoch=leader_epoch,
    )
    message = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic="t", partitions=[wanted])])
    (partition,) = (await call(cluster, message, ApiKey.FETCH, 12, FetchResponse)).responses[0].partitions
    return partition


async def leader_epoch(cluster: LocalCluster) -> int:
    """What Metadata says."""
    message = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    metadata = await call(cluster, message, ApiKey.METADATA, 9, MetadataResponse)
    epoch: int = metadata.topics[0].partitions[0].leader_epoch
    return epoch


async def listed_epoch(cluster: LocalCluster) -> int:
    """What ListOffsets says beside the end."""
    wanted = ListOffsetsPartition(partition_index=0, timestamp=-1)
    message = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[wanted])])
    (answer,) = (await call(cluster, message, ApiKey.LIST_OFFSETS, 7, ListOffsetsResponse)).topics[0].partitions
    epoch: int = answer.leader_epoch
    return epoch


def cut(cluster: LocalCluster, batches: int) -> None:
    """Leave the first batches of the log, as a power cut may that comes before the page cache was written."""
    log = Path(cluster.data_dir) / "t-0" / LOG
    content = log.read_bytes()
    kept = sum(header.size_bytes for header, _ in list(iter_batches(content))[:batches])
    log.write_bytes(content[:kept])


@pytest.mark.slow
async def test_offsets_that_are_given_twice_are_told_apart_by_their_epoch(cluster: LocalCluster) -> None:
    """A consumer at 100 of a log that was cut to 50 and grew to 150 is sent back to 50, and skips nothing."""
    await create(cluster, "os")
    await produce(cluster, 100, "old")
    await cluster.crash()
    cut(cluster, 5)
    await cluster.start()
    assert await leader_epoch(cluster) == await listed_epoch(cluster) == 1
    assert await end_of_epoch(cluster, 0) == (0, 50)
    assert await produce(cluster, 100, "new") == 50
    assert await end_of_epoch(cluster, 0) == (0, 50)
    assert await end_of_epoch(cluster, 1) == (1, 150)
    behind = await fetch(cluster, 100, read_epoch=0)
    assert (behind.diverging_epoch.epoch, behind.diverging_epoch.end_offset) == (0, 50)
    assert not behind.records
    going_on = await fetch(cluster, 50, read_epoch=0, leader_epoch=1)
    assert [header.partition_leader_epoch for header, _ in iter_batches(going_on.records)] == [1] * 10
    assert (await fetch(cluster, 50, read_epoch=0, leader_epoch=0)).error_code == ErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.slow
async def test_a_partition_that_comes_back_after_the_start_has_begun_an_epoch_too(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the start could not open may have lost its end as well; a start after it, in order, begins none."""
    await create(cluster, "interval")
    await produce(cluster, 100, "old")
    await cluster.crash()
    cut(cluster, 5)
    opened = OsFiles._opened

    def refuse(files: OsFiles, path: str, size: int | None) -> OsFile:
        if path.startswith("t-0/"):
            raise OSError(24, "Too many open files")
        return opened(files, path, size)

    monkeypatch.setattr(OsFiles, "_opened", refuse)
    await cluster.start()
    monkeypatch.undo()
    assert cluster.node is not None
    await cluster.node._reopen()
    epoch = await leader_epoch(cluster)
    assert epoch == 3  # begun at the start, without a leader, and led again
    assert await produce(cluster, 100, "new") == 50
    assert await end_of_epoch(cluster, 0) == (0, 50)
    await cluster.stop()
    await cluster.start()
    assert await leader_epoch(cluster) == epoch


@pytest.mark.slow
async def test_the_epochs_of_a_log_outlive_starts(cluster: LocalCluster) -> None:
    """A start in order keeps the epoch; each other one on a log that was written to begins one, and none is forgotten."""
    await create(cluster, "flush")
    await produce(cluster, 10, "a")
    await cluster.stop()
    await cluster.start()
    assert await leader_epoch(cluster) == 0
    await produce(cluster, 10, "b")
    for _ in range(2):  # the second time nothing was written since
        await cluster.crash()
        await cluster.start()
        assert await leader_epoch(cluster) == 1
    await produce(cluster, 10, "c")
    await cluster.crash()
    await cluster.start()
    assert await leader_epoch(cluster) == 2
    assert [await end_of_epoch(cluster, epoch) for epoch in (0, 1)] == [(0, 20), (1, 30)]
    await cluster.stop()
    await cluster.start()
    assert await leader_epoch(cluster) == 2
    assert [await end_of_epoch(cluster, epoch) for epoch in (0, 1)] == [(0, 20), (1, 30)]


def test_new_epochs_are_decided_at_once() -> None:
    """One decision for all partitions; one that is gone by now is left out, and the others keep what they have."""
    delta = Delta(ClusterImage())
    partition = {"replicas": [1], "isr": [1], "removing_replicas": [], "adding_replicas": [], "leader": 1}
    for number, name in enumerate(("t", "u"), 1):
        delta.apply(TopicRecord(name=name, topic_id=UUID(int=number)))
        for index in range(2):
            record = PartitionRecord(
                partition_id=index, topic_id=UUID(int=number), leader_epoch=4, partition_epoch=7, **partition
            )
            delta.apply(record)
    image = delta.image()
    decided = begin_epochs(image, [("t", 0), ("u", 1), ("u", 2), ("gone", 0)])
    delta = Delta(image)
    for record in decided.records:
        delta.apply(record)
    image = delta.image()
    assert list(delta.changed) == ["t", "u"]
    partitions = {
        name: [(each.leader, each.leader_epoch, each.partition_epoch, each.replicas) for each in topic.partitions]
        for name, topic in image.topics.items()
    }
    moved, kept = (1, 5, 8, (1,)), (1, 4, 7, (1,))
    assert partitions == {"t": [moved, kept], "u": [kept, moved]}
