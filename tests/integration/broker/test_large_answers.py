"""Answers that are larger than what a socket takes: whole in the end, whatever becomes of the files meanwhile."""

import asyncio
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.patience import patient
from tests.support.raw_client import RawClient, frame

from busway_bus.handlers import describe_transactions
from busway_bus.handlers import fetch as fetch_handler
from busway_bus.log.segment import Segment
from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.compile import decode
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.cluster import ApiVersionsRequest
from busway_protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from busway_protocol.messages.groups_classic import FindCoordinatorRequest
from busway_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from busway_protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from busway_protocol.messages.transactions import DescribeTransactionsRequest, InitProducerIdRequest
from busway_protocol.records.batch import BatchHeader, iter_batches, verify_crc
from busway_protocol.records.builder import BatchBuilder

pytestmark = pytest.mark.usefixtures("both_streams")


def fetching(*, max_bytes: int, min_bytes: int = 1, max_wait_ms: int = 0, offset: int = 0) -> FetchRequest:
    """A fetch from partition 0 of topic t, without a session."""
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        session_epoch=-1,
        topics=[FetchTopic(topic="t", partitions=[wanted])],
    )


async def create(client: RawClient, **configs: str) -> None:
    """Topic t."""
    settings = [CreatableTopicConfig(name=name.replace("_", "."), value=value) for name, value in configs.items()]
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=settings)
    made = await client.ask(CreateTopicsRequest(topics=[topic]), 5)
    assert made.topics[0].error_code == ErrorCode.NONE


async def produce(client: RawClient, records: int, size: int) -> None:
    """One batch."""
    builder = BatchBuilder()
    for _ in range(records):
        builder.append(1_700_000_000_000, None, bytes(size))
    data = [TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=builder.build())])]
    made = await client.ask(ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=data), 9)
    assert made.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def count_batches(answer: bytes) -> int:
    """How many whole batches an answer holds, all of them with a good checksum."""
    response: FetchResponse = decode(FetchResponse, 11, answer, 4)
    (partition,) = response.responses[0].partitions
    assert partition.error_code == ErrorCode.NONE
    batches = list(iter_batches(partition.records or b""))
    for header, whole in batches:
        verify_crc(whole, header)
    return len(batches)


@pytest.mark.slow
async def test_an_answer_is_whole_although_its_topic_was_deleted_before_it_was_read(cluster: LocalCluster) -> None:
    """Ten segments are asked for, the topic goes, and only then the client reads."""
    async with RawClient(cluster.bootstrap_servers) as client, RawClient(cluster.bootstrap_servers) as reader:
        await create(client, segment_bytes="16777216", durability="os")
        for _ in range(15):
            await produce(client, 1_000, 1_000)
        reader.send(frame(fetching(max_bytes=50_000_000), 11))
        assert await client.ask(fetching(max_bytes=1), 11)  # the other one's request has come
        deleted = await client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1_000), 1)
        assert deleted.responses[0].error_code == ErrorCode.NONE
        assert not list(Path(cluster.data_dir).glob("t-0/*"))
        assert count_batches(await reader.frame()) == 15


@pytest.mark.slow
async def test_a_long_poll_looks_at_sizes_and_reads_once(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """150 appends beside one poll for all of them: positions are looked up, and only the answer reads records."""
    reads: list[int] = []
    read = Segment.read

    def counted(segment: Segment, position: int, size: int) -> bytes:
        reads.append(size)
        return read(segment, position, size)

    headers: list[int] = []
    walk = Segment.headers

    def walked(segment: Segment, position: int = 0) -> Iterator[tuple[BatchHeader, int]]:
        headers.append(position)
        return walk(segment, position)

    async with RawClient(cluster.bootstrap_servers) as client, RawClient(cluster.bootstrap_servers) as poller:
        await create(client, durability="os")
        await produce(client, 1, 2_000)
        poller.send(frame(fetching(max_bytes=10_000_000, min_bytes=150 * 2_000, max_wait_ms=60_000), 11))
        await client.ask(fetching(max_bytes=1), 11)
        monkeypatch.setattr(Segment, "read", counted)
        monkeypatch.setattr(Segment, "headers", walked)
        for _ in range(150):
            await produce(client, 1, 2_000)
        async with asyncio.timeout(patient(10)):
            assert count_batches(await poller.frame()) >= 140
        assert not reads
        assert len(headers) <= 2


async def test_a_small_answer_is_read_at_once_and_a_larger_one_later(cluster: LocalCluster) -> None:
    """Both sides of the bound give the same records."""
    async with RawClient(cluster.bootstrap_servers) as client:
        await create(client)
        for size in (1, fetch_handler.READ_AT_ONCE_BYTES - 200, fetch_handler.READ_AT_ONCE_BYTES + 200):
            await produce(client, 1, size)
        for offset, expected in ((0, 3), (1, 2), (2, 1), (3, 0)):
            client.send(frame(fetching(max_bytes=1_000_000, offset=offset), 11))
            assert count_batches(await client.frame()) == expected


@pytest.mark.slow
async def test_transactions_of_very_many_partitions_are_described_in_turns(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes as long as ten thousand partitions do; who asks for something small meanwhile is answered before the last of them."""
    names = [f"x{number}" for number in range(10)]
    by_topic = describe_transactions.by_topic

    def slow(partitions: Iterable[tuple[str, int]]) -> Any:
        end = time.thread_time() + 0.006
        while time.thread_time() < end:
            pass
        return by_topic(partitions)

    async with RawClient(cluster.bootstrap_servers) as client, RawClient(cluster.bootstrap_servers) as other:
        while (
            (await client.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]), 4)).coordinators[0].error_code
        ):
            pass
        for name in names:
            begin = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
            while (await client.ask(begin, 4)).error_code:
                await asyncio.sleep(0)
        monkeypatch.setattr(describe_transactions, "by_topic", slow)
        monkeypatch.setattr(describe_transactions, "DESCRIBED_AT_ONCE", 1)  # as if they had so many
        client.send(frame(DescribeTransactionsRequest(transactional_ids=names), 0))
        await client.drained()
        described = asyncio.ensure_future(client.frame())
        await other.ask(ApiVersionsRequest(), 0)
        assert not described.done()
        assert await described
