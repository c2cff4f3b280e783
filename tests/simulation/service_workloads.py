"""A service made of `App` whose handler is exactly once: it reads, keeps a table, writes, and puts aside what it cannot handle.

Here: the service, its instances, and the readings at the end of a run.
Not here: what these must look like (`service_checks`); services of users with properties of their own are simulated by
`busway simulate`.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any, Final
from zlib import crc32

import busway
from busway import App, ConsumerRecord, Exponential, Retry
from busway.app.model.retry import dead_letter_topic
from busway.app.tables.table import Table
from busway.errors import BuswayError
from tests.simulation.history import Happening, Partition
from tests.simulation.plan import ClientPlan, Plan
from tests.simulation.service_history import Copied, Row, ServiceRead, is_poison, partition_of_row, row_key
from tests.simulation.transaction_workloads import all_of
from tests.simulation.workloads import RETRY_S, Client, seen

SERVICE: Final = "service"
"""The kind of its clients, its name and its group."""
COPIES: Final = "copies"
COUNTS: Final = "counts"
_NOTICED_S: Final = 2.0
"""A coordinator has looked for transactions that are open for too long by then, and aborted them."""


class Poison(Exception):
    """A record that no handler can handle."""


class Flaw(Exception):
    """What goes wrong once."""


def topics_of_service(plan: Plan) -> list[busway.NewTopic]:
    """The topics that only a service writes, where there is one."""
    source = source_of(plan)
    if source is None:
        return []
    partitions = next(topic.partitions for topic in plan.topics if topic.name == source)
    return [
        busway.NewTopic(name=COPIES, partitions=partitions),
        busway.NewTopic(name=COUNTS, partitions=partitions, configs={"cleanup.policy": "compact"}),
        busway.NewTopic(name=dead_letter_topic(source, SERVICE), partitions=1),
    ]


def source_of(plan: Plan) -> str | None:
    """What the service reads; None where there is none."""
    return next((client.topic for client in plan.clients if client.kind == SERVICE), None)


def is_ordered(client: ClientPlan) -> bool:
    """Whether it handles the records of a partition one after the other, and keeps its table."""
    return not client.options.get("concurrency")


class _Stalls(busway.Extension):
    """Now and then an instance stands still before a commit, until its transaction is aborted and its producer fenced."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def reached(self, point: str, topic: str, partition: int, offset: int) -> None:
        """Wait."""
        client = self._client
        if point != "before-commit" or client.stage.settled.is_set():
            return
        if client.chance.random() < client.option("stalls"):
            client.history.note(Happening(process=client.process, kind="stall"))
            await asyncio.sleep(client.option("timeout_ms") / 1000 + _NOTICED_S)


def _row(value: bytes | None) -> Row:
    return Row() if value is None else Row(*map(int, value.split(b"/")))


def _make(client: Client) -> App:
    """The service, as a process that starts makes it."""
    tries: set[tuple[int, int]] = set()
    process, ordered = client.process, is_ordered(client.plan)
    consumer: dict[str, Any] = {"request_timeout_ms": 5_000}
    if client.option("protocol") == "consumer":
        consumer["group_protocol"] = "consumer"
    else:
        consumer |= {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 1_000}
    if client.option("instance"):
        consumer["group_instance_id"] = client.option("instance")
    producer = {"request_timeout_ms": client.option("request_timeout_ms", 5_000)}
    if client.option("timeout_ms"):
        producer["transaction_timeout_ms"] = client.option("timeout_ms")
    app = App(
        SERVICE,
        client.stage.bootstrap,
        commit_interval_s=client.option("commit_s", 0.2),
        drain_timeout_s=client.option("drain_s", 5.0),
        producer=producer,
        consumer=consumer,
    )
    if client.option("stalls"):
        app.extend(_Stalls(client))
    source = app.topic(client.plan.topic, key=bytes, value=bytes, format="raw")
    copies = app.topic(COPIES, key=bytes, value=bytes, format="raw")
    counts = app.table(COUNTS, value=bytes, format="raw") if ordered else None
    if counts is not None:
        client.stage.tables[client.plan.name] = counts

    @app.subscribe(
        source,
        guarantee="exactly_once",
        ordering="partition" if ordered else "none",
        concurrency=client.option("concurrency", 1),
        retry=Retry(attempts=3, backoff=Exponential(initial=0.05), give_up_on=(Poison,)),
    )
    async def copy(record: ConsumerRecord[bytes, bytes]) -> None:
        place, row = Partition(record.topic, record.partition), None
        if counts is not None:
            key = row_key(record.partition, record.value)
            row = _row(counts.get(key)).after(record.offset)
            await counts.put(key, "/".join(map(str, row)).encode(), partition=record.partition)
        copied = Copied(process, place, record.offset, row)
        await app.send(copies, copied.text(), partition=record.partition)
        if not client.stage.settled.is_set() and client.chance.random() < 0.3:
            await asyncio.sleep(client.chance.expovariate(1 / (client.option("pace_ms", 50) / 1000)))
        if is_poison(record.value):
            raise Poison
        if crc32(record.value or b"") % 5 == 1 and (record.partition, record.offset) not in tries:
            tries.add((record.partition, record.offset))
            raise Flaw  # what it has sent and put has to be taken back

    return app


async def serve(client: Client) -> None:
    """Run an instance of the service until all is handled; one that stops by itself, or in order, is started again."""
    leaves = client.option("leaves", 0)
    while not client.stage.drained.is_set():
        client.begin_life()
        app = _make(client)
        try:
            async with app:
                for_s = client.chance.uniform(0.2, 1) * client.stage.plan.span_ms / 1000 if leaves else None
                leaves = max(leaves - 1, 0)
                await _until_over(client, app, for_s)
                if client.stage.drained.is_set():
                    return
        except BuswayError as problem:
            client.history.note(Happening(process=client.process, kind="service ends", text=str(problem)))
            await asyncio.sleep(1.0)


async def _until_over(client: Client, app: App, for_s: float | None) -> None:
    waits: list[asyncio.Future[Any]] = [
        asyncio.ensure_future(app.wait()),
        asyncio.ensure_future(client.stage.drained.wait()),
    ]
    try:
        await asyncio.wait(waits, timeout=for_s, return_when=asyncio.FIRST_COMPLETED)
        if waits[0].done():
            waits[0].result()
    finally:
        for wait in waits:
            wait.cancel()


# The end of a run


async def service_is_done(client: Client) -> None:
    """Return when the service has committed the end of all that is committed for it to read."""
    consumer = busway.Consumer(
        bootstrap_servers=client.stage.bootstrap, client_id=client.process, group_id=SERVICE, enable_auto_commit=False
    )
    await client.persist(consumer.start)
    try:
        for partition in client.partitions():
            records = await all_of(client, partition)
            end = records[-1].offset + 1 if records else 0
            while True:
                with contextlib.suppress(BuswayError):
                    committed = await consumer.committed(partition)
                    if (committed.offset if committed is not None else 0) >= end:
                        break
                await asyncio.sleep(RETRY_S)
    finally:
        await consumer.stop()


Live = list[tuple[str, str, Row]]


def live_rows(tables: Mapping[str, Table[str, bytes]]) -> Live:
    """The rows that instances have in memory of partitions that they have, each with the instance."""
    return [
        (name, key, _row(value))
        for name, table in sorted(tables.items())
        for key, value in sorted(table.items())
        if partition_of_row(key) in table.held
    ]


async def read_service(client: Client, live: Live) -> None:
    """All that the service has left behind."""
    topic = client.plan.topic
    plans = [plan for plan in client.stage.plan.clients if plan.kind == SERVICE]
    read = ServiceRead(process=client.process, ordered=all(map(is_ordered, plans)), live=live)
    client.history.begin(read)
    count = client.stage.partitions_of()[topic]
    read.sources = {
        place: seen({busway.TopicPartition(*place): records})
        for place, records in (await _all(client, topic, count)).items()
    }
    read.copies = {
        place: seen({busway.TopicPartition(*place): records})
        for place, records in (await _all(client, COPIES, count)).items()
    }
    read.rows = {
        place: seen({busway.TopicPartition(*place): records})
        for place, records in (await _all(client, COUNTS, count)).items()
    }
    letters = await _all(client, dead_letter_topic(topic, SERVICE), 1)
    read.letters = [_origin(record) for records in letters.values() for record in records]
    client.history.end(read)


def _origin(record: busway.Record) -> tuple[Partition, int]:
    """Where a dead letter comes from."""
    headers = {name.removeprefix("kafka_dlt-original-"): (value or b"").decode() for name, value in record.headers}
    return Partition(headers["topic"], int(headers["partition"])), int(headers["offset"])


async def _all(client: Client, topic: str, count: int) -> dict[Partition, list[busway.Record]]:
    return {
        Partition(topic, number): await all_of(client, busway.TopicPartition(topic, number)) for number in range(count)
    }
