"""Brokers whose controllers are other nodes (`process.roles=broker`)."""

import asyncio
from pathlib import Path

import pytest
from tests.support.programs import held_ports
from tests.support.waiting import until

from busway import Consumer, Producer
from busway_bus.controller_node import ControllerNode
from busway_bus.formatting import format_node, random_cluster_id
from busway_bus.kernel.config import BrokerConfig
from busway_bus.node import Node

CONTROLLERS, BROKERS = (1, 2, 3), (11, 12)


def configs(folder: Path) -> dict[int, BrokerConfig]:
    """The settings of all nodes."""
    ports = dict(zip((*CONTROLLERS, *BROKERS), held_ports(5), strict=True))
    voters = ",".join(f"{node_id}@127.0.0.1:{ports[node_id]}" for node_id in CONTROLLERS)
    return {
        node_id: BrokerConfig.from_properties(
            {
                "process.roles": "controller" if node_id in CONTROLLERS else "broker",
                "node.id": str(node_id),
                "controller.listener.names": "CONTROLLER",
                "listeners": f"{'CONTROLLER' if node_id in CONTROLLERS else 'PLAINTEXT'}://127.0.0.1:{port}",
                "controller.quorum.voters": voters,
                "default.replication.factor": "2",
                "offsets.topic.replication.factor": "2",
                "offsets.topic.num.partitions": "1",
                "log.dirs": str(folder / str(node_id)),
            }
        )
        for node_id, port in ports.items()
    }


@pytest.mark.slow
async def test_brokers_join_separate_controllers(tmp_path: Path) -> None:
    """They follow the metadata log as observers, replicate, and go on when the active controller is gone."""
    made = configs(tmp_path)
    cluster_id = random_cluster_id()
    for config in made.values():
        format_node(config, cluster_id)
    controllers = {node_id: ControllerNode(made[node_id]) for node_id in CONTROLLERS}
    brokers = [Node(made[node_id]) for node_id in BROKERS]
    try:
        await asyncio.gather(*(node.start() for node in (*controllers.values(), *brokers)))
        servers = ",".join(broker.bootstrap_servers for broker in brokers)
        async with Producer(servers) as producer:
            for number in range(10):
                await producer.send_and_wait("t", str(number).encode())
            active = next(node_id for node_id, node in controllers.items() if node.services.quorum.leading)
            await controllers.pop(active).stop(clean=False)
            await until(lambda: any(node.services.quorum.leading for node in controllers.values()))
            for number in range(10, 20):
                await producer.send_and_wait("u", str(number).encode())
        async with Consumer(
            "t", "u", bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest"
        ) as consumer:
            values = sorted([int((await consumer.getone()).value) for _ in range(20)])
        assert values == list(range(20))
        for broker in brokers:
            partition = broker.services.image.topics["t"].partitions[0]
            assert set(partition.replicas) == set(BROKERS)
    finally:
        for node in (*brokers, *controllers.values()):
            await node.stop(clean=False)
