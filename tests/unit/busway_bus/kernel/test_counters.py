"""Counters of requests and partitions."""

from busway_bus.kernel.counters import PartitionCounters, RequestCounters


def test_counts_of_partitions_add_up():
    """Each with its own."""
    counters, other = PartitionCounters(), PartitionCounters()
    for number, name in enumerate(PartitionCounters.__slots__, 1):
        setattr(counters, name, 10)
        setattr(other, name, number)
    before = other.values()
    counters.add(other)
    assert sorted(before) == list(range(1, len(before) + 1))
    assert counters.values() == tuple(10 + count for count in before)


def test_durations_are_milliseconds_by_api():
    """Whatever the version."""
    now = [1.0]
    requests = RequestCounters()
    requests.clock = lambda: now[0]
    now[0] = 1.5
    requests.ended(3 << 16 | 12, 1.0)
    requests.ended(3 << 16 | 13, 1.25)
    assert requests.durations == {3: [2, 750.0]}
