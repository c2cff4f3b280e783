"""The metadata log of a data directory: opening it, and its image at the start.

Here: the check that it belongs to the directory, and its replay.
Not here: deciding and writing (`metadata_log`), snapshots (`metadata_snapshots`).
"""

from typing import Final
from uuid import UUID

from busway_bus.log.checkpoints import QUORUM_STATE, uuid_text
from busway_bus.log.log_config import LogConfig
from busway_bus.log.meta_properties import WrongDirectory
from busway_bus.log.partition_log import CorruptLog, PartitionLog
from busway_bus.log.store import LogStore
from busway_bus.metadata.delta import BrokenHistory, Delta
from busway_bus.metadata.image import LOST, UNASSIGNED, ClusterImage
from busway_bus.metadata.records import TOPIC, TOPIC_ID_INT, from_bytes
from busway_bus.quorum.metadata_snapshots import LogPoint, MetadataSnapshots
from busway_bus.quorum.snapshot_download import settle
from busway_protocol.errors import ProtocolError
from busway_protocol.records.batch import read_header, verify_crc
from busway_protocol.records.record import decode_records
from busway_protocol.types import Buffer

_REMEDY: Final = (
    f"Without the metadata log the topics are unknown: restore {TOPIC}-0 from a copy. "
    f"Until then nothing starts here and nothing is removed"
)
_KEEP: Final = LogConfig(retention_ms=-1, retention_bytes=-1)


class DamagedBatch(ValueError):
    """The batch at `offset` cannot be read or applied, with the reason."""

    def __init__(self, offset: int, problem: Exception) -> None:
        super().__init__(str(problem))
        self.offset = offset


class MetadataStore:
    """The metadata log, opened and replayed with its snapshots.

    Attributes:
        stored: the records at the start that are known to be committed.
        covered: the point of the log up to which `stored` goes.

    Args:
        all_committed: the whole log is committed, not only what the newest snapshot covers.

    Raises:
        CorruptLog: the log is damaged; without it the topics are unknown.
        WrongDirectory: the log does not belong to the topics in this directory, or was written by several voters.
    """

    def __init__(self, store: LogStore, snapshots: MetadataSnapshots, now_ms: int, *, all_committed: bool) -> None:
        if all_committed and store.files.read_bytes(f"{TOPIC}-0/{QUORUM_STATE}") is not None:
            raise WrongDirectory(
                "the metadata log in the data directory was written by several voters, and not all that is in it need be what they agreed on. "
                "Start this node with process.roles=controller and the controller.quorum.voters that it had; to begin with nothing, "
                "choose an empty directory"
            )
        key = (TOPIC, 0)
        settle(store.files, f"{TOPIC}-0", snapshots, lambda offset: store.restart(key, offset))
        try:
            self.log: PartitionLog = store.open(
                TOPIC,
                0,
                UUID(int=TOPIC_ID_INT),
                _KEEP,
                now_ms,
                new=store.formatted
                or (not all_committed and not store.partitions()),  # a cluster's are formatted first
                flushed=snapshots.flushed,
            )
            self.stored, self.covered = self._replay(snapshots, all_committed=all_committed)
        except CorruptLog as problem:
            raise CorruptLog(f"{problem}. {_REMEDY}") from None
        self._check_place(store, self.stored.image())

    def _replay(self, snapshots: MetadataSnapshots, *, all_committed: bool) -> tuple[Delta, LogPoint]:
        """Replay the newest snapshot and the log behind it.

        Each batch is checked: a flipped bit must not rename topics.
        """
        delta, snapshot, problems = snapshots.load()
        offset = 0 if snapshot is None else snapshot.offset
        if not self.log.start_offset <= offset <= self.log.end_offset:
            raise CorruptLog(
                f"{self.log.directory} has the offsets {self.log.start_offset} to {self.log.end_offset}, but what can be read of its "
                f"snapshots ends at {offset}{'; ' if problems else ''}{'; '.join(problems)}"
            )
        delta.notes += problems
        covered = point = LogPoint(offset, -1, 0, 0 if snapshot is None else snapshot.epoch)
        checked = delta if all_committed else Delta(delta.image())
        try:
            for batch in self.log.batches(offset):
                point = apply_batch(batch, checked, point)
        except DamagedBatch as problem:
            raise CorruptLog(f"{self.log.directory} is damaged at offset {problem.offset}: {problem}") from None
        except ProtocolError as problem:
            raise CorruptLog(f"{self.log.directory} is damaged behind offset {point.end_offset}: {problem}") from None
        return delta, point if all_committed else covered

    def _check_place(self, store: LogStore, image: ClusterImage) -> None:
        """Refuse a directory whose topics this log lacks: all would become strays."""
        if not self.log.end_offset and (others := sorted(key for key in store.partitions() if key[0] != TOPIC)):
            raise WrongDirectory(
                f"there is no metadata log in the data directory, but {others[0][0]}-{others[0][1]}"
                f"{f' and {len(others) - 1} others' if len(others) > 1 else ''} hold records. {_REMEDY}. To begin with "
                f"nothing, choose an empty directory"
            )
        own_id, written_for = store.identity.directory_id, _directories(image, store.identity.node_id)
        if written_for and own_id not in written_for:
            other = uuid_text(min(written_for))
            raise WrongDirectory(
                f"the metadata log was written for the directory.id {other}, but meta.properties says {uuid_text(own_id)}: one of "
                f"them is another cluster's. Restore the right one from a copy; if the metadata log is the right one, set "
                f"directory.id={other} in meta.properties. Until then nothing starts here and nothing is removed"
            )


def _directories(image: ClusterImage, node_id: int) -> set[UUID]:
    broker = image.brokers.get(node_id)
    directories = set(broker.directories if broker is not None else ())
    for topic in image.topics.values():
        directories.update(partition.directory_on(node_id) or LOST for partition in topic.partitions)
    return directories - {LOST, UNASSIGNED}


def apply_batch(batch: Buffer, delta: Delta, before: LogPoint) -> LogPoint:
    """Apply the records of a batch; return the point behind it.

    Raises:
        DamagedBatch: the batch is damaged, or a record cannot be applied.
        CorruptBatch: it is no batch.
    """
    header = read_header(batch)
    offset = header.base_offset
    try:
        verify_crc(batch, header)
        for record in decode_records(batch):
            offset = record.offset
            if record.value is not None and not header.is_control:
                delta.apply(from_bytes(record.value))
    except (ProtocolError, BrokenHistory) as problem:
        raise DamagedBatch(offset, problem) from None
    return before.after(header.next_offset, header.max_timestamp, header.size_bytes, header.partition_leader_epoch)
