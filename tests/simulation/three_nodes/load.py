"""The clients of a simulated cluster, and what each of them has seen.

Here: writers, a reader, a member of a group, a service that copies records exactly once.
Not here: the checks of what they saw (`run`).
"""

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Any, Final

from busway import Consumer, Producer, TopicPartition
from busway.errors import BuswayError
from busway_bus.testing.world import World
from busway_protocol.errors import KafkaError
from tests.simulation.three_nodes.nodes import COPY, TOPIC

FAILURES: Final = (BuswayError, KafkaError, TimeoutError, OSError)
GROUP, COPIERS = "readers", "copiers"
SOURCE, TARGET = TopicPartition(TOPIC, 0), TopicPartition(COPY, 0)
CALM_PAUSE_S: Final = 0.3
"""Interval of a writer's records after the faults."""
_POLL_MS: Final = 300
_LAST_POLL_MS: Final = 50
"""After the faults: a run ends when its clients do."""
_AGAIN_S: Final = 0.2
_BUSY_RECORDS: Final = 30
"""Records of a writer before it is as slow as after the faults."""


@dataclass(slots=True, kw_only=True)
class Seen:
    """Responses to the clients, by partition.

    Attributes:
        acknowledged: offset and value.
        read: offset and value, of a reader that reads all once.
        committed: highest offset whose commit was acknowledged.
        copied: position of the copier after the last transaction whose commit was acknowledged.
        calm: set when no more faults come.
        over: set when the clients should end.
    """

    world: World
    servers: str
    partitions: int
    options: dict[str, Any]
    acknowledged: dict[int, list[tuple[int, bytes]]] = field(default_factory=dict)
    read: dict[int, list[tuple[int, bytes]]] = field(default_factory=dict)
    committed: dict[int, int] = field(default_factory=dict)
    copied: int = 0
    calm: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def timeouts(self) -> dict[str, Any]:
        return {"request_timeout_ms": self.options["request_timeout_ms"]}

    @property
    def poll_ms(self) -> int:
        return _LAST_POLL_MS if self.calm.is_set() else _POLL_MS

    async def pause(self, seconds: float) -> None:
        """Wait so long, or until the clients should end."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.over.wait()

    @property
    def places(self) -> list[TopicPartition]:
        return [TopicPartition(TOPIC, index) for index in range(self.partitions)]


async def write(seen: Seen, partition: int) -> None:
    """Send records with acks=all; one that failed is not sent again."""
    number, options = 0, seen.options
    acknowledged = seen.acknowledged.setdefault(partition, [])
    timeouts = {name: options[name] for name in ("request_timeout_ms", "delivery_timeout_ms", "linger_ms")}
    while not seen.over.is_set():
        try:
            async with Producer(seen.servers, enable_idempotence=True, **timeouts) as producer:
                while not seen.over.is_set():
                    sent = []
                    for _ in range(options["burst"]):
                        number += 1
                        value = f"{partition}:{number}".encode()
                        sent.append((value, await producer.send(TOPIC, value, partition=partition)))
                    for value, future in sent:
                        try:
                            acknowledged.append(((await future).offset, value))
                        except FAILURES:
                            continue
                    busy = number < _BUSY_RECORDS and not seen.calm.is_set()
                    if busy:
                        await seen.world.sleep(options["pause_ms"] / 1000)
                    else:
                        await seen.pause(CALM_PAUSE_S)
        except FAILURES:
            await seen.world.sleep(_AGAIN_S)


async def read(seen: Seen) -> None:
    """Read all partitions once, each record when it is there; go on after the last one that was read."""
    while not seen.over.is_set():
        try:
            options = {"auto_offset_reset": "earliest", "enable_auto_commit": False, **seen.timeouts}
            async with Consumer(bootstrap_servers=seen.servers, **options) as consumer:
                await consumer.assign(seen.places)
                for index, read_before in seen.read.items():
                    consumer.seek(TopicPartition(TOPIC, index), read_before[-1][0] + 1)
                while not seen.over.is_set():
                    for place, records in (await consumer.getmany(timeout_ms=seen.poll_ms)).items():
                        for record in records:
                            seen.read.setdefault(place.partition, []).append((record.offset, bytes(record.value)))
        except FAILURES:
            await seen.world.sleep(_AGAIN_S)


async def commit(seen: Seen) -> None:
    """Read as the only member of a group, and commit each position."""
    while not seen.over.is_set():
        try:
            options = {"auto_offset_reset": "earliest", "enable_auto_commit": False, **seen.timeouts}
            async with Consumer(bootstrap_servers=seen.servers, group_id=GROUP, **options) as consumer:
                await consumer.subscribe([TOPIC])
                while not seen.over.is_set():
                    offsets = {
                        place: records[-1].offset + 1
                        for place, records in (await consumer.getmany(timeout_ms=seen.poll_ms)).items()
                    }
                    if offsets:
                        await consumer.commit(offsets)
                        seen.committed.update({place.partition: offset for place, offset in offsets.items()})
        except FAILURES:
            await seen.world.sleep(_AGAIN_S)


async def copy(seen: Seen) -> None:
    """Copy partition 0 in transactions with their offsets; begin again after a failure, as a restarted service does."""
    while not seen.over.is_set():
        try:
            consumer = Consumer(
                bootstrap_servers=seen.servers,
                group_id=COPIERS,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                isolation_level="read_committed",
                **seen.timeouts,
            )
            options = {**seen.timeouts, "delivery_timeout_ms": seen.options["delivery_timeout_ms"]}
            async with consumer, Producer(seen.servers, transactional_id="copier", **options) as producer:
                await consumer.subscribe([TOPIC])
                while not seen.over.is_set():
                    position = seen.copied
                    async with producer.transaction(consumer):
                        for records in (await consumer.getmany(timeout_ms=200, max_records=5)).values():
                            for record in records:
                                if record.partition == SOURCE.partition:
                                    await producer.send(COPY, record.value, partition=TARGET.partition)
                                    position = record.offset + 1
                    seen.copied = position
        except FAILURES:
            await seen.world.sleep(_AGAIN_S)


async def read_all(servers: str, place: TopicPartition) -> list[tuple[int, bytes]]:
    """Read the committed records of a partition to its end."""
    records: list[tuple[int, bytes]] = []
    options = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "isolation_level": "read_committed"}
    async with Consumer(bootstrap_servers=servers, **options) as consumer:
        await consumer.assign([place])
        end = (await consumer.end_offsets([place]))[place]
        while await consumer.position(place) < end:
            for batch in (await consumer.getmany(timeout_ms=500)).values():
                records += [(record.offset, bytes(record.value or b"")) for record in batch]
    return records


async def committed(servers: str, places: list[TopicPartition]) -> dict[int, int]:
    """The committed offsets of the group."""
    async with Consumer(bootstrap_servers=servers, group_id=GROUP, enable_auto_commit=False) as consumer:
        return {place.partition: (await consumer.committed(place)) or 0 for place in places}
