"""Owners of directories that were made together, in one file.

Here: `partition.metadata` of many new partitions without two syncs for each. Their owners are on disk in one note before
a log is opened; the files are only written, and synced later.
Not here: directories (`directories`), logs (`store`).

After a power cut a directory may have records and lack `partition.metadata`: then the note proves its owner. A
`partition.metadata` of another topic is right, and the note is not.
"""

import threading
from collections.abc import Collection, Mapping
from typing import Final
from uuid import UUID

from busway_bus.kernel.files import Files
from busway_bus.log.checkpoints import NEW_OWNERS, PARTITION_METADATA, owners_from_text, owners_text
from busway_bus.log.directories import Key, directory_of, metadata_bytes

SETTLED_AT_ONCE: Final = 256
"""Partitions whose files are synced without a pause."""


class NewOwners:
    """The note. All methods but `of`, `all` and `forget` wait for the disk, in any thread; after an OSError a retry is safe."""

    def __init__(self, files: Files) -> None:
        self._files = files
        content = files.read_bytes(NEW_OWNERS)
        self._noted: dict[Key, UUID] = owners_from_text(content.decode(errors="replace")) if content else {}
        self._is_stale = False
        """Whether the file has partitions that are forgotten."""
        self._written: dict[Key, object] = {}
        """Partitions with a whole `partition.metadata`, perhaps not on disk; another object after each write."""
        self._changing = threading.Lock()

    def of(self, key: Key) -> UUID | None:
        return self._noted.get(key)

    def all(self) -> Mapping[Key, UUID]:
        return self._noted

    def note(self, owners: Mapping[Key, UUID]) -> None:
        """Note owners, before anything is written into their directories."""
        with self._changing:
            self._put({**self._noted, **owners})

    def write(self, key: Key, owner: UUID) -> bool:
        """Write `partition.metadata` without waiting for it; False if that owner is not noted."""
        with self._changing:
            if self._noted.get(key) != owner:
                return False
            self._written.pop(key, None)
            file = self._files.open(f"{directory_of(key)}/{PARTITION_METADATA}")
            try:
                file.truncate(0)
                file.append([metadata_bytes(owner)])
            finally:
                file.close()
            self._written[key] = object()
            return True

    def forget(self, keys: Collection[Key]) -> None:
        """Remove partitions whose directories have other names now, or whose files are on disk.

        In the file with its next change, which needs no sync of its own then: a later partition of that name has another
        topic id, or a `partition.metadata` before anything else.
        """
        with self._changing:
            for key in keys:
                self._written.pop(key, None)
                self._is_stale |= self._noted.pop(key, None) is not None

    def settle(self) -> bool:
        """Sync what was only written; the note is not needed then. Whether more is left.

        A partition that is written again meanwhile stays noted. A failed sync is final: so does its partition.
        """
        with self._changing:
            due = [(key, written, self._noted[key]) for key, written in self._written.items() if key in self._noted]
        settled = {key: written for key, written, owner in due[:SETTLED_AT_ONCE] if self._synced(key, written, owner)}
        with self._changing:
            whole = {key for key, written in settled.items() if self._written.get(key) is written}
            for key in whole:
                del self._written[key]
            if whole or self._is_stale:
                self._put({key: owner for key, owner in self._noted.items() if key not in whole})
        return len(due) > SETTLED_AT_ONCE

    def _synced(self, key: Key, written: object, owner: UUID) -> bool:
        """Sync a `partition.metadata`; False if it is not as it was written, or was deleted meanwhile."""
        path, content, is_on_disk = f"{directory_of(key)}/{PARTITION_METADATA}", metadata_bytes(owner), False
        try:
            if self._files.read_bytes(path) == content:
                file = self._files.open_later(path, len(content))
                try:
                    file.rewrite(0)  # the write-back of a file that was closed may have failed unseen
                    file.sync()
                finally:
                    file.close()
                is_on_disk = True
        except FileNotFoundError:
            pass
        finally:
            if not is_on_disk:  # the system may report success for a second sync
                with self._changing:
                    if self._written.get(key) is written:
                        del self._written[key]
        return is_on_disk

    def _put(self, owners: dict[Key, UUID]) -> None:
        self._files.replace(NEW_OWNERS, owners_text(owners).encode())
        self._noted, self._is_stale = owners, False
