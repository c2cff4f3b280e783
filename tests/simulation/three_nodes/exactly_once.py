"""A service that copies records exactly once on three simulated nodes, under faults.

Here: the load, and what must hold afterwards.
Not here: the nodes and the faults (`nodes`).
"""

import asyncio
from collections import Counter

from busway import Consumer, Producer, TopicPartition
from busway.errors import BuswayError
from busway_bus.testing.world import World
from busway_protocol.errors import KafkaError
from tests.simulation.three_nodes.nodes import (
    CONVERGED_S,
    TOPIC,
    Acknowledged,
    addresses,
    cluster,
    faults,
    in_sync,
    start_all,
    write,
)

COPY, GROUP = "copy", "copiers"
SOURCE, TARGET = TopicPartition(TOPIC, 0), TopicPartition(COPY, 0)


async def copy(world: World, servers: str, over: asyncio.Event) -> None:
    """Copy records in transactions with their offsets; begin again after a failure, as a restarted service does."""
    while not over.is_set():
        try:
            consumer = Consumer(
                bootstrap_servers=servers,
                group_id=GROUP,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                isolation_level="read_committed",
            )
            async with consumer, Producer(servers, transactional_id="copier", delivery_timeout_ms=30_000) as producer:
                await consumer.subscribe([TOPIC])
                while not over.is_set():
                    async with producer.transaction(consumer):
                        for records in (await consumer.getmany(timeout_ms=200, max_records=5)).values():
                            for record in records:
                                if record.partition == SOURCE.partition:
                                    await producer.send(COPY, record.value, partition=TARGET.partition)
        except (BuswayError, KafkaError, TimeoutError, OSError):
            await world.sleep(0.2)


async def values_of(servers: str, partition: TopicPartition) -> list[bytes]:
    """The committed records of a partition."""
    values: list[bytes] = []
    options = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "isolation_level": "read_committed"}
    async with Consumer(bootstrap_servers=servers, **options) as consumer:
        await consumer.assign([partition])
        end = (await consumer.end_offsets([partition]))[partition]
        while await consumer.position(partition) < end:
            for batch in (await consumer.getmany(timeout_ms=500)).values():
                values += [bytes(record.value or b"") for record in batch]
    return values


async def run(world: World, *, count: int = 5) -> tuple[int, Counter[str]]:
    """Load and faults, then the checks; returns the number of copied records."""
    nodes = cluster(world)
    await start_all(nodes)
    servers = addresses(nodes)
    acknowledged, written, copied = Acknowledged(), asyncio.Event(), asyncio.Event()
    client, service = world.process("client"), world.process("service")
    writer = client.start(write, world, servers, SOURCE.partition, acknowledged, written)
    copier = service.start(copy, world, servers, copied)
    await world.sleep(5)
    made = await faults(world, nodes, world.chance("faults"), count)
    async with asyncio.timeout(CONVERGED_S):
        while not in_sync(nodes):
            await start_all(nodes)
            await world.sleep(0.5)
    written.set()
    await asyncio.wait([writer], timeout=60)
    source = await client.run(values_of, servers, SOURCE)
    target: list[bytes] = []
    async with asyncio.timeout(CONVERGED_S):
        while len(target) < len(source):
            await world.sleep(1)
            target = await client.run(values_of, servers, TARGET)
    copied.set()
    await asyncio.wait([copier], timeout=60)
    target = await client.run(values_of, servers, TARGET)
    assert {value for _, value in acknowledged.records[SOURCE.partition]} <= set(source), (
        "an acknowledged record is lost"
    )
    assert target == source, "the copy is not exactly once"
    return len(target), made
