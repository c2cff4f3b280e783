"""The data directory: every partition's log, and the files that say how far each is known to be good.

What lives here: opening, creating, deleting and closing logs; checkpoints. What does not: partitions' leaders and watermarks
(`replication`), and the clock. The layout is Kafka's: a directory `topic-partition` for each log.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from busway_bus.kernel.files import Files
from busway_bus.log import checkpoints as cp
from busway_bus.log.log_config import LogConfig
from busway_bus.log.partition_log import PartitionLog

_DELETED: Final = "-delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Whose data this is, from `meta.properties`."""

    cluster_id: str
    node_id: int
    directory_id: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The content of the checkpoint files at one moment, to be written by `LogStore.write` in any thread."""

    contents: Mapping[str, bytes]
    deletions: int


class WrongDirectory(RuntimeError):
    """The data directory belongs to another node or is not one of ours; the text says which."""


class LogStore:
    """All logs below one data directory.

    Args:
        files: the tree.
        new_ids: makes random identifiers, for a directory that is not formatted yet.

    Attributes:
        clean: whether the last process closed every log in order; otherwise any may have lost what was not flushed.
    """

    def __init__(self, files: Files, *, node_id: int, new_ids: Callable[[], UUID]) -> None:
        self._files = files
        self.logs: dict[tuple[str, int], PartitionLog] = {}
        self.topic_ids: dict[tuple[str, int], UUID] = {}
        self.identity = self._format(node_id, new_ids)
        self.clean = files.read_bytes(cp.CLEAN_SHUTDOWN) is not None
        files.remove(cp.CLEAN_SHUTDOWN)
        self._recovery = self._offsets(cp.RECOVERY_POINTS)
        self._starts = self._offsets(cp.LOG_STARTS)
        self._cleaned = self._offsets(cp.CLEANER_OFFSETS)
        self._offline: set[tuple[str, int]] = set()
        self._written: dict[str, bytes] = {}
        self._deletions = 0
        self._writing = threading.Lock()

    def _format(self, node_id: int, new_ids: Callable[[], UUID]) -> Identity:
        content = self._files.read_bytes(cp.META_PROPERTIES)
        if content is None:
            identity = Identity(cluster_id=cp.uuid_text(new_ids()), node_id=node_id, directory_id=new_ids())
            text = cp.properties_text(
                {
                    "version": "1",
                    "cluster.id": identity.cluster_id,
                    "node.id": str(node_id),
                    "directory.id": cp.uuid_text(identity.directory_id),
                }
            )
            self._files.replace(cp.META_PROPERTIES, text.encode())
            return identity
        found = cp.properties_from_text(content.decode(errors="replace"))
        try:
            identity = Identity(
                cluster_id=found["cluster.id"],
                node_id=int(found["node.id"]),
                directory_id=cp.uuid_from_text(found["directory.id"]),
            )
        except (KeyError, ValueError) as problem:
            raise WrongDirectory(f"{cp.META_PROPERTIES} in the data directory cannot be read: {problem}") from None
        if identity.node_id != node_id:
            raise WrongDirectory(
                f"the data directory belongs to node {identity.node_id}, this is node {node_id}; set node.id or log.dirs"
            )
        return identity

    def _offsets(self, name: str) -> dict[tuple[str, int], int]:
        content = self._files.read_bytes(name)
        return cp.offsets_from_text(content.decode(errors="replace")) if content else {}

    def open(self, topic: str, partition: int, topic_id: UUID, config: LogConfig, now_ms: int) -> PartitionLog:
        """The log of a partition, made when it is not there.

        Raises:
            CorruptLog: flushed data is damaged.
            WrongDirectory: the directory belongs to an older topic of the same name.
        """
        key = (topic, partition)
        self.topic_ids[key] = topic_id
        self._offline.add(key)  # until it is open
        directory = f"{topic}-{partition}"
        path = f"{directory}/{cp.PARTITION_METADATA}"
        content = self._files.read_bytes(path)
        if content is None:
            self._forget(key)  # an operator may have removed the directory to accept the loss of what was in it
            self._files.make_directory(directory)
            self._files.replace(path, f"version: 0\ntopic_id: {cp.uuid_text(topic_id)}".encode())
        else:
            found = content.decode(errors="replace").rpartition("topic_id:")[2].strip()
            if found != cp.uuid_text(topic_id):
                raise WrongDirectory(f"{directory} belongs to the topic id {found}, not {cp.uuid_text(topic_id)}")
        log = PartitionLog(
            self._files,
            directory,
            config,
            now_ms=now_ms,
            flushed=self._recovery.get(key, 0),
            cleaned=self._cleaned.get(key, 0),
            clean=self.clean,
        )
        self._offline.discard(key)
        start = self._starts.get(key, 0)
        if start:
            log.advance_start(min(start, log.end_offset), now_ms)
        self.logs[key] = log
        return log

    def delete(self, topic: str, partition: int) -> None:
        """Remove a partition's log and all its files, also one that could not be opened."""
        key = (topic, partition)
        log = self.logs.pop(key, None)
        topic_id = self.topic_ids.pop(key)
        self._offline.discard(key)
        if log is not None:
            log.close(clean=False)
        self._forget(key)
        directory = doomed = f"{topic}-{partition}"
        if self._files.list(directory):  # one that could not be made holds nothing
            doomed = f"{directory}.{topic_id.hex}{_DELETED}"
            self._files.rename(directory, doomed)
        self._files.remove_tree(doomed)

    def cleaned_offset(self, key: tuple[str, int]) -> int:
        """Up to where a log was compacted."""
        return self._cleaned.get(key, 0)

    def note_cleaned(self, key: tuple[str, int], offset: int) -> None:
        """Remember that a log was compacted up to `offset`; the next checkpoint writes it down."""
        if key in self.logs:
            self._cleaned[key] = offset

    def _forget(self, key: tuple[str, int]) -> None:
        """Take a partition out of the checkpoints: one made anew under its name must not be measured by them."""
        with self._writing:
            self._deletions += 1
            for name, offsets in (
                (cp.RECOVERY_POINTS, self._recovery),
                (cp.LOG_STARTS, self._starts),
                (cp.CLEANER_OFFSETS, self._cleaned),
            ):
                offsets.pop(key, None)
                kept = self._offsets(name)
                if kept.pop(key, None) is not None:
                    self._put(name, cp.offsets_text(kept).encode())

    def remove_leftovers(self, known: Mapping[tuple[str, int], UUID]) -> list[str]:
        """Remove directories that a crash left half deleted, and those of topics that are gone; answers their names."""
        removed = []
        for name in self._files.list("."):
            topic, dash, partition = name.rpartition("-")
            if name.endswith(_DELETED):
                removed.append(name)
            elif dash and partition.isdigit() and self._files.read_bytes(f"{name}/{cp.PARTITION_METADATA}") is not None:
                content = self._files.read_bytes(f"{name}/{cp.PARTITION_METADATA}") or b""
                found = content.decode(errors="replace").rpartition("topic_id:")[2].strip()
                wanted = known.get((topic, int(partition)))
                if wanted is None or cp.uuid_text(wanted) != found:
                    removed.append(name)
        for name in removed:
            topic, _, partition = name.rpartition("-")
            if partition.isdigit():
                self._forget((topic, int(partition)))
            self._files.remove_tree(name)
        return removed

    def checkpoint(self, high_watermarks: Mapping[tuple[str, int], int]) -> Checkpoint:
        """How far each log is on disk, readable and compacted, and where it begins; logs that are offline keep what is known."""
        recovery = {**self._recovery, **{key: log.flushed_offset for key, log in self.logs.items()}}
        starts = {**self._starts, **{key: log.start_offset for key, log in self.logs.items() if log.start_offset > 0}}
        texts = {
            cp.RECOVERY_POINTS: recovery,
            cp.HIGH_WATERMARKS: high_watermarks,
            cp.LOG_STARTS: starts,
            cp.CLEANER_OFFSETS: dict(self._cleaned),
        }
        contents = {name: cp.offsets_text(offsets).encode() for name, offsets in texts.items()}
        return Checkpoint(contents=contents, deletions=self._deletions)

    def write(self, checkpoint: Checkpoint) -> bool:
        """Put a checkpoint on disk, in any thread; False when a log was deleted since it was taken, so that it is void."""
        with self._writing:
            if checkpoint.deletions != self._deletions:
                return False
            for name, content in checkpoint.contents.items():
                self._put(name, content)
            return True

    def _put(self, name: str, content: bytes) -> None:
        if self._written.get(name) != content:
            self._written.pop(name, None)
            self._files.replace(name, content)
            self._written[name] = content

    def maintain(self, now_ms: int, producer_expiration_ms: int) -> list[str]:
        """Roll, delete and forget what is due in every log; the files of what was deleted follow with `remove_deleted`.

        Answers what went wrong where: one log that fails must not keep the others from making room.
        """
        problems = []
        for log in self.logs.values():
            log.producers.expire(now_ms, producer_expiration_ms)
            try:
                log.maintain(now_ms)
            except OSError as problem:
                problems.append(f"{log.directory}: {problem}")
        return problems

    def close(self, *, clean: bool = True) -> None:
        """Close every log in order, then leave the mark that makes the next start trust the files.

        There is no mark where a log is offline: its files are to be looked at again. Not clean: files are closed as they are, which
        is what the end of a killed process leaves.
        """
        if not clean:
            for log in self.logs.values():
                log.close(clean=False)
            return
        high_watermarks = {key: log.end_offset for key, log in self.logs.items()}
        for log in self.logs.values():
            log.close(clean=True)
            log.flushed_offset = log.end_offset
        self.write(self.checkpoint(high_watermarks))
        if not self._offline:
            self._files.replace(cp.CLEAN_SHUTDOWN, b'{"version":0,"brokerEpoch":-1}')
