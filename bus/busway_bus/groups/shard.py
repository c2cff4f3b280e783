"""Groups and committed offsets of one partition of `__consumer_offsets`.

Here: the tables and their operations; only `apply` changes what is stored.
Not here: a group's state machine (`classic.group`), storage and waiting (`coordinator.runtime`).
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar
from uuid import UUID

from busway_bus.groups.classic.group import ClassicGroup
from busway_bus.groups.committed import CommittedOffsets
from busway_bus.groups.expiry import expired, parts
from busway_bus.groups.group import Committer, Group, GroupKind, of_kind
from busway_bus.groups.limits import GroupLimits
from busway_bus.groups.migration import upgrade
from busway_bus.groups.mixed import MixedGroup
from busway_bus.groups.modern import records as consumer_records
from busway_bus.groups.modern.consumer_group import ConsumerGroup
from busway_bus.groups.modern.requests import ConsumerHeartbeat, HeartbeatResult
from busway_bus.groups.modern.topics import Topics
from busway_bus.groups.offsets import CommittedOffset, NewOffsets, OffsetErrors, TopicPartition, offset_record
from busway_bus.groups.pending_offsets import PendingOffsets, pending_bytes
from busway_bus.groups.record_serde import group_of, key_bytes, parse, value_bytes
from busway_bus.groups.records import Change, GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, OffsetCommitValue
from busway_bus.groups.requests import Join, JoinResult, Sync, SyncResult
from busway_bus.groups.share import records as share_records
from busway_bus.groups.share.group import ShareGroup
from busway_bus.kernel.deadlines import Deadlines
from busway_bus.kernel.decision import Decision, Unanswered, Waiter
from busway_bus.kernel.fair_share import NOBODY
from busway_bus.kernel.limits import GROUPS_PER_TICK_MAX
from busway_bus.metadata.image import ClusterImage
from busway_protocol.errors import ErrorCode, KafkaError, MalformedMessage

R = TypeVar("R")
TopicExists = Callable[[str, UUID], bool]
_KINDS: Final[Mapping[type[Any], GroupKind]] = {
    GroupMetadataKey: GroupKind.CLASSIC,
    **{layout[0]: GroupKind.CONSUMER for layout in consumer_records.LAYOUTS.values()},
    **{key: GroupKind.SHARE for key, _, _ in share_records.LAYOUTS.values()},
}


class GroupShard:
    """The state of one partition of the offsets topic.

    Args:
        new_member_id: by the client's name.
        share_session_ms: session timeout of share groups, by group id.

    Attributes:
        groups: by id, including groups with offsets only.
        pending: offsets of open transactions.
    """

    def __init__(
        self,
        *,
        limits: GroupLimits,
        new_member_id: Callable[[str], str],
        topics: Topics | None = None,
        share_session_ms: Callable[[str], int] = lambda _: 0,
    ) -> None:
        self._share_session_ms = share_session_ms
        self._limits = limits
        self._topics = topics or Topics(ClusterImage)
        self._new_member_id = new_member_id
        self.groups: dict[str, Group] = {}
        self.offsets = CommittedOffsets(limits.offsets)
        self.pending = PendingOffsets(limits.pending)
        self._deadlines = Deadlines()

    # Records

    @staticmethod
    def encode(change: Change) -> tuple[bytes, bytes | None]:
        key, value = change
        return key_bytes(key), value_bytes(key, value)

    @staticmethod
    def decode(key: bytes, value: bytes | None) -> Change | None:
        return parse(key, value)

    def apply(self, change: Change, now: int) -> None:
        key, value = change
        if isinstance(key, OffsetCommitKey):
            self._apply_offset(key, value)
            return
        group_id = group_of(key)
        kind = _KINDS[type(key)]
        group = self._group(group_id, kind) if value is not None else self.groups.get(group_id)
        if group is None or group.kind is not kind:
            return
        group.apply(key, value, now)
        if group.over:
            del self.groups[group_id]
            self.offsets.group_removed()
            self._deadlines.discard(group_id)
        else:
            self.watch(group)

    def _apply_offset(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        partition = (key.topic, key.partition)
        if value is not None:
            self.pending.overtake(key.group, partition)
            self._group(key.group)
            self.offsets.put(key.group, ((partition, CommittedOffset.from_record(value)),))
            return
        self.pending.forget(key.group, partition)
        self.offsets.forget(key.group, partition)

    def apply_pending(self, change: Change, producer_id: int, now: int, host: str = NOBODY) -> None:
        """Keep an offset until the producer's transaction ends.

        Other records, never transactional, are applied at once.
        """
        key, value = change
        if isinstance(key, OffsetCommitKey) and isinstance(value, OffsetCommitValue):
            self._group(key.group)
            offset = CommittedOffset.from_record(value)
            self.pending.put(producer_id, key.group, (key.topic, key.partition), offset, host)
        else:
            self.apply(change, now)

    def end_transaction(self, producer_id: int, now: int, *, committed: bool) -> None:
        for group_id, offsets in self.pending.end(producer_id, committed=committed):
            self._group(group_id)
            self.offsets.put(group_id, offsets)

    def _group(self, group_id: str, kind: GroupKind | None = None) -> Group:
        """Return a group; add an empty one if missing, by default classic.

        Raises:
            MalformedMessage: the group is of another kind, without tombstones.
        """
        group = self.groups.get(group_id)
        if group is None:
            self.offsets.group_added()
        if group is None or (kind is not None and group.kind is not kind and group.replaceable):
            group = self.groups[group_id] = self._new_group(group_id, kind or GroupKind.CLASSIC)
        if kind is not None and group.kind is not kind:
            raise MalformedMessage(f"{group_id} is a {group.kind.value} group, and has records of a {kind.value} one")
        return group

    def _new_group(self, group_id: str, kind: GroupKind) -> Group:
        if kind is GroupKind.CONSUMER:
            return MixedGroup(group_id, self._limits, self._topics, self._new_member_id)
        if kind is GroupKind.SHARE:
            return self.new_share_group(group_id)
        assert kind is GroupKind.CLASSIC, kind
        return self._new_classic(group_id)

    def new_share_group(self, group_id: str) -> ShareGroup:
        session_ms = partial(
            self._share_session_ms, group_id
        )  # the shard itself is not captured: a released group is freed at once, without a reference cycle
        return ShareGroup(group_id, self._limits.memory, self._topics, session_ms)

    def _new_classic(self, group_id: str) -> ClassicGroup:
        return ClassicGroup(group_id, self._limits, self._new_member_id)

    # Time

    def next_deadline(self) -> int | None:
        return self._deadlines.earliest()

    def tick(self, now: int) -> Decision[None]:
        """Run a bounded number of due groups; the rest stays due."""
        decisions: list[Decision[None]] = []
        for _ in range(GROUPS_PER_TICK_MAX):
            due = self._deadlines.due(now, 1)
            group = self.groups.get(due[0]) if due else None
            if group is not None:
                decisions.append(self.step(group, now))
            if not due or (decisions and decisions[-1].whole):
                break
        return Decision(
            records=tuple(record for decision in decisions for record in decision.records),
            responses=tuple(response for decision in decisions for response in decision.responses),
            reply=None,
            whole=any(decision.whole for decision in decisions),
        )

    def step(self, group: Group, now: int) -> Decision[None]:
        return self.watched(group, group.tick(now))

    def watch(self, group: Group) -> None:
        """Schedule the group's deadline; call after each change that may advance it."""
        deadline = group.next_deadline()
        if deadline is not None:
            self._deadlines.put(group.group_id, deadline)

    def unloaded(self) -> list[Waiter]:
        """Return all waiters: the groups have another coordinator."""
        return [waiter for group in self.groups.values() for waiter in group.abandon()]

    # Members

    def create(self, group_id: str, request: Join, now: int) -> Decision[None]:
        """Write an empty group for its first member, before it joins.

        It has no protocol type yet, as in Kafka, and replaces an empty consumer group. A refused join creates none.

        Raises:
            KafkaError: COORDINATOR_NOT_AVAILABLE, at the memory limit.
        """
        group = self.groups.get(group_id)
        stays = group is not None and (group.kind is not GroupKind.CONSUMER or not group.empty)
        if stays or self._new_classic(group_id).refusal(request) is not None:
            return Decision(reply=None)
        if group is None:
            self.offsets.check_group()
        value = GroupMetadataValue(
            protocol_type="", generation=0, protocol=None, leader=None, current_state_timestamp=now, members=[]
        )
        ended = () if group is None else group.tombstones()
        return Decision(records=(*ended, (GroupMetadataKey(group=group_id), value)), reply=None)

    def join(self, group_id: str, request: Join, waiter: Waiter, now: int) -> Decision[JoinResult | Unanswered]:
        """Join a group that `create` wrote; no reply while its rebalance lasts."""
        if not self._limits.min_session_timeout_ms <= request.session_timeout_ms <= self._limits.max_session_timeout_ms:
            # As in Kafka, checked before the group is looked up, whatever its kind.
            return Decision(reply=JoinResult(error=ErrorCode.INVALID_SESSION_TIMEOUT, member_id=request.member_id))
        group = self.groups.get(group_id)
        if group is None or (group.kind is GroupKind.CONSUMER and group.empty):
            error = self._new_classic(group_id).refusal(request)
            assert error is not None, "a group that may be joined was written down"
            if request.member_id:
                error = ErrorCode.UNKNOWN_MEMBER_ID  # without a group there are no members; this error has precedence
            return Decision(reply=JoinResult(error=error, member_id=request.member_id))
        return self.watched(group, group.join(request, waiter, now))

    def sync(self, group_id: str, request: Sync, waiter: Waiter, now: int) -> Decision[SyncResult | Unanswered]:
        group = self.groups.get(group_id)
        if group is None:
            return Decision(reply=SyncResult(error=ErrorCode.UNKNOWN_MEMBER_ID))
        return self.watched(group, group.sync(request, waiter, now))

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int, now: int
    ) -> Decision[ErrorCode]:
        """Extend a session; the timer is rechecked on firing."""
        group = self.groups.get(group_id)
        if group is None:
            return Decision(reply=ErrorCode.UNKNOWN_MEMBER_ID)
        code = group.heartbeat(member_id, instance_id, generation, now)
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            self.watch(group)  # the rebalance timeout of the member may have started
        return Decision(reply=code)

    def leave(self, group_id: str, identities: Sequence[tuple[str, str | None]], now: int) -> Decision[list[ErrorCode]]:
        group = self.groups.get(group_id)
        if group is None:
            return Decision(reply=[ErrorCode.UNKNOWN_MEMBER_ID] * len(identities))
        return self.watched(group, group.leave(identities, now))

    # Members of consumer groups (KIP-848)

    def consumer_heartbeat(self, group_id: str, heartbeat: ConsumerHeartbeat, now: int) -> Decision[HeartbeatResult]:
        """Handle a ConsumerGroupHeartbeat: join, stay or leave.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND, or as `ConsumerGroup`.
        """
        group = self.groups.get(group_id)
        if heartbeat.epoch < 0:
            leaves = of_kind(group, group_id, ConsumerGroup)
            return self.watched(leaves, leaves.consumer_leave(heartbeat, now))
        if isinstance(group, ConsumerGroup):
            return self.watched(group, group.consumer_heartbeat(heartbeat, now))
        if heartbeat.epoch > 0 or (group is not None and group.kind is not GroupKind.CLASSIC):
            absent = group is None
            text = f"Consumer group {group_id} not found." if absent else f"Group {group_id} is not a consumer group."
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, text)
        if isinstance(group, ClassicGroup) and not group.empty:
            return self._upgrade(group, heartbeat, now)
        if group is None:
            self.offsets.check_group()
        new = MixedGroup(group_id, self._limits, self._topics, self._new_member_id)
        decision = new.consumer_heartbeat(heartbeat, now)
        ended = () if group is None else group.tombstones()
        return replace(decision, records=(*ended, *decision.records))

    def _upgrade(self, group: ClassicGroup, heartbeat: ConsumerHeartbeat, now: int) -> Decision[HeartbeatResult]:
        """Convert a classic group for its first member of the consumer protocol.

        The join is tried on a converted group; all records are one batch. Pending classic requests fail: members must
        rejoin.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND, or as `ConsumerGroup.consumer_heartbeat`.
        """
        changes = upgrade(group, self._limits, self._topics)
        limits = replace(self._limits, memory=group.roster.memory_without())
        tried = MixedGroup(group.group_id, limits, self._topics, self._new_member_id)
        for key, value in changes:
            tried.apply(key, value, now)
        decision = tried.consumer_heartbeat(heartbeat, now)
        records = (*group.tombstones(), *changes, *decision.records)
        return replace(decision, records=records, responses=group.dismiss(now), whole=True)

    def resolve(self, group_id: str, names: Mapping[str, frozenset[str]], version: object, now: int) -> Decision[bool]:
        """Store matches of regular expressions; False for a missing group."""
        group = self.groups.get(group_id)
        return group.resolve(names, version, now) if isinstance(group, ConsumerGroup) else Decision(reply=False)

    def resolution_failed(self, group_id: str) -> None:
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            group.resolution_failed()

    def watched(self, group: Group, decision: Decision[R]) -> Decision[R]:
        self.watch(group)
        return decision

    # Offsets

    def commit(
        self, group_id: str, committer: Committer, offsets: NewOffsets, *, now: int, wall_ms: int
    ) -> Decision[OffsetErrors]:
        """Store committed offsets; NONE or OFFSET_METADATA_TOO_LARGE for each.

        Raises as `check_commit`.
        """
        self.check_commit(group_id, committer, offsets, now)
        codes: OffsetErrors = {}
        records: list[Change] = []
        for partition, offset in offsets.items():
            codes[partition], record = offset_record(
                group_id, partition, offset, wall_ms, self._limits.max_offset_metadata_bytes
            )
            if record is not None:
                records.append(record)
        return Decision(records=tuple(records), reply=codes)

    def check_commit(self, group_id: str, committer: Committer, offsets: NewOffsets, now: int) -> None:
        """Refuse a commit that is not allowed.

        Without an epoch, any client may commit to an empty group.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND, or ILLEGAL_GENERATION in a transaction, for a missing group;
                COORDINATOR_NOT_AVAILABLE while all offsets, or a host's in open transactions, exceed their limit; or as
                `Group.check_commit`.
        """
        group = self.groups.get(group_id)
        if group is None and committer.epoch >= 0:
            code = ErrorCode.ILLEGAL_GENERATION if committer.transactional else ErrorCode.GROUP_ID_NOT_FOUND
            raise KafkaError(code, f"group {group_id} does not exist")
        check = None if group is None else group.check_commit(committer, now)
        if check is not None:
            for (topic, partition), offset in offsets.items():
                check(topic, offset.topic_id, partition)
        self.offsets.check(group_id, offsets, new_group=group is None)
        more = sum(pending_bytes(topic_partition, offset.metadata) for topic_partition, offset in offsets.items())
        refusal = self.pending.refusal(committer.host, more) if committer.transactional else None
        if refusal is not None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, refusal)

    def delete_offsets(self, group_id: str, partitions: Collection[TopicPartition]) -> Decision[OffsetErrors]:
        """Delete offsets of topics to which the group does not subscribe (KIP-496).

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND, or NON_EMPTY_GROUP if members are not consumers.
        """
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id} does not exist")
        group.check_offset_delete()
        codes = {
            partition: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if group.reads(partition[0]) else ErrorCode.NONE
            for partition in partitions
        }
        table = self.offsets.get(group_id, {})
        forgotten = [
            partition
            for partition, code in codes.items()
            if code is ErrorCode.NONE and (partition in table or self.pending.holds(group_id, partition))
        ]
        return Decision(records=_forget(group_id, forgotten), reply=codes)

    # Deleting

    def delete_group(self, group_id: str) -> Decision[ErrorCode]:
        """Delete an empty group; reply NONE, GROUP_ID_NOT_FOUND or NON_EMPTY_GROUP."""
        group = self.groups.get(group_id)
        if group is None:
            return Decision(reply=ErrorCode.GROUP_ID_NOT_FOUND)
        if not group.empty:
            return Decision(reply=ErrorCode.NON_EMPTY_GROUP)
        offsets = _forget(group_id, sorted({*self.offsets.get(group_id, ()), *self.pending.of(group_id)}))
        return Decision(records=(*offsets, *group.tombstones()), reply=ErrorCode.NONE)

    def expirable(self) -> Iterator[dict[str, Sequence[TopicPartition]]]:
        """Yield all groups with their offsets, in bounded parts."""
        return parts(self.groups, self.offsets)

    def expire(
        self, part: Mapping[str, Sequence[TopicPartition]], now: int, retention_ms: int, topic_exists: TopicExists
    ) -> Decision[None]:
        """Delete expired offsets, and empty groups that have none left.

        Offsets of open transactions, and those that they will replace, stay, as in Kafka.

        Args:
            part: groups and offsets to check.
            now: wall-clock time in ms, as in commits.
            topic_exists: by name and id.
        """
        records: list[Change] = []
        for group_id, partitions in part.items():
            group = self.groups.get(group_id)
            if group is None:
                continue
            table = self.offsets.get(group_id, {})
            settled = {
                partition: table[partition]
                for partition in partitions
                if partition in table and not self.pending.holds(group_id, partition)
            }
            over = expired(group, settled, now=now, retention_ms=retention_ms, topic_exists=topic_exists)
            records += _forget(group_id, over)
            if group.unused and not self.pending.holds(group_id) and len(over) == len(table):
                records += group.tombstones()
        return Decision(records=tuple(records), reply=None)


def _forget(group_id: str, partitions: Collection[TopicPartition]) -> tuple[Any, ...]:
    return tuple(
        (OffsetCommitKey(group=group_id, topic=topic, partition=partition), None) for topic, partition in partitions
    )
