"""Clients with transactions: those who write in them, those who pass records on in them, and readers of what is committed.

Here: transactors, flows (read, write, send offsets, all or nothing), auditors, accountants, and the readings at the end
of a run.
Not here: what the history must look like (`transaction_checks`).
"""

import asyncio
import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import busway
from busway.errors import BuswayError, TransactionAbortable, TransactionInDoubt
from tests.simulation.history import Outcome, Partition, Send, value_of
from tests.simulation.transaction_history import (
    CommittedPoll,
    CommittedRead,
    GroupOffset,
    Source,
    StaleOffsets,
    Transaction,
)
from tests.simulation.workloads import RETRY_S, Client, _told, poll, seen

FLOW: Final = "flow"
"""The group of all flows."""
_STALE: Final = 0.3
"""How often a flow that has joined sends offsets in the name of the generation before."""
_SLOW: Final = 0.3
"""How often a flow works for longer than a rebalance takes, or than it may."""
_DELETES: Final = 0.25
"""How often a key is deleted, where there are keys."""
_IN_DOUBT: Final = 5
"""How often a commit is asked again that was not answered."""
_WAIT_MS: Final = 500
_PROTOCOLS: Final[Mapping[str, Mapping[str, Any]]] = {
    "classic": {"group_protocol": "classic", "session_timeout_ms": 6_000, "heartbeat_interval_ms": 1_000},
    "consumer": {"group_protocol": "consumer"},
}
"""Options of a flow's consumer, by the protocol of its group."""


# Writing


async def transact(client: Client) -> None:
    """Write in transactions, commit most of them; a producer that is fenced or killed comes back with the same transactional id."""
    left, number = client.plan.operations, 0
    while left:
        producer = await _producer(client)
        try:
            while left:
                left -= 1
                if not client.option("at_once"):
                    await client.pause()
                count = client.chance.randint(1, client.option("records", 4))
                numbers = range(number, number + count)
                number += count
                commits_offsets = "offsets" in client.plan.options and client.chance.random() < client.option("offsets")
                alive = await _in_transaction(
                    client,
                    producer,
                    Transaction(process=client.process, transactional_id=_id(client), older=_is_older(client)),
                    _sends_offset(number) if commits_offsets else _writes(numbers),
                )
                if not alive:
                    break
                if client.chance.random() < client.option("dies", 0.0):
                    await _die_open(client, producer, number)
                    number += 1
                    break
        finally:
            await producer.stop(timeout_s=1.0)


Body = Callable[[Client, busway.Producer, Transaction], Awaitable[None]]


def _is_older(client: Client) -> bool:
    return bool(client.option("explicit")) or client.stage.plan.levels.get("transaction.version", 2) < 2


def _id(client: Client) -> str:
    transactional_id: str = client.option("transactional_id", client.plan.name)
    return transactional_id


async def _producer(client: Client) -> busway.Producer:
    producer = busway.Producer(
        client.stage.bootstrap,
        client_id=client.begin_life(),
        transactional_id=_id(client),
        transaction_timeout_ms=client.option("timeout_ms", 10_000),
        delivery_timeout_ms=client.option("delivery_timeout_ms", 30_000),
        request_timeout_ms=client.option("request_timeout_ms", 5_000),
        linger_ms=client.option("linger_ms", 0),
    )
    await client.persist(producer.start)
    if client.option("explicit"):
        assert producer._transactions is not None
        producer._transactions.implicit = False  # as clients of transaction.version 0 and 1
    return producer


def _writes(numbers: range) -> Body:
    async def work(client: Client, producer: busway.Producer, transaction: Transaction) -> None:
        topics = [client.plan.topic, *client.option("more_topics", ())]
        for number in numbers:
            topic = client.chance.choice(topics)
            partition = Partition(topic, client.chance.randrange(client.stage.partitions_of()[topic]))
            await _send(client, producer, transaction, partition, number)
            await _linger(client)

    return work


def _sends_offset(offset: int) -> Body:
    """A transaction of one offset alone, of a group that has no members: each is higher than the one before."""

    async def work(client: Client, producer: busway.Producer, transaction: Transaction) -> None:
        partition = client.partition()
        transaction.group, transaction.offsets = offsets_group(client.plan.name), {partition: offset}
        group = busway.GroupMetadata(group_id=transaction.group)
        await producer.send_offsets_to_transaction({busway.TopicPartition(*partition): offset}, group)

    return work


def offsets_group(name: str) -> str:
    """The group whose offsets a transactor of this name commits."""
    return f"offsets-of-{name}"


async def _linger(client: Client) -> None:
    """Now and then a transaction takes its time, some longer than they may, until everything has to come right."""
    if client.chance.random() < 0.3 and not client.stage.settled.is_set():
        await asyncio.sleep(client.chance.expovariate(1 / (client.option("pace_ms", 50) / 1000)))


async def _send(
    client: Client, producer: busway.Producer, transaction: Transaction, partition: Partition, number: int
) -> bytes:
    value = value_of(client.process, number, partition, client.option("filler", 0))
    key, deletes = None, False
    if keys := client.option("keys"):
        key, deletes = f"k{client.chance.randrange(keys)}".encode(), client.chance.random() < _DELETES
    send = Send(process=client.process, partition=partition, value=None if deletes else value, key=key)
    client.history.begin(send)
    transaction.sends.append(send)
    try:
        acknowledged = await producer.send(partition.topic, send.value, key, partition=partition.number)
    except BuswayError as problem:
        client.history.end(send, Outcome.INFO, problem)
        raise
    if not deletes:
        transaction.values.append((partition, value))
    acknowledged.add_done_callback(functools.partial(_told, client.history, send))
    if client.chance.random() < 0.5:
        await acknowledged
    return value


async def _in_transaction(
    client: Client,
    producer: busway.Producer,
    transaction: Transaction,
    work: Body,
    *,
    begun: bool = False,
    offsets: Callable[[], Awaitable[None]] | None = None,
) -> bool:
    """One transaction, whatever becomes of it; whether the producer can go on.

    Args:
        begun: it was begun.
        offsets: sends the offsets of a transaction that is going to be aborted; the commit of one sends them itself.
    """
    commits = client.chance.random() >= client.option("aborts", 0.25)
    client.history.begin(transaction)
    try:
        if not begun:
            await producer.begin_transaction()
        await work(client, producer, transaction)
        if commits:
            transaction.asked = client.history.mark()
            await _commit(producer)
        else:
            if offsets is not None:
                await offsets()
            await producer.abort_transaction()
    except TransactionAbortable as problem:
        client.history.end(transaction, Outcome.FAIL, problem)
        return await _aborted(producer)
    except BuswayError as problem:
        client.history.end(transaction, Outcome.INFO, problem)
        return False
    client.history.end(transaction, Outcome.OK if commits else Outcome.FAIL, "" if commits else "aborted")
    return True


async def _commit(producer: busway.Producer) -> None:
    for _ in range(_IN_DOUBT):
        try:
            await producer.commit_transaction()
            return
        except TransactionInDoubt:
            continue
    await producer.commit_transaction()


async def _aborted(producer: busway.Producer) -> bool:
    try:
        await producer.abort_transaction()
    except BuswayError:
        return False
    return True


async def _die_open(client: Client, producer: busway.Producer, number: int) -> None:
    """Leave a transaction open: the next owner of the id ends it, or its timeout does."""
    transaction = client.history.begin(Transaction(process=client.process, transactional_id=_id(client)))
    try:
        await producer.begin_transaction()
        partition = client.partition()
        await _send(client, producer, transaction, partition, number)
        if client.chance.random() < 0.5:
            await producer.flush()
    except BuswayError as problem:
        client.history.end(transaction, Outcome.FAIL, problem)
    else:
        client.history.end(transaction, Outcome.FAIL, "died")
    await producer.abort()


# Passing on


class _Listener(busway.RebalanceListener):
    """Knows the generation that its member was assigned partitions in: that one is durable."""

    def __init__(self) -> None:
        self.consumer: busway.Consumer | None = None
        self.joined = -1

    async def on_partitions_assigned(self, assigned: object) -> None:
        """Note the generation."""
        assert self.consumer is not None
        self.joined = self.consumer.member().generation


async def pass_on(client: Client) -> None:
    """Read committed records, write one for each and send the offsets, all in one transaction, until the group has read everything.

    Options: `slow`, how often its work takes 0.5 to 6 s; `leaves`, how often it leaves its group after a transaction and joins again;
    `protocol` of its group.
    """
    number = 0
    while not client.stage.drained.is_set():
        producer = await _producer(client)
        listener = _Listener()
        consumer = busway.Consumer(
            client.plan.topic,
            bootstrap_servers=client.stage.bootstrap,
            client_id=client.process,
            group_id=FLOW,
            listener=listener,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            request_timeout_ms=5_000,
            max_poll_interval_ms=client.chance.choice([3_000, 300_000]),
            **_PROTOCOLS[client.option("protocol", "classic")],
        )
        listener.consumer = consumer
        await client.persist(consumer.start)
        tried = 1
        try:
            while not client.stage.drained.is_set():
                made = await _pass_on(client, producer, consumer, number)
                if made is None:
                    break
                number += made
                group = consumer.group_metadata()
                if group.generation == listener.joined > tried:
                    tried = group.generation
                    if client.chance.random() < _STALE and not await _send_stale(client, producer, group):
                        break
                await client.pause()
                if client.option("leaves") and client.chance.random() < client.option("leaves"):
                    break
        finally:
            await consumer.stop()
            await producer.stop(timeout_s=1.0)


async def _pass_on(client: Client, producer: busway.Producer, consumer: busway.Consumer, number: int) -> int | None:
    """One transaction as docs/TRANSACTIONS.md shows it; how many records it was handed, None if the flow cannot go on where it is."""
    transaction = Transaction(process=client.process, transactional_id=_id(client), group=FLOW, older=_is_older(client))
    try:
        await producer.begin_transaction(consumer)
    except BuswayError:
        return None
    records = await poll(client, consumer, group=FLOW, limit=client.chance.choice([1, 3, 20]), kind=CommittedPoll)
    count = sum(map(len, records.values()))
    if not records:
        return 0 if await _aborted(producer) else None

    async def work(client: Client, producer: busway.Producer, transaction: Transaction) -> None:
        numbers = itertools.count(number)
        output = client.option("output")
        if client.chance.random() < client.option("slow", _SLOW) and not client.stage.settled.is_set():
            await asyncio.sleep(client.chance.uniform(0.5, 6.0))
        for partition, partition_records in records.items():
            for record in partition_records:
                place = Partition(output, client.chance.randrange(client.stage.partitions_of()[output]))
                value = await _send(client, producer, transaction, place, next(numbers))
                transaction.sources[value] = Source(Partition(*partition), record.offset)
                await _linger(client)

    async def send_offsets() -> None:
        await producer.send_offsets_to_transaction(*consumer.transaction_input().offsets())

    with _noted(consumer, transaction):
        alive = await _in_transaction(client, producer, transaction, work, begun=True, offsets=send_offsets)
    return count if alive else None


@contextlib.contextmanager
def _noted(consumer: busway.Consumer, transaction: Transaction) -> Iterator[None]:
    """Keep the offsets that the transaction takes along."""
    given = consumer.transaction_input()
    offsets = given.offsets

    def noted() -> Any:
        positions, member = offsets()
        transaction.offsets = {Partition(*partition): at.offset for partition, at in positions.items()}
        return positions, member

    given.offsets = noted  # type: ignore[method-assign]
    try:
        yield
    finally:
        given.offsets = offsets  # type: ignore[method-assign]


async def _send_stale(client: Client, producer: busway.Producer, group: busway.GroupMetadata) -> bool:
    """Send offsets as a member does that has not heard of this generation; whether the producer can go on."""
    stale = dataclasses.replace(group, generation=group.generation - 1, guard=None)
    operation = StaleOffsets(process=client.process, group=FLOW, generation=stale.generation)
    try:
        await producer.begin_transaction()
        client.history.begin(operation)
        await producer.send_offsets_to_transaction({busway.TopicPartition(client.plan.topic, 0): 0}, stale)
    except BuswayError as problem:
        client.history.end(operation, Outcome.INFO, problem)
    else:
        client.history.end(operation)
    return await _aborted(producer)


# Reading


async def audit(client: Client) -> None:
    """Read the committed records of a topic from the beginning."""
    client.begin_life()
    consumer = reader(client)
    await client.persist(consumer.start)
    try:
        await client.persist(functools.partial(consumer.assign, client.partitions()))
        for _ in range(client.plan.operations):
            await poll(client, consumer, limit=client.chance.choice([1, 10, 500]), kind=CommittedPoll)
            await client.pause()
    finally:
        await consumer.stop()


def reader(client: Client, group: str | None = None, isolation_level: str = "read_committed") -> busway.Consumer:
    """A consumer that is given its partitions, and commits nothing by itself."""
    return busway.Consumer(
        bootstrap_servers=client.stage.bootstrap,
        client_id=client.process,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        request_timeout_ms=5_000,
        isolation_level=isolation_level,
    )


async def account(client: Client) -> None:
    """Ask what flows have committed."""
    client.begin_life()
    isolation = client.option("isolation_level", "read_committed")
    consumer = reader(client, client.option("group", FLOW), isolation)
    await client.persist(consumer.start)
    try:
        for _ in range(client.plan.operations):
            await client.pause()
            with contextlib.suppress(BuswayError):
                await ask_offset(client, consumer, client.partition())
    finally:
        await consumer.stop()


async def ask_offset(
    client: Client, consumer: busway.Consumer, partition: Partition, *, last: bool = False
) -> int | None:
    """Ask what the consumer's group has committed, for the history."""
    stable = consumer.options.isolation_level == "read_committed"
    group = consumer.options.group_id or FLOW
    operation = GroupOffset(process=client.process, group=group, partition=partition, last=last, stable=stable)
    client.history.begin(operation)
    try:
        committed = await consumer.committed(busway.TopicPartition(*partition))
    except BuswayError as problem:
        client.history.end(operation, Outcome.INFO, problem)
        raise
    operation.offset = committed.offset if committed is not None else None
    client.history.end(operation)
    return operation.offset


# The end of a run


async def nothing_is_open(bootstrap: str, partitions: Iterable[Partition]) -> None:
    """Return when readers of committed records reach the end of every partition."""
    keys = [busway.TopicPartition(*partition) for partition in partitions]
    plain = busway.Consumer(bootstrap_servers=bootstrap)
    committed = busway.Consumer(bootstrap_servers=bootstrap, isolation_level="read_committed")
    await plain.start()
    await committed.start()
    try:
        while True:
            with contextlib.suppress(BuswayError):
                if await committed.end_offsets(keys) == await plain.end_offsets(keys):
                    return
            await asyncio.sleep(RETRY_S)
    finally:
        await plain.stop()
        await committed.stop()


async def flows_are_done(client: Client) -> None:
    """Return when the flows have passed on all that is committed."""
    consumer = reader(client, FLOW)
    await client.persist(consumer.start)
    try:
        for partition in client.partitions():
            records = await all_of(client, partition)
            end = records[-1].offset + 1 if records else 0
            while True:
                with contextlib.suppress(BuswayError):
                    if (await ask_offset(client, consumer, Partition(*partition)) or 0) >= end:
                        break
                await asyncio.sleep(RETRY_S)
    finally:
        await consumer.stop()


async def all_of(client: Client, partition: busway.TopicPartition) -> list[busway.Record]:
    """All committed records of a partition."""
    records: list[busway.Record] = []
    consumer = reader(client)
    await client.persist(consumer.start)
    try:
        end = (await consumer.end_offsets([partition]))[partition]
        await consumer.assign([partition])
        while await consumer.position(partition) < end:
            for partition_records in (await consumer.getmany(timeout_ms=_WAIT_MS)).values():
                records += partition_records
    finally:
        await consumer.stop()
    return records


async def read_committed(client: Client, partitions: Iterable[Partition]) -> None:
    """Everything that is committed, and how far the flows are."""
    consumer = reader(client, FLOW)
    await client.persist(consumer.start)
    try:
        for partition in partitions:
            operation = CommittedRead(process=client.process, partition=partition, reading=client.process)
            client.history.begin(operation)
            key = busway.TopicPartition(*partition)
            operation.records = seen({key: await all_of(client, key)})
            client.history.end(operation)
            if partition.topic == client.plan.topic:
                await ask_offset(client, consumer, partition, last=True)
    finally:
        await consumer.stop()
