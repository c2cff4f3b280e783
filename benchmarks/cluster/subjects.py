"""The two clusters under comparison: three nodes each, every node broker and controller in a process of its own.

Here: settings, start, end.
Not here: single brokers (`benchmarks.subjects`), the loads (`loads`).
"""

import contextlib
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from tests.support.apache_kafka import ApacheKafka
from tests.support.busway_process import BuswayProcess

from benchmarks.subjects import BUSWAY, BUSWAY_PROPERTIES, KAFKA, KAFKA_PROPERTIES, Durability, Start, Subject
from busway_bus.formatting import random_cluster_id

NODES: Final = 3
_SETTINGS: Final = {
    "process.roles": "broker,controller",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "group.initial.rebalance.delay.ms": "0",
    "num.partitions": "1",
}
"""The same for both. All timeouts have their defaults."""

_Node = ApacheKafka | BuswayProcess


def _settings(nodes: Sequence[_Node]) -> Iterator[tuple[_Node, dict[str, str]]]:
    voters = ",".join(f"{number}@{node.bootstrap_controllers}" for number, node in enumerate(nodes, 1))
    for number, node in enumerate(nodes, 1):
        yield node, {**_SETTINGS, "node.id": str(number), "controller.quorum.voters": voters}


@contextlib.contextmanager
def _running(name: str, nodes: Sequence[_Node]) -> Iterator[Subject]:
    # A process ends with the thread that started it, so the threads last as long as the cluster.
    with ThreadPoolExecutor(NODES) as threads:
        begun = time.monotonic()
        try:
            list(threads.map(lambda node: node.start(), nodes))
            yield Subject(name=name, begun=begun, brokers=nodes)
        finally:
            for node in nodes:
                if node.running:
                    node.kill()
                shutil.rmtree(node.data_dir.parent, ignore_errors=True)


@contextlib.contextmanager
def busway(durability: Durability) -> Iterator[Subject]:
    """Run three nodes; all are ended at once, and their data is removed."""
    cluster_id = random_cluster_id()
    nodes = [BuswayProcess({}, controller=True, cluster_id=cluster_id) for _ in range(NODES)]
    for node, settings in _settings(nodes):
        node.settings = {**settings, **BUSWAY_PROPERTIES[durability]}
    with _running(BUSWAY, nodes) as subject:
        yield subject


@contextlib.contextmanager
def apache_kafka(durability: Durability) -> Iterator[Subject]:
    """Run three nodes of Apache Kafka; `begun` is before their data directories are formatted."""
    cluster_id = random_cluster_id()
    nodes = [ApacheKafka(options=(), cluster_id=cluster_id) for _ in range(NODES)]
    for node, settings in _settings(nodes):
        node.properties = {**settings, **KAFKA_PROPERTIES[durability]}
    with _running(KAFKA, nodes) as subject:
        yield subject


CLUSTERS: Final[Mapping[str, Start]] = {BUSWAY: busway, KAFKA: apache_kafka}
"""How each is started, in the order of their turns."""
