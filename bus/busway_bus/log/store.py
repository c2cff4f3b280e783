"""The data directory: every partition's log, and the checkpoint files.

Here: opening, deleting and closing logs; checkpoints.
Not here: leaders and high watermarks (`replication`). The layout is Kafka's: a directory `topic-partition` for each
log.
"""

import logging
import threading
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final
from uuid import UUID

from busway_bus.kernel.files import Files
from busway_bus.log import checkpoints as cp
from busway_bus.log.directories import (
    DELETED,
    STRAY,
    Key,
    UnownedDirectories,
    aside,
    directory_of,
    metadata_bytes,
    partitions_in,
    settle,
    topic_id_in,
)
from busway_bus.log.log_config import LogConfig
from busway_bus.log.meta_properties import WrongDirectory, identity_in, not_its_own
from busway_bus.log.new_owners import NewOwners
from busway_bus.log.partition_log import CorruptLog, PartitionLog
from busway_bus.log.producer_memory import ProducerMemory
from busway_bus.log.producer_state import ProducerState
from busway_bus.log.restart import remove_records

logger = logging.getLogger("busway.log")
NOTED_FROM: Final = 4
"""Partitions created at once from which their owners are noted together."""
_NO_IDS: Mapping[Key, UUID] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    offsets: Mapping[str, Mapping[Key, int]]
    deletions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """A partition to open. `new`: just created, without a directory."""

    key: Key
    topic_id: UUID
    config: LogConfig
    new: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedLog:
    key: Key
    topic_id: UUID
    log: PartitionLog | None


class LogStore:
    """All logs below one data directory.

    Args:
        new_ids: random ids for an unformatted directory.

    Attributes:
        identity: the cluster and node of the directory.
        formatted: the directory is new: it never had a log.
        clean: the last process closed every log cleanly; otherwise unflushed records may be lost.
    """

    def __init__(self, files: Files, *, node_id: int, new_ids: Callable[[], UUID]) -> None:
        self._files = files
        self._new_ids = new_ids
        self.logs: dict[Key, PartitionLog] = {}
        self.identity, formatted = identity_in(files, node_id=node_id, new_ids=new_ids)
        self.formatted = formatted or (files.read_bytes(cp.RECOVERY_POINTS) is None and not partitions_in(files))
        mark = files.read_bytes(cp.CLEAN_SHUTDOWN)
        self.clean = mark is not None
        self.previous_broker_epoch = cp.broker_epoch_in(mark or b"")
        """Epoch of the broker that closed the logs cleanly, -1 if it is not known."""
        self.last_broker_epoch = cp.broker_epoch_in(files.read_bytes(cp.BROKER_EPOCH) or b"")
        """Epoch of the broker that last registered with these logs, -1 if none did."""
        self.broker_epoch = -1
        """Epoch of this broker, for the next start."""
        if self.clean:
            files.remove(cp.CLEAN_SHUTDOWN)
        # Else a power cut may bring the mark back, and torn files would be trusted. An earlier start may have failed here.
        files.sync_directory(".")
        self._recovery = self._offsets(cp.RECOVERY_POINTS)
        self._starts = self._offsets(cp.LOG_STARTS)
        self._cleaned = self._offsets(cp.CLEANER_OFFSETS)
        self._high_watermarks = self._offsets(cp.HIGH_WATERMARKS)
        self.high_watermarks: Callable[[], Mapping[Key, int]] = dict
        """The high watermarks to write at the end; without one, that of a log is its end."""
        self._new_owners = NewOwners(files)
        self.settle_new = self._new_owners.settle
        self._offline: set[Key] = set()
        self._written: dict[str, bytes] = {}
        self._producer_memory = ProducerMemory()
        self._deletions = 0
        self._writing = threading.Lock()

    @property
    def files(self) -> Files:
        return self._files

    def _offsets(self, name: str) -> dict[Key, int]:
        content = self._files.read_bytes(name)
        return cp.offsets_from_text(content.decode(errors="replace")) if content else {}

    def open(
        self,
        topic: str,
        partition: int,
        topic_id: UUID,
        config: LogConfig,
        now_ms: int,
        *,
        new: bool = True,
        flushed: int = 0,
    ) -> PartitionLog:
        """Open or create the log of one partition; waits for the disk.

        `flushed`: offset known to be on disk, if above the checkpoint's.

        Raises:
            CorruptLog: flushed data is damaged.
            WrongDirectory: another topic's, or missing although it had records.
        """
        opening = Opening(key=(topic, partition), topic_id=topic_id, config=config, new=new)
        self.expect([opening])
        if flushed:
            self._recovery[opening.key] = max(flushed, self._recovery.get(opening.key, 0))
        outcome = self.prepare([opening]).get(opening.key) or self.load(opening, now_ms)
        if isinstance(outcome, Exception):
            raise outcome
        return self.adopt(opening, outcome)

    # Opening many: call `expect` and `adopt` in the event loop's thread, `prepare` and `load` in others: they wait for the disk

    def expect(self, openings: Iterable[Opening]) -> None:
        """Rule out a clean shutdown until these partitions are open or deleted."""
        self._offline.update(opening.key for opening in openings)

    def prepare(self, openings: Sequence[Opening]) -> dict[Key, Exception]:
        """Create missing directories with one sync; return errors by partition."""
        problems: dict[Key, Exception] = {}
        missing: list[Opening] = []
        for opening in openings:
            directory = directory_of(opening.key)
            try:
                content = self._files.read_bytes(f"{directory}/{cp.PARTITION_METADATA}")
                topic_id = topic_id_in(content)
                is_noted = topic_id is None and self._new_owners.of(opening.key) == opening.topic_id
                if is_noted and self._files.list(directory):
                    continue
                if content is not None:
                    if topic_id != opening.topic_id:
                        raise not_its_own(directory, opening.topic_id, topic_id)
                    continue
                if not opening.new:
                    self._check_loss(opening, directory)
                missing.append(opening)
            except (WrongDirectory, OSError) as problem:
                problems[opening.key] = problem
        try:
            self._forget({opening.key for opening in missing})
            self._files.make_directories([directory_of(opening.key) for opening in missing])
            if len(missing) >= NOTED_FROM:
                self._new_owners.note({opening.key: opening.topic_id for opening in missing})
        except OSError as problem:
            problems.update((opening.key, problem) for opening in missing)
        return problems

    def load(self, opening: Opening, now_ms: int) -> "PartitionLog | CorruptLog | OSError":
        key, directory = opening.key, directory_of(opening.key)
        path = f"{directory}/{cp.PARTITION_METADATA}"
        try:
            if not self._new_owners.write(key, opening.topic_id) and self._files.read_bytes(path) is None:
                self._files.replace(path, metadata_bytes(opening.topic_id))
            opened = PartitionLog(
                self._files,
                directory,
                opening.config,
                now_ms=now_ms,
                flushed=self._recovery.get(key, 0),
                cleaned=self._cleaned.get(key, 0),
                clean=self.clean,
            )
            start = self._starts.get(key, 0)
            if start:
                opened.advance_start(min(start, opened.end_offset), now_ms)
            opened.date(now_ms)
        except (CorruptLog, OSError) as problem:
            return problem
        return opened

    def adopt(self, opening: Opening, opened: PartitionLog) -> PartitionLog:
        self._offline.discard(opening.key)
        self.logs[opening.key] = opened
        opened.producers.join(self._producer_memory)
        return opened

    def _check_loss(self, opening: Opening, directory: str) -> None:
        """Check whether a known partition without `partition.metadata` may start empty.

        An empty directory is the operator's consent; a missing one needs checkpoints without records.
        """
        names = self._files.list(directory)
        if any(name.endswith(".log") for name in names):
            raise not_its_own(directory, opening.topic_id, None)
        end_offset = max(self._recovery.get(opening.key, 0), self._starts.get(opening.key, 0))
        if end_offset and directory not in self._files.list("."):
            raise WrongDirectory(
                f"its directory {directory} is gone, but it had records up to offset {end_offset}. Restore the directory from a copy, "
                f"or, to accept the loss, make an empty directory of that name"
            )
        if not names:
            logger.warning("%s has no files: the partition is empty and starts at offset 0", directory)

    def cut(self, key: Key, offset: int, now_ms: int) -> ProducerState:
        """Cut everything from `offset`, after lowering the recovery point on disk; see `PartitionLog.cut`.

        Waits for the disk; after an OSError a retry is safe.
        """
        log = self.logs[key]
        offset = log.batch_start(offset)
        log.flushed_offset = min(log.flushed_offset, offset)  # first: a checkpoint taken from now on must not be higher
        self._lower_recovery_point(key, offset)
        return log.cut(offset, now_ms)

    def begin_at(self, key: Key, offset: int, now_ms: int) -> ProducerState:
        """Remove all records of an open log, which then begins at `offset`; as `cut`."""
        log = self.logs[key]
        log.flushed_offset = min(log.flushed_offset, offset)  # as above
        self._lower_recovery_point(key, offset)
        return log.begin_at(offset, now_ms)

    def restart(self, key: Key, offset: int) -> None:
        """As `begin_at`, of a log that is not open."""
        self._lower_recovery_point(key, offset)
        remove_records(self._files, directory_of(key), offset)

    def _lower_recovery_point(self, key: Key, offset: int) -> None:
        """Lower the recovery point, and the high watermark of an unclean election, on disk."""
        with self._writing:
            self._deletions += 1  # invalidates checkpoints taken before
            for name, offsets in ((cp.RECOVERY_POINTS, self._recovery), (cp.HIGH_WATERMARKS, self._high_watermarks)):
                offsets[key] = min(offsets.get(key, 0), offset)
                written = self._offsets(name)
                if written.get(key, 0) > offset:
                    self._put(name, cp.offsets_text({**written, key: offset}).encode())

    # Deleting: call `unregister` in the event loop's thread, `delete` and `remove` in others

    def unregister(self, key: Key, topic_id: UUID) -> RemovedLog:
        self._offline.discard(key)
        removed = self.logs.pop(key, None)
        if removed is not None:
            removed.producers.leave()
        return RemovedLog(key=key, topic_id=topic_id, log=removed)

    def delete(self, removed: Sequence[RemovedLog]) -> list[str]:
        """Close logs, rename their directories to `-delete`; return the names.

        One sync for all. A directory without proof that it is the partition's own becomes `-stray`. After an OSError
        the next start finishes the deletion.
        """
        pairs, directories = [], []
        for partition in removed:
            if partition.log is not None:
                partition.log.close(clean=False)
            directory = directory_of(partition.key)
            names = self._files.list(directory)
            if not names:
                self._files.remove_tree(directory)  # an empty or missing directory
                continue
            own = self._owner(partition.key) == partition.topic_id
            pairs.append((directory, aside(partition.key, partition.topic_id, DELETED if own else STRAY)))
            if own:
                directories.append(pairs[-1][1])
            else:
                logger.warning("%s was not the deleted topic's own and is kept as %s", *pairs[-1])
        self._files.rename_all(pairs)
        self._forget({partition.key for partition in removed})
        return directories

    def set_aside(self, keys: Sequence[Key]) -> list[str]:
        """Rename the directories of logs that cannot be opened to `-stray`, in any thread; return the new names."""
        names = set(self._files.list("."))
        pairs = [(directory_of(key), aside(key, self._new_ids(), STRAY)) for key in keys]
        self._files.rename_all([pair for pair in pairs if pair[0] in names])
        self._forget(keys)
        return [new for _, new in pairs]

    def undeleted(self, removed: Sequence[RemovedLog]) -> list[RemovedLog]:
        return [partition for partition in removed if self._owner(partition.key) == partition.topic_id]

    def _owner(self, key: Key) -> UUID | None:
        content = self._files.read_bytes(f"{directory_of(key)}/{cp.PARTITION_METADATA}")
        return topic_id_in(content) or self._new_owners.of(key)

    def remove(self, directory: str) -> None:
        self._files.remove_tree(directory)

    def high_watermark(self, key: Key) -> int:
        """Return the checkpointed high watermark of a log; 0 without one, or after a deletion."""
        return self._high_watermarks.get(key, 0)

    def cleaned_offset(self, key: Key) -> int:
        return self._cleaned.get(key, 0)

    def note_cleaned(self, key: Key, offset: int) -> None:
        if key in self.logs:
            self._cleaned[key] = offset

    def _forget(self, keys: Collection[Key]) -> None:
        """Remove partitions from the checkpoints, in any thread: later namesakes must not inherit offsets."""
        if not keys:
            return
        self._new_owners.forget(keys)
        with self._writing:
            self._deletions += 1
            for name, offsets in (
                (cp.RECOVERY_POINTS, self._recovery),
                (cp.LOG_STARTS, self._starts),
                (cp.CLEANER_OFFSETS, self._cleaned),
                (cp.HIGH_WATERMARKS, self._high_watermarks),
            ):
                for key in keys:
                    offsets.pop(key, None)
                written = self._offsets(name)
                remaining = {key: offset for key, offset in written.items() if key not in keys}
                if len(remaining) < len(written):
                    self._put(name, cp.offsets_text(remaining).encode())

    def settle(
        self, topic_ids: Mapping[Key, UUID], removed: Collection[UUID], elsewhere: Mapping[Key, UUID] = _NO_IDS
    ) -> UnownedDirectories:
        noted, known = self._new_owners.all(), self._recovery.keys() | self._starts.keys()
        leftovers = settle(
            self._files, topic_ids, removed, self._new_ids(), elsewhere, noted=noted, known=known, forget=self._forget
        )
        self._new_owners.forget([key for key, owner in noted.items() if topic_ids.get(key) != owner])
        return leftovers

    def partitions(self) -> Collection[Key]:
        return partitions_in(self._files).values()

    def checkpoint(self, high_watermarks: Mapping[Key, int]) -> Checkpoint:
        """Collect the offsets to checkpoint; offline logs keep their last recovery points."""
        deletions = self._deletions  # first: a cut in another thread lowers its offsets before it counts
        recovery = {**self._recovery, **{key: log.flushed_offset for key, log in self.logs.items()}}
        starts = {**self._starts, **{key: log.start_offset for key, log in self.logs.items() if log.start_offset > 0}}
        offsets = {
            cp.RECOVERY_POINTS: recovery,
            cp.HIGH_WATERMARKS: high_watermarks,
            cp.LOG_STARTS: starts,
            cp.CLEANER_OFFSETS: dict(self._cleaned),
        }
        return Checkpoint(offsets=offsets, deletions=deletions)

    def write(self, checkpoint: Checkpoint) -> bool:
        """Write a checkpoint, in any thread.

        False if a deletion or truncation has invalidated it.
        """
        with self._writing:
            if checkpoint.deletions != self._deletions:
                return False
            for name, offsets in checkpoint.offsets.items():
                self._put(name, cp.offsets_text(offsets).encode())
            return True

    def _put(self, name: str, content: bytes) -> None:
        if self._written.get(name) != content:
            self._written.pop(name, None)
            self._files.replace(name, content)
            self._written[name] = content

    def expire_producers(self, now_ms: int, after_ms: int) -> Generator[None, None, None]:
        for log in tuple(self.logs.values()):
            if not log.busy:
                log.producers.expire(now_ms, self._producer_memory.kept_ms(after_ms))
            yield

    def maintain(self, now_ms: int) -> Generator[None, None, list[str]]:
        """Roll and delete due segments; yield after each log.

        `remove_deleted` removes the files. Returns errors: a failing log must not keep others from freeing space.
        """
        problems = []
        for key in tuple(self.logs):
            log = self.logs.get(key)
            if log is None or log.busy:  # deleted since the last yield, or due at the next time
                continue
            try:
                log.maintain(now_ms)
            except OSError as problem:
                problems.append(f"{log.directory}: {problem}")
            yield
        return problems

    def registered(self, epoch: int) -> None:
        """Write down the epoch of this broker, for the next start.

        OSError: it cannot be written.
        """
        self.broker_epoch = epoch
        self._files.replace(cp.BROKER_EPOCH, cp.broker_epoch_text(epoch))

    def close(self, *, clean: bool = True) -> None:
        """Close every log, then write the clean-shutdown mark for the next start.

        It is omitted if a log is offline, fails to close, or has an unfinished cut. If not `clean`, files are closed as they are, as after a
        kill.
        """
        if not clean:
            for partition_log in self.logs.values():
                partition_log.close(clean=False)
            return
        high_watermarks = {key: partition_log.end_offset for key, partition_log in self.logs.items()}
        high_watermarks.update(self.high_watermarks())
        for key, closing in self.logs.items():
            try:
                if closing.busy:
                    raise OSError("its truncation failed")
                closing.close(clean=True)
                closing.flushed_offset = closing.end_offset
            except OSError as problem:
                logger.error(
                    "%s cannot be closed in order, the next start looks at it again: %s", closing.directory, problem
                )
                closing.close(clean=False)
                self._offline.add(key)
        try:
            self.write(self.checkpoint(high_watermarks))
            if not self._offline:
                self._files.replace(cp.CLEAN_SHUTDOWN, cp.broker_epoch_text(self.broker_epoch))
        except OSError as problem:
            logger.error("the checkpoints cannot be written, the next start looks at every log again: %s", problem)
