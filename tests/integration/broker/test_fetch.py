"""What a fetch answers, and when."""

import asyncio
import gc
import threading
from typing import Any
from weakref import ref

import pytest
from tests.support.patience import patient
from tests.support.raw_client import RawClient, frame
from tests.support.waiting import until

from busway_bus.handlers import fetch as fetch_handler
from busway_bus.log.os_files import OsFile, OsLoan
from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.compile import decode
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ReplicaState
from busway_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from busway_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from busway_protocol.messages.topics import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest
from busway_protocol.records.batch import iter_batches
from busway_protocol.records.builder import BatchBuilder

pytestmark = pytest.mark.usefixtures("both_streams")
REPLICA_STATE_SINCE = 15


async def create(client: RawClient, partitions: int) -> None:
    """Topic t."""
    topic = CreatableTopic(name="t", num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
    made = await client.ask(CreateTopicsRequest(topics=[topic]), 5)
    assert made.topics[0].error_code == ErrorCode.NONE


async def produce(client: RawClient, partition: int) -> None:
    """One record of a kilobyte."""
    builder = BatchBuilder()
    builder.append(1_700_000_000_000, None, bytes(1_000))
    data = [TopicProduceData(name="t", partition_data=[PartitionProduceData(index=partition, records=builder.build())])]
    made = await client.ask(ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=data), 9)
    assert made.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def fetching(*wanted: FetchPartition, session: int = 0, epoch: int = 0, wait_ms: int = 0) -> FetchRequest:
    """A fetch with a session."""
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=2_000,
        session_id=session,
        session_epoch=epoch,
        topics=[FetchTopic(topic="t", partitions=list(wanted))] if wanted else [],
    )


async def test_a_busy_partition_does_not_starve_the_others_of_its_session(cluster: LocalCluster) -> None:
    """Each answer has room for one batch, partition 0 gets one each time: the records of all three come."""
    async with RawClient(cluster.bootstrap_servers) as client:
        await create(client, 3)
        for partition in (0, 1, 1, 1, 2, 2, 2):
            await produce(client, partition)
        offsets, session, epoch = {0: 0, 1: 0, 2: 0}, 0, 0
        changed = set(offsets)
        for _ in range(9):
            wanted = [
                FetchPartition(partition=at, fetch_offset=offsets[at], partition_max_bytes=2_000) for at in changed
            ]
            answer: Any = await client.ask(fetching(*wanted, session=session, epoch=epoch), 11)
            session, epoch, changed = answer.session_id, epoch + 1, set()
            for partition in answer.responses[0].partitions:
                for header, _ in iter_batches(partition.records or b""):
                    offsets[partition.partition_index] = header.next_offset
                    changed.add(partition.partition_index)
            await produce(client, 0)
        assert offsets == {0: 3, 1: 3, 2: 3}


async def test_a_session_keeps_no_deleted_partition(cluster: LocalCluster) -> None:
    """Its client may never come back, and a partition has indexes and producers."""
    async with RawClient(cluster.bootstrap_servers) as client:
        await create(client, 1)
        deleted = ref(cluster.node.services.replicas.find("t", 0))
        opened = await client.ask(fetching(FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=2_000)), 11)
        assert opened.session_id
        gone = await client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=5_000), 4)
        assert gone.responses[0].error_code == ErrorCode.NONE

    def is_collected() -> bool:
        gc.collect()
        return deleted() is None

    await until(is_collected)


async def test_very_many_partitions_are_read_in_parts(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others have their turn between the parts; the poll that follows misses nothing and answers when there is more."""
    monkeypatch.setattr(fetch_handler, "READ_TOGETHER", 2)
    async with RawClient(cluster.bootstrap_servers) as client, RawClient(cluster.bootstrap_servers) as other:
        await create(client, 5)
        wanted = [FetchPartition(partition=at, fetch_offset=0, partition_max_bytes=2_000) for at in range(5)]
        client.send(frame(fetching(*wanted, wait_ms=60_000), 11))
        await produce(other, 3)
        answer = decode(FetchResponse, 11, await client.frame(), 4)
        given = {each.partition_index: len(each.records or b"") for each in answer.responses[0].partitions}
        assert [at for at, size in given.items() if size] == [3]
        assert sorted(given) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("offset", "epoch", "code"),
    [(5, 0, ErrorCode.NONE), (0, 7, ErrorCode.OFFSET_OUT_OF_RANGE), (5, -1, ErrorCode.OFFSET_OUT_OF_RANGE)],
    ids=["diverging", "unknown-epoch", "out-of-range"],
)
async def test_what_a_client_must_know_ends_its_poll(
    cluster: LocalCluster, offset: int, epoch: int, code: ErrorCode
) -> None:
    """A log that parts from the client's, or an error, is reported at once, not after a minute."""
    async with RawClient(cluster.bootstrap_servers) as client:
        await create(client, 2)
        bad = FetchPartition(partition=0, fetch_offset=offset, last_fetched_epoch=epoch, partition_max_bytes=100)
        good = FetchPartition(partition=1, fetch_offset=0, partition_max_bytes=100)
        async with asyncio.timeout(patient(5)):
            answer = await client.ask(fetching(bad, good, wait_ms=60_000), 12)
        first = answer.responses[0].partitions[0]
        assert first.error_code == code
        assert (first.diverging_epoch.epoch, first.diverging_epoch.end_offset) == (
            (0, 0) if code is ErrorCode.NONE else (-1, -1)
        )


async def test_a_look_up_on_disk_is_waited_for_by_a_thread(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pages around the first batch are not in memory: another thread waits for them, once, and the answer is the same."""
    warmed: list[threading.Thread] = []
    warm = OsLoan.warm

    def cold(file: OsFile, position: int, size: int) -> bytes:
        raise BlockingIOError

    def noted(loan: OsLoan, position: int, size: int) -> None:
        warmed.append(threading.current_thread())
        warm(loan, position, size)

    async with RawClient(cluster.bootstrap_servers) as client:
        await create(client, 1)
        for _ in range(3):
            await produce(client, 0)
        monkeypatch.setattr(OsFile, "read_now", cold)
        monkeypatch.setattr(OsLoan, "warm", noted)
        wanted = FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=10_000)
        answer = await client.ask(fetching(wanted), 11)
        (header, _) = next(iter(iter_batches(answer.responses[0].partitions[0].records)))
        assert header.base_offset == 1
        assert len(warmed) == 1
        assert warmed[0] is not threading.main_thread()


async def test_what_was_there_before_the_wait_comes_with_what_ended_it(cluster: LocalCluster) -> None:
    """Half of min_bytes in one partition, the other half later in another: both come, also in a running session, whose answer names no
    third one."""
    async with RawClient(cluster.bootstrap_servers) as client, RawClient(cluster.bootstrap_servers) as other:
        await create(client, 3)
        wanted = [FetchPartition(partition=at, fetch_offset=0, partition_max_bytes=10_000) for at in range(3)]
        session = (await client.ask(fetching(*wanted), 11)).session_id
        await produce(client, 1)
        waiting = fetching(session=session, epoch=1, wait_ms=60_000)
        waiting.min_bytes, waiting.max_bytes = 1_500, 10_000
        client.send(frame(waiting, 11))
        await produce(other, 2)
        answer = decode(FetchResponse, 11, await client.frame(), 4)
        given = {each.partition_index: len(each.records or b"") for each in answer.responses[0].partitions}
        assert sorted(given) == [1, 2]
        assert all(size > 1_000 for size in given.values())


@pytest.mark.parametrize("version", [11, 12, 15, 17])
@pytest.mark.parametrize("replica", [0, 1, 7, 2**31 - 1])
async def test_a_client_that_says_it_is_a_replica_reads_nothing(
    cluster: LocalCluster, replica: int, version: int
) -> None:
    """CLUSTER_AUTHORIZATION_FAILED for the id of this node or of any other: no records, no session, nothing of the partition reported."""
    async with RawClient(cluster.bootstrap_servers) as client:
        await create(client, 1)
        await produce(client, 0)
        metadata = await client.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12)
        request = fetching(FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=2_000))
        request.topics[0].topic_id = metadata.topics[0].topic_id
        plain = await client.ask(request, version)
        assert plain.responses[0].partitions[0].records
        if version < REPLICA_STATE_SINCE:
            request.replica_id = replica
        else:
            request.replica_state = ReplicaState(replica_id=replica, replica_epoch=1)
        answer = await client.ask(request, version)
        refused = (answer.error_code, answer.session_id, answer.responses)
        assert refused == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, 0, [])
