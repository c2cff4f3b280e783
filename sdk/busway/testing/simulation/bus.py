"""The bus of workloads and properties in a simulation.

Here: sending from outside the service, and reading; both retry through faults.
Not here: faults (`run`).
"""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from types import SimpleNamespace
from typing import Any, Final, NamedTuple, TypeVar

from busway.admin.admin import Admin
from busway.app.application import Application
from busway.app.model.retry import dead_letter_topic
from busway.app.model.topic import BadDeclaration, ConsumerRecord, Topic
from busway.app.tables.table import Table
from busway.consumer.snapshot import read_to_end
from busway.errors import ConnectionFailed, RequestTimedOut
from busway.producer.producer import Producer
from busway.security.options import PLAINTEXT
from busway.testing.dead_letter import DeadLetter, dead_letter_of
from busway.testing.simulation.trace import Trace
from busway.types import Headers, Record, RecordMetadata

K = TypeVar("K")
V = TypeVar("V")
WHO: Final = "workload"
_AGAIN_S: Final = 0.2


class Sent(NamedTuple):
    topic: str
    key: Any
    value: Any
    partition: int
    offset: int


class SimulatedBus:
    """A client beside the service.

    Attributes:
        chance: random numbers of the seed: what to send, and when.
        sent: acknowledged records, in the order of acknowledgement.
        state: values that the workload leaves for properties; empty at the start of each history.
    """

    def __init__(self, app: Application, bootstrap_servers: str, chance: Random, trace: Trace) -> None:
        self.chance = chance
        self.sent: list[Sent] = []
        self.state: SimpleNamespace = SimpleNamespace()
        self._app = app
        self._bootstrap_servers = bootstrap_servers
        self._serdes = app.new_serdes()
        self._producer: Producer | None = None
        self._preparing = asyncio.Lock()
        self._trace = trace

    @property
    def now_s(self) -> float:
        """Virtual seconds since the start."""
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        """Sleep in virtual time."""
        await asyncio.sleep(seconds)

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        self._trace.tell(WHO, text)

    async def send(
        self,
        topic: Topic[K, V],
        value: V | None,
        key: K | None = None,
        *,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """Write a record and wait for its acknowledgement, retrying through failures of connections and brokers.

        Raises:
            Unencodable: the value or the key is of another type.
            DeliveryFailed: not acknowledged in time.
        """
        await self._prepare(topic)
        assert self._producer is not None
        where = await self._producer.send_and_wait(
            topic.name,
            self._serdes.encode(topic, "value", value),
            self._serdes.encode(topic, "key", key),
            headers=headers,
            timestamp_ms=timestamp_ms,
        )
        self.sent.append(Sent(topic.name, key, value, where.partition, where.offset))
        return where

    async def records(self, topic: Topic[K, V]) -> list[ConsumerRecord[K, V]]:
        """Return all records of a topic, decoded, by partition and offset."""
        await self._prepare(topic)
        return [await self._serdes.decode(record) for record in await self._read(topic.name)]

    async def rows(self, table: Table[K, V]) -> dict[K, V]:
        """Return a table's rows, read from its topic."""
        rows: dict[K, V] = {}
        for record in await self.records(table.topic):
            assert record.key is not None
            if record.value is None:
                rows.pop(record.key, None)
            else:
                rows[record.key] = record.value
        return rows

    async def dead_letters(self, topic: Topic[K, V]) -> list[DeadLetter[K, V]]:
        """Return the service's dead letters of a topic, decoded."""
        if not (records := await self._read(dead_letter_topic(topic.name, self._app.group_id))):
            return []
        await self._prepare(topic)
        return [await dead_letter_of(record, topic, self._serdes) for record in records]

    async def close(self) -> None:
        if self._producer is not None:
            await self._producer.stop(0)
        await self._serdes.close()

    async def _prepare(self, topic: Topic[Any, Any]) -> None:
        if topic.name not in self._app.topics and topic.app.name != self._app.name:
            raise BadDeclaration(
                f"topic {topic.name} is of app {topic.app.name}; this simulation is of {self._app.name}"
            )
        async with self._preparing:
            if not self._serdes.knows(topic):
                await self._serdes.prepare([topic])
            if self._producer is None:
                options = {"linger_ms": 0, **self._app.producer_options}
                producer = Producer(self._bootstrap_servers, client_id=WHO, security=PLAINTEXT, **options)
                await _until_reached(producer.start)
                self._producer = producer

    async def _read(self, topic: str) -> list[Record]:
        async def read() -> list[Record]:
            async with Admin(self._bootstrap_servers, security=PLAINTEXT) as admin:
                if topic not in await admin.list_topics():
                    return []
            return [
                record
                async for record in read_to_end(
                    self._bootstrap_servers, topic, isolation_level="read_committed", security=PLAINTEXT
                )
            ]

        return sorted(await _until_reached(read), key=lambda record: (record.partition, record.offset))


async def _until_reached(work: Callable[[], Awaitable[V]]) -> V:
    while True:
        try:
            return await work()
        except (ConnectionFailed, RequestTimedOut):
            await asyncio.sleep(_AGAIN_S)
