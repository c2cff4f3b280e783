"""What a damaged file does to a node: one partition suffers, with Kafka's error code, and the others are served."""

import asyncio
import logging
import struct
from pathlib import Path

import pytest
from tests.support.patience import patient

from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.apis import ApiKey
from busway_protocol.compile import decode, encode
from busway_protocol.errors import ErrorCode
from busway_protocol.headers import RequestHeader
from busway_protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from busway_protocol.messages.offsets import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from busway_protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from busway_protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from busway_protocol.records.batch import iter_batches
from busway_protocol.records.builder import BatchBuilder
from busway_protocol.records.record import decode_records
from busway_protocol.schema import info_of

NOW = 1_700_000_000_000
LOG = "00000000000000000000.log"


async def call(cluster: LocalCluster, message: object, key: ApiKey, version: int, answer: type) -> object:
    """One request on a connection of its own."""
    flexible = info_of(type(message)).flexible(version)
    header = RequestHeader(request_api_key=key, request_api_version=version, correlation_id=7, client_id="test")
    frame = encode(header, 2 if flexible else 1) + encode(message, version)
    host, _, port = cluster.bootstrap_servers.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(struct.pack(">i", len(frame)) + frame)
        async with asyncio.timeout(patient(5)):
            size = int.from_bytes(await reader.readexactly(4), "big")
            data = await reader.readexactly(size)
    finally:
        writer.close()
    return decode(answer, version, data, 5 if flexible else 4)


async def create(cluster: LocalCluster, name: str, partitions: int = 2, **settings: str) -> None:
    """Create a topic; in the names of settings _ stands for a dot."""
    configs = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in settings.items()]
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=configs)
    made = await call(cluster, CreateTopicsRequest(topics=[topic]), ApiKey.CREATE_TOPICS, 4, CreateTopicsResponse)
    assert made.topics[0].error_code == ErrorCode.NONE


async def produce(cluster: LocalCluster, partition: int, value: bytes) -> tuple[ErrorCode, int]:
    """Write one record to a partition of topic t: the error code and the offset."""
    builder = BatchBuilder()
    builder.append(NOW, b"k", value)
    data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=partition, records=builder.build())])
    message = ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[data])
    (answer,) = (await call(cluster, message, ApiKey.PRODUCE, 9, ProduceResponse)).responses[0].partition_responses
    return ErrorCode(answer.error_code), answer.base_offset


async def fetch(cluster: LocalCluster, *partitions: int, offset: int = 0) -> list[tuple[ErrorCode, list[bytes]]]:
    """Read the partitions of topic t in one request: of each the error code and the values."""
    wanted = [FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=10**6) for number in partitions]
    message = FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=10**7, topics=[FetchTopic(topic="t", partitions=wanted)]
    )
    answer = await call(cluster, message, ApiKey.FETCH, 12, FetchResponse)
    return [
        (
            ErrorCode(partition_response.error_code),
            [record.value for _, batch in iter_batches(partition_response.records) for record in decode_records(batch)],
        )
        for partition_response in answer.responses[0].partitions
    ]


async def look_up(cluster: LocalCluster, partition: int, timestamp: int) -> tuple[ErrorCode, int]:
    """ListOffsets on one partition: the error code and the offset."""
    topic = ListOffsetsTopic(
        name="t", partitions=[ListOffsetsPartition(partition_index=partition, timestamp=timestamp)]
    )
    message = ListOffsetsRequest(replica_id=-1, topics=[topic])
    (partition_response,) = (
        (await call(cluster, message, ApiKey.LIST_OFFSETS, 5, ListOffsetsResponse)).topics[0].partitions
    )
    return ErrorCode(partition_response.error_code), partition_response.offset


async def delete_records(cluster: LocalCluster, partition: int, offset: int) -> tuple[ErrorCode, int]:
    """DeleteRecords on one partition: the error code and the low watermark."""
    topic = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=partition, offset=offset)])
    message = DeleteRecordsRequest(topics=[topic], timeout_ms=1_000)
    (partition_response,) = (
        (await call(cluster, message, ApiKey.DELETE_RECORDS, 1, DeleteRecordsResponse)).topics[0].partitions
    )
    return ErrorCode(partition_response.error_code), partition_response.low_watermark


def damage(cluster: LocalCluster, partition: int, position: int, value: bytes) -> None:
    """Overwrite bytes of a partition's only segment."""
    with (Path(cluster.data_dir) / f"t-{partition}" / LOG).open("r+b") as file:
        file.seek(position)
        file.write(value)


@pytest.mark.slow
async def test_a_damaged_partition_is_offline_and_the_others_are_served(
    cluster: LocalCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """KAFKA_STORAGE_ERROR for it, one line in the log; it stays so over restarts, can be deleted and created again."""
    await create(cluster, "t")
    for partition in (0, 1):
        assert await produce(cluster, partition, b"kept") == (ErrorCode.NONE, 0)
    await cluster.stop()
    damage(cluster, 0, 60, b"\xff\xff\xff\xff")
    (Path(cluster.data_dir) / ".kafka_cleanshutdown").unlink()
    for _ in range(2):
        caplog.clear()
        await cluster.start()
        (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
        assert "t-0" in line
        assert LOG in line
        assert (await fetch(cluster, 0, 1))[0] == (ErrorCode.KAFKA_STORAGE_ERROR, [])
        assert (await fetch(cluster, 0, 1))[1][1][0] == b"kept"
        assert (await produce(cluster, 1, b"more"))[0] is ErrorCode.NONE
        assert (await produce(cluster, 0, b"more"))[0] is ErrorCode.KAFKA_STORAGE_ERROR
        assert (await look_up(cluster, 0, -1))[0] is ErrorCode.KAFKA_STORAGE_ERROR
        assert (await delete_records(cluster, 0, -1))[0] is ErrorCode.KAFKA_STORAGE_ERROR
        await cluster.stop()
    await cluster.start()
    gone = DeleteTopicsRequest(topic_names=["t"], timeout_ms=1_000)
    deleted = await call(cluster, gone, ApiKey.DELETE_TOPICS, 4, DeleteTopicsResponse)
    assert deleted.responses[0].error_code == ErrorCode.NONE
    await create(cluster, "t")
    assert await produce(cluster, 0, b"anew") == (ErrorCode.NONE, 0)


@pytest.mark.parametrize("position", [8, 16], ids=["length", "magic"])
async def test_a_batch_damaged_on_disk_fails_its_own_partition_alone(cluster: LocalCluster, position: int) -> None:
    """CORRUPT_MESSAGE where a fetch meets it, in Fetch and in ListOffsets; the other partition of the request is read."""
    await create(cluster, "t")
    for partition in (0, 1):
        for offset in (0, 1):  # the broker knows where the newest batch is, and does not look for it
            assert await produce(cluster, partition, b"kept") == (ErrorCode.NONE, offset)
    damage(cluster, 0, position, b"\x7f\xff\xff\xff" if position == 8 else b"\x09")
    assert await fetch(cluster, 0, 1) == [(ErrorCode.CORRUPT_MESSAGE, []), (ErrorCode.NONE, [b"kept", b"kept"])]
    assert await fetch(cluster, 1, 0) == [(ErrorCode.NONE, [b"kept", b"kept"]), (ErrorCode.CORRUPT_MESSAGE, [])]
    assert (await look_up(cluster, 0, NOW))[0] is ErrorCode.CORRUPT_MESSAGE
    assert await look_up(cluster, 1, NOW) == (ErrorCode.NONE, 0)


@pytest.mark.slow
async def test_a_base_offset_damaged_on_disk_is_answered(cluster: LocalCluster) -> None:
    """CORRUPT_MESSAGE from a compacted segment that is read off the event loop; its index cannot hold that offset."""
    await create(cluster, "t", cleanup_policy="compact", internal_segment_bytes="500", index_interval_bytes="100")
    for _ in range(20):
        assert (await produce(cluster, 0, b"v" * 20))[0] is ErrorCode.NONE
    await cluster.stop()
    directory = Path(cluster.data_dir) / "t-0"
    closed = sorted(directory.glob("*.log"))[1]
    _, position = struct.unpack(">ii", closed.with_suffix(".index").read_bytes()[-8:])
    with closed.open("r+b") as file:
        file.seek(position)
        file.write(b"\x40")
    await cluster.start()
    offset = int(closed.stem)
    for _ in range(2):
        assert await fetch(cluster, 0, offset=offset) == [(ErrorCode.CORRUPT_MESSAGE, [])]
    assert (await fetch(cluster, 0, offset=offset - 1))[0][0] is ErrorCode.NONE


@pytest.mark.slow
async def test_deleted_records_stay_deleted_over_a_crash(cluster: LocalCluster) -> None:
    """The new start is on disk when DeleteRecords is answered, and a restart knows it."""
    await create(cluster, "t")
    for _ in range(4):
        await produce(cluster, 0, b"v")
    assert await delete_records(cluster, 0, 3) == (ErrorCode.NONE, 3)
    assert await delete_records(cluster, 0, 9) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    starts = (Path(cluster.data_dir) / "log-start-offset-checkpoint").read_text()
    assert "t 0 3" in starts.splitlines()
    assert await fetch(cluster, 0) == [(ErrorCode.OFFSET_OUT_OF_RANGE, [])]
    assert await look_up(cluster, 0, -2) == (ErrorCode.NONE, 3)
    await cluster.stop()
    await cluster.start()
    assert await look_up(cluster, 0, -2) == (ErrorCode.NONE, 3)
    assert await delete_records(cluster, 0, -1) == (ErrorCode.NONE, 4)
