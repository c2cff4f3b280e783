"""Bugs put into share groups on purpose.

Here: what each of them changes.
Not here: how they are put in, and all others (`planted`).
"""

from typing import Any, Final

from tests.simulation.planting import Planted

_ABOUT: Final = "shares"


def _unsynced_state(_: Any) -> Any:
    async def write(self: Any, key: Any, change: Any) -> None:
        self.runtime.decide(
            self._partition_of(key),
            lambda shard: shard.write(key, change, wall_ms=self._machine.wall_ms(), room_bytes=1 << 30),
        )

    return write


def _locks_for_ever(_: Any) -> Any:
    def arm(self: Any) -> None:
        pass

    return arm


def _counts_nothing(original: Any) -> Any:
    def note(self: Any, run: Any) -> None:
        original(self, run)
        last = self.batches[-1]
        self.batches[-1] = type(last)(
            first_offset=last.first_offset,
            last_offset=last.last_offset,
            delivery_state=last.delivery_state,
            delivery_count=0,
        )

    return note


def _any_state_epoch(original: Any) -> Any:
    def write(self: Any, key: Any, change: Any, **more: Any) -> Any:
        from dataclasses import replace

        from busway_bus.share_state.shard import ANY_EPOCH

        return original(self, key, replace(change, state_epoch=ANY_EPOCH), **more)

    return write


def _nobody_told(_: Any) -> Any:
    def reinitialized(self: Any, key: Any) -> None:
        pass

    return reinitialized


def _forgets_in_flight(original: Any) -> Any:
    def whole(state: Any, *args: Any, **more: Any) -> Any:
        from dataclasses import replace

        return original(replace(state, batches=()), *args, **more)

    return whole


def _anybody(_: Any) -> Any:
    def say(self: Any, run: Any, kind: Any, change: Any, *, member_id: str, limits: Any, now_ms: int) -> None:
        from busway_bus.share.state import _STATES, AcknowledgeType
        from busway_protocol.errors import ErrorCode, KafkaError

        if not run.locked:
            raise KafkaError(ErrorCode.INVALID_RECORD_STATE)
        if kind is AcknowledgeType.RENEW:
            run.deadline_ms = now_ms + limits.lock_ms
        else:
            self._begin(run, _STATES[kind], change, limits)

    return say


def _short_locks(original: Any) -> Any:
    def acquire(self: Any, member_id: str, deadline_ms: int) -> None:
        original(self, member_id, deadline_ms - 700)

    return acquire


def _gives_aborted(original: Any) -> Any:
    def rolled_back(headers: Any, transactions: Any) -> Any:
        return []

    return rolled_back


def _gives_open(_: Any) -> Any:
    def readable(self: Any, limits: Any) -> int:
        return int(self.partition.high_watermark)

    return readable


def _start_over_what_is_held(_: Any) -> Any:
    def written(self: Any, leader_epoch: int, batches: Any) -> Any:
        from busway_bus.kernel.share_state import ShareState

        batches = tuple(batches)
        last = max((batch.last_offset for batch in batches), default=self.start - 1)
        return ShareState(
            state_epoch=self.state_epoch,
            leader_epoch=leader_epoch,
            start_offset=max(self.start, last + 1),
            delivery_complete_count=0,
            batches=batches,
        )

    return written


def _gives_without_end(original: Any) -> Any:
    def given_back(run: Any, limits: Any) -> Any:
        from busway_bus.share.in_flight import RecordState

        return RecordState.AVAILABLE

    return given_back


def _buries_later(original: Any) -> Any:
    async def write(self: Any, key: Any, source: Any, letters: Any) -> Any:
        import asyncio

        writing = asyncio.ensure_future(original(self, key, source, letters))
        writing.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.sleep(0)
        return list(letters)

    return write


def _restores_as_buried(original: Any) -> Any:
    def restored(kept: Any) -> Any:
        from busway_bus.share.in_flight import RecordState

        for batch in original(kept):
            for run in batch.runs:
                if run.state is RecordState.ARCHIVING:
                    run.state = RecordState.ARCHIVED
            yield batch

    return restored


def _buries_all(_: Any) -> Any:
    def first_of(letters: Any, count: int) -> Any:
        return list(letters)

    return first_of


def _gives_up_what_is_released(original: Any) -> Any:
    def given_back(run: Any, limits: Any) -> Any:
        from busway_bus.share.in_flight import Cause, RecordState

        if limits.dead_letters and run.delivery_count + 1 >= limits.delivery_count:
            run.cause = Cause.DELIVERED_TOO_OFTEN
            return RecordState.ARCHIVING
        return original(run, limits)

    return given_back


def _keeps_sessions(_: Any) -> Any:
    def end(self: Any, _: Any) -> None:
        pass

    return end


PLANTED: Final = (
    Planted(
        "share state acknowledged before it is durable",
        "acknowledgements of records are answered from memory",
        (("busway_bus.coordinator.share_state_coordinator:ShareCoordinator.write", _unsynced_state),),
        _ABOUT,
    ),
    Planted(
        "acquisition lock without a time-out",
        "a member that does not acknowledge a record keeps it for ever",
        (("busway_bus.share.partition:SharePartition._arm", _locks_for_ever),),
        _ABOUT,
    ),
    Planted(
        "delivery count not persisted",
        "after a start the delivery count of records is zero",
        (("busway_bus.share.in_flight:Change.note", _counts_nothing),),
        _ABOUT,
    ),
    Planted(
        "share state epoch unchecked",
        "a leader that has not read a reset writes the earlier state",
        (
            ("busway_bus.share_state.shard:ShareStateShard.write", _any_state_epoch),
            ("busway_bus.share.manager:SharePartitions.reinitialized", _nobody_told),
        ),
        _ABOUT,
    ),
    Planted(
        "leader not notified of an offset reset",
        "a group is reset, and the leader delivers records from before the reset",
        (("busway_bus.share.manager:SharePartitions.reinitialized", _nobody_told),),
        _ABOUT,
    ),
    Planted(
        "share snapshot without in-flight batches",
        "a snapshot lacks records that were completed after the start offset",
        (("busway_bus.share_state.shard:_whole", _forgets_in_flight),),
        _ABOUT,
    ),
    Planted(
        "acknowledgement by another member",
        "a former holder of a record may acknowledge it while another member holds it",
        (("busway_bus.share.state:SharePartitionState._say", _anybody),),
        _ABOUT,
    ),
    Planted(
        "acquisition locks end early",
        "a record is acquired by another member while its holder's lock is still valid",
        (("busway_bus.share.in_flight:Run.acquire", _short_locks),),
        _ABOUT,
    ),
    Planted(
        "aborted records delivered by a share group",
        "a group with read_committed gets records of aborted transactions",
        (("busway_bus.share.fetched:rolled_back", _gives_aborted),),
        _ABOUT,
    ),
    Planted(
        "records of open transactions delivered by a share group",
        "a group with read_committed gets records of open transactions",
        (("busway_bus.share.partition:SharePartition.readable", _gives_open),),
        _ABOUT,
    ),
    Planted(
        "share start offset passes acquired records",
        "all records before the last acknowledged one count as completed",
        (("busway_bus.share.state:SharePartitionState.written", _start_over_what_is_held),),
        _ABOUT,
    ),
    Planted(
        "delivery count without a limit",
        "a record whose lock ends is delivered again without a limit",
        (("busway_bus.share.state:_given_back", _gives_without_end),),
        _ABOUT,
    ),
    Planted(
        "share session of a closed connection kept",
        "the session of a member is kept after its connection was closed",
        (("busway_bus.share.manager:_SessionWatch.end", _keeps_sessions),),
        _ABOUT,
    ),
    Planted(
        "archived before its dead letter is on disk",
        "a rejected record is completed while its dead letter is being written",
        (("busway_bus.share.dead_letters:DeadLetters.write", _buries_later),),
        _ABOUT,
    ),
    Planted(
        "pending dead letter lost at a start",
        "records that wait for their dead letter are completed after a start",
        (("busway_bus.share.state:_restored", _restores_as_buried),),
        _ABOUT,
    ),
    Planted(
        "dead letters beyond the first batch lost",
        "all waiting records count as written with the first batch of dead letters",
        (("busway_bus.share.dead_letters:first_of", _buries_all),),
        _ABOUT,
    ),
    Planted(
        "dead letter one delivery too early",
        "a record gets a dead letter although one more delivery is allowed",
        (("busway_bus.share.state:_given_back", _gives_up_what_is_released),),
        _ABOUT,
    ),
)
"""All of them."""
