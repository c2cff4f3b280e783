"""A snapshot downloaded from the leader, on disk (KIP-630).

Here: the `.part` file, its check, its installation in an order in which each step may be the last before a power cut.
Not here: what is fetched (`core`), the order with other writes (`writing`), the log's records (`log.restart`).

The file gets its name, then the log's records are removed. Between both the file `checkpoint.install` names the
snapshot: a start that finds it removes the records.
"""

from collections.abc import Callable
from typing import Final

from busway_bus.kernel.files import File, Files
from busway_bus.metadata.snapshot import SUFFIX, SnapshotId, verify
from busway_bus.quorum.metadata_snapshots import PART, MetadataSnapshots
from busway_bus.quorum.ready import SnapshotPart
from busway_protocol.errors import ProtocolError

INSTALL: Final = "checkpoint.install"
"""File with the name of the snapshot that replaces the log."""


class SnapshotDownload:
    """The download of one follower. After an OSError a retry of the same call is safe."""

    def __init__(self, files: Files, directory: str, snapshots: MetadataSnapshots) -> None:
        self._files, self._directory, self._snapshots = files, directory, snapshots
        self._snapshot: SnapshotId | None = None
        self._file: File | None = None

    def write(self, part: SnapshotPart) -> None:
        """Write a part at its position. The first one begins a new file."""
        if part.position == 0 or part.snapshot != self._snapshot:
            self.discard()
            self._snapshot = part.snapshot
        if self._file is None:
            self._file = self._files.open(self._path(part.snapshot, PART))
        if self._file.size > part.position:
            self._file.truncate(part.position)
        try:
            self._file.append([part.content])
        except OSError:
            self._close()
            raise

    def check(self, snapshot: SnapshotId) -> bool:
        """Sync the file and check it, in any thread; return whether it is whole and intact."""
        assert self._file is not None, "nothing was downloaded"
        self._file.sync()
        try:
            verify(self._files.read_bytes(self._path(snapshot, PART)) or b"")
        except ProtocolError:
            return False
        return True

    def name(self, snapshot: SnapshotId) -> None:
        """Give the checked file its name durably, in any thread."""
        self._files.replace(f"{self._directory}/{INSTALL}", snapshot.name.encode())
        if self._path(snapshot, PART).rpartition("/")[2] in self._files.list(self._directory):
            self._files.rename(self._path(snapshot, PART), self._path(snapshot, SUFFIX))

    def installed(self, snapshot: SnapshotId) -> None:
        """Forget all other snapshots, after the log's records were removed."""
        self._close()
        self._snapshot = None
        self._snapshots.sizes = {snapshot: self._files.sizes(self._directory)[snapshot.name]}
        self._snapshots.date(snapshot)

    def finish(self) -> None:
        """End an installation durably, in any thread."""
        self._files.remove(f"{self._directory}/{INSTALL}")
        self._snapshots.tidy()
        self._files.sync_directory(self._directory)

    def discard(self) -> None:
        self._close()
        if self._snapshot is not None:
            self._files.remove(self._path(self._snapshot, PART))
            self._snapshot = None

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _path(self, snapshot: SnapshotId, suffix: str) -> str:
        return f"{self._directory}/{snapshot.name.removesuffix(SUFFIX)}{suffix}"


def settle(files: Files, directory: str, snapshots: MetadataSnapshots, restart: Callable[[int], None]) -> None:
    """Delete unfinished files, and complete an interrupted installation, before the log is opened."""
    for name in files.list(directory):
        if name.endswith(PART):
            files.remove(f"{directory}/{name}")
    content = files.read_bytes(f"{directory}/{INSTALL}")
    if content is None:
        return
    snapshot = SnapshotId.from_name(content.decode(errors="replace"))
    download = SnapshotDownload(files, directory, snapshots)
    if snapshot is not None and snapshot in snapshots.sizes:
        restart(snapshot.offset)
        download.installed(snapshot)
    download.finish()
