"""Apache Kafka's tools on the files of three nodes: dump-log, metadata-shell and storage; and three nodes in directories that Kafka's tool formatted."""

import asyncio
import json
import random
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from busway_bus.testing.local_nodes import LocalNodes
from tests.interop.client_report import ClientReport
from tests.interop.java_tools import SHELL, ToolsJvm
from tests.support.apache_kafka import java
from tests.support.patience import patient
from tests.support.waiting import until

pytestmark = [pytest.mark.foreign, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300)]
SETTINGS = {
    "metadata.log.max.record.bytes.between.snapshots": "1000",
    "group.consumer.min.heartbeat.interval.ms": "200",
}
SEGMENTS = {"segment.bytes": "1048576", "index.interval.bytes": "512", "retention.ms": "-1"}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS = 600
COMPLAINTS = (
    *("isvalid: false", "mismatch", "Mismatches", "Non-consecutive", "not valid", "Corrupt", "out of order"),
    *("Could not", "could not", "Failed", "Exception", "Unknown", "unknown"),
)
"""Words of dump-log about damage, and about records that it cannot decode."""

FIRST_OFFSET = re.compile(r"Non-consecutive offsets in \S+\n  -1 is followed by \d+\n")
"""What dump-log 4.3.1 prints of each segment that does not begin at offset 0."""


@pytest.fixture(scope="module")
def jvm() -> Iterator[ToolsJvm]:
    """One JVM for all tools but the shell."""
    with ToolsJvm() as running:
        yield running


def write(bootstrap: str) -> None:
    """Records in each codec, transactions of both ends with offsets of a group, members of both kinds of groups."""
    client = {"bootstrap.servers": bootstrap, "log_level": 0}
    for codec in CODECS:
        producer = confluent_kafka.Producer({**client, "acks": "all", "linger.ms": 5, "compression.type": codec})
        for number in range(RECORDS // len(CODECS)):
            value = f"{codec} {number} {random.Random(number).randbytes(2000).hex()}"
            producer.produce("t", key=f"key {number}", value=value, headers={"codec": codec})
        assert producer.flush(patient(30)) == 0
    for protocol in ("classic", "consumer"):
        settings = {**client, "group.id": protocol, "group.protocol": protocol}
        consumer = confluent_kafka.Consumer({**settings, "auto.offset.reset": "earliest", "enable.auto.commit": False})
        consumer.subscribe(["t"])
        assert len(consumer.consume(50, patient(30))) == 50
        consumer.commit(asynchronous=False)
        producer = confluent_kafka.Producer({**client, "transactional.id": f"tx-{protocol}"})
        producer.init_transactions(patient(30))
        for number in range(6):
            producer.begin_transaction()
            producer.produce("t", value=f"in transaction {number} " * 20)
            offset = confluent_kafka.TopicPartition("t", 0, 50 + number)
            producer.send_offsets_to_transaction([offset], consumer.consumer_group_metadata(), patient(30))
            (producer.commit_transaction if number % 3 else producer.abort_transaction)(patient(30))
        consumer.close()


def files_of(nodes: LocalNodes, node_id: int, partition: str, *suffixes: str) -> list[Path]:
    """The files of a partition on a node."""
    return sorted(
        path for path in Path(nodes.folder, f"node-{node_id}", partition).iterdir() if path.suffix in suffixes
    )


async def dump(jvm: ToolsJvm, files: Sequence[Path], *options: str) -> str:
    """What dump-log prints of files, which has no complaint."""
    assert files
    code, printed = await asyncio.to_thread(
        jvm.run, "dump-log", "--files", ",".join(str(file) for file in files), *options
    )
    assert code == 0, printed[-2000:]
    printed = FIRST_OFFSET.sub("", printed)
    for complaint in COMPLAINTS:
        assert complaint not in printed, printed[max(0, printed.index(complaint) - 1000) :][:2000]
    return printed


def payloads(printed: str) -> list[dict[str, Any]]:
    """The records of the metadata, as dump-log decoded them."""
    return [json.loads(text) for text in re.findall(r"payload: (\{.*\})$", printed, re.MULTILINE)]


async def filled(nodes: LocalNodes) -> None:
    """A topic with records, groups and transactions on three replicas; node 3 was away for a while."""
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap_servers, "log_level": 0})
    for creation in admin.create_topics([NewTopic("t", 1, 3, config=SEGMENTS)]).values():
        await asyncio.to_thread(creation.result, patient(20))
    await asyncio.to_thread(write, nodes.bootstrap_servers)
    await nodes.shut_down(3)
    await asyncio.to_thread(write, nodes.bootstrap_servers)
    await nodes.restart(3)
    await until(lambda: all(files_of(nodes, node, "__cluster_metadata-0", ".checkpoint") for node in nodes.nodes))
    partitions = ("t-0", "__consumer_offsets-0", "__transaction_state-0")
    await until(lambda: all(len({content(nodes, node, each) for node in nodes.nodes}) == 1 for each in partitions))


def content(nodes: LocalNodes, node_id: int, partition: str) -> bytes:
    """All bytes of a partition's log on a node."""
    return b"".join(file.read_bytes() for file in files_of(nodes, node_id, partition, ".log"))


async def test_dump_log_and_the_shell_read_the_files_of_each_node(
    jvm: ToolsJvm, tmp_path: Path, client_report: ClientReport
) -> None:
    """Segments, indexes and snapshots of topics, groups, transactions and metadata; the logs are the same on each node."""
    async with LocalNodes(properties=SETTINGS) as nodes:
        await filled(nodes)
        snapshot = await dump_each_node(jvm, nodes)
        copy = tmp_path / "__cluster_metadata-0" / snapshot.name
        copy.parent.mkdir()
        shutil.copy(snapshot, copy)
    client_report.note_tool("kafka-dump-log", "every file of three nodes: topics, groups, transactions, metadata")
    tree = ""

    async def is_shown() -> bool:
        """The shell may print before all is loaded, on a snapshot of Kafka's too."""
        nonlocal tree
        tree = await asyncio.to_thread(java, SHELL, "--snapshot", str(copy), "tree", "/image")
        return "nextProducerId" in tree

    await until(is_shown, seconds=60)
    assert re.search(r"metadataVersion:\s+Optional\[4\.3-IV0\]", tree)
    assert len(re.findall(r"BrokerRegistration\(id=[123], .*fenced=false", tree)) == 3
    assert {name for name in ("t:", "__consumer_offsets:", "__transaction_state:") if name in tree.split()} == {
        "t:",
        "__consumer_offsets:",
        "__transaction_state:",
    }
    assert "min.insync.replicas" in tree
    client_report.note_tool("kafka-metadata-shell", "tree of a snapshot that a cluster of three wrote")


async def dump_each_node(jvm: ToolsJvm, nodes: LocalNodes) -> Path:
    """Dump all of each node; the newest snapshot of the metadata."""
    for node_id in nodes.nodes:
        for partition in ("t-0", "__consumer_offsets-0", "__transaction_state-0"):
            indexes = files_of(nodes, node_id, partition, ".index", ".timeindex", ".txnindex", ".snapshot")
            logs = files_of(nodes, node_id, partition, ".log")
            printed = await dump(jvm, [*logs, *indexes], "--deep-iteration", "--skip-record-metadata")
            assert printed.count("Dumping") == len(logs) + len(indexes)
            offset_and_time = files_of(nodes, node_id, partition, ".index", ".timeindex")
            checked = await dump(jvm, offset_and_time, "--index-sanity-check")
            assert checked.count("passed sanity check") == len(offset_and_time)
            await dump(jvm, offset_and_time, "--verify-index-only")
        logs = files_of(nodes, node_id, "t-0", ".log")
        assert len(logs) > 3
        read = await dump(jvm, logs, "--print-data-log")
        assert len(re.findall(r"payload: (?:none|gzip|snappy|lz4|zstd) \d+ ", read)) == 2 * RECORDS
        assert (read.count("endTxnMarker: COMMIT"), read.count("endTxnMarker: ABORT")) == (16, 8)
        groups = await dump(jvm, files_of(nodes, node_id, "__consumer_offsets-0", ".log"), "--offsets-decoder")
        kinds = {int(kind) for kind in re.findall(r'key: \{"type":"(\d+)"', groups)}
        assert {1, 2, 3, 5, 6, 7, 8} <= kinds  # offsets, classic groups, and those of consumer groups
        states = await dump(jvm, files_of(nodes, node_id, "__transaction_state-0", ".log"), "--transaction-log-decoder")
        assert {'"tx-classic"', '"tx-consumer"'} <= set(re.findall(r'"transactionalId":("[^"]*")', states))
        log = await dump(jvm, files_of(nodes, node_id, "__cluster_metadata-0", ".log"), "--cluster-metadata-decoder")
        written = {record["type"] for record in payloads(log)}
        assert {"TOPIC_RECORD", "PARTITION_RECORD", "PARTITION_CHANGE_RECORD", "REGISTER_BROKER_RECORD"} <= written
        assert "LeaderChange: " in log
        snapshots = files_of(nodes, node_id, "__cluster_metadata-0", ".checkpoint")
        text = await dump(jvm, snapshots[-1:], "--cluster-metadata-decoder")
        assert (text.count("SnapshotHeader"), text.count("SnapshotFooter")) == (1, 1)
        assert {record["data"]["name"] for record in payloads(text) if record["type"] == "TOPIC_RECORD"} == {
            "t",
            "__consumer_offsets",
            "__transaction_state",
        }
    return snapshots[-1]


def kafkas_format(nodes: LocalNodes, jvm: ToolsJvm, tmp_path: Path, *options: str) -> str:
    """Format each node's directory with Kafka's tool; the cluster's id."""
    (cluster_id,) = jvm.run("storage", "random-uuid")[1].split()
    for node_id in nodes.node_ids:
        settings = {
            "process.roles": "broker,controller",
            "node.id": str(node_id),
            "log.dirs": str(Path(nodes.folder, f"node-{node_id}")),
            "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": "1@127.0.0.1:9093,2@127.0.0.1:9094,3@127.0.0.1:9095",
        }
        config = tmp_path / f"{node_id}.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        code, printed = jvm.run("storage", "format", "-t", cluster_id, "-c", str(config), *options)
        assert code == 0, printed
    return cluster_id


async def test_a_cluster_begins_in_directories_that_kafkas_tool_formatted(
    jvm: ToolsJvm, tmp_path: Path, client_report: ClientReport
) -> None:
    """It has that cluster's id and those levels; kafka-storage knows directories in use, and does not format them again."""
    nodes = LocalNodes()
    levels = ("--feature", "transaction.version=1", "--feature", "share.version=0")
    cluster_id = await asyncio.to_thread(kafkas_format, nodes, jvm, tmp_path, *levels)
    async with nodes:
        node = nodes.nodes[1]
        assert node.services.cluster_id == cluster_id
        await until(lambda: len(node.services.image.features) == 4)
        assert node.services.image.features == {
            "metadata.version": 30,
            "transaction.version": 1,
            "group.version": 1,
            "eligible.leader.replicas.version": 1,
        }
    client_report.note_tool("kafka-storage", "format of three directories, with levels of features; info")


async def test_kafkas_storage_tool_knows_our_directories(jvm: ToolsJvm, tmp_path: Path) -> None:
    """Info of a directory that `busway cluster format` made, and of one in use; neither is formatted again."""
    async with LocalNodes(1) as nodes:
        folder = Path(nodes.folder, "node-1")
        written = dict(line.split("=") for line in (folder / "meta.properties").read_text().splitlines())
        config = tmp_path / "server.properties"
        config.write_text(
            f"process.roles=broker,controller\nnode.id=1\nlog.dirs={folder}\ncontroller.listener.names=CONTROLLER\n"
            "listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\ncontroller.quorum.voters=1@127.0.0.1:9093\n"
        )
        code, printed = await asyncio.to_thread(jvm.run, "storage", "info", "-c", str(config))
        metadata = re.search(r"Found metadata: \{(.*)\}", printed)
        assert (code, metadata is not None) == (0, True), printed
        assert metadata is not None
        assert dict(pair.split("=") for pair in metadata[1].split(", ")) == written
        again = ("storage", "format", "-t", written["cluster.id"], "-c", str(config))
        code, printed = await asyncio.to_thread(jvm.run, *again)
        assert (code, "is already formatted" in printed) == (1, True), printed
