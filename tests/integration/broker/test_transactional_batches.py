"""Transactions in a partition as clients and coordinators see it: what is written, who reads it when, and what ends it."""

import asyncio
from collections.abc import Collection, Mapping

import pytest
from tests.support.patience import patient
from tests.support.raw_client import RawClient, frame

from busway_bus.kernel.limits import REQUEST_BYTES_WORKED_MAX
from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.compile import decode
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.cluster import ApiVersionsRequest
from busway_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from busway_protocol.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from busway_protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from busway_protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from busway_protocol.messages.transactions import (
    DescribeProducersRequest,
    TopicRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from busway_protocol.records.batch import iter_batches
from busway_protocol.records.builder import BatchBuilder
from busway_protocol.records.record import decode_records

NOW = 1_700_000_000_000
Key = tuple[str, int]


class Coordinator:
    """A coordinator that says what the test wants, when it wants."""

    def __init__(self, code: ErrorCode = ErrorCode.NONE) -> None:
        self.codes = [code]
        self.asked: list[tuple[str, int, int, set[Key], bool]] = []
        self.asking = asyncio.Event()
        self.answers = asyncio.Event()
        self.answers.set()

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[Key],
        *,
        add: bool,
        host: str,
    ) -> Mapping[Key, ErrorCode]:
        """The next code, for all partitions; the last one is repeated."""
        self.asked.append((transactional_id, producer_id, producer_epoch, set(partitions), add))
        self.asking.set()
        await self.answers.wait()
        code = self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]
        return dict.fromkeys(partitions, code)


@pytest.fixture
def coordinator(cluster: LocalCluster) -> Coordinator:
    """Takes the place of the node's own."""
    assert cluster.node is not None
    asked = cluster.node.services.replicas.verifications.verifier = Coordinator()
    return asked


async def create(client: RawClient, topic: str = "t", partitions: int = 1) -> None:
    """A topic."""
    wanted = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
    made = await client.ask(CreateTopicsRequest(topics=[wanted]), 5)
    assert made.topics[0].error_code == ErrorCode.NONE


def batch(
    sequence: int, *, producer: int = 7, epoch: int = 0, transactional: bool = True, control: bool = False
) -> bytes:
    """One record of a producer."""
    builder = BatchBuilder(
        producer_id=producer, producer_epoch=epoch, base_sequence=sequence, transactional=transactional, control=control
    )
    builder.append(NOW, b"k", b"%d/%d/%d" % (producer, epoch, sequence))
    return builder.build()


def producing(*batches: bytes, transactional_id: str | None = "x", acks: int = -1) -> ProduceRequest:
    """Batches for the partitions from 0 on."""
    data = [PartitionProduceData(index=number, records=records) for number, records in enumerate(batches)]
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=1_000,
        topic_data=[TopicProduceData(name="t", partition_data=data)],
    )


async def produce(client: RawClient, *batches: bytes, version: int = 12, **options) -> list[PartitionProduceResponse]:
    """Produce; the answers by partition."""
    answer = await client.ask(producing(*batches, **options), version)
    return list(answer.responses[0].partition_responses)


async def code_of(client: RawClient, records: bytes, **options) -> ErrorCode:
    """What a batch for partition 0 is answered with."""
    (answer,) = await produce(client, records, **options)
    return ErrorCode(answer.error_code)


async def end(
    client: RawClient,
    *,
    producer: int = 7,
    epoch: int = 1,
    committed: bool = True,
    coordinator_epoch: int = 0,
    partitions: Mapping[str, list[int]] | None = None,
    transaction_version: int = 2,
) -> dict[Key, ErrorCode]:
    """End a transaction as a coordinator does that is elsewhere."""
    marker = WritableTxnMarker(
        producer_id=producer,
        producer_epoch=epoch,
        transaction_result=committed,
        coordinator_epoch=coordinator_epoch,
        transaction_version=transaction_version,
        topics=[
            WritableTxnMarkerTopic(name=name, partition_indexes=numbers)
            for name, numbers in (partitions or {"t": [0]}).items()
        ],
    )
    answer = await client.ask(WriteTxnMarkersRequest(markers=[marker]), 2)
    assert [result.producer_id for result in answer.markers] == [producer]
    return {
        (topic.name, partition.partition_index): ErrorCode(partition.error_code)
        for topic in answer.markers[0].topics
        for partition in topic.partitions
    }


def fetching(offset: int, *, isolation_level: int = 1, wait_ms: int = 0) -> FetchRequest:
    """A fetch of partition 0."""
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=10**6)
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        isolation_level=isolation_level,
        topics=[FetchTopic(topic="t", partitions=[partition])],
    )


async def fetch(client: RawClient, offset: int, **options) -> PartitionData:
    """What partition 0 answers."""
    answer = await client.ask(fetching(offset, **options), 11)
    data: PartitionData = answer.responses[0].partitions[0]
    assert data.error_code == ErrorCode.NONE
    return data


def values(data: PartitionData) -> list[bytes]:
    """What a reader of this answer hands out."""
    assert data.records is not None
    aborted = {entry.producer_id for entry in data.aborted_transactions or ()}
    return [
        record.value
        for header, whole in iter_batches(data.records)
        if not header.is_control and not (header.is_transactional and header.producer_id in aborted)
        for record in decode_records(whole)
    ]


async def test_a_reader_of_committed_records_waits_for_the_end(cluster: LocalCluster, coordinator: Coordinator) -> None:
    """The last stable offset moves with the marker, and wakes who waits; what was rolled back is named."""
    async with RawClient(cluster.bootstrap_servers) as client, RawClient(cluster.bootstrap_servers) as reader:
        await create(client)
        assert await code_of(client, batch(0)) is ErrorCode.NONE
        assert await code_of(client, batch(0, producer=8)) is ErrorCode.NONE
        first = await fetch(reader, 0)
        assert (first.high_watermark, first.last_stable_offset, first.records) == (2, 0, b"")
        everything = await fetch(reader, 0, isolation_level=0)
        assert (values(everything), everything.aborted_transactions) == ([b"7/0/0", b"8/0/0"], None)
        reader.send(frame(fetching(0, wait_ms=20_000), 11))
        assert await end(client, producer=8, committed=False) == {("t", 0): ErrorCode.NONE}
        assert await end(client, producer=7, committed=True) == {("t", 0): ErrorCode.NONE}
        assert await reader.frame(), "the second marker ends the wait"
        partition = await fetch(reader, 0)
        assert (partition.high_watermark, partition.last_stable_offset) == (4, 4)
        assert [(entry.producer_id, entry.first_offset) for entry in partition.aborted_transactions or ()] == [(8, 1)]
        assert values(partition) == [b"7/0/0"]
        assert coordinator.asked == [("x", 7, 0, {("t", 0)}, True), ("x", 8, 0, {("t", 0)}, True)]


async def test_the_end_of_a_log_is_another_for_readers_of_committed_records(
    cluster: LocalCluster, coordinator: Coordinator
) -> None:
    """ListOffsets with isolation level 1 knows nothing behind the last stable offset, by time neither."""

    async def listed(timestamp: int, isolation_level: int) -> int:
        query = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        topic = ListOffsetsTopic(name="t", partitions=[query])
        request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=[topic])
        answer = (await client.ask(request, 7)).topics[0].partitions[0]
        assert answer.error_code == ErrorCode.NONE
        return int(answer.offset)

    async with RawClient(cluster.bootstrap_servers) as client:
        await create(client)
        assert await code_of(client, batch(0)) is ErrorCode.NONE
        assert [await listed(time, level) for time in (-1, NOW, -3) for level in (0, 1)] == [1, 0, 0, -1, 0, -1]
        await end(client)
        assert [await listed(time, level) for time in (-1, NOW, -3) for level in (0, 1)] == [2, 2, 0, 0, 1, 1]


@pytest.mark.parametrize(
    ("said", "version", "expected"),
    [
        (ErrorCode.NONE, 12, ErrorCode.NONE),
        (ErrorCode.TRANSACTION_ABORTABLE, 12, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, 11, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, 10, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.INVALID_TXN_STATE, 12, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.PRODUCER_FENCED, 12, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_EPOCH, 12, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 12, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.NOT_COORDINATOR, 12, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 9, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, 12, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 12, ErrorCode.CONCURRENT_TRANSACTIONS),
    ],
    ids=str,
)
async def test_what_a_producer_is_told_of_its_coordinators_answer(
    cluster: LocalCluster, coordinator: Coordinator, said, version, expected
) -> None:
    """Errors that its client knows, as Kafka translates them; nothing is written but where the answer is yes."""
    coordinator.codes = [said]
    async with RawClient(cluster.bootstrap_servers) as client:
        await create(client)
        assert await code_of(client, batch(0), version=version) is expected
        assert {asked[4] for asked in coordinator.asked} == {version >= 12}, "whether the partition is to be added"
        assert (await fetch(client, 0)).high_watermark == (expected is ErrorCode.NONE)


async def test_what_a_producer_sends_meanwhile_waits_behind(cluster: LocalCluster, coordinator: Coordinator) -> None:
    """In the order in which it came, with one question; others are not held up."""
    coordinator.answers.clear()
    async with RawClient(cluster.bootstrap_servers) as client, RawClient(cluster.bootstrap_servers) as other:
        await create(client)
        for sequence in range(4):
            client.send(frame(producing(batch(sequence)), 12))
        await coordinator.asking.wait()
        assert await code_of(other, batch(0, producer=9, transactional=False), transactional_id=None) is ErrorCode.NONE
        coordinator.answers.set()
        for _ in range(4):
            assert await client.frame()
        await end(client)
        assert values(await fetch(client, 0)) == [b"9/0/0", b"7/0/0", b"7/0/1", b"7/0/2", b"7/0/3"]
    assert len(coordinator.asked) == 1


async def test_an_end_that_comes_before_the_batch_makes_the_answer_void(
    cluster: LocalCluster, coordinator: Coordinator
) -> None:
    """Or the batch would open a transaction that never ends. Where transactions may share an epoch the broker does not ask again for the client."""
    coordinator.answers.clear()
    async with RawClient(cluster.bootstrap_servers) as client, RawClient(cluster.bootstrap_servers) as other:
        await create(client)
        client.send(frame(producing(batch(0)), 11))
        await coordinator.asking.wait()
        await end(other, epoch=0, transaction_version=1, committed=False)
        coordinator.answers.set()
        assert await client.frame()
        partition = await fetch(other, 0)
        assert (partition.high_watermark, partition.last_stable_offset) == (1, 1)
        assert len(coordinator.asked) == 1
        assert await code_of(client, batch(0), version=11) is ErrorCode.NONE, "who asks again is asked for again"


async def test_the_end_of_the_last_transaction_makes_the_broker_ask_again(
    cluster: LocalCluster, coordinator: Coordinator
) -> None:
    """A client of transaction version 2, whose epoch tells its transactions apart, does not notice; it is asked for five times at most."""
    async with RawClient(cluster.bootstrap_servers) as client, RawClient(cluster.bootstrap_servers) as other:
        await create(client)
        for ends, code in ((1, ErrorCode.NONE), (9, ErrorCode.NOT_ENOUGH_REPLICAS)):
            coordinator.asked.clear()
            answer = asyncio.ensure_future(client.ask(producing(batch(0, epoch=ends)), 12))
            while not answer.done():
                coordinator.answers.clear()
                coordinator.asking.clear()
                asking = asyncio.ensure_future(coordinator.asking.wait())
                await asyncio.wait([answer, asking], return_when=asyncio.FIRST_COMPLETED)
                asking.cancel()
                if len(coordinator.asked) <= ends and not answer.done():
                    await end(other, epoch=ends, committed=False)
                coordinator.answers.set()
            assert (await answer).responses[0].partition_responses[0].error_code == code
            assert len(coordinator.asked) == min(ends + 1, 5)
            await end(other, epoch=ends + 1)


async def test_who_hangs_up_while_its_coordinator_is_asked_has_sent_what_it_has_sent(
    cluster: LocalCluster, coordinator: Coordinator
) -> None:
    """What has begun goes on."""
    coordinator.answers.clear()
    async with RawClient(cluster.bootstrap_servers) as reader:
        await create(reader)
        async with RawClient(cluster.bootstrap_servers) as client:
            client.send(frame(producing(batch(0)), 12))
            await coordinator.asking.wait()
        reader.send(frame(fetching(0, isolation_level=0, wait_ms=20_000), 11))
        coordinator.answers.set()
        assert await reader.frame()
        assert (await fetch(reader, 0)).high_watermark == 1


async def test_a_node_that_stops_asks_nobody_any_more(cluster: LocalCluster, coordinator: Coordinator) -> None:
    """Producers that wait do not hold it up."""
    coordinator.answers.clear()
    async with RawClient(cluster.bootstrap_servers) as client:
        await create(client)
        client.send(frame(producing(batch(0)), 12))
        await coordinator.asking.wait()
        async with asyncio.timeout(patient(10)):
            await cluster.stop()
        await cluster.start()
    async with RawClient(cluster.bootstrap_servers) as client:
        assert (await fetch(client, 0)).high_watermark == 0


async def test_a_transaction_has_one_producer_and_a_name(cluster: LocalCluster, coordinator: Coordinator) -> None:
    """What cannot be verified is refused; without a name so is all that comes with it, what has no place too."""
    async with RawClient(cluster.bootstrap_servers) as client:
        await create(client, partitions=2)
        answers = await produce(client, batch(0), batch(0, producer=9, transactional=False), transactional_id=None)
        assert [answer.error_code for answer in answers] == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
        answers = await produce(client, *[batch(0)] * 3, transactional_id=None)  # the third partition is not there
        assert [answer.error_code for answer in answers] == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 3
        assert (await fetch(client, 0)).high_watermark == 0
        answers = await produce(client, batch(0), batch(0, producer=8))
        assert {answer.error_code for answer in answers} == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}
        assert await code_of(client, batch(0)[:40]) is ErrorCode.INVALID_RECORD
        assert await code_of(client, batch(0, control=True)) is ErrorCode.INVALID_RECORD
        damaged = bytearray(batch(0))
        damaged[-1] ^= 1
        assert await code_of(client, bytes(damaged)) is ErrorCode.CORRUPT_MESSAGE
        assert coordinator.asked == []
        assert [answer.error_code for answer in await produce(client, batch(0), batch(0))] == [0, 0]
        assert coordinator.asked == [("x", 7, 0, {("t", 0), ("t", 1)}, True)], "all partitions are asked for together"
        assert await code_of(client, batch(1, transactional=False)) is ErrorCode.INVALID_TXN_STATE
        assert await code_of(client, batch(3, transactional=False)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


async def test_a_refused_batch_without_an_answer_ends_its_connection(
    cluster: LocalCluster, coordinator: Coordinator
) -> None:
    """As any batch that was sent with acks=0."""
    coordinator.codes = [ErrorCode.INVALID_TXN_STATE]
    async with RawClient(cluster.bootstrap_servers) as client:
        await create(client)
        client.send(frame(producing(batch(0), acks=0), 12))
        assert await client.frame() == b""


async def test_late_batches_and_coordinators_that_were_replaced_are_fenced(
    cluster: LocalCluster, coordinator: Coordinator
) -> None:
    """By the epochs that the partition has seen; a marker that is repeated is written again."""
    everywhere = {"t": [0, 5], "gone": [0]}
    unknown = dict.fromkeys([("t", 5), ("gone", 0)], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    async with RawClient(cluster.bootstrap_servers) as client:
        await create(client)
        assert await code_of(client, batch(0)) is ErrorCode.NONE
        assert await end(client, epoch=0) == {("t", 0): ErrorCode.INVALID_PRODUCER_EPOCH}, "version 2 has a new one"
        assert await end(client, coordinator_epoch=3, partitions=everywhere) == {("t", 0): ErrorCode.NONE, **unknown}
        assert await end(client, coordinator_epoch=3) == {("t", 0): ErrorCode.NONE}
        assert await end(client, coordinator_epoch=2) == {("t", 0): ErrorCode.TRANSACTION_COORDINATOR_FENCED}
        assert await code_of(client, batch(1)) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await code_of(client, batch(1, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert await code_of(client, batch(0, epoch=1)) is ErrorCode.NONE
        response = await client.ask(
            DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0, 9])]), 0
        )
        first, other = response.topics[0].partitions
        (producer,) = first.active_producers
        assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (7, 1, 0)
        assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (3, 3)
        assert other.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_marker_that_comes_again_has_no_second_effect(cluster: LocalCluster, coordinator: Coordinator) -> None:
    """Its sender may not know that it has been (KAFKA-19999): it is accepted, and readers of what is committed see no more and no
    fewer aborted transactions for it, also where another one has stayed open; a coordinator that was replaced is fenced."""
    async with RawClient(cluster.bootstrap_servers) as client:
        await create(client)
        assert await code_of(client, batch(0, producer=8)) is ErrorCode.NONE
        assert await code_of(client, batch(0)) is ErrorCode.NONE
        assert await code_of(client, batch(1, producer=8)) is ErrorCode.NONE
        for _ in range(2):
            assert await end(client, committed=False, coordinator_epoch=3) == {("t", 0): ErrorCode.NONE}
            assert (await fetch(client, 0)).last_stable_offset == 0, "that of producer 8 is open"
        assert await end(client, producer=8, coordinator_epoch=3) == {("t", 0): ErrorCode.NONE}
        for repeated in range(3):
            partition = await fetch(client, 0)
            assert (partition.high_watermark, partition.last_stable_offset) == (6 + repeated, 6 + repeated)
            assert [(entry.producer_id, entry.first_offset) for entry in partition.aborted_transactions or ()] == [
                (7, 1)
            ]
            again = await end(client, committed=False, coordinator_epoch=3)
            assert again == {("t", 0): ErrorCode.NONE}
        before = await fetch(client, 0)
        for _ in range(2):
            stale = await end(client, committed=False, coordinator_epoch=2)
            assert stale == {("t", 0): ErrorCode.TRANSACTION_COORDINATOR_FENCED}
        after = await fetch(client, 0)
        assert (after.high_watermark, after.last_stable_offset) == (before.high_watermark, before.last_stable_offset)


@pytest.mark.parametrize("crash", [True, False])
async def test_an_open_transaction_outlives_the_node(
    cluster: LocalCluster, coordinator: Coordinator, crash: bool
) -> None:
    """After a start readers stop where they stopped, its producer goes on, and what was aborted is named."""
    async with RawClient(cluster.bootstrap_servers) as client:
        await create(client)
        assert await code_of(client, batch(0, producer=8)) is ErrorCode.NONE
        await end(client, producer=8, committed=False)
        assert await code_of(client, batch(0)) is ErrorCode.NONE
        await (cluster.crash() if crash else cluster.stop())
    await cluster.start()
    async with RawClient(cluster.bootstrap_servers) as client:
        partition = await fetch(client, 0)
        assert (partition.high_watermark, partition.last_stable_offset) == (3, 2)
        assert [(entry.producer_id, entry.first_offset) for entry in partition.aborted_transactions or ()] == [(8, 0)]
        assert await code_of(client, batch(1)) is ErrorCode.NONE, "nobody is asked: the transaction is open"
        await end(client)
        assert values(await fetch(client, 2)) == [b"7/0/0", b"7/0/1"]


async def test_batches_that_wait_for_their_coordinator_count_as_memory_of_their_client(
    cluster: LocalCluster, coordinator: Coordinator
) -> None:
    """Thirty batches of 900 kB: no more are read than some megabytes, and all are written when the coordinator answers."""
    builder_bytes, count = 900_000, 30
    coordinator.answers.clear()
    frames = []
    for sequence in range(count):
        builder = BatchBuilder(producer_id=7, producer_epoch=0, base_sequence=sequence, transactional=True)
        builder.append(NOW, b"k", bytes(builder_bytes))
        frames.append(frame(producing(builder.build()), 12))
    async with RawClient(cluster.bootstrap_servers) as client:
        await create(client)
        for data in frames:
            client.send(data)
        await coordinator.asking.wait()
        async with RawClient(cluster.bootstrap_servers) as other:
            for _ in range(20):  # time for all that will be read
                await other.ask(ApiVersionsRequest(), 0)
        assert cluster.node is not None
        memory = cluster.node._listeners._memory
        held = memory.small.used + memory.large.used
        assert REQUEST_BYTES_WORKED_MAX <= held <= REQUEST_BYTES_WORKED_MAX + 3 * builder_bytes
        coordinator.answers.set()
        for _ in range(count):
            answer = decode(ProduceResponse, 12, await client.frame(), 5)
            assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        assert memory.small.used + memory.large.used == 0
