"""Directories of partitions, and handling of deleted and stray ones.

Here: Kafka's directory names, `partition.metadata`, the scan at start. It removes only directories of committed
deletions, by topic id or suffix `-delete`; unknown ones become `-stray`.
Not here: the logs (`store`).
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from busway_bus.kernel.files import Files
from busway_bus.kernel.limits import FILE_NAME_BYTES_MAX
from busway_bus.log.checkpoints import PARTITION_METADATA, uuid_from_text, uuid_text

Key = tuple[str, int]
DELETED: Final = "-delete"
STRAY: Final = "-stray"
_ASIDE: Final = re.compile(r"(.+-\d+)\.[0-9a-f]{32}(-delete|-stray)")
_METADATA: Final = re.compile(rb"\s*version:\s*0\s*\n\s*topic_id:\s*([A-Za-z0-9_-]{22})\s*")


def directory_of(key: Key) -> str:
    return f"{key[0]}-{key[1]}"


def aside(key: Key, unique: UUID, suffix: str) -> str:
    """Return the name set aside: `topic-partition.uuid-delete`.

    The topic is cut to fit `FILE_NAME_BYTES_MAX`, as in Kafka.
    """
    tail = f"-{key[1]}.{unique.hex}{suffix}"
    return key[0][: FILE_NAME_BYTES_MAX - len(tail)] + tail


def key_of(name: str) -> Key | None:
    topic, dash, partition = name.rpartition("-")
    return (topic, int(partition)) if dash and topic and partition.isdecimal() and partition.isascii() else None


def metadata_bytes(topic_id: UUID) -> bytes:
    return f"version: 0\ntopic_id: {uuid_text(topic_id)}".encode()


def topic_id_in(content: bytes | None) -> UUID | None:
    """Parse `partition.metadata`; None if missing or damaged."""
    match = _METADATA.fullmatch(content or b"")
    try:
        return uuid_from_text(match[1].decode()) if match else None
    except ValueError:
        return None


def partitions_in(files: Files) -> dict[str, Key]:
    partitions = {}
    for name in files.list("."):
        key = key_of(name)
        if key is not None and any(file == PARTITION_METADATA or file.endswith(".log") for file in files.list(name)):
            partitions[name] = key
    return partitions


@dataclass(slots=True)
class UnownedDirectories:
    """Directories without a partition, from the scan at start.

    Attributes:
        deleted: of committed deletions, removed now.
        strays: old name → new name, set aside now.
        moved: those of `strays` whose partitions are on other brokers.
        earlier: set aside by earlier starts.
        gone: partitions of the deleted and the moved ones.
    """

    deleted: list[str] = field(default_factory=list)
    strays: dict[str, str] = field(default_factory=dict)
    moved: set[str] = field(default_factory=set)
    earlier: list[str] = field(default_factory=list)
    gone: set[Key] = field(default_factory=set)

    def lines(self) -> Iterable[str]:
        for old, new in self.strays.items():
            if old in self.moved:
                yield (
                    f"directory {old} holds a replica that was moved to other brokers while this one was stopped; nothing of it is "
                    f"served, it is kept as {new}: remove it once its records are not needed"
                )
                continue
            yield (
                f"directory {old} belongs to no topic of this cluster; nothing of it is served, it is kept as {new}. If its topic "
                f"is missed, restore __cluster_metadata-0 from a copy that knows it and give the directory its old name; "
                f"otherwise remove it"
            )
        if self.earlier:
            yield (
                f"{len(self.earlier)} directories set aside by earlier starts are still there, {self.earlier[0]} first; "
                f"remove them once their records are not needed"
            )


def settle(
    files: Files,
    topic_ids: Mapping[Key, UUID],
    removed: Collection[UUID],
    unique: UUID,
    elsewhere: Mapping[Key, UUID],
    *,
    noted: Mapping[Key, UUID],
    known: Collection[Key],
    forget: Callable[[Collection[Key]], None],
) -> UnownedDirectories:
    """Finish interrupted deletions, and set stray directories aside; as in Kafka, none of these is deleted.

    The directory of a partition of this broker stays: opening it reports errors.

    Args:
        topic_ids: of every partition with a replica here.
        elsewhere: topic ids of the other partitions.
        removed: ids of topics with a committed deletion.
        noted: topic ids of directories whose `partition.metadata` may be lost; see `new_owners`.
        known: partitions with offsets in the checkpoints.
        forget: removes partitions from the checkpoints; their renamed directories prove until then that they are gone.
        unique: part of the names of strays.
    """
    leftovers = UnownedDirectories()
    names = files.list(".")
    pairs: list[tuple[str, str]] = []
    for name in names:
        over = _ASIDE.fullmatch(name)
        if over is not None:
            (leftovers.deleted if over[2] == DELETED else leftovers.earlier).append(name)
    partitions = partitions_in(files)
    prefixes = {name.rpartition(".")[0] for name in leftovers.deleted}
    for key in {*topic_ids, *known}:
        # Deleted, perhaps created again under its name, but without a new directory yet.
        if directory_of(key) not in partitions and aside(key, unique, DELETED).rpartition(".")[0] in prefixes:
            leftovers.gone.add(key)
    for name, key in partitions.items():
        topic_id = topic_id_in(files.read_bytes(f"{name}/{PARTITION_METADATA}")) or noted.get(key)
        if topic_id is not None and topic_id in removed and topic_ids.get(key) != topic_id:
            leftovers.deleted.append(aside(key, topic_id, DELETED))
            pairs.append((name, leftovers.deleted[-1]))
            leftovers.gone.add(key)
        elif key not in topic_ids:
            leftovers.strays[name] = aside(key, unique, STRAY)
            if topic_id is not None and elsewhere.get(key) == topic_id:
                leftovers.moved.add(name)
                leftovers.gone.add(key)  # it may move back
            pairs.append((name, leftovers.strays[name]))
    files.rename_all(pairs)
    forget(leftovers.gone)
    for name in leftovers.deleted:
        files.remove_tree(name)
    leftovers.deleted.sort()
    return leftovers
