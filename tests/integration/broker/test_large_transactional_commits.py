"""A commit of very many offsets within a transaction is one batch: the transaction has all of it or nothing, whatever ends it meanwhile. The
transactions' coordinator is played here."""

import asyncio
from collections.abc import Collection, Mapping

import pytest
from tests.integration.broker.groups_probe import Run
from tests.integration.broker.test_response_before_durable import held
from tests.integration.broker.test_transactional_offsets import Bench
from tests.integration.broker.transactional_offsets_scenarios import Producer
from tests.support.patience import patient

from busway_bus.groups.group import Committer
from busway_bus.groups.offsets import NewOffset, TopicPartition
from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.records.batch import read_header
from busway_protocol.types import ZERO_UUID

pytestmark = pytest.mark.slow
COUNT = 2_500


def offsets(count: int = COUNT, metadata: str = "") -> dict[TopicPartition, NewOffset]:
    """Offsets of so many topics, each its number."""
    return {
        (f"t{number}", 0): NewOffset(
            offset=number, leader_epoch=0, metadata=metadata, topic_id=ZERO_UUID, retention_ms=-1
        )
        for number in range(count)
    }


def batches(bench: Bench) -> list[int]:
    """How many records each batch of the log has, -1 for a marker."""
    headers = [read_header(batch) for batch in bench.partition.log.batches()]
    return [-1 if header.is_control else header.records_count for header in headers]


@pytest.fixture
async def bench(cluster: LocalCluster) -> Bench:
    """A node whose offsets topic is there."""
    made = Bench(cluster)
    await made.groups.ensure()
    await made.groups.runtime.wait_loaded(within_s=patient(10))
    return made


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("killed", [True, False])
async def test_an_end_that_comes_while_it_is_on_its_way_to_the_disk_ends_all_of_it(
    bench: Bench, committed: bool, killed: bool
) -> None:
    """The client has given up, and ends its transaction: all are in force or none, also after the next start."""
    with held(bench.partition):
        large = asyncio.ensure_future(bench.commit_all_in(1, offsets()))
        while not bench.partition.log.end_offset:
            await asyncio.sleep(0)
        ended = asyncio.ensure_future(bench.end(1, committed=committed))
        while bench.partition.log.end_offset < COUNT + 1:
            await asyncio.sleep(0)
        assert not large.done()
        assert batches(bench) == [COUNT, -1]
    assert set((await large).values()) == {ErrorCode.NONE}
    assert await ended is ErrorCode.NONE
    expected = {f"t{number}": number for number in range(COUNT)} if committed else {}
    assert await bench.state() == (expected, set())
    assert await bench.restarted(killed=killed) == (expected, set())


@pytest.mark.parametrize("committed", [True, False])
async def test_an_end_that_comes_before_it_is_written_ends_nothing_of_it(bench: Bench, committed: bool) -> None:
    """At any moment of its preparation: it belongs to the next transaction, whose coordinator is asked, and to that one whole."""
    for rounds in range(0, 40, 3):
        begun = len(batches(bench))
        large = asyncio.ensure_future(bench.commit_all_in(1, offsets()))
        for _ in range(rounds):
            await asyncio.sleep(0)
        assert await bench.end(1, committed=committed) is ErrorCode.NONE
        assert set((await large).values()) == {ErrorCode.NONE}
        assert sorted(batches(bench)[begun:]) == [-1, COUNT]
        assert await bench.end(1, committed=False) is ErrorCode.NONE
        assert not bench.partition.log.producers.is_open(1, 0)


async def test_more_than_a_batch_holds_is_refused_whole(bench: Bench) -> None:
    """max.message.bytes of the offsets topic counts, as in Kafka; nothing of it is pending."""
    await bench.commit_in(1, 5, "u")
    before = batches(bench)
    with pytest.raises(KafkaError) as refusal:
        await bench.commit_all_in(1, offsets(metadata="m" * 500))
    assert refusal.value.code is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    assert batches(bench) == before
    assert await bench.state() == ({}, {"u"})


async def test_a_large_commit_without_a_transaction_is_one_batch_too(bench: Bench) -> None:
    """As in Kafka: none of it is stored where the group has moved on while it was prepared, or where a batch does not hold it."""
    commit, anybody = bench.groups.commit, Committer(member_id="", instance_id=None, epoch=-1, version=9)
    assert set((await commit("g", anybody, offsets())).values()) == {ErrorCode.NONE}
    assert batches(bench) == [COUNT]
    stored = await bench.state()
    for large in (
        offsets(metadata="m" * 500),
        offsets(1_000, metadata="m" * 4_000),
        offsets(400, metadata="é" * 1_500),
    ):
        with pytest.raises(KafkaError) as refusal:
            await commit("g", anybody, large)
        assert refusal.value.code is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        assert (batches(bench), await bench.state()) == ([COUNT], stored)
    assert await bench.restarted(killed=True) == stored


async def test_what_is_too_long_is_left_out(bench: Bench) -> None:
    """As in a commit without a transaction; where nothing is left nothing is written."""
    bad = {(f"b{number}", 0): offset for number, offset in enumerate(offsets(2, metadata="m" * 5_000).values())}
    assert set((await bench.commit_all_in(1, bad)).values()) == {ErrorCode.OFFSET_METADATA_TOO_LARGE}
    assert batches(bench) == []
    codes = await bench.commit_all_in(1, {**offsets(), **bad})
    assert list(codes.values()) == [ErrorCode.NONE] * COUNT + [ErrorCode.OFFSET_METADATA_TOO_LARGE] * 2
    assert batches(bench) == [COUNT]


async def test_others_are_served_while_it_is_prepared(bench: Bench) -> None:
    """Hundreds of milliseconds otherwise."""
    large = asyncio.ensure_future(bench.commit_all_in(1, offsets(15_000)))
    rounds = 0
    while not bench.partition.log.end_offset:
        rounds += 1
        await asyncio.sleep(0)
    assert rounds > 5
    await large
    assert batches(bench) == [15_000]


@pytest.mark.parametrize(("client", "code"), [(3, ErrorCode.INVALID_TXN_STATE), (4, ErrorCode.TRANSACTION_ABORTABLE)])
async def test_clients_are_told_in_words_that_they_know(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, client: int, code: ErrorCode
) -> None:
    """Where the transaction ends while its coordinator is asked."""
    host, _, port = bench.cluster.bootstrap_servers.rpartition(":")
    run = Run(host, int(port))
    verify = bench.services.transactions.verify

    async def ends_meanwhile(
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[tuple[str, int]],
        *,
        add: bool,
        host: str,
    ) -> Mapping[tuple[str, int], ErrorCode]:
        codes = await verify(transactional_id, producer_id, producer_epoch, partitions, add=add, host=host)
        assert await bench.end(producer_id) is ErrorCode.NONE
        return codes

    try:
        await run.prepare()
        producer = Producer(run, "x")
        await producer.init()
        await producer.add("g")
        monkeypatch.setattr(bench.services.transactions, "verify", ends_meanwhile)
        await producer.commit("g", version=client, partitions=[0, 1])
    finally:
        run.close()
    committed = run.log[-1][1].topics[0].partitions
    assert [partition.error_code for partition in committed] == [code, code]
