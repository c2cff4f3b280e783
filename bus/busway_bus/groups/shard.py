"""The groups and committed offsets of one partition of `__consumer_offsets`.

What lives here: the tables, `apply`, and the decisions what to delete. What does not: the group machine (`classic`), storage.
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from busway_bus.groups.classic import ClassicGroup
from busway_bus.groups.classic_values import GroupLimits, State
from busway_bus.groups.expiry import expired
from busway_bus.groups.offsets import CommittedOffset
from busway_bus.groups.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    Key,
    OffsetCommitKey,
    OffsetCommitValue,
    Value,
)

Change = tuple[Key, Value | None]
_STEP: Final = 100
"""Records of one step of loading, some hundred microseconds."""


@dataclass(slots=True, kw_only=True)
class GroupShard:
    """What one partition of the offsets topic holds. A group that has offsets is in `groups` too."""

    limits: GroupLimits
    new_member_id: Callable[[str], str]
    groups: dict[str, ClassicGroup] = field(default_factory=dict)
    offsets: dict[str, dict[tuple[str, int], CommittedOffset]] = field(default_factory=dict)

    def apply(self, key: Key, value: Value | None, now: int) -> None:
        """Take one record into the tables; the only way that offsets change and that groups end."""
        if isinstance(key, OffsetCommitKey):
            self._apply_offset(key, value)
        elif value is None:
            group = self.groups.pop(key.group, None)
            if group is not None and group.state is State.EMPTY:
                group.end(now)
        elif key.group not in self.groups:
            # While it runs the group is ahead of its record: the machine has moved, then the record was written.
            assert isinstance(value, GroupMetadataValue)
            self.group(key.group).restore(value, now)

    def _apply_offset(self, key: OffsetCommitKey, value: Value | None) -> None:
        if value is None:
            table = self.offsets.get(key.group, {})
            table.pop((key.topic, key.partition), None)
            if not table:
                self.offsets.pop(key.group, None)
        else:
            assert isinstance(value, OffsetCommitValue)
            self.group(key.group)
            table = self.offsets.setdefault(key.group, {})
            table[key.topic, key.partition] = CommittedOffset.from_record(value)

    def load(self, changes: Iterable[Change], now: int) -> Iterator[None]:
        """Take in a whole log, a step at a time."""
        for key, value in (yield from last_of_each(changes)):
            self.apply(key, value, now)

    def group(self, group_id: str) -> ClassicGroup:
        """The group, an empty one where there is none."""
        found = self.groups.get(group_id)
        if found is None:
            found = self.groups[group_id] = ClassicGroup(group_id, self.limits, self.new_member_id)
        return found

    def known(self, group_id: str) -> bool:
        """Whether there is such a group."""
        return group_id in self.groups

    def delete_group(self, group_id: str) -> list[Change]:
        """The tombstones that remove a group and all its offsets."""
        changes = [_forget(group_id, topic, partition) for topic, partition in sorted(self.offsets.get(group_id, {}))]
        return [*changes, (GroupMetadataKey(group=group_id), None)]

    def expired(self, now: int, retention_ms: int, topic_exists: Callable[[str, UUID], bool]) -> list[Change]:
        """Tombstones for offsets that are not needed any more, and for empty groups that have none left.

        `topic_exists` is asked with the name and the id that an offset was committed for.
        """
        changes: list[Change] = []
        for group_id, group in self.groups.items():
            table = self.offsets.get(group_id, {})
            gone = expired(group, table, now=now, retention_ms=retention_ms, topic_exists=topic_exists)
            changes += [_forget(group_id, topic, partition) for topic, partition in gone]
            if len(gone) == len(table) and group.state is State.EMPTY and not group.roster.pending:
                changes.append((GroupMetadataKey(group=group_id), None))
        return changes


def founding(group_id: str, now: int) -> Change:
    """The first record of a group, written before anyone has joined it."""
    value = GroupMetadataValue(
        protocol_type="", generation=0, protocol=None, leader=None, current_state_timestamp=now, members=[]
    )
    return GroupMetadataKey(group=group_id), value


def _forget(group_id: str, topic: str, partition: int) -> Change:
    return OffsetCommitKey(group=group_id, topic=topic, partition=partition), None


def last_of_each(changes: Iterable[Change]) -> Generator[None, None, list[Change]]:
    """What counts of a whole log, a step at a time: of each key the last record, unless it is a tombstone, groups before offsets."""
    groups: dict[str, Change] = {}
    offsets: dict[tuple[str, str, int], Change] = {}
    for number, (key, value) in enumerate(changes):
        if isinstance(key, OffsetCommitKey):
            offsets[key.group, key.topic, key.partition] = (key, value)
        else:
            groups[key.group] = (key, value)
        if number % _STEP == 0:
            yield
    return [change for change in (*groups.values(), *offsets.values()) if change[1] is not None]
