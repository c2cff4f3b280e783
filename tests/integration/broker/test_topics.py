"""Creating and deleting topics with requests that contradict themselves, answered as Apache Kafka answers them."""

from collections.abc import AsyncIterator

import pytest

from busway.admin.admin import Admin, NewTopic
from busway.net.connection import Connection
from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from busway_protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from busway_protocol.types import ZERO_UUID


@pytest.fixture
async def connection(cluster: LocalCluster) -> AsyncIterator[Connection]:
    """A connection to a node that has the topic `t`."""
    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic("t", 1)])
    host, _, port = cluster.bootstrap_servers.rpartition(":")
    found = Connection(host, int(port), client_id="test", timeout_s=10)
    await found.connect()
    yield found
    found.close()


async def test_a_topic_given_by_name_and_id_is_not_deleted(cluster: LocalCluster, connection: Connection) -> None:
    """INVALID_REQUEST, and the topic stays."""
    topic_id = cluster.node.services.image.topics["t"].topic_id
    wanted = [DeleteTopicState(name="t", topic_id=topic_id)]
    answer = await connection.request(DeleteTopicsRequest(topics=wanted, timeout_ms=1000))
    assert [one.error_code for one in answer.responses] == [ErrorCode.INVALID_REQUEST]
    assert "t" in cluster.node.services.image.topics


async def test_a_topic_named_twice_is_not_deleted(cluster: LocalCluster, connection: Connection) -> None:
    """One row with INVALID_REQUEST, and the topic stays."""
    wanted = [DeleteTopicState(name="t", topic_id=ZERO_UUID)] * 2
    answer = await connection.request(DeleteTopicsRequest(topics=wanted, timeout_ms=1000))
    assert [(one.name, one.error_code) for one in answer.responses] == [("t", ErrorCode.INVALID_REQUEST)]
    assert "t" in cluster.node.services.image.topics


async def test_a_setting_without_a_value_is_refused(cluster: LocalCluster, connection: Connection) -> None:
    """INVALID_CONFIG that names the setting, and no topic."""
    topic = CreatableTopic(
        name="n",
        num_partitions=1,
        replication_factor=1,
        assignments=[],
        configs=[CreatableTopicConfig(name="retention.ms", value=None)],
    )
    answer = await connection.request(CreateTopicsRequest(topics=[topic], timeout_ms=1000))
    (refused,) = answer.topics
    assert (refused.error_code, "retention.ms" in (refused.error_message or "")) == (ErrorCode.INVALID_CONFIG, True)
    assert "n" not in cluster.node.services.image.topics


async def test_the_metadata_log_is_no_topic_that_can_be_created(cluster: LocalCluster, connection: Connection) -> None:
    """Refused when asked for and when it would be created on first use; the node starts again."""
    topic = CreatableTopic(
        name="__cluster_metadata", num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    for validate_only in (True, False):
        request = CreateTopicsRequest(topics=[topic], timeout_ms=1000, validate_only=validate_only)
        (refused,) = (await connection.request(request)).topics
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        assert refused.error_message == "Creation of internal topic __cluster_metadata is prohibited."
    await connection.request(MetadataRequest(topics=[MetadataRequestTopic(name="__cluster_metadata")]))
    await cluster.stop()
    await cluster.start()
    assert set(cluster.node.services.image.topics) == {"t"}
