"""Who names the same thing again and again gets it once: the answer does not grow beyond what there is."""

from typing import Any

import pytest
from tests.support.raw_client import RawClient

from busway_bus.handlers.common.response_room import LargeAnswers
from busway_bus.testing.local_cluster import LocalCluster
from busway_protocol.errors import ErrorCode
from busway_protocol.messages.groups_classic import (
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from busway_protocol.messages.groups_modern import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from busway_protocol.messages.share_groups import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
)
from busway_protocol.messages.transactions import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    TopicRequest,
)

NAMES = ["a", "b", "a", "a"]


async def coordinators(client: RawClient) -> None:
    """Have them made."""
    for key_type in (0, 1):
        await client.ask(FindCoordinatorRequest(key="a", key_type=key_type), 2)


@pytest.mark.parametrize(
    ("message", "version", "rows"),
    [
        (DescribeGroupsRequest(groups=NAMES), 5, lambda answer: [row.group_id for row in answer.groups]),
        (DescribeGroupsRequest(groups=NAMES * 50), 5, lambda answer: [row.group_id for row in answer.groups]),
        (
            ConsumerGroupDescribeRequest(group_ids=NAMES, include_authorized_operations=False),
            1,
            lambda answer: [row.group_id for row in answer.groups],
        ),
        (
            ShareGroupDescribeRequest(group_ids=NAMES, include_authorized_operations=False),
            1,
            lambda answer: [row.group_id for row in answer.groups],
        ),
        (
            DescribeShareGroupOffsetsRequest(
                groups=[DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=None) for name in NAMES]
            ),
            1,
            lambda answer: [row.group_id for row in answer.groups],
        ),
        (
            DescribeShareGroupOffsetsRequest(
                groups=[
                    DescribeShareGroupOffsetsRequestGroup(
                        group_id="a",
                        topics=[
                            DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=[0, 0]) for name in NAMES
                        ],
                    )
                ]
            ),
            1,
            lambda answer: [
                topic.topic_name for row in answer.groups for topic in row.topics for _ in topic.partitions
            ],
        ),
        (
            DescribeTransactionsRequest(transactional_ids=NAMES),
            0,
            lambda answer: [row.transactional_id for row in answer.transaction_states],
        ),
        (
            DescribeProducersRequest(topics=[TopicRequest(name=name, partition_indexes=[0, 0]) for name in NAMES]),
            0,
            lambda answer: [topic.name for topic in answer.topics for _ in topic.partitions],
        ),
    ],
    ids=[
        "groups",
        "many groups",
        "consumer groups",
        "share groups",
        "all share offsets",
        "share offsets",
        "transactions",
        "producers",
    ],
)
async def test_what_is_named_again_is_answered_once(
    cluster: LocalCluster, message: Any, version: int, rows: Any
) -> None:
    """Four names, three of them the same: two rows, in the order in which they were named first."""
    async with RawClient(cluster.bootstrap_servers) as client:
        await coordinators(client)
        assert rows(await client.ask(message, version)) == ["a", "b"]


@pytest.mark.parametrize("count", [1, 1_000], ids=["few", "many"])
async def test_an_offset_that_is_asked_for_again_is_told_once(cluster: LocalCluster, count: int) -> None:
    """A topic twice, and each of its partitions several times, in one version with one group and one with many."""
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0, 0, 1] * count)] * 2
    many = [OffsetFetchRequestTopics(name="t", partition_indexes=[0, 0, 1] * count)] * 2
    group = OffsetFetchRequestGroup(group_id="a", topics=many)
    async with RawClient(cluster.bootstrap_servers) as client:
        await coordinators(client)
        answer = await client.ask(OffsetFetchRequest(group_id="a", topics=topics), 7)
        assert [row.partition_index for row in answer.topics[0].partitions] == [0, 1]
        assert len(answer.topics) == 1
        answer = await client.ask(OffsetFetchRequest(groups=[group]), 8)
        assert [row.partition_index for row in answer.groups[0].topics[0].partitions] == [0, 1]
        assert len(answer.groups[0].topics) == 1


async def test_what_does_not_fit_into_an_answer_is_to_be_asked_for_again(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Room for one row: the first is returned as it is, the others are refused with what clients retry."""
    monkeypatch.setattr("busway_bus.handlers.common.response_room.AnswerRoom.__init__.__defaults__", (1,))
    async with RawClient(cluster.bootstrap_servers) as client:
        await coordinators(client)
        groups = await client.ask(DescribeGroupsRequest(groups=["a", "b"]), 5)
        assert [row.error_code for row in groups.groups] == [ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
        asked = [
            OffsetFetchRequestGroup(group_id=name, topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0])])
            for name in ("a", "b")
        ]
        offsets = await client.ask(OffsetFetchRequest(groups=asked), 8)
        assert [row.error_code for row in offsets.groups] == [ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]


async def test_a_group_of_many_members_is_described_in_turns(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thirty members of a consumer group and of a share group are too many for one go; a group of one is not."""
    begun: list[str] = []
    begin = LargeAnswers.begin

    async def noted(self: LargeAnswers, host: str) -> None:
        begun.append(host)
        await begin(self, host)

    monkeypatch.setattr(LargeAnswers, "begin", noted)
    async with RawClient(cluster.bootstrap_servers) as client:
        await coordinators(client)
        for group, count in (("few", 1), ("many", 30)):
            for number in range(count):
                member_id = f"member-{number}"
                joined = await client.ask(
                    ConsumerGroupHeartbeatRequest(
                        group_id=group,
                        member_id=member_id,
                        member_epoch=0,
                        rebalance_timeout_ms=60_000,
                        subscribed_topic_names=["t"],
                        topic_partitions=[],
                    ),
                    1,
                )
                shared = await client.ask(
                    ShareGroupHeartbeatRequest(
                        group_id=f"share-{group}", member_id=member_id, member_epoch=0, subscribed_topic_names=["t"]
                    ),
                    1,
                )
                assert joined.error_code == shared.error_code == ErrorCode.NONE
        for group, count in (("few", 1), ("many", 30)):
            for request, version in (
                (ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=True), 1),
                (ShareGroupDescribeRequest(group_ids=[f"share-{group}"], include_authorized_operations=True), 1),
            ):
                begun.clear()
                (described,) = (await client.ask(request, version)).groups
                assert described.error_code == ErrorCode.NONE
                assert len(described.members) == count
                assert described.authorized_operations > 0
                assert bool(begun) == (count > 1)
