"""Heartbeats of a share group's members (KIP-932).

Here: joining, staying, leaving; when a target assignment is computed.
Not here: the assignor, applying records (`group`). A member gets its target at once: share partitions need no
revocation.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

from busway_bus.groups.modern.group import Assignment
from busway_bus.groups.records import Change
from busway_bus.groups.share.assignor import assign
from busway_bus.groups.share.group import STABLE, ShareGroup, ShareMember
from busway_bus.groups.share.partitions import Named, begin, missing
from busway_bus.groups.share.records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
    TopicPartition,
    TopicPartitions,
)
from busway_bus.kernel.decision import Decision
from busway_protocol.errors import ErrorCode, KafkaError

JOINING, LEAVING = 0, -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareHeartbeat:
    """A member's heartbeat; None for an unchanged field.

    `epoch`: the member's, `JOINING` or `LEAVING`.
    """

    group_id: str
    member_id: str
    epoch: int
    rack_id: str | None = None
    topics: frozenset[str] | None = None
    client_id: str = ""
    client_host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareHeartbeatReply:
    """The reply to a heartbeat.

    Attributes:
        assignment: the partitions to fetch from, None if unchanged.
        state_epoch: for initializing share partitions.
    """

    member_id: str
    epoch: int
    assignment: Assignment | None = None
    state_epoch: int = 0
    initialize: Named = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupLimits:
    """Limits of share groups.

    `assignment_interval_ms`: shortest time between two target assignments.
    """

    max_size: int
    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


def leave(group: ShareGroup, member_id: str) -> Decision[ShareHeartbeatReply]:
    _known(group, member_id)
    return Decision(records=group.left([member_id]), reply=ShareHeartbeatReply(member_id=member_id, epoch=LEAVING))


def share_group_heartbeat(
    group: ShareGroup, heartbeat: ShareHeartbeat, limits: ShareGroupLimits, *, now: int, wall_ms: int
) -> Decision[ShareHeartbeatReply]:
    """Join, or handle a heartbeat.

    Raises:
        KafkaError: GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH.
    """
    member_id = heartbeat.member_id
    if len(group.members) >= limits.max_size and member_id not in group.members:
        text = f"The share group has reached its maximum capacity of {limits.max_size} members."
        raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, text)
    before = _member(group, heartbeat)
    updated = _updated(before, heartbeat)
    group.check_room(before if member_id in group.members else None, updated)
    records: list[Change] = []
    if updated != before or member_id not in group.members:
        records.append(_member_record(group, updated))
    changed = updated.topics != before.topics
    epoch, bumped = _group_epoch(group, updated, records, changed=changed)
    target_epoch, target = _target(
        group, updated, epoch, records, interval_ms=limits.assignment_interval_ms, wall_ms=wall_ms
    )
    settled = _settled(group, updated, target_epoch, target, records, changed=bumped)
    if member_id in group.members:  # the session of a new member starts with its record
        group.touch(member_id, now + limits.session_timeout_ms)
    # A member that is an epoch behind did not receive its assignment; Kafka does not send it again.
    behind = heartbeat.epoch < before.epoch or heartbeat.topics is not None
    included = heartbeat.epoch == JOINING or behind or settled.assigned != before.assigned
    names = {name for name, count in _counts(group, updated).items() if count} if bumped else {*group.subscribed}
    initialize = missing(group, names, now)
    if initialize:
        records.append(begin(group, initialize))
    return Decision(
        records=tuple(records),
        reply=ShareHeartbeatReply(
            member_id=member_id,
            epoch=settled.epoch,
            assignment=settled.assigned if included else None,
            state_epoch=epoch,
            initialize=initialize,
        ),
    )


def _known(group: ShareGroup, member_id: str) -> ShareMember:
    member = group.members.get(member_id)
    if member is None:
        text = f"Member {member_id} is not a member of group {group.group_id}."
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, text)
    return member


def _member(group: ShareGroup, heartbeat: ShareHeartbeat) -> ShareMember:
    if heartbeat.epoch == JOINING:
        return group.members.get(heartbeat.member_id) or ShareMember(member_id=heartbeat.member_id)
    member = _known(group, heartbeat.member_id)
    # A member with its previous epoch did not receive the last response.
    if heartbeat.epoch != member.epoch and (heartbeat.epoch > member.epoch or heartbeat.epoch != member.previous_epoch):
        text = (
            f"The share group member has the epoch {heartbeat.epoch}, but the group coordinator knows {member.epoch}. The member must "
            "abandon all its partitions and rejoin."
        )
        raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, text)
    return member


def _updated(before: ShareMember, heartbeat: ShareHeartbeat) -> ShareMember:
    return replace(
        before,
        rack_id=before.rack_id if heartbeat.rack_id is None else heartbeat.rack_id,
        topics=before.topics if heartbeat.topics is None else heartbeat.topics,
        client_id=heartbeat.client_id,
        client_host=heartbeat.client_host,
    )


def _counts(group: ShareGroup, updated: ShareMember) -> Mapping[str, int]:
    counts = group.subscribed.copy()
    before = group.members.get(updated.member_id)
    if before is not None:
        counts.subtract(before.topics)
    counts.update(updated.topics)
    return counts


def _group_epoch(group: ShareGroup, updated: ShareMember, records: list[Change], *, changed: bool) -> tuple[int, bool]:
    bump = changed or (group.target_epoch >= group.epoch and _unassigned(group))
    inputs = group.topics.hash_inputs
    if not bump and group.seen is inputs:
        return group.epoch, False
    metadata_hash = group.topics.hash_of({name for name, count in _counts(group, updated).items() if count})
    if not bump and metadata_hash == group.metadata_hash:
        group.seen = inputs
        return group.epoch, False
    group.seen = inputs
    records.append(group.epoch_record(group.epoch + 1, metadata_hash))
    return group.epoch + 1, True


def _unassigned(group: ShareGroup) -> bool:
    if not group.members:
        return False
    wanted = {
        topic_id: topic.partitions
        for topic_id, topic in group.partitions.initialized.items()
        if topic.name in group.subscribed and group.topics.id_of(topic.name) == topic_id
    }
    if not wanted:
        return False
    given: dict[UUID, set[int]] = {topic_id: set() for topic_id in wanted}
    for target in group.target.values():
        for topic_id, partitions in target.items():
            if topic_id in given:
                given[topic_id].update(partitions)
    return any(given[topic_id] != partitions for topic_id, partitions in wanted.items())


def _target(
    group: ShareGroup,
    updated: ShareMember,
    epoch: int,
    records: list[Change],
    *,
    interval_ms: int,
    wall_ms: int,
) -> tuple[int, Assignment]:
    """Return the target assignment's epoch and the member's part.

    It is computed for a new epoch after the assignment interval.
    """
    computed_ms = group.target_timestamp_ms
    too_soon = (
        bool(computed_ms) and computed_ms <= wall_ms < computed_ms + interval_ms
    )  # a later timestamp means that the clock was set back
    if group.target_epoch >= epoch or too_soon:
        return group.target_epoch, group.target.get(updated.member_id, {})
    members = {**group.members, updated.member_id: updated}
    targets = assign(
        {member_id: group.topics.ids_of(member.topics) for member_id, member in members.items()},
        {topic_id: topic.partitions for topic_id, topic in group.partitions.initialized.items()},
        group.target,
    )
    for member_id, target in targets.items():
        if member_id not in group.target or group.target[member_id] != target:
            records.append(_target_record(group, member_id, target))
    key = ShareGroupTargetAssignmentMetadataKey(group_id=group.group_id)
    value = ShareGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=wall_ms)
    records.append((key, value))
    return epoch, targets[updated.member_id]


def _settled(
    group: ShareGroup,
    updated: ShareMember,
    target_epoch: int,
    target: Assignment,
    records: list[Change],
    *,
    changed: bool,
) -> ShareMember:
    if updated.epoch == target_epoch and not changed:
        return updated
    reads = group.topics.ids_of(updated.topics)
    settled = replace(
        updated, assigned={topic_id: partitions for topic_id, partitions in target.items() if topic_id in reads}
    )
    if settled.epoch != target_epoch:
        settled = replace(settled, epoch=target_epoch, previous_epoch=updated.epoch)
    if settled != updated:
        key = ShareGroupCurrentMemberAssignmentKey(group_id=group.group_id, member_id=settled.member_id)
        value = ShareGroupCurrentMemberAssignmentValue(
            member_epoch=settled.epoch,
            previous_member_epoch=settled.previous_epoch,
            state=STABLE,
            assigned_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=list(partitions))
                for topic_id, partitions in sorted(settled.assigned.items())
            ],
        )
        records.append((key, value))
    return settled


def _member_record(group: ShareGroup, member: ShareMember) -> Change:
    return (
        ShareGroupMemberMetadataKey(group_id=group.group_id, member_id=member.member_id),
        ShareGroupMemberMetadataValue(
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.topics),
        ),
    )


def _target_record(group: ShareGroup, member_id: str, target: Assignment) -> Change:
    return (
        ShareGroupTargetAssignmentMemberKey(group_id=group.group_id, member_id=member_id),
        ShareGroupTargetAssignmentMemberValue(
            topic_partitions=[
                TopicPartition(topic_id=topic_id, partitions=list(partitions))
                for topic_id, partitions in sorted(target.items())
            ]
        ),
    )
