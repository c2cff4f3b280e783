"""The state of a share group (KIP-932), as its records make it.

Here: members, share partitions, sessions.
Not here: the base (`modern.group`), heartbeats (`heartbeat`), changes of share partitions (`partitions`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from busway_bus.groups.group import Committer, GroupKind, PlaceCheck
from busway_bus.groups.memory_quota import GroupMemory
from busway_bus.groups.modern.group import Assignment, ModernGroup, ModernMember, assignment_bytes
from busway_bus.groups.modern.topics import Topics
from busway_bus.groups.offsets import CommittedOffset
from busway_bus.groups.records import Change, Key, Value
from busway_bus.groups.share.records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    TopicPartition,
    TopicPartitions,
    TopicPartitionsInfo,
)
from busway_bus.kernel.decision import Decision
from busway_protocol.errors import ErrorCode, KafkaError

PROTOCOL_TYPE: Final = "share"
FIRST_EPOCH: Final = 1
"""The epoch of a group that no member has joined yet."""
STABLE: Final = 0
"""A member's only state: it has its epoch's target assignment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareMember(ModernMember):
    assigned: Assignment = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        return super(ShareMember, self).size_bytes + assignment_bytes(self.assigned)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedPartitions:
    name: str
    partitions: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePartitions:
    """Share partitions by topic.

    Attributes:
        initializing: requested from the share coordinator.
        initialized: assignable to members.
        deleting: names of topics whose deletion was requested.
        written_ms: of the record, or of its replay.
    """

    initializing: Mapping[UUID, NamedPartitions] = field(default_factory=dict)
    initialized: Mapping[UUID, NamedPartitions] = field(default_factory=dict)
    deleting: Mapping[UUID, str] = field(default_factory=dict)
    written_ms: int = 0


class ShareGroup(ModernGroup[ShareMember]):
    """A share group.

    Attributes:
        seen: the topics' image last compared with the group.
    """

    kind = GroupKind.SHARE

    def __init__(self, group_id: str, memory: GroupMemory, topics: Topics, session_ms: Callable[[], int]) -> None:
        super().__init__(group_id, memory)
        self.epoch = self.target_epoch = FIRST_EPOCH
        self.topics = topics
        self._session_ms = session_ms
        self.partitions = SharePartitions()
        self.seen: object = None

    @property
    def state_name(self) -> str:
        """Empty or Stable."""
        if self.over:
            return "Dead"
        return "Stable" if self.members else "Empty"

    @property
    def listed_type(self) -> str:
        return PROTOCOL_TYPE

    @property
    def unused(self) -> bool:
        """Never: only an explicit request deletes the group."""
        return False

    # Records

    def apply(self, key: Key, value: Value | None, now: int) -> None:
        _APPLY[type(key)](self, key, value, now)

    def _apply_group(self, key: Any, value: ShareGroupMetadataValue | None, now: int) -> None:
        if value is None:
            self.over = True
        else:
            self.epoch, self.metadata_hash = value.epoch, value.metadata_hash

    def _apply_member(self, key: Any, value: ShareGroupMemberMetadataValue | None, now: int) -> None:
        before = self.members.get(key.member_id)
        if value is None:
            self.drop_member(key.member_id)
            return
        member = before or ShareMember(member_id=key.member_id)
        self._put(
            ShareMember(
                member_id=key.member_id,
                rack_id=value.rack_id,
                client_id=value.client_id,
                client_host=value.client_host,
                topics=frozenset(value.subscribed_topic_names),
                epoch=member.epoch,
                previous_epoch=member.previous_epoch,
                assigned=member.assigned,
            ),
            now,
        )

    def _apply_assignment(self, key: Any, value: ShareGroupCurrentMemberAssignmentValue | None, now: int) -> None:
        before = self.members.get(key.member_id)
        if value is None:
            return  # the tombstone of the member's metadata follows
        member = before or ShareMember(member_id=key.member_id)
        self._put(
            ShareMember(
                member_id=key.member_id,
                rack_id=member.rack_id,
                client_id=member.client_id,
                client_host=member.client_host,
                topics=member.topics,
                epoch=value.member_epoch,
                previous_epoch=value.previous_member_epoch,
                assigned=_assignment(value.assigned_partitions),
            ),
            now,
        )

    def _put(self, member: ShareMember, now: int) -> None:
        is_new = member.member_id not in self.members
        self.put_member(member)
        if is_new:
            self.touch(member.member_id, now + self._session_ms())

    def _apply_target_metadata(self, key: Any, value: Any, now: int) -> None:
        if value is not None:
            self.target_computed(value.assignment_epoch, value.assignment_timestamp)

    def _apply_target(self, key: Any, value: ShareGroupTargetAssignmentMemberValue | None, now: int) -> None:
        if value is None:
            self.drop_target(key.member_id)
        else:
            self.put_target(key.member_id, _assignment(value.topic_partitions))

    def _apply_partitions(self, key: Any, value: ShareGroupStatePartitionMetadataValue | None, now: int) -> None:
        if value is None:
            self.partitions = SharePartitions()
            return
        self.partitions = SharePartitions(
            initializing=_named(value.initializing_topics),
            initialized=_named(value.initialized_topics),
            deleting={topic.topic_id: topic.topic_name for topic in value.deleting_topics},
            written_ms=now,
        )

    def member_tombstones(self, member_id: str) -> tuple[Change, ...]:
        names = {"group_id": self.group_id, "member_id": member_id}
        return (
            (ShareGroupCurrentMemberAssignmentKey(**names), None),
            (ShareGroupTargetAssignmentMemberKey(**names), None),
            (ShareGroupMemberMetadataKey(**names), None),
        )

    def tombstones(self) -> tuple[Change, ...]:
        return (
            *(change for member_id in self.members for change in self.member_tombstones(member_id)),
            (ShareGroupTargetAssignmentMetadataKey(group_id=self.group_id), None),
            (ShareGroupStatePartitionMetadataKey(group_id=self.group_id), None),
            (ShareGroupMetadataKey(group_id=self.group_id), None),
        )

    def epoch_record(self, epoch: int, metadata_hash: int) -> Change:
        value = ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
        return ShareGroupMetadataKey(group_id=self.group_id), value

    def left(self, member_ids: list[str]) -> tuple[Change, ...]:
        """Return the records that remove members.

        The next heartbeat computes a target assignment.
        """
        gone = set(member_ids)
        names = {name for member in self.members.values() if member.member_id not in gone for name in member.topics}
        out = [change for member_id in member_ids for change in self.member_tombstones(member_id)]
        return (*out, self.epoch_record(self.epoch + 1, self.topics.hash_of(names)))

    # Time

    def next_deadline(self) -> int | None:
        return self.next_expiry()

    def tick(self, now: int) -> Decision[None]:
        gone = [member_id for member_id in self.expired(now) if member_id in self.members]
        return Decision(records=self.left(gone) if gone else (), reply=None)

    # Offsets, which share groups do not commit

    def check_commit(self, committer: Committer, now: int) -> PlaceCheck | None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"{self.group_id} is a share group, which commits no offsets")

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Allow the fetch: without offsets it is no error, as in Kafka."""

    def check_offset_delete(self) -> None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"{self.group_id} is a share group, which commits no offsets")

    def ages_from(self, topic: str, committed: CommittedOffset) -> int | None:
        return None


_APPLY: Final[dict[type[Any], Callable[[ShareGroup, Any, Any, int], None]]] = {
    ShareGroupMemberMetadataKey: ShareGroup._apply_member,
    ShareGroupMetadataKey: ShareGroup._apply_group,
    ShareGroupTargetAssignmentMetadataKey: ShareGroup._apply_target_metadata,
    ShareGroupTargetAssignmentMemberKey: ShareGroup._apply_target,
    ShareGroupCurrentMemberAssignmentKey: ShareGroup._apply_assignment,
    ShareGroupStatePartitionMetadataKey: ShareGroup._apply_partitions,
}


def _assignment(topics: list[TopicPartition] | list[TopicPartitions]) -> Assignment:
    return {topic.topic_id: tuple(sorted(topic.partitions)) for topic in topics if topic.partitions}


def _named(topics: list[TopicPartitionsInfo]) -> dict[UUID, NamedPartitions]:
    return {
        topic.topic_id: NamedPartitions(name=topic.topic_name, partitions=frozenset(topic.partitions))
        for topic in topics
    }
