"""Creating and deleting topics with requests that contradict themselves, answered as Apache Kafka answers them."""

from collections.abc import AsyncIterator

import pytest
from tests.support.patience import patient
from tests.support.raw_client import RawClient

from busway.admin.admin import Admin
from busway.admin.new_topic import NewTopic
from busway.net.connection import Connection
from busway_bus.handlers.common.metadata_responses import Asked, MetadataAnswers
from busway_bus.handlers.metadata import DESCRIBED_AT_ONCE, KEPT_FROM
from busway_bus.kernel.limits import METADATA_ANSWERS_BYTES_MAX
from busway_bus.metadata.image import ClusterImage
from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
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
    opened = Connection(host, int(port), client_id="test", timeout_s=patient(10))
    await opened.connect()
    yield opened
    opened.close()


async def test_a_topic_given_by_name_and_id_is_not_deleted(cluster: LocalCluster, connection: Connection) -> None:
    """INVALID_REQUEST, and the topic stays."""
    topic_id = cluster.node.services.image.topics["t"].topic_id
    wanted = [DeleteTopicState(name="t", topic_id=topic_id)]
    answer = await connection.request(DeleteTopicsRequest(topics=wanted, timeout_ms=1000))
    assert [response.error_code for response in answer.responses] == [ErrorCode.INVALID_REQUEST]
    assert "t" in cluster.node.services.image.topics


async def test_a_topic_named_twice_is_not_deleted(cluster: LocalCluster, connection: Connection) -> None:
    """One row with INVALID_REQUEST, and the topic stays."""
    wanted = [DeleteTopicState(name="t", topic_id=ZERO_UUID)] * 2
    answer = await connection.request(DeleteTopicsRequest(topics=wanted, timeout_ms=1000))
    assert [(response.name, response.error_code) for response in answer.responses] == [("t", ErrorCode.INVALID_REQUEST)]
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


async def test_all_topics_are_told_of_as_they_are(cluster: LocalCluster, connection: Connection) -> None:
    """An answer that was kept is what a new one would be, for each version and what else is asked; a change is in the next one."""

    async def ask(version: int, *, operations: bool = False) -> MetadataResponse:
        request = MetadataRequest(topics=None, include_topic_authorized_operations=operations and version >= 8)
        response: MetadataResponse = await client.ask(request, version)
        return response

    kept = cluster.node.services.metadata_answers
    async with Admin(cluster.bootstrap_servers) as admin, RawClient(cluster.bootstrap_servers) as client:
        for topic, partitions in (("many", KEPT_FROM), ("more", 2 * DESCRIBED_AT_ONCE)):
            await admin.create_topics([NewTopic(topic, partitions)])
            for version in (1, 9, 13):
                for operations in (False, True):
                    first, again = [await ask(version, operations=operations) for _ in range(2)]
                    assert first == again
                    by_name = {topic_response.name: topic_response for topic_response in again.topics}
                    assert len(by_name[topic].partitions) == partitions
                    authorised = by_name["many"].topic_authorized_operations != -(2**31)
                    assert authorised == (operations and version >= 8)
            assert len(kept._kept) == 5  # version 1 has no operations to ask for
        await admin.delete_topics(["more"])
        assert "more" not in {topic_response.name for topic_response in (await ask(13)).topics}
        assert len(kept._kept) == 1


def test_no_more_answers_are_kept_than_there_is_room_for() -> None:
    """What is beyond is not kept; another image drops all."""
    answers, image = MetadataAnswers(), ClusterImage()
    half = [bytes(METADATA_ANSWERS_BYTES_MAX // 2)]
    asked = [Asked(version, "PLAINTEXT", 1, topic_operations=False, cluster_operations=False) for version in range(4)]
    for request in asked[:3]:
        answers.keep(image, request, half)
    assert [answers.find(image, request) is half for request in asked] == [True, True, False, False]
    changed = ClusterImage()
    assert answers.find(changed, asked[0]) is None
    answers.keep(changed, asked[3], half)
    assert [answers.find(changed, request) is half for request in asked] == [False, False, False, True]
    assert answers.find(image, asked[3]) is None
