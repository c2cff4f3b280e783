"""What the cluster looks like at one point of its metadata log: an immutable picture.

What lives here: `ClusterImage`. What does not: the way from records to the next picture (`delta`), deciding (`controller`), or
acting on a change (`replication`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
NO_LEADER_CHANGE: Final = -2
"""What a PartitionChangeRecord says of a leader that stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionImage:
    """One partition: who leads it and who has it."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicImage:
    """One topic; its partitions are numbered by their place."""

    name: str
    topic_id: UUID
    partitions: tuple[PartitionImage, ...] = ()


def _empty() -> Mapping[Any, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterImage:
    """All topics, settings and counters; `configs` is keyed by (resource type, resource name)."""

    topics: Mapping[str, TopicImage] = field(default_factory=_empty)
    names: Mapping[UUID, str] = field(default_factory=_empty)
    configs: Mapping[tuple[int, str], Mapping[str, str]] = field(default_factory=_empty)
    features: Mapping[str, int] = field(default_factory=_empty)
    next_producer_id: int = 0

    def topic_configs(self, name: str) -> Mapping[str, str]:
        """The settings that a topic has of its own."""
        return self.configs.get((TOPIC_RESOURCE, name), {})
