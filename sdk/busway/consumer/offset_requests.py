"""Requests to commit and fetch offsets, and their responses.

Not here: retries (`offsets`).
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
    """Highest versions in use.

    Attributes:
        fetch: up to 7 for one group without a member; above, with a checked member epoch.
        commit: from 9 on, a stale member epoch is reported (KIP-848).
    """

    fetch: int
    commit: int


CLASSIC: Final = OffsetVersions(fetch=7, commit=8)
MODERN: Final = OffsetVersions(fetch=9, commit=9)
"""Later versions have topic ids."""


def fetch_request(
    group: str, membership: Membership, versions: OffsetVersions, partitions: Iterable[TopicPartition], *, stable: bool
) -> OffsetFetchRequest:
    partition_indexes: dict[str, list[int]] = {}
    for topic, partition_index in partitions:
        partition_indexes.setdefault(topic, []).append(partition_index)
    if versions.fetch <= CLASSIC.fetch:
        topics = [
            OffsetFetchRequestTopic(name=name, partition_indexes=asked) for name, asked in partition_indexes.items()
        ]
        return OffsetFetchRequest(group_id=group, topics=topics, require_stable=stable)
    joined = membership.generation > 0
    asked_group = OffsetFetchRequestGroup(
        group_id=group,
        member_id=membership.member_id if joined else None,
        member_epoch=membership.generation if joined else -1,
        topics=[
            OffsetFetchRequestTopics(name=name, partition_indexes=asked) for name, asked in partition_indexes.items()
        ],
    )
    return OffsetFetchRequest(groups=[asked_group], require_stable=stable)


def fetched(answer: OffsetFetchResponse, versions: OffsetVersions) -> Iterator[tuple[int, TopicPartition | None, Any]]:
    whole: Any = answer if versions.fetch <= CLASSIC.fetch else answer.groups[0]
    yield whole.error_code, None, None
    for topic in whole.topics:
        for partition in topic.partitions:
            yield partition.error_code, TopicPartition(topic.name, partition.partition_index), partition


def commit_request(
    group: str, membership: Membership, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> OffsetCommitRequest:
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
