"""Clients that write and read records, as the history sees them.

Here: what every client has (`Client`), producers, plain readers, deletions of records.
Not here: groups (`group_workloads`), topics (`admin_workloads`), faults and the node (`scenario`). Clients are the
SDK's, unchanged; what they are answered goes into the history, an unclear answer as `INFO`.
"""

import asyncio
import contextlib
import functools
import random
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

import busway
from busway.errors import BuswayError
from busway_bus.testing.sim_process import Process
from tests.simulation.history import (
    DeleteRecords,
    EndOffset,
    Happening,
    History,
    Outcome,
    Partition,
    Poll,
    Seen,
    Send,
    value_of,
)
from tests.simulation.plan import ClientPlan, Plan
from tests.simulation.transaction_history import CommittedPoll

RETRY_S: Final = 0.5
SEQUENCES: Final = 2**31
_WAIT_MS: Final = 500


class Stage(Protocol):
    """Where clients play: what they share.

    Attributes:
        bootstrap: the node's address.
        settled: set when no more faults come.
        drained: set when the members of groups have read everything.
        tables: of the instances of a service, by the client's name.
    """

    plan: Plan
    history: History
    bootstrap: str
    settled: asyncio.Event
    drained: asyncio.Event
    tables: dict[str, Any]

    def partitions_of(self) -> dict[str, int]:
        """Topics with their partitions."""
        ...


class Client:
    """One client of a plan.

    Attributes:
        chance: its own numbers, which do not change when another client is left out of the plan.
        process: its name in the history; it gets another one whenever it is started again.
        owned: the partitions that it has as a member of a group, as far as it knows.
        member: while it takes part in a group, its process and what tells its membership.
    """

    def __init__(self, plan: ClientPlan, stage: Stage) -> None:
        self.plan = plan
        self.stage = stage
        self.history = stage.history
        self.chance = random.Random(f"client/{stage.plan.seed}/{plan.name}")
        self._lives = 0
        self.process = plan.name
        self.owned: frozenset[Partition] = frozenset()
        self.member: tuple[Process, Callable[[], Any]] | None = None

    def option(self, name: str, default: Any = None) -> Any:
        """What the plan says."""
        return self.plan.options.get(name, default)

    @property
    def lives(self) -> int:
        """How many processes it has begun."""
        return self._lives

    def begin_life(self) -> str:
        """Another process begins."""
        self._lives += 1
        self.process = f"{self.plan.name}.{self._lives}"
        self.history.note(Happening(process=self.process, kind="start"))
        return self.process

    def partition(self) -> Partition:
        """One of its topic."""
        return Partition(self.plan.topic, self.chance.randrange(self.stage.partitions_of()[self.plan.topic]))

    def partitions(self) -> list[busway.TopicPartition]:
        """All of its topic."""
        count = self.stage.partitions_of()[self.plan.topic]
        return [busway.TopicPartition(self.plan.topic, number) for number in range(count)]

    async def pause(self, operations: int = 1) -> None:
        """Spread the operations over the time in which faults happen, so many at a time; none when those are over."""
        if not self.stage.settled.is_set():
            mean_s = self.stage.plan.span_ms / 1000 / max(self.plan.operations, 1) * operations
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.chance.expovariate(1 / mean_s)):
                    await self.stage.settled.wait()

    async def persist(self, start: Callable[[], Awaitable[Any]]) -> None:
        """Start something, again and again until there is a node to reach."""
        while True:
            try:
                await start()
                return
            except BuswayError:
                await asyncio.sleep(RETRY_S)


async def produce(client: Client) -> None:
    """Send bursts of records; now and then die with some under way."""
    left, number = client.plan.operations, 0
    while left:
        producer = _producer(client)
        await client.persist(producer.start)
        if client.option("near_wrap"):
            _begin_near_wrap(client, producer)
        try:
            while left:
                burst = min(left, client.option("burst", 1))
                left -= burst
                await _burst(client, producer, range(number, number + burst))
                number += burst
                await client.pause(burst)
                if client.option("dies") and client.chance.random() < 0.2:
                    break
            else:
                await producer.flush()
                continue
            await producer.abort()
        finally:
            await producer.stop(timeout_s=1.0)


def _producer(client: Client) -> busway.Producer:
    options = {
        name: client.option(name)
        for name in ("linger_ms", "batch_size", "compression_type", "delivery_timeout_ms", "request_timeout_ms")
        if client.option(name) is not None
    }
    idempotent = client.option("idempotent", True)
    return busway.Producer(
        client.stage.bootstrap,
        client_id=client.begin_life(),
        enable_idempotence=idempotent,
        acks="all" if idempotent else 1,
        **options,
    )


def _begin_near_wrap(client: Client, producer: busway.Producer) -> None:
    """Let the sequence numbers of each partition run over their end within a few records."""
    from busway.producer.accumulator import _Queue

    accumulator = producer._accumulator
    for partition in client.partitions():
        queue = _Queue(accumulator._batch_size)
        queue.next_sequence = SEQUENCES - 1 - client.chance.randrange(4)
        accumulator._queues[tuple(partition)] = queue


async def _burst(client: Client, producer: busway.Producer, numbers: range) -> None:
    partition = client.partition()
    keys = client.option("keys", 0)
    sends = []
    for number in numbers:
        key = f"k{client.chance.randrange(keys)}".encode() if keys else None
        value = value_of(client.process, number, partition, client.option("filler", 0))
        if keys and client.chance.random() < 0.15:
            value = None
        sends.append(
            Send(
                process=client.process,
                partition=partition,
                value=value,
                key=key,
                idempotent=client.option("idempotent", True),
            )
        )
    if client.option("together") and not keys:
        await _send_together(client, producer, partition, sends)
        return
    for send in sends:
        client.history.begin(send)
        try:
            acknowledged = await producer.send(partition.topic, send.value, send.key, partition=partition.number)
        except (BuswayError, ValueError) as problem:
            client.history.end(send, Outcome.INFO, problem)
            continue
        acknowledged.add_done_callback(functools.partial(_told, client.history, send))
    if client.option("burst", 1) == 1:
        with contextlib.suppress(BuswayError):
            await acknowledged


async def _send_together(client: Client, producer: busway.Producer, partition: Partition, sends: list[Send]) -> None:
    for send in sends:
        client.history.begin(send)
    try:
        futures = await producer.send_many(
            partition.topic, [(None, send.value, ()) for send in sends], partition=partition.number, linger=False
        )
        for future in futures:
            await future
    except (BuswayError, ValueError) as problem:
        for send in sends:
            client.history.end(send, Outcome.INFO, problem)
    else:
        for send in sends:
            client.history.end(send)


def _told(history: History, send: Send, future: "asyncio.Future[busway.RecordMetadata]") -> None:
    if future.cancelled() or (problem := future.exception()) is not None:
        history.end(send, Outcome.INFO, "cancelled" if future.cancelled() else problem)
        return
    offset = future.result().offset
    send.offset = offset if offset >= 0 else None
    history.end(send)


def seen(records: dict[busway.TopicPartition, list[busway.Record]]) -> list[Seen]:
    """Records as the history keeps them."""
    return [
        Seen(Partition(*partition), record.offset, record.value, record.key)
        for partition, partition_records in records.items()
        for record in partition_records
    ]


async def poll(
    client: Client,
    consumer: busway.Consumer,
    *,
    group: str | None = None,
    limit: int | None = None,
    kind: type[Poll | CommittedPoll] = Poll,
) -> dict[busway.TopicPartition, list[busway.Record]]:
    """Ask for records once; `kind` is what the history calls it."""
    operation = client.history.begin(kind(process=client.process, group=group))
    try:
        records = await consumer.getmany(timeout_ms=_WAIT_MS, max_records=limit)
    except BuswayError as problem:
        client.history.end(operation, Outcome.INFO, problem)
        await asyncio.sleep(RETRY_S)
        return {}
    operation.records = seen(records)
    client.history.end(operation)
    return records


async def read(client: Client) -> None:
    """Read all partitions of a topic from the beginning, and ask for their ends."""
    consumer = busway.Consumer(
        bootstrap_servers=client.stage.bootstrap,
        client_id=client.begin_life(),
        auto_offset_reset="earliest",
        request_timeout_ms=5_000,
    )
    await client.persist(consumer.start)
    try:
        await client.persist(functools.partial(consumer.assign, client.partitions()))
        for _ in range(client.plan.operations):
            await poll(client, consumer, limit=client.chance.choice([1, 10, 500]))
            if client.chance.random() < 0.5:
                await ask_end(client, consumer, client.partition())
            await client.pause()
    finally:
        await consumer.stop()


async def ask_end(client: Client, consumer: busway.Consumer, partition: Partition) -> None:
    """Where a partition ends."""
    operation = client.history.begin(EndOffset(process=client.process, partition=partition))
    try:
        end_offsets = await consumer.end_offsets([busway.TopicPartition(*partition)])
    except BuswayError as problem:
        client.history.end(operation, Outcome.INFO, problem)
        return
    operation.offset = end_offsets.get(busway.TopicPartition(*partition))
    client.history.end(operation)


async def trim(client: Client) -> None:
    """Delete records from the beginning of a topic."""
    admin = busway.Admin(client.stage.bootstrap, client_id=client.begin_life(), request_timeout_ms=5_000)
    await client.persist(admin.start)
    try:
        for _ in range(client.plan.operations):
            await client.pause()
            partition = client.partition()
            key = busway.TopicPartition(*partition)
            try:
                end = (await admin.list_offsets({key: -1})).get(key, 0)
            except BuswayError:
                continue
            operation = DeleteRecords(process=client.process, partition=partition, before=client.chance.randint(0, end))
            client.history.begin(operation)
            try:
                await admin.delete_records({key: operation.before})
            except BuswayError as problem:
                client.history.end(operation, Outcome.INFO, problem)
            else:
                client.history.end(operation)
    finally:
        await admin.stop()
