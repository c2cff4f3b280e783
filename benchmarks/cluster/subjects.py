"""The two clusters under comparison: three nodes each, every node broker and controller in a process of its own.

Here: settings, start, end.
Not here: single brokers (`benchmarks.subjects`), the loads (`loads`).
"""

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol

from tests.support.apache_kafka import ApacheKafka, random_id
from tests.support.busway_process import BuswayProcess

from benchmarks.subjects import (
    BUSWAY,
    BUSWAY_PROPERTIES,
    KAFKA,
    KAFKA_PROPERTIES,
    Broker,
    Durability,
    Start,
    Subject,
)
from busway_bus.formatting import format_node
from busway_bus.kernel.config import BrokerConfig

NODES: Final = 3
_SETTINGS: Final = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "group.initial.rebalance.delay.ms": "0",
    "num.partitions": "1",
}
"""The same for both. All timeouts have their defaults."""


class _Node(Broker, Protocol):
    bootstrap_controllers: str

    def configure(self, settings: Mapping[str, str], /) -> None: ...

    def launch(self) -> None: ...

    def wait_until_started(self) -> None: ...


def _settings(nodes: Sequence[_Node]) -> list[dict[str, str]]:
    voters = ",".join(f"{number}@{node.bootstrap_controllers}" for number, node in enumerate(nodes, 1))
    return [
        {**_SETTINGS, "process.roles": "broker,controller", "node.id": str(number), "controller.quorum.voters": voters}
        for number in range(1, len(nodes) + 1)
    ]


def _start(nodes: Sequence[_Node]) -> float:
    begun = time.monotonic()
    for node in nodes:
        node.launch()
    for node in nodes:
        node.wait_until_started()
    return begun


@contextlib.contextmanager
def busway(durability: Durability) -> Iterator[Subject]:
    """Run three nodes; all are ended at once, and their data is removed."""
    cluster_id = random_id()
    nodes = [BuswayProcess(BUSWAY_PROPERTIES[durability], controller=True) for _ in range(NODES)]
    with contextlib.ExitStack() as ends:
        for node, settings in zip(nodes, _settings(nodes), strict=True):
            node.configure(settings)
            format_node(BrokerConfig.from_properties(node.settings()), cluster_id)
            ends.callback(node.discard)
        yield Subject(name=BUSWAY, begun=_start(nodes), brokers=nodes)


@contextlib.contextmanager
def apache_kafka(durability: Durability) -> Iterator[Subject]:
    """Run three nodes of Apache Kafka; `begun` is before their data directories are formatted."""
    cluster_id = random_id()
    nodes = [ApacheKafka(KAFKA_PROPERTIES[durability], options=(), cluster_id=cluster_id) for _ in range(NODES)]
    with contextlib.ExitStack() as ends:
        for node, settings in zip(nodes, _settings(nodes), strict=True):
            node.configure(settings)
            ends.callback(node.discard)
        yield Subject(name=KAFKA, begun=_start(nodes), brokers=nodes)


CLUSTERS: Final[Mapping[str, Start]] = {BUSWAY: busway, KAFKA: apache_kafka}
"""How each is started, in the order of their turns."""
