"""The partition of `__consumer_offsets` that keeps a group.

Here: Kafka's arithmetic, so that both read each other's logs.
Not here: the partitions.
"""


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
