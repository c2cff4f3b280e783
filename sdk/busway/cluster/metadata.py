"""Metadata of the cluster: brokers, topics and leaders from Metadata responses.

Here: also leaders that the responses of other requests name (KIP-951).
Not here: requesting them (`client`).
"""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from busway_protocol.errors import ErrorCode, error_for
from busway_protocol.messages.metadata import MetadataResponse
from busway_protocol.types import ZERO_UUID


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """A partition; leader -1 without one."""

    number: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicInfo:
    name: str
    topic_id: UUID
    internal: bool
    partitions: tuple[PartitionInfo, ...]


class LeaderHint(Protocol):
    """Current leader of a partition in a Produce or Fetch response; -1 if unknown."""

    leader_id: int
    leader_epoch: int


class Endpoint(Protocol):
    """Address of a broker in a Produce or Fetch response."""

    node_id: int
    host: str
    port: int


@dataclass(slots=True)
class ClusterMetadata:
    """Brokers by id, topics by name, and errors of topics."""

    brokers: dict[int, tuple[str, int]] = field(default_factory=dict)
    topics: dict[str, TopicInfo] = field(default_factory=dict)
    problems: dict[str, ErrorCode] = field(default_factory=dict)
    controller: int = -1
    cluster_id: str | None = None

    def update(self, answer: MetadataResponse, *, all_topics: bool) -> None:
        """Process a response; one for all topics replaces the table. A partition's leader epoch never goes back."""
        before = self.topics
        self.brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        self.controller, self.cluster_id = answer.controller_id, answer.cluster_id
        if all_topics:
            self.topics, self.problems = {}, {}
        for topic in answer.topics:
            name = topic.name or ""
            code = error_for(topic.error_code)
            if code is not ErrorCode.NONE:
                self.topics.pop(name, None)
                self.problems[name] = code
                continue
            self.problems.pop(name, None)
            # Without an id it may be another topic of the name, whose epochs begin at 0 again.
            has_id = topic.topic_id != ZERO_UUID
            partitions = [
                PartitionInfo(
                    partition.partition_index,
                    partition.leader_id,
                    partition.leader_epoch if has_id else -1,
                    tuple(partition.replica_nodes),
                    tuple(partition.isr_nodes),
                )
                for partition in sorted(topic.partitions, key=lambda described: described.partition_index)
            ]
            known = before.get(name)
            if known is not None and known.topic_id == topic.topic_id:
                for old in known.partitions[: len(partitions)]:
                    if 0 <= partitions[old.number].leader_epoch < old.leader_epoch:
                        partitions[old.number] = old  # the broker that answers is behind
            self.topics[name] = TopicInfo(name, topic.topic_id, topic.is_internal, tuple(partitions))

    def leader(self, topic: str, partition: int) -> int | None:
        info = self.topics.get(topic)
        if info is None or not 0 <= partition < len(info.partitions):
            return None
        leader = info.partitions[partition].leader
        return leader if leader in self.brokers else None

    def leader_epoch(self, topic: str, partition: int) -> int:
        """Return the epoch of a partition's leader, -1 if it is not known."""
        info = self.topics.get(topic)
        return -1 if info is None or partition >= len(info.partitions) else info.partitions[partition].leader_epoch

    def move_leader(self, topic: str, partition: int, hint: LeaderHint, endpoints: Iterable[Endpoint]) -> bool:
        """Process the leader that a response names; return whether it is news.

        Hints of an older epoch are ignored, as is a leader without a known address.
        """
        info = self.topics.get(topic)
        if info is None or not 0 <= partition < len(info.partitions) or min(hint.leader_id, hint.leader_epoch) < 0:
            return False
        known = info.partitions[partition]
        if hint.leader_epoch <= known.leader_epoch:
            return False
        addresses = {endpoint.node_id: (endpoint.host, endpoint.port) for endpoint in endpoints}
        address = addresses.get(hint.leader_id) or self.brokers.get(hint.leader_id)
        if address is None:
            return False
        self.brokers[hint.leader_id] = address
        moved = dataclasses.replace(known, leader=hint.leader_id, leader_epoch=hint.leader_epoch)
        partitions = (*info.partitions[:partition], moved, *info.partitions[partition + 1 :])
        self.topics[topic] = dataclasses.replace(info, partitions=partitions)
        return True

    def counts(self) -> Mapping[str, int]:
        return {name: len(topic.partitions) for name, topic in self.topics.items()}
