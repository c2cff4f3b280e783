"""Administration of one node: descriptions of settings, logs, leaders and the quorum. Beside Kafka: `test_admin_beside_kafka`."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.patience import patient

from busway.net.connection import Connection
from busway.producer.producer import Producer
from busway_bus.handlers.common.topic_creation import create_topic
from busway_bus.kernel.topics import INTERNAL
from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
    ListConfigResourcesRequest,
)
from busway_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from busway_protocol.messages.partitions import DescribableLogDirTopic, DescribeLogDirsRequest, ElectLeadersRequest
from busway_protocol.messages.quorum import DescribeQuorumRequest, PartitionQuery, TopicQuery
from busway_protocol.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

TOPIC, BROKER = 2, 4


@pytest.fixture
async def connection(cluster: LocalCluster) -> AsyncIterator[Connection]:
    """A client of the node."""
    host, _, port = cluster.bootstrap_servers.rpartition(":")
    opened = Connection(host, int(port), client_id="test", timeout_s=patient(10))
    await opened.connect()
    yield opened
    opened.close()


def topic(name: str, partitions: int = 1, **configs: str) -> CreatableTopic:
    """A topic to be created; the underscores of `configs` are dots."""
    given = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=given)


async def described(connection: Connection, kind: int, name: str) -> dict[str, DescribeConfigsResourceResult]:
    """The settings of a resource by their names."""
    wanted = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    answer = await connection.request(DescribeConfigsRequest(resources=[wanted], include_synonyms=True))
    (result,) = answer.results
    assert (result.error_code, result.error_message) == (ErrorCode.NONE, "")
    return {entry.name: entry for entry in result.configs}


def sources(entry: DescribeConfigsResourceResult) -> tuple[str | None, int, list[tuple[str, str | None, int]]]:
    """Value, source and synonyms."""
    return (
        entry.value,
        entry.config_source,
        [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms],
    )


async def test_the_default_of_the_cluster_is_told_as_one(cluster: LocalCluster, connection: Connection) -> None:
    """min.insync.replicas has source 3 everywhere, and is all that the broker without a name has."""
    await connection.request(CreateTopicsRequest(topics=[topic("t")], timeout_ms=1000))
    chain = [("min.insync.replicas", "1", 3), ("min.insync.replicas", "1", 5)]
    for kind, name in ((TOPIC, "t"), (BROKER, "1")):
        entries = await described(connection, kind, name)
        assert sources(entries["min.insync.replicas"]) == ("1", 3, chain)
    entries = await described(connection, BROKER, "")
    assert {name: sources(entry) for name, entry in entries.items()} == {"min.insync.replicas": ("1", 3, chain[:1])}


async def test_the_nodes_id_is_told_as_given(cluster: LocalCluster, connection: Connection) -> None:
    """By both of its names, also where it was configured."""
    entries = await described(connection, BROKER, "1")
    assert sources(entries["node.id"]) == ("1", 4, [("node.id", "1", 4)])
    assert sources(entries["broker.id"]) == ("1", 4, [("broker.id", "1", 4), ("broker.id", "-1", 5)])


async def test_the_own_setting_is_told_to_those_who_set_it(cluster: LocalCluster, connection: Connection) -> None:
    """A strict client takes an unknown name in the answer of CreateTopics for an error."""
    wanted = [topic("plain"), topic("set", durability="os")]
    answer = await connection.request(CreateTopicsRequest(topics=wanted, timeout_ms=1000))
    durability = {
        made.name: [config.name for config in made.configs if config.name == "durability"] for made in answer.topics
    }
    assert durability == {"plain": [], "set": ["durability"]}
    assert "durability" in await described(connection, TOPIC, "plain")


@pytest.mark.parametrize("name", sorted(INTERNAL))
async def test_internal_topics_are_flushed_and_nobody_can_change_that(name: str) -> None:
    """Under a broker with log.durability=os: described as flush, read-only; setting it is refused by its name, whichever way."""
    async with LocalCluster(properties={"log.durability": "os"}) as cluster:
        host, _, port = cluster.bootstrap_servers.rpartition(":")
        connection = Connection(host, int(port), client_id="test", timeout_s=10)
        await connection.connect()
        made = await connection.request(
            CreateTopicsRequest(topics=[topic(name, -1, durability="os")], timeout_ms=10_000)
        )
        assert made.topics[0].error_code == ErrorCode.INVALID_CONFIG
        text = f"durability is always flush on internal topic {name} and cannot be set; leave it out"
        assert made.topics[0].error_message == text
        assert cluster.node is not None
        await create_topic(cluster.node.services, name)
        entry = (await described(connection, TOPIC, name))["durability"]
        assert sources(entry) == ("flush", 5, [("log.durability", "flush", 5)])
        assert entry.read_only
        deletion = IncrementalAlterConfigsRequestAlterableConfig(name="durability", config_operation=1, value=None)
        setting = IncrementalAlterConfigsRequestAlterableConfig(name="durability", config_operation=0, value="os")
        for change, code in ((deletion, ErrorCode.NONE), (setting, ErrorCode.INVALID_CONFIG)):
            resource = IncrementalAlterConfigsRequestAlterConfigsResource(
                resource_type=TOPIC, resource_name=name, configs=[change]
            )
            answer = await connection.request(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
            assert answer.responses[0].error_code == code
        assert answer.responses[0].error_message == text
        whole = AlterConfigsResource(
            resource_type=TOPIC, resource_name=name, configs=[AlterableConfig(name="durability", value="flush")]
        )
        replaced = await connection.request(AlterConfigsRequest(resources=[whole], validate_only=False))
        assert (replaced.responses[0].error_code, replaced.responses[0].error_message) == (
            ErrorCode.INVALID_CONFIG,
            text,
        )
        connection.close()


async def test_tiny_segments_can_be_asked_for(cluster: LocalCluster, connection: Connection) -> None:
    """internal.segment.bytes counts in place of segment.bytes, and is shown where it is set."""
    wanted = [topic("t", internal_segment_bytes="1"), topic("plain")]
    await connection.request(CreateTopicsRequest(topics=wanted, timeout_ms=1000))
    assert sources((await described(connection, TOPIC, "t"))["internal.segment.bytes"])[:2] == ("1", 1)
    assert "internal.segment.bytes" not in await described(connection, TOPIC, "plain")
    async with Producer(cluster.bootstrap_servers) as producer:
        for _ in range(3):
            await producer.send_and_wait("t", value=b"v")
    assert len(list((Path(cluster.data_dir) / "t-0").glob("*.log"))) == 3


async def test_log_directories_tell_sizes_and_room(cluster: LocalCluster, connection: Connection) -> None:
    """As many bytes as the segments have, and as many as the volume says."""
    await connection.request(CreateTopicsRequest(topics=[topic("t", 2)], timeout_ms=1000))
    async with Producer(cluster.bootstrap_servers) as producer:
        await producer.send_and_wait("t", value=b"v" * 1000, partition=1)
    asked = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic="t", partitions=[0, 1, 2])])
    (directory,) = (await connection.request(asked)).results
    assert directory.log_dir == cluster.data_dir
    assert 0 < directory.usable_bytes <= directory.total_bytes
    sizes = {partition.partition_index: partition.partition_size for partition in directory.topics[0].partitions}
    on_disk = (Path(cluster.data_dir) / "t-1" / "00000000000000000000.log").stat().st_size
    assert sizes == {0: 0, 1: on_disk}


async def test_the_quorum_is_this_node(cluster: LocalCluster, connection: Connection) -> None:
    """It leads, it is the only voter, and its log ends where it is committed."""
    asked = TopicQuery(topic_name="__cluster_metadata", partitions=[PartitionQuery(partition_index=0)])
    answer = await connection.request(DescribeQuorumRequest(topics=[asked]))
    (partition,) = answer.topics[0].partitions
    (voter,) = partition.current_voters
    assert (partition.leader_id, voter.replica_id, partition.observers) == (1, 1, [])
    assert partition.high_watermark == voter.log_end_offset > 0


async def test_resources_with_settings_are_listed(cluster: LocalCluster, connection: Connection) -> None:
    """The broker and every topic."""
    await connection.request(CreateTopicsRequest(topics=[topic("b"), topic("a")], timeout_ms=1000))
    answer = await connection.request(ListConfigResourcesRequest(resource_types=[]))
    listed = {(resource.resource_type, resource.resource_name) for resource in answer.config_resources}
    assert listed == {(BROKER, "1"), (TOPIC, "a"), (TOPIC, "b")}


async def test_no_election_is_needed(cluster: LocalCluster, connection: Connection) -> None:
    """Of all partitions none is named."""
    await connection.request(CreateTopicsRequest(topics=[topic("t")], timeout_ms=1000))
    answer = await connection.request(ElectLeadersRequest(topic_partitions=None))
    assert [(result.topic, result.partition_result) for result in answer.replica_election_results] == [("t", [])]


async def test_resources_are_described_once_and_each_with_its_own(
    cluster: LocalCluster, connection: Connection
) -> None:
    """However often they are named; what has the same settings as another is described with them all the same."""
    await connection.request(
        CreateTopicsRequest(topics=[topic("a"), topic("b"), topic("c", retention_ms="9")], timeout_ms=1000)
    )
    names = [(TOPIC, "a"), (TOPIC, "b"), (TOPIC, "c"), (TOPIC, "none"), (BROKER, "1"), (BROKER, ""), (BROKER, "x")]
    wanted = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=["retention.ms"])
        for kind, name in names * 100
    ]
    answer = await connection.request(DescribeConfigsRequest(resources=wanted))
    assert [(result.resource_type, result.resource_name) for result in answer.results] == names
    described = [(result.error_code, [entry.value for entry in result.configs]) for result in answer.results]
    week = [str(7 * 24 * 3_600_000)]
    unknown, invalid = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_REQUEST
    assert described == [(0, week), (0, week), (0, ["9"]), (unknown, []), (0, []), (0, []), (invalid, [])]


@pytest.mark.slow
async def test_a_topic_of_many_partitions_is_told_whole(cluster: LocalCluster, connection: Connection) -> None:
    """By name, by id and with all others: in order, though others were answered meanwhile."""
    await connection.request(CreateTopicsRequest(topics=[topic("wide", 501), topic("t")], timeout_ms=20_000))
    assert cluster.node is not None
    topic_id = cluster.node.services.image.topics["wide"].topic_id
    for asked in (None, [MetadataRequestTopic(name="wide")], [MetadataRequestTopic(name=None, topic_id=topic_id)]):
        answer = await connection.request(MetadataRequest(topics=asked))
        partitions = {topic.name: [each.partition_index for each in topic.partitions] for topic in answer.topics}
        assert partitions.pop("wide") == list(range(501))
        assert partitions == ({} if asked else {"t": [0]})
