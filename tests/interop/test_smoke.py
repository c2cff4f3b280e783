"""A few calls of librdkafka and of Apache Kafka's Java tools: what the gate runs of `make interop`.

Here: produce, consume in a group and commit a transaction, once for each of the two.
Not here: every client, codec and tool (the other files of this folder).
"""

from collections.abc import Sequence

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.broker import Broker
from tests.interop.clients import Client, JavaConsole, Program, Written
from tests.support.apache_kafka import java

pytestmark = [pytest.mark.smoke, pytest.mark.foreign, pytest.mark.java, pytest.mark.slow]
JAVA, LIBRDKAFKA = JavaConsole(), Program("librdkafka")
RECORDS = 20


def created(admin: AdminClient, topic: str, partitions: int = 1) -> str:
    """Create a topic; its name."""
    for creation in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        creation.result(20)
    return topic


@pytest.mark.parametrize(("writer", "reader"), [(JAVA, LIBRDKAFKA), (LIBRDKAFKA, JAVA)], ids=["java", "librdkafka"])
def test_one_writes_and_the_other_reads_in_a_group(
    writer: Client, reader: Client, broker: Broker, admin: AdminClient
) -> None:
    """Keys, values and headers arrive in order; the group's offset is committed."""
    topic, group = created(admin, f"smoke-{writer.name}"), f"smoke-{reader.name}"
    records = [Written(key=f"k{at}", value=f"naïve {at}", headers={"at": str(at)}) for at in range(RECORDS)]
    writer.produce(broker.bootstrap_servers, topic, "lz4", records)
    read = reader.read(broker.bootstrap_servers, group, RECORDS, [topic])
    assert [(record.key, record.value, record.headers) for record in read] == [
        (record.key, record.value, record.headers) for record in records
    ]
    asked = ["--bootstrap-server", broker.bootstrap_servers, "--describe", "--offsets", "--group", group]
    lines = java("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", *asked).splitlines()
    (row,) = [line.split() for line in lines if topic in line]
    assert row[3] == str(RECORDS), "the committed offset"


def test_librdkafka_commits_a_transaction_and_aborts_one(broker: Broker, admin: AdminClient) -> None:
    """Java's console consumer reads what was committed alone; offsets are committed with the transaction."""
    source, target = created(admin, "smoke-source"), created(admin, "smoke-target")
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "smoke-librdkafka", "log_level": 0}
    )
    producer.init_transactions(30)
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "smoke-passing"})
    producer.begin_transaction()
    producer.produce(target, value=b"aborted")
    producer.abort_transaction(30)
    producer.begin_transaction()
    producer.produce(target, value=b"committed")
    producer.send_offsets_to_transaction([TopicPartition(source, 0, 7)], consumer.consumer_group_metadata(), 30)
    producer.commit_transaction(30)
    assert values_committed(broker, target, 1) == ["committed"]
    assert consumer.committed([TopicPartition(source, 0)], 30)[0].offset == 7
    consumer.close()


def test_java_commits_transactions(broker: Broker, admin: AdminClient) -> None:
    """Kafka's own transactional producer ends its transactions; `kafka-transactions` lists the last one as complete."""
    topic = created(admin, "smoke-java-transactions")
    several = ("--transactional-id", "smoke-java", "--transaction-duration-ms", "20", "--throughput", "-1")
    amount = ("--num-records", str(RECORDS), "--payload-monotonic")
    where = ("--bootstrap-server", broker.bootstrap_servers)
    java("org.apache.kafka.tools.ProducerPerformance", *where, "--topic", topic, *amount, *several)
    listed = java("org.apache.kafka.tools.TransactionsCommand", *where, "list").splitlines()
    assert [line.split()[-1] for line in listed if line.startswith("smoke-java")] == ["CompleteCommit"]
    assert values_committed(broker, topic, RECORDS) == [str(at) for at in range(RECORDS)]


def values_committed(broker: Broker, topic: str, count: int) -> Sequence[str]:
    """The values of all committed records of a topic, read by Java's console consumer."""
    which = ("--topic", topic, "--from-beginning", "--max-messages", str(count), "--isolation-level", "read_committed")
    where = ("--bootstrap-server", broker.bootstrap_servers)
    return java("org.apache.kafka.tools.consumer.ConsoleConsumer", *where, *which).splitlines()
