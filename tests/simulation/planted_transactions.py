"""Bugs put into transactions on purpose.

Here: what each of them changes.
Not here: how they are put in, and all others (`planted`).
"""

import dataclasses
from typing import Any, Final

from tests.simulation.planting import Planted

_ABOUT: Final = "transactions"


def _reads_open(_: Any) -> Any:
    return property(lambda self: self.state.high_watermark)


def _marker_at_once(original: Any) -> Any:
    def append_marker(self: Any, partition: Any, marker: Any) -> Any:
        info, durable = original(self, partition, marker)
        if durable is not None:
            durable.add_done_callback(lambda future: future.exception())  # no other task asks
        return info, None

    return append_marker


def _any_epoch(_: Any) -> Any:
    def check_epoch(self: Any, producer_id: int, epoch: int) -> None:
        pass

    return check_epoch


def _open_in_any_epoch(_: Any) -> Any:
    def is_open(self: Any, producer_id: int, epoch: int) -> bool:
        return producer_id in self._open

    return is_open


def _old_epochs_are_next(original: Any) -> Any:
    def check(self: Any, header: Any, verification: Any = None) -> Any:
        entry = self._entries.get(header.producer_id)
        if entry is not None and header.producer_epoch < entry.epoch and header.producer_id in self._open:
            return None
        return original(self, header, verification)

    return check


def _in_force_at_once(_: Any) -> Any:
    def apply_pending(self: Any, change: Any, producer_id: int, now: int, host: str = "") -> None:
        self.apply(change, now)

    return apply_pending


def _tells_no_aborts(original: Any) -> Any:
    def committed_slice(self: Any, *args: Any, **more: Any) -> Any:
        sliced, _ = original(self, *args, **more)
        return sliced, []

    return committed_slice


def _forgets_prepared(_: Any) -> Any:
    def resume(self: Any, partition: int, shard: Any) -> None:
        pass

    return resume


def _restores_nothing_open(original: Any) -> Any:
    def from_snapshot(cls: Any, content: bytes, now_ms: int) -> Any:
        state = original.__func__(cls, content, now_ms)
        if state is not None:
            for _, entry in state:
                entry.transaction_start = -1
            state._open.clear()
            state.first_unstable_offset = None
        return state

    return classmethod(from_snapshot)


def _any_member(_: Any) -> Any:
    def _commit_in_transaction(self: Any, committer: Any, now: int) -> Any:
        from busway_protocol.errors import ErrorCode

        return ErrorCode.NONE

    return _commit_in_transaction


def _answers_undurable(_: Any) -> Any:
    async def with_id(self: Any, partition: int, transactional_id: str, decide: Any) -> Any:
        from busway_protocol.errors import ErrorCode, KafkaError

        outcome = decide(None)
        if outcome.needs_id:
            outcome = decide(await self._new_producer_id())
        if outcome.ending:
            self.markers.begin(partition, transactional_id)
        if outcome.identity is None:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        return outcome.identity

    return with_id


def _replays_aborts_as_commits(original: Any) -> Any:
    def read_marker(batch: Any) -> Any:
        marker = original(batch)
        return None if marker is None else marker._replace(committed=True)

    return read_marker


def _tells_zombies(original: Any) -> Any:
    def check_end(known: Any, identity: Any, *, commit: bool, client_version: int) -> Any:
        bumped = None if known is None else dataclasses.replace(known, client_version=2)
        return original(bumped, identity, commit=commit, client_version=client_version)

    return check_end


def _member_of_now(_: Any) -> Any:
    def metadata(self: Any) -> Any:
        return self._consumer.member()

    return metadata


def _every_partition_is_kept(_: Any) -> Any:
    def _is_kept(self: Any, partition: Any) -> bool:
        return True

    return _is_kept


PLANTED: Final = (
    Planted(
        "last stable offset ignores open transactions",
        "readers of committed records get records of open transactions",
        (("busway_bus.replication.partition:Partition.last_stable_offset", _reads_open),),
        _ABOUT,
    ),
    Planted(
        "transaction complete before its markers are durable",
        "a power cut removes the markers, and they are never written again",
        (("busway_bus.replication.manager:ReplicaManager.append_marker", _marker_at_once),),
        _ABOUT,
    ),
    Planted(
        "old producer epoch accepted",
        "the log accepts records of a fenced producer into its successor's transaction",
        (
            ("busway_bus.log.producer_state:ProducerState.check_epoch", _any_epoch),
            ("busway_bus.log.producer_state:ProducerState.is_open", _open_in_any_epoch),
            ("busway_bus.log.producer_state:ProducerState.check", _old_epochs_are_next),
        ),
        _ABOUT,
    ),
    Planted(
        "transactional offsets in force before the marker",
        "offsets of an open transaction count at once",
        (("busway_bus.groups.shard:GroupShard.apply_pending", _in_force_at_once),),
        _ABOUT,
    ),
    Planted(
        "aborted transactions not listed in fetch responses",
        "readers of committed records cannot leave out aborted records",
        (("busway_bus.log.partition_log:PartitionLog.committed_slice", _tells_no_aborts),),
        _ABOUT,
    ),
    Planted(
        "prepared transaction lost at a start",
        "a transaction that was being ended when the node crashed stays open for ever",
        (("busway_bus.coordinator.markers:Markers.resume", _forgets_prepared),),
        _ABOUT,
    ),
    Planted(
        "open transactions not restored from the snapshot",
        "after a start readers of committed records get records of open transactions",
        (("busway_bus.log.producer_state:ProducerState.from_snapshot", _restores_nothing_open),),
        _ABOUT,
    ),
    Planted(
        "generation of a transaction's offsets unchecked",
        "a member that its group has replaced commits its offsets (KIP-447)",
        (("busway_bus.groups.classic.state:ClassicView._commit_in_transaction", _any_member),),
        _ABOUT,
    ),
    Planted(
        "end of a transaction acknowledged before it is durable",
        "a commit is acknowledged from memory",
        (("busway_bus.coordinator.transaction_coordinator:TransactionCoordinator._with_id", _answers_undurable),),
        _ABOUT,
    ),
    Planted(
        "aborted offsets in force after a start",
        "loading of the offsets topic treats every marker as a commit",
        (("busway_bus.coordinator.replay:read_marker", _replays_aborts_as_commits),),
        _ABOUT,
    ),
    Planted(
        "zombie acknowledged for its successor's transaction",
        "if an end does not raise the epoch, a request of the previous producer counts as a retry of its successor's",
        (("busway_bus.transactions.shard:check_end", _tells_zombies),),
        _ABOUT,
    ),
    Planted(
        "offsets sent for the current member",
        "a flow commits records of partitions that its group has reassigned to another member",
        (
            ("busway.consumer.handed_out:HandedOut.metadata", _member_of_now),
            ("busway.consumer.handed_out:HandedOut._is_kept", _every_partition_is_kept),
        ),
        "handovers",
    ),
)
"""All of them."""
