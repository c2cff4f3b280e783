"""Choice of the next requests, and the request for records.

Not here: sending (`fetcher`).
"""

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from typing import Final

from busway.consumer.position_resolver import RESETS
from busway.consumer.subscription import FetchPosition
from busway_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from busway_protocol.types import ZERO_UUID

CHUNKS_AHEAD: Final = 8
"""Undecoded batches that a partition may buffer; with fewer it is fetched again."""


@dataclass(slots=True, kw_only=True)
class FetchPlan:
    """Partitions by the request that they need.

    `wanting` is by the broker to fetch from, `unplaced` by leader. `full` has the brokers of partitions with a full buffer. `wait_s` is the time until the first postponed partition is
    due.
    """

    uncommitted: list[FetchPosition] = field(default_factory=list)
    unplaced: dict[int, list[FetchPosition]] = field(default_factory=dict)
    wanting: dict[int, list[FetchPosition]] = field(default_factory=dict)
    full: set[int] = field(default_factory=set)
    leaderless: list[FetchPosition] = field(default_factory=list)
    wait_s: float | None = None


def plan(
    assigned: Iterable[FetchPosition],
    now_s: float,
    leader_of: Callable[[FetchPosition], int | None],
    replica_of: Callable[[FetchPosition, int], int],
    asked: Container[int],
) -> FetchPlan:
    """Return the next requests; brokers in `asked` have a fetch in flight.

    `replica_of` is called for partitions with a preferred replica, with their leader.
    """
    result = FetchPlan()
    for partition in assigned:
        if partition.placing or (partition.position is not None and partition.paused):
            continue
        if (left_s := partition.retry_at - now_s) > 0:
            result.wait_s = left_s if result.wait_s is None else min(result.wait_s, left_s)
            continue
        if partition.position is None and partition.reset == "committed":
            result.uncommitted.append(partition)
            continue
        leader = leader_of(partition)
        if leader is None:
            result.leaderless.append(partition)
        elif partition.position is None:
            if partition.reset in RESETS:  # otherwise ("none") the reader has to seek
                result.unplaced.setdefault(leader, []).append(partition)
        else:
            node = leader if partition.replica is None else replica_of(partition, leader)
            if len(partition.chunks) >= CHUNKS_AHEAD:
                result.full.add(node)
            elif node not in asked:
                result.wanting.setdefault(node, []).append(partition)
    return result


def fetch_request(
    positions: Iterable[FetchPosition],
    *,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    partition_max_bytes: int,
    read_committed: bool,
) -> FetchRequest:
    topics: dict[str, FetchTopic] = {}
    for position in positions:
        name, partition_index = position.partition
        topic = topics.setdefault(name, FetchTopic(topic=name, topic_id=position.topic_id or ZERO_UUID, partitions=[]))
        topic.partitions.append(
            FetchPartition(
                partition=partition_index,
                current_leader_epoch=position.leader_epoch,
                fetch_offset=position.fetch_position,
                last_fetched_epoch=position.fetched_epoch,
                partition_max_bytes=partition_max_bytes,
            )
        )
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=int(read_committed),
        topics=list(topics.values()),
    )
