"""Transactions on a real node: what a crash, a disk or a deletion at any moment leaves of one, and what is the broker's own."""

import asyncio
import contextlib
import functools
from collections.abc import Collection, Mapping
from typing import Any

import confluent_kafka
import pytest
from tests.integration.broker.test_response_before_durable import held
from tests.integration.broker.transactions_probe import TOPICS, TransactionsRun, by_topic, transactions_against
from tests.support.patience import patient
from tests.support.variants import with_variants

from busway_bus.handlers.common.config_entries import broker_entries
from busway_bus.handlers.common.topic_creation import create_topic
from busway_bus.kernel.topics import INTERNAL, OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from busway_bus.kernel.transactions import EndTransaction
from busway_bus.metadata import bootstrap
from busway_bus.metadata.features import (
    ELR_VERSION,
    GROUP_VERSION,
    METADATA_VERSION,
    SHARE_VERSION,
    SUPPORTED,
    TRANSACTION_VERSION,
)
from busway_bus.node import Node
from busway_bus.testing.local_cluster import LocalCluster
from busway_bus.testing.world import World
from busway_bus.transactions.states import State
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.cluster import ApiVersionsRequest
from busway_protocol.messages.groups_classic import OffsetFetchRequest, OffsetFetchRequestGroup
from busway_protocol.messages.offsets import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from busway_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from busway_protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from busway_protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from busway_protocol.records.builder import BatchBuilder

PLACES = (("one", 0), ("two", 1))
STEPS_MAX = 400
"""A transaction comes to its end in fewer steps on the disk."""


def node_of(cluster: LocalCluster) -> Node:
    """The node that runs."""
    assert cluster.node is not None
    return cluster.node


def end_of(topic: str, number: int, cluster: LocalCluster) -> int:
    """Where a log ends, markers included."""
    return node_of(cluster).services.replicas.find(topic, number).log.end_offset


# Whole or not at all


class Story:
    """One transaction over two partitions and a group's offset, while its broker may die."""

    def __init__(self) -> None:
        self.identity = (-1, -1)
        self.acknowledged = False

    async def prepare(self, servers: str) -> None:
        """A producer, and what came before; the topics are flushed, whatever the broker's default is."""
        host, _, port = servers.rpartition(":")
        run = TransactionsRun(host, int(port))
        admin = await run.connect("admin")
        flushed = [CreatableTopicConfig(name="durability", value="flush")]
        topics = [
            CreatableTopic(name=name, num_partitions=2, replication_factor=1, assignments=[], configs=flushed)
            for name in TOPICS
        ]
        await admin.request(CreateTopicsRequest(topics=topics, timeout_ms=10_000))
        run.close()
        async with transactions_against(servers) as run:
            self.identity = await run.begun("begin", "x")

    async def transact(self, servers: str, *, commit: bool) -> None:
        """All of it."""
        host, _, port = servers.rpartition(":")
        run = TransactionsRun(host, int(port))
        run.admin = await run.connect("producer")
        try:
            for place in PLACES:
                assert not await run.produce("written", "x", self.identity, place, sequence=0, at_most=12)
            answer = await run.ask("offset", self.offset())
            assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
            answer = await run.ask(
                "end",
                EndTxnRequest(
                    transactional_id="x",
                    producer_id=self.identity[0],
                    producer_epoch=self.identity[1],
                    committed=commit,
                ),
            )
            self.acknowledged = answer.error_code == ErrorCode.NONE
            await run.settled("x")
        finally:
            run.close()

    def offset(self) -> TxnOffsetCommitRequest:
        """Offset 7 of topic one."""
        return offsets_of(self.identity, 7)

    async def look(self, servers: str) -> list[bool]:
        """A new producer begins, so that all of the old one is over; which parts of its transaction are in force."""
        async with transactions_against(servers) as run:
            begun = await run.begun("begin anew", "x")
            assert begun > self.identity
            parts = []
            for place in PLACES:
                await run.read("read", place, committed=True)
                code, high_watermark, last_stable, batches, aborted = run.log[-1][1]
                assert (code, high_watermark) == (0, last_stable), "nothing is open any more"
                data = [content for *_, content in batches if content != "a marker"]
                assert data in ([], [[b"written"]])
                parts.append(bool(data) and not aborted)
            group = OffsetFetchRequestGroup(group_id="g", topics=None)
            answer = await run.admin.request(OffsetFetchRequest(groups=[group], require_stable=True), at_most=9)
            assert answer.groups[0].error_code == ErrorCode.NONE
            committed = [part.committed_offset for topic in answer.groups[0].topics for part in topic.partitions]
            assert committed in ([], [7])
            parts.append(bool(committed))
            return parts


async def dies_at(
    world: World, *, step: int, commit: bool, power: bool, durability: str
) -> tuple[bool, Story, list[bool]]:
    """The broker dies at a step on its disk within the transaction, and comes back; whether it got so far."""
    story, node = Story(), world.node("n1", {"log.durability": durability})
    await node.start()
    client = world.process("client")
    await client.run(story.prepare, node.bootstrap_servers)
    (node.power_cut if power else node.crash)(at_step=step)
    transaction = client.start(functools.partial(story.transact, node.bootstrap_servers, commit=commit))
    while node.running and not transaction.done():
        await world.sleep(0.05)
    died = not node.running
    if died:
        transaction.cancel()
        await asyncio.wait([transaction])
        if not transaction.cancelled():
            assert not isinstance(transaction.exception(), AssertionError)
        node.disk.steps_left = None
        await node.start()
    else:
        node.disk.steps_left = None
        await transaction
        if power:
            node.power_cut()
            await node.start()
    return died, story, await world.process("reader").run(story.look, node.bootstrap_servers)


@pytest.mark.slow
@pytest.mark.parametrize("durability", with_variants(["flush", "os"], gate=["flush"]))
@pytest.mark.parametrize("power", [True, False], ids=["power cut", "kill"])
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_a_transaction_is_whole_whatever_step_its_broker_dies_at(commit: bool, power: bool, durability: str) -> None:
    """All partitions and the offset, or none of them; what was acknowledged is so; nothing stays open."""
    outcomes = set()
    for step in range(STEPS_MAX):
        dies = functools.partial(dies_at, step=step, commit=commit, power=power, durability=durability)
        died, story, parts = World(seed=step).run(dies)
        assert len(set(parts)) == 1, f"torn at step {step}: {parts}"
        if story.acknowledged:
            assert parts[0] is commit, f"an acknowledged end was taken back at step {step}"
        assert commit or not parts[0]
        outcomes.add((died, parts[0]))
        if not died:
            break
    else:
        raise AssertionError(f"the transaction takes more than {STEPS_MAX} steps")
    assert outcomes == ({(True, False), (True, True), (False, True)} if commit else {(True, False), (False, False)})


class Refusing:
    """A writer of markers that refuses for a while, and notes what it was asked."""

    def __init__(self, cluster: LocalCluster, code: ErrorCode) -> None:
        self._markers = node_of(cluster).services.transactions.markers
        self._writer = self._markers._writer
        self._markers._writer = self
        self._code = code
        self.asked: list[tuple[EndTransaction, tuple[tuple[str, int], ...]]] = []
        self.refuses = 1_000_000

    async def write(
        self, marker: EndTransaction, partitions: Collection[tuple[str, int]], **options: Any
    ) -> Mapping[tuple[str, int], ErrorCode]:
        self.asked.append((marker, tuple(partitions)))
        if len(self.asked) > self.refuses:
            return await self._writer.write(marker, partitions)
        written = await self._writer.write(marker, list(partitions)[1:])
        return {next(iter(partitions)): self._code, **written}


async def open_transaction(run: TransactionsRun, identity: tuple[int, int]) -> None:
    """One record in each partition."""
    for place in PLACES:
        assert not await run.produce("written", "x", identity, place, sequence=0, at_most=12)


def end(identity: tuple[int, int], *, commit: bool = True) -> EndTxnRequest:
    """EndTxn of version 5."""
    return EndTxnRequest(transactional_id="x", producer_id=identity[0], producer_epoch=identity[1], committed=commit)


@pytest.mark.parametrize("clean", [True, False])
async def test_what_is_decided_goes_on_after_a_start(cluster: LocalCluster, clean: bool) -> None:
    """The decision was answered, the markers were not written: the next start writes them, by itself."""
    async with transactions_against(cluster.bootstrap_servers) as run:
        identity = await run.begun("begin", "x")
        await open_transaction(run, identity)
        refusing = Refusing(cluster, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert (await run.admin.request(end(identity))).error_code == ErrorCode.NONE
        while not refusing.asked:
            await asyncio.sleep(0)
    await (cluster.stop if clean else cluster.crash)()
    await cluster.start()
    async with asyncio.timeout(patient(10)):
        while node_of(cluster).services.transactions.transactions()[-1][1].state is not State.COMPLETE_COMMIT:
            await asyncio.sleep(0.01)
    async with transactions_against(cluster.bootstrap_servers) as run:
        for place in PLACES:
            await run.read("read", place, committed=True)
            *_, batches, aborted = run.log[-1][1]
            assert ([b"written"] in [content for *_, content in batches], aborted) == (True, [])


async def test_markers_are_tried_again_where_they_are_missing(cluster: LocalCluster) -> None:
    """Only where they are; the description of the transaction shows those; meanwhile its producer may not go on."""
    async with transactions_against(cluster.bootstrap_servers) as run:
        identity = await run.begun("begin", "x")
        await open_transaction(run, identity)
        refusing = Refusing(cluster, ErrorCode.KAFKA_STORAGE_ERROR)
        answer = await run.admin.request(end(identity))
        assert (answer.producer_id, answer.producer_epoch) == (identity[0], identity[1] + 1)
        while len(refusing.asked) < 3:
            await asyncio.sleep(0.01)
        known, remaining = node_of(cluster).services.transactions.transaction("x")
        assert (known.state, remaining) == (State.PREPARE_COMMIT, {PLACES[0]})
        await run.batch("add", "x", (identity[0], identity[1] + 1), PLACES[0], verify=False)
        (result,) = run.log[-1][1].results_by_transaction[0].topic_results[0].results_by_partition
        assert result.partition_error_code == ErrorCode.CONCURRENT_TRANSACTIONS
        refusing.refuses = len(refusing.asked)
        await run.settled("x")
        assert [places for _, places in refusing.asked[:2]] == [PLACES, PLACES[:1]]
        assert {marker.producer_epoch for marker, _ in refusing.asked} == {identity[1] + 1}


async def test_a_topic_that_is_deleted_needs_no_marker(cluster: LocalCluster) -> None:
    """The transaction ends in what is left."""
    async with transactions_against(cluster.bootstrap_servers) as run:
        identity = await run.begun("begin", "x")
        await open_transaction(run, identity)
        refusing = Refusing(cluster, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        await run.admin.request(end(identity))
        gone = DeleteTopicState(name=PLACES[0][0])
        await run.admin.request(DeleteTopicsRequest(topics=[gone], timeout_ms=10_000))
        await run.settled("x")
        assert refusing.refuses > len(refusing.asked)
        assert await run.begun("again", "x") == (identity[0], identity[1] + 2)


async def test_no_marker_is_written_before_the_decision_is_durable(cluster: LocalCluster) -> None:
    """And no client sees it."""
    async with transactions_against(cluster.bootstrap_servers) as run:
        identity = await run.begun("begin", "x")
        await open_transaction(run, identity)
        ends = [end_of(*place, cluster) for place in PLACES]
        other = await run.connect("other")
        with held(node_of(cluster).services.replicas.find(TRANSACTIONS_TOPIC, 0)) as gate:
            answer = asyncio.create_task(other.request(end(identity)))
            while not gate.reached.is_set():
                await asyncio.sleep(0)
            for _ in range(3):
                await run.admin.request(ApiVersionsRequest(client_software_name="a", client_software_version="1"))
            assert [end_of(*place, cluster) for place in PLACES] == ends
            assert not answer.done()
        assert (await answer).error_code == ErrorCode.NONE
        await run.settled("x")
        assert [end_of(*place, cluster) for place in PLACES] == [offset + 1 for offset in ends]


async def test_a_transaction_is_over_when_its_markers_are_on_disk(cluster: LocalCluster) -> None:
    """Also where `durability` asks for less: a marker that a power cut takes would never be written, and the transaction open for ever."""
    async with transactions_against(cluster.bootstrap_servers) as run:
        config = CreatableTopicConfig(name="durability", value="os")
        swift = CreatableTopic(name="swift", num_partitions=1, replication_factor=1, assignments=[], configs=[config])
        await run.admin.request(CreateTopicsRequest(topics=[swift], timeout_ms=10_000))
        identity = await run.begun("begin", "x")
        assert not await run.produce("written", "x", identity, ("swift", 0), sequence=0, at_most=12)
        with held(node_of(cluster).services.replicas.find("swift", 0)) as gate:
            assert (await run.admin.request(end(identity))).error_code == ErrorCode.NONE
            async with asyncio.timeout(patient(10)):
                while not gate.reached.is_set():
                    await asyncio.sleep(0)
            for _ in range(3):
                await run.admin.request(ApiVersionsRequest(client_software_name="a", client_software_version="1"))
            assert node_of(cluster).services.transactions.transaction("x")[0].state is State.PREPARE_COMMIT
        await run.until("x", "CompleteCommit", markers={("swift", 0): 1})


async def test_who_asks_and_hangs_up_is_carried_out(cluster: LocalCluster) -> None:
    """The connection ends while the decision is on its way to the disk: it is decided, and carried out."""
    async with transactions_against(cluster.bootstrap_servers) as run:
        identity = await run.begun("begin", "x")
        await open_transaction(run, identity)
        other = await run.connect("other")
        with held(node_of(cluster).services.replicas.find(TRANSACTIONS_TOPIC, 0)) as gate:
            answer = asyncio.create_task(other.request(end(identity)))
            while not gate.reached.is_set():
                await asyncio.sleep(0)
            other.close()
            await asyncio.wait([answer])
        await run.until("x", "CompleteCommit", markers=dict.fromkeys(PLACES, 1))


@pytest.mark.parametrize("version", [1, 2])
async def test_the_next_end_is_carried_out_while_the_last_one_becomes_durable(
    cluster: LocalCluster, version: int
) -> None:
    """The producer is two transactions further before the disk has noted that the first has ended. Before version 2 both have one epoch."""
    ends_as = 5 if version == 2 else 4
    async with transactions_against(cluster.bootstrap_servers) as run:
        identity = await run.begun("begin", "x")
        if version < 2:
            await run.add("add", "x", identity, *PLACES)
        for place in PLACES:
            assert not await run.produce("written", "x", identity, place, sequence=0, at_most=10 + version)
        node = node_of(cluster)
        writer = node.services.transactions.markers._writer
        gates = contextlib.ExitStack()
        written = asyncio.Event()

        class Then:
            """Writes, and holds the log of transactions from then on."""

            async def write(
                self, marker: EndTransaction, partitions: Collection[tuple[str, int]], **options: Any
            ) -> Mapping[tuple[str, int], ErrorCode]:
                codes = await writer.write(marker, partitions)
                if not written.is_set():
                    gates.enter_context(held(node.services.replicas.find(TRANSACTIONS_TOPIC, 0)))
                    written.set()
                return codes

        node.services.transactions.markers._writer = Then()
        assert (await run.admin.request(end(identity), at_most=ends_as)).error_code == ErrorCode.NONE
        await written.wait()
        following = (identity[0], identity[1] + 1) if version == 2 else identity
        add, ends = await run.connect("add"), await run.connect("end")
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=following[0],
            v3_and_below_producer_epoch=following[1],
            v3_and_below_topics=by_topic(PLACES),
        )
        if version == 2:
            transaction = AddPartitionsToTxnTransaction(
                transactional_id="x", producer_id=following[0], producer_epoch=following[1], topics=by_topic(PLACES)
            )
            request = AddPartitionsToTxnRequest(transactions=[transaction])
        added = asyncio.create_task(add.request(request, at_most=5 if version == 2 else 3))
        while node.services.transactions.transaction("x")[0].state is not State.ONGOING:
            await asyncio.sleep(0)
        ended = asyncio.create_task(ends.request(end(following), at_most=ends_as))
        while node.services.transactions.transaction("x")[0].state is not State.PREPARE_COMMIT:
            await asyncio.sleep(0)
        assert not added.done()
        gates.close()
        assert (await added).error_code == ErrorCode.NONE
        assert (await ended).error_code == ErrorCode.NONE
        await run.until("x", "CompleteCommit", markers=dict.fromkeys(PLACES, 2))
        assert await run.begun("again", "x") == (identity[0], identity[1] + (3 if version == 2 else 1))


async def test_markers_of_another_leadership_do_not_count(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another broker coordinates while markers are written, ends the transaction, and the next one is prepared with the same epoch: when this
    broker coordinates again, the next one gets markers of its own."""
    async with transactions_against(cluster.bootstrap_servers) as run:
        identity = await run.begun("begin", "x")

        async def write(sequence: int) -> None:
            await run.add("add", "x", identity, *PLACES)
            for place in PLACES:
                assert not await run.produce("written", "x", identity, place, sequence=sequence, at_most=11)

        await write(0)
        transactions = node_of(cluster).services.transactions
        markers, runtime = transactions.markers, transactions.runtime
        writer, epoch = markers._writer, 0
        reached, go = asyncio.Event(), asyncio.Event()

        class Other:
            """Writes nothing the first time, as if the partitions had got the markers from the other broker."""

            async def write(
                self, marker: EndTransaction, partitions: Collection[tuple[str, int]], **options: Any
            ) -> Mapping[tuple[str, int], ErrorCode]:
                markers._writer = writer
                reached.set()
                await go.wait()
                return dict.fromkeys(partitions, ErrorCode.NONE)

        monkeypatch.setattr(markers, "_writer", Other())
        monkeypatch.setattr(markers, "_coordinator_epoch", lambda number: epoch)
        assert (await run.admin.request(end(identity), at_most=4)).error_code == ErrorCode.NONE
        await reached.wait()
        ended = transactions.transaction("x")[0].marker(0)
        assert set((await writer.write(ended, PLACES)).values()) == {ErrorCode.NONE}
        levels = transactions._levels(0)
        await runtime.write(
            runtime.partition_of("x"), lambda shard: shard.complete("x", identity, levels, runtime.now())
        )
        await write(1)
        assert (await run.admin.request(end(identity), at_most=4)).error_code == ErrorCode.NONE
        epoch = 2
        go.set()
        await run.until("x", "CompleteCommit", markers=dict.fromkeys(PLACES, 2))


class SlowMarkers:
    """A writer of markers that waits to be let go before each write."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._markers = node_of(cluster).services.transactions.markers
        self._writer = self._markers._writer
        self._markers._writer = self
        self.reached, self.go = asyncio.Event(), asyncio.Event()

    async def write(
        self, marker: EndTransaction, partitions: Collection[tuple[str, int]], **options: Any
    ) -> Mapping[tuple[str, int], ErrorCode]:
        self.reached.set()
        await self.go.wait()
        return await self._writer.write(marker, partitions)


async def test_transactions_back_to_back_wait_for_the_markers_of_the_last() -> None:
    """A client of transaction version 2 sends the next transaction's first batches and offsets while the last one's markers are written:
    none of them is refused, and nothing is lost."""
    rounds, partitions = 4, 30
    async with (
        LocalCluster(properties={"add.partitions.to.txn.retry.backoff.max.ms": "60000"}) as cluster,
        transactions_against(cluster.bootstrap_servers) as run,
    ):
        wide = CreatableTopic(name="wide", num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
        await run.admin.request(CreateTopicsRequest(topics=[wide], timeout_ms=10_000))
        node = node_of(cluster).services
        identity = await run.begun("begin", "x")
        records, commits = await run.connect("records"), await run.connect("commits")
        slow = SlowMarkers(cluster)
        for number in range(rounds):
            written = asyncio.create_task(records.request(to_all("wide", partitions, identity), at_most=12))
            committed = asyncio.create_task(commits.request(offsets_of(identity, number), at_most=5))
            if number:
                while not (
                    node.replicas.find("wide", partitions - 1).log.producers._verifications
                    and identity[0] in node.groups._verifications._under_way
                ):
                    await asyncio.sleep(0)
                slow.go.set()
            answer = await written
            assert [row.error_code for row in answer.responses[0].partition_responses] == [ErrorCode.NONE] * partitions
            assert (await committed).topics[0].partitions[0].error_code == ErrorCode.NONE
            slow.go.clear()
            slow.reached.clear()
            ended = await run.admin.request(end(identity))
            assert ended.error_code == ErrorCode.NONE
            identity = ended.producer_id, ended.producer_epoch
            await slow.reached.wait()
        slow.go.set()
        await run.until("x", "CompleteCommit", markers={("wide", number): rounds for number in range(partitions)})
        for number in range(partitions):
            await run.read("read", ("wide", number), committed=True)
            _, high_watermark, last_stable, batches, aborted = run.log[-1][1]
            assert (high_watermark, last_stable, aborted) == (2 * rounds, 2 * rounds, [])
            assert [content for *_, content in batches] == [[b"v"], "a marker"] * rounds
        group = OffsetFetchRequestGroup(group_id="g", topics=None)
        answer = await run.admin.request(OffsetFetchRequest(groups=[group], require_stable=True), at_most=9)
        assert answer.groups[0].topics[0].partitions[0].committed_offset == rounds - 1


def to_all(topic: str, partitions: int, identity: tuple[int, int]) -> ProduceRequest:
    """The first batch of a transaction of x for each partition."""
    builder = BatchBuilder(producer_id=identity[0], producer_epoch=identity[1], base_sequence=0, transactional=True)
    builder.append(1, None, b"v")
    records = builder.build()
    data = [PartitionProduceData(index=number, records=records) for number in range(partitions)]
    return ProduceRequest(
        transactional_id="x",
        acks=-1,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=topic, partition_data=data)],
    )


def offsets_of(identity: tuple[int, int], offset: int) -> TxnOffsetCommitRequest:
    """An offset of topic one for group g in a transaction of x."""
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    return TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        producer_id=identity[0],
        producer_epoch=identity[1],
        topics=[TxnOffsetCommitRequestTopic(name="one", partitions=[partition])],
    )


async def test_many_begin_at_once_and_each_gets_an_epoch_of_its_own(cluster: LocalCluster) -> None:
    """And only the last of them may go on."""
    async with transactions_against(cluster.bootstrap_servers) as run:
        begun = await asyncio.gather(*(run.begin("x") for _ in range(5)))
        epochs = sorted(answer.producer_epoch for answer in begun)
        assert epochs == [0, 1, 2, 3, 4]
        producer_id = begun[0].producer_id
        assert {answer.producer_id for answer in begun} == {producer_id}
        codes = []
        for epoch in epochs:
            await run.add("add", "x", (producer_id, epoch))
            codes.append(run.log[-1][1].results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)
        assert codes == [ErrorCode.PRODUCER_FENCED] * 4 + [ErrorCode.NONE]


# The broker's own


async def test_the_topic_of_transactions_is_the_brokers_own(cluster: LocalCluster) -> None:
    """No client makes it twice, grows, deletes or writes it."""
    topic = TRANSACTIONS_TOPIC
    new = CreatableTopic(name=topic, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    make = CreateTopicsRequest(topics=[new], timeout_ms=10_000)
    async with transactions_against(cluster.bootstrap_servers) as run:
        before = node_of(cluster).services.image.topics[topic]
        created = await run.admin.request(make)
        assert created.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        deleted = await run.admin.request(DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=1_000))
        assert deleted.responses[0].error_code == ErrorCode.INVALID_REQUEST
        by_id = DeleteTopicState(name=None, topic_id=before.topic_id)
        deleted = await run.admin.request(DeleteTopicsRequest(topics=[by_id], timeout_ms=1_000))
        assert deleted.responses[0].error_code == ErrorCode.INVALID_REQUEST
        growth = CreatePartitionsTopic(name=topic, count=9, assignments=None)
        grown = await run.admin.request(CreatePartitionsRequest(topics=[growth], timeout_ms=1_000, validate_only=False))
        assert grown.results[0].error_code == ErrorCode.INVALID_REQUEST
        to_delete = DeleteRecordsPartition(partition_index=0, offset=-1)
        deletion = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic, partitions=[to_delete])], timeout_ms=1_000
        )
        kept = await run.admin.request(deletion)
        assert kept.topics[0].partitions[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        await run.produce("write", "x", (1, 0), (topic, 0), sequence=0, at_most=12)
        written = run.log[-1][1].responses[0].partition_responses[0]
        assert written.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert node_of(cluster).services.image.topics[topic] == before


@pytest.mark.parametrize("version", [3, 5])
async def test_no_client_adds_an_internal_topic_to_its_transaction(cluster: LocalCluster, version: int) -> None:
    """The end of the transaction would be written into what a coordinator keeps. Brokers add that of the offsets."""
    refused = sorted(INTERNAL - {OFFSETS_TOPIC} if version > 3 else INTERNAL)
    async with transactions_against(cluster.bootstrap_servers) as run:
        identity = await run.begun("begin", "x")
        places = [*((name, 0) for name in refused), ("one", 0), ("nowhere", 0)]
        transaction = AddPartitionsToTxnTransaction(
            transactional_id="x", producer_id=identity[0], producer_epoch=identity[1], topics=by_topic(places)
        )
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=identity[0],
            v3_and_below_producer_epoch=identity[1],
            v3_and_below_topics=by_topic(places),
        )
        if version > 3:
            request = AddPartitionsToTxnRequest(transactions=[transaction])
        answer = await run.admin.request(request, at_most=version)
        rows = answer.results_by_transaction[0].topic_results if version > 3 else answer.results_by_topic_v3_and_below
        error_codes = {row.name: row.results_by_partition[0].partition_error_code for row in rows}
        assert error_codes == {
            **dict.fromkeys(refused, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
            "one": ErrorCode.OPERATION_NOT_ATTEMPTED,
            "nowhere": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert node_of(cluster).services.transactions.transaction("x")[0].state is State.EMPTY


@pytest.mark.parametrize("name", sorted(INTERNAL))
async def test_an_internal_topic_that_a_client_creates_is_as_the_broker_makes_it(
    cluster: LocalCluster, name: str
) -> None:
    """Kafka refuses `__cluster_metadata` alone. Partitions and settings of the request do not count, and the coordinator goes on with it."""
    host, _, port = cluster.bootstrap_servers.rpartition(":")
    run = TransactionsRun(host, int(port))
    try:
        admin = await run.connect("admin")
        configs = [CreatableTopicConfig(name="cleanup.policy", value="compact,delete")]
        new = CreatableTopic(name=name, num_partitions=7, replication_factor=1, assignments=[], configs=configs)
        created = await admin.request(CreateTopicsRequest(topics=[new], timeout_ms=10_000))
        assert created.topics[0].error_code == ErrorCode.NONE
        metadata = CreatableTopic(
            name="__cluster_metadata", num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        refused = await admin.request(CreateTopicsRequest(topics=[metadata], timeout_ms=10_000))
        assert refused.topics[0].error_code == ErrorCode.INVALID_REQUEST
        made = dict(node_of(cluster).services.image.topic_configs(name))
        count = len(node_of(cluster).services.image.topics[name].partitions)
        async with LocalCluster() as other:
            await create_topic(node_of(other).services, name)
            assert made == node_of(other).services.image.topic_configs(name)
            assert count == len(node_of(other).services.image.topics[name].partitions)
        async with transactions_against(cluster.bootstrap_servers) as transactions:
            identity = await transactions.begun("begin", "x")
            await open_transaction(transactions, identity)
            await transactions.end("end", "x", identity)
    finally:
        run.close()


# Features and settings


async def features(run: TransactionsRun, at_most: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Supported and finalized levels, as a client gets them."""
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    answer = await run.admin.request(request, at_most=at_most)
    supported = {feature.name: (feature.min_version, feature.max_version) for feature in answer.supported_features}
    return supported, {feature.name: feature.max_version_level for feature in answer.finalized_features}


async def test_a_new_directory_has_transaction_version_2(cluster: LocalCluster) -> None:
    """Reported to clients; those that cannot read a lowest level of 0 do not see it, as with Kafka."""
    async with transactions_against(cluster.bootstrap_servers) as run:
        supported, finalized = await features(run, 4)
        assert supported[TRANSACTION_VERSION] == (0, 2)
        assert TRANSACTION_VERSION not in (await features(run, 3))[0]
        assert finalized == {
            METADATA_VERSION: SUPPORTED[METADATA_VERSION][1],
            TRANSACTION_VERSION: 2,
            GROUP_VERSION: 1,
            SHARE_VERSION: 1,
            ELR_VERSION: 1,
        }


async def test_a_directory_of_an_earlier_version_keeps_its_level(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without transaction.version: it is not reported, and no end raises an epoch, whatever a client sends; nor has it consumer groups."""
    async with LocalCluster() as cluster:
        await cluster.stop()
    async with LocalCluster() as cluster:
        pass
    cluster = LocalCluster()
    with monkeypatch.context() as earlier:
        levels = {METADATA_VERSION: SUPPORTED[METADATA_VERSION][1]}
        earlier.setattr(bootstrap, "levels_of_new_clusters", lambda: levels)
        await cluster.start()
        await cluster.stop()
    async with cluster, transactions_against(cluster.bootstrap_servers) as run:
        supported, finalized = await features(run, 4)
        assert TRANSACTION_VERSION in supported
        assert TRANSACTION_VERSION not in finalized
        assert GROUP_VERSION in supported
        assert GROUP_VERSION not in finalized
        identity = await run.begun("begin", "x")
        await open_transaction(run, identity)
        assert await run.end("end", "x", identity) == identity
        await run.read("read", PLACES[0], committed=True)
        assert run.log[-1][1][3][0][-1] == [b"written"]


async def test_ids_that_nobody_uses_are_forgotten() -> None:
    """After transactional.id.expiration.ms, also by the next start."""
    settings = {
        "transactional.id.expiration.ms": "1",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "20",
    }
    async with LocalCluster(properties=settings) as cluster:
        async with transactions_against(cluster.bootstrap_servers) as run:
            identity = await run.begun("begin", "x")
            async with asyncio.timeout(patient(10)):
                while node_of(cluster).services.transactions.transactions():
                    await asyncio.sleep(0.01)
            await run.add("add", "x", identity)
            row = run.log[-1][1].results_by_topic_v3_and_below[0].results_by_partition[0]
            assert row.partition_error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        await cluster.stop()
        await cluster.start()
        assert node_of(cluster).services.transactions.transactions() == []


async def test_idle_producers_are_forgotten_at_an_interval_of_their_own() -> None:
    """producer.id.expiration.check.interval.ms, whatever the interval of retention is; the setting is not shown, as in Kafka."""
    settings = {"producer.id.expiration.ms": "1", "producer.id.expiration.check.interval.ms": "20"}
    async with LocalCluster(properties=settings) as cluster, transactions_against(cluster.bootstrap_servers) as run:
        identity = await run.begun("begin", "x")
        await open_transaction(run, identity)
        remembered = node_of(cluster).services.replicas.find(*PLACES[0]).log.producers
        assert len(remembered) == 1
        await run.end("end", "x", identity)
        async with asyncio.timeout(patient(10)):
            while len(remembered):
                await asyncio.sleep(0.01)
        shown = {entry.name for entry in broker_entries(node_of(cluster).config)}
        assert "producer.id.expiration.ms" in shown
        assert "producer.id.expiration.check.interval.ms" not in shown


# A foreign client


def transact_with_librdkafka(servers: str) -> tuple[list[bytes], int]:
    """Commits, aborts, and passes on what it has read with its offsets; what a reader of committed records sees."""
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "transactional.id": "librdkafka"})
    producer.init_transactions(30)
    for number in range(4):
        producer.begin_transaction()
        for record in range(3):
            producer.produce("in", f"{number}-{record}".encode())
        if number % 2:
            producer.flush()
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["in"])
    values: list[bytes] = []
    while len(values) < 6:
        (message,) = consumer.consume(1, patient(30))
        assert not message.error()
        values.append(message.value())
    producer.begin_transaction()
    producer.produce("out", b"passed on")
    producer.send_offsets_to_transaction(
        consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), 30
    )
    producer.commit_transaction(30)
    (committed,) = consumer.committed(consumer.assignment(), 30)
    consumer.close()
    return values, committed.offset


@pytest.mark.slow
async def test_librdkafka_reads_processes_and_writes_exactly_once(cluster: LocalCluster) -> None:
    """Aborted records are not seen; its offsets are in force with the commit; a second producer fences the first."""
    values, offset = await asyncio.to_thread(transact_with_librdkafka, cluster.bootstrap_servers)
    assert values == [f"{number}-{record}".encode() for number in (0, 2) for record in range(3)]
    assert offset == 11


async def test_a_stranger_with_a_producers_id_does_not_keep_its_transaction_from_ending(cluster: LocalCluster) -> None:
    """It writes with the last epoch into a partition that the transaction has joined and not written to: the rest is committed, and the
    next transaction begins. Where the transaction has written it is refused."""
    async with transactions_against(cluster.bootstrap_servers) as run:
        identity = await run.begun("begin", "x")
        await run.add("add", "x", identity, *PLACES)
        assert await run.produce("written", "x", identity, PLACES[0], sequence=0, at_most=11) == ErrorCode.NONE
        stranger = (identity[0], 32767)
        taken = [
            await run.produce("stranger", None, stranger, place, sequence=0, at_most=11, transactional=False)
            for place in PLACES
        ]
        assert taken == [ErrorCode.INVALID_TXN_STATE, ErrorCode.NONE]
        await run.end("end", "x", identity)
        await run.read("read", PLACES[0], committed=True)
        code, high_watermark, last_stable, batches, aborted = run.log[-1][1]
        assert (code, high_watermark, aborted) == (0, last_stable, [])
        assert [content for *_, content in batches] == [[b"written"], "a marker"]
        again = await run.begun("begin again", "x")
        assert again > identity
