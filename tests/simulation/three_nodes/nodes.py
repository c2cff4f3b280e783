"""Three whole nodes in a simulated world, each broker and voter, under faults and load.

Here: the nodes, the load, the faults of a seed, and what must hold afterwards.
Not here: controllers alone (`tests.simulation.quorum`), a single broker (`tests.simulation.scenario`).
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from busway import Consumer, Producer, TopicPartition
from busway.errors import BuswayError
from busway_bus.replication.partition import Partition
from busway_bus.testing.world import Crashed, SimNode, World
from busway_protocol.errors import KafkaError
from busway_protocol.records.batch import iter_batches

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"
PORT, CONTROLLER_PORT = 9092, 9093
TOPIC, PARTITIONS = "t", 2
KINDS = ("crash", "power_cut", "silence", "partition", "cut", "freeze", "stop", "all_dark")
CONVERGED_S = 120.0
"""Bound of virtual time in which everything works again once the faults are over."""


def cluster(world: World, count: int = 3, **properties: str) -> list[SimNode]:
    """Nodes on hosts of their own, with formatted disks; not started."""
    voters = ",".join(f"{number}@n{number}:{CONTROLLER_PORT}" for number in range(1, count + 1))
    made = []
    for number in range(1, count + 1):
        name = f"n{number}"
        node = world.node(
            name,
            {
                "process.roles": "broker,controller",
                "node.id": str(number),
                "listeners": f"PLAINTEXT://{name}:{PORT},CONTROLLER://{name}:{CONTROLLER_PORT}",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": voters,
                "default.replication.factor": "3",
                "min.insync.replicas": "2",
                "num.partitions": str(PARTITIONS),
                **{key.replace("_", "."): value for key, value in properties.items()},
            },
        )
        node.disk.replace("meta.properties", f"version=1\ncluster.id={CLUSTER_ID}\nnode.id={number}\n".encode())
        made.append(node)
    return made


def addresses(nodes: Sequence[SimNode]) -> str:
    return ",".join(node.bootstrap_servers for node in nodes)


async def start_all(nodes: Sequence[SimNode]) -> None:
    """Start those that do not run; one alone would wait for the others."""
    await asyncio.gather(*(started(node) for node in nodes if not node.running))


async def started(node: SimNode) -> None:
    with contextlib.suppress(Crashed):  # a fault hit it during its start
        await node.start()


@dataclass(slots=True)
class Acknowledged:
    """Acknowledged records, by partition: offset and value, in the order of sending."""

    records: dict[int, list[tuple[int, bytes]]] = field(
        default_factory=lambda: {partition: [] for partition in range(PARTITIONS)}
    )

    @property
    def total(self) -> int:
        return sum(map(len, self.records.values()))


async def write(world: World, servers: str, partition: int, acknowledged: Acknowledged, over: asyncio.Event) -> None:
    """Send one record after the other with acks=all; a failed one is not sent again."""
    number = 0
    while not over.is_set():
        try:
            async with Producer(servers, enable_idempotence=True, delivery_timeout_ms=30_000) as producer:
                while not over.is_set():
                    number += 1
                    value = f"{partition}:{number}".encode()
                    sent = await producer.send_and_wait(TOPIC, value, partition=partition)
                    acknowledged.records[partition].append((sent.offset, value))
                    await world.sleep(0.1)
        except (BuswayError, KafkaError, TimeoutError, OSError):
            await world.sleep(0.2)


async def read_all(servers: str) -> dict[int, list[tuple[int, bytes]]]:
    """Read every partition to its end."""
    partitions = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
    records: dict[int, list[tuple[int, bytes]]] = {partition: [] for partition in range(PARTITIONS)}
    async with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
        await consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        while [partition for partition, end in ends.items() if await consumer.position(partition) < end]:
            for partition, batch in (await consumer.getmany(timeout_ms=500)).items():
                records[partition.partition] += [(record.offset, bytes(record.value)) for record in batch]
    return records


async def faults(world: World, nodes: Sequence[SimNode], chance: Random, count: int) -> Counter[str]:
    """Make `count` faults, one after the other; each ends, or lasts until the end."""
    made: Counter[str] = Counter()
    for _ in range(count):
        node, other = chance.sample(list(nodes), 2)
        kind = chance.choice(KINDS)
        made[kind] += 1
        match kind:
            case "crash" if node.running:
                node.crash()
            case "power_cut" if node.running:
                node.power_cut()
            case "all_dark":
                for each in nodes:
                    each.power_cut()
            case "silence":
                world.network.silence(node.name, other.name)
            case "partition":
                for peer in nodes:
                    if peer is not node:
                        world.network.silence(node.name, peer.name)
                        world.network.silence(peer.name, node.name)
            case "cut":
                world.network.cut(node.name)
            case "freeze" if node.running:
                node.freeze()
                await world.sleep(chance.uniform(0.5, 15))
                node.thaw()
            case "stop" if node.running and node.node is not None and node.node._state:
                with contextlib.suppress(Crashed, TimeoutError):
                    await node.stop()
        await world.sleep(chance.uniform(0.2, 6))
        if chance.randrange(3):
            world.network.heal()
        for each in nodes:
            if not each.running and chance.randrange(3):
                task = asyncio.ensure_future(started(each))
                await asyncio.wait([task], timeout=chance.uniform(0.1, 5))
    world.network.heal()
    return made


def partitions_of(nodes: Sequence[SimNode]) -> list[list[Partition]]:
    """The replicas of each partition."""
    partitions = []
    for index in range(PARTITIONS):
        replicas = [node.node.services.replicas.local.get((TOPIC, index)) for node in nodes if node.node is not None]
        partitions.append([replica for replica in replicas if replica is not None])
    return partitions


def in_sync(nodes: Sequence[SimNode]) -> bool:
    """Whether all nodes run, and all replicas of each partition are in sync in the image of each."""
    for node in nodes:
        if not node.running or node.node is None or node.node._services is None:
            return False
        topic = node.node.services.image.topics.get(TOPIC)
        if topic is None or any(set(partition.isr) != {1, 2, 3} for partition in topic.partitions):
            return False
    return True


def log_of(replica: Partition) -> bytes:
    """The whole content of a log."""
    log, content = replica.log, b""
    offset = log.start_offset
    while offset < log.end_offset:
        part = bytes(log.read(offset, 1 << 20, up_to=log.end_offset))
        content += part
        (offset,) = {offset + _count(part)}
    return content


def _count(part: bytes) -> int:
    return sum(header.next_offset - header.base_offset for header, _ in iter_batches(part))


async def run(world: World, *, count: int = 6) -> tuple[Acknowledged, Counter[str]]:
    """Load and faults, then the checks."""
    nodes = cluster(world)
    await start_all(nodes)
    servers = addresses(nodes)
    acknowledged, over = Acknowledged(), asyncio.Event()
    client = world.process("client")
    writers = [client.start(write, world, servers, partition, acknowledged, over) for partition in range(PARTITIONS)]
    await world.sleep(2)
    made = await faults(world, nodes, world.chance("faults"), count)
    async with asyncio.timeout(CONVERGED_S):
        while not in_sync(nodes):
            await start_all(nodes)
            await world.sleep(0.5)
    before = {partition: len(records) for partition, records in acknowledged.records.items()}
    async with asyncio.timeout(CONVERGED_S):
        while any(len(records) == before[partition] for partition, records in acknowledged.records.items()):
            await world.sleep(0.1)
    over.set()
    await asyncio.wait(writers, timeout=60)
    records = await client.run(read_all, servers)
    for partition, sent in acknowledged.records.items():
        there = dict(records[partition])
        lost = [(offset, value) for offset, value in sent if there.get(offset) != value]
        assert not lost, f"partition {partition} lost {lost[:5]} of {len(sent)}"
        values = [value for _, value in records[partition]]
        assert len(set(values)) == len(values), f"partition {partition} has records twice"
        numbers = [int(value.split(b":")[1]) for value in values]
        assert numbers == sorted(numbers), f"partition {partition} is out of order"
    async with asyncio.timeout(CONVERGED_S):
        while any(len({replica.log.end_offset for replica in replicas}) > 1 for replicas in partitions_of(nodes)):
            await world.sleep(0.1)
    for replicas in partitions_of(nodes):
        assert len(replicas) == len(nodes)
        assert len({log_of(replica) for replica in replicas}) == 1, "the replicas differ"
    return acknowledged, made
