"""Batches that a broker looks through before it stores them: what is refused, and the order of what is not."""

import asyncio

import pytest
from tests.integration.broker.test_storage import NOW, call, create, fetch
from tests.integration.broker.test_storage_kill import Connection

from busway_bus.log import inspection
from busway_bus.replication import manager
from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.apis import ApiKey
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from busway_protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from busway_protocol.records.batch import computed_crc
from busway_protocol.records.builder import BatchBuilder


@pytest.fixture(autouse=True)
def little_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a thousand records are for a thread, however fast the walk over them is here."""
    for module in (inspection, manager):
        monkeypatch.setattr(module, "RECORDS_ON_LOOP_MAX", 1_000)


def batch(count: int, *, key: bytes | None = b"k", sequence: int = -1, value: bytes = b"v") -> bytes:
    """So many records, with a sequence those of producer 7."""
    producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence} if sequence >= 0 else {}
    builder = BatchBuilder("zstd", **producer)
    for _ in range(count):
        builder.append(NOW, key, value)
    return builder.build()


def request(*batches: bytes, acks: int = -1) -> ProduceRequest:
    """Batches for partition 0, 1 and so on of topic t."""
    partitions = [PartitionProduceData(index=number, records=records) for number, records in enumerate(batches)]
    data = [TopicProduceData(name="t", partition_data=partitions)]
    return ProduceRequest(acks=acks, timeout_ms=1_000, topic_data=data)


async def test_batches_are_written_in_the_order_in_which_they_come(cluster: LocalCluster) -> None:
    """A large one is looked through in another thread, small ones at once; those behind it on its partition wait for it."""
    await create(cluster, "t")
    counts = [1, 3_000, 1, 1, 2_000, 5, 1]
    async with Connection.open(cluster.bootstrap_servers) as client:
        sequence = 0
        for count in counts:
            client.send(request(batch(count, sequence=sequence), batch(count)), ApiKey.PRODUCE, 9)
            sequence += count
        for number in range(len(counts)):
            answer = await client.answer(ProduceResponse, 9)
            placed = [
                (partition_response.error_code, partition_response.base_offset)
                for partition_response in answer.responses[0].partition_responses
            ]
            assert placed == [(ErrorCode.NONE, sum(counts[:number]))] * 2


async def test_a_batch_without_an_answer_is_written_in_its_turn(cluster: LocalCluster) -> None:
    """acks=0, large and small."""
    await create(cluster, "t")
    async with Connection.open(cluster.bootstrap_servers) as client:
        client.send(request(batch(2_000), acks=0), ApiKey.PRODUCE, 9)
        client.send(request(batch(1), acks=0), ApiKey.PRODUCE, 9)
        client.send(request(batch(1)), ApiKey.PRODUCE, 9)
        answer = await client.answer(ProduceResponse, 9)
    assert answer.responses[0].partition_responses[0].base_offset == 2_001


def garbage(count: int) -> bytes:
    """Random bytes in place of so many records, under a checksum that fits."""
    data = bytearray(batch(count))
    data[61:] = bytes(range(1, 100))
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    data[17:21] = computed_crc(data).to_bytes(4, "big")
    return bytes(data)


async def test_a_batch_that_no_consumer_could_read_is_refused(cluster: LocalCluster) -> None:
    """Small or large; the record behind it is read."""
    await create(cluster, "t")
    for count in (1, 5_000):
        answer = await call(cluster, request(garbage(count)), ApiKey.PRODUCE, 9, ProduceResponse)
        (partition_response,) = answer.responses[0].partition_responses
        assert (partition_response.error_code, partition_response.base_offset) == (ErrorCode.INVALID_RECORD, -1)
        assert partition_response.error_message
    await call(cluster, request(batch(1, value=b"after")), ApiKey.PRODUCE, 9, ProduceResponse)
    assert await fetch(cluster, 0) == [(ErrorCode.NONE, [b"after"])]


async def test_a_batch_that_is_refused_lets_none_overtake(cluster: LocalCluster) -> None:
    """One that takes long, one that is refused before it is through, one behind them."""
    await create(cluster, "t")
    async with Connection.open(cluster.bootstrap_servers) as client:
        for records in (batch(20_000), garbage(2_000), batch(1)):
            client.send(request(records), ApiKey.PRODUCE, 9)
        answers = [await client.answer(ProduceResponse, 9) for _ in range(3)]
    partition_responses = [answer.responses[0].partition_responses[0] for answer in answers]
    assert [partition_response.base_offset for partition_response in partition_responses] == [0, -1, 20_000]


@pytest.mark.parametrize("count", [3, 2_000])
async def test_the_records_at_fault_are_told(cluster: LocalCluster, count: int) -> None:
    """KIP-467: a compacted topic names the records without a key, the first thousand of them."""
    configs = [CreatableTopicConfig(name="cleanup.policy", value="compact")]
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=configs)
    await call(cluster, CreateTopicsRequest(topics=[topic]), ApiKey.CREATE_TOPICS, 4, CreateTopicsResponse)
    answer = await call(cluster, request(batch(count, key=None)), ApiKey.PRODUCE, 9, ProduceResponse)
    (partition_response,) = answer.responses[0].partition_responses
    assert partition_response.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in partition_response.record_errors] == list(range(min(count, 1_000)))
    assert "key" in partition_response.record_errors[0].batch_index_error_message
    assert str(count) in partition_response.error_message


async def test_a_topic_may_go_while_a_batch_is_looked_through(cluster: LocalCluster) -> None:
    """The batch is dropped then; a new topic of the name does not get it."""
    await create(cluster, "t")
    assert cluster.node is not None
    slices = cluster.node.services.replicas.slices
    run = slices.run

    async def later(steps):
        inspected = await run(steps)
        await call(
            cluster,
            DeleteTopicsRequest(topic_names=["t"], timeout_ms=1_000),
            ApiKey.DELETE_TOPICS,
            4,
            DeleteTopicsResponse,
        )
        await create(cluster, "t")
        return inspected

    slices.run = later
    answer = await call(cluster, request(batch(2_000)), ApiKey.PRODUCE, 9, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await fetch(cluster, 0) == [(ErrorCode.NONE, [])]


@pytest.mark.parametrize("count", [1, 3_000], ids=["at once", "in its turn"])
async def test_a_producer_without_answers_is_told_by_the_end_of_its_connection(
    cluster: LocalCluster, count: int
) -> None:
    """acks=0 and a batch that is refused: closed, as Kafka does; what was good before it is written."""
    await create(cluster, "t")
    async with Connection.open(cluster.bootstrap_servers) as client:
        for records in (batch(count), garbage(count)):
            client.send(request(records, acks=0), ApiKey.PRODUCE, 9)
        with pytest.raises(asyncio.IncompleteReadError):
            await client.answer(ProduceResponse, 9)
    answer = await call(cluster, request(batch(1)), ApiKey.PRODUCE, 9, ProduceResponse)
    assert answer.responses[0].partition_responses[0].base_offset == count
