"""Figures of a node at one scrape, copied in short steps of the event loop.

Here: reading the node's parts.
Not here: counting (`kernel.counters`), the page's text (`page`), readiness (`health`).
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from busway_bus.handlers.common.context import NodeServices
from busway_bus.kernel.counters import PartitionCounters
from busway_bus.kernel.limits import METRICS_PARTITIONS_MAX, METRICS_TOPICS_MAX
from busway_bus.replication.partition_state import Role
from busway_protocol.apis import api
from busway_protocol.errors import KafkaError

_AT_ONCE: Final = 100
"""Partitions or groups read in one turn of the event loop."""

_CLASSIC_STATES: Final = ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty")


@dataclass(kw_only=True)
class Figures:
    """The copied numbers.

    Attributes:
        gauges: in the order of `names.GAUGES`.
        topics: counts of each topic in the order of `names.TOPIC_COUNTS`; empty beyond `METRICS_TOPICS_MAX`.
        totals: the same of all topics, deleted ones included.
        logs: by topic and partition, in the order of `names.LOG_GAUGES`; empty beyond `METRICS_PARTITIONS_MAX`.
        durations: number and milliseconds by name.
        connections: by listener.
        groups: by protocol and state.
    """

    gauges: tuple[int, ...] = ()
    topics: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    totals: tuple[int, ...] = ()
    logs: Mapping[tuple[str, int], tuple[int, ...]] = field(default_factory=dict)
    requests: Mapping[tuple[str, int], int] = field(default_factory=dict)
    durations: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    connections: Mapping[str, int] = field(default_factory=dict)
    groups: Mapping[tuple[str, str], int] = field(default_factory=dict)


async def collect(node: NodeServices, state: int, connections: Mapping[str, int]) -> Figures:
    """Read a node. Long lists are read in steps, so their entries are of different moments."""
    figures = Figures(connections=connections)
    replicas = await _read_partitions(node, figures)
    cluster = await _read_cluster(node)
    groups = await _read_groups(node)
    figures.groups = groups
    classic = [groups["classic", name] for name in _CLASSIC_STATES]
    all_classic = sum(count for (kind, _), count in groups.items() if kind == "classic")
    figures.gauges = (state, *replicas, *cluster, all_classic, *classic)
    figures.requests = {
        (_request_name(key >> 16), key & 0xFFFF): count for key, count in tuple(node.requests.counts.items())
    }
    figures.durations = {
        _request_name(key): (count, milliseconds) for key, (count, milliseconds) in node.requests.durations.items()
    }
    return figures


async def _read_partitions(node: NodeServices, figures: Figures) -> tuple[int, ...]:
    """Read the open partitions; return the gauges of the replica manager."""
    local = node.replicas.local
    partitions = [(partition, partition.counters) for partition in local]
    topics: defaultdict[str, PartitionCounters] = defaultdict(PartitionCounters)
    totals = PartitionCounters()
    totals.add(local.deleted_counters)
    logs: dict[tuple[str, int], tuple[int, ...]] = {}
    led = under_replicated = under_min_isr = 0
    for count, (partition, counters) in enumerate(partitions, 1):
        topics[partition.topic].add(counters)
        totals.add(counters)
        log, replica = partition.log, partition.state
        if len(partitions) <= METRICS_PARTITIONS_MAX:
            sizes = (log.size_bytes, log.start_offset, log.end_offset, log.segment_count)
            logs[partition.topic, partition.index] = sizes
        if replica.role is Role.LEADER:
            led += 1
            under_replicated += len(replica.isr) < len(replica.replicas)
            under_min_isr += replica.under_min_isr
        if count % _AT_ONCE == 0:
            await asyncio.sleep(0)
    figures.topics = (
        {} if len(topics) > METRICS_TOPICS_MAX else {name: counts.values() for name, counts in topics.items()}
    )
    figures.totals = totals.values()
    figures.logs = logs
    return len(partitions), led, len(local.awaited()), under_replicated, under_min_isr


async def _read_cluster(node: NodeServices) -> tuple[int, ...]:
    """Return the gauges of the controller."""
    partitions = offline = 0
    topics = node.image.topics
    for count, topic in enumerate(tuple(topics.values()), 1):
        partitions += len(topic.partitions)
        offline += sum(partition.leader < 0 for partition in topic.partitions)
        if count % _AT_ONCE == 0:
            await asyncio.sleep(0)
    return 1, offline, len(topics), partitions


async def _read_groups(node: NodeServices) -> Counter[tuple[str, str]]:
    groups: Counter[tuple[str, str]] = Counter()
    try:
        listed = node.groups.groups()
    except KafkaError:  # their log is being read, or cannot be
        return groups
    for count, group in enumerate(listed, 1):
        groups[group.kind.value, group.state_name] += 1
        if count % _AT_ONCE == 0:
            await asyncio.sleep(0)
    return groups


def _request_name(key: int) -> str:
    return api(key).request.__name__.removesuffix("Request")
