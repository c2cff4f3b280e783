"""Bugs put in on purpose: a simulation that does not find them is worth nothing.

Here: each as a small change of a named function of the product; those of transactions are in `planted_transactions`,
those of groups that their coordinator balances and of services in `planted_members`.
Not here: how they are put in (`planting`), whether they are found (`test_planted`), after how many seeds (`planted.md`,
from `python -m tests.simulation --planted`).
"""

import asyncio
from types import MappingProxyType
from typing import Any, Final

from tests.simulation import planted_ends, planted_members, planted_shares, planted_transactions
from tests.simulation.planting import Planted

# What each change does


def _cancellable(_: Any) -> Any:
    async def run(self: Any, decide: Any) -> Any:
        from busway_bus.quorum.metadata_images import Change
        from busway_bus.quorum.metadata_log import _Command

        before, reply = self._newest, asyncio.get_running_loop().create_future()
        command = _Command(decide, reply)
        await self._decide(command)
        try:
            return await reply
        except asyncio.CancelledError:
            for at, held in enumerate(self._undecided):
                if held.command is command:
                    self._newest = before
                    gone = Change(held.change.first_offset, held.change.end_offset)
                    self._undecided[at] = held._replace(change=gone)
            raise

    return run


def _hangs_up(original: Any) -> Any:
    def lost(self: Any) -> None:
        from busway_bus.server.dispatch import Reply

        for answer in self._answers:
            if isinstance(answer, Reply):
                answer.cancel()
        original(self)

    return lost


def _deletes_strangers(original: Any) -> Any:
    def settle(self: Any, topic_ids: Any, removed: Any, elsewhere: Any = MappingProxyType({})) -> Any:
        from busway_bus.log.checkpoints import PARTITION_METADATA
        from busway_bus.log.directories import key_of, topic_id_in

        for name in self._files.list("."):
            key = key_of(name)
            held = topic_id_in(self._files.read_bytes(f"{name}/{PARTITION_METADATA}"))
            if key is not None and self._files.list(name) and topic_ids.get(key) != held:
                self._files.remove_tree(name)
                self._forget({key})
        return original(self, topic_ids, removed, elsewhere)

    return settle


def _cuts_silently(_: Any) -> Any:
    def cut(self: Any, segment: Any, size: int, problem: Any) -> None:
        segment.cut(size)

    return cut


def _no_new_epochs(_: Any) -> Any:
    def begin_epochs(*_: Any) -> Any:
        from busway_bus.kernel.decision import Decision

        return Decision(records=(), reply=None)

    return begin_epochs


def _falls_back(original: Any) -> Any:
    def raised(self: Any, offset: int) -> Any:
        from busway_bus.replication.partition_state import _MOVED

        if offset >= self.high_watermark:
            return original(self, offset)
        self.high_watermark = offset
        return _MOVED

    return raised


def _unsynced_commit(_: Any) -> Any:
    async def commit(self: Any, group_id: str, committer: Any, offsets: Any) -> Any:
        now, wall_ms = self.runtime.now(), self._machine.wall_ms()
        return self.runtime.decide(
            self.runtime.partition_of(group_id),
            lambda shard: shard.commit(group_id, committer, offsets, now=now, wall_ms=wall_ms),
        )

    return commit


def _tells_unsynced(_: Any) -> Any:
    async def read(self: Any, partition: int, operation: Any) -> Any:
        return operation(self.shard(partition))

    return read


def _reads_unflushed(original: Any) -> Any:
    def appended(self: Any, info: Any) -> None:
        original(self, info)
        if self.state._raise(self.log.end_offset):
            self.wake()

    return appended


def _duplicate_at_once(original: Any) -> Any:
    def await_acks(self: Any, partition: Any, info: Any, acks: int, acknowledged: Any) -> bool:
        return not info.duplicate and original(self, partition, info, acks, acknowledged)

    return await_acks


def _nothing(original: Any) -> Any:
    def rewrite(self: Any, position: int) -> None:
        pass

    return rewrite


def _syncs_again(original: Any) -> Any:
    def sync(self: Any) -> None:
        try:
            original(self)
        except OSError:
            original(self)

    return sync


def _forgets_failures(original: Any) -> Any:
    def sync(self: Any) -> None:
        self._spoiled = None
        original(self)

    return sync


def _unsynced(original: Any) -> Any:
    """Names that are put on disk only with what comes after them."""

    def change(self: Any, *args: Any) -> None:
        from busway_bus.testing.sim_disk import Directory

        sync = Directory.sync
        Directory.sync = lambda _: None  # type: ignore[method-assign]
        try:
            original(self, *args)
        finally:
            Directory.sync = sync  # type: ignore[method-assign]

    return change


def _one_record_early(_: Any) -> Any:
    def advance_start(self: Any, offset: int, now_ms: int) -> None:
        from busway_bus.log.deleted_segments import DeletedSegment

        self.start_offset = max(self.start_offset, min(offset, self.end_offset))
        while len(self._segments) > 1 and self._segments[1].base_offset <= self.start_offset + 1:
            gone = self._segments.pop(0)
            due, start = now_ms + self.config.file_delete_delay_ms, self._segments[0].base_offset
            self._deleted.append(DeletedSegment(due, gone, snapshot=True, start=start))

    return advance_start


def _wraps_early(original: int) -> int:
    return original - 1


def _wall_clock(_: Any) -> Any:
    def now(self: Any) -> int:
        return int(self._machine.wall_ms())

    return now


def _any_generation(_: Any) -> Any:
    def check_member(self: Any, member_id: str, instance_id: str | None, generation: int) -> Any:
        return self.roster.identity_error(member_id, instance_id)

    return check_member


def _keeps_epoch(_: Any) -> Any:
    def failed(self: Any, batch: Any) -> bool:
        self._drop(self._queues[batch.partition], batch)
        return False

    return failed


def _new_sequence(original: Any) -> Any:
    def retry(self: Any, batch: Any, at: float) -> None:
        queue = self._queues[batch.partition]
        queue.next_sequence += batch.builder.count
        batch.encoded = None
        original(self, batch, at)

    return retry


def _tells_no_epoch(original: Any) -> Any:
    def take_chunk(assigned: Any, data: Any) -> int:
        following: int = original(assigned, data)
        assigned.fetched_epoch = -1
        return following

    return take_chunk


def _forgets_producers(_: Any) -> Any:
    def replay(self: Any, *_: Any, **__: Any) -> Any:
        from busway_bus.log.producer_state import ProducerState

        return ProducerState()

    return replay


PLANTED: Final = (
    Planted(
        "metadata change cancelled between append and apply",
        "a metadata change is dropped half way when its client disconnects",
        (
            ("busway_bus.quorum.metadata_log:MetadataLog.run", _cancellable),
            ("busway_bus.server.connection:Connection.lost", _hangs_up),
        ),
    ),
    Planted(
        "start deletes unknown directories",
        "a directory with another partition.metadata is removed at the start",
        (("busway_bus.log.store:LogStore.settle", _deletes_strangers),),
    ),
    Planted(
        "recovery truncates without a copy",
        "data after a damaged batch is removed without a copy or a warning",
        (("busway_bus.log.recovery:_Recovery._cut", _cuts_silently),),
    ),
    Planted(
        "leader epoch not raised",
        "after an unclean start offsets are assigned again under the old epoch, so that readers cannot detect it (KIP-320)",
        (("busway_bus.controller.leaders:begin_epochs", _no_new_epochs),),
    ),
    Planted(
        "high watermark moves back",
        "a topic that changes to durability=flush hides readable records until they are flushed",
        (("busway_bus.replication.partition_state:PartitionState._raise", _falls_back),),
    ),
    Planted(
        "offset commit acknowledged before its sync",
        "an offset commit is acknowledged from memory",
        (("busway_bus.coordinator.group_coordinator:GroupCoordinator.commit", _unsynced_commit),),
    ),
    Planted(
        "offsets returned before they are durable",
        "a member starts at an offset that a power cut removes",
        (("busway_bus.coordinator.runtime:Runtime.read", _tells_unsynced),),
    ),
    Planted(
        "fetch beyond the high watermark",
        "records are read before they are on disk",
        (("busway_bus.replication.partition:Partition.appended", _reads_unflushed),),
    ),
    Planted(
        "duplicate acknowledged before it is durable",
        "a repeated batch that is not on disk yet is acknowledged at once",
        (("busway_bus.replication.manager:ReplicaManager.await_acks", _duplicate_at_once),),
    ),
    Planted(
        "failed sync retried",
        "after a failed fdatasync the next one succeeds: the kernel has dropped the pages",
        (
            ("busway_bus.log.flush_point:FlushPoint.sync", _syncs_again),
            ("busway_bus.testing.sim_files:SimFile.sync", _forgets_failures),
        ),
    ),
    Planted(
        "start trusts the page cache after a failed sync",
        "the page cache after a failed fdatasync counts as durable: the kernel marks those pages clean",
        (("busway_bus.log.segment:Segment.rewrite", _nothing),),
    ),
    Planted(
        "segment deleted one record early",
        "a segment is deleted although its last record is part of the log",
        (("busway_bus.log.partition_log:PartitionLog.advance_start", _one_record_early),),
    ),
    Planted(
        "wrong sequence wrap-around in the broker",
        "after 2147483646 the broker expects sequence number 0",
        (("busway_bus.log.producer_state:SEQUENCES", _wraps_early),),
    ),
    Planted(
        "wrong sequence wrap-around in the client",
        "after 2147483646 the producer continues with 0",
        (("busway.producer.accumulator:SEQUENCES", _wraps_early),),
    ),
    Planted(
        "sessions on the wall clock",
        "setting the clock ends sessions or prolongs them",
        (("busway_bus.coordinator.runtime:Runtime.now", _wall_clock),),
    ),
    Planted(
        "generation of an offset commit unchecked",
        "a member of an earlier generation may commit",
        (("busway_bus.groups.classic.state:ClassicView.check_member", _any_generation),),
    ),
    Planted(
        "epoch kept after a batch timed out",
        "the next batch has the sequence numbers of a batch that may have been written",
        (("busway.producer.accumulator:Accumulator.failed", _keeps_epoch),),
    ),
    Planted(
        "retry with a new sequence number",
        "the broker treats a resent batch as a new one",
        (("busway.producer.accumulator:Accumulator.retry", _new_sequence),),
    ),
    Planted(
        "fetch without the last fetched epoch",
        "the broker cannot detect that the log was truncated and rewritten (KIP-320)",
        (("busway.consumer.fetcher:take_chunk", _tells_no_epoch),),
    ),
    Planted(
        "producer state lost at a start",
        "a retry across a restart of the broker is written twice",
        (("busway_bus.log.recovery:_Recovery._replay", _forgets_producers),),
    ),
    Planted(
        "directory created without a sync of its parent",
        "a partition with synced records is missing after a power cut",
        (
            ("busway_bus.testing.sim_files:SimFiles.make_directory", _unsynced),
            ("busway_bus.testing.sim_files:SimFiles.make_directories", _unsynced),
        ),
    ),
    Planted(
        "files synced without their directory",
        "a new segment with synced records is missing after a power cut, and so is a small file that was replaced",
        (
            ("busway_bus.testing.sim_files:SimFile.sync", _unsynced),
            ("busway_bus.testing.sim_files:SimFiles.replace", _unsynced),
        ),
    ),
    *planted_transactions.PLANTED,
    *planted_shares.PLANTED,
    *planted_members.PLANTED,
    *planted_ends.PLANTED,
)
"""All of them."""
BY_NAME: Final = {bug.name: bug for bug in PLANTED}
