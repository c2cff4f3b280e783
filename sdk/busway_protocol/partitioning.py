"""Partition of a key, as in Kafka's Java producer."""

import functools

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return the unsigned 32-bit Murmur2 hash with Kafka's seed."""
    length = len(data)
    hashed = (_SEED ^ length) & _MASK
    whole = length & ~3
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * _MULTIPLIER & _MASK
        word ^= word >> 24
        hashed = (hashed * _MULTIPLIER & _MASK) ^ (word * _MULTIPLIER & _MASK)
    if length > whole:
        hashed ^= int.from_bytes(data[whole:], "little")
        hashed = hashed * _MULTIPLIER & _MASK
    hashed ^= hashed >> 13
    hashed = hashed * _MULTIPLIER & _MASK
    return hashed ^ (hashed >> 15)


def partition_for_key(key: bytes, partitions: int) -> int:
    hashed = _remembered(key) if type(key) is bytes and len(key) <= _REMEMBERED_BYTES_MAX else murmur2(key)
    return (hashed & 0x7FFFFFFF) % partitions


_REMEMBERED_BYTES_MAX = 64
_remembered = functools.lru_cache(maxsize=4096)(murmur2)
"""Cache for short keys, which repeat: a lookup is a tenth of the work."""
