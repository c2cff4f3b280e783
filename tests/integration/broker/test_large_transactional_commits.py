"""A commit within a transaction is so large that others are served while it is written, and the transaction may end meanwhile. The
transactions' coordinator is played here."""

import asyncio
from copy import copy

import pytest
from tests.integration.broker.groups_probe import Run
from tests.integration.broker.test_told_before_durable import held
from tests.integration.broker.test_transactional_offsets import Bench
from tests.integration.broker.transactional_offsets_scenarios import Producer
from tests.support.patience import patient

from busway_bus.coordinator import stretches
from busway_bus.groups.offsets import NewOffset, Place
from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.errors import ErrorCode
from busway_protocol.types import ZERO_UUID

pytestmark = pytest.mark.slow
COUNT = 2_500
AT_ONCE = 1_000


def offsets(count: int = COUNT, metadata: str = "") -> dict[Place, NewOffset]:
    """Offsets of so many topics, each its number."""
    return {
        (f"t{number}", 0): NewOffset(
            offset=number, leader_epoch=0, metadata=metadata, topic_id=ZERO_UUID, retention_ms=-1
        )
        for number in range(count)
    }


@pytest.fixture
async def bench(cluster: LocalCluster) -> Bench:
    """A node whose offsets topic is there."""
    made = Bench(cluster)
    await made.groups.ensure()
    await made.groups.runtime.wait_loaded(within_s=patient(10))
    return made


async def written_up_to(bench: Bench, offset: int) -> None:
    """Return in the moment in which the log ends there."""
    while bench.partition.log.end_offset < offset:
        await asyncio.sleep(0)


@pytest.mark.parametrize("earlier", [False, True])
@pytest.mark.parametrize(
    ("epoch", "version", "again", "code"),
    [
        (0, 1, False, ErrorCode.TRANSACTION_ABORTABLE),
        (0, 1, True, ErrorCode.TRANSACTION_ABORTABLE),
        (1, 2, False, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
async def test_what_is_left_is_refused_when_its_transaction_ends(
    bench: Bench, earlier: bool, epoch: int, version: int, again: bool, code: ErrorCode
) -> None:
    """It would open a transaction that nobody ends, or belong to the next one of the same producer, also where the epoch stays the same."""
    if earlier:
        await bench.commit_in(1, 5, "u")
    begun = bench.partition.log.end_offset
    large = asyncio.ensure_future(bench.commit_all_in(1, offsets()))
    await written_up_to(bench, begun + AT_ONCE)
    others = [asyncio.ensure_future(bench.end(1, epoch=epoch, version=version))]
    await written_up_to(bench, begun + AT_ONCE + 1)
    if again:
        others.append(asyncio.ensure_future(bench.commit_in(1, 7, "v")))
    codes = await large
    await asyncio.gather(*others)
    assert list(codes.values()) == [ErrorCode.NONE] * AT_ONCE + [code] * (COUNT - AT_ONCE)
    expected = {f"t{number}": number for number in range(AT_ONCE)} | ({"u": 5} if earlier else {})
    assert await bench.state() == (expected, {"v"} if again else set())
    assert bench.partition.log.producers.is_open(1, 0) is again


async def test_what_is_left_is_refused_where_nothing_was_written_before(bench: Bench) -> None:
    """The coordinator's word was for a transaction that has ended, and for no other."""
    bad = offsets(AT_ONCE, metadata="m" * 5_000)
    mixed = {**offsets(AT_ONCE + 1), **bad}
    large = asyncio.ensure_future(bench.commit_all_in(1, mixed))
    await asyncio.sleep(0)
    assert bench.verifier.asked == 1
    assert await bench.end(1) is ErrorCode.NONE
    codes = await large
    refused = [ErrorCode.OFFSET_METADATA_TOO_LARGE] * AT_ONCE
    assert list(codes.values()) == [*refused, ErrorCode.TRANSACTION_ABORTABLE]
    assert await bench.state() == ({}, set())
    assert not bench.partition.log.producers.is_open(1, 0)


async def test_what_is_left_is_not_for_a_shard_that_was_loaded_again(bench: Bench) -> None:
    """What has ended meanwhile is not known here: who asks comes again."""
    runtime = bench.groups.runtime
    with held(bench.partition):
        large = asyncio.ensure_future(bench.commit_all_in(1, offsets()))
        await written_up_to(bench, AT_ONCE)
        before = runtime._loaded[0]
        runtime._unload(before)
        runtime._serve(0, copy(before.shard))
    codes = await large
    assert list(codes.values()) == [ErrorCode.NONE] * AT_ONCE + [ErrorCode.NOT_COORDINATOR] * (COUNT - AT_ONCE)
    assert bench.partition.log.end_offset == AT_ONCE


@pytest.mark.parametrize(("client", "code"), [(3, ErrorCode.INVALID_TXN_STATE), (4, ErrorCode.TRANSACTION_ABORTABLE)])
async def test_clients_are_told_in_words_that_they_know(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, client: int, code: ErrorCode
) -> None:
    """Also of what was left: the codes of Kafka's first one differ by version."""
    monkeypatch.setattr(stretches, "OFFSETS_PER_COMMIT_MAX", 1)
    host, _, port = bench.cluster.bootstrap_servers.rpartition(":")
    run = Run(host, int(port))
    try:
        await run.prepare()
        producer = Producer(run, "x")
        await producer.init()
        await producer.add("g")
        begun = bench.partition.log.end_offset
        large = asyncio.ensure_future(producer.commit("g", version=client, partitions=[0, 1]))
        await written_up_to(bench, begun + 1)
        assert await bench.end(producer.producer_id) is ErrorCode.NONE
        await large
    finally:
        run.close()
    told = run.log[-1][1].topics[0].partitions
    assert [one.error_code for one in told] == [ErrorCode.NONE, code]
