"""The core's view of the metadata log: offsets and epochs, no bytes.

Here: ends of epochs, the flushed offset, the divergence of two logs (KIP-101, KIP-595).
Not here: the log, written by the driver from `Ready.append`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from busway_bus.log.epochs import LeaderEpochs
from busway_bus.metadata.snapshot import SnapshotId


class OffsetAndEpoch(NamedTuple):
    """An offset, and the epoch of the record before it."""

    offset: int
    epoch: int


class Diverging(NamedTuple):
    """The largest epoch that the reader may share, and its end here."""

    end: OffsetAndEpoch


class Behind(NamedTuple):
    """The log begins too late for the reader, who needs this snapshot."""

    snapshot: SnapshotId


@dataclass(slots=True, kw_only=True)
class LogView:
    """One node's metadata log.

    Attributes:
        start_offset: of the first record; earlier ones are in `snapshot`.
        flushed_offset: records below it are on disk.
        snapshots: sizes in bytes of the complete ones, oldest first. All are of committed records, and the log begins
            at or before the oldest.
    """

    start_offset: int = 0
    end_offset: int = 0
    flushed_offset: int = 0
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    snapshots: Mapping[SnapshotId, int] = field(default_factory=dict)

    @property
    def earliest_snapshot(self) -> SnapshotId | None:
        return next(iter(self.snapshots), None)

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        return next(reversed(tuple(self.snapshots)), None)

    @property
    def last_epoch(self) -> int:
        """The last record's or the snapshot's epoch; 0 for an empty log."""
        if self.epochs.entries:
            return self.epochs.latest
        return 0 if self.latest_snapshot is None else self.latest_snapshot.epoch

    @property
    def end(self) -> OffsetAndEpoch:
        """The end, by which candidates are compared."""
        return OffsetAndEpoch(self.end_offset, self.last_epoch)

    def is_covered_by(self, end: OffsetAndEpoch) -> bool:
        """Whether a log with this end is up to date.

        It has a later last epoch, or the same and at least as many records.
        """
        return (end.epoch, end.offset) >= (self.last_epoch, self.end_offset)

    def end_of(self, epoch: int) -> OffsetAndEpoch:
        """Return the largest epoch up to `epoch`, and its end."""
        end_offset = self.end_offset
        for begun, start in reversed(self.epochs.entries):
            if begun <= epoch:
                return OffsetAndEpoch(end_offset, begun)
            end_offset = start
        earliest = self.earliest_snapshot
        return OffsetAndEpoch(self.start_offset, 0 if earliest is None else min(earliest.epoch, epoch))

    def where_parted(self, offset: int, epoch: int) -> Diverging | Behind | None:
        """Find where a log with this end diverges; None for a prefix.

        As Kafka's `ReplicatedLog.validateOffsetAndEpoch`. An empty log gets the latest snapshot, as from
        `KafkaRaftClient.tryCompleteFetchRequest`.
        """
        earliest, latest = self.earliest_snapshot, self.latest_snapshot
        if earliest is not None and latest is not None:
            parted = offset == self.start_offset and epoch != earliest.epoch
            if offset == 0 or offset < self.start_offset or parted or epoch < earliest.epoch:
                return Behind(latest)
        elif offset == 0 and self.start_offset == 0:
            return None
        end = self.end_of(epoch)
        return None if end.epoch == epoch and end.offset >= offset else Diverging(end)

    def truncation_offset(self, leader: OffsetAndEpoch) -> int:
        """Return the offset to truncate to, given the leader's end of epoch `leader.epoch`: by epoch, never by high watermark (KIP-101)."""
        own = self.end_of(leader.epoch)
        return min(own.offset, leader.offset) if own.epoch == leader.epoch else own.offset

    def appended(self, epoch: int, base_offset: int, next_offset: int) -> None:
        assert base_offset == self.end_offset, f"a batch at {base_offset} does not follow on {self.end_offset}"
        assert epoch >= self.last_epoch, f"epoch {epoch} is before {self.last_epoch}"
        self.epochs.assign(epoch, base_offset)
        self.end_offset = next_offset

    def truncated(self, end_offset: int) -> None:
        self.epochs.truncate(end_offset)
        self.end_offset = end_offset
        self.flushed_offset = min(self.flushed_offset, end_offset)

    def snapshotted(self, snapshots: Mapping[SnapshotId, int], start_offset: int) -> None:
        """Record the snapshots on disk, and the log's start, which never falls."""
        self.snapshots = dict(snapshots)
        self.start_offset = max(self.start_offset, start_offset)

    def restarted(self, snapshot: SnapshotId, size: int) -> None:
        """Replace all records by a snapshot, which is not installed on disk yet."""
        self.start_offset = self.end_offset = snapshot.offset
        self.flushed_offset = 0
        self.epochs = LeaderEpochs()
        self.snapshots = {snapshot: size}

    def flushed(self, offset: int) -> None:
        """Record a flush; of records truncated meanwhile it covers what is left."""
        self.flushed_offset = max(self.flushed_offset, min(offset, self.end_offset))
