"""The groups and committed offsets of one partition of `__consumer_offsets`: a shard of the coordinator's runtime.

What lives here: the tables, every operation on them, and `apply`, the only way that what is written down changes, now and when a log
is read. What does not: the group machine (`classic`), storage and waiting (`coordinator.runtime`).
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID

from busway_bus.groups.classic import ClassicGroup
from busway_bus.groups.classic_states import State
from busway_bus.groups.classic_values import GroupLimits, Join, Joined, Sync, Synced
from busway_bus.groups.expiry import expired
from busway_bus.groups.offsets import CommittedOffset, NewOffset, Place
from busway_bus.groups.pending import PendingOffsets, pending_bytes
from busway_bus.groups.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    Key,
    OffsetCommitKey,
    OffsetCommitValue,
    Value,
    key_bytes,
    parse,
    value_bytes,
)
from busway_bus.kernel.deadlines import Deadlines
from busway_bus.kernel.decision import Decision, Waiter
from busway_bus.kernel.limits import GROUPS_PER_EXPIRY_MAX, GROUPS_PER_TICK_MAX, OFFSETS_PER_EXPIRY_MAX
from busway_protocol.assignors.consumer_protocol import PROTOCOL_TYPE
from busway_protocol.errors import ErrorCode, KafkaError

R = TypeVar("R")
Change = tuple[Key, Value | None]
TopicExists = Callable[[str, UUID], bool]


class GroupShard:
    """What one partition of the offsets topic holds. A group that has offsets is in `groups` too.

    Args:
        new_member_id: makes a member id of what a client calls itself.

    Attributes:
        groups: by group id.
        offsets: group id → (topic, partition) → how far it has read.
        pending: what is not decided of it, as the transactions are open in which it was committed.
    """

    def __init__(self, *, limits: GroupLimits, new_member_id: Callable[[str], str]) -> None:
        self._limits = limits
        self._new_member_id = new_member_id
        self.groups: dict[str, ClassicGroup] = {}
        self.offsets: dict[str, dict[Place, CommittedOffset]] = {}
        self.pending = PendingOffsets(limits.pending)
        self._deadlines = Deadlines()

    # What is written down

    @staticmethod
    def encode(change: Change) -> tuple[bytes, bytes | None]:
        """A change as it is stored."""
        key, value = change
        return key_bytes(key), value_bytes(value)

    @staticmethod
    def decode(key: bytes, value: bytes | None) -> Change | None:
        """What is stored; None for a type of record that is not known here.

        Raises:
            MalformedMessage: the bytes are damaged.
        """
        return parse(key, value)

    def apply(self, change: Change, now: int) -> None:
        """Take one record into the tables."""
        key, value = change
        if isinstance(key, OffsetCommitKey):
            assert value is None or isinstance(value, OffsetCommitValue)
            self._apply_offset(key, value)
            return
        assert value is None or isinstance(value, GroupMetadataValue)
        if value is not None:
            group = self._group(key.group)
            group.apply(value, now)
            self._watch(group)
        elif key.group in self.groups:
            self.groups.pop(key.group).apply(None, now)
            self._deadlines.discard(key.group)

    def _apply_offset(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        place = (key.topic, key.partition)
        if value is not None:
            self.pending.overtake(key.group, place)
            self._group(key.group)
            self.offsets.setdefault(key.group, {})[place] = CommittedOffset.from_record(value)
            return
        self.pending.forget(key.group, place)
        table = self.offsets.get(key.group, {})
        table.pop(place, None)
        if not table:
            self.offsets.pop(key.group, None)

    def apply_pending(self, change: Change, producer_id: int, now: int) -> None:
        """Keep one record until the producer's transaction is over; nothing but offsets is ever written within one."""
        key, value = change
        if isinstance(key, OffsetCommitKey) and isinstance(value, OffsetCommitValue):
            self._group(key.group)
            offset = CommittedOffset.from_record(value)
            self.pending.put(producer_id, key.group, (key.topic, key.partition), offset)
        else:
            self.apply(change, now)

    def end_transaction(self, producer_id: int, now: int, *, committed: bool) -> None:
        """Let what the producer's transaction has committed be in force, or forget it."""
        for group_id, offsets in self.pending.end(producer_id, committed=committed):
            self._group(group_id)
            self.offsets.setdefault(group_id, {}).update(offsets)

    def _group(self, group_id: str) -> ClassicGroup:
        """The group, an empty one where there is none."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = self._new_group(group_id)
        return group

    def _new_group(self, group_id: str) -> ClassicGroup:
        return ClassicGroup(group_id, self._limits, self._new_member_id)

    # Time

    def next_deadline(self) -> int | None:
        """When `tick` has something to do, or to look at, in ms; None for never."""
        return self._deadlines.earliest()

    def tick(self, now: int) -> Decision[None]:
        """Move the groups whose time has come, a bounded number of them; the rest is due at once."""
        decisions: list[Decision[None]] = []
        for group_id in self._deadlines.due(now, GROUPS_PER_TICK_MAX):
            group = self.groups.get(group_id)
            if group is not None:
                decisions.append(group.tick(now))
                self._watch(group)
        return Decision(
            records=tuple(record for decision in decisions for record in decision.records),
            due=tuple(due for decision in decisions for due in decision.due),
            reply=None,
        )

    def _watch(self, group: ClassicGroup) -> None:
        deadline = group.next_deadline()
        if deadline is not None:
            self._deadlines.put(group.group_id, deadline)

    def unloaded(self) -> list[Waiter]:
        """This node looks after these groups no longer: those that wait, whom nothing here will answer."""
        return [waiter for group in self.groups.values() for waiter in group.abandon()]

    # Members

    def create(self, group_id: str, request: Join, now: int) -> Decision[None]:
        """Write down a group for its first member, before it joins: as in Kafka an empty one, without a protocol type yet. One that
        would be refused leaves no group behind."""
        if group_id in self.groups or self._new_group(group_id).refusal(request) is not None:
            return Decision(reply=None)
        value = GroupMetadataValue(
            protocol_type="", generation=0, protocol=None, leader=None, current_state_timestamp=now, members=[]
        )
        return Decision(records=((GroupMetadataKey(group=group_id), value),), reply=None)

    def join(self, group_id: str, request: Join, waiter: Waiter, now: int) -> Decision[Joined | None]:
        """Join a group that `create` wrote down; no reply yet where its rebalance has to end first."""
        group = self.groups.get(group_id)
        if group is None:
            error = self._new_group(group_id).refusal(request)
            assert error is not None, "a group that may be joined was written down"
            return Decision(reply=Joined(error=error, member_id=request.member_id))
        return self._watched(group, group.join(request, waiter, now))

    def sync(self, group_id: str, request: Sync, waiter: Waiter, now: int) -> Decision[Synced | None]:
        """Hand in or ask for assignments; no reply yet where the leader's are awaited."""
        group = self.groups.get(group_id)
        if group is None:
            return Decision(reply=Synced(error=ErrorCode.UNKNOWN_MEMBER_ID))
        return self._watched(group, group.sync(request, waiter, now))

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int, now: int
    ) -> Decision[ErrorCode]:
        """Note that a member is alive: it puts a session's end off and does nothing else, whose old end is looked at when it comes."""
        group = self.groups.get(group_id)
        if group is None:
            return Decision(reply=ErrorCode.UNKNOWN_MEMBER_ID)
        return Decision(reply=group.heartbeat(member_id, instance_id, generation, now))

    def leave(self, group_id: str, identities: Sequence[tuple[str, str | None]], now: int) -> Decision[list[ErrorCode]]:
        """Take members out of their group, each named by its member id, or by its instance id where that is empty."""
        group = self.groups.get(group_id)
        if group is None:
            return Decision(reply=[ErrorCode.UNKNOWN_MEMBER_ID] * len(identities))
        return self._watched(group, group.leave(identities, now))

    def _watched(self, group: ClassicGroup, decision: Decision[R]) -> Decision[R]:
        self._watch(group)
        return decision

    # Offsets

    def commit(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        offsets: Mapping[Place, NewOffset],
        *,
        now: int,
        wall_ms: int,
    ) -> Decision[dict[Place, ErrorCode]]:
        """Store how far a group has read; without a generation anyone may, for a group that has no members.

        Returns:
            NONE or OFFSET_METADATA_TOO_LARGE for each.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND, or what `ClassicGroup.commit` refuses it with.
        """
        group = self.groups.get(group_id)
        if group is None and generation >= 0:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id} does not exist")
        code = ErrorCode.NONE if group is None else group.commit(member_id, instance_id, generation, now)
        if code is not ErrorCode.NONE:
            raise KafkaError(code)
        return self._commit(group_id, offsets, wall_ms)

    def commit_in_transaction(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        offsets: Mapping[Place, NewOffset],
        *,
        wall_ms: int,
    ) -> Decision[dict[Place, ErrorCode]]:
        """As `commit`, of records that are `apply_pending` until the transaction is over.

        Raises:
            KafkaError: ILLEGAL_GENERATION where there is no such group, COORDINATOR_NOT_AVAILABLE while open transactions have more
                than they may, or what `ClassicGroup.commit_in_transaction` refuses it with.
        """
        group = self.groups.get(group_id)
        if group is None and generation >= 0:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, f"group {group_id} does not exist")
        code = ErrorCode.NONE if group is None else group.commit_in_transaction(member_id, instance_id, generation)
        if code is not ErrorCode.NONE:
            raise KafkaError(code)
        if not self.pending.fits(sum(pending_bytes(place, offset.metadata) for place, offset in offsets.items())):
            text = "open transactions have committed more offsets than there is room for"
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)
        return self._commit(group_id, offsets, wall_ms)

    def _commit(
        self, group_id: str, offsets: Mapping[Place, NewOffset], wall_ms: int
    ) -> Decision[dict[Place, ErrorCode]]:
        codes: dict[Place, ErrorCode] = {}
        records: list[Change] = []
        for (topic, partition), offset in offsets.items():
            too_long = len(offset.metadata.encode()) > self._limits.max_offset_metadata_bytes
            codes[topic, partition] = ErrorCode.OFFSET_METADATA_TOO_LARGE if too_long else ErrorCode.NONE
            if not too_long:
                key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
                records.append((key, offset.committed(wall_ms).record()))
        return Decision(records=tuple(records), reply=codes)

    def delete_offsets(self, group_id: str, places: Collection[Place]) -> Decision[dict[Place, ErrorCode]]:
        """Forget offsets of topics that the group does not read (KIP-496).

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND, or NON_EMPTY_GROUP for members of another kind than consumers.
        """
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id} does not exist")
        if group.state is not State.EMPTY and group.protocol_type != PROTOCOL_TYPE:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
        codes = {
            place: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if group.reads(place[0]) else ErrorCode.NONE for place in places
        }
        table = self.offsets.get(group_id, {})
        forgotten = [
            place
            for place, code in codes.items()
            if code is ErrorCode.NONE and (place in table or self.pending.holds(group_id, place))
        ]
        return Decision(records=_forget(group_id, forgotten), reply=codes)

    # Deleting

    def delete_group(self, group_id: str) -> Decision[ErrorCode]:
        """Remove a group without members, with its offsets; GROUP_ID_NOT_FOUND or NON_EMPTY_GROUP."""
        group = self.groups.get(group_id)
        if group is None:
            return Decision(reply=ErrorCode.GROUP_ID_NOT_FOUND)
        if group.state is not State.EMPTY:
            return Decision(reply=ErrorCode.NON_EMPTY_GROUP)
        offsets = _forget(group_id, sorted({*self.offsets.get(group_id, ()), *self.pending.of(group_id)}))
        return Decision(records=(*offsets, (GroupMetadataKey(group=group_id), None)), reply=ErrorCode.NONE)

    def expirable(self) -> Iterator[dict[str, Sequence[Place]]]:
        """All groups with their offsets, a bounded part of them at a time, for `expire`; a group with many is in several parts."""
        part: dict[str, Sequence[Place]] = {}
        count = 0
        for group_id in tuple(self.groups):
            places = tuple(self.offsets.get(group_id, ()))
            for start in range(0, max(len(places), 1), OFFSETS_PER_EXPIRY_MAX):
                some = places[start : start + OFFSETS_PER_EXPIRY_MAX]
                if part and (len(part) >= GROUPS_PER_EXPIRY_MAX or count + len(some) > OFFSETS_PER_EXPIRY_MAX):
                    yield part
                    part, count = {}, 0
                part[group_id] = some
                count += len(some)
        if part:
            yield part

    def expire(
        self, part: Mapping[str, Sequence[Place]], now: int, retention_ms: int, topic_exists: TopicExists
    ) -> Decision[None]:
        """Remove offsets that are not needed any more, and empty groups that have none left. What an open transaction has committed
        stays until that is over, and what it is to take the place of, as in Kafka.

        Args:
            part: whom to look at, and which of their offsets.
            now: by the wall clock, as commits are.
            topic_exists: asked with the name and the id that an offset was committed for.
        """
        records: list[Change] = []
        for group_id, places in part.items():
            group = self.groups.get(group_id)
            if group is None:
                continue
            table = self.offsets.get(group_id, {})
            settled = {
                place: table[place] for place in places if place in table and not self.pending.holds(group_id, place)
            }
            over = expired(group, settled, now=now, retention_ms=retention_ms, topic_exists=topic_exists)
            records += _forget(group_id, over)
            unused = group.state is State.EMPTY and not group.roster.pending and not self.pending.holds(group_id)
            if unused and len(over) == len(table):
                records.append((GroupMetadataKey(group=group_id), None))
        return Decision(records=tuple(records), reply=None)


def _forget(group_id: str, places: Collection[Place]) -> tuple[Any, ...]:
    return tuple(
        (OffsetCommitKey(group=group_id, topic=topic, partition=partition), None) for topic, partition in places
    )
