"""A transaction whose coordinator, partitions and group are on three brokers, and its end after each of them moved."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.patience import patient
from tests.support.waiting import until
from tests.unit.busway_bus.coordinator.brokers import turn
from tests.unit.busway_bus.coordinator.coordinators import CoordinatedBrokers

from busway_bus.coordinator.offset_commit_verification import TransactionalProducer
from busway_bus.groups.group import Committer
from busway_bus.groups.offsets import NewOffset
from busway_bus.kernel.limits import ENDING_AT_ONCE_MAX
from busway_bus.kernel.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from busway_bus.metadata.records import FenceBrokerRecord
from busway_bus.transactions.states import State
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.messages.transactions import AddPartitionsToTxnRequest, WriteTxnMarkersRequest
from busway_protocol.records.builder import BatchBuilder
from busway_protocol.types import ZERO_UUID

DATA = ("data", 0)
OFFSETS = {DATA: NewOffset(offset=7, leader_epoch=-1, metadata="", topic_id=ZERO_UUID, retention_ms=-1)}
Identity = tuple[int, int]


@pytest.fixture
async def brokers() -> AsyncIterator[CoordinatedBrokers]:
    made = CoordinatedBrokers()
    await made.start()
    async with made.replicating():
        yield made
        await made.close()


async def begin(brokers: CoordinatedBrokers) -> Identity:
    return await brokers.at(2).transactions.begin("t", 60_000, None, host="client")


async def verify(brokers: CoordinatedBrokers, identity: Identity, *, add: bool = False) -> ErrorCode:
    """Ask as broker 3, which leads `data`."""
    codes = await brokers.at(3).transactions.verify("t", *identity, [DATA], add=add, host="client")
    return codes[DATA]


def write(brokers: CoordinatedBrokers, identity: Identity) -> None:
    """Append a batch of the transaction to `data`."""
    batch = BatchBuilder(producer_id=identity[0], producer_epoch=identity[1], base_sequence=0, transactional=True)
    batch.append(0, b"key", b"value")
    brokers[3].replicas.append(brokers.partition(3, *DATA), batch.build())


def unstable(brokers: CoordinatedBrokers, node_id: int, topic: str = "data") -> bool:
    """Whether a transaction is open in a partition."""
    partition = brokers.partition(node_id, topic, 0)
    return partition.last_stable_offset < partition.log.end_offset


def state(brokers: CoordinatedBrokers, node_id: int) -> State:
    return brokers.at(node_id).transactions.transaction("t")[0].state


async def test_partitions_are_verified_and_added_at_another_broker(brokers: CoordinatedBrokers) -> None:
    identity = await begin(brokers)
    assert await verify(brokers, identity) is ErrorCode.TRANSACTION_ABORTABLE
    assert await verify(brokers, identity, add=True) is ErrorCode.NONE
    assert await verify(brokers, identity) is ErrorCode.NONE
    assert await verify(brokers, (identity[0], identity[1] + 1)) is ErrorCode.PRODUCER_FENCED
    assert {node_id for node_id, _ in brokers[3].channels.sent} == {2}


async def test_what_a_broker_adds_is_charged_to_the_clients_host(brokers: CoordinatedBrokers) -> None:
    """Else one broker's clients together would have one host's share of the coordinator's memory."""
    identity = await begin(brokers)
    await verify(brokers, identity, add=True)
    shard = brokers.at(2).transactions.runtime.shard(0)
    assert shard._account._by_host.keys() == {"client"}


async def test_verifications_wait_for_each_other_in_one_request(brokers: CoordinatedBrokers) -> None:
    identity = await begin(brokers)
    first = asyncio.ensure_future(verify(brokers, identity))
    await asyncio.sleep(0)
    others = [
        asyncio.ensure_future(brokers.at(3).transactions.verify(f"u{number}", 1, 0, [DATA], add=False, host="client"))
        for number in range(5)
    ]
    await asyncio.gather(first, *others)
    requests = [request for _, request in brokers[3].channels.sent if isinstance(request, AddPartitionsToTxnRequest)]
    assert [len(request.transactions) for request in requests] == [1, 5]


async def test_a_coordinator_that_cannot_be_reached_is_asked_again_by_the_producer(brokers: CoordinatedBrokers) -> None:
    identity = await begin(brokers)
    brokers.unreachable.add(2)
    assert await verify(brokers, identity) is ErrorCode.NETWORK_EXCEPTION
    brokers.unreachable.clear()
    brokers.mute.add(2)
    assert await verify(brokers, identity) is ErrorCode.NETWORK_EXCEPTION
    brokers.mute.clear()
    brokers[3].deaf = True
    await brokers.lead(TRANSACTIONS_TOPIC, 0, 1)
    assert await verify(brokers, identity) is ErrorCode.NOT_COORDINATOR
    brokers[3].deaf = False
    await brokers.lead(TRANSACTIONS_TOPIC, 0, -1)
    assert await verify(brokers, identity) is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_markers_reach_the_leaders_on_other_brokers(brokers: CoordinatedBrokers) -> None:
    """Of data, and of offsets at the group coordinator, which counts them from then on."""
    identity = await begin(brokers)
    await verify(brokers, identity, add=True)
    write(brokers, identity)
    producer = TransactionalProducer(transactional_id="t", producer_id=identity[0], epoch=identity[1])
    committer = Committer(member_id="", instance_id=None, epoch=-1, version=5, transactional=True, host="client")
    codes = await brokers.at(1).groups.commit_in_transaction(
        "g", committer, OFFSETS, producer=producer, verifier=brokers.at(1).transactions, add=True
    )
    assert codes == {DATA: ErrorCode.NONE}
    assert unstable(brokers, 3)
    assert unstable(brokers, 1, OFFSETS_TOPIC)
    await brokers.at(2).transactions.end("t", identity, commit=True, client_version=0)
    await until(lambda: state(brokers, 2) is State.COMPLETE_COMMIT)
    await until(lambda: not unstable(brokers, 3) and not unstable(brokers, 1, OFFSETS_TOPIC))
    committed, pending = await brokers.at(1).groups.offsets("g")
    assert committed[DATA].offset == 7
    assert not pending


async def test_a_marker_follows_the_partition_to_its_next_leader(brokers: CoordinatedBrokers) -> None:
    """Its broker is gone, has the answer lost, or is not the leader any more."""
    identity = await begin(brokers)
    await verify(brokers, identity, add=True)
    write(brokers, identity)
    await until(lambda: brokers.partition(1, *DATA).log.end_offset == 1)
    brokers.unreachable.add(3)
    await brokers.at(2).transactions.end("t", identity, commit=False, client_version=0)
    await turn()
    assert state(brokers, 2) is State.PREPARE_ABORT
    brokers[2].deaf = True
    await brokers.lead("data", 0, 1)
    brokers.unreachable.clear()
    await until(lambda: _markers_sent(brokers, 2) > 2)
    assert state(brokers, 2) is State.PREPARE_ABORT, "broker 3 does not lead it any more"
    brokers.mute.add(1)
    brokers[2].deaf = False
    await brokers.apply()
    await until(lambda: not unstable(brokers, 1))
    assert state(brokers, 2) is State.PREPARE_ABORT, "its answer was lost"
    brokers.mute.clear()
    await until(lambda: state(brokers, 2) is State.COMPLETE_ABORT)


def _markers_sent(brokers: CoordinatedBrokers, node_id: int) -> int:
    return sum(isinstance(request, WriteTxnMarkersRequest) for _, request in brokers[node_id].channels.sent)


@pytest.mark.parametrize("commit", [True, False])
async def test_a_prepared_end_is_completed_by_the_next_coordinator(brokers: CoordinatedBrokers, commit: bool) -> None:
    """Without a request for it; the last one's late marker is fenced by the coordinator epoch."""
    identity = await begin(brokers)
    await verify(brokers, identity, add=True)
    write(brokers, identity)
    brokers.unreachable.add(3)
    await brokers.at(2).transactions.end("t", identity, commit=commit, client_version=0)
    await until(lambda: brokers.partition(1, TRANSACTIONS_TOPIC, 0).log.end_offset == 3)
    late = brokers.at(2).transactions.transaction("t")[0].marker(0)
    await brokers.lead(TRANSACTIONS_TOPIC, 0, 1)
    brokers.unreachable.clear()
    await until(lambda: bool(brokers.at(1).transactions.runtime.shards()))
    await until(lambda: state(brokers, 1) is (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT))
    await until(lambda: not unstable(brokers, 3))
    assert await brokers.at(2).writer.write(late, [DATA]) == {DATA: ErrorCode.TRANSACTION_COORDINATOR_FENCED}
    with pytest.raises(KafkaError) as refusal:
        await brokers.at(2).transactions.begin("t", 60_000, None, host="client")
    assert refusal.value.code is ErrorCode.NOT_COORDINATOR
    assert await brokers.at(1).transactions.begin("t", 60_000, identity, host="client") == (identity[0], 1)


async def test_pending_offsets_survive_a_failover_of_the_group_coordinator(brokers: CoordinatedBrokers) -> None:
    """The next coordinator has them pending, and the marker decides them there."""
    identity = await begin(brokers)
    producer = TransactionalProducer(transactional_id="t", producer_id=identity[0], epoch=identity[1])
    committer = Committer(member_id="", instance_id=None, epoch=-1, version=5, transactional=True, host="client")
    await brokers.at(1).groups.commit_in_transaction(
        "g", committer, OFFSETS, producer=producer, verifier=brokers.at(1).transactions, add=True
    )
    await brokers.lead(OFFSETS_TOPIC, 0, 3)
    await until(lambda: bool(brokers.at(3).groups.runtime.shards()))
    assert await brokers.at(3).groups.offsets("g") == ({}, frozenset({DATA}))
    await brokers.at(2).transactions.end("t", identity, commit=True, client_version=0)
    await until(lambda: state(brokers, 2) is State.COMPLETE_COMMIT)
    committed, pending = await brokers.at(3).groups.offsets("g")
    assert (committed[DATA].offset, pending) == (7, frozenset())


async def test_offsets_are_not_written_after_the_partition_was_elsewhere(brokers: CoordinatedBrokers) -> None:
    """While they are verified another broker coordinates the group and writes the marker: no other would follow."""
    identity = await begin(brokers)
    producer = TransactionalProducer(transactional_id="t", producer_id=identity[0], epoch=identity[1])
    committer = Committer(member_id="", instance_id=None, epoch=-1, version=5, transactional=True, host="client")
    verified, resume = brokers.at(1).transactions.verify, asyncio.Event()

    class Held:
        async def verify(self, *asked: Any, **options: Any) -> Any:
            codes = await verified(*asked, **options)
            await resume.wait()
            return codes

    committing = asyncio.ensure_future(
        brokers.at(1).groups.commit_in_transaction(
            "g", committer, OFFSETS, producer=producer, verifier=Held(), add=True
        )
    )
    await until(lambda: brokers.at(2).transactions.transaction("t")[0].state is State.ONGOING)
    await brokers.lead(OFFSETS_TOPIC, 0, 3)
    await brokers.at(2).transactions.end("t", identity, commit=False, client_version=0)
    await until(lambda: state(brokers, 2) is State.COMPLETE_ABORT)
    await brokers.replicate(OFFSETS_TOPIC)
    await brokers.lead(OFFSETS_TOPIC, 0, 1)
    await until(lambda: bool(brokers.at(1).groups.runtime.shards()))
    resume.set()
    with pytest.raises(KafkaError) as refusal:
        await committing
    assert refusal.value.code is ErrorCode.NOT_COORDINATOR
    assert not unstable(brokers, 1, OFFSETS_TOPIC)


async def test_a_marker_that_few_replicas_have_is_written_again(brokers: CoordinatedBrokers) -> None:
    """A peer is answered in time, and repeats it; the transaction ends once."""
    identity = await begin(brokers)
    await verify(brokers, identity, add=True)
    write(brokers, identity)
    brokers.at(3).markers._timeout_s = 0.001
    brokers.slow.add("data")
    await brokers.at(2).transactions.end("t", identity, commit=True, client_version=0)
    await until(lambda: _markers_sent(brokers, 2) > 1)
    assert state(brokers, 2) is State.PREPARE_COMMIT
    brokers.at(3).markers._timeout_s = patient(30)
    brokers.slow.clear()
    await until(lambda: state(brokers, 2) is State.COMPLETE_COMMIT)
    assert not unstable(brokers, 3)


async def test_a_broker_that_hangs_holds_up_no_other_transactions(brokers: CoordinatedBrokers) -> None:
    """More wait for it than are ended at a time; those of other brokers end, and these do once others lead its partitions."""
    await brokers.create("other", [1])
    coordinator = brokers.at(2).transactions

    async def end(transactional_id: str, partition: tuple[str, int]) -> None:
        identity = await coordinator.begin(transactional_id, 60_000, None, host="client")
        await coordinator.add(transactional_id, identity, [partition], client_version=0, host="client")
        await coordinator.end(transactional_id, identity, commit=True, client_version=0)

    def ended(transactional_id: str) -> bool:
        return coordinator.transaction(transactional_id)[0].state is State.COMPLETE_COMMIT

    brokers.hung.add(3)
    many = [f"t{number}" for number in range(ENDING_AT_ONCE_MAX + 20)]
    await asyncio.gather(*(end(transactional_id, DATA) for transactional_id in many))
    await end("u", ("other", 0))
    await until(lambda: ended("u"))
    assert not any(map(ended, many))
    await brokers.lead("data", 0, 1)
    await brokers.apply(FenceBrokerRecord(id=3, epoch=3))
    await until(lambda: all(map(ended, many)))
