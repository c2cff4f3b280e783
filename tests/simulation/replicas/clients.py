"""Clients of replicated partitions, and what they have seen.

Here: producers (plain, idempotent, transactional), a reader, and the checks of both.
Not here: rules of the brokers (`rules`), the faults (`scenario`).
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from busway_bus.kernel.transactions import EndTransaction
from busway_bus.replication.partition import Partition
from busway_bus.testing.world import Crashed
from busway_protocol.errors import ErrorCode, KafkaError
from busway_protocol.records.batch import TRANSACTIONAL, iter_batches
from busway_protocol.records.builder import BatchBuilder
from busway_protocol.records.control import read_marker
from busway_protocol.records.record import decode_records
from tests.simulation.replicas.rules import Violation
from tests.unit.busway_bus.replication.replica_cluster import ReplicaCluster, ReplicaHost

TIMESTAMP: Final = 1_700_000_000_000
READ_MAX: Final = 1 << 24
LOST_TRACK: Final = {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID}


@dataclass(slots=True)
class Transaction:
    """A transaction in one partition; `committed` is None while its end is not known."""

    index: int
    values: list[bytes] = field(default_factory=list)
    committed: bool | None = None


class Clients:
    """What clients have seen: acknowledged records, and records below a high watermark."""

    def __init__(self, cluster: ReplicaCluster, chance: Random, partitions: int) -> None:
        self.cluster, self.chance, self.partitions = cluster, chance, partitions
        self.acknowledged: list[tuple[int, int, bytes]] = []
        self.once: set[bytes] = set()
        """Values of idempotent producers: each may be in the log once."""
        self.seen: dict[tuple[int, int], bytes] = {}
        self.transactions: list[Transaction] = []
        self.attempts = 0
        self.over = False

    # Producers

    async def write(self, writer: int) -> None:
        """A producer that does not repeat what failed."""
        while not self.over:
            index, value = self._next(writer)
            try:
                offset = await self.cluster.produce(index, value, within_s=self.chance.choice((0.5, 5.0)))
            except (KafkaError, Crashed):
                await asyncio.sleep(0.05)
            else:
                self.acknowledged.append((index, offset, value))
            await asyncio.sleep(self.chance.expovariate(100))

    async def write_once(self, writer: int) -> None:
        """An idempotent producer: it repeats a batch until it is acknowledged."""
        sequences: Counter[int] = Counter()
        while not self.over:
            index, value = self._next(writer)
            batch = BatchBuilder(producer_id=1_000 + writer, producer_epoch=0, base_sequence=sequences[index])
            batch.append(TIMESTAMP, None, value)
            sequences[index] += 1
            self.once.add(value)
            offset = await self._until_done(index, ReplicaHost.write, batch.build(), self.chance.random() < 0.3)
            if offset is not None:
                self.acknowledged.append((index, offset, value))
            await asyncio.sleep(self.chance.expovariate(100))

    async def transact(self, writer: int) -> None:
        """A transactional producer, with a new epoch for each transaction (transaction version 2)."""
        epoch = 0
        while not self.over:
            index = self.chance.randrange(self.partitions)
            transaction = Transaction(index)
            self.transactions.append(transaction)
            for sequence in range(self.chance.randint(1, 3)):
                _, value = self._next(writer)
                batch = BatchBuilder(
                    producer_id=2_000 + writer, producer_epoch=epoch, base_sequence=sequence, transactional=True
                )
                batch.append(TIMESTAMP, None, value)
                transaction.values.append(value)
                self.once.add(value)
                offset = await self._until_done(index, ReplicaHost.write, batch.build())
                if offset is None:
                    return
                self.acknowledged.append((index, offset, value))
                await asyncio.sleep(self.chance.expovariate(20))
            epoch += 1
            marker = EndTransaction(
                producer_id=2_000 + writer,
                producer_epoch=epoch,
                committed=self.chance.random() < 0.6,
                coordinator_epoch=0,
                transaction_version=2,
            )
            if await self._until_done(index, ReplicaHost.mark, marker) is None:
                return
            transaction.committed = marker.committed
            await asyncio.sleep(self.chance.expovariate(50))

    def _next(self, writer: int) -> tuple[int, bytes]:
        self.attempts += 1
        return self.attempts % self.partitions, b"%d/%d" % (writer, self.attempts)

    async def _until_done(self, index: int, work: Callable[..., Any], *arguments: Any) -> int | None:
        """Repeat a write until it is acknowledged; None if the run is over before."""
        while True:
            try:
                within_s = self.chance.choice((0.5, 5.0))
                return await self.cluster.at_leader(index, work, *arguments, within_s=within_s)
            except KafkaError as problem:
                if problem.code in LOST_TRACK:
                    raise Violation("lost track", f"{problem} for a batch that follows an acknowledged one") from None
            except Crashed:
                pass
            if self.over:
                return None
            await asyncio.sleep(self.chance.choice((0.05, 0.05, 0.5)))

    # The reader

    async def read(self) -> None:
        """A reader of any replica, up to its high watermark."""
        while not self.over:
            await asyncio.sleep(self.chance.expovariate(20))
            self.look(self.chance.choice(list(self.cluster.hosts)), self.chance.randrange(self.partitions))

    def look(self, node_id: int, index: int) -> None:
        """Note all records below a replica's high watermark; each offset has one value for ever."""
        partition = self.cluster.partition_on(node_id, index)
        if partition is None:
            return
        undecided: dict[int, int] = {}
        for content in partition.log.batches():
            for header, batch in iter_batches(content):
                if header.is_control:
                    undecided.pop(header.producer_id, None)
                elif header.attributes & TRANSACTIONAL:
                    undecided.setdefault(header.producer_id, header.base_offset)
                if header.next_offset > partition.high_watermark:
                    continue
                for record in decode_records(bytes(batch)):
                    before = self.seen.setdefault((index, record.offset), record.value or b"")
                    if before != record.value:
                        text = f"offset {record.offset} of {index} was {before!r}, now {record.value!r}"
                        raise Violation("changed record", text)
        stable = min(undecided.values(), default=partition.high_watermark)
        if partition.last_stable_offset > max(stable, partition.log.start_offset):
            text = f"broker {node_id} reads {index} up to {partition.last_stable_offset}, undecided is {stable}"
            raise Violation("undecided read", text)

    # At the end

    def check(self) -> None:
        """All acknowledged records are where they were acknowledged, once, and those of committed transactions are visible."""
        for node_id in self.cluster.hosts:
            for index in range(self.partitions):
                self.look(node_id, index)
        for index, offset, value in self.acknowledged:
            if self.seen.get((index, offset)) != value:
                raise Violation("lost write", f"{value!r} at {offset} of {index} was acknowledged")
        for value, count in Counter(self.seen.values()).items():
            if value in self.once and count > 1:
                raise Violation("duplicate", f"{value!r} is {count} times in the log")
        for index in range(self.partitions):
            replicas = [self.cluster.partition_on(node_id, index) for node_id in self.cluster.hosts]
            self._match(index, [replica for replica in replicas if replica is not None])

    def _match(self, index: int, replicas: Sequence[Partition]) -> None:
        logs = [list(replica.log.batches()) for replica in replicas]
        if any(log != logs[0] for log in logs):
            raise Violation("divergent replicas", f"the logs of {index} differ")
        ended = [transaction for transaction in self.transactions if transaction.index == index]
        for replica in replicas:
            visible = committed_values(replica)
            for transaction in ended:
                there = visible & {*transaction.values}
                if transaction.committed is not None and there != (
                    {*transaction.values} if transaction.committed else set()
                ):
                    name = "lost commit" if transaction.committed else "aborted read"
                    raise Violation(name, f"{there} of {transaction} are visible at broker {replica.state.node_id}")


def committed_values(partition: Partition) -> set[bytes]:
    """The values that a consumer with isolation.level=read_committed gets."""
    log, values = partition.log, set[bytes]()
    batches, aborted = log.committed_slice(log.start_offset, READ_MAX, up_to=partition.last_stable_offset)
    pending, skipped = sorted(aborted, key=lambda each: each[1]), set[int]()
    for header, batch in iter_batches(b"" if batches is None else batches.take(len(batches))):
        while pending and pending[0][1] <= header.base_offset:
            skipped.add(pending.pop(0)[0])
        if header.is_control:
            if read_marker(batch) is not None:
                skipped.discard(header.producer_id)
        elif not (header.attributes & TRANSACTIONAL and header.producer_id in skipped):
            values.update(record.value or b"" for record in decode_records(bytes(batch)))
    return values
