"""Progress of a snapshot that a follower fetches from its leader.

Here: what was received, and which responses continue it.
Not here: messages and time (`core`), the file (`snapshot_download`).
"""

from dataclasses import dataclass

from busway_bus.metadata.snapshot import SnapshotId
from busway_bus.quorum.ready import SnapshotPart
from busway_protocol.messages.metadata_snapshots import PartitionSnapshot


@dataclass(slots=True, kw_only=True)
class Download:
    """A snapshot that is being fetched.

    Attributes:
        number: distinguishes attempts.
        position: bytes received.
        size: of the whole, once known.
    """

    snapshot: SnapshotId
    number: int
    position: int = 0
    size: int = -1

    @property
    def complete(self) -> bool:
        """Whether all bytes were received; then the driver checks the file."""
        return self.position == self.size

    def received(self, part: PartitionSnapshot) -> SnapshotPart | None:
        content = part.unaligned_records
        snapshot = SnapshotId(part.snapshot_id.end_offset, part.snapshot_id.epoch)
        if self.complete or snapshot != self.snapshot or part.position != self.position:
            return None
        if not content or isinstance(content, list) or self.size not in {-1, part.size}:
            return None
        if self.position + len(content) > part.size:
            return None
        begins = self.position
        self.position, self.size = begins + len(content), part.size
        return SnapshotPart(snapshot, self.number, begins, content, last=self.complete)
