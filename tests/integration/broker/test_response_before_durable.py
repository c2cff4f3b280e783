"""No response says what a power cut could take back: one gate that holds a log's sync open, and what may not be answered meanwhile."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.integration.broker.groups_probe import Run, run_against
from tests.integration.broker.test_groups import offset

from busway_bus.kernel.topics import OFFSETS_TOPIC
from busway_bus.replication.partition import Partition
from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from busway_protocol.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from busway_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from busway_protocol.records.builder import BatchBuilder

NOW = 1_700_000_000_000


class Gate:
    """A file whose syncs wait until it is opened; `reached` is set when one does."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._open = threading.Event()
        self.reached = threading.Event()

    def sync(self) -> None:
        """Wait, then sync."""
        self.reached.set()
        self._open.wait()
        self._file.sync()

    def open(self) -> None:
        """Let syncs through."""
        self._open.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@contextmanager
def held(partition: Partition) -> Iterator[Gate]:
    """Hold the syncs of a partition's log."""
    segment = partition.log.active
    gate = Gate(segment._log)
    segment._log = gate
    try:
        yield gate
    finally:
        gate.open()


async def settle(run: Run, gate: Gate) -> None:
    """Return when the sync is held, and the loop has been through all that was sent before."""
    while not gate.reached.is_set():
        await asyncio.sleep(0)
    for _ in range(3):
        await run.admin.request(ListOffsetsRequest(replica_id=-1, topics=[]))


def batch(sequence: int) -> bytes:
    """One record of producer 7."""
    builder = BatchBuilder(producer_id=7, producer_epoch=0, base_sequence=sequence)
    builder.append(NOW, b"k", b"v")
    return builder.build()


def produce(records: bytes) -> ProduceRequest:
    """To partition 0 of topic read."""
    data = TopicProduceData(name="read", partition_data=[PartitionProduceData(index=0, records=records)])
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data])


def partition(cluster: LocalCluster, topic: str) -> Partition:
    """Its first partition."""
    assert cluster.node is not None
    return cluster.node.services.replicas.find(topic, 0)


@pytest.fixture
async def single() -> AsyncIterator[LocalCluster]:
    """A node whose groups are all in one log."""
    async with LocalCluster(properties={"offsets.topic.num.partitions": "1"}) as cluster:
        yield cluster


async def test_records_are_neither_acknowledged_nor_read_before_they_are_durable(single: LocalCluster) -> None:
    """The first answer, that to a duplicate, Fetch and the end that ListOffsets names: all wait for the one sync."""
    async with run_against(single.bootstrap_servers) as run:
        await run.admin.request(produce(batch(0)), at_most=9)
        topic = partition(single, "read")
        with held(topic) as gate:
            clients = [await run.connect(f"producer {number}") for number in range(2)]
            sent = [asyncio.create_task(client.request(produce(batch(1)), at_most=9)) for client in clients]
            await settle(run, gate)
            assert topic.log.end_offset == 2, "the duplicate is not written"
            wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=10**6)
            fetch = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic="read", partitions=[wanted])])
            (partition_response,) = (await run.admin.request(fetch, at_most=12)).responses[0].partitions
            assert (partition_response.high_watermark, len(partition_response.records)) == (1, len(batch(0)))
            for timestamp, end in ((-1, 1), (-3, 0), (NOW, 0)):
                asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
                listed = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="read", partitions=[asked])])
                answer = await run.admin.request(listed, at_most=7)
                assert answer.topics[0].partitions[0].offset == end
            assert not any(task.done() for task in sent)
        answers = [(await task).responses[0].partition_responses[0] for task in sent]
        assert [(answer.error_code, answer.base_offset) for answer in answers] == [(ErrorCode.NONE, 1)] * 2
        assert topic.high_watermark == 2


async def test_commits_are_neither_confirmed_nor_told_before_they_are_durable(single: LocalCluster) -> None:
    """The commit waits for its sync, and a client that asks for the offset meanwhile waits with it."""
    async with run_against(single.bootstrap_servers) as run:
        peer = await run.peer("a", "g")
        await peer.commit()
        with held(partition(single, OFFSETS_TOPIC)) as gate:
            commit = asyncio.create_task(peer.commit())
            await settle(run, gate)
            reader = asyncio.create_task(offset(run, "g"))
            other = await run.connect("barrier")
            for _ in range(3):
                await other.request(ListOffsetsRequest(replica_id=-1, topics=[]))
            assert not commit.done()
            assert not reader.done()
        assert (await commit).topics[0].partitions[0].error_code == ErrorCode.NONE
        assert await reader == 7


async def test_a_generation_is_not_told_before_it_is_durable(single: LocalCluster) -> None:
    """The leader's SyncGroup waits for the record of the generation."""
    async with run_against(single.bootstrap_servers) as run:
        peer = await run.peer("a", "g")
        await peer.enter()
        with held(partition(single, OFFSETS_TOPIC)) as gate:
            sync = asyncio.create_task(peer.sync([(peer.member_id, b"mine")]))
            await settle(run, gate)
            assert not sync.done()
        assert (await sync).assignment == b"mine"


async def test_a_stale_generation_cannot_commit(single: LocalCluster) -> None:
    """A member that missed a rebalance must not move the group's place back."""
    async with run_against(single.bootstrap_servers) as run:
        peer = await run.peer("a", "g")
        await peer.enter()
        await peer.sync([(peer.member_id, b"mine")])
        for generation in (peer.generation - 1, peer.generation + 1):
            peer.generation, kept = generation, peer.generation
            answer = await peer.commit()
            assert answer.topics[0].partitions[0].error_code == ErrorCode.ILLEGAL_GENERATION
            peer.generation = kept
        assert await offset(run, "g") == -1


async def test_setting_the_clock_ends_no_session(single: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour forward or back: members stay, also when the group's timers are set again."""
    async with run_against(single.bootstrap_servers) as run:
        peer = await run.peer("a", "g")
        await peer.enter()
        await peer.sync([(peer.member_id, b"mine")])
        real = time.time_ns
        for hours in (1, -1):
            monkeypatch.setattr(time, "time_ns", lambda hours=hours: real() + hours * 3_600_000_000_000)
            newcomer = await run.peer(f"b{hours}", "g")
            assert (await newcomer.join("asks for an id")).error_code == ErrorCode.MEMBER_ID_REQUIRED
            for _ in range(3):
                assert (await peer.heartbeat()).error_code == ErrorCode.NONE
