"""Transactions of several producers while the leaders of everything that they use move from broker to broker.

A transaction whose commit was acknowledged is whole in every partition, with its offsets; one that was aborted is in none; and none
stays open.
Here: the clients, the checks, `run`.
Not here: the seeds (`test_transaction_histories`).
"""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, TypeVar

from tests.support.patience import patient
from tests.support.waiting import until
from tests.unit.busway_bus.coordinator.coordinators import CoordinatedBrokers

from busway_bus.coordinator.offset_commit_verification import TransactionalProducer
from busway_bus.groups.group import Committer
from busway_bus.groups.offsets import NewOffset
from busway_bus.kernel.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from busway_bus.metadata.features import TRANSACTION_VERSION
from busway_bus.metadata.records import FeatureLevelRecord
from busway_bus.testing.world import World
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.records.batch import read_header
from busway_protocol.records.builder import BatchBuilder
from busway_protocol.records.control import read_marker
from busway_protocol.records.record import decode_records
from busway_protocol.types import ZERO_UUID

R = TypeVar("R")
PRODUCERS = 3
TRANSACTIONS = 12
ENDS_S = 6.0
"""Bound of a run in virtual time, in s; most take less than one."""
PLACES = [("data", 0), ("more", 0), ("more", 1)]
MOVED = [*PLACES, (OFFSETS_TOPIC, 0), (TRANSACTIONS_TOPIC, 0)]
_RETRIED = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NETWORK_EXCEPTION,
}
_OUT = {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE}
"""A producer that was fenced by its own repeated request begins again."""


class Client:
    """A transactional producer, which also commits offsets of a group of its own."""

    def __init__(self, brokers: CoordinatedBrokers, number: int, chance: Random, version: int) -> None:
        self.brokers, self.chance, self.version = brokers, chance, version
        self.transactional_id = self.group_id = f"p{number}"
        self.committed: dict[str, list[tuple[str, int]]] = {}
        self.aborted: set[str] = set()
        self.offset = -1
        """Last offset whose commit was acknowledged."""

    def leader(self, topic: str, partition: int = 0) -> int:
        return self.brokers.image.topics[topic].partitions[partition].leader

    async def retried(self, attempt: Callable[[], Awaitable[R]]) -> R:
        while True:
            try:
                return await attempt()
            except KafkaError as problem:
                if problem.code not in _RETRIED:
                    raise
            await asyncio.sleep(0.002)

    def coordinator(self) -> Any:
        return self.brokers.at(self.leader(TRANSACTIONS_TOPIC)).transactions

    async def run(self) -> None:
        for number in range(TRANSACTIONS):
            try:
                await self.transaction(number)
            except KafkaError as problem:
                if problem.code not in _OUT:
                    raise

    async def transaction(self, number: int) -> None:
        name = f"{self.transactional_id}-{number}"
        identity = await self.retried(
            lambda: self.coordinator().begin(self.transactional_id, 60_000, None, host="client")
        )
        places = self.chance.sample(PLACES, self.chance.randint(1, len(PLACES)))
        whole = all([await self.write(identity, name, place) for place in places])
        if whole and self.chance.random() < 0.5:
            whole = await self.commit_offset(identity, number)
            offset = number if whole else self.offset
        else:
            offset = self.offset
        commit = whole and self.chance.random() < 0.7
        await self.retried(
            lambda: self.coordinator().end(self.transactional_id, identity, commit=commit, client_version=self.version)
        )
        if commit:
            self.committed[name], self.offset = places, offset
        else:
            self.aborted.add(name)

    async def write(self, identity: tuple[int, int], name: str, place: tuple[str, int]) -> bool:
        """Write a record, as a leader that has asked the coordinator does."""
        for _ in range(50):
            leader = self.leader(*place)
            transactions = self.brokers.at(leader).transactions
            codes = await transactions.verify(self.transactional_id, *identity, [place], add=True, host="client")
            if codes[place] is ErrorCode.NONE:
                break
            if codes[place] not in _RETRIED:
                raise KafkaError(codes[place])
            await asyncio.sleep(0.002)
        else:
            return False
        batch = BatchBuilder(producer_id=identity[0], producer_epoch=identity[1], base_sequence=0, transactional=True)
        batch.append(0, name.encode(), b"")
        try:
            _, durable = self.brokers[leader].replicas.append(self.brokers.partition(leader, *place), batch.build())
            if durable is not None:
                await durable
        except KafkaError:
            return False
        return True

    async def commit_offset(self, identity: tuple[int, int], number: int) -> bool:
        producer = TransactionalProducer(
            transactional_id=self.transactional_id, producer_id=identity[0], epoch=identity[1]
        )
        committer = Committer(member_id="", instance_id=None, epoch=-1, version=5, transactional=True, host="client")
        offsets = {
            PLACES[0]: NewOffset(offset=number, leader_epoch=-1, metadata="", topic_id=ZERO_UUID, retention_ms=-1)
        }

        async def attempt() -> Any:
            at = self.brokers.at(self.leader(OFFSETS_TOPIC))
            return await at.groups.commit_in_transaction(
                self.group_id, committer, offsets, producer=producer, verifier=at.transactions, add=True
            )

        codes = await self.retried(attempt)
        return all(code is ErrorCode.NONE for code in codes.values())


async def disturb(brokers: CoordinatedBrokers, chance: Random) -> None:
    """Move leaders, and lose responses of a broker for a while."""
    while True:
        topic, partition = chance.choice(MOVED)
        await brokers.lead(topic, partition, chance.choice((1, 2, 3)))
        brokers.mute = {chance.choice((1, 2, 3))} if chance.random() < 0.3 else set()
        await asyncio.sleep(chance.random() * 0.02)


def visible(brokers: CoordinatedBrokers, place: tuple[str, int]) -> list[str]:
    """The records of committed transactions in a partition."""
    partition = brokers.partition(brokers.image.topics[place[0]].partitions[place[1]].leader, *place)
    undecided: dict[int, list[str]] = {}
    names: list[str] = []
    for batch in partition.log.batches():
        header = read_header(batch)
        if header.is_control:
            marker = read_marker(batch)
            ended = undecided.pop(header.producer_id, [])
            names += ended if marker is not None and marker.committed else []
        else:
            undecided.setdefault(header.producer_id, []).extend(
                (record.key or b"").decode() for record in decode_records(batch)
            )
    assert not undecided, "a transaction stays open"
    return names


def settled(brokers: CoordinatedBrokers) -> bool:
    leader = brokers.image.topics[TRANSACTIONS_TOPIC].partitions[0].leader
    shards = brokers.at(leader).transactions.runtime.shards()
    if not shards or shards[0].prepared:
        return False
    places = [*PLACES, (OFFSETS_TOPIC, 0)]
    leaders = [brokers.partition(brokers.image.topics[topic].partitions[at].leader, topic, at) for topic, at in places]
    return all(partition.last_stable_offset == partition.log.end_offset for partition in leaders)


async def play(chance: Random, version: int) -> None:
    """Transactions of all clients at a level of `transaction.version`. AssertionError: a rule is broken."""
    brokers = CoordinatedBrokers()
    await brokers.start()
    await brokers.create("more", [1, 2])
    await brokers.apply(FeatureLevelRecord(name=TRANSACTION_VERSION, feature_level=version))
    clients = [Client(brokers, number, chance, version) for number in range(PRODUCERS)]
    async with brokers.replicating():
        disturbing = asyncio.ensure_future(disturb(brokers, chance))
        try:
            await asyncio.gather(*(client.run() for client in clients))
        finally:
            disturbing.cancel()
            brokers.mute = set()
        await until(lambda: settled(brokers))
        groups = brokers.at(brokers.image.topics[OFFSETS_TOPIC].partitions[0].leader).groups
        for client in clients:
            committed, pending = await client.retried(lambda group_id=client.group_id: groups.offsets(group_id))
            assert not pending, "offsets stay pending"
            assert (committed[PLACES[0]].offset if committed else -1) >= client.offset, "a committed offset is lost"
        await brokers.close()
    for place in PLACES:
        names = visible(brokers, place)
        assert len(names) == len(set(names)), "a record is there twice"
        for client in clients:
            expected = {name for name, places in client.committed.items() if place in places}
            assert expected <= set(names), "a committed transaction is not whole"
            assert not client.aborted & set(names), "an aborted record is visible"
    assert sum(len(client.committed) for client in clients) >= TRANSACTIONS / 2


async def _within(chance: Random, version: int) -> None:
    try:
        async with asyncio.timeout(patient(ENDS_S)):
            await play(chance, version)
    except TimeoutError:
        raise AssertionError(f"never: a transaction has not ended after {ENDS_S} s") from None


def run(seed: int, about: str = "") -> None:
    """One seed, in virtual time."""
    World(seed).run(lambda world: world.process("brokers").run(_within, Random(seed), 2 * (seed % 2)))
