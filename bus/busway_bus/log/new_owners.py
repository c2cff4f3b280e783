"""Owners of directories that were made together, in one file.

Here: `partition.metadata` of many new partitions without two syncs for each. Their owners are on disk in one note before
a log is opened; the files are only written, and synced later.
Not here: directories (`directories`), logs (`store`).

After a power cut a directory may have records and lack `partition.metadata`: then the note proves its owner. A
`partition.metadata` of another topic is right, and the note is not.
"""

import threading
from collections.abc import Collection, Mapping
from uuid import UUID

from busway_bus.kernel.files import Files
from busway_bus.log.checkpoints import NEW_OWNERS, PARTITION_METADATA, owners_from_text, owners_text
from busway_bus.log.directories import Key, directory_of, metadata_bytes


class NewOwners:
    """The note. All methods but `of` and `all` wait for the disk, in any thread; after an OSError a retry is safe."""

    def __init__(self, files: Files) -> None:
        self._files = files
        content = files.read_bytes(NEW_OWNERS)
        self._noted: Mapping[Key, UUID] = owners_from_text(content.decode(errors="replace")) if content else {}
        self._written: set[Key] = set()
        """Partitions with a whole `partition.metadata`, perhaps not on disk."""
        self._changing = threading.Lock()

    def of(self, key: Key) -> UUID | None:
        return self._noted.get(key)

    def all(self) -> Mapping[Key, UUID]:
        return self._noted

    def note(self, owners: Mapping[Key, UUID]) -> None:
        """Note owners, before anything is written into their directories."""
        with self._changing:
            self._put({**self._noted, **owners})

    def write(self, key: Key) -> None:
        """Write `partition.metadata` of a noted partition without waiting for it."""
        self._written.discard(key)
        file = self._files.open(f"{directory_of(key)}/{PARTITION_METADATA}")
        try:
            file.truncate(0)
            file.append([metadata_bytes(self._noted[key])])
        finally:
            file.close()
        self._written.add(key)

    def forget(self, keys: Collection[Key]) -> None:
        """Remove partitions whose directories have other names now, or whose files are on disk."""
        with self._changing:
            if not self._noted.keys().isdisjoint(keys):
                self._put({key: owner for key, owner in self._noted.items() if key not in keys})

    def settle(self) -> None:
        """Sync what was only written; the note is not needed then.

        A failed sync is final: the note stays.
        """
        settled = {key: owner for key, owner in self._noted.items() if key in self._written and self._synced(key)}
        if settled:
            with self._changing:
                self._put({key: owner for key, owner in self._noted.items() if settled.get(key) != owner})

    def _synced(self, key: Key) -> bool:
        """Sync a `partition.metadata`; False if it was deleted meanwhile."""
        self._written.discard(key)  # unless it succeeds: the system may report success for a second sync
        try:
            file = self._files.open_later(f"{directory_of(key)}/{PARTITION_METADATA}", 0)
            try:
                file.sync()
            finally:
                file.close()
        except FileNotFoundError:
            return False
        return True

    def _put(self, owners: Mapping[Key, UUID]) -> None:
        self._files.replace(NEW_OWNERS, owners_text(owners).encode())
        self._noted = owners
