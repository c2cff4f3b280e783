"""What is made because a client asks for it, and what becomes of groups when the topic of their offsets goes."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.patience import patient

from busway.net.connection import Connection
from busway.producer.producer import Producer
from busway_bus.groups.record_serde import parse
from busway_bus.groups.records import GroupMetadataValue
from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.groups_classic import (
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    ListGroupsRequest,
)
from busway_protocol.messages.metadata import (
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
    TopicRequest,
)
from busway_protocol.messages.partitions import DescribeLogDirsRequest, ElectLeadersRequest
from busway_protocol.messages.topics import DeleteTopicsRequest, DeleteTopicState
from busway_protocol.messages.transactions import InitProducerIdRequest
from busway_protocol.records.record import decode_records
from busway_protocol.types import ZERO_UUID


@pytest.fixture
async def cluster() -> AsyncIterator[LocalCluster]:
    """A node that makes its topic of offsets quickly."""
    async with LocalCluster(properties={"offsets.topic.num.partitions": "1"}) as running:
        yield running


@pytest.fixture
async def connection(cluster: LocalCluster) -> AsyncIterator[Connection]:
    """A client of the node."""
    opened = await connected(cluster)
    yield opened
    opened.close()


async def connected(cluster: LocalCluster) -> Connection:
    """One more client of the node."""
    host, _, port = cluster.bootstrap_servers.rpartition(":")
    opened = Connection(host, int(port), client_id="test", timeout_s=patient(10))
    await opened.connect()
    return opened


def about(*names: str) -> MetadataRequest:
    """A question for topics that may be made."""
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])


async def test_a_topic_is_made_behind_the_first_question(cluster: LocalCluster, connection: Connection) -> None:
    """The first answer says that it is not there; it comes without a waiting client."""
    first = await connection.request(about("t", "t", "__transaction_state", "a/b"))
    topics = {topic.name: (topic.error_code, topic.is_internal) for topic in first.topics}
    assert topics == {
        "t": (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
        "__transaction_state": (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True),
        "a/b": (ErrorCode.INVALID_TOPIC_EXCEPTION, False),
    }
    assert len(first.topics) == 3
    await cluster.node.services.creations.close()
    assert set(cluster.node.services.image.topics) == {"t"}


@pytest.mark.slow
async def test_a_partition_that_is_offline_has_no_leader(cluster: LocalCluster) -> None:
    """In both answers about partitions, with the replica that is missing; elections and log directories know it too."""
    client = await connected(cluster)
    await client.request(about("t"))
    await cluster.node.services.creations.close()
    client.close()
    async with Producer(cluster.bootstrap_servers) as producer:
        await producer.send_and_wait("t", value=b"v")
    await cluster.stop()
    file = Path(cluster.data_dir) / "t-0" / "00000000000000000000.log"
    content = file.read_bytes()
    file.write_bytes(content[:60] + b"\xff\xff\xff\xff" + content[64:])
    (Path(cluster.data_dir) / ".kafka_cleanshutdown").unlink()
    await cluster.start()
    client = await connected(cluster)
    (topic,) = (await client.request(about("t"))).topics
    (partition,) = topic.partitions
    assert (topic.error_code, partition.error_code) == (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE)
    assert (partition.leader_id, partition.replica_nodes, partition.offline_replicas) == (-1, [1], [1])
    answer = await client.request(DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")]))
    (described,) = answer.topics[0].partitions
    assert (described.error_code, described.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    for kind, code in ((0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE), (1, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)):
        elected = await client.request(ElectLeadersRequest(election_type=kind, topic_partitions=None))
        assert [result.error_code for result in elected.replica_election_results[0].partition_result] == [code]
    directories = await client.request(DescribeLogDirsRequest(topics=None))
    assert directories.results[0].topics == []
    client.close()


def join(member_id: str = "") -> JoinGroupRequest:
    """A request to join the group `g`."""
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=20_000,
        rebalance_timeout_ms=20_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


async def test_groups_end_with_the_topic_of_their_offsets(cluster: LocalCluster, connection: Connection) -> None:
    """Who waits for a rebalance has to look for the coordinator; the next who does has the topic made, and no old group."""
    await connection.request(FindCoordinatorRequest(coordinator_keys=["g"]))
    before = cluster.node.services.image.topics["__consumer_offsets"].topic_id
    known = await connection.request(join())
    await connection.request(join(known.member_id))
    other = await connected(cluster)
    second = await other.request(join())
    waiting = asyncio.ensure_future(other.request(join(second.member_id)))
    group = cluster.node.services.groups.shard("g").groups["g"]
    while len(group.members) < 2:
        await connection.request(HeartbeatRequest(group_id="g", generation_id=1, member_id=known.member_id))
    gone = DeleteTopicState(name="__consumer_offsets", topic_id=ZERO_UUID)
    answer = await connection.request(DeleteTopicsRequest(topics=[gone], timeout_ms=1000))
    assert answer.responses[0].error_code == ErrorCode.NONE
    assert (await waiting).error_code == ErrorCode.NOT_COORDINATOR
    other.close()
    heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id=known.member_id)
    assert (await connection.request(heartbeat)).error_code == ErrorCode.NOT_COORDINATOR
    assert (await connection.request(ListGroupsRequest())).groups == []
    await connection.request(FindCoordinatorRequest(coordinator_keys=["g"]))
    assert cluster.node.services.image.topics["__consumer_offsets"].topic_id != before
    described = await connection.request(DescribeGroupsRequest(groups=["g"]))
    assert described.groups[0].error_message == "Group g not found."
    assert (await connection.request(join())).error_code == ErrorCode.MEMBER_ID_REQUIRED


async def test_the_first_record_of_a_group_is_empty(cluster: LocalCluster, connection: Connection) -> None:
    """Neither a protocol type nor members, as Kafka writes it; it is there when the first member has an id."""
    await connection.request(FindCoordinatorRequest(coordinator_keys=["g"]))
    known = await connection.request(join())
    await connection.request(join(known.member_id))
    await connection.request(join(known.member_id))
    services = cluster.node.services
    stored = [
        parse(record.key, record.value)
        for partition in services.replicas.local
        for batch in partition.log.batches()
        for record in decode_records(batch)
        if record.key is not None
    ]
    first = stored[0]
    assert first is not None
    assert isinstance(first[1], GroupMetadataValue)
    assert (first[1].protocol_type, first[1].generation, first[1].members) == ("", 0, [])


async def test_a_producer_id_is_never_another_ones(cluster: LocalCluster, connection: Connection) -> None:
    """Who names an id that was given out gets a new one: the next epoch of it would fence its owner."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    owned = await connection.request(request)
    request.producer_id, request.producer_epoch = owned.producer_id, owned.producer_epoch
    other = await connection.request(request)
    assert other.producer_id != owned.producer_id
    assert other.producer_epoch == 0
