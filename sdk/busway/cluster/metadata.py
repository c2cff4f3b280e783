"""Metadata of the cluster: brokers, topics and leaders from Metadata responses.

Not here: requesting them (`client`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from busway_protocol.errors import ErrorCode, error_for
from busway_protocol.messages.metadata import MetadataResponse


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


@dataclass(slots=True)
class ClusterMetadata:
    """Brokers by id, topics by name, and errors of topics."""

    brokers: dict[int, tuple[str, int]] = field(default_factory=dict)
    topics: dict[str, TopicInfo] = field(default_factory=dict)
    problems: dict[str, ErrorCode] = field(default_factory=dict)
    controller: int = -1
    cluster_id: str | None = None

    def update(self, answer: MetadataResponse, *, all_topics: bool) -> None:
        """Process a response; one for all topics replaces the table."""
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
            self.topics[name] = TopicInfo(
                name,
                topic.topic_id,
                topic.is_internal,
                tuple(
                    PartitionInfo(
                        partition.partition_index,
                        partition.leader_id,
                        partition.leader_epoch,
                        tuple(partition.replica_nodes),
                        tuple(partition.isr_nodes),
                    )
                    for partition in sorted(topic.partitions, key=lambda described: described.partition_index)
                ),
            )

    def leader(self, topic: str, partition: int) -> int | None:
        info = self.topics.get(topic)
        if info is None or not 0 <= partition < len(info.partitions):
            return None
        leader = info.partitions[partition].leader
        return leader if leader in self.brokers else None

    def counts(self) -> Mapping[str, int]:
        return {name: len(topic.partitions) for name, topic in self.topics.items()}
