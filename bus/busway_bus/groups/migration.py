"""Records that convert groups between the classic and consumer protocols (KIP-848).

Here: both directions.
Not here: when to convert, the old group's tombstones (`shard`, `mixed`). Offsets stay.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from busway_bus.groups.classic.group import ClassicGroup
from busway_bus.groups.classic.member import Member
from busway_bus.groups.classic.members import Roster
from busway_bus.groups.classic.states import State
from busway_bus.groups.limits import GroupLimits
from busway_bus.groups.memory_quota import GroupMemory
from busway_bus.groups.modern.consumer_member import ConsumerMember
from busway_bus.groups.modern.consumer_state import target_record
from busway_bus.groups.modern.group import Assignment
from busway_bus.groups.modern.records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from busway_bus.groups.modern.topics import Topics
from busway_bus.groups.records import Change, GroupMetadataKey, GroupMetadataValue
from busway_bus.kernel.limits import MIGRATED_MEMBERS_MAX, SUBSCRIBED_ELEMENTS_MAX
from busway_protocol.assignors.consumer_protocol import (
    PROTOCOL_TYPE,
    assignment_with_user_data,
    decode_subscription,
    encode_assignment,
    version_of,
)
from busway_protocol.errors import ErrorCode, KafkaError, MalformedMessage

_UNKNOWN: Final = 0
"""Metadata hash that makes the next heartbeat compute a target assignment."""


def upgrade(group: ClassicGroup, limits: GroupLimits, topics: Topics) -> list[Change]:
    """Return the records that make a classic group a consumer group.

    Members keep their assignments. The consumer group must not exist yet.

    Raises:
        KafkaError: GROUP_ID_NOT_FOUND, it cannot be converted.
    """
    if not limits.consumer.migration.upgrades:
        raise _refused(group, "online upgrade is disabled.")
    if group.protocol_type != PROTOCOL_TYPE:
        raise _refused(group, "the group does not use the consumer embedded protocol.")
    if len(group.members) > min(limits.consumer.max_size, MIGRATED_MEMBERS_MAX):
        raise _refused(group, "the group size exceeds the consumer group maximum size.")
    epoch = max(group.generation, 1)
    members = []
    elements = 0
    for member in group.members.values():
        upgraded, target, count = _upgraded(group, member, epoch, topics)
        members.append((upgraded, target))
        elements += count
        if elements > SUBSCRIBED_ELEMENTS_MAX:
            raise _refused(group, "its members read more than is moved at once.")
    names = {topic for member, _ in members for topic in member.topics}
    # Kafka takes the assignments as final; if a static member only changes its protocol, an unassigned partition would
    # never have a reader.
    settled = group.state is State.STABLE and _is_whole([target for _, target in members], names, topics)
    known = topics.hash_of(names) if settled else _UNKNOWN
    key = ConsumerGroupMetadataKey(group_id=group.group_id)
    return [
        *(member.metadata_record(group.group_id) for member, _ in members),
        (key, ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=known)),
        *(target_record(group.group_id, member.member_id, target) for member, target in members),
        (
            ConsumerGroupTargetAssignmentMetadataKey(group_id=group.group_id),
            ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=0),
        ),
        *(member.assignment_record(group.group_id) for member, _ in members),
    ]


def _is_whole(targets: Sequence[Assignment], names: set[str], topics: Topics) -> bool:
    given = Counter(
        (topic_id, partition)
        for target in targets
        for topic_id, partitions in target.items()
        for partition in partitions
    )
    there = sum(map(topics.partitions, topics.ids_of(names)))
    return there == len(given) == given.total()


def _refused(group: ClassicGroup, because: str) -> KafkaError:
    text = f"Cannot upgrade classic group {group.group_id} to consumer group because {because}"
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, text)


def _upgraded(
    group: ClassicGroup, member: Member, epoch: int, topics: Topics
) -> tuple[ConsumerMember, Assignment, int]:
    """Return the member, its assignment, and the number of decoded elements."""
    # A group before its first generation has no protocol yet; the subscription is the same in each.
    metadata = member.metadata(group.protocol) if group.protocol else member.protocols[0][1]
    try:
        subscription = decode_subscription(metadata, bounded=True)
        partitions, user_data = assignment_with_user_data(member.assignment, bounded=True)
    except MalformedMessage:
        raise _refused(group, "the embedded consumer protocol is malformed.") from None
    if user_data:
        text = "an unsupported custom assignor is in use. Switch to a default assignor before the upgrade."
        raise _refused(group, text)
    has: dict[UUID, set[int]] = {}
    for topic, partition in partitions:
        topic_id = topics.id_of(topic)
        if topic_id is not None:
            has.setdefault(topic_id, set()).add(partition)
    target = {topic_id: tuple(sorted(partition_indexes)) for topic_id, partition_indexes in has.items()}
    upgraded = ConsumerMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        epoch=epoch,
        previous_epoch=epoch,
        topics=frozenset(subscription.topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        assigned={topic_id: dict.fromkeys(partition_indexes, epoch) for topic_id, partition_indexes in target.items()},
        classic=classic_metadata(member.session_timeout_ms, member.protocols),
    )
    elements = len(subscription.topics) + len(subscription.owned_partitions) + len(partitions)
    return upgraded, target, elements


def classic_metadata(session_timeout_ms: int, protocols: Sequence[tuple[str, bytes]]) -> ClassicMemberMetadata:
    """Return the part of a record that only classic members have."""
    return ClassicMemberMetadata(
        session_timeout_ms=session_timeout_ms,
        supported_protocols=[ClassicProtocol(name=name, metadata=bytes(metadata)) for name, metadata in protocols],
    )


def downgrade(
    group_id: str,
    epoch: int,
    members: Sequence[tuple[ConsumerMember, Assignment]],
    topics: Topics,
    *,
    now: int,
    rebalance: bool,
) -> Change | None:
    """Return the record that makes a consumer group classic.

    None without a common protocol. All members are classic; the classic group must not exist yet.

    Args:
        epoch: becomes the generation.
        members: with target assignments, or current ones if they must rejoin.
        rebalance: members must rejoin, shown by a generation without leader.
    """
    roster = Roster(GroupMemory())
    for member, _ in members:
        roster.add(_downgraded(member, now))
    if not roster.common_protocols():
        return None
    protocol = roster.vote()
    written = []
    for (_, target), classic in zip(members, roster, strict=True):
        named = [(topics.name_of(topic_id), partition_indexes) for topic_id, partition_indexes in target.items()]
        partitions = [
            (name, partition)
            for name, partition_indexes in named
            if name is not None
            for partition in partition_indexes
        ]
        assignment = encode_assignment(partitions, version=version_of(classic.metadata(protocol)))
        written.append(classic.record(protocol, assignment))
    value = GroupMetadataValue(
        protocol_type=PROTOCOL_TYPE,
        generation=epoch,
        protocol=protocol,
        leader=None if rebalance else members[0][0].member_id,
        current_state_timestamp=now,
        members=written,
    )
    return GroupMetadataKey(group=group_id), value


def _downgraded(member: ConsumerMember, now: int) -> Member:
    assert member.classic is not None, member.member_id
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=member.classic.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in member.classic.supported_protocols),
        deadline_ms=now,
        host=member.client_host,
    )
