"""A consumer group (KIP-848): the effects of heartbeats and of time.

Here: joining, heartbeats, leaving, raising the epoch.
Not here: the state (`consumer_state`), target assignments (`consumer_target`), reconciliation (`reconcile`), resolving
regular expressions (the coordinator). Methods return records, and change nothing stored.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar
from uuid import UUID

from busway_bus.groups.memory_quota import GroupMemory
from busway_bus.groups.modern.consumer_member import STATIC_LEAVE_EPOCH, ConsumerMember
from busway_bus.groups.modern.consumer_state import target_record
from busway_bus.groups.modern.consumer_target import ConsumerTarget, is_within
from busway_bus.groups.modern.group import NO_PARTITIONS, Assignment
from busway_bus.groups.modern.reconcile import reconcile
from busway_bus.groups.modern.records import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
)
from busway_bus.groups.modern.requests import ConsumerHeartbeat, ConsumerLimits, HeartbeatResult, OwnedPartitions
from busway_bus.groups.modern.topics import Topics
from busway_bus.groups.names import NO_NAMES
from busway_bus.groups.records import Change
from busway_bus.kernel.decision import Decision
from busway_bus.kernel.fair_share import NOBODY
from busway_bus.kernel.limits import GROUP_PATTERNS_MAX
from busway_bus.kernel.patterns import BadPattern, Pattern
from busway_protocol.errors import ErrorCode, KafkaError

R = TypeVar("R")
REGEX_REFRESH_MIN_MS: Final = 10_000
"""Shortest time between two resolutions of a group's regular expressions."""


class ConsumerGroup(ConsumerTarget):
    def __init__(self, group_id: str, memory: GroupMemory, limits: ConsumerLimits, topics: Topics) -> None:
        super().__init__(group_id, memory, limits, topics)
        self._seen: tuple[object, int] = (None, 0)
        """The topics last compared with the group, and its epoch after that."""
        self._resolved_in: object = None
        self._resolved_ms: int | None = None
        """Last resolution of all regular expressions."""
        self._too_wide: set[str] = set()
        """Regular expressions whose matches exceed the memory limit."""
        self._asked_ms: int | None = None
        """Time of the pending request for a resolution, repeated without a result."""

    # Heartbeats

    def consumer_heartbeat(self, heartbeat: ConsumerHeartbeat, now: int) -> Decision[HeartbeatResult]:
        """Join, or handle a heartbeat.

        Raises:
            KafkaError: GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, UNRELEASED_INSTANCE_ID,
                FENCED_INSTANCE_ID, INVALID_REGULAR_EXPRESSION.
        """
        self._check_full(heartbeat.member_id)
        records: list[Change] = []
        member = self._seat(heartbeat, records)
        updated = _with(member, heartbeat)
        stepped, unassigned = self._advance(member, updated, heartbeat.owned, now, records)
        settings = self.settings
        if heartbeat.member_id in self.members:
            self.touch(heartbeat.member_id, now + settings.session_timeout_ms)
        included = heartbeat.whole or stepped.assigned != member.assigned
        reply = HeartbeatResult(
            member_id=stepped.member_id,
            epoch=stepped.epoch,
            interval_ms=settings.heartbeat_interval_ms,
            assigned={topic_id: tuple(sorted(held)) for topic_id, held in stepped.assigned.items()}
            if included
            else None,
            unresolved=self._unresolved(member, updated, now),
            unassigned=unassigned,
        )
        return Decision(records=tuple(records), reply=reply)

    def _check_full(self, member_id: str) -> None:
        if len(self.members) >= self._limits.max_size and member_id not in self.members:
            text = f"The consumer group has reached its maximum capacity of {self._limits.max_size} members."
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, text)

    def _advance(
        self, member: ConsumerMember, updated: ConsumerMember, owned: OwnedPartitions, now: int, records: list[Change]
    ) -> tuple[ConsumerMember, bool]:
        """Update a member and reconcile it by one step.

        A due target assignment is computed; the second value is True if it must be planned instead.

        Raises:
            KafkaError: GROUP_MAX_SIZE_REACHED, INVALID_REGULAR_EXPRESSION, or as `reconcile`.
        """
        if updated.regex in self._too_wide and self.regexes[updated.regex]:
            text = f"What `{updated.regex}` matches is more than the members of a group may hold; let it match fewer topics."
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, text)
        self.check_room(member if member.member_id in self.members else None, updated)
        if updated != member:
            records.append(updated.metadata_record(self.group_id))
        resubscribed = updated.topics != member.topics
        new_regex, settled = self._change_regex(member, updated, records)
        epoch = self._next_epoch(member, updated, records, raise_it=resubscribed or (new_regex and settled))
        target_epoch, target, unassigned = self._next_target(updated, epoch, now, records)
        stepped = self._step(updated, target_epoch, target, owned, changed=resubscribed or new_regex)
        if stepped != updated:
            records.append(stepped.assignment_record(self.group_id))
        return stepped, unassigned

    def _seat(self, heartbeat: ConsumerHeartbeat, records: list[Change]) -> ConsumerMember:
        """Return the member; a new one gets a static predecessor's partitions."""
        joins = heartbeat.epoch == 0
        if heartbeat.instance_id is None:
            member = self.members.get(heartbeat.member_id)
            if member is None and joins:
                return ConsumerMember(member_id=heartbeat.member_id)
            if member is None:
                text = f"Member {heartbeat.member_id} is not a member of group {self.group_id}."
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, text)
            _check_epoch(member, heartbeat)
            return member
        held = self.static_member(heartbeat.instance_id)
        if not joins:
            held = self._same_static(held, heartbeat.member_id, heartbeat.instance_id)
            if heartbeat.epoch >= 0:
                _check_epoch(held, heartbeat)
            return held
        if held is None:
            return self.members.get(heartbeat.member_id) or ConsumerMember(member_id=heartbeat.member_id)
        if held.epoch != STATIC_LEAVE_EPOCH and held.classic is None:
            text = (
                f"Static member {heartbeat.member_id} with instance id {heartbeat.instance_id} cannot join the group because the "
                f"instance id is owned by {held.member_id} member."
            )
            raise KafkaError(ErrorCode.UNRELEASED_INSTANCE_ID, text)
        return self._succeed(held, heartbeat.member_id, records)

    def _succeed(self, held: ConsumerMember, member_id: str, records: list[Change]) -> ConsumerMember:
        successor = replace(held, member_id=member_id, epoch=0, previous_epoch=0)
        records += self.member_tombstones(held.member_id)
        records.append(successor.metadata_record(self.group_id))
        records.append(target_record(self.group_id, member_id, self.target.get(held.member_id, NO_PARTITIONS)))
        records.append(successor.assignment_record(self.group_id))
        return successor

    def _same_static(self, held: ConsumerMember | None, member_id: str, instance_id: str) -> ConsumerMember:
        if held is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if held.member_id != member_id:
            text = f"Static member {member_id} with instance id {instance_id} was fenced by member {held.member_id}."
            raise KafkaError(ErrorCode.FENCED_INSTANCE_ID, text)
        return held

    # The group's epoch

    def _next_epoch(
        self, member: ConsumerMember, updated: ConsumerMember, records: list[Change], *, raise_it: bool
    ) -> int:
        inputs, seen_epoch = self._seen
        if not raise_it and inputs is self._topics.hash_inputs and self.epoch >= seen_epoch:
            return self.epoch
        metadata_hash = self._topics.hash_of(self._subscribed_after([member], [updated]))
        raise_it |= metadata_hash != self.metadata_hash
        epoch = self.epoch + raise_it
        if raise_it:
            records.append(_epoch_record(self.group_id, epoch, metadata_hash))
        self._seen = self._topics.hash_inputs, epoch
        if self.old_metadata:
            records.append((ConsumerGroupPartitionMetadataKey(group_id=self.group_id), None))
        return epoch

    def _subscribed_after(self, before: Iterable[ConsumerMember], after: Iterable[ConsumerMember]) -> set[str]:
        less: Counter[str] = Counter()
        more: Counter[str] = Counter()
        regexes = self.regexes.copy()
        for members, topics, by in ((before, less, -1), (after, more, 1)):
            for member in members:
                if by < 0 and member.member_id not in self.members:
                    continue
                topics.update(member.topics)
                if member.regex:
                    regexes[member.regex] += by
        names = {*self.subscribed, *more}
        if less != more:
            names -= {topic for topic, by in less.items() if self.subscribed[topic] + more[topic] <= by}
        if all(regexes[regex] > 0 for regex in self.resolved):
            return names.union(self.by_regex)
        return names.union(*(resolved.topics for regex, resolved in self.resolved.items() if regexes[regex] > 0))

    def _step(
        self, member: ConsumerMember, target_epoch: int, target: Assignment, owned: OwnedPartitions, *, changed: bool
    ) -> ConsumerMember:
        if not changed and member.reconciled and member.epoch == target_epoch:
            return member
        return reconcile(
            member,
            target_epoch,
            target,
            owned=owned,
            reads=self._reads(member),
            subscription_changed=changed,
            taken=self._taken_by_another(member),
        )

    def _reads(self, member: ConsumerMember) -> Callable[[UUID], bool]:
        resolution = self.resolved.get(member.regex or "")
        sets = (member.topics,) if resolution is None else (member.topics, resolution.topics)

        def reads(topic_id: UUID) -> bool:
            name = self._topics.name_of(topic_id)
            return any(name in names for names in sets)

        return reads

    def _taken_by_another(self, member: ConsumerMember) -> Callable[[UUID, int], bool]:
        held = self.static_member(member.instance_id)
        own_ids = {member.member_id, held.member_id if held is not None else member.member_id}

        def taken(topic_id: UUID, partition: int) -> bool:
            owner = self.owners.get(topic_id, {}).get(partition)
            return owner is not None and owner not in own_ids

        return taken

    # Leaving

    def consumer_leave(self, heartbeat: ConsumerHeartbeat, now: int) -> Decision[HeartbeatResult]:
        """Leave the group; a static member may leave temporarily.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
        """
        if heartbeat.instance_id is not None:
            member = self._same_static(
                self.static_member(heartbeat.instance_id), heartbeat.member_id, heartbeat.instance_id
            )
        else:
            member = self._member(heartbeat.member_id)
        reply = HeartbeatResult(member_id=member.member_id, epoch=heartbeat.epoch)
        if heartbeat.instance_id is not None and heartbeat.epoch == STATIC_LEAVE_EPOCH:
            return Decision(records=(member.left_temporarily().assignment_record(self.group_id),), reply=reply)
        return self._fence_members([member.member_id], now, reply)

    def leave(self, identities: Sequence[tuple[str, str | None]], now: int) -> Decision[list[ErrorCode]]:
        codes: list[ErrorCode] = []
        gone: dict[str, None] = {}
        for member_id, instance_id in identities:
            member = self.members.get(member_id) if instance_id is None else self.static_member(instance_id)
            if member is None:
                codes.append(ErrorCode.UNKNOWN_MEMBER_ID)
            elif member_id and member.member_id != member_id:
                codes.append(ErrorCode.FENCED_INSTANCE_ID)
            else:
                codes.append(ErrorCode.NONE)
                gone[member.member_id] = None
        return self._fence_members(list(gone), now, codes)

    def tick(self, now: int) -> Decision[None]:
        return self._fence_members(self.overdue(now), now, None)

    def _fence_members(self, member_ids: list[str], now: int, reply: R) -> Decision[R]:
        return Decision(records=self._without(member_ids), reply=reply)

    def _without(self, member_ids: list[str]) -> tuple[Change, ...]:
        if not member_ids:
            return ()
        gone = [self.members[member_id] for member_id in member_ids]
        records = [change for member_id in member_ids for change in self.member_tombstones(member_id)]
        regexes = self.regexes.copy()
        regexes.subtract(member.regex for member in gone if member.regex)
        left = dict.fromkeys(member.regex for member in gone if member.regex)
        records += [self._regex_tombstone(regex) for regex in left if regexes[regex] <= 0 and regex in self.resolved]
        metadata_hash = self._topics.hash_of(self._subscribed_after(gone, ()))
        return (*records, _epoch_record(self.group_id, self.epoch + 1, metadata_hash))

    # Regular expressions

    def _change_regex(
        self, member: ConsumerMember, updated: ConsumerMember, records: list[Change]
    ) -> tuple[bool, bool]:
        """Check a regular expression; return whether it changed and is resolved.

        Raises:
            KafkaError: INVALID_REGULAR_EXPRESSION, or GROUP_MAX_SIZE_REACHED for too many.
        """
        old, new = member.regex or "", updated.regex or ""
        if member.regex == updated.regex:
            return False, False
        if old and self.regexes[old] == 1:
            records.append(self._regex_tombstone(old))
        if new and not self.regexes[new]:
            if len(self.regexes) >= GROUP_PATTERNS_MAX:
                text = f"The members of a group may have {GROUP_PATTERNS_MAX} different regular expressions."
                raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, text)
            try:
                Pattern(new)
            except BadPattern as problem:
                text = f"SubscribedTopicRegex `{new}` is not a valid regular expression: {problem}."
                raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, text) from None
            self._too_wide.discard(new)
            return True, False
        return True, new in self.resolved if new else bool(old)

    def _regex_tombstone(self, regex: str) -> Change:
        return ConsumerGroupRegularExpressionKey(group_id=self.group_id, regular_expression=regex), None

    def _unresolved(self, member: ConsumerMember, updated: ConsumerMember, now: int) -> tuple[str, ...]:
        """Return the regular expressions to resolve now.

        All, if one is new, topics changed, or the last resolution is too old.
        """
        regexes = self.regexes.copy()
        if member.member_id in self.members and member.regex:
            regexes[member.regex] -= 1
        if updated.regex:
            regexes[updated.regex] += 1
        wanted = sorted(regex for regex, count in regexes.items() if count > 0)
        if not wanted or (self._asked_ms is not None and now <= self._asked_ms + REGEX_REFRESH_MIN_MS):
            return ()
        last_ms = self._resolved_ms
        if last_ms is None:
            last_ms = max((resolved.timestamp_ms for resolved in self.resolved.values()), default=None)
        if last_ms is not None and is_within(REGEX_REFRESH_MIN_MS + 1, last_ms, now):
            return ()
        old = last_ms is not None and now > last_ms + self._limits.regex_refresh_ms
        if not old and len(wanted) == len(self.resolved) and self._resolved_in is self._topics.version:
            return ()
        self._asked_ms = now
        return tuple(wanted)

    def resolution_failed(self) -> None:
        """Request the failed resolution again."""
        self._asked_ms = self._resolved_in = self._resolved_ms = None

    def resolve(self, matches: Mapping[str, frozenset[str]], version: object, now: int) -> Decision[bool]:
        """Write the changed matches of regular expressions.

        `version`: of the searched topics; None if more matches follow.
        """
        if version is not None:
            self._asked_ms, self._resolved_in, self._resolved_ms = None, version, now
        records: list[Change] = []
        delta: Counter[str] = Counter()
        more, changed = 0, False
        known = sorted(matches.keys() & self.regexes.keys())
        for regex in known:
            before = self.resolved[regex].topics if regex in self.resolved else None
            topics = matches[regex]
            self._too_wide.discard(regex)
            if topics == before:
                continue
            bytes_more = self.matches.more_bytes(before or NO_NAMES, topics)
            if not self._usage.fits({NOBODY: more + bytes_more}):
                self._too_wide.add(regex)
                continue
            more += bytes_more
            changed |= topics != (before or NO_NAMES)
            delta.update(topics)
            delta.subtract(before or ())
            value = ConsumerGroupRegularExpressionValue(topics=sorted(topics), version=0, timestamp=now)
            records.append((ConsumerGroupRegularExpressionKey(group_id=self.group_id, regular_expression=regex), value))
        names = self._subscribed_after((), ())
        for topic, by in delta.items():
            if by > 0:
                names.add(topic)
            elif topic not in self.subscribed and self.by_regex.get(topic, 0) + by <= 0:
                names.discard(topic)
        metadata_hash = self._topics.hash_of(names)
        if changed or (known and metadata_hash != self.metadata_hash):
            records.append(_epoch_record(self.group_id, self.epoch + 1, metadata_hash))
            self._seen = self._topics.hash_inputs, self.epoch + 1
        return Decision(records=tuple(records), reply=True)


def _with(member: ConsumerMember, heartbeat: ConsumerHeartbeat) -> ConsumerMember:
    changes: dict[str, Any] = {
        "instance_id": heartbeat.instance_id,
        "rack_id": heartbeat.rack_id,
        "rebalance_timeout_ms": heartbeat.rebalance_timeout_ms if heartbeat.rebalance_timeout_ms != -1 else None,
        "assignor": heartbeat.assignor,
        "topics": heartbeat.topics,
        "regex": heartbeat.regex,
    }
    owned = {name: value for name, value in changes.items() if value is not None}
    return replace(member, client_id=heartbeat.client_id, client_host=heartbeat.client_host, classic=None, **owned)


def _check_epoch(member: ConsumerMember, heartbeat: ConsumerHeartbeat) -> None:
    if heartbeat.epoch in {0, member.epoch}:
        return
    repeated = (
        heartbeat.epoch < member.epoch and heartbeat.epoch == member.previous_epoch and _has_all(member, heartbeat)
    )
    if not repeated:
        compared = "greater" if heartbeat.epoch > member.epoch else "smaller"
        text = (
            f"The consumer group member has a {compared} member epoch ({heartbeat.epoch}) than the one known by the group "
            f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin."
        )
        raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, text)


def _has_all(member: ConsumerMember, heartbeat: ConsumerHeartbeat) -> bool:
    """Whether a member reports only assigned partitions: its last response may be lost."""
    if heartbeat.owned is None:
        return False
    return all(
        partition in member.assigned.get(topic_id, {})
        for topic_id, partitions in heartbeat.owned.items()
        for partition in partitions
    )


def _epoch_record(group_id: str, epoch: int, metadata_hash: int) -> Change:
    key = ConsumerGroupMetadataKey(group_id=group_id)
    return key, ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
