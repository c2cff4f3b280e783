"""The share partitions of one partition of `__share_group_state`: a coordinator shard.

Here: the table, its operations, `apply`, which alone changes it, the part of the log still needed.
Not here: merging batches (`batches`), storage and waiting (`coordinator.runtime`), the periodic scan
(`coordinator.share_state_coordinator`).

A state is a snapshot, which supersedes all earlier records of its share partition, and the updates since. A snapshot is
written after many updates, and where an old one alone keeps the log from being truncated.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple
from uuid import UUID

from busway_bus.kernel.decision import Decision, Waiter
from busway_bus.kernel.limits import SHARE_STATE_BATCH_BYTES, SHARE_STATE_BATCHES_MAX, SHARE_STATE_BYTES
from busway_bus.kernel.share_state import SharePartitionKey, ShareState, StateBatch
from busway_bus.share_state import records
from busway_bus.share_state.batches import NO_START, combine
from busway_bus.share_state.records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)
from busway_protocol.errors import ErrorCode, KafkaError

ANY_EPOCH: Final = -1
"""In place of an unknown epoch. It fences nothing."""
FIRST_LEADER_EPOCH: Final = 0
NEVER_BEGUN: Final = ShareState(state_epoch=0, leader_epoch=FIRST_LEADER_EPOCH, start_offset=NO_START)
"""The summary of an uninitialized share partition."""


class Change(NamedTuple):
    """One record: a snapshot, an update or a tombstone (None)."""

    key: SharePartitionKey
    value: ShareSnapshotValue | ShareUpdateValue | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The state of a share partition.

    Attributes:
        snapshot_epoch: number of its snapshots.
        snapshot_offset: log offset of the last one; the log is needed from there.
        created_ms: when the state was created. A snapshot that replaces an old one keeps it.
        leader_fence, state_fence: writes with earlier epochs are fenced.
    """

    state: ShareState
    snapshot_epoch: int
    snapshot_offset: int
    created_ms: int
    written_ms: int
    updates: int = 0
    leader_fence: int
    state_fence: int


class ShareStateShard:
    """The states of one partition of the topic.

    Args:
        exists: whether a topic id has a partition of this index.

    Attributes:
        held_bytes: approximate memory of all states.
        end_offset: the offset after the last record.
    """

    def __init__(self, *, exists: Callable[[UUID, int], bool], updates_per_snapshot: int) -> None:
        self._exists = exists
        self._updates_per_snapshot = updates_per_snapshot
        self.partitions: dict[SharePartitionKey, Kept] = {}
        self._by_topic: dict[UUID, dict[SharePartitionKey, None]] = {}
        self.held_bytes = 0
        self.end_offset = 0

    # Records

    @staticmethod
    def encode(change: Change) -> tuple[bytes, bytes | None]:
        kind = ShareUpdateKey if isinstance(change.value, ShareUpdateValue) else ShareSnapshotKey
        key = kind(group_id=change.key.group_id, topic_id=change.key.topic_id, partition=change.key.partition)
        return records.key_bytes(key), records.value_bytes(change.value)

    @staticmethod
    def decode(key: bytes, value: bytes | None) -> Change | None:
        parsed = records.parse(key, value)
        if parsed is None:
            return None
        where, content = parsed
        if content is None and isinstance(where, ShareUpdateKey):
            return None
        partition = SharePartitionKey(group_id=where.group_id, topic_id=where.topic_id, partition=where.partition)
        return Change(partition, content)

    def at(self, offset: int) -> None:
        self.end_offset = offset + 1

    def apply(self, change: Change, now: int) -> None:
        key, value = change
        before = self.partitions.get(key)
        if value is None:
            self._put(key, None)
        elif isinstance(value, ShareSnapshotValue):
            self._put(key, _snapshot(before, value, self.end_offset - 1))
        elif before is not None:  # else its snapshot was truncated, and another or a tombstone follows
            self._put(key, _updated(before, value))

    def _put(self, key: SharePartitionKey, kept: Kept | None) -> None:
        before = self.partitions.get(key)
        if before is not None:
            self.held_bytes -= _size(key, before.state)
        if kept is not None:
            self.held_bytes += _size(key, kept.state)
            self.partitions[key] = kept
            self._by_topic.setdefault(key.topic_id, {})[key] = None
        elif before is not None:
            del self.partitions[key]
            of_topic = self._by_topic[key.topic_id]
            del of_topic[key]
            if not of_topic:
                del self._by_topic[key.topic_id]

    # Timers: none; the coordinator calls `renewed` at its intervals.

    def next_deadline(self) -> int | None:
        return None

    def tick(self, now: int) -> Decision[None]:
        return Decision(reply=None)

    def unloaded(self) -> list[Waiter]:
        return []

    # Requests

    def initialize(
        self, key: SharePartitionKey, *, state_epoch: int, start_offset: int, wall_ms: int, has_room: bool
    ) -> Decision[None]:
        """Initialize a state, or reset it.

        Raises:
            KafkaError: INVALID_REQUEST, FENCED_STATE_EPOCH or UNKNOWN_TOPIC_OR_PARTITION; POLICY_VIOLATION where there is no room.
        """
        _check_partition(key)
        kept = self.partitions.get(key)
        if kept is not None and ANY_EPOCH != state_epoch < kept.state_fence:
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH)
        self._check_exists(key)
        if kept is None and not has_room:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, "the coordinator keeps as many share partitions as it can")
        value = ShareSnapshotValue(
            snapshot_epoch=0 if kept is None else kept.snapshot_epoch + 1,
            state_epoch=state_epoch,
            leader_epoch=FIRST_LEADER_EPOCH,
            start_offset=start_offset,
            delivery_complete_count=-1 if start_offset == NO_START else 0,
            create_timestamp=wall_ms,
            write_timestamp=wall_ms,
            state_batches=[],
        )
        return Decision(records=(Change(key, value),), reply=None)

    def read(self, key: SharePartitionKey, *, leader_epoch: int, wall_ms: int) -> Decision[ShareState]:
        """Return the state for a leader. A new leader epoch is written.

        Raises:
            KafkaError: INVALID_REQUEST, FENCED_LEADER_EPOCH or UNKNOWN_TOPIC_OR_PARTITION.
        """
        kept = self._begun(key, "Read")
        if ANY_EPOCH != leader_epoch < kept.leader_fence:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        self._check_exists(key)
        if leader_epoch in {ANY_EPOCH, kept.leader_fence}:
            return Decision(reply=kept.state)
        change = replace(kept.state, leader_epoch=leader_epoch, batches=())
        return Decision(records=(self._change(key, kept, change, leader_epoch, wall_ms),), reply=kept.state)

    def write(self, key: SharePartitionKey, change: ShareState, *, wall_ms: int, room_bytes: int) -> Decision[None]:
        """Merge a change into the state.

        Args:
            room_bytes: bytes that may still be added.

        Raises:
            KafkaError: INVALID_REQUEST, FENCED_LEADER_EPOCH, FENCED_STATE_EPOCH or UNKNOWN_TOPIC_OR_PARTITION;
                POLICY_VIOLATION where there is no room.
        """
        kept = self._begun(key, "Write")
        if ANY_EPOCH != change.leader_epoch < kept.leader_fence:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        if ANY_EPOCH != change.state_epoch < kept.state_fence:
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH)
        self._check_exists(key)
        _check_batches(change.batches)
        if len(change.batches) + len(kept.state.batches) > SHARE_STATE_BATCHES_MAX:
            text = f"a share partition has at most {SHARE_STATE_BATCHES_MAX} state batches"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        if len(change.batches) * SHARE_STATE_BATCH_BYTES > room_bytes:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, "the coordinator keeps as many state batches as it can")
        return Decision(records=(self._change(key, kept, change, kept.state.leader_epoch, wall_ms),), reply=None)

    def summary(self, key: SharePartitionKey) -> ShareState:
        """Return the state without batches, else `NEVER_BEGUN`.

        Raises:
            KafkaError: INVALID_REQUEST or UNKNOWN_TOPIC_OR_PARTITION.
        """
        _check_partition(key)
        self._check_exists(key)
        kept = self.partitions.get(key)
        return NEVER_BEGUN if kept is None else replace(kept.state, batches=())

    def delete(self, key: SharePartitionKey) -> Decision[None]:
        """Delete a state; a missing one is no error.

        Raises:
            KafkaError: INVALID_REQUEST or UNKNOWN_TOPIC_OR_PARTITION.
        """
        _check_partition(key)
        self._check_exists(key)
        return Decision(records=(Change(key, None),) if key in self.partitions else (), reply=None)

    def _begun(self, key: SharePartitionKey, operation: str) -> Kept:
        _check_partition(key)
        kept = self.partitions.get(key)
        if kept is None:
            text = f"{operation} operation on uninitialized share partition not allowed."
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        return kept

    def _check_exists(self, key: SharePartitionKey) -> None:
        if not self._exists(key.topic_id, key.partition):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _change(
        self, key: SharePartitionKey, kept: Kept, change: ShareState, leader_epoch: int, wall_ms: int
    ) -> Change:
        """Build an update, or a snapshot after `updates_per_snapshot` updates."""
        if kept.updates < self._updates_per_snapshot:
            update = ShareUpdateValue(
                snapshot_epoch=kept.snapshot_epoch,
                leader_epoch=leader_epoch,
                start_offset=change.start_offset,
                delivery_complete_count=change.delivery_complete_count,
                state_batches=_stored(combine((), change.batches, change.start_offset)),
            )
            return Change(key, update)
        start_offset = kept.state.start_offset if change.start_offset == NO_START else change.start_offset
        state = ShareState(
            state_epoch=kept.state.state_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=change.delivery_complete_count,
            batches=combine(kept.state.batches, change.batches, start_offset),
        )
        return Change(key, _whole(state, kept.snapshot_epoch + 1, created_ms=wall_ms, wall_ms=wall_ms))

    # Maintenance by the coordinator

    @property
    def quiet(self) -> bool:
        """Whether all snapshots are rewrites for age, without changes since."""
        return all(kept.created_ms != kept.written_ms for kept in self.partitions.values())

    def renewed(self, keys: Iterable[SharePartitionKey], *, wall_ms: int, older_ms: int) -> Decision[bool]:
        """Rewrite snapshots of at least this age; reply True: more may be due."""
        changes = []
        for key in keys:
            kept = self.partitions.get(key)
            if kept is not None and wall_ms - kept.written_ms >= older_ms:
                snapshot = _whole(kept.state, kept.snapshot_epoch + 1, created_ms=kept.created_ms, wall_ms=wall_ms)
                changes.append(Change(key, snapshot))
        return Decision(records=tuple(changes), reply=True)

    def gone(self) -> list[UUID]:
        return [topic_id for topic_id in self._by_topic if not self._exists(topic_id, 0)]

    def forget(self, topic_ids: Collection[UUID], at_most: int) -> Decision[bool]:
        """Delete at most `at_most` states of topics; reply whether there are more."""
        keys: list[SharePartitionKey] = []
        for topic_id in topic_ids:
            keys += list(self._by_topic.get(topic_id, ()))
            if len(keys) > at_most:
                break
        return Decision(records=tuple(Change(key, None) for key in keys[:at_most]), reply=len(keys) > at_most)

    def needed_from(self) -> int:
        """Return the offset of the first record still needed."""
        return min((kept.snapshot_offset for kept in self.partitions.values()), default=self.end_offset)


def _snapshot(before: Kept | None, value: ShareSnapshotValue, offset: int) -> Kept:
    state = ShareState(
        state_epoch=value.state_epoch,
        leader_epoch=value.leader_epoch,
        start_offset=value.start_offset,
        delivery_complete_count=value.delivery_complete_count,
        batches=_held(value.state_batches),
    )
    return Kept(
        state=state,
        snapshot_epoch=value.snapshot_epoch,
        snapshot_offset=offset,
        created_ms=value.create_timestamp,
        written_ms=value.write_timestamp,
        leader_fence=max(value.leader_epoch, before.leader_fence if before is not None else value.leader_epoch),
        state_fence=max(value.state_epoch, before.state_fence if before is not None else value.state_epoch),
    )


def _updated(before: Kept, value: ShareUpdateValue) -> Kept:
    start_offset = before.state.start_offset if value.start_offset == NO_START else value.start_offset
    state = ShareState(
        state_epoch=before.state.state_epoch,
        leader_epoch=before.state.leader_epoch if value.leader_epoch == ANY_EPOCH else value.leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=value.delivery_complete_count,
        batches=combine(before.state.batches, _held(value.state_batches), start_offset),
    )
    leader_fence = max(before.leader_fence, value.leader_epoch)
    return replace(before, state=state, updates=before.updates + 1, leader_fence=leader_fence)


def _whole(state: ShareState, snapshot_epoch: int, *, created_ms: int, wall_ms: int) -> ShareSnapshotValue:
    return ShareSnapshotValue(
        snapshot_epoch=snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        create_timestamp=created_ms,
        write_timestamp=wall_ms,
        state_batches=_stored(state.batches),
    )


def _stored(batches: Iterable[StateBatch]) -> list[records.StateBatch]:
    return [
        records.StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
        for first, last, state, count in batches
    ]


def _held(batches: Iterable[records.StateBatch]) -> tuple[StateBatch, ...]:
    return tuple(
        StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
        for batch in batches
    )


def _check_partition(key: SharePartitionKey) -> None:
    if key.partition < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The partition id cannot be a negative number.")


def _check_batches(batches: Iterable[StateBatch]) -> None:
    for batch in batches:
        if not 0 <= batch.first_offset <= batch.last_offset:
            text = f"a state batch from offset {batch.first_offset} to {batch.last_offset} is none"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)


def _size(key: SharePartitionKey, state: ShareState) -> int:
    return SHARE_STATE_BYTES + 2 * len(key.group_id) + SHARE_STATE_BATCH_BYTES * len(state.batches)
