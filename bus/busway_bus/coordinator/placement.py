"""The partition of an internal topic that keeps a group, a transactional id or a share partition.

Here: Kafka's arithmetic, so that both read each other's logs; the partition in an image.
Not here: its state (`runtime`).
"""

from busway_bus.metadata.image import ClusterImage, PartitionImage


def java_hash(text: str) -> int:
    """Return Java's String.hashCode: over UTF-16 units, signed 32 bits."""
    hashed = 0
    for unit in memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H"):
        hashed = (hashed * 31 + unit) & 0xFFFFFFFF
    return hashed - 2**32 if hashed >= 2**31 else hashed


def partition_for(group_id: str, partitions: int) -> int:
    """Return a group's partition as Kafka does: 0 for the least int."""
    hashed = java_hash(group_id)
    return 0 if hashed == -(2**31) else abs(hashed) % partitions


def keeper_of(image: ClusterImage, topic: str, key: str) -> PartitionImage | None:
    """Return the partition whose leader coordinates a key; None where the topic does not exist."""
    placed = image.topics.get(topic)
    return None if placed is None else placed.partitions[partition_for(key, len(placed.partitions))]
