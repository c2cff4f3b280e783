"""Committing and asking for offsets, as requests.

What lives here: both requests in the versions that each group protocol needs, and reading their answers. What does not: trying again
(`offsets`).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from busway.consumer.membership import Membership
from busway.types import OffsetAndMetadata, TopicPartition
from busway_protocol.messages.groups_classic import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)


@dataclass(frozen=True, slots=True)
class OffsetVersions:
    """The highest versions that are used.

    Attributes:
        fetch: up to 7 about one group and for anybody; above, in the name of the member, whose epoch is checked.
        commit: from 9 on a member learns that its epoch is a stale one (KIP-848).
    """

    fetch: int
    commit: int


CLASSIC: Final = OffsetVersions(fetch=7, commit=8)
MODERN: Final = OffsetVersions(fetch=9, commit=9)
"""After these, topics go by id."""


def fetch_request(
    group: str, membership: Membership, versions: OffsetVersions, partitions: Iterable[TopicPartition], *, stable: bool
) -> OffsetFetchRequest:
    """Asks for what a group has committed."""
    numbers: dict[str, list[int]] = {}
    for topic, number in partitions:
        numbers.setdefault(topic, []).append(number)
    if versions.fetch <= CLASSIC.fetch:
        topics = [OffsetFetchRequestTopic(name=name, partition_indexes=asked) for name, asked in numbers.items()]
        return OffsetFetchRequest(group_id=group, topics=topics, require_stable=stable)
    joined = membership.generation > 0
    asked_group = OffsetFetchRequestGroup(
        group_id=group,
        member_id=membership.member_id if joined else None,
        member_epoch=membership.generation if joined else -1,
        topics=[OffsetFetchRequestTopics(name=name, partition_indexes=asked) for name, asked in numbers.items()],
    )
    return OffsetFetchRequest(groups=[asked_group], require_stable=stable)


def fetched(answer: OffsetFetchResponse, versions: OffsetVersions) -> Iterator[tuple[int, TopicPartition | None, Any]]:
    """The error codes of an answer: of the group, then of each partition with what is told of it."""
    whole: Any = answer if versions.fetch <= CLASSIC.fetch else answer.groups[0]
    yield whole.error_code, None, None
    for topic in whole.topics:
        for partition in topic.partitions:
            yield partition.error_code, TopicPartition(topic.name, partition.partition_index), partition


def commit_request(
    group: str, membership: Membership, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> OffsetCommitRequest:
    """Commits offsets in a member's name."""
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for partition, offset in offsets.items():
        topic = topics.setdefault(partition.topic, OffsetCommitRequestTopic(name=partition.topic, partitions=[]))
        topic.partitions.append(
            OffsetCommitRequestPartition(
                partition_index=partition.partition,
                committed_offset=offset.offset,
                committed_leader_epoch=offset.leader_epoch,
                committed_metadata=offset.metadata,
            )
        )
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=membership.generation,
        member_id=membership.member_id,
        group_instance_id=membership.instance_id,
        topics=list(topics.values()),
    )
