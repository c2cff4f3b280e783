"""An Apache Kafka 4.3.1 broker in a cluster whose quorum and other brokers are Busway's: it leads, follows and coordinates like the others."""

import itertools
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from tests.interop.client_report import ClientReport
from tests.interop.test_java_tools import TOOLS
from tests.support.apache_kafka import ApacheKafka, java
from tests.support.busway_nodes import BuswayNodes
from tests.support.patience import patient
from tests.support.waiting import blocking_until

pytestmark = [pytest.mark.foreign, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(600)]
COORDINATORS = 8
"""Partitions of each internal topic, so that each broker leads some."""
SETTINGS = {
    "offsets.topic.num.partitions": str(COORDINATORS),
    "transaction.state.log.num.partitions": str(COORDINATORS),
    "auto.leader.rebalance.enable": "false",
}
SNAPSHOTS = {
    "metadata.log.max.record.bytes.between.snapshots": "1000",
    "metadata.max.retention.bytes": "2000",
    "metadata.max.retention.ms": "1000",
}
"""So small that a broker that joins needs a snapshot; of the nodes of Busway."""
KAFKAS = 4
"""The id of its broker."""


class MixedCluster:
    """Nodes 1 to 3 of Busway, each broker and voter, and broker 4 of Apache Kafka."""

    def __init__(self) -> None:
        self.busway = BuswayNodes({**SETTINGS, **SNAPSHOTS})
        first = self.busway.nodes[1]
        self.kafka = ApacheKafka(heap="512m", cluster_id=self.busway.cluster_id)
        address = self.kafka.address
        self.kafka.properties |= {
            **SETTINGS,
            "process.roles": "broker",
            "node.id": str(KAFKAS),
            "controller.quorum.voters": first.settings["controller.quorum.voters"],
            "listeners": f"PLAINTEXT://{address}",
            "advertised.listeners": f"PLAINTEXT://{address}",
            "log.dirs": f"{self.kafka.data_dir},{self.kafka.data_dir}-2",
        }
        self.client = {"bootstrap.servers": f"{self.busway.bootstrap_servers},{address}", "log_level": 0}

    def log_of(self, broker: int, partition: str) -> bytes:
        """All bytes of a partition's log on a broker."""
        if broker == KAFKAS:
            folders = [folder for folder in self._kafkas_folders() if (folder / partition).exists()]
        else:
            folders = [self.busway.nodes[broker].data_dir]
        return b"".join(file.read_bytes() for folder in folders for file in sorted((folder / partition).glob("*.log")))

    def _kafkas_folders(self) -> list[Path]:
        data_dir = self.kafka.data_dir
        return [data_dir, data_dir.with_name(f"{data_dir.name}-2")]

    def check_equal(self, partition: str, *brokers: int) -> None:
        """Wait until the log is the same on these brokers, byte for byte."""
        blocking_until(lambda: len({self.log_of(broker, partition) for broker in brokers}) == 1, seconds=30)

    def forget_the_first_metadata(self) -> None:
        """Create topics until no node has the beginning of the metadata log."""
        admin = AdminClient({"bootstrap.servers": self.busway.bootstrap_servers, "log_level": 0})
        begins = [node.data_dir / "__cluster_metadata-0" / f"{0:020d}.log" for node in self.busway.nodes.values()]
        numbers = itertools.count()

        def forgotten() -> bool:
            if not any(file.exists() for file in begins):
                return True
            (created,) = admin.create_topics([NewTopic(f"early-{next(numbers)}", 4, 3)]).values()
            created.result(patient(20))
            return False

        # A topic needs no more than a millisecond; snapshots are taken in the background.
        blocking_until(forgotten, seconds=60, pause_s=0.5)

    def produce(self, topic: str, count: int, **settings: str) -> None:
        """Records with acks=all, each acknowledged and written once."""
        producer = confluent_kafka.Producer({**self.client, "enable.idempotence": True, **settings})
        problems: list[object] = []
        for number in range(count):
            producer.produce(
                topic,
                value=f"{number} " * 30,
                on_delivery=lambda problem, _: problems.append(problem) if problem else None,
            )
        assert producer.flush(patient(60)) == 0
        assert problems == []

    def times_written(self, topic: str, count: int) -> set[int]:
        """How often each record that `produce` writes is there."""
        reader = confluent_kafka.Consumer({**self.client, "group.id": "count", "enable.partition.eof": True})
        reader.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        times: Counter[bytes] = Counter()
        while not (message := reader.poll(patient(30))).error():  # the end is an error, too
            times[message.value()] += 1
        reader.close()
        return {times[(f"{number} " * 30).encode()] for number in range(count)}

    def leaders(self, topic: str) -> dict[int, tuple[int, list[int]]]:
        """The leader and the ISR of each partition, as the first node knows them."""
        admin = AdminClient({"bootstrap.servers": self.busway.bootstrap_servers, "log_level": 0})
        asked = admin.describe_topics(confluent_kafka.TopicCollection([topic]))
        partitions = asked[topic].result(patient(20)).partitions
        return {each.id: (each.leader.id, sorted(replica.id for replica in each.isr)) for each in partitions}

    def wait_for_isr(self, topic: str, *brokers: int) -> None:
        """Wait until these are in sync, for each partition."""
        blocking_until(lambda: all(isr == sorted(brokers) for _, isr in self.leaders(topic).values()), seconds=60)


@pytest.fixture
def cluster() -> Iterator[MixedCluster]:
    """All four brokers run."""
    mixed = MixedCluster()
    try:
        mixed.busway.start()
        mixed.forget_the_first_metadata()
        with mixed.kafka:
            yield mixed
            if mixed.kafka.running:
                mixed.kafka.kill()
    finally:
        mixed.busway.stop()


def test_a_broker_of_apache_kafka_in_a_cluster_of_busway(
    cluster: MixedCluster, tmp_path: Path, client_report: ClientReport
) -> None:
    """It joins from a snapshot, is created topics through, leads, follows, coordinates, is killed and comes back; all logs are equal byte for byte."""
    admin = AdminClient({"bootstrap.servers": cluster.kafka.address, "log_level": 0})
    assert "early-0" in admin.list_topics(timeout=patient(20)).topics
    topics = [
        NewTopic("led", 1, replica_assignment=[[KAFKAS, 1, 2]]),
        NewTopic("followed", 1, replica_assignment=[[1, KAFKAS, 3]], config={"durability": "os"}),
    ]
    for created in admin.create_topics(topics).values():  # forwarded to Busway's controller
        created.result(patient(30))
    cluster.produce("led", 500)
    cluster.produce("followed", 500, **{"compression.type": "lz4"})
    check_transactions(cluster)
    check_groups(cluster)
    check_settings(cluster, admin)
    cluster.kafka.kill()
    cluster.produce("led", 500)
    cluster.produce("followed", 500)
    cluster.wait_for_isr("led", 1, 2)
    cluster.kafka.start()
    cluster.wait_for_isr("led", 1, 2, KAFKAS)
    cluster.wait_for_isr("followed", 1, 3, KAFKAS)
    cluster.busway.nodes[1].kill()
    cluster.produce("led", 500)
    cluster.produce("followed", 500)
    cluster.busway.start()
    cluster.wait_for_isr("led", 1, 2, KAFKAS)
    cluster.wait_for_isr("followed", 1, 3, KAFKAS)
    for topic, brokers in (("led", (1, 2, KAFKAS)), ("followed", (1, 3, KAFKAS))):
        cluster.check_equal(f"{topic}-0", *brokers)
        assert cluster.times_written(topic, 500) == {3}
    leaves_the_cluster(cluster, tmp_path)
    client_report.note_tool(
        "Apache Kafka 4.3.1's broker in a Busway cluster", "leads, follows, coordinates; killed; leaves; logs equal"
    )


def leaves_the_cluster(cluster: MixedCluster, tmp_path: Path) -> None:
    """Its partition moves to Busway's nodes by Kafka's tool; then it ends in order and is unregistered, and writing goes on."""
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "led", "partition": 0, "replicas": [1, 2, 3]}]}))
    where = ("--bootstrap-server", cluster.busway.bootstrap_servers)
    java(TOOLS["kafka-reassign-partitions"], *where, "--reassignment-json-file", str(plan), "--execute")
    cluster.wait_for_isr("led", 1, 2, 3)
    cluster.kafka.shut_down()
    cluster.wait_for_isr("followed", 1, 3)
    java("org.apache.kafka.tools.ClusterTool", "unregister", *where, "--id", str(KAFKAS))
    cluster.produce("led", 100)
    cluster.check_equal("led-0", 1, 2, 3)


def check_all_coordinate(cluster: MixedCluster, topic: str) -> None:
    """Each of the four brokers leads partitions of an internal topic."""
    leaders = sorted({leader for leader, _ in cluster.leaders(topic).values()})
    assert leaders == [1, 2, 3, KAFKAS], topic


def check_transactions(cluster: MixedCluster) -> None:
    """Transactions of ids on all coordinators, with partitions of both leaders; what is aborted is not read."""
    for number in range(2 * COORDINATORS):
        producer = confluent_kafka.Producer({**cluster.client, "transactional.id": f"id-{number}"})
        producer.init_transactions(patient(30))
        for end in (producer.abort_transaction, producer.commit_transaction):
            producer.begin_transaction()
            for topic in ("led", "followed"):
                producer.produce(topic, value=f"{end.__name__} {number}")
            end(patient(30))
    check_all_coordinate(cluster, "__transaction_state")
    reader = confluent_kafka.Consumer({**cluster.client, "group.id": "read", "isolation.level": "read_committed"})
    for topic in ("led", "followed"):
        reader.assign([confluent_kafka.TopicPartition(topic, 0, 500)])
        read = [message.value() for message in reader.consume(2 * COORDINATORS, patient(30))]
        assert read == [f"commit_transaction {number}".encode() for number in range(2 * COORDINATORS)]
    reader.close()


def check_groups(cluster: MixedCluster) -> None:
    """Groups of both protocols on all coordinators commit, in a transaction too."""
    for number in range(COORDINATORS):
        settings = {"group.id": f"g{number}", "group.protocol": "consumer" if number % 2 else "classic"}
        reader = confluent_kafka.Consumer(
            {**cluster.client, **settings, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        )
        reader.subscribe(["led"])
        assert len(reader.consume(100, patient(60))) == 100
        producer = confluent_kafka.Producer({**cluster.client, "transactional.id": f"of-{number}"})
        producer.init_transactions(patient(30))
        producer.begin_transaction()
        producer.produce("followed", value=b"with offsets")
        at = [confluent_kafka.TopicPartition("led", 0, 100)]
        producer.send_offsets_to_transaction(at, reader.consumer_group_metadata(), patient(30))
        producer.commit_transaction(patient(30))
        assert [each.offset for each in reader.committed(reader.assignment(), patient(30))] == [100]
        reader.close()
    check_all_coordinate(cluster, "__consumer_offsets")


def check_settings(cluster: MixedCluster, admin: AdminClient) -> None:
    """Changed through Kafka's broker, which has them at once, as has Busway's."""
    wanted = {("TOPIC", "led"): ("retention.ms", "777777777"), ("BROKER", str(KAFKAS)): ("log.cleaner.threads", "2")}
    for (kind, name), (setting, value) in wanted.items():
        entry = ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(kind, name, incremental_configs=[entry])
        for altered in admin.incremental_alter_configs([resource]).values():
            altered.result(patient(20))

    def described() -> bool:
        return all(
            admin.describe_configs([resource])[resource].result(patient(20))[setting].value == value
            for (kind, name), (setting, value) in wanted.items()
            for resource in [ConfigResource(kind, name)]
        )

    blocking_until(described)
