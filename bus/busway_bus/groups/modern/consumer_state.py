"""The state of a consumer group (KIP-848), as its records make it.

Here: applying records, overdue members, checks of offset operations.
Not here: the base (`group`), operations (`consumer_group`).
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from busway_bus.groups.group import Committer, GroupKind, PlaceCheck
from busway_bus.groups.member_timeouts import MemberTimeouts
from busway_bus.groups.memory_quota import GroupMemory
from busway_bus.groups.modern.consumer_member import STATIC_LEAVE_EPOCH, ConsumerMember, MemberState
from busway_bus.groups.modern.group import Assignment, ModernGroup
from busway_bus.groups.modern.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    TargetTopicPartitions,
)
from busway_bus.groups.modern.requests import GroupSettings
from busway_bus.groups.names import SharedNames
from busway_bus.groups.offsets import CommittedOffset
from busway_bus.groups.records import Change, Key, Value
from busway_protocol.assignors.consumer_protocol import PROTOCOL_TYPE
from busway_protocol.errors import ErrorCode, KafkaError

EPOCHS_SINCE: Final = 9
"""First version of OffsetCommit with the member epoch."""
REMOVED: Final = -1
"""The epoch of a removed target assignment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """The matches of a regular expression.

    Attributes:
        version: of the searched image.
        timestamp_ms: of the resolution.
    """

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class ConsumerView(ModernGroup[ConsumerMember]):
    """A consumer group without its operations.

    Attributes:
        regexes: number of subscribers by regular expression.
        resolved: matches by regular expression.
        by_regex: number of regular expressions that match a topic.
        matches: matching names, charged to no host: a host's bytes would depend on the order of additions.
        assignors: number of members that prefer each.
        by_protocol: number of classic members by supported protocol.
        owners: member ids by topic id and partition.
        old_metadata: a record from Kafka before 4.1 exists.
    """

    kind = GroupKind.CONSUMER

    def __init__(self, group_id: str, memory: GroupMemory, settings: Callable[[str], GroupSettings]) -> None:
        super().__init__(group_id, memory)
        self._settings = settings
        self.regexes: Counter[str] = Counter()
        self.resolved: dict[str, Resolved] = {}
        self.by_regex: Counter[str] = Counter()
        self.matches = SharedNames(self._usage)
        self.assignors: Counter[str] = Counter()
        self.owners: dict[UUID, dict[int, str]] = {}
        self.classic_members = 0
        self.by_protocol: Counter[str] = Counter()
        self.old_metadata = False
        self._revocations = MemberTimeouts()

    @property
    def settings(self) -> GroupSettings:
        return self._settings(self.group_id)

    @property
    def listed_type(self) -> str:
        return PROTOCOL_TYPE

    def reads(self, topic: str) -> bool:
        return super().reads(topic) or topic in self.by_regex

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        resolution = self.resolved.get(member.regex or "")
        if resolution is None:
            return member.topics
        return member.topics | resolution.topics if member.topics else resolution.topics

    # Records

    def apply(self, key: Key, value: Value | None, now: int) -> None:
        _APPLY[type(key)](self, key, value, now)

    def _apply_group(self, key: Any, value: ConsumerGroupMetadataValue | None, now: int) -> None:
        if value is None:
            self.over = True
        else:
            self.epoch, self.metadata_hash = value.epoch, value.metadata_hash

    def _apply_old_metadata(self, key: Any, value: Any, now: int) -> None:
        self.old_metadata = value is not None

    def _apply_member(self, key: Any, value: Any, now: int) -> None:
        before = self.members.get(key.member_id)
        if value is not None:
            self._replace(before, (before or ConsumerMember(member_id=key.member_id)).with_metadata(value), now)
        elif before is not None:
            self._count(before, -1)
            self._disown(before)
            self._revocations.discard(key.member_id)
            self.drop_member(key.member_id)

    def _apply_assignment(self, key: Any, value: Any, now: int) -> None:
        before = self.members.get(key.member_id)
        if value is None and before is None:
            return
        self._replace(before, (before or ConsumerMember(member_id=key.member_id)).with_assignment(value), now)

    def _replace(self, before: ConsumerMember | None, member: ConsumerMember, now: int) -> None:
        if before is not None:
            self._count(before, -1)
            self._disown(before)
        self._count(member, 1)
        for held in (member.assigned, member.revoking):
            for topic_id, partitions in held.items():
                self.owners.setdefault(topic_id, {}).update(dict.fromkeys(partitions, member.member_id))
        self.put_member(member)
        other_protocol = before is not None and (before.classic is None) is not (member.classic is None)
        if other_protocol or not self.has_session(member.member_id):
            self.touch(member.member_id, now + self.session_timeout_ms(member))
        self._watch_revocation(before, member, now)

    def session_timeout_ms(self, member: ConsumerMember) -> int:
        return self.settings.session_timeout_ms if member.classic is None else member.classic.session_timeout_ms

    def _count(self, member: ConsumerMember, by: int) -> None:
        if member.classic is not None:
            self.classic_members += by
            for supported in {protocol.name for protocol in member.classic.supported_protocols}:
                self.by_protocol[supported] += by
                if self.by_protocol[supported] <= 0:
                    del self.by_protocol[supported]
        for counter, name in ((self.regexes, member.regex), (self.assignors, member.assignor)):
            if name:
                counter[name] += by
                if counter[name] <= 0:
                    del counter[name]

    def _disown(self, member: ConsumerMember) -> None:
        for held in (member.assigned, member.revoking):
            for topic_id, partitions in held.items():
                owners = self.owners.get(topic_id, {})
                for partition in partitions:
                    if owners.get(partition) == member.member_id:
                        del owners[partition]
                if not owners:
                    self.owners.pop(topic_id, None)

    def _watch_revocation(self, before: ConsumerMember | None, member: ConsumerMember, now: int) -> None:
        """Start or stop a member's revocation timeout.

        It is the rebalance timeout, from the notification on. Classic members have other timeouts; a static member that
        left temporarily has only its session's.
        """
        left = member.epoch == STATIC_LEAVE_EPOCH
        if member.state is not MemberState.UNREVOKED or member.classic is not None or left:
            self._revocations.discard(member.member_id)
            return
        notified = (member.epoch, member.revoking, member.rebalance_timeout_ms)
        if before is None or (before.epoch, before.revoking, before.rebalance_timeout_ms) != notified:
            self._revocations.put(member.member_id, now + max(member.rebalance_timeout_ms, 0))

    def _apply_target_metadata(self, key: Any, value: Any, now: int) -> None:
        if value is None:
            self.target_computed(REMOVED, 0)
        else:
            self.target_computed(value.assignment_epoch, value.assignment_timestamp)

    def _apply_target(self, key: Any, value: ConsumerGroupTargetAssignmentMemberValue | None, now: int) -> None:
        if value is None:
            self.drop_target(key.member_id)
        else:
            target = {topic.topic_id: tuple(topic.partitions) for topic in value.topic_partitions if topic.partitions}
            self.put_target(key.member_id, target)

    def _apply_regex(self, key: Any, value: Any, now: int) -> None:
        before = self.resolved.pop(key.regular_expression, None)
        if value is not None:
            topics = self.matches.take(frozenset(value.topics))
            resolved = Resolved(topics=topics, version=value.version, timestamp_ms=value.timestamp)
            self.resolved[key.regular_expression] = resolved
            self.by_regex.update(topics)
        if before is not None:
            self.matches.give_back(before.topics)
            self.by_regex.subtract(before.topics)
            for topic in before.topics:
                if self.by_regex[topic] <= 0:
                    del self.by_regex[topic]

    def member_tombstones(self, member_id: str) -> tuple[Change, ...]:
        key = {"group_id": self.group_id, "member_id": member_id}
        return (
            (ConsumerGroupCurrentMemberAssignmentKey(**key), None),
            (ConsumerGroupTargetAssignmentMemberKey(**key), None),
            (ConsumerGroupMemberMetadataKey(**key), None),
        )

    def tombstones(self) -> tuple[Change, ...]:
        return (
            *(change for member_id in self.members for change in self.member_tombstones(member_id)),
            (ConsumerGroupTargetAssignmentMetadataKey(group_id=self.group_id), None),
            *(
                (ConsumerGroupRegularExpressionKey(group_id=self.group_id, regular_expression=regex), None)
                for regex in self.resolved
            ),
            (ConsumerGroupPartitionMetadataKey(group_id=self.group_id), None),
            (ConsumerGroupMetadataKey(group_id=self.group_id), None),
        )

    # Time

    def next_deadline(self) -> int | None:
        moments = (self.next_expiry(), self._revocations.earliest())
        return min((moment for moment in moments if moment is not None), default=None)

    def overdue(self, now: int) -> list[str]:
        late = dict.fromkeys([*self.expired(now), *self._revocations.late(now, self.members)])
        return [member_id for member_id in late if member_id in self.members]

    # Offsets

    def check_commit(self, committer: Committer, now: int) -> PlaceCheck | None:
        """Check that offsets may be committed.

        A member may commit in its epoch, and in an earlier one for partitions owned since: the returned function checks
        these. Any client may commit to an empty group.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH (ILLEGAL_GENERATION in a transaction or for a classic
                member), UNSUPPORTED_VERSION.
        """
        if committer.epoch < 0 and self.empty:
            return None
        unnamed = not committer.member_id and committer.instance_id is None
        if committer.transactional and committer.epoch == -1 and unnamed:
            return None
        member = self._member(committer.member_id)
        if not committer.transactional and member.classic is None and committer.version < EPOCHS_SINCE:
            text = "OffsetCommit version 9 or above must be used by members using the consumer group protocol"
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, text)
        if committer.epoch == member.epoch:
            return None
        old_words = committer.transactional or member.classic is not None
        stale = ErrorCode.ILLEGAL_GENERATION if old_words else ErrorCode.STALE_MEMBER_EPOCH
        if committer.epoch > member.epoch:
            text = f"Received member epoch {committer.epoch} is newer than current member epoch {member.epoch}."
            raise KafkaError(stale, text)

        def check(topic: str, topic_id: UUID, partition: int) -> None:
            since = member.owns_since(topic_id, partition)
            if since is None or committer.epoch < since:
                raise KafkaError(stale, f"{topic}-{partition} is not the member's in epoch {committer.epoch}")

        return check

    def _member(self, member_id: str) -> ConsumerMember:
        member = self.members.get(member_id)
        if member is None:
            text = f"Member {member_id} is not a member of group {self.group_id}."
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, text)
        return member

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        if member_id is None and epoch < 0:
            return
        member = self._member(member_id or "")
        if member.epoch != epoch:
            code = ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
            raise KafkaError(code, f"member {member_id} is in epoch {member.epoch}, not {epoch}")

    def check_offset_delete(self) -> None:
        """Allow deletion of offsets; `reads` protects subscribed topics."""

    def ages_from(self, topic: str, committed: CommittedOffset) -> int | None:
        """Return the commit time; None while subscribed."""
        return None if self.reads(topic) else committed.commit_timestamp_ms


_APPLY: Final[dict[type[Any], Callable[[ConsumerView, Any, Any, int], None]]] = {
    ConsumerGroupMetadataKey: ConsumerView._apply_group,
    ConsumerGroupPartitionMetadataKey: ConsumerView._apply_old_metadata,
    ConsumerGroupMemberMetadataKey: ConsumerView._apply_member,
    ConsumerGroupCurrentMemberAssignmentKey: ConsumerView._apply_assignment,
    ConsumerGroupTargetAssignmentMetadataKey: ConsumerView._apply_target_metadata,
    ConsumerGroupTargetAssignmentMemberKey: ConsumerView._apply_target,
    ConsumerGroupRegularExpressionKey: ConsumerView._apply_regex,
}


def target_record(group_id: str, member_id: str, target: Assignment) -> Change:
    return (
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[
                TargetTopicPartitions(topic_id=topic_id, partitions=list(partitions))
                for topic_id, partitions in sorted(target.items())
            ]
        ),
    )
