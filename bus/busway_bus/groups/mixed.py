"""A consumer group that classic members may join (KIP-848's live migration).

Here: classic requests on a consumer group, timeouts to rejoin and sync, conversion to a classic group.
Not here: consumer heartbeats (`modern.consumer_group`), records (`migration`), conversion to a consumer group
(`shard`).

A classic member's generation is its member epoch. It rejoins for each reconciliation step, and gets its assignment with
SyncGroup.
"""

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, TypeVar
from uuid import UUID

from busway_bus.groups.limits import GroupLimits
from busway_bus.groups.member_timeouts import MemberTimeouts
from busway_bus.groups.migration import classic_metadata, downgrade
from busway_bus.groups.modern.consumer_group import ConsumerGroup
from busway_bus.groups.modern.consumer_member import ConsumerMember, MemberState
from busway_bus.groups.modern.group import NO_PARTITIONS, Assignment
from busway_bus.groups.modern.requests import MigrationPolicy
from busway_bus.groups.modern.topics import Topics
from busway_bus.groups.records import Change
from busway_bus.groups.requests import Join, JoinResult, Sync, SyncResult
from busway_bus.kernel.decision import Decision, Unanswered, Waiter
from busway_bus.kernel.limits import MIGRATED_MEMBERS_MAX
from busway_protocol.assignors.consumer_protocol import (
    PROTOCOL_TYPE,
    decode_subscription,
    encode_assignment,
    version_of,
)
from busway_protocol.assignors.subscription import Subscription
from busway_protocol.errors import ErrorCode, KafkaError, MalformedMessage

R = TypeVar("R")


class MixedGroup(ConsumerGroup):
    def __init__(self, group_id: str, limits: GroupLimits, topics: Topics, new_id: Callable[[str], str]) -> None:
        super().__init__(group_id, limits.memory, limits.consumer, topics)
        self._of_classic = limits
        self._new_id = new_id
        self._joins = MemberTimeouts()
        self._syncs = MemberTimeouts()

    # Joining

    def join(self, request: Join, waiter: Waiter, now: int) -> Decision[JoinResult | Unanswered]:
        """Join, or rejoin for the next step, without waiting for others."""
        try:
            return self._join(request, now)
        except KafkaError as problem:
            return Decision(reply=JoinResult(error=problem.code, member_id=""))

    def _join(self, request: Join, now: int) -> Decision[JoinResult | Unanswered]:
        subscription = self._admit(request)
        if request.member_id == "" and request.instance_id is None and request.needs_known_id:
            member_id = self._new_id(request.client_id)
            return Decision(reply=JoinResult(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id))
        records: list[Change] = []
        held = self.static_member(request.instance_id)
        member = self._classic_seat(request, held, records)
        updated = replace(
            member,
            instance_id=member.instance_id if request.instance_id is None else request.instance_id,
            rack_id=subscription.rack_id or member.rack_id,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            topics=frozenset(subscription.topics),
            regex="",
            client_id=request.client_id,
            client_host=request.client_host,
            classic=classic_metadata(request.session_timeout_ms, request.protocols),
        )
        said = self._by_id(subscription)
        if held is not None and held.classic is None:
            decision = self._join_classic_group(member, updated, held, said, now)
            if decision is not None:
                return decision
        stepped, unassigned = self._advance(member, updated, said, now, records)
        self._joins.discard(stepped.member_id)
        self._syncs.put(stepped.member_id, now + request.rebalance_timeout_ms)
        if stepped.member_id in self.members:
            self.touch(stepped.member_id, now + request.session_timeout_ms)
        return Decision(records=tuple(records), reply=replace(_joined(stepped), unassigned=unassigned))

    def _admit(self, request: Join) -> Subscription:
        """Return a joining member's subscription.

        Raises:
            KafkaError: GROUP_MAX_SIZE_REACHED, INCONSISTENT_GROUP_PROTOCOL.
        """
        if self._of_classic.consumer.migration is MigrationPolicy.DISABLED:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        self._check_full(request.member_id)
        supported = any(self.by_protocol[name] == self.classic_members for name, _ in request.protocols)
        if request.protocol_type != PROTOCOL_TYPE or not supported:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        try:
            return decode_subscription(request.protocols[0][1], bounded=True)
        except MalformedMessage as problem:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL) from problem

    def _classic_seat(self, request: Join, held: ConsumerMember | None, records: list[Change]) -> ConsumerMember:
        """Return the current member, or a new one.

        Without a member id, a static member replaces the one with its instance id.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
        """
        member_id = request.member_id or self._new_id(request.called)
        if request.instance_id is not None and request.member_id != "":
            return self._same_static(held, member_id, request.instance_id)
        if request.instance_id is not None and held is not None:
            return self._succeed(held, member_id, records)
        return self.members.get(member_id) or ConsumerMember(member_id=member_id)

    def _by_id(self, subscription: Subscription) -> dict[UUID, Collection[int]]:
        said: dict[UUID, set[int]] = {}
        for topic, partition in subscription.owned_partitions:
            topic_id = self._topics.id_of(topic)
            if topic_id is not None:
                said.setdefault(topic_id, set()).add(partition)
        return {**said}

    def _join_classic_group(
        self, member: ConsumerMember, updated: ConsumerMember, held: ConsumerMember, said: Any, now: int
    ) -> Decision[JoinResult | Unanswered] | None:
        """Replace the last consumer member and convert the group; None if impossible."""
        new_regex, _ = self._change_regex(member, updated, [])
        changed = updated.topics != member.topics or new_regex
        rebalance = self.target_epoch < self._next_epoch(member, updated, [], raise_it=changed)
        # Kafka does not make unreconciled members rejoin. Then a partition that one lacks would have no reader, and one
        # that it must revoke would have two.
        rebalance |= any(member_id != held.member_id for member_id in self._unreconciled)
        target = self.target.get(held.member_id, NO_PARTITIONS)
        stepped = updated
        if not rebalance:
            stepped = self._step(updated, self.target_epoch, target, said, changed=changed)
        records = self._downgraded([held.member_id], now, joins=stepped, rebalance=rebalance)
        if not records:
            return None
        # With the group's generation the member is asked to rejoin; with an older one it would give up its partitions
        # first.
        reply = replace(_joined(stepped), generation=self.epoch) if rebalance else _joined(stepped)
        return Decision(records=records, reply=reply, whole=True)

    # Heartbeats and sync

    def sync(self, request: Sync, waiter: Waiter, now: int) -> Decision[SyncResult | Unanswered]:
        member, error = self._classic_member(request.member_id, request.instance_id, request.generation)
        if member is None:
            return Decision(reply=SyncResult(error=error))
        if request.protocol_type not in {None, PROTOCOL_TYPE} or request.protocol not in {None, member.protocol}:
            return Decision(reply=SyncResult(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        if self.target_epoch > member.epoch and member.state is not MemberState.UNREVOKED:
            self._joins.begin(member.member_id, now + member.rebalance_timeout_ms)
            return Decision(reply=SyncResult(error=ErrorCode.REBALANCE_IN_PROGRESS))
        self._syncs.discard(member.member_id)
        self.touch(member.member_id, now + self.session_timeout_ms(member))
        named = [
            (self._topics.name_of(topic_id), partition_indexes)
            for topic_id, partition_indexes in member.assigned.items()
        ]
        partitions = [
            (name, partition)
            for name, partition_indexes in named
            if name is not None
            for partition in partition_indexes
        ]
        assignment = encode_assignment(partitions, version=version_of(_subscribed(member)))
        reply = SyncResult(protocol_type=request.protocol_type, protocol=request.protocol, assignment=assignment)
        return Decision(reply=reply)

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now: int) -> ErrorCode:
        member, error = self._classic_member(member_id, instance_id, generation)
        if member is None:
            return error
        self.touch(member_id, now + self.session_timeout_ms(member))
        free = member.state is MemberState.UNRELEASED and not self._waits_for_partitions(member)
        if member.epoch >= self.target_epoch and member.state is not MemberState.UNREVOKED and not free:
            return ErrorCode.NONE
        self._joins.begin(member_id, now + member.rebalance_timeout_ms)
        return ErrorCode.REBALANCE_IN_PROGRESS

    def _classic_member(
        self, member_id: str, instance_id: str | None, generation: int
    ) -> tuple[ConsumerMember | None, ErrorCode]:
        member = self.members.get(member_id) if instance_id is None else self.static_member(instance_id)
        if member is None:
            return None, ErrorCode.UNKNOWN_MEMBER_ID
        if member.member_id != member_id:
            return None, ErrorCode.FENCED_INSTANCE_ID
        if member.classic is None:
            return None, ErrorCode.UNKNOWN_MEMBER_ID
        return (member, ErrorCode.NONE) if member.epoch == generation else (None, ErrorCode.ILLEGAL_GENERATION)

    def _waits_for_partitions(self, member: ConsumerMember) -> bool:
        return any(
            partition not in member.assigned.get(topic_id, {}) and partition in self.owners.get(topic_id, {})
            for topic_id, partitions in self.target.get(member.member_id, NO_PARTITIONS).items()
            for partition in partitions
        )

    # Leaving

    def _fence_members(self, member_ids: list[str], now: int, reply: R) -> Decision[R]:
        records = self._downgraded(member_ids, now) if member_ids else ()
        if records:
            return Decision(records=records, reply=reply, whole=True)
        return super()._fence_members(member_ids, now, reply)

    def _downgraded(
        self, gone: Collection[str], now: int, joins: ConsumerMember | None = None, *, rebalance: bool = True
    ) -> tuple[Change, ...]:
        """Return the records that convert this group to classic, if any.

        Args:
            gone: the removed members.
            joins: replaces one of them.
        """
        limits = self._of_classic
        left = len(self.members) - len(gone) + (joins is not None)
        classic = self.classic_members - sum(self.members[member_id].classic is not None for member_id in gone)
        if not left or classic + (joins is not None) != left or not limits.consumer.migration.downgrades:
            return ()
        if left > min(limits.max_size, MIGRATED_MEMBERS_MAX):
            return ()
        stay = set(self.members).difference(gone)
        members = [
            (member, _owned(member) if rebalance else self.target.get(member_id, NO_PARTITIONS))
            for member_id, member in self.members.items()
            if member_id in stay
        ]
        if joins is not None:
            had = [self.target.get(member_id, NO_PARTITIONS) for member_id in gone]
            members.append((joins, _owned(joins) if rebalance else had[0]))
        change = downgrade(self.group_id, self.epoch, members, self._topics, now=now, rebalance=rebalance)
        return () if change is None else (*self.tombstones(), change)

    # Time

    def drop_member(self, member_id: str) -> ConsumerMember | None:
        self._joins.discard(member_id)
        self._syncs.discard(member_id)
        return super().drop_member(member_id)

    def next_deadline(self) -> int | None:
        moments = (super().next_deadline(), self._joins.earliest(), self._syncs.earliest())
        return min((moment for moment in moments if moment is not None), default=None)

    def overdue(self, now: int) -> list[str]:
        late = [*super().overdue(now), *self._joins.late(now, self.members), *self._syncs.late(now, self.members)]
        return list(dict.fromkeys(late))


def _owned(member: ConsumerMember) -> Assignment:
    """Return the partitions that a member may still read.

    They stay owned if the group is converted back before all rejoined.
    """
    owned: dict[UUID, tuple[int, ...]] = {}
    for held in (member.assigned, member.revoking):
        for topic_id, partitions in held.items():
            owned[topic_id] = tuple(sorted({*owned.get(topic_id, ()), *partitions}))
    return owned


def _joined(member: ConsumerMember) -> JoinResult:
    return JoinResult(member_id=member.member_id, generation=member.epoch, protocol=member.protocol)


def _subscribed(member: ConsumerMember) -> bytes:
    protocols = () if member.classic is None else member.classic.supported_protocols
    return protocols[0].metadata if protocols else b""
