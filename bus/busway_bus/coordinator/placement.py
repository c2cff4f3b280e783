"""Which partition of `__consumer_offsets` keeps a group.

What lives here: Kafka's arithmetic, that a log of its is read here and the other way round. What does not: the partitions.
"""


def java_hash(text: str) -> int:
    """Java's String.hashCode: over UTF-16 units, as a signed 32-bit number."""
    hashed = 0
    for unit in memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H"):
        hashed = (hashed * 31 + unit) & 0xFFFFFFFF
    return hashed - 2**32 if hashed >= 2**31 else hashed


def partition_for(group_id: str, partitions: int) -> int:
    """The partition that keeps a group, as Kafka computes it: the hash without its sign, and 0 for the least int."""
    hashed = java_hash(group_id)
    return 0 if hashed == -(2**31) else abs(hashed) % partitions
