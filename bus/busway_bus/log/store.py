"""The data directory: every partition's log, and the files that say how far each is known to be good.

What lives here: opening, creating, deleting and closing logs; checkpoints. What does not: partitions' leaders and watermarks
(`replication`), and the clock. The layout is Kafka's: a directory `topic-partition` for each log.
"""

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


class WrongDirectory(RuntimeError):
    """The data directory belongs to another node or is not one of ours; the text says which."""


class LogStore:
    """All logs below one data directory.

    Args:
        files: the tree.
        new_ids: makes random identifiers, for a directory that is not formatted yet.
    """

    def __init__(self, files: Files, *, node_id: int, new_ids: Callable[[], UUID]) -> None:
        self._files = files
        self.logs: dict[tuple[str, int], PartitionLog] = {}
        self.topic_ids: dict[tuple[str, int], UUID] = {}
        self.identity = self._format(node_id, new_ids)
        self._clean = files.read_bytes(cp.CLEAN_SHUTDOWN) is not None
        files.remove(cp.CLEAN_SHUTDOWN)
        self._recovery = self._offsets(cp.RECOVERY_POINTS)
        self._starts = self._offsets(cp.LOG_STARTS)

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
        directory = f"{topic}-{partition}"
        path = f"{directory}/{cp.PARTITION_METADATA}"
        content = self._files.read_bytes(path)
        if content is None:
            self._files.make_directory(directory)
            self._files.replace(path, f"version: 0\ntopic_id: {cp.uuid_text(topic_id)}".encode())
        else:
            found = content.decode(errors="replace").rpartition("topic_id:")[2].strip()
            if found != cp.uuid_text(topic_id):
                raise WrongDirectory(f"{directory} belongs to the topic id {found}, not {cp.uuid_text(topic_id)}")
        log = PartitionLog(
            self._files, directory, config, now_ms=now_ms, flushed=self._recovery.get(key, 0), clean=self._clean
        )
        start = self._starts.get(key, 0)
        if start:
            log.advance_start(min(start, log.end_offset), now_ms)
        self.logs[key] = log
        self.topic_ids[key] = topic_id
        return log

    def delete(self, topic: str, partition: int) -> None:
        """Remove a partition's log and all its files."""
        log = self.logs.pop((topic, partition))
        topic_id = self.topic_ids.pop((topic, partition))
        log.close(clean=False)
        # A topic made anew under this name must not be measured by the old one's recovery point.
        for name, offsets in ((cp.RECOVERY_POINTS, self._recovery), (cp.LOG_STARTS, self._starts)):
            kept = self._offsets(name)
            offsets.pop((topic, partition), None)
            if kept.pop((topic, partition), None) is not None:
                self._files.replace(name, cp.offsets_text(kept).encode())
        doomed = f"{topic}-{partition}.{topic_id.hex}{_DELETED}"
        self._files.rename(f"{topic}-{partition}", doomed)
        self._files.remove_tree(doomed)

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
            self._files.remove_tree(name)
        return removed

    def checkpoint(self, high_watermarks: Mapping[tuple[str, int], int]) -> None:
        """Write down how far each log is on disk, readable, and where it begins."""
        recovery = {key: log.flushed_offset for key, log in self.logs.items()}
        starts = {key: log.start_offset for key, log in self.logs.items() if log.start_offset > 0}
        self._files.replace(cp.RECOVERY_POINTS, cp.offsets_text(recovery).encode())
        self._files.replace(cp.HIGH_WATERMARKS, cp.offsets_text(high_watermarks).encode())
        self._files.replace(cp.LOG_STARTS, cp.offsets_text(starts).encode())

    def maintain(self, now_ms: int, producer_expiration_ms: int) -> None:
        """Roll, delete and forget what is due in every log."""
        for log in self.logs.values():
            log.maintain(now_ms)
            log.producers.expire(now_ms, producer_expiration_ms)

    def close(self) -> None:
        """Close every log in order, then leave the mark that makes the next start trust the files."""
        high_watermarks = {key: log.end_offset for key, log in self.logs.items()}
        for log in self.logs.values():
            log.close(clean=True)
            log.flushed_offset = log.end_offset
        self.checkpoint(high_watermarks)
        self._files.replace(cp.CLEAN_SHUTDOWN, b'{"version":0,"brokerEpoch":-1}')
