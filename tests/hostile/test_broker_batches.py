"""Batches that take long to look through: their sender waits, no other client does."""

import asyncio
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from busway_protocol.apis import ApiKey
from busway_protocol.compile import decode, encode
from busway_protocol.errors import ErrorCode
from busway_protocol.headers import RequestHeader
from busway_protocol.messages.offsets import (
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
)
from busway_protocol.records.builder import BatchBuilder
from busway_protocol.schema import info_of
from tests.interop.broker import SETTINGS, BuswayProcess
from tests.support.canary import Canary, KafkaQuestion
from tests.support.patience import patient

pytestmark = pytest.mark.hostile
NOW = 1_700_000_000_000


@contextmanager
def broker() -> Iterator[BuswayProcess]:
    """A broker in a process of its own."""
    process = BuswayProcess(SETTINGS)
    process.start()
    try:
        yield process
    finally:
        process.stop()


async def call(process: BuswayProcess, message: object, key: ApiKey, version: int, answer: type) -> object:
    """One request on a connection of its own."""
    flexible = info_of(type(message)).flexible(version)
    header = RequestHeader(request_api_key=key, request_api_version=version, correlation_id=7, client_id="test")
    frame = encode(header, 2 if flexible else 1) + encode(message, version)
    host, _, port = process.bootstrap_servers.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(struct.pack(">i", len(frame)) + frame)
        async with asyncio.timeout(patient(60)):
            size = int.from_bytes(await reader.readexactly(4), "big")
            data = await reader.readexactly(size)
    finally:
        writer.close()
    return decode(answer, version, data, 5 if flexible else 4)


async def create(process: BuswayProcess, name: str, policy: str) -> None:
    """A topic of one partition."""
    configs = [CreatableTopicConfig(name="cleanup.policy", value=policy)]
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=configs)
    made = await call(process, CreateTopicsRequest(topics=[topic]), ApiKey.CREATE_TOPICS, 4, CreateTopicsResponse)
    assert made.topics[0].error_code == ErrorCode.NONE


async def produce(process: BuswayProcess, name: str, records: bytes) -> tuple[int, int]:
    """Send a batch: the error code and the offset."""
    data = TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=records)])
    message = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data])
    (response,) = (await call(process, message, ApiKey.PRODUCE, 9, ProduceResponse)).responses[0].partition_responses
    return response.error_code, response.base_offset


async def look_up(process: BuswayProcess, name: str, timestamp: int) -> int:
    """The offset of the first record at a time."""
    wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    message = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=[wanted])])
    (response,) = (await call(process, message, ApiKey.LIST_OFFSETS, 7, ListOffsetsResponse)).topics[0].partitions
    assert response.error_code == ErrorCode.NONE
    offset: int = response.offset
    return offset


def small_records(count: int, key: bytes | None = b"k", value: bytes = b"") -> bytes:
    """Very many records in very few bytes."""
    builder = BatchBuilder("zstd")
    for number in range(count):
        builder.append(NOW + (number == count - 1), key, value)
    return builder.build()


@pytest.mark.parametrize("policy", ["delete", "compact"])
@pytest.mark.parametrize("count", [100_000, 1_000_000])
async def test_a_small_batch_of_very_many_records_stalls_nobody(count: int, policy: str) -> None:
    """It is written, and looked into by time, while another client is answered as if nothing were."""
    records = small_records(count)
    assert len(records) < 1_000_000
    with broker() as process:
        await create(process, "t", policy)
        question = KafkaQuestion(process.bootstrap_servers)
        with Canary(process.pid, question) as canary:
            assert await produce(process, "t", records) == (ErrorCode.NONE, 0)
            assert await look_up(process, "t", NOW + 1) == count - 1
        canary.check()


async def test_many_such_batches_at_once_stay_within_memory() -> None:
    """Twelve clients, each with a batch that inflates to 16 MB, of records without a key that a compacted topic refuses."""
    records = small_records(50_000, key=None, value=bytes(310))
    with broker() as process:
        await create(process, "t", "compact")
        question = KafkaQuestion(process.bootstrap_servers)
        with Canary(process.pid, question) as canary:
            answers = await asyncio.gather(*[produce(process, "t", records) for _ in range(12)])
        canary.check()
    assert set(answers) == {(ErrorCode.INVALID_RECORD, -1)}
