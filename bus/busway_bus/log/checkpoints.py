"""The small files beside the logs, in Kafka's formats.

Here: their texts.
Not here: writing them durably (`Files`).
"""

import base64
import contextlib
import re
from collections.abc import Mapping
from uuid import UUID

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
BROKER_EPOCH = ".busway_broker_epoch"
"""Busway's own: the epoch of the broker that last registered with these logs, in the format of CLEAN_SHUTDOWN."""
NEW_OWNERS = ".busway_new_partitions"
"""Busway's own: topic ids of partitions whose `partition.metadata` may not be on disk; see `new_owners`."""
META_PROPERTIES = "meta.properties"
PARTITION_METADATA = "partition.metadata"
QUORUM_STATE = "quorum-state"


def offsets_text(offsets: Mapping[tuple[str, int], int]) -> str:
    """Format an offset checkpoint: version, count, lines of `topic partition offset`."""
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())]
    return "\n".join(["0", str(len(lines)), *lines, ""])


def offsets_from_text(text: str) -> dict[tuple[str, int], int]:
    """Parse an offset checkpoint. Invalid lines are skipped: recovery only reads more."""
    offsets = {}
    for line in text.splitlines()[2:]:
        parts = line.rsplit(" ", 2)
        if len(parts) == 3 and parts[1].isdigit() and parts[2].isdigit():
            offsets[parts[0], int(parts[1])] = int(parts[2])
    return offsets


def owners_text(owners: Mapping[tuple[str, int], UUID]) -> str:
    """Format topic ids of partitions as an offset checkpoint."""
    lines = [f"{topic} {partition} {uuid_text(owner)}" for (topic, partition), owner in sorted(owners.items())]
    return "\n".join(["0", str(len(lines)), *lines, ""])


def owners_from_text(text: str) -> dict[tuple[str, int], UUID]:
    """Parse `owners_text`. Invalid lines are skipped: these partitions have no proof."""
    owners = {}
    for line in text.splitlines()[2:]:
        parts = line.rsplit(" ", 2)
        if len(parts) == 3 and parts[1].isdigit():
            with contextlib.suppress(ValueError):
                owners[parts[0], int(parts[1])] = uuid_from_text(parts[2])
    return owners


def uuid_text(value: UUID) -> str:
    """Format an id as Kafka does: URL-safe base64, unpadded, 22 characters."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def uuid_from_text(text: str) -> UUID:
    """Parse an id in Kafka's format, or raise ValueError."""
    return UUID(bytes=base64.urlsafe_b64decode(text + "=="))


def properties_text(properties: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in properties.items())


def properties_from_text(text: str) -> dict[str, str]:
    """Parse a Java properties file; `#` and `!` start comments."""
    pairs = {}
    for raw in text.splitlines():
        line = raw.strip()
        if line and line[0] not in "#!":
            name, _, value = line.partition("=")
            pairs[name.strip()] = value.strip()
    return pairs


def broker_epoch_in(mark: bytes) -> int:
    """Return the broker's epoch in a clean-shutdown mark, -1 without one."""
    epoch = re.search(rb'"brokerEpoch"\s*:\s*(-?\d+)', mark)
    return -1 if epoch is None else int(epoch[1])


def broker_epoch_text(epoch: int) -> bytes:
    return b'{"version":0,"brokerEpoch":%d}' % epoch
