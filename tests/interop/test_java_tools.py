"""The administration and performance tools of Apache Kafka 4.3.1 on a broker."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.broker import Broker
from tests.interop.client_report import ClientReport
from tests.support.apache_kafka import java
from tests.support.patience import patient

pytestmark = [pytest.mark.foreign, pytest.mark.java, pytest.mark.slow]
TOOLS = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
}
BASE = 1_700_000_000_000
Tool = Callable[..., str]


@pytest.fixture
def tool(broker: Broker) -> Tool:
    """Run one of the tools on the broker; its standard output."""

    def run(name: str, *arguments: str) -> str:
        return java(TOOLS[name], "--bootstrap-server", broker.bootstrap_servers, *arguments)

    return run


def filled(broker: Broker, admin: AdminClient, topic: str, records: int, partitions: int = 1) -> None:
    """A topic with so many records in each partition, a second apart; years old, and kept all the same."""
    kept = NewTopic(topic, partitions, 1, config={"retention.ms": "-1"})
    for creation in admin.create_topics([kept]).values():
        creation.result(patient(20))
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 20})
    for number in range(records):
        for partition in range(partitions):
            producer.produce(topic, value=f"v{number}", partition=partition, timestamp=BASE + number * 1000)
    assert producer.flush(patient(20)) == 0


def table(output: str) -> list[dict[str, str]]:
    """The rows of a table that a tool printed, by the words of its heading."""
    lines = [line.split() for line in output.splitlines() if line.strip()]
    (heading,) = [at for at, words in enumerate(lines) if words[0] in {"GROUP", "TOPIC"}]
    return [dict(zip(lines[heading], words, strict=False)) for words in lines[heading + 1 :]]


def test_kafka_topics(tool: Tool, client_report: ClientReport) -> None:
    """Create, list, describe, grow and delete; a topic that exists is refused by name."""
    tool("kafka-topics", "--create", "--topic", "java-orders", "--partitions", "2", "--config", "retention.ms=86400000")
    with pytest.raises(AssertionError, match="TopicExistsException"):
        tool("kafka-topics", "--create", "--topic", "java-orders")
    tool("kafka-topics", "--create", "--topic", "java-orders", "--if-not-exists")
    assert "java-orders" in tool("kafka-topics", "--list").splitlines()
    tool("kafka-topics", "--alter", "--topic", "java-orders", "--partitions", "3")
    output = tool("kafka-topics", "--describe", "--topic", "java-orders")
    assert re.search(r"Topic: java-orders\s+TopicId: \S{22}\s+PartitionCount: 3\s+ReplicationFactor: 1\s", output)
    assert "retention.ms=86400000" in output
    assert len(re.findall(r"Partition: [012]\s+Leader: 1\s+Replicas: 1\s+Isr: 1", output)) == 3
    tool("kafka-topics", "--delete", "--topic", "java-orders")
    assert "java-orders" not in tool("kafka-topics", "--list").splitlines()
    client_report.note_tool("kafka-topics", "create, list, describe, grow, delete")


def test_kafka_configs(tool: Tool, admin: AdminClient, client_report: ClientReport) -> None:
    """Set and remove settings of a topic, see those of the broker; one that does not exist is refused."""
    for creation in admin.create_topics([NewTopic("java-settings", 1, 1)]).values():
        creation.result(patient(20))
    entity = ("--entity-type", "topics", "--entity-name", "java-settings")
    tool("kafka-configs", "--alter", *entity, "--add-config", "retention.ms=60000,cleanup.policy=[compact,delete]")
    output = tool("kafka-configs", "--describe", *entity)
    assert "retention.ms=60000" in output
    assert "cleanup.policy=compact,delete" in output
    tool("kafka-configs", "--alter", *entity, "--delete-config", "retention.ms")
    assert "retention.ms" not in tool("kafka-configs", "--describe", *entity)
    assert "retention.ms=604800000" in tool("kafka-configs", "--describe", *entity, "--all")
    with pytest.raises(AssertionError, match="InvalidConfigurationException"):
        tool("kafka-configs", "--alter", *entity, "--add-config", "retension.ms=1")
    settings = tool("kafka-configs", "--describe", "--entity-type", "brokers", "--entity-name", "1", "--all")
    assert re.search(r"group\.initial\.rebalance\.delay\.ms=0 ", settings)
    client_report.note_tool("kafka-configs", "set, remove, describe settings of a topic; describe a broker")


def test_kafka_configs_of_groups(tool: Tool, client_report: ClientReport) -> None:
    """Settings of a group are set, shown among all that it has, and removed; the group need not be there."""
    entity = ("--entity-type", "groups", "--entity-name", "tools-group")
    added = "consumer.session.timeout.ms=50000,share.auto.offset.reset=earliest"
    tool("kafka-configs", "--alter", *entity, "--add-config", added)
    output = tool("kafka-configs", "--describe", *entity)
    assert "consumer.session.timeout.ms=50000" in output
    assert "share.auto.offset.reset=earliest" in output
    assert "tools-group" in tool("kafka-configs", "--describe", "--entity-type", "groups")
    tool("kafka-configs", "--alter", *entity, "--delete-config", "share.auto.offset.reset")
    output = tool("kafka-configs", "--describe", *entity)
    assert "consumer.session.timeout.ms=50000" in output
    assert "share.auto.offset.reset=earliest" not in output
    with pytest.raises(AssertionError, match=r"consumer\.session\.timeout\.ms must be less than or equal to"):
        tool("kafka-configs", "--alter", *entity, "--add-config", "consumer.session.timeout.ms=99999")
    client_report.note_tool("kafka-configs", "set, remove, describe settings of a group")


def test_kafka_get_offsets(tool: Tool, broker: Broker, admin: AdminClient, client_report: ClientReport) -> None:
    """The ends of a log, the offset of a time and that of the latest time."""
    filled(broker, admin, "java-offsets", 50, partitions=2)

    def offsets(*arguments: str) -> list[str]:
        return sorted(tool("kafka-get-offsets", "--topic", "java-offsets", *arguments).split())

    assert offsets() == ["java-offsets:0:50", "java-offsets:1:50"]
    assert offsets("--time", "earliest") == ["java-offsets:0:0", "java-offsets:1:0"]
    assert offsets("--time", "max-timestamp", "--partitions", "1") == ["java-offsets:1:49"]
    assert offsets("--time", str(BASE + 20_500), "--partitions", "0") == ["java-offsets:0:21"]
    assert offsets("--time", str(BASE + 10**9)) == []
    client_report.note_tool("kafka-get-offsets", "earliest, latest, of the latest time, by time")


def test_kafka_delete_records(
    tool: Tool, broker: Broker, admin: AdminClient, tmp_path: Path, client_report: ClientReport
) -> None:
    """What is before an offset is gone; an offset past the end is refused."""
    filled(broker, admin, "java-deleted", 50)
    plan = tmp_path / "plan.json"

    def delete(offset: int) -> str:
        wanted = [{"topic": "java-deleted", "partition": 0, "offset": offset}]
        plan.write_text(json.dumps({"partitions": wanted, "version": 1}))
        return tool("kafka-delete-records", "--offset-json-file", str(plan))

    assert "low_watermark: 30" in delete(30)
    asked = ("--topic", "java-deleted", "--time", "earliest")
    assert tool("kafka-get-offsets", *asked).split() == ["java-deleted:0:30"]
    assert "OffsetOutOfRangeException" in delete(1000)
    assert "low_watermark: 50" in delete(-1)
    client_report.note_tool("kafka-delete-records", "up to an offset, all, past the end")


def test_kafka_consumer_groups(tool: Tool, broker: Broker, admin: AdminClient, client_report: ClientReport) -> None:
    """List, describe with and without members, reset by each rule, delete offsets and groups."""
    filled(broker, admin, "java-lag", 50)
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "java-group",
        "auto.offset.reset": "earliest",
    }
    consumer = confluent_kafka.Consumer({**settings, "client.id": "the-member", "enable.auto.commit": False})
    consumer.subscribe(["java-lag"])
    assert len(consumer.consume(20, patient(20))) == 20
    consumer.commit(asynchronous=False)
    group = ("--group", "java-group")
    (row,) = table(tool("kafka-consumer-groups", "--describe", *group))
    assert (row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"]) == ("20", "50", "30")
    assert row["CONSUMER-ID"].startswith("the-member-")
    (row,) = table(tool("kafka-consumer-groups", "--describe", *group, "--members", "--verbose"))
    assert (row["CLIENT-ID"], row["#PARTITIONS"]) == ("the-member", "1")
    reset = ("--reset-offsets", *group, "--topic", "java-lag", "--execute")
    assert "current state is Stable" in tool("kafka-consumer-groups", *reset, "--to-earliest")
    consumer.close()
    output = tool("kafka-consumer-groups", "--list", "--state")
    assert re.search(r"java-group\s+Empty", output), output
    moves = {
        ("--to-earliest",): "0",
        ("--to-latest",): "50",
        ("--shift-by", "-7"): "43",
        ("--to-datetime", "2023-11-14T22:13:30.500"): "11",
    }
    for rule, offset in moves.items():
        (row,) = table(tool("kafka-consumer-groups", *reset, *rule))
        assert row["NEW-OFFSET"] == offset, rule
    (row,) = table(tool("kafka-consumer-groups", "--describe", *group))
    assert row["CURRENT-OFFSET"] == "11"
    assert "Successful" in tool("kafka-consumer-groups", "--delete-offsets", *group, "--topic", "java-lag")
    assert "was successful" in tool("kafka-consumer-groups", "--delete", *group)
    assert "java-group" not in tool("kafka-consumer-groups", "--list").split()
    client_report.note_tool("kafka-consumer-groups", "list, describe, reset by four rules, delete offsets, delete")


def test_the_perf_tests(tool: Tool, broker: Broker, admin: AdminClient, client_report: ClientReport) -> None:
    """kafka-producer-perf-test and kafka-consumer-perf-test move the same number of records."""
    for creation in admin.create_topics([NewTopic("java-perf", 3, 1)]).values():
        creation.result(patient(20))
    count = 50_000
    sizes = ("--num-records", str(count), "--record-size", "1000", "--throughput", "-1")
    output = tool("kafka-producer-perf-test", "--topic", "java-perf", *sizes, "--command-property", "acks=all")
    assert re.search(rf"^{count} records sent, .* 99\.9th\.$", output, re.MULTILINE), output
    client_report.note_tool("kafka-producer-perf-test", "50000 records of 1000 bytes")
    asked = ("--topic", "java-perf", "--num-records", str(count), "--timeout", "20000", "--hide-header")
    output = tool("kafka-consumer-perf-test", *asked)
    (row,) = [line.split(", ") for line in output.splitlines() if line.count(",") >= 9]
    assert int(row[4]) == count
    client_report.note_tool("kafka-consumer-perf-test", "50000 records")


def test_kafka_broker_api_versions(tool: Tool, client_report: ClientReport) -> None:
    """The tool reads the advertised APIs; there is none that it does not know."""
    output = tool("kafka-broker-api-versions")
    assert re.search(r"Produce\(0\): \S+ to \d+ \[usable: \d+\]", output)
    assert "UNKNOWN" not in output
    client_report.note_tool("kafka-broker-api-versions", "every API known and usable")


def test_kafka_log_dirs(tool: Tool, broker: Broker, admin: AdminClient, client_report: ClientReport) -> None:
    """The directory, and the bytes of each partition in it."""
    filled(broker, admin, "java-sizes", 50, partitions=2)
    output = tool("kafka-log-dirs", "--describe", "--topic-list", "java-sizes")
    (report,) = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    (directory,) = report["brokers"][0]["logDirs"]
    sizes = {row["partition"]: row["size"] for row in directory["partitions"]}
    assert (directory["error"], sorted(sizes)) == (None, ["java-sizes-0", "java-sizes-1"])
    assert min(sizes.values()) > 50
    client_report.note_tool("kafka-log-dirs", "sizes of the partitions of a topic")


def test_kafka_metadata_quorum(tool: Tool, client_report: ClientReport) -> None:
    """One voter, which leads and lags behind none."""
    output = tool("kafka-metadata-quorum", "describe", "--status")
    assert re.search(r"LeaderId:\s+1\n", output), output
    assert re.search(r"MaxFollowerLag:\s+0\n", output), output
    output = tool("kafka-metadata-quorum", "describe", "--replication")
    assert re.search(r"^1\s+\S+\s+\d+\s+0\s.*Leader", output, re.MULTILINE), output
    client_report.note_tool("kafka-metadata-quorum", "status and replication")


def test_kafka_leader_election(tool: Tool, admin: AdminClient, client_report: ClientReport) -> None:
    """No partition needs one; a topic that does not exist is refused."""
    for creation in admin.create_topics([NewTopic("java-elections", 2, 1)]).values():
        creation.result(patient(20))
    partition_arguments = ("--topic", "java-elections", "--partition", "1")
    assert "Valid replica already elected" in tool(
        "kafka-leader-election", "--election-type", "preferred", *partition_arguments
    )
    tool("kafka-leader-election", "--election-type", "unclean", "--all-topic-partitions")
    with pytest.raises(AssertionError, match="UnknownTopicOrPartitionException"):
        tool("kafka-leader-election", "--election-type", "preferred", "--topic", "java-missing", "--partition", "0")
    client_report.note_tool("kafka-leader-election", "preferred and unclean; none is needed")


def test_kafka_reassign_partitions(tool: Tool, admin: AdminClient, tmp_path: Path, client_report: ClientReport) -> None:
    """A plan that leaves a partition where it is, is carried out; one to another broker is refused; nothing is under way."""
    for creation in admin.create_topics([NewTopic("java-moves", 1, 1)]).values():
        creation.result(patient(20))
    plan = tmp_path / "plan.json"

    def move(step: str, broker: int) -> str:
        wanted = [{"topic": "java-moves", "partition": 0, "replicas": [broker]}]
        plan.write_text(json.dumps({"version": 1, "partitions": wanted}))
        return tool("kafka-reassign-partitions", "--reassignment-json-file", str(plan), step)

    assert "Successfully started partition reassignment for java-moves-0" in move("--execute", 1)
    assert "Reassignment of partition java-moves-0 is completed." in move("--verify", 1)
    with pytest.raises(AssertionError, match=r"Unknown broker id 7|no such broker is registered"):
        move("--execute", 7)
    assert "No partition reassignments found." in tool("kafka-reassign-partitions", "--list")
    client_report.note_tool("kafka-reassign-partitions", "execute, verify, list; another broker is refused")


def test_kafka_transactions(tool: Tool, broker: Broker, admin: AdminClient, client_report: ClientReport) -> None:
    """Java's transactional producer, an epoch for each transaction; its transactions listed, described, and fenced by a tool."""
    assert re.search(r"transaction\.version.*FinalizedVersionLevel: 2", tool("kafka-features", "describe"))
    for creation in admin.create_topics([NewTopic("java-tx", 1, 1)]).values():
        creation.result(patient(20))
    several = ("--transactional-id", "java-x", "--transaction-duration-ms", "50")
    amount = ("--num-records", "2000", "--record-size", "100", "--throughput", "2000")
    assert "2000 records sent" in tool("kafka-producer-perf-test", "--topic", "java-tx", *amount, *several)
    listed = tool("kafka-transactions", "list", "--transactional-id-pattern", "java-.").split()
    assert listed[-4::3] == ["java-x", "CompleteCommit"]
    described = tool("kafka-transactions", "describe", "--transactional-id", "java-x").split("\n")[1].split()
    producer_id, epoch = described[2:4]
    assert int(epoch) > 1
    partition_arguments = ("--topic", "java-tx", "--partition", "0")
    known = tool("kafka-transactions", "describe-producers", *partition_arguments).split("\n")[1].split()
    assert known[:2] == [producer_id, epoch]
    assert "java-tx" not in tool("kafka-transactions", "find-hanging", "--broker-id", "1")
    tool("kafka-transactions", "forceTerminateTransaction", "--transactionalId", "java-x")
    after = tool("kafka-transactions", "describe", "--transactional-id", "java-x").split("\n")[1].split()
    assert (after[3], after[4]) == (str(int(epoch) + 1), "Empty")
    read = (
        "--from-beginning",
        "--isolation-level",
        "read_committed",
        "--max-messages",
        "2000",
        "--timeout-ms",
        "20000",
    )
    assert tool("kafka-console-consumer", "--topic", "java-tx", *read).count("\n") == 2000
    client_report.note_tool(
        "kafka-transactions", "list, describe, describe-producers, find-hanging, forceTerminateTransaction"
    )
