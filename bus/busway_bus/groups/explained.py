"""A shard of groups that records rebalances, for `history`.

Here: why members joined or left and which partitions moved, as records are applied.
Not here: rules of groups (`shard`). A new kind of group adds its keys to `_SEEN`.
"""

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from busway_bus.groups.classic.group import ClassicGroup
from busway_bus.groups.classic.member import Member
from busway_bus.groups.classic.states import State
from busway_bus.groups.group import Group
from busway_bus.groups.history import Gathering, History
from busway_bus.groups.modern.group import NO_PARTITIONS, ModernGroup, ModernState
from busway_bus.groups.modern.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)
from busway_bus.groups.modern.requests import ConsumerHeartbeat, HeartbeatResult
from busway_bus.groups.records import Change, GroupMetadataKey
from busway_bus.groups.requests import Join, JoinResult
from busway_bus.groups.shard import GroupShard
from busway_bus.kernel.decision import PARKED, Decision, Unanswered, Waiter
from busway_bus.kernel.limits import EXPLAINED_ASSIGNMENT_BYTES_MAX
from busway_protocol.assignors.consumer_protocol import PROTOCOL_TYPE, decode_assignment
from busway_protocol.errors import ErrorCode, MalformedMessage

Identities = Sequence[tuple[str, str | None]]
Cause = Callable[[str, str | None], tuple[str, str | None]]
"""The event and its reason, by member and instance id."""
SILENT: Final = "timed out"
LATE: Final = "was late"
LEFT: Final = "left"
FENCED: Final = "was fenced"
REMOVED: Final = "was removed"
JOINED: Final = "joined"
_GOING: Final = frozenset({SILENT, LATE, LEFT, FENCED, REMOVED})


class ExplainedShard(GroupShard):
    """A `GroupShard` that records rebalances.

    Attributes:
        live: the replay is over; replayed records give no reasons.
    """

    def __init__(self, history: History, **options: Any) -> None:
        super().__init__(**options)
        self.live = False
        self._history = history
        self._gathering: dict[str, Gathering] = {}
        self._settling: dict[str, tuple[Gathering, int]] = {}
        """Unreached target assignments of consumer groups, with their epoch."""
        self._causes: dict[str, Cause] = {}
        """Why the groups of the current operation remove members."""
        self._before: tuple[str, int, Gathering | None] = ("", 0, None)
        """Changes of the last deleted group: a classic one may replace it next."""
        self._now = 0

    def explanation(self, group_id: str) -> str | None:
        """Return the last rebalances as JSON; None for an unknown group."""
        group = self.groups.get(group_id)
        if group is None and not self._history.knows(group_id):
            return None
        kind, members = ("", 0) if group is None else (group.kind.value, _size(group))
        under_way = []
        if group_id in self._settling:
            settling, epoch = self._settling[group_id]
            under_way.append(settling.entry(kind, epoch, members, None))
        if group_id in self._gathering:
            under_way.append(self._gathering[group_id].entry(kind, -1, members, None))
        return self._history.text(group_id, under_way)

    def _gather(self, group_id: str) -> Gathering:
        gathering = self._gathering.get(group_id)
        if gathering is None:
            gathering = self._gathering[group_id] = Gathering(self._now, self._history.wall_ms())
            group = self.groups.get(group_id)
            if isinstance(group, ClassicGroup):
                gathering.had = _assignments(group.roster)
        return gathering

    # Why members join and leave

    def _new_classic(self, group_id: str) -> ClassicGroup:
        group = super()._new_classic(group_id)
        shard = weakref.ref(self)  # no reference cycle: a released group frees its memory at once

        def on_removed(member: Member) -> None:
            here = shard()
            if here is not None and here.live:
                here._fence_members(group_id, member)

        group.on_removed = on_removed
        return group

    def _fence_members(self, group_id: str, member: Member) -> None:
        what, reason = self._causes.get(group_id, _unknown)(member.member_id, member.instance_id)
        if what == LATE and member.deadline_ms <= self._now:
            what, reason = SILENT, f"no heartbeat within its session of {member.session_timeout_ms} ms"
        gathering = self._gather(group_id)
        if gathering.had is not None:
            gathering.had.setdefault(member.member_id, member.assignment)
        self._note(group_id, what, member, reason)

    def _note(self, group_id: str, what: str, member: Any, reason: str | None) -> None:
        self._gather(group_id).note(
            what,
            member.member_id,
            reason,
            client_id=member.client_id,
            host=member.client_host,
            instance=member.instance_id,
        )

    def join(self, group_id: str, request: Join, waiter: Waiter, now: int) -> Decision[JoinResult | Unanswered]:
        self._now, self._causes = now, {group_id: _replaced}
        group = self.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            return super().join(group_id, request, waiter, now)
        count, owner = len(group.members), group.roster.owner(request.instance_id)
        settled = group.state is not State.PREPARING
        decision = super().join(group_id, request, waiter, now)
        if len(group.members) > count:
            self._note(group_id, JOINED, group.members[next(reversed(group.members))], request.reason)
        elif owner is not None and not request.member_id:
            self._gather(group_id).note("came back", owner, request.reason, instance=request.instance_id)
        elif settled and decision.reply is PARKED and request.member_id in group.members:
            self._note(group_id, "joined again", group.members[request.member_id], request.reason)
        return decision

    def leave(
        self,
        group_id: str,
        identities: Identities,
        now: int,
        reasons: Sequence[str | None] = (),
        what: str = LEFT,
    ) -> Decision[list[ErrorCode]]:
        """Record each member's reason. `what`: `LEFT` or `FENCED`."""
        reason_of: dict[str, str | None] = {}
        for (member_id, instance_id), reason in zip(identities, reasons, strict=False):
            reason_of[member_id or f"instance {instance_id}"] = reason

        def cause(member_id: str, instance_id: str | None) -> tuple[str, str | None]:
            return what, reason_of.get(member_id) or reason_of.get(f"instance {instance_id}")

        self._now, self._causes = now, {group_id: cause}
        return super().leave(group_id, identities, now)

    def consumer_heartbeat(self, group_id: str, heartbeat: ConsumerHeartbeat, now: int) -> Decision[HeartbeatResult]:
        self._now, self._causes = now, {group_id: _left if heartbeat.epoch < 0 else _replaced}
        return super().consumer_heartbeat(group_id, heartbeat, now)

    def tick(self, now: int) -> Decision[None]:
        self._causes = {}
        return super().tick(now)

    def step(self, group: Group, now: int) -> Decision[None]:
        self._now = now

        def cause(member_id: str, instance_id: str | None) -> tuple[str, str | None]:
            if member_id in silent:
                return SILENT, "no heartbeat within its session"
            return LATE, "it did not join, sync or give up partitions within its rebalance timeout"

        silent: set[str] = set()
        self._causes[group.group_id] = cause
        decision = super().step(group, now)
        if isinstance(group, ModernGroup):
            gone = [key.member_id for key, value in decision.records if type(key) is ConsumerGroupMemberMetadataKey]
            silent.update(member_id for member_id in gone if group.silent(member_id, now))
        return decision

    # Records

    def apply(self, change: Change, now: int) -> None:
        seen = _SEEN.get(type(change[0])) if self.live else None
        if seen is None:
            super().apply(change, now)
            return
        self._now = now
        seen(self, change, now)

    def _generation(self, change: Change, now: int) -> None:
        """Record a classic generation, which ends the rebalance."""
        key, value = change
        group = self.groups.get(key.group)
        before = group if isinstance(group, ClassicGroup) else None
        if value is None:
            super().apply(change, now)
            self._gathering.pop(key.group, None)
            if before is not None and before.members:
                self._gather(key.group).note("became a consumer group", "")
            return
        generation = None if before is None else before.generation
        had = {} if before is None else _assignments(before.roster)
        super().apply(change, now)
        gathering = self._gathering.pop(key.group, None) or self._ended(key.group)
        if gathering is None:
            if value.generation == generation or not value.members:
                return  # the record was written for the first member, or for a static member that rejoined
            gathering = Gathering(now, self._history.wall_ms())
            gathering.had = had
        gathering.forget(_GOING, [member.member_id for member in value.members])
        if not gathering.reasons and not value.members:
            return
        self._compare(gathering, value)
        took_ms = now - gathering.began_ms
        self._history.add(key.group, gathering.entry("classic", value.generation, len(value.members), took_ms))

    def _ended(self, group_id: str) -> Gathering | None:
        (ended_id, ended_ms, gathering), self._before = self._before, ("", 0, None)
        if ended_id != group_id or ended_ms != self._now or gathering is None:
            return None
        gathering.note("became a classic group", "")
        gathering.uncounted = True
        return gathering

    def _compare(self, gathering: Gathering, value: Any) -> None:
        has = {member.member_id: member.assignment for member in value.members}
        if value.protocol_type not in {PROTOCOL_TYPE, ""}:
            return
        if gathering.had is None or _too_much(has.values()):
            gathering.uncounted = True
            return
        before, after = _owners(gathering.had), _owners(has)
        for partition in sorted({*before, *after}):
            if before.get(partition) != after.get(partition):
                if partition in before:
                    gathering.lose(partition, before[partition])
                if partition in after:
                    gathering.gain(partition, after[partition])

    def _epoch(self, change: Change, now: int) -> None:
        """Record a raised epoch. Without members it ends the rebalance."""
        key, value = change
        super().apply(change, now)
        group = self.groups.get(key.group_id)
        gathering = self._gathering.get(key.group_id)
        if value is None or gathering is None or not isinstance(group, ModernGroup) or group.members:
            return
        self._close(key.group_id, None)
        del self._gathering[key.group_id]
        took_ms = now - gathering.began_ms
        self._history.add(key.group_id, gathering.entry(group.kind.value, value.epoch, 0, took_ms))

    def _member(self, change: Change, now: int) -> None:
        key, value = change
        group = self.groups.get(key.group_id)
        member = group.members.get(key.member_id) if isinstance(group, ModernGroup) else None
        super().apply(change, now)
        if value is None:
            if member is not None:
                what, reason = self._causes.get(key.group_id, _unknown)(member.member_id, member.instance_id)
                self._note(key.group_id, what, member, reason)
            return
        what = JOINED if member is None else "changes its subscription"
        if member is None or member.topics != frozenset(value.subscribed_topic_names):
            self._gather(key.group_id).note(
                what, key.member_id, client_id=value.client_id, host=value.client_host, instance=value.instance_id
            )

    def _target(self, change: Change, now: int) -> None:
        key, value = change
        group = self.groups.get(key.group_id)
        had = group.target.get(key.member_id, NO_PARTITIONS) if isinstance(group, ModernGroup) else NO_PARTITIONS
        super().apply(change, now)
        has = {row.topic_id: row.partitions for row in value.topic_partitions} if value is not None else {}
        gathering = self._gather(key.group_id)
        for topic_id, partition in self._without(had, has):
            gathering.lose((topic_id, partition), key.member_id)
        for topic_id, partition in self._without(has, had):
            gathering.gain((topic_id, partition), key.member_id)

    def _without(
        self, partitions: Mapping[UUID, Sequence[int]], others: Mapping[UUID, Sequence[int]]
    ) -> list[tuple[str, int]]:
        topic_partitions: list[tuple[str, int]] = []
        for topic_id, partition_indexes in partitions.items():
            name = self._topics.name_of(topic_id) or str(topic_id)
            left = set(others.get(topic_id, ()))
            topic_partitions += [(name, partition) for partition in partition_indexes if partition not in left]
        return topic_partitions

    def _targets(self, change: Change, now: int) -> None:
        key, value = change
        super().apply(change, now)
        if value is None:
            self._settling.pop(key.group_id, None)
            self._before = key.group_id, now, self._gathering.pop(key.group_id, None)
            return
        self._close(key.group_id, None)  # the previous target assignment is superseded
        gathering = self._gather(key.group_id)
        if not gathering.reasons:
            gathering.note("topics or settings have changed", "")
        self._settling[key.group_id] = self._gathering.pop(key.group_id), value.assignment_epoch
        self._settled(key.group_id, now)

    def _current(self, change: Change, now: int) -> None:
        super().apply(change, now)
        self._settled(change[0].group_id, now)

    def _settled(self, group_id: str, now: int) -> None:
        group, settling = self.groups.get(group_id), self._settling.get(group_id)
        if settling is not None and isinstance(group, ModernGroup) and group.state is ModernState.STABLE:
            self._close(group_id, now - settling[0].began_ms)

    def _close(self, group_id: str, took_ms: int | None) -> None:
        settling, group = self._settling.pop(group_id, None), self.groups.get(group_id)
        if settling is not None and group is not None:
            gathering, epoch = settling
            self._history.add(group_id, gathering.entry(group.kind.value, epoch, _size(group), took_ms))


_SEEN: Final[Mapping[type[Any], Callable[[ExplainedShard, Change, int], None]]] = {
    GroupMetadataKey: ExplainedShard._generation,
    ConsumerGroupMetadataKey: ExplainedShard._epoch,
    ConsumerGroupMemberMetadataKey: ExplainedShard._member,
    ConsumerGroupTargetAssignmentMemberKey: ExplainedShard._target,
    ConsumerGroupTargetAssignmentMetadataKey: ExplainedShard._targets,
    ConsumerGroupCurrentMemberAssignmentKey: ExplainedShard._current,
}


def _unknown(member_id: str, instance_id: str | None) -> tuple[str, str | None]:
    return REMOVED, None


def _left(member_id: str, instance_id: str | None) -> tuple[str, str | None]:
    return LEFT, None


def _replaced(member_id: str, instance_id: str | None) -> tuple[str, str | None]:
    return REMOVED, "another member joined with its instance id"


def _size(group: Group) -> int:
    return len(group.members) if isinstance(group, ClassicGroup | ModernGroup) else 0


def _assignments(members: Iterable[Member]) -> dict[str, bytes] | None:
    assignments = {member.member_id: member.assignment for member in members}
    return None if _too_much(assignments.values()) else assignments


def _too_much(assignments: Iterable[bytes]) -> bool:
    """Whether decoding would block the event loop for too long."""
    return sum(map(len, assignments)) > EXPLAINED_ASSIGNMENT_BYTES_MAX


def _owners(assignments: Mapping[str, bytes]) -> dict[tuple[str, int], str]:
    owners: dict[tuple[str, int], str] = {}
    for member_id, assignment in assignments.items():
        try:
            owners.update((((topic, partition), member_id) for topic, partition in decode_assignment(assignment)))
        except MalformedMessage:
            continue  # the format of the assignment is up to its leader
    return owners
