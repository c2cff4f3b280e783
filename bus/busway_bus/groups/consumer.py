"""A consumer group that the coordinator balances (KIP-848): what heartbeats and the clock do to it.

What lives here: joining, staying, leaving; when the group's epoch goes up, and when it is balanced anew. What does not: the state
(`consumer_view`), one member's next step (`reconcile`), who is to have what (`target`), resolving regular expressions (the coordinator).

Nothing that the log keeps changes here: each method returns the records that do it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from busway_bus.groups.consumer_member import LEFT_FOR_A_WHILE, ConsumerMember
from busway_bus.groups.consumer_records import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from busway_bus.groups.consumer_values import Beat, Beaten, ConsumerLimits
from busway_bus.groups.consumer_view import ConsumerView, target_record
from busway_bus.groups.memory import GroupMemory
from busway_bus.groups.modern import NO_PARTITIONS, Assignment
from busway_bus.groups.reconcile import reconcile
from busway_bus.groups.stored import Change
from busway_bus.groups.target import ASSIGNORS, Subscriber
from busway_bus.groups.topics import Topics
from busway_bus.kernel.decision import Decision
from busway_bus.kernel.limits import GROUP_PATTERNS_MAX
from busway_bus.kernel.patterns import BadPattern, Pattern
from busway_protocol.errors import ErrorCode, KafkaError

REGEX_REFRESH_MIN_MS: Final = 10_000
"""Regular expressions of a group are not resolved anew before, whatever comes."""


class ConsumerGroup(ConsumerView):
    """One group."""

    def __init__(self, group_id: str, memory: GroupMemory, limits: ConsumerLimits, topics: Topics) -> None:
        super().__init__(group_id, memory, limits.of_group)
        self._limits = limits
        self._topics = topics
        self._seen: tuple[object, int] = (None, 0)
        """The topics that the group was last compared with, and the epoch that it has since then if what was decided was written."""
        self._resolved_in: object = None
        self._asked_ms: int | None = None
        """When what is being resolved was asked for; it is asked for again where nothing comes of that."""

    # Heartbeats

    def beat(self, beat: Beat, now: int) -> Decision[Beaten]:
        """Join or stay.

        Raises:
            KafkaError: GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, UNRELEASED_INSTANCE_ID, FENCED_INSTANCE_ID,
                INVALID_REGULAR_EXPRESSION.
        """
        if len(self.members) >= self._limits.max_size and beat.member_id not in self.members:
            text = f"The consumer group has reached its maximum capacity of {self._limits.max_size} members."
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, text)
        records: list[Change] = []
        member = self._seat(beat, records)
        updated = _with(member, beat)
        if not self.has_room(updated.size_bytes - (member.size_bytes if member.member_id in self.members else 0)):
            text = "The members of consumer groups hold as much as there is room for."
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, text)
        if updated != member:
            records.append(updated.metadata_record(self.group_id))
        resubscribed = updated.topics != member.topics
        new_regex, settled = self._change_regex(member, updated, records)
        unresolved = self._unresolved(member, updated, now)
        epoch = self._next_epoch(member, updated, records, raise_it=resubscribed or (new_regex and settled))
        target_epoch, target = self._next_target(updated, epoch, now, records)
        stepped = self._step(updated, target_epoch, target, beat, changed=resubscribed or new_regex)
        if stepped != updated:
            records.append(stepped.assignment_record(self.group_id))
        settings = self.settings
        if beat.member_id in self.members:
            self.touch(beat.member_id, now + settings.session_timeout_ms)
        told = beat.whole or stepped.assigned != member.assigned
        reply = Beaten(
            member_id=stepped.member_id,
            epoch=stepped.epoch,
            interval_ms=settings.heartbeat_interval_ms,
            assigned={topic_id: tuple(sorted(held)) for topic_id, held in stepped.assigned.items()} if told else None,
            unresolved=unresolved,
        )
        return Decision(records=tuple(records), reply=reply)

    def _seat(self, beat: Beat, records: list[Change]) -> ConsumerMember:
        """The member as it is, a new one where it joins; one that takes a static member's place has that member's partitions."""
        joins = beat.epoch == 0
        if beat.instance_id is None:
            member = self.members.get(beat.member_id)
            if member is None and joins:
                return ConsumerMember(member_id=beat.member_id)
            if member is None:
                text = f"Member {beat.member_id} is not a member of group {self.group_id}."
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, text)
            _check_epoch(member, beat)
            return member
        held = self.static_member(beat.instance_id)
        if not joins:
            return self._same_static(held, beat)
        if held is None:
            return self.members.get(beat.member_id) or ConsumerMember(member_id=beat.member_id)
        if held.epoch != LEFT_FOR_A_WHILE and held.classic is None:
            text = (
                f"Static member {beat.member_id} with instance id {beat.instance_id} cannot join the group because the "
                f"instance id is owned by {held.member_id} member."
            )
            raise KafkaError(ErrorCode.UNRELEASED_INSTANCE_ID, text)
        successor = replace(held, member_id=beat.member_id, epoch=0, previous_epoch=0)
        records += self.member_tombstones(held.member_id)
        records.append(successor.metadata_record(self.group_id))
        records.append(target_record(self.group_id, beat.member_id, self.target.get(held.member_id, NO_PARTITIONS)))
        records.append(successor.assignment_record(self.group_id))
        return successor

    def _same_static(self, held: ConsumerMember | None, beat: Beat) -> ConsumerMember:
        if held is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {beat.instance_id} is unknown.")
        if held.member_id != beat.member_id:
            text = f"Static member {beat.member_id} with instance id {beat.instance_id} was fenced by member {held.member_id}."
            raise KafkaError(ErrorCode.FENCED_INSTANCE_ID, text)
        if beat.epoch >= 0:
            _check_epoch(held, beat)
        return held

    # The group's epoch

    def _next_epoch(
        self, member: ConsumerMember, updated: ConsumerMember, records: list[Change], *, raise_it: bool
    ) -> int:
        """The group's epoch after this: higher where subscriptions have changed, or topics since they were last looked at."""
        version, seen_epoch = self._seen
        if not raise_it and version is self._topics.version and self.epoch >= seen_epoch:
            return self.epoch
        number = self._topics.hash_of(self._subscribed_after([member], [updated]))
        raise_it |= number != self.metadata_hash
        epoch = self.epoch + raise_it
        if raise_it:
            records.append(_epoch_record(self.group_id, epoch, number))
        self._seen = self._topics.version, epoch
        if self.old_metadata:
            records.append((ConsumerGroupPartitionMetadataKey(group_id=self.group_id), None))
        return epoch

    def _subscribed_after(self, before: Iterable[ConsumerMember], after: Iterable[ConsumerMember]) -> set[str]:
        """The topics that the group reads when these members are those, as far as they are resolved."""
        names, regexes = self.subscribed.copy(), self.regexes.copy()
        for members, by in ((before, -1), (after, 1)):
            for member in members:
                if by < 0 and member.member_id not in self.members:
                    continue
                for topic in member.topics:
                    names[topic] += by
                if member.regex:
                    regexes[member.regex] += by
        found = {topic for topic, count in names.items() if count > 0}
        for regex, resolved in self.resolved.items():
            if regexes[regex] > 0:
                found |= resolved.topics
        return found

    def _next_target(
        self, updated: ConsumerMember, epoch: int, now: int, records: list[Change]
    ) -> tuple[int, Assignment]:
        """What the member is to have, and in which epoch: by a new target where the group's epoch has gone up and it is time."""
        replaced = self.static_member(updated.instance_id)
        before = updated if replaced is None else replaced
        due = self.target_timestamp_ms + self.settings.assignment_interval_ms
        if self.target_epoch >= epoch or (self.target_timestamp_ms and now < due):
            return self.target_epoch, self.target.get(before.member_id, NO_PARTITIONS)
        members = {**self.members, updated.member_id: updated}
        if before.member_id != updated.member_id:
            members.pop(before.member_id, None)
        targets = self._assign(
            members, {**self.target, updated.member_id: self.target.get(before.member_id, {})}, updated
        )
        for member_id, target in targets.items():
            if self.target.get(member_id) != target:
                records.append(target_record(self.group_id, member_id, target))
        records.append(
            (
                ConsumerGroupTargetAssignmentMetadataKey(group_id=self.group_id),
                ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=now),
            )
        )
        return epoch, targets.get(updated.member_id, NO_PARTITIONS)

    def _assign(
        self, members: Mapping[str, ConsumerMember], had: Mapping[str, Assignment], updated: ConsumerMember
    ) -> dict[str, Assignment]:
        ids: dict[frozenset[str], frozenset[UUID]] = {}
        subscribers = []
        for member_id, member in sorted(members.items()):
            names = self.topics_of(member)
            if names not in ids:
                ids[names] = self._topics.ids_of(names)
            subscribers.append(
                Subscriber(
                    member_id=member_id,
                    instance_id=member.instance_id,
                    topics=ids[names],
                    target=had.get(member_id, NO_PARTITIONS),
                )
            )
        every = {topic_id for topic_ids in ids.values() for topic_id in topic_ids}
        partitions = {topic_id: self._topics.partitions(topic_id) for topic_id in sorted(every)}
        return ASSIGNORS[self.preferred_assignor(members.values())](subscribers, partitions)

    def preferred_assignor(self, members: Iterable[ConsumerMember]) -> str:
        """The assignor that most members would have, the broker's first where none would have one."""
        votes: dict[str, int] = {}
        for member in members:
            if member.assignor is not None:
                votes[member.assignor] = votes.get(member.assignor, 0) + 1
        served = [name for name in sorted(votes) if name in ASSIGNORS]
        return max(served, key=lambda name: votes[name]) if served else self._limits.assignors[0]

    def _step(
        self, member: ConsumerMember, target_epoch: int, target: Assignment, beat: Beat, *, changed: bool
    ) -> ConsumerMember:
        if not changed and member.reconciled and member.epoch == target_epoch:
            return member
        return reconcile(
            member,
            target_epoch,
            target,
            said=beat.said,
            subscribed=self._topics.ids_of(self.topics_of(member)),
            subscription_changed=changed,
            taken=self._taken_by_another(member),
        )

    def _taken_by_another(self, member: ConsumerMember) -> Callable[[UUID, int], bool]:
        """Whether a partition is still had by somebody else; the member whose static place this one takes is nobody else."""
        held = self.static_member(member.instance_id)
        mine = {member.member_id, held.member_id if held is not None else member.member_id}

        def taken(topic_id: UUID, number: int) -> bool:
            owner = self.owners.get(topic_id, {}).get(number)
            return owner is not None and owner not in mine

        return taken

    # Leaving

    def depart(self, beat: Beat, now: int) -> Decision[Beaten]:
        """Go, or go for a while, as static members may.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID.
        """
        if beat.instance_id is not None:
            member = self._same_static(self.static_member(beat.instance_id), beat)
        else:
            member = self._member(beat.member_id)
        reply = Beaten(member_id=member.member_id, epoch=beat.epoch)
        if beat.instance_id is not None and beat.epoch == LEFT_FOR_A_WHILE:
            return Decision(records=(member.gone_for_a_while().assignment_record(self.group_id),), reply=reply)
        return Decision(records=self._without([member.member_id]), reply=reply)

    def leave(self, identities: Sequence[tuple[str, str | None]], now: int) -> Decision[list[ErrorCode]]:
        """Take members out, by their ids or, where that is empty, by their instance ids alone (an administrator's call)."""
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
        return Decision(records=self._without(list(gone)), reply=codes)

    def tick(self, now: int) -> Decision[None]:
        """Put out the members whose sessions are over, or that have not given up in time what they had to."""
        return Decision(records=self._without(self.overdue(now)), reply=None)

    def _without(self, member_ids: list[str]) -> tuple[Change, ...]:
        """The records by which members are in the group no more."""
        if not member_ids:
            return ()
        gone = [self.members[member_id] for member_id in member_ids]
        records = [change for member_id in member_ids for change in self.member_tombstones(member_id)]
        regexes = self.regexes.copy()
        regexes.subtract(member.regex for member in gone if member.regex)
        left = dict.fromkeys(member.regex for member in gone if member.regex)
        records += [self._regex_tombstone(regex) for regex in left if regexes[regex] <= 0 and regex in self.resolved]
        number = self._topics.hash_of(self._subscribed_after(gone, ()))
        return (*records, _epoch_record(self.group_id, self.epoch + 1, number))

    # Regular expressions

    def _change_regex(
        self, member: ConsumerMember, updated: ConsumerMember, records: list[Change]
    ) -> tuple[bool, bool]:
        """Whether the member has another regular expression, and whether it is known already what it matches.

        Raises:
            KafkaError: INVALID_REGULAR_EXPRESSION.
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
            return True, False
        return True, new in self.resolved if new else bool(old)

    def _regex_tombstone(self, regex: str) -> Change:
        return ConsumerGroupRegularExpressionKey(group_id=self.group_id, regular_expression=regex), None

    def _unresolved(self, member: ConsumerMember, updated: ConsumerMember, now: int) -> tuple[str, ...]:
        """What is to be resolved now: all of the group's, where one is new, topics have come or went, or it is long ago."""
        regexes = self.regexes.copy()
        if member.member_id in self.members and member.regex:
            regexes[member.regex] -= 1
        if updated.regex:
            regexes[updated.regex] += 1
        wanted = sorted(regex for regex, count in regexes.items() if count > 0)
        if not wanted or (self._asked_ms is not None and now <= self._asked_ms + REGEX_REFRESH_MIN_MS):
            return ()
        last = next(iter(self.resolved.values()), None)
        if last is not None and now <= last.timestamp_ms + REGEX_REFRESH_MIN_MS:
            return ()
        old = last is not None and now > last.timestamp_ms + self._limits.regex_refresh_ms
        if not old and len(wanted) == len(self.resolved) and self._resolved_in is self._topics.version:
            return ()
        self._asked_ms = now
        return tuple(wanted)

    def resolution_failed(self) -> None:
        """What was to be resolved is not, and will be asked for again."""
        self._asked_ms = None

    def resolve(self, found: Mapping[str, frozenset[str]], version: object, now: int) -> Decision[None]:
        """Take in what regular expressions match.

        Args:
            found: the topics by regular expression.
            version: of the topics in which they were looked for.
        """
        self._asked_ms = None
        self._resolved_in = version
        records: list[Change] = []
        names = {topic for topic, count in self.subscribed.items() if count > 0}
        changed = False
        for regex in sorted(self.regexes):
            before = self.resolved.get(regex)
            topics = found.get(regex)
            if topics is None:
                names |= before.topics if before is not None else frozenset()
                continue
            changed |= topics != (before.topics if before is not None else frozenset())
            names |= topics
            value = ConsumerGroupRegularExpressionValue(topics=sorted(topics), version=0, timestamp=now)
            records.append((ConsumerGroupRegularExpressionKey(group_id=self.group_id, regular_expression=regex), value))
        number = self._topics.hash_of(names)
        if changed or (records and number != self.metadata_hash):
            records.append(_epoch_record(self.group_id, self.epoch + 1, number))
            self._seen = self._topics.version, self.epoch + 1
        return Decision(records=tuple(records), reply=None)


def _with(member: ConsumerMember, beat: Beat) -> ConsumerMember:
    """The member with what the heartbeat says anew."""
    changes: dict[str, Any] = {
        "instance_id": beat.instance_id,
        "rack_id": beat.rack_id,
        "rebalance_timeout_ms": beat.rebalance_timeout_ms if beat.rebalance_timeout_ms != -1 else None,
        "assignor": beat.assignor,
        "topics": beat.topics,
        "regex": beat.regex,
    }
    said = {name: value for name, value in changes.items() if value is not None}
    return replace(member, client_id=beat.client_id, client_host=beat.client_host, classic=None, **said)


def _check_epoch(member: ConsumerMember, beat: Beat) -> None:
    if beat.epoch in {0, member.epoch}:
        return
    repeated = beat.epoch < member.epoch and beat.epoch == member.previous_epoch and _has_all(member, beat)
    if not repeated:
        compared = "greater" if beat.epoch > member.epoch else "smaller"
        text = (
            f"The consumer group member has a {compared} member epoch ({beat.epoch}) than the one known by the group "
            f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin."
        )
        raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, text)


def _has_all(member: ConsumerMember, beat: Beat) -> bool:
    """Whether a member has what it says that it has: the answer with its new epoch may have been lost."""
    if beat.said is None:
        return False
    return all(
        number in member.assigned.get(topic_id, {}) for topic_id, numbers in beat.said.items() for number in numbers
    )


def _epoch_record(group_id: str, epoch: int, number: int) -> Change:
    key = ConsumerGroupMetadataKey(group_id=group_id)
    return key, ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=number)
