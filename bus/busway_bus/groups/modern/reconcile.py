"""The next reconciliation step of a consumer group's member (KIP-848).

Here: the step, which assigns a partition only after its confirmed revocation.
Not here: the target assignment (`assignors`), when to step (`consumer_group`).
"""

from collections.abc import Callable, Mapping
from uuid import UUID

from busway_bus.groups.modern.consumer_member import ConsumerMember, MemberState, Owned
from busway_bus.groups.modern.group import Assignment
from busway_bus.groups.modern.requests import OwnedPartitions
from busway_protocol.errors import ErrorCode, KafkaError


def reconcile(
    member: ConsumerMember,
    target_epoch: int,
    target: Assignment,
    *,
    owned: OwnedPartitions,
    reads: Callable[[UUID], bool],
    subscription_changed: bool,
    taken: Callable[[UUID, int], bool],
) -> ConsumerMember:
    """Return the member after its step, unchanged without a step.

    Args:
        owned: the owned partitions that it reports.
        reads: whether it subscribes to a topic.
        taken: whether another member owns a partition.

    Raises:
        KafkaError: FENCED_MEMBER_EPOCH, its state is unknown and it has to rejoin.
    """
    if member.state is MemberState.STABLE:
        if member.epoch != target_epoch:
            return _towards(member, member.epoch, target_epoch, target, owned=owned, reads=reads, taken=taken)
        return _without_other_topics(member, owned, reads) if subscription_changed else member
    if member.state is MemberState.UNREVOKED and _still_has(owned, member.revoking):
        return _without_other_topics(member, owned, reads) if subscription_changed else member
    if member.state is MemberState.UNKNOWN:
        if owned is None or owned:
            text = "The consumer group member is in a unknown state. The member must abandon all its partitions and rejoin."
            raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, text)
        return _towards(member, target_epoch, target_epoch, target, owned=owned, reads=reads, taken=taken)
    return _towards(member, member.epoch, target_epoch, target, owned=owned, reads=reads, taken=taken)


def _still_has(owned: OwnedPartitions, revoking: Owned) -> bool:
    if owned is None:
        return True
    return any(
        partition in revoking[topic_id]
        for topic_id, partitions in owned.items()
        if topic_id in revoking
        for partition in partitions
    )


def _without_other_topics(
    member: ConsumerMember, owned: OwnedPartitions, reads: Callable[[UUID], bool]
) -> ConsumerMember:
    others = [topic_id for topic_id in member.assigned if not reads(topic_id)]
    if not others:
        return member
    assigned = {topic_id: held for topic_id, held in member.assigned.items() if reads(topic_id)}
    revoking = {**member.revoking}
    for topic_id in others:
        revoking[topic_id] = {**revoking.get(topic_id, {}), **member.assigned[topic_id]}
    if _still_has(owned, revoking):
        return member.moved(member.epoch, MemberState.UNREVOKED, assigned, revoking)
    return member.moved(member.epoch, member.state, assigned, member.revoking)


def _towards(
    member: ConsumerMember,
    epoch: int,
    target_epoch: int,
    target: Assignment,
    *,
    owned: OwnedPartitions,
    reads: Callable[[UUID], bool],
    taken: Callable[[UUID, int], bool],
) -> ConsumerMember:
    assigned: dict[UUID, Mapping[int, int]] = {}
    revoking: dict[UUID, Mapping[int, int]] = {}
    giving: dict[UUID, list[int]] = {}
    unreleased = False
    for topic_id in sorted({*target, *member.assigned}):
        wanted = target.get(topic_id, ()) if reads(topic_id) else ()
        has = member.assigned.get(topic_id, {})
        missing = [partition for partition in wanted if partition not in has]
        free = [partition for partition in missing if not taken(topic_id, partition)]
        unreleased |= len(free) < len(missing)
        if len(wanted) - len(missing) == len(has):
            kept = has
        else:
            wanted_set = frozenset(wanted)
            kept = {partition: since for partition, since in has.items() if partition in wanted_set}
            revoking[topic_id] = {partition: since for partition, since in has.items() if partition not in wanted_set}
        if kept:
            assigned[topic_id] = kept
        if free:
            giving[topic_id] = free
    if revoking and _still_has(owned, revoking):
        return member.moved(epoch, MemberState.UNREVOKED, assigned, revoking)
    for topic_id, partitions in giving.items():
        assigned[topic_id] = {**assigned.get(topic_id, {}), **dict.fromkeys(partitions, target_epoch)}
    return member.moved(target_epoch, MemberState.UNRELEASED if unreleased else MemberState.STABLE, assigned)
