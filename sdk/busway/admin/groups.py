"""Administration of groups: members and committed offsets.

Here: `GroupsAdmin`, a base of `Admin`, for both group protocols.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from busway.cluster.client import ClusterClient
from busway.cluster.coordinator import ask_coordinator
from busway.errors import BrokerError, UnsupportedByBroker
from busway.types import OffsetAndMetadata, TopicPartition
from busway_protocol.assignors.consumer_protocol import PROTOCOL_TYPE, decode_assignment
from busway_protocol.errors import ErrorCode, ProtocolError, error_for
from busway_protocol.messages.groups_classic import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    MemberIdentity,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
)
from busway_protocol.messages.groups_modern import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedAssignment,
)

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
_OF_ANOTHER_KIND: Final = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})
"""The second is of a coordinator without consumer groups."""


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group in a list; `kind` is classic, consumer (KIP-848) or another."""

    group_id: str
    state: str
    protocol_type: str
    kind: str = CLASSIC


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member with its partitions.

    Attributes:
        instance_id: of a static member.
        kind: its group protocol.
        epoch: of the member; -1 in a classic group.
        target: its target assignment; `partitions` in a classic group.
    """

    member_id: str
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]
    instance_id: str | None = None
    kind: str = CLASSIC
    epoch: int = -1
    target: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group with its members.

    Attributes:
        protocol: the leader's strategy, or the coordinator's assignor.
        kind: as in `GroupListing`.
        epoch, assignment_epoch: of the group and its target assignment; -1 in a classic group.
    """

    group_id: str
    state: str
    protocol: str
    members: tuple[GroupMember, ...]
    kind: str = CLASSIC
    epoch: int = -1
    assignment_epoch: int = -1


class GroupsAdmin:
    _cluster: ClusterClient

    async def list_groups(self) -> list[GroupListing]:
        """Return the groups of all brokers."""
        await self._cluster.refresh()
        groups = []
        for node_id in self._cluster.metadata.brokers:
            answer = await self._cluster.ask_node(node_id, ListGroupsRequest())
            _check(answer.error_code, "listing groups")
            groups += [
                GroupListing(
                    group.group_id, group.group_state, group.protocol_type, group.group_type.lower() or CLASSIC
                )
                for group in answer.groups
            ]
        return sorted(groups, key=lambda group: group.group_id)

    async def describe_group(self, group_id: str) -> GroupDescription:
        """Return a group with its members; raise `BrokerError` if it does not exist or is refused."""
        return await self._describe_modern(group_id) or await self._describe_classic(group_id)

    async def _describe_modern(self, group_id: str) -> GroupDescription | None:
        request = ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
        try:
            answer: ConsumerGroupDescribeResponse = await self._ask_coordinator(group_id, request)
        except UnsupportedByBroker:
            return None
        (group,) = answer.groups
        if error_for(group.error_code) in _OF_ANOTHER_KIND:
            return None
        _check(group.error_code, f"group {group_id}", group.error_message)
        return GroupDescription(
            group_id,
            group.group_state,
            group.assignor_name,
            tuple(
                GroupMember(
                    member.member_id,
                    member.client_id,
                    member.client_host,
                    _described(member.assignment),
                    member.instance_id,
                    CLASSIC if member.member_type == 0 else CONSUMER,
                    member.member_epoch,
                    _described(member.target_assignment),
                )
                for member in group.members
            ),
            CONSUMER,
            group.group_epoch,
            group.assignment_epoch,
        )

    async def _describe_classic(self, group_id: str) -> GroupDescription:
        answer = await self._ask_coordinator(group_id, DescribeGroupsRequest(groups=[group_id]))
        (group,) = answer.groups
        _check(group.error_code, f"group {group_id}")
        if group.group_state == "Dead":
            raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id}")
        members = []
        for member in group.members:
            partitions = _partitions(group.protocol_type, member.member_assignment)
            members.append(
                GroupMember(
                    member.member_id,
                    member.client_id,
                    member.client_host,
                    partitions,
                    member.group_instance_id,
                    target=partitions,
                )
            )
        return GroupDescription(group_id, group.group_state, group.protocol_data, tuple(members))

    async def list_group_offsets(self, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return all committed offsets of a group."""
        answer = await self._ask_coordinator(group_id, OffsetFetchRequest(group_id=group_id, topics=None), at_most=7)
        _check(answer.error_code, f"group {group_id}")
        return {
            TopicPartition(topic.name, partition.partition_index): OffsetAndMetadata(
                partition.committed_offset, partition.metadata or "", partition.committed_leader_epoch
            )
            for topic in answer.topics
            for partition in topic.partitions
            if partition.committed_offset >= 0
        }

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]
    ) -> None:
        """Set committed offsets of a group without members."""
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for partition, offset in offsets.items():
            committed = OffsetAndMetadata(offset) if isinstance(offset, int) else offset
            topic = topics.setdefault(partition.topic, OffsetCommitRequestTopic(name=partition.topic, partitions=[]))
            topic.partitions.append(
                OffsetCommitRequestPartition(
                    partition_index=partition.partition,
                    committed_offset=committed.offset,
                    committed_metadata=committed.metadata,
                )
            )
        request = OffsetCommitRequest(
            group_id=group_id, generation_id_or_member_epoch=-1, member_id="", topics=list(topics.values())
        )
        answer = await self._ask_coordinator(group_id, request, at_most=8)
        for topic_answer in answer.topics:
            for entry in topic_answer.partitions:
                if entry.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                    raise BrokerError(
                        ErrorCode.NON_EMPTY_GROUP, f"group {group_id}", "stop its members before moving its offsets"
                    )
                _check(entry.error_code, f"{topic_answer.name}-{entry.partition_index} of group {group_id}")

    async def delete_group_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete committed offsets."""
        topics: dict[str, OffsetDeleteRequestTopic] = {}
        for partition in partitions:
            topic = topics.setdefault(partition.topic, OffsetDeleteRequestTopic(name=partition.topic, partitions=[]))
            topic.partitions.append(OffsetDeleteRequestPartition(partition_index=partition.partition))
        answer = await self._ask_coordinator(
            group_id, OffsetDeleteRequest(group_id=group_id, topics=list(topics.values()))
        )
        _check(answer.error_code, f"group {group_id}")
        for topic_answer in answer.topics:
            for entry in topic_answer.partitions:
                _check(entry.error_code, f"{topic_answer.name}-{entry.partition_index} of group {group_id}")

    async def delete_groups(self, group_ids: Sequence[str]) -> None:
        """Delete groups without members, with their offsets."""
        for group_id in group_ids:
            answer = await self._ask_coordinator(group_id, DeleteGroupsRequest(groups_names=[group_id]))
            for result in answer.results:
                _check(result.error_code, f"group {result.group_id}")

    async def remove_members(self, group_id: str, member_ids: Iterable[str]) -> None:
        """Remove members (KIP-345), such as those of killed processes.

        Their partitions are reassigned at once, not at the session timeout. Unknown members are skipped.

        Raises:
            BrokerError: the group is refused.
        """
        members = [
            MemberIdentity(member_id=member_id, reason="removed by an administrator") for member_id in member_ids
        ]
        answer = await self._ask_coordinator(group_id, LeaveGroupRequest(group_id=group_id, members=members))
        _check(answer.error_code, f"group {group_id}")
        for member in answer.members:
            if error_for(member.error_code) is not ErrorCode.UNKNOWN_MEMBER_ID:
                _check(member.error_code, f"member {member.member_id} of group {group_id}")

    async def _ask_coordinator(self, group_id: str, message: Any, *, at_most: int | None = None) -> Any:
        return await ask_coordinator(self._cluster, group_id, message, at_most=at_most)


def _described(assignment: DescribedAssignment) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.topic_name, partition_index)
        for topic in assignment.topic_partitions
        for partition_index in topic.partitions
    )


def _partitions(protocol_type: str, assignment: bytes) -> tuple[TopicPartition, ...]:
    if protocol_type != PROTOCOL_TYPE or not assignment:
        return ()
    try:
        return tuple(TopicPartition(*partition) for partition in decode_assignment(assignment))
    except ProtocolError:
        return ()


def _check(error_code: int, what: str, text: str | None = None) -> None:
    code = error_for(error_code)
    if code is not ErrorCode.NONE:
        raise BrokerError(code, what, text)
