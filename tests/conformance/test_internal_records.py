"""The records of `__consumer_offsets`, `__share_group_state` and of the metadata log are Kafka's: by definition, and as Kafka's own tool reads them."""

import asyncio
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.test_definitions import compare, span
from tests.integration.broker.consumer_groups_scenarios import member, until
from tests.integration.broker.groups_probe import Run, run_against
from tests.integration.broker.share_groups_probe import SETTINGS as SHARE_GROUP_SETTINGS
from tests.integration.broker.share_groups_probe import members, shares_against
from tests.integration.broker.share_states_probe import SETTINGS as SHARE_SETTINGS
from tests.integration.broker.share_states_probe import life, states_against
from tests.integration.broker.transactions_probe import TransactionsRun, transactions_against
from tests.support.apache_kafka import ApacheKafka, java
from tools.jars import kafka_libs

from busway_bus.groups import records as group_records
from busway_bus.groups.modern import records as consumer_records
from busway_bus.groups.share import records as share_group_records
from busway_bus.metadata import records as metadata_records
from busway_bus.share_state import records as share_records
from busway_bus.testing.local_cluster import LocalCluster
from busway_bus.transactions import records as transaction_records
from busway_protocol.messages.groups_classic import DeleteGroupsRequest
from busway_protocol.messages.topics import DeleteTopicsRequest, DeleteTopicState
from busway_protocol.messages.transactions import InitProducerIdRequest
from busway_protocol.schema import NEVER, info_of

pytestmark = pytest.mark.java

GROUP_TYPES = [
    group_records.OffsetCommitKey,
    group_records.OffsetCommitValue,
    group_records.GroupMetadataKey,
    group_records.GroupMetadataValue,
    *(
        layout
        for layouts in (consumer_records.LAYOUTS, share_group_records.LAYOUTS)
        for pair in layouts.values()
        for layout in pair[:2]
    ),
]
TRANSACTION_TYPES = [transaction_records.TransactionLogKey, transaction_records.TransactionLogValue]
SHARE_TYPES = [
    share_records.ShareSnapshotKey,
    share_records.ShareSnapshotValue,
    share_records.ShareUpdateKey,
    share_records.ShareUpdateValue,
]
METADATA_TYPES = [
    metadata_records.RegisterBrokerRecord,
    metadata_records.TopicRecord,
    metadata_records.PartitionRecord,
    metadata_records.ConfigRecord,
    metadata_records.ClearElrRecord,
    metadata_records.PartitionChangeRecord,
    metadata_records.RemoveTopicRecord,
    metadata_records.FeatureLevelRecord,
    metadata_records.ProducerIdsRecord,
    metadata_records.UnregisterBrokerRecord,
    metadata_records.FenceBrokerRecord,
    metadata_records.UnfenceBrokerRecord,
    metadata_records.BrokerRegistrationChangeRecord,
]
AT_ONCE = {"group.consumer.assignment.interval.ms": "0"}
"""So that consumer groups are balanced whenever something changes, and not when time has passed."""
DUMP = "org.apache.kafka.tools.DumpLogSegments"


def definition(jar: str, folder: str, name: str) -> dict[str, Any]:
    """Kafka's definition of one record type."""
    with zipfile.ZipFile(kafka_libs() / jar) as archive:
        text = archive.read(f"common/{folder}/{name}.json").decode()
    parsed: dict[str, Any] = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    return parsed


@pytest.mark.parametrize("cls", [*GROUP_TYPES, *TRANSACTION_TYPES, *SHARE_TYPES, *METADATA_TYPES])
def test_the_definition_equals_kafkas(cls: type[Any]) -> None:
    """Names, order, types, versions, nullability, tags, defaults: no difference either way."""
    if cls in GROUP_TYPES:
        theirs = definition("kafka-group-coordinator-4.3.1.jar", "message", cls.__name__)
    elif cls in TRANSACTION_TYPES:
        theirs = definition("kafka-transaction-coordinator-4.3.1.jar", "message", cls.__name__)
    elif cls in SHARE_TYPES:
        theirs = definition("kafka-share-coordinator-4.3.1.jar", "message", cls.__name__)
    else:
        theirs = definition("kafka-metadata-4.3.1.jar", "metadata", cls.__name__)
    info = info_of(cls)
    low, high = span(theirs["validVersions"], 0, 99) or (0, 0)
    flexible = span(theirs["flexibleVersions"], 0, NEVER)
    assert (info.api_key, info.min_version, info.max_version) == (theirs["apiKey"], low, high)
    assert (None if info.flexible_since == NEVER else info.flexible_since) == (flexible and flexible[0])
    shared = {struct["name"]: struct["fields"] for struct in theirs.get("commonStructs", [])}
    assert list(compare(cls, theirs["fields"], shared, low, high, cls.__name__)) == []


async def live(run: Run) -> None:
    """A life that leaves every kind of record: generations, offsets by name and id, an empty group, tombstones."""
    peer = await run.peer("a", "g")
    await peer.enter(instance_id="seat")
    await peer.sync([(peer.member_id, b"x")])
    await peer.commit()
    back = await run.peer("b", "g")
    await back.enter(instance_id="seat")
    await back.sync()
    await back.leave()
    simple = await run.peer("c", "simple")
    await simple.commit(metadata=None)
    await simple.commit(topic="left")
    gone = await run.peer("d", "gone")
    await gone.commit()
    await run.admin.request(DeleteGroupsRequest(groups_names=["gone"]))
    await balanced(run)


async def balanced(run: Run) -> None:
    """The same of groups that the coordinator balances: two members, a static one that comes back, a pattern, a group that is deleted."""
    first, second = await member(run, "a", "balanced"), await member(run, "b", "balanced")
    first.instance_id = "seat"
    await first.join(server_assignor="range")
    await first.confirm("has it")
    await first.commit("commit")
    await second.join()
    await first.beat("is told to give up")
    await first.confirm("gives up")
    await second.beat("gets it")
    await first.leave(epoch=-2)
    back = await member(run, "c", "balanced")
    back.instance_id = "seat"
    await back.join(rack_id="rack")
    await second.leave()
    peer = await member(run, "d", "patterns")
    await peer.join(subscribed_topic_regex="rea.*")
    await until(run, "patterns", lambda group: group.group_epoch > group.assignment_epoch)
    await peer.beat("is given what matches")
    await peer.leave()
    await run.admin.request(DeleteGroupsRequest(groups_names=["patterns"]))


def dump(decoder: str, data: Path, topic: str) -> Iterator[dict[str, Any]]:
    """The records in the logs of a topic as Kafka's tool shows them: `key` and `payload`, both parsed."""
    files = sorted(str(path) for path in data.glob(f"{topic}-*/*.log") if path.stat().st_size)
    assert files
    yield from _records(java(DUMP, decoder, "--files", ",".join(files)))


def _records(output: str) -> Iterator[dict[str, Any]]:
    assert "Could not decode" not in output, output
    assert "isvalid: false" not in output, output
    for line in output.splitlines():
        if line.startswith("| ") and "payload:" in line:
            before, _, payload = line.partition(" payload: ")
            key = before.partition(" key: ")[2]
            yield {"key": json.loads(key) if key else None, "payload": _parsed(payload)}


def _parsed(text: str) -> Any:
    return None if text in {"null", "<DELETE>"} else json.loads(text)


def comparable(records: Iterator[dict[str, Any]]) -> list[Any]:
    """The records with what differs between two runs left out: times, ids that are random, and the order of partitions."""

    def plain(value: Any, name: str = "") -> Any:
        if name in {"commitTimestamp", "currentStateTimestamp", "assignmentTimestamp", "timestamp"}:
            return value > 0
        if name == "metadataHash":
            return value != 0  # Kafka hashes the same by another function
        if name in {"memberId", "leader"}:
            return value and re.sub(r"-[0-9a-f-]{36}$", "", value)
        if name == "topicId":
            return len(value)
        if isinstance(value, dict) and {"topics", "version", "timestamp"} == value.keys():
            value = {**value, "version": 0}  # the image's in which topics were looked for; Busway's have no number
        if isinstance(value, dict):
            return {key: plain(item, key) for key, item in value.items()}
        return [plain(item) for item in value] if isinstance(value, list) else value

    plain_records = [plain(record) for record in records]
    # Kafka writes down a new group before it has members, so that its own tables can hold it; no broker reads that back.
    born = {"protocolType": "", "generation": 0}
    kept = [
        record
        for record in plain_records
        if not (record["payload"] and born.items() <= record["payload"].get("data", {}).items())
    ]
    return sorted(kept, key=lambda record: json.dumps(record["key"]))


@pytest.mark.slow
async def test_the_offsets_topic_holds_what_kafka_writes() -> None:
    """The same requests leave the same records, in the same versions and order, as DumpLogSegments reads them in both."""
    async with LocalCluster(properties=AT_ONCE) as cluster:
        async with run_against(cluster.bootstrap_servers) as run:
            await live(run)
        ours = comparable(await asyncio.to_thread(_offsets, Path(cluster.data_dir)))
    with ApacheKafka(AT_ONCE) as kafka:
        async with run_against(kafka.bootstrap_servers) as run:
            await live(run)
        theirs = comparable(await asyncio.to_thread(_offsets, kafka.data_dir))
    assert any(record["payload"] is None for record in ours)
    assert ours == theirs


def _offsets(data: Path) -> Iterator[dict[str, Any]]:
    return dump("--offsets-decoder", data, "__consumer_offsets")


async def transactions(run: TransactionsRun) -> None:
    """Lives that leave every kind of record: both kinds of clients, commits and aborts, an id that is fenced."""
    for name, version in (("old", 3), ("new", 5)):
        identity = await run.begun("begin", name)
        await run.begun("go on", name, identity)
        identity = await run.begun("begin anew", name)
        for commit in (True, False):
            if version == 3:
                await run.add("add", name, identity, ("one", 0), ("two", 1))
            else:
                await run.batch("add", name, identity, ("one", 0), ("two", 1), verify=False)
            ended = await run.end("end", name, identity, commit=commit, at_most=version)
            identity = identity if version == 3 else ended
        await run.add("add", name, identity)
        await run.begun("fence", name)


def transaction_log(data: Path) -> dict[str, list[Any]]:
    """The records of each transactional id in order, as Kafka's tool reads them; times are there or not, ids by their order."""
    payloads: dict[str, list[Any]] = {}
    ids: dict[int, int] = {}
    for record in dump("--transaction-log-decoder", data, "__transaction_state"):
        name, payload = record["key"]["data"]["transactionalId"], record["payload"]
        if name == "ready":
            continue
        value = payload["data"]
        for field in ("producerId", "previousProducerId", "nextProducerId"):
            if value.get(field, -1) >= 0:
                value[field] = ids.setdefault(value[field], len(ids))
        for field in ("transactionLastUpdateTimestampMs", "transactionStartTimestampMs"):
            value[field] = value[field] > 0
        for topic in value["transactionPartitions"] or ():
            topic["partitionIds"].sort()
        (value["transactionPartitions"] or []).sort(key=lambda topic: topic["topic"])
        payloads.setdefault(name, []).append(payload)
    return payloads


@pytest.mark.slow
async def test_the_topic_of_transactions_holds_what_kafka_writes() -> None:
    """The same requests leave the same records, in the same versions and order, as DumpLogSegments reads them in both."""
    settings = {"transaction.state.log.num.partitions": "1"}
    async with LocalCluster(properties=settings) as cluster:
        async with transactions_against(cluster.bootstrap_servers) as run:
            await transactions(run)
        ours = await asyncio.to_thread(transaction_log, Path(cluster.data_dir))
    with ApacheKafka(settings) as kafka:
        async with transactions_against(kafka.bootstrap_servers) as run:
            await transactions(run)
        theirs = await asyncio.to_thread(transaction_log, kafka.data_dir)
    assert len(ours["new"]) > 8
    assert ours == theirs


def share_state_log(data: Path) -> list[Any]:
    """The records in order, as Kafka's tool reads them; times are there or not, topic ids by their length."""
    state_records = []
    for record in dump("--share-group-state-decoder", data, "__share_group_state"):
        record["key"]["data"]["topicId"] = len(record["key"]["data"]["topicId"])
        value = (record["payload"] or {}).get("data", {})
        for field in ("createTimestamp", "writeTimestamp"):
            if field in value:
                value[field] = value[field] > 0
        state_records.append(record)
    return state_records


@pytest.mark.slow
async def test_the_topic_of_share_groups_state_holds_what_kafka_writes() -> None:
    """The same requests leave the same snapshots, updates and tombstones, in order, as DumpLogSegments reads them in both."""
    settings = {**SHARE_SETTINGS, "share.coordinator.state.topic.num.partitions": "1"}
    async with LocalCluster(properties=settings) as cluster:
        async with states_against(cluster.bootstrap_servers) as run:
            await run.ready("s")
            await life(run)
        ours = await asyncio.to_thread(share_state_log, Path(cluster.data_dir))
    with ApacheKafka(settings, features={"share.version": 1}) as kafka:
        async with states_against(kafka.bootstrap_servers) as run:
            await run.ready("s")
            await life(run)
        theirs = await asyncio.to_thread(share_state_log, kafka.data_dir)
    assert len(ours) > 8
    assert ours == theirs


@pytest.mark.slow
async def test_the_records_of_share_groups_are_read_by_kafka() -> None:
    """Every kind of them, and their ends."""
    async with LocalCluster(properties=SHARE_GROUP_SETTINGS) as cluster:
        async with shares_against(cluster.bootstrap_servers) as run:
            await members(run)
        dumped = await asyncio.to_thread(lambda: list(_offsets(Path(cluster.data_dir))))
    kinds = {(int(record["key"]["type"]), record["payload"] is None) for record in dumped}
    assert {(number, ended) for number in range(10, 16) for ended in (False, True)} <= kinds
    names = {record["payload"]["data"]["subscribedTopicNames"][0] for record in dumped if _value(record, 10)}
    assert names == {"read", "left", "missing"}
    begun = [_value(record, 15) for record in dumped if _value(record, 15)]
    assert any(len(value["data"]["initializedTopics"]) == 2 for value in begun)


def _value(record: dict[str, Any], kind: int) -> Any:
    return record["payload"] if int(record["key"]["type"]) == kind else None


@pytest.mark.slow
async def test_the_metadata_log_is_read_by_kafka() -> None:
    """Topics, partitions, settings, deletions and producer ids are parsed by Kafka's metadata classes."""
    async with LocalCluster(properties={"offsets.topic.num.partitions": "50"}) as cluster:
        async with run_against(cluster.bootstrap_servers) as run:
            await run.admin.request(
                InitProducerIdRequest(
                    transactional_id=None, transaction_timeout_ms=0, producer_id=-1, producer_epoch=-1
                )
            )
            wanted = DeleteTopicsRequest(topics=[DeleteTopicState(name="left")], timeout_ms=10_000)
            await run.admin.request(wanted)
        payloads = await asyncio.to_thread(
            lambda: [
                record["payload"]
                for record in dump("--cluster-metadata-decoder", Path(cluster.data_dir), "__cluster_metadata")
            ]
        )
    by_type: dict[str, list[dict[str, Any]]] = {}
    for record in payloads:
        by_type.setdefault(record["type"], []).append(record["data"])
    assert by_type.keys() == {
        "FEATURE_LEVEL_RECORD",
        "REGISTER_BROKER_RECORD",
        "TOPIC_RECORD",
        "PARTITION_RECORD",
        "CONFIG_RECORD",
        "PRODUCER_IDS_RECORD",
        "REMOVE_TOPIC_RECORD",
    }
    assert {record["name"] for record in by_type["TOPIC_RECORD"]} == {"read", "left", "__consumer_offsets"}
    assert len(by_type["PARTITION_RECORD"]) == 54
    assert all(record["leader"] == record["replicas"][0] for record in by_type["PARTITION_RECORD"])
    (gone,) = by_type["REMOVE_TOPIC_RECORD"]
    assert [record["name"] for record in by_type["TOPIC_RECORD"] if record["topicId"] == gone["topicId"]] == ["left"]


@pytest.mark.slow
async def test_a_snapshot_of_the_metadata_is_read_by_kafka() -> None:
    """Header, footer and every record, in the versions that Kafka's metadata classes know."""
    properties = {"offsets.topic.num.partitions": "3", "metadata.log.max.record.bytes.between.snapshots": "1"}
    async with LocalCluster(properties=properties) as cluster:
        async with run_against(cluster.bootstrap_servers) as run:
            await run.admin.request(
                InitProducerIdRequest(
                    transactional_id=None, transaction_timeout_ms=0, producer_id=-1, producer_epoch=-1
                )
            )
        await cluster.node.services.metadata.drain()
        image = cluster.node.services.image
        data = Path(cluster.data_dir)
        newest = max(data.glob("__cluster_metadata-0/*.checkpoint"))
        output = await asyncio.to_thread(java, DUMP, "--cluster-metadata-decoder", "--files", str(newest))
    lines = [line for line in output.splitlines() if line.startswith("| ")]
    assert "SnapshotHeader" in lines[0]
    assert "SnapshotFooter" in lines[-1]
    records = [record["payload"] for record in _records(output)]
    assert len(records) == len(lines) - 2
    assert records[0]["data"] == {"name": "metadata.version", "featureLevel": 30}
    assert {record["type"] for record in records} == {
        "FEATURE_LEVEL_RECORD",
        "REGISTER_BROKER_RECORD",
        "TOPIC_RECORD",
        "PARTITION_RECORD",
        "CONFIG_RECORD",
        "PRODUCER_IDS_RECORD",
    }
    assert {record["data"]["name"] for record in records if record["type"] == "TOPIC_RECORD"} == set(image.topics)
