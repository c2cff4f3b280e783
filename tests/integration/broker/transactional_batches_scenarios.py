"""What is asked of Apache Kafka and of Busway alike about transactions in a partition.

Here: one function for each subject; every scenario has a topic of its own.
Not here: how answers are compared.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from tests.integration.broker.groups_probe import DEADLINE_S
from tests.integration.broker.transactions_probe import Identity, TransactionsRun

from busway_protocol.errors import ErrorCode
from busway_protocol.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from busway_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from busway_protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from busway_protocol.messages.transactions import (
    DescribeProducersRequest,
    TopicRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from busway_protocol.records.builder import BatchBuilder

Scenario = Callable[[TransactionsRun], Awaitable[None]]


async def topic(run: TransactionsRun, name: str) -> tuple[str, int]:
    """A topic of one partition that has a leader."""
    wanted = CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    await run.admin.request(CreateTopicsRequest(topics=[wanted], timeout_ms=10_000))
    async with asyncio.timeout(DEADLINE_S):
        query = ListOffsetsPartition(partition_index=0, timestamp=-1)
        ends = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=[query])])
        while (await run.admin.request(ends, at_most=7)).topics[0].partitions[0].error_code:
            pass
    return name, 0


async def marker(
    run: TransactionsRun,
    label: str,
    place: tuple[str, int],
    identity: Identity,
    *,
    version: int,
    committed: bool = True,
    coordinator_epoch: int = 0,
) -> None:
    """WriteTxnMarkers, logged."""
    end = WritableTxnMarker(
        producer_id=identity[0],
        producer_epoch=identity[1],
        transaction_result=committed,
        coordinator_epoch=coordinator_epoch,
        transaction_version=version,
        topics=[WritableTxnMarkerTopic(name=place[0], partition_indexes=[place[1]])],
    )
    await run.ask(label, WriteTxnMarkersRequest(markers=[end]))


async def plain(run: TransactionsRun, label: str, place: tuple[str, int], records: bytes, name: str | None) -> None:
    """A batch as it is; its outcome, logged."""
    data = [PartitionProduceData(index=place[1], records=records)]
    request = ProduceRequest(
        transactional_id=name,
        acks=-1,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=place[0], partition_data=data)],
    )
    outcome = (await run.admin.request(request, at_most=12)).responses[0].partition_responses[0]
    run.note(label, [ErrorCode(outcome.error_code).name, outcome.base_offset])


async def seen(run: TransactionsRun, label: str, place: tuple[str, int]) -> None:
    """What readers of both kinds see, where the log ends for them, and who has written."""
    for committed in (False, True):
        await run.read(f"{label}, {'committed' if committed else 'all'}", place, committed=committed)
        query = ListOffsetsPartition(partition_index=place[1], timestamp=-1)
        ends = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(committed),
            topics=[ListOffsetsTopic(name=place[0], partitions=[query])],
        )
        await run.ask(f"{label}, end", ends, at_most=7)
    request = DescribeProducersRequest(topics=[TopicRequest(name=place[0], partition_indexes=[place[1]])])
    answer: Any = await run.admin.request(request)
    for topics in answer.topics:
        for partition in topics.partitions:
            partition.active_producers.sort(key=lambda producer: producer.producer_id)
    run.note(f"{label}, producers", answer)


async def ends(run: TransactionsRun) -> None:
    """Which epochs of producers and coordinators may end a transaction, in both versions (KIP-1228)."""
    place = await topic(run, "ends")
    for version in (1, 2):
        name = f"ends-{version}"
        identity = producer, epoch = await run.begun(
            f"raise {version}", name, await run.begun(f"begin {version}", name)
        )
        if version == 1:
            await run.add(f"add {version}", name, identity, place)
        at_most = 11 if version == 1 else 12
        assert await run.produce("one", name, identity, place, sequence=0, at_most=at_most) == ErrorCode.NONE
        await seen(run, f"open, {version}", place)
        await marker(run, f"older epoch, {version}", place, (producer, epoch - 1), version=version)
        if version == 2:
            await marker(run, "same epoch, open", place, identity, version=2)
        ended = identity if version == 1 else (producer, epoch + 1)
        for label, coordinator_epoch in (("first", 5), ("repeated", 5), ("of a zombie", 4), ("of a later one", 6)):
            await marker(run, f"{label}, {version}", place, ended, version=version, coordinator_epoch=coordinator_epoch)
        await marker(run, f"aborted, {version}", place, ended, version=version, coordinator_epoch=6, committed=False)
        await seen(run, f"ended, {version}", place)
        await run.produce(f"late, {version}", name, identity, place, sequence=1, at_most=at_most)


async def aborts(run: TransactionsRun) -> None:
    """Interleaved transactions, their outcomes, and what is described of them while others are open."""
    place = await topic(run, "aborts")
    producers = [await run.begun(f"begin {number}", f"aborts-{number}") for number in range(3)]
    for number, identity in enumerate(producers):
        for sequence in range(2):
            label = f"{number}/{sequence}"
            await run.produce(label, f"aborts-{number}", identity, place, sequence=sequence, at_most=12)
    for number, committed in ((1, False), (0, True), (2, False)):
        await seen(run, f"before {number} ends", place)
        end = producers[number][0], producers[number][1] + 1
        await marker(run, f"{number} ends", place, end, version=2, committed=committed)
    await seen(run, "all ended", place)


async def refusals(run: TransactionsRun) -> None:
    """Batches that no partition takes."""
    place = await topic(run, "refusals")
    producer, epoch = identity = await run.begun("begin", "refusals")

    def batch(sequence: int, *, transactional: bool = True, control: bool = False, delta: int = 0) -> bytes:
        builder = BatchBuilder(
            producer_id=producer,
            producer_epoch=epoch + delta,
            base_sequence=sequence,
            transactional=transactional,
            control=control,
        )
        builder.append(1_700_000_000_000, b"\0\0\0\1", b"\0\0\0\0\0\0")
        return builder.build()

    await plain(run, "a marker of a client", place, batch(0, control=True), "refusals")
    await plain(run, "no name", place, batch(0), None)
    await plain(run, "a name of nobody", place, batch(0), "nobody")
    await plain(run, "a later sequence first", place, batch(3), "refusals")
    await plain(run, "an epoch to come", place, batch(0, delta=1), "refusals")
    await plain(run, "first", place, batch(0), "refusals")
    await plain(run, "repeated", place, batch(0), "refusals")
    await plain(run, "a gap", place, batch(2), "refusals")
    await plain(run, "outside of the transaction", place, batch(1, transactional=False), "refusals")
    await marker(run, "end", place, (producer, epoch + 1), version=2)
    await plain(run, "late", place, batch(1), "refusals")
    assert identity == (producer, epoch)


SCENARIOS: Final[tuple[Scenario, ...]] = (ends, aborts, refusals)
