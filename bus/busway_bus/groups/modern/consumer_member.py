"""A member of a consumer group (KIP-848).

Here: its state and records.
Not here: its next step (`reconcile`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final
from uuid import UUID

from busway_bus.groups.modern.group import PARTITION_BYTES, ModernMember, member_bytes
from busway_bus.groups.modern.records import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    CurrentTopicPartitions,
)
from busway_bus.groups.records import Change

Owned = Mapping[UUID, Mapping[int, int]]
"""Partitions by topic id, each with its owner's epoch at its assignment."""
NOTHING: Final[Owned] = {}
STATIC_LEAVE_EPOCH: Final = -2
"""Epoch of a static member's temporary leave (LEAVE_GROUP_STATIC_MEMBER_EPOCH).

It may return under another id.
"""


class MemberState(IntEnum):
    """The reconciliation state of a member.

    STABLE: it has its epoch's target. UNREVOKED: it must revoke partitions first. UNRELEASED: it waits for others to
    revoke.
    """

    STABLE = 0
    UNREVOKED = 1
    UNRELEASED = 2
    UNKNOWN = 127


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember(ModernMember):
    """An immutable member.

    Attributes:
        regex: besides `topics`; empty for none.
        assignor: preferred; None for any.
        assigned: partitions that it may read.
        revoking: partitions with unconfirmed revocation.
        classic: set for the classic protocol.
    """

    state: MemberState = MemberState.STABLE
    rebalance_timeout_ms: int = -1
    regex: str | None = ""
    assignor: str | None = None
    assigned: Owned = field(default_factory=dict)
    revoking: Owned = field(default_factory=dict)
    classic: ClassicMemberMetadata | None = None

    @property
    def reconciled(self) -> bool:
        return self.state is MemberState.STABLE

    @property
    def size_bytes(self) -> int:
        owned = sum(1 + len(partitions) for held in (self.assigned, self.revoking) for partitions in held.values())
        spoken = () if self.classic is None else self.classic.supported_protocols
        protocols = sum(len(protocol.name) + len(protocol.metadata) for protocol in spoken)
        return member_bytes(self) + len(self.regex or "") + protocols + PARTITION_BYTES * owned

    @property
    def protocol(self) -> str | None:
        """The preferred classic protocol; None for a consumer-protocol member."""
        if self.classic is None:
            return None
        return next((protocol.name for protocol in self.classic.supported_protocols), "")

    def moved(self, epoch: int, state: MemberState, assigned: Owned, revoking: Owned = NOTHING) -> "ConsumerMember":
        return replace(self, epoch=epoch, previous_epoch=self.epoch, state=state, assigned=assigned, revoking=revoking)

    def left_temporarily(self) -> "ConsumerMember":
        """Return the static member after a temporary leave. It keeps its partitions, owned since epoch 0."""
        kept = {topic_id: dict.fromkeys(partitions, 0) for topic_id, partitions in self.assigned.items()}
        return replace(self, epoch=STATIC_LEAVE_EPOCH, assigned=kept, revoking={})

    def owns_since(self, topic_id: UUID, partition: int) -> int | None:
        """Return the epoch since which it owns a partition, even if revoking."""
        since = self.assigned.get(topic_id, {}).get(partition)
        return self.revoking.get(topic_id, {}).get(partition) if since is None else since

    # Records

    def metadata_record(self, group_id: str) -> Change:
        return (
            ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=self.member_id),
            ConsumerGroupMemberMetadataValue(
                instance_id=self.instance_id,
                rack_id=self.rack_id,
                client_id=self.client_id,
                client_host=self.client_host,
                subscribed_topic_names=sorted(self.topics),
                subscribed_topic_regex=self.regex,
                rebalance_timeout_ms=self.rebalance_timeout_ms,
                server_assignor=self.assignor,
                classic_member_metadata=self.classic,
            ),
        )

    def with_metadata(self, value: ConsumerGroupMemberMetadataValue) -> "ConsumerMember":
        return replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=frozenset(value.subscribed_topic_names),
            regex=value.subscribed_topic_regex,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            assignor=value.server_assignor,
            classic=value.classic_member_metadata,
        )

    def assignment_record(self, group_id: str) -> Change:
        return (
            ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=self.member_id),
            ConsumerGroupCurrentMemberAssignmentValue(
                member_epoch=self.epoch,
                previous_member_epoch=self.previous_epoch,
                state=self.state,
                assigned_partitions=_written(self.assigned),
                partitions_pending_revocation=_written(self.revoking),
            ),
        )

    def with_assignment(self, value: ConsumerGroupCurrentMemberAssignmentValue | None) -> "ConsumerMember":
        """Apply a record's assignment; None is a tombstone."""
        if value is None:
            return replace(self, epoch=-1, previous_epoch=-1, assigned={}, revoking={})
        return replace(
            self,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState(value.state) if value.state in set(MemberState) else MemberState.UNKNOWN,
            assigned=_read(value.assigned_partitions, value.member_epoch),
            revoking=_read(value.partitions_pending_revocation, value.member_epoch),
        )


def _written(owned: Owned) -> list[CurrentTopicPartitions]:
    return [
        CurrentTopicPartitions(
            topic_id=topic_id,
            partitions=sorted(partitions),
            assignment_epochs=[partitions[partition] for partition in sorted(partitions)],
        )
        for topic_id, partitions in sorted(owned.items())
    ]


def _read(written: Iterable[CurrentTopicPartitions], epoch: int) -> Owned:
    return {
        topic.topic_id: dict(
            zip(topic.partitions, topic.assignment_epochs or [epoch] * len(topic.partitions), strict=False)
        )
        for topic in written
    }
