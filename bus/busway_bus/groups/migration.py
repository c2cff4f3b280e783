"""The records by which a group with members changes between the classic protocol and the consumer protocol (KIP-848).

What lives here: both ways, from the state of one group to the records of the other. What does not: when that is done, and what ends the
records of the group before (`shard`, `mixed`), offsets, which are the same for both.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from busway_bus.groups.classic.group import ClassicGroup
from busway_bus.groups.classic.member import Member
from busway_bus.groups.classic.members import Roster
from busway_bus.groups.classic.requests import GroupLimits
from busway_bus.groups.classic.states import State
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
from busway_bus.groups.record_serde import Change
from busway_bus.groups.records import GroupMetadataKey, GroupMetadataValue
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
"""What no topics hash to: the group is balanced anew with the next heartbeat."""


def upgrade(group: ClassicGroup, limits: GroupLimits, topics: Topics) -> list[Change]:
    """What makes a consumer group, where there is none any more, of the members of a classic one: each has what it had.

    Raises:
        KafkaError: GROUP_ID_NOT_FOUND, it must stay what it is.
    """
    if not limits.consumer.migration.upgrades:
        raise _refused(group, "online upgrade is disabled.")
    if group.protocol_type != PROTOCOL_TYPE:
        raise _refused(group, "the group does not use the consumer embedded protocol.")
    if len(group.members) > min(limits.consumer.max_size, MIGRATED_MEMBERS_MAX):
        raise _refused(group, "the group size exceeds the consumer group maximum size.")
    epoch = max(group.generation, 1)
    found = []
    elements = 0
    for member in group.members.values():
        upgraded, target, count = _upgraded(group, member, epoch, topics)
        found.append((upgraded, target))
        elements += count
        if elements > SUBSCRIBED_ELEMENTS_MAX:
            raise _refused(group, "its members read more than is moved at once.")
    names = {topic for member, _ in found for topic in member.topics}
    # Kafka takes what they have for good; where a static member only changes its protocol, what nobody has would have no reader for ever.
    settled = group.state is State.STABLE and _is_whole([target for _, target in found], names, topics)
    known = topics.hash_of(names) if settled else _UNKNOWN
    key = ConsumerGroupMetadataKey(group_id=group.group_id)
    return [
        *(member.metadata_record(group.group_id) for member, _ in found),
        (key, ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=known)),
        *(target_record(group.group_id, member.member_id, target) for member, target in found),
        (
            ConsumerGroupTargetAssignmentMetadataKey(group_id=group.group_id),
            ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=0),
        ),
        *(member.assignment_record(group.group_id) for member, _ in found),
    ]


def _is_whole(targets: Sequence[Assignment], names: set[str], topics: Topics) -> bool:
    """Whether each partition of these topics is somebody's, and nobody else's."""
    given = Counter(
        (topic_id, number) for target in targets for topic_id, numbers in target.items() for number in numbers
    )
    there = sum(map(topics.partitions, topics.ids_of(names)))
    return there == len(given) == given.total()


def _refused(group: ClassicGroup, because: str) -> KafkaError:
    text = f"Cannot upgrade classic group {group.group_id} to consumer group because {because}"
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, text)


def _upgraded(
    group: ClassicGroup, member: Member, epoch: int, topics: Topics
) -> tuple[ConsumerMember, Assignment, int]:
    """The member, what it is to have, and how much there was to read for that."""
    # A group that has never come to a generation has no protocol yet; the subscription is the same under each.
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
    for topic, number in partitions:
        topic_id = topics.id_of(topic)
        if topic_id is not None:
            has.setdefault(topic_id, set()).add(number)
    target = {topic_id: tuple(sorted(numbers)) for topic_id, numbers in has.items()}
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
        assigned={topic_id: dict.fromkeys(numbers, epoch) for topic_id, numbers in target.items()},
        classic=classic_metadata(member.session_timeout_ms, member.protocols),
    )
    elements = len(subscription.topics) + len(subscription.owned_partitions) + len(partitions)
    return upgraded, target, elements


def classic_metadata(session_timeout_ms: int, protocols: Sequence[tuple[str, bytes]]) -> ClassicMemberMetadata:
    """What is kept beside of a member of the classic protocol."""
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
    """What makes a classic group, where there is none any more, of the members of a consumer group, which all use the classic protocol.

    Args:
        epoch: the group's, which is the generation.
        members: each with what it is to have, or with what it has where they have to join again.
        rebalance: whether they have to join again. Nobody leads the generation then: a coordinator that reads it knows by that.

    Returns:
        The record; None where there is no protocol that all of them speak.
    """
    roster = Roster(GroupMemory())
    for member, _ in members:
        roster.add(_downgraded(member, now))
    if not roster.common_protocols():
        return None
    protocol = roster.vote()
    written = []
    for (_, target), classic in zip(members, roster, strict=True):
        named = [(topics.name_of(topic_id), numbers) for topic_id, numbers in target.items()]
        places = [(name, number) for name, numbers in named if name is not None for number in numbers]
        assignment = encode_assignment(places, version=version_of(classic.metadata(protocol)))
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
