"""The groups and committed offsets of one partition of `__consumer_offsets`.

What lives here: the tables, `apply`, and the decisions about offsets. What does not: the group machine (`classic`), storage.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from busway_bus.groups.classic import ClassicGroup, GroupLimits, State
from busway_bus.groups.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    Key,
    OffsetCommitKey,
    OffsetCommitValue,
    Value,
)

Change = tuple[Key, Value | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """How far a group has read one partition."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int


@dataclass(slots=True, kw_only=True)
class GroupShard:
    """What one partition of the offsets topic holds."""

    limits: GroupLimits
    new_member_id: Callable[[str], str]
    groups: dict[str, ClassicGroup] = field(default_factory=dict)
    offsets: dict[str, dict[tuple[str, int], CommittedOffset]] = field(default_factory=dict)

    def apply(self, key: Key, value: Value | None, now: int) -> None:
        """Take one record into the tables; the only way that they change."""
        if isinstance(key, OffsetCommitKey):
            table = self.offsets.setdefault(key.group, {})
            if value is None:
                table.pop((key.topic, key.partition), None)
                if not table:
                    del self.offsets[key.group]
            else:
                assert isinstance(value, OffsetCommitValue)
                table[key.topic, key.partition] = CommittedOffset(
                    offset=value.offset,
                    leader_epoch=value.leader_epoch,
                    metadata=value.metadata,
                    commit_timestamp_ms=value.commit_timestamp,
                )
        elif value is None:
            self.groups.pop(key.group, None)
        else:
            assert isinstance(value, GroupMetadataValue)
            if key.group not in self.groups:
                self.group(key.group).restore(value, now)

    def load(self, changes: Iterable[Change], now: int) -> None:
        """Take in the whole log at start: of each key only the last record counts."""
        last: dict[tuple[type, str, str, int], Change] = {}
        for key, value in changes:
            if isinstance(key, OffsetCommitKey):
                last[OffsetCommitKey, key.group, key.topic, key.partition] = (key, value)
            else:
                last[GroupMetadataKey, key.group, "", 0] = (key, value)
        for key, value in last.values():
            if value is not None:
                self.apply(key, value, now)

    def group(self, group_id: str) -> ClassicGroup:
        """The group, an empty one where there is none."""
        found = self.groups.get(group_id)
        if found is None:
            found = self.groups[group_id] = ClassicGroup(group_id, self.limits, self.new_member_id)
        return found

    def known(self, group_id: str) -> bool:
        """Whether the group has members or offsets."""
        return group_id in self.groups or group_id in self.offsets

    def delete_group(self, group_id: str) -> list[Change]:
        """The tombstones that remove a group and all its offsets."""
        changes: list[Change] = [
            (OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)
            for topic, partition in self.offsets.get(group_id, {})
        ]
        return [*changes, (GroupMetadataKey(group=group_id), None)]

    def expired(self, now: int, retention_ms: int, topic_exists: Callable[[str], bool]) -> list[Change]:
        """Tombstones for offsets of groups that have been empty for long enough (KIP-211), and of topics that are gone."""
        changes: list[Change] = []
        for group_id, table in self.offsets.items():
            group = self.groups.get(group_id)
            empty = group is None or group.state is State.EMPTY
            since = group.state_since_ms if group is not None and group.protocol_type else None
            for (topic, partition), committed in table.items():
                base = committed.commit_timestamp_ms if since is None else max(since, committed.commit_timestamp_ms)
                if not topic_exists(topic) or (empty and now - base >= retention_ms):
                    changes.append((OffsetCommitKey(group=group_id, topic=topic, partition=partition), None))
        return changes
