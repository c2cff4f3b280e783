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
        "member epoch of an offset commit unchecked",
        "a member that lost a partition or was fenced commits records that its successor has read on from",
        (("busway_bus.groups.modern.consumer_state:ConsumerView.check_commit", _any_epoch),),
        _GROUPS,
    ),
    Planted(
        "partition assigned before it is revoked",
        "the coordinator assigns a partition to its next owner while the last one has it",
        (("busway_bus.groups.modern.consumer_group:ConsumerGroup._taken_by_another", _taken_by_nobody),),
        _GROUPS,
    ),
    Planted(
        "revocation assumed before it is acknowledged",
        "a member's partitions count as revoked before it has acknowledged that",
        (("busway_bus.groups.modern.reconcile:_still_has", _asks_nobody),),
        _GROUPS,
    ),
    Planted(
        "member reads a partition after its revocation",
        "a member acknowledges the revocation of a partition and continues to read it",
        (("busway.consumer.group:GroupMember._revoke", _goes_on_reading),),
        _GROUPS,
    ),
    Planted(
        "new partitions not assigned",
        "topics that are created or extended later are assigned to no member",
        (("busway_bus.groups.modern.topics:Topics.hash_of", _sees_no_growth),),
        _GROUPS,
    ),
    Planted(
        "coordinator uses its predecessor's clock",
        "a group is not rebalanced before the time of its last rebalance by the previous coordinator's clock",
        (("busway_bus.groups.modern.consumer_target:is_within", _waits_for_another_clock),),
        _GROUPS,
    ),
    Planted(
        "static member's leave ignored",
        "the instance id of a static member that has left temporarily is occupied until its session ends",
        (("busway_bus.groups.modern.consumer_group:ConsumerGroup.consumer_leave", _nobody_leaves_for_a_while),),
        _GROUPS,
    ),
    Planted(
        "heartbeats on another connection ignored",
        "a member whose connection was closed is fenced after the grace period although it has sent heartbeats on another connection",
        (("busway_bus.coordinator.member_connections:MemberConnections._wait_no_more", _waits_on),),
        _GROUPS,
    ),
    Planted(
        "session of a consumer group member does not expire",
        "a silent member keeps its partitions, and a static one its instance id, for ever",
        (("busway_bus.groups.modern.group:ModernGroup.expired", _fences_nobody),),
        _GROUPS,
    ),
    Planted(
        "regular expression resolved only once",
        "topics that are created later are assigned to no member although a member's regular expression matches them",
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
        "static member that left keeps its pending revocations",
        "partitions that a static member was revoking when it left temporarily have no owner until its session ends",
        (("busway_bus.groups.modern.consumer_member:ConsumerMember.left_temporarily", _keeps_giving_up),),
        _SEATS,
    ),
    Planted(
        "migrated member keeps its old assignment",
        "a classic member of a consumer group is never asked to rejoin and revokes nothing",
        (("busway_bus.groups.mixed:MixedGroup.heartbeat", _asks_nobody_to_rejoin),),
        _MIGRATION,
    ),
    Planted(
        "classic members upgraded without their assignments",
        "a group that becomes a consumer group treats the partitions of its classic members as free",
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
        "service commits unhandled records",
        "the offset of a transaction is after records that are not handled yet",
        (("busway.app.handling.partition_offsets:PartitionOffsets.committable_with", _commits_what_was_read),),
        _SERVICES,
    ),
    Planted(
        "transaction without the table's rows",
        "rows that a handler has put are in memory, and not in the table's topic",
        (("busway.app.tables.changes:Change.finish", _writes_no_rows),),
        _SERVICES,
    ),
    Planted(
        "rows of a failed call kept",
        "the next attempt sees rows of the failed one",
        (("busway.app.tables.changes:Change.undo", _keeps_failed_rows),),
        _SERVICES,
    ),
    Planted(
        "service reads uncommitted records",
        "records of aborted transactions are handled",
        (("busway.consumer.consumer:Consumer", _reads_uncommitted),),
        _SERVICES,
    ),
    Planted(
        "offsets outside of the transaction",
        "a service commits its offsets separately, so that a crash leaves them with another output",
        (("busway.app.handling.transactor:Transactor._seal", _sends_offsets_alone),),
        _SERVICES,
    ),
    Planted(
        "zombie service not fenced",
        "an instance that its group has replaced commits its offsets with its output",
        (
            ("busway_bus.groups.modern.consumer_state:ConsumerView.check_commit", _any_epoch),
            ("busway_bus.groups.classic.state:ClassicView._commit_in_transaction", _takes_any_member),
        ),
        _SERVICES,
    ),
    Planted(
        "service keeps a fenced producer",
        "an instance whose transaction was aborted by its coordinator restarts with the producer that was fenced",
        (("busway.app.handling.transactor:Transactor._restart_partitions", _keeps_fenced_producer),),
        _SERVICES,
    ),
)
"""All of them."""
