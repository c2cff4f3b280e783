"""Offsets within transactions on a real node: what is in force, what is not decided, and what a crash, a full disk or a lost
acknowledgement leaves of it. The transactions' coordinator is played here."""

import asyncio
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.integration.broker.test_response_before_durable import held
from tests.support.patience import patient

from busway.net.machine import OS
from busway_bus.controller.topics import delete
from busway_bus.coordinator.group_coordinator import GroupCoordinator
from busway_bus.coordinator.offset_commit_verification import TransactionalProducer
from busway_bus.groups.group import Committer
from busway_bus.groups.offsets import NewOffset, TopicPartition
from busway_bus.handlers.common.context import NodeServices
from busway_bus.kernel.topics import OFFSETS_TOPIC
from busway_bus.kernel.transactions import EndTransaction
from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.records.record import decode_records
from busway_protocol.types import ZERO_UUID

State = tuple[dict[str, int], set[str]]
"""Offsets by topic, and the topics of which they are not decided."""
NOBODY = Committer(member_id="", instance_id=None, epoch=-1, version=8)


class Approving:
    """A coordinator of transactions to which everything belongs; `meanwhile` happens before it answers."""

    def __init__(self) -> None:
        self.asked = 0
        self.meanwhile: Any = None

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[tuple[str, int]],
        *,
        add: bool,
        host: str,
    ) -> Mapping[tuple[str, int], ErrorCode]:
        self.asked += 1
        if self.meanwhile is not None:
            await self.meanwhile()
        return dict.fromkeys(partitions, ErrorCode.NONE)


class Bench:
    """A node with a group's offsets."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.verifier = Approving()
        self.group_id = "g"

    @property
    def services(self) -> NodeServices:
        assert self.cluster.node is not None
        return self.cluster.node.services

    @property
    def groups(self) -> GroupCoordinator:
        return self.services.groups

    @property
    def partition(self) -> Any:
        return self.services.replicas.find(OFFSETS_TOPIC, 0)

    async def commit(self, offset: int, topic: str = "t") -> None:
        codes = await self.groups.commit(self.group_id, NOBODY, _offsets(offset, topic))
        assert set(codes.values()) == {ErrorCode.NONE}

    async def commit_in(self, producer_id: int, offset: int, topic: str = "t", epoch: int = 0) -> None:
        codes = await self.commit_all_in(producer_id, _offsets(offset, topic), epoch)
        assert set(codes.values()) == {ErrorCode.NONE}

    async def commit_all_in(
        self, producer_id: int, offsets: dict[TopicPartition, NewOffset], epoch: int = 0
    ) -> dict[TopicPartition, ErrorCode]:
        return await self.groups.commit_in_transaction(
            self.group_id,
            replace(NOBODY, transactional=True),
            offsets,
            producer=TransactionalProducer(transactional_id=f"x{producer_id}", producer_id=producer_id, epoch=epoch),
            verifier=self.verifier,
            add=True,
        )

    async def end(
        self, producer_id: int, *, committed: bool = True, epoch: int = 0, coordinator_epoch: int = 0, version: int = 1
    ) -> ErrorCode:
        marker = EndTransaction(
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=committed,
            coordinator_epoch=coordinator_epoch,
            transaction_version=version,
        )
        return await self.groups.end_transaction(0, marker)

    async def state(self) -> State:
        offsets, pending = await self.groups.offsets(self.group_id)
        return {topic: offset.offset for (topic, _), offset in offsets.items()}, {topic for topic, _ in pending}

    async def restarted(self, *, killed: bool = False) -> State:
        await (self.cluster.crash() if killed else self.cluster.stop())
        await self.cluster.start()
        await self.groups.runtime.wait_loaded(within_s=patient(10))
        return await self.state()

    @contextmanager
    def full(self) -> Iterator[None]:
        """No room on the disk."""

        def refuse(*_: Any, **__: Any) -> Any:
            raise OSError(28, "No space left on device")

        log = self.partition.log
        log.append_own = log.append_marker = refuse
        try:
            yield
        finally:
            del log.append_own, log.append_marker

    async def lose(self) -> None:
        """What is not durable is taken back from those who wait; the shard is loaded again when it may be."""
        partition = self.partition
        partition.acknowledgements.fail(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        await asyncio.sleep(0)
        while partition.high_watermark < partition.log.end_offset:
            await asyncio.sleep(0)
        self.groups.runtime.retry_failed()
        await self.groups.runtime.wait_loaded(within_s=patient(10))


def _offsets(offset: int, topic: str) -> dict[TopicPartition, NewOffset]:
    return {(topic, 0): NewOffset(offset=offset, leader_epoch=0, metadata="", topic_id=ZERO_UUID, retention_ms=-1)}


def refused(outcome: "asyncio.Task[Any]") -> ErrorCode:
    problem = outcome.exception()
    assert isinstance(problem, KafkaError)
    return problem.code


@pytest.fixture
async def bench(cluster: LocalCluster) -> Bench:
    """A node whose offsets topic is there."""
    made = Bench(cluster)
    await made.groups.ensure()
    await made.groups.runtime.wait_loaded(within_s=patient(10))
    return made


@pytest.mark.slow
@pytest.mark.parametrize("killed", [False, True])
async def test_a_start_knows_what_is_in_force_and_what_is_not_decided(bench: Bench, killed: bool) -> None:
    """Committed ones are in force, aborted ones never; what is pending is pending again, and ends as it would have."""
    await bench.commit(1)
    await bench.commit_in(1, 2)
    await bench.commit_in(2, 3, "u")
    await bench.commit_in(3, 4, "v")
    assert await bench.state() == ({"t": 1}, {"t", "u", "v"})
    assert await bench.end(2) is await bench.end(3, committed=False) is ErrorCode.NONE
    expected: State = ({"t": 1, "u": 3}, {"t"})
    assert await bench.state() == expected
    assert await bench.restarted(killed=killed) == expected
    await bench.commit_in(1, 5, "u")
    assert bench.verifier.asked == 3, "a transaction that is open there is known by the log"
    assert await bench.end(1) is ErrorCode.NONE
    assert await bench.state() == ({"t": 2, "u": 5}, set())
    assert await bench.restarted(killed=killed) == ({"t": 2, "u": 5}, set())


async def test_a_zombie_is_fenced(bench: Bench) -> None:
    """An older epoch writes no offsets and ends nothing; neither does an older coordinator."""
    await bench.commit_in(1, 1, epoch=5)
    assert await bench.end(1, committed=False, epoch=6, coordinator_epoch=3, version=2) is ErrorCode.NONE
    with pytest.raises(KafkaError) as refusal:
        await bench.commit_in(1, 2, epoch=5)
    assert refusal.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    await bench.commit_in(1, 3, epoch=6)
    assert await bench.end(1, epoch=5) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert await bench.end(1, epoch=7, coordinator_epoch=2, version=2) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert await bench.state() == ({}, {"t"})
    for _ in range(2):
        assert await bench.end(1, epoch=7, coordinator_epoch=3, version=2) is ErrorCode.NONE, "one may come again"
    assert await bench.state() == ({"t": 3}, set())


async def test_a_transaction_that_ends_while_it_is_asked_for_is_not_opened_again(bench: Bench) -> None:
    """What comes behind the marker would be pending for ever."""

    async def abort() -> None:
        assert await bench.end(1, committed=False) is ErrorCode.NONE

    bench.verifier.meanwhile = abort
    with pytest.raises(KafkaError) as refusal:
        await bench.commit_in(1, 1)
    assert refusal.value.code is ErrorCode.TRANSACTION_ABORTABLE
    assert await bench.state() == ({}, set())
    assert not bench.partition.log.producers.is_open(1, 0)


async def test_whoever_asks_may_be_gone_at_any_time(bench: Bench) -> None:
    """Before the answer nothing is written; afterwards it is carried out without them."""
    gate = asyncio.Event()
    bench.verifier.meanwhile = gate.wait
    asked = asyncio.ensure_future(bench.commit_in(1, 1))
    await asyncio.sleep(0)
    asked.cancel()
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert bench.partition.log.end_offset == 0
    with held(bench.partition):
        written = asyncio.ensure_future(bench.commit_in(1, 1))
        while not bench.partition.log.end_offset:
            await asyncio.sleep(0)
        ended = asyncio.ensure_future(bench.end(1))
        while bench.partition.log.end_offset < 2:
            await asyncio.sleep(0)
        assert not written.done()
        assert not ended.done(), "neither is told before it is durable"
        written.cancel()
        ended.cancel()
        await asyncio.wait([written, ended])
    assert await bench.state() == ({"t": 1}, set())


async def test_what_finds_no_room_has_not_happened(bench: Bench) -> None:
    """Neither offsets nor an end: who asks comes again."""
    with bench.full(), pytest.raises(KafkaError) as refusal:
        await bench.commit_in(1, 1)
    assert refusal.value.code is ErrorCode.NOT_COORDINATOR
    assert await bench.state() == ({}, set())
    await bench.commit_in(1, 1)
    with bench.full():
        assert await bench.end(1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert await bench.state() == ({}, {"t"})
    assert await bench.end(1) is ErrorCode.NONE
    assert await bench.state() == ({"t": 1}, set())


async def test_an_end_that_is_not_durable_is_read_from_the_log(bench: Bench) -> None:
    """Its coordinator comes again, finds the partition loading or loaded, and the same offsets in force."""
    await bench.commit_in(1, 1)
    with held(bench.partition) as gate:
        ended = asyncio.ensure_future(bench.end(1))
        while not gate.reached.is_set():
            await asyncio.sleep(0)
        bench.partition.acknowledgements.fail(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        assert await ended is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await bench.end(1) is ErrorCode.NOT_LEADER_OR_FOLLOWER, "what is not durable is not told"
    await bench.lose()
    assert await bench.end(1) is ErrorCode.NONE
    assert await bench.state() == ({"t": 1}, set())


async def test_a_partition_that_is_not_here_is_refused(bench: Bench) -> None:
    """To a coordinator of transactions in the words that it knows."""
    marker = EndTransaction(producer_id=1, producer_epoch=0, committed=True, coordinator_epoch=0, transaction_version=1)
    assert await bench.groups.end_transaction(7, marker) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    await bench.services.metadata.run(lambda image: delete(image, OFFSETS_TOPIC))
    assert await bench.groups.end_transaction(0, marker) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(KafkaError) as refusal:
        await bench.commit_in(1, 1)
    assert refusal.value.code is ErrorCode.NOT_COORDINATOR


@pytest.mark.slow
async def test_more_offsets_than_a_batch_holds_are_one_commit(bench: Bench) -> None:
    """All of them are pending, and all are in force at once."""
    many = {place: offset for number in range(2_500) for place, offset in _offsets(number, f"t{number}").items()}
    await bench.commit_all_in(1, many)
    assert len((await bench.state())[1]) == len(many)
    assert await bench.end(1) is ErrorCode.NONE
    assert await bench.state() == ({f"t{number}": number for number in range(2_500)}, set())
    assert await bench.restarted() == ({f"t{number}": number for number in range(2_500)}, set())


@pytest.mark.slow
@pytest.mark.parametrize("last", [1, 2])
async def test_offsets_are_those_of_the_log_after_compaction(bench: Bench, last: int) -> None:
    """Of a partition whose keys were superseded, within transactions and outside of them; what is pending stays."""
    for round_ in range(3):
        await bench.commit(10 * round_)
        await bench.commit_in(1, 10 * round_ + 1, "u")
        await bench.commit_in(2, 10 * round_ + 2)
        assert await bench.end(1) is await bench.end(2, committed=round_ == last) is ErrorCode.NONE
    log = bench.partition.log
    log.roll(OS.wall_ms())
    await bench.commit_in(3, 99, "v")
    await bench.commit(98, "v")
    expected: State = ({"t": 22 if last == 2 else 20, "u": 21, "v": 98}, {"v"})
    assert await bench.state() == expected
    before = sum(len(decode_records(batch)) for batch in log.batches())
    await bench.services.replicas.logs.maintain()
    assert sum(len(decode_records(batch)) for batch in log.batches()) < before - 5, "it was compacted"
    assert await bench.restarted() == expected
    assert await bench.end(3) is ErrorCode.NONE
    assert await bench.state() == (expected[0], set()), "the later commit counts"


OPERATIONS = st.one_of(
    st.tuples(st.just("commit"), st.sampled_from("tu")),
    st.tuples(st.just("commit_in"), st.sampled_from("tu"), st.integers(1, 3)),
    st.tuples(st.just("end"), st.integers(1, 3), st.booleans()),
    st.tuples(st.sampled_from(["delete", "forget", "full", "lose", "read"])),
)


@pytest.mark.slow
def test_offsets_are_at_any_moment_what_the_log_says() -> None:
    """After any sequence of commits, transactions, deletions, full disks and lost acknowledgements; everyone who asked is answered."""
    with asyncio.Runner() as runner:
        cluster = LocalCluster()
        runner.run(cluster.start())
        numbers = iter(range(1_000_000))

        @settings(max_examples=60)
        @given(st.lists(OPERATIONS, max_size=25))
        def check(operations: list[tuple[Any, ...]]) -> None:
            bench = Bench(cluster)
            bench.group_id = f"g{next(numbers)}"
            runner.run(live_as_replayed(bench, operations))

        try:
            check()
        finally:
            runner.run(cluster.stop())


async def live_as_replayed(bench: Bench, operations: list[tuple[Any, ...]]) -> None:
    """Carry the operations out, and compare with what a start would make of the log."""
    await bench.groups.ensure()
    asked: list[asyncio.Task[Any]] = []
    for number, (operation, *values) in enumerate(operations):
        match operation:
            case "commit":
                asked.append(asyncio.ensure_future(bench.commit(number, *values)))
            case "commit_in":
                asked.append(asyncio.ensure_future(bench.commit_in(values[1], number, values[0])))
            case "end":
                asked.append(asyncio.ensure_future(bench.end(values[0], committed=values[1])))
            case "delete":
                asked.append(asyncio.ensure_future(bench.groups.delete(bench.group_id)))
            case "forget":
                asked.append(asyncio.ensure_future(bench.groups.delete_offsets(bench.group_id, [("t", 0)])))
            case "read":
                await bench.state()
                assert bench.partition.high_watermark == bench.partition.log.end_offset
            case "full":
                with bench.full():
                    asked += [asyncio.ensure_future(bench.commit_in(1, number)), asyncio.ensure_future(bench.end(1))]
                    for _ in range(3):
                        await asyncio.sleep(0)
            case "lose":
                await bench.lose()
        for _ in range(3):
            await asyncio.sleep(0)
    for producer_id in (None, 1, 2, 3):
        if producer_id is not None:
            assert await bench.end(producer_id, committed=producer_id != 2) is ErrorCode.NONE
        live = await bench.state()
        await bench.groups.runtime.read(0, lambda shard: None)
        bench.groups.runtime._unload(bench.groups.runtime._loaded[0])
        bench.groups.runtime.load()
        await bench.groups.runtime.wait_loaded(within_s=patient(10))
        assert await bench.state() == live
    assert live[1] == set()
    for answer in await asyncio.gather(*asked, return_exceptions=True):
        assert not isinstance(answer, BaseException) or isinstance(answer, KafkaError), answer
