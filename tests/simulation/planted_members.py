"""Bugs put on purpose into groups that their coordinator balances, and into services that are exactly once.

Here: what each of them changes.
Not here: how they are put in, and all others (`planted`).
"""

import dataclasses
from typing import Any, Final

from tests.simulation.planting import Planted

_GROUPS: Final = "groups"
_SEATS: Final = "seats"
_MIGRATION: Final = "migration"
_SERVICES: Final = "services"

# Groups


def _any_epoch(_: Any) -> Any:
    def check_commit(self: Any, committer: Any, now: int) -> None:
        return None

    return check_commit


def _takes_any_member(_: Any) -> Any:
    def _commit_in_transaction(self: Any, committer: Any, now: int) -> Any:
        from busway_protocol.errors import ErrorCode

        return ErrorCode.NONE

    return _commit_in_transaction


def _taken_by_nobody(_: Any) -> Any:
    def _taken_by_another(self: Any, member: Any) -> Any:
        return lambda topic_id, number: False

    return _taken_by_another


def _asks_nobody(_: Any) -> Any:
    def _still_has(owned: Any, revoking: Any) -> bool:
        return False

    return _still_has


def _goes_on_reading(_: Any) -> Any:
    async def _revoke(self: Any, revoked: Any) -> None:
        pass

    return _revoke


def _sees_no_growth(_: Any) -> Any:
    def hash_of(self: Any, names: Any) -> int:
        return 0

    return hash_of


def _waits_for_another_clock(_: Any) -> Any:
    def is_within(wait_ms: int, since_ms: int, now: int) -> bool:
        return now < since_ms + wait_ms

    return is_within


def _waits_on(_: Any) -> Any:
    def _wait_no_more(self: Any, key: Any, last_request: Any) -> None:
        pass

    return _wait_no_more


def _fences_nobody(original: Any) -> Any:
    def expired(self: Any, now: int) -> Any:
        original(self, now)  # each is due again a moment later
        return []

    return expired


def _sees_no_new_topics(original: Any) -> Any:
    def _unresolved(self: Any, member: Any, updated: Any, now: int) -> Any:
        if self._resolved_in is not None:
            self._resolved_in = self._topics.version
        return original(self, member, updated, now)

    return _unresolved


def _counts_votes_wrong(original: Any) -> Any:
    def preferred_assignor(self: Any, members: Any) -> str:
        served = self._limits.assignors
        voted = original(self, members)
        return next(name for name in served if name != voted) if any(member.assignor for member in members) else voted

    return preferred_assignor


def _keeps_giving_up(original: Any) -> Any:
    def left_temporarily(self: Any) -> Any:
        return dataclasses.replace(original(self), revoking=self.revoking)

    return left_temporarily


# Groups whose members change the protocol


def _asks_nobody_to_rejoin(original: Any) -> Any:
    def heartbeat(self: Any, *args: Any) -> Any:
        from busway_protocol.errors import ErrorCode

        code = original(self, *args)
        return ErrorCode.NONE if code is ErrorCode.REBALANCE_IN_PROGRESS else code

    return heartbeat


def _upgrades_without_assignments(original: Any) -> Any:
    def _upgraded(*args: Any) -> Any:
        member, target, elements = original(*args)
        return dataclasses.replace(member, assigned={}), target, elements

    return _upgraded


def _downgrades_as_it_is(original: Any) -> Any:
    def downgrade(*args: Any, rebalance: bool, **more: Any) -> Any:
        return original(*args, rebalance=False, **more)

    return downgrade


# Services


def _commits_what_was_read(original: Any) -> Any:
    def committable_with(self: Any, offsets: Any, position: int | None) -> Any:
        from busway.types import OffsetAndMetadata

        return original(self, offsets, position) if position is None else OffsetAndMetadata(position)

    return committable_with


def _writes_no_rows(_: Any) -> Any:
    def finish(self: Any, output: Any) -> None:
        self._end()
        if self.attempt.put:
            output.on_settled(self.copy.left())

    return finish


def _keeps_failed_rows(_: Any) -> Any:
    def undo(self: Any) -> None:
        self._end()

    return undo


def _reads_uncommitted(original: Any) -> Any:
    def consumer(*topics: str, **options: Any) -> Any:
        return original(*topics, **{**options, "isolation_level": "read_uncommitted"})

    return consumer


def _sends_offsets_alone(original: Any) -> Any:
    async def _seal(self: Any, producer: Any, outputs: Any, behind: Any) -> Any:
        send = producer.send_offsets_to_transaction

        async def committed(offsets: Any, member: Any) -> None:
            await self._host.consumer.commit(offsets)

        producer.send_offsets_to_transaction = committed
        try:
            return await original(self, producer, outputs, behind)
        finally:
            producer.send_offsets_to_transaction = send

    return _seal


def _nobody_leaves_for_a_while(original: Any) -> Any:
    def consumer_leave(self: Any, heartbeat: Any, now: int) -> Any:
        from busway_bus.groups.modern.consumer_member import STATIC_LEAVE_EPOCH
        from busway_bus.groups.modern.requests import HeartbeatResult
        from busway_bus.kernel.decision import Decision

        if heartbeat.instance_id is not None and heartbeat.epoch == STATIC_LEAVE_EPOCH:
            return Decision(records=(), reply=HeartbeatResult(member_id=heartbeat.member_id, epoch=heartbeat.epoch))
        return original(self, heartbeat, now)

    return consumer_leave


def _keeps_fenced_producer(_: Any) -> Any:
    async def restart_partitions(self: Any, problem: Any) -> None:
        import asyncio

        self.outcomes.renewed += 1
        self.outcomes.failed(problem)
        self._drop_all()
        firsts = await self._host.release_partitions()
        self._drop_all()
        await asyncio.sleep(self._pause.next())
        await self._host.restart_partitions(firsts)

    return restart_partitions


PLANTED: Final = (
    Planted(
        "member epoch of a commit unchecked",
        "who has given a partition up, or was put out, commits what another has read on from",
        (("busway_bus.groups.modern.consumer_state:ConsumerView.check_commit", _any_epoch),),
        _GROUPS,
    ),
    Planted(
        "partition handed on before it was given up",
        "the coordinator gives a partition to its next owner while the last one has it",
        (("busway_bus.groups.modern.consumer_group:ConsumerGroup._taken_by_another", _taken_by_nobody),),
        _GROUPS,
    ),
    Planted(
        "target in force without the member's word",
        "a member is taken to have given up what it was told to, before it has said so",
        (("busway_bus.groups.modern.reconcile:_still_has", _asks_nobody),),
        _GROUPS,
    ),
    Planted(
        "member reads on what it has given up",
        "a member says that a partition is free, and goes on with it",
        (("busway.consumer.group:GroupMember._revoke", _goes_on_reading),),
        _GROUPS,
    ),
    Planted(
        "group blind to new partitions",
        "topics that are made or grow later are nobody's",
        (("busway_bus.groups.modern.topics:Topics.hash_of", _sees_no_growth),),
        _GROUPS,
    ),
    Planted(
        "coordinator waits for another clock",
        "a group is not balanced before the time at which it was, by the clock of the coordinator before",
        (("busway_bus.groups.modern.consumer_target:is_within", _waits_for_another_clock),),
        _GROUPS,
    ),
    Planted(
        "static member's leave ignored",
        "the seat of a static member that has left for a while is taken until its session ends",
        (("busway_bus.groups.modern.consumer_group:ConsumerGroup.consumer_leave", _nobody_leaves_for_a_while),),
        _GROUPS,
    ),
    Planted(
        "another connection does not count",
        "a member whose connection was closed is fenced after the grace, also where it has sent heartbeats on another one meanwhile",
        (("busway_bus.coordinator.member_connections:MemberConnections._wait_no_more", _waits_on),),
        _GROUPS,
    ),
    Planted(
        "session of a member without an end",
        "a member that is silent keeps its partitions, and a static one its instance id, for ever",
        (("busway_bus.groups.modern.group:ModernGroup.expired", _fences_nobody),),
        _GROUPS,
    ),
    Planted(
        "regular expression resolved once only",
        "topics that appear later are read by no member, although the regular expression of a member matches them",
        (("busway_bus.groups.modern.consumer_group:ConsumerGroup._unresolved", _sees_no_new_topics),),
        _GROUPS,
    ),
    Planted(
        "votes for an assignor miscounted",
        "the assignor that fewer members prefer assigns the group's partitions",
        (("busway_bus.groups.modern.consumer_target:ConsumerTarget.preferred_assignor", _counts_votes_wrong),),
        _GROUPS,
    ),
    Planted(
        "left static member still gives up",
        "partitions that a static member was giving up when it left for a while are nobody's until its session ends",
        (("busway_bus.groups.modern.consumer_member:ConsumerMember.left_temporarily", _keeps_giving_up),),
        _SEATS,
    ),
    Planted(
        "migrated member keeps its old assignment",
        "a member of the classic protocol in a consumer group is never asked to join again, and gives nothing up",
        (("busway_bus.groups.mixed:MixedGroup.heartbeat", _asks_nobody_to_rejoin),),
        _MIGRATION,
    ),
    Planted(
        "classic members upgraded without their assignments",
        "a group that becomes a consumer group takes the partitions for free that its classic members read",
        (("busway_bus.groups.migration:_upgraded", _upgrades_without_assignments),),
        _MIGRATION,
    ),
    Planted(
        "downgrade without a rebalance",
        "a group that becomes a classic group leaves a member without partitions that were being moved to it",
        (("busway_bus.groups.mixed:downgrade", _downgrades_as_it_is),),
        _MIGRATION,
    ),
    Planted(
        "service commits what it has only read",
        "the offset of a transaction is behind records that are not handled yet",
        (("busway.app.handling.partition_offsets:PartitionOffsets.committable_with", _commits_what_was_read),),
        _SERVICES,
    ),
    Planted(
        "transaction without the table's rows",
        "what a handler has put is in memory, and not in the table's topic",
        (("busway.app.tables.changes:Change.finish", _writes_no_rows),),
        _SERVICES,
    ),
    Planted(
        "rows of a failed call stay",
        "the next attempt counts on what the failed one has put",
        (("busway.app.tables.changes:Change.undo", _keeps_failed_rows),),
        _SERVICES,
    ),
    Planted(
        "service reads what is not committed",
        "records of aborted transactions are handled",
        (("busway.app.application:Consumer", _reads_uncommitted),),
        _SERVICES,
    ),
    Planted(
        "offsets outside of the transaction",
        "a service commits its offsets by themselves, so that a crash leaves them with another output",
        (("busway.app.handling.transactor:Transactor._seal", _sends_offsets_alone),),
        _SERVICES,
    ),
    Planted(
        "zombie service unnoticed",
        "an instance that its group has replaced commits what it had read, with its output",
        (
            ("busway_bus.groups.modern.consumer_state:ConsumerView.check_commit", _any_epoch),
            ("busway_bus.groups.classic.state:ClassicView._commit_in_transaction", _takes_any_member),
        ),
        _SERVICES,
    ),
    Planted(
        "service keeps a fenced producer",
        "an instance whose transaction was aborted by its coordinator begins all anew, but with the producer that may write no more",
        (("busway.app.handling.transactor:Transactor._restart_partitions", _keeps_fenced_producer),),
        _SERVICES,
    ),
)
"""All of them."""
