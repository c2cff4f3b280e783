"""Counters of a node, for its metrics.

Here: plain integers that the request path adds to.
Not here: reading them, names, the page (`monitoring`).
"""

from collections import defaultdict
from collections.abc import Callable


class PartitionCounters:
    """Counts of one partition since it was opened.

    Attributes:
        messages_in, bytes_in: appended records and bytes of batches, those of this broker included.
        bytes_out: bytes of batches in fetch responses.
        produce_requests, failed_produce_requests: batches in produce requests, and those answered with an error.
        fetch_requests, failed_fetch_requests: reads for fetch requests, and those that ended with an error.
    """

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "failed_fetch_requests",
        "failed_produce_requests",
        "fetch_requests",
        "messages_in",
        "produce_requests",
    )

    def __init__(self) -> None:
        self.messages_in = self.bytes_in = self.bytes_out = 0
        self.produce_requests = self.failed_produce_requests = 0
        self.fetch_requests = self.failed_fetch_requests = 0

    def values(self) -> tuple[int, ...]:
        """Return the counts in the order of `monitoring.names.TOPIC_COUNTS`."""
        return (
            self.messages_in,
            self.bytes_in,
            self.bytes_out,
            self.produce_requests,
            self.failed_produce_requests,
            self.fetch_requests,
            self.failed_fetch_requests,
        )

    def add(self, other: "PartitionCounters") -> None:
        self.messages_in += other.messages_in
        self.bytes_in += other.bytes_in
        self.bytes_out += other.bytes_out
        self.produce_requests += other.produce_requests
        self.failed_produce_requests += other.failed_produce_requests
        self.fetch_requests += other.fetch_requests
        self.failed_fetch_requests += other.failed_fetch_requests


class RequestCounters:
    """Requests of a node.

    Attributes:
        counts: by API key and version, packed as in the request header.
        clock: seconds for durations; None measures none.
        durations: by API key, [requests, their milliseconds].
    """

    __slots__ = ("clock", "counts", "durations")

    def __init__(self) -> None:
        self.counts: defaultdict[int, int] = defaultdict(int)
        self.clock: Callable[[], float] | None = None
        self.durations: dict[int, list[float]] = {}

    def ended(self, api_and_version: int, begun: float) -> None:
        assert self.clock is not None
        duration = self.durations.setdefault(api_and_version >> 16, [0, 0.0])
        duration[0] += 1
        duration[1] += (self.clock() - begun) * 1000
