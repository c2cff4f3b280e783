"""Several Busway nodes of one cluster, each broker and voter in a process of its own; one after the other may be killed.

Here: their settings, starting them at once, which of them is killed.
Not here: one node (`busway_process`), faults drawn from a seed (`tests.chaos`).
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from pathlib import Path
from typing import Final

from busway_bus.formatting import random_cluster_id
from tests.support.busway_process import BuswayProcess

QUICK: Final = {
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.election.backoff.max.ms": "200",
    "controller.quorum.fetch.timeout.ms": "1500",
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "4000",
}
"""Shorter than Kafka's, as a test kills several times."""


class BuswayNodes:
    """Nodes with the ids from 1 on; topics have a replica on each of three, and two have to be in sync.

    It is a `tests.interop.broker.Broker`: `kill` kills the next node, `start` starts those that do not run.

    Args:
        settings: of each.
    """

    def __init__(self, settings: Mapping[str, str], count: int = 3) -> None:
        self.cluster_id = random_cluster_id()
        self.nodes = {
            number: BuswayProcess({}, controller=True, cluster_id=self.cluster_id) for number in range(1, count + 1)
        }
        self._threads = ThreadPoolExecutor(count)  # a process ends with the thread that started it
        self._next = cycle(self.nodes.values())
        voters = ",".join(f"{number}@{node.bootstrap_controllers}" for number, node in self.nodes.items())
        replicas = str(min(3, count))
        for number, node in self.nodes.items():
            node.settings = {
                "process.roles": "broker,controller",
                "node.id": str(number),
                "controller.quorum.voters": voters,
                "default.replication.factor": replicas,
                "min.insync.replicas": "2",
                "offsets.topic.replication.factor": replicas,
                "transaction.state.log.replication.factor": replicas,
                "share.coordinator.state.topic.replication.factor": replicas,
                **QUICK,
                **settings,
            }
        self.bootstrap_servers = ",".join(node.address for node in self.nodes.values())
        self.bootstrap_controllers = ",".join(node.bootstrap_controllers for node in self.nodes.values())

    @property
    def data_dir(self) -> Path:
        """That of the first node."""
        return self.nodes[1].data_dir

    def start(self) -> None:
        """Start those that do not run, at once: most of them are needed before any serves."""
        waiting = [node for node in self.nodes.values() if not node.running]
        list(self._threads.map(BuswayProcess.start, waiting))

    def kill(self) -> None:
        """SIGKILL of the next node, in the order of their ids."""
        next(self._next).kill()

    def stop(self) -> None:
        """End all in order, at once, and remove their data."""
        list(self._threads.map(BuswayProcess.stop, self.nodes.values()))
        self._threads.shutdown()
