"""Several nodes of one cluster of Apache Kafka, each broker and voter in a JVM of its own.

Here: their settings, starting them at once.
Not here: one node (`apache_kafka`).
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import TracebackType

from tests.support.apache_kafka import ApacheKafka, random_cluster_id


class ApacheKafkaNodes:
    """Nodes with the ids from 1 on while the context lasts.

    Args:
        properties: of each, over the defaults of Kafka.
    """

    def __init__(self, count: int = 3, properties: Mapping[str, str] | None = None) -> None:
        cluster_id = random_cluster_id()
        self.nodes = {number: ApacheKafka(heap="400m", cluster_id=cluster_id) for number in range(1, count + 1)}
        voters = ",".join(f"{number}@{node.bootstrap_controllers}" for number, node in self.nodes.items())
        for number, node in self.nodes.items():
            node.properties |= {
                "node.id": str(number),
                "controller.quorum.voters": voters,
                "offsets.topic.replication.factor": str(count),
                "transaction.state.log.replication.factor": str(count),
                "transaction.state.log.min.isr": str(count - 1),
                "default.replication.factor": str(count),
                "min.insync.replicas": str(count - 1),
                **(properties or {}),
            }
        self._running = ExitStack()
        self._threads = ThreadPoolExecutor(count)  # a process ends with the thread that started it

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all, also of those that do not run."""
        return ",".join(node.bootstrap_servers for node in self.nodes.values())

    @property
    def bootstrap_controllers(self) -> str:
        """As `bootstrap_servers`, of the controllers."""
        return ",".join(node.bootstrap_controllers for node in self.nodes.values())

    def __enter__(self) -> "ApacheKafkaNodes":
        try:
            list(self._threads.map(self._running.enter_context, self.nodes.values()))
        except BaseException:  # interrupted too: no process outlives the test
            self._running.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in self.nodes.values():
            if node.running:
                node.kill()
        self._running.close()
        self._threads.shutdown()
