"""An immutable image of the cluster at one point of its metadata log.

Here: `ClusterImage` and lookups in it.
Not here: building the next image (`delta`), deciding (`controller`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from busway_bus.metadata.sorted_map import SortedMap

Places = SortedMap[int, SortedMap[str, tuple[int, ...]]]
"""Partition indices by key and topic, ascending; see `partition_places`."""
TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
GROUP_RESOURCE: Final = 32
UNASSIGNED: Final = UUID(int=1)
"""Directory of a replica whose broker chooses it (KIP-858)."""
LOST: Final = UUID(int=2)
"""Directory of a replica that its broker cannot serve."""
NO_LEADER: Final = -1
NO_LEADER_CHANGE: Final = -2
"""Leader in a PartitionChangeRecord that keeps the leader."""
RECOVERED: Final = 0
RECOVERING: Final = 1
"""Recovery states of a leader (KIP-704): RECOVERING since an unclean election, until the leader has recovered its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionImage:
    """One partition.

    Attributes:
        directories: in the order of `replicas`.
        removing, adding: replicas of a reassignment in progress; both are in `replicas`.
        elr: eligible leader replicas, which have everything committed but left the ISR (KIP-966).
        last_known_elr: the last leader of a leaderless partition.
    """

    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    directories: tuple[UUID, ...] = ()
    removing: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    recovery_state: int = RECOVERED
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()

    def directory_on(self, node_id: int) -> UUID | None:
        if node_id not in self.replicas:
            return None
        at = self.replicas.index(node_id)
        return self.directories[at] if at < len(self.directories) else UNASSIGNED

    def lost_on(self, node_id: int) -> bool:
        return self.directory_on(node_id) == LOST


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicImage:
    """One topic; a partition's index is its number."""

    name: str
    topic_id: UUID
    partitions: tuple[PartitionImage, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    host: str
    port: int
    security_protocol: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerImage:
    """One broker as it registered.

    Attributes:
        epoch: offset of its registration, so a later one is higher.
        incarnation: id of the process; new at each start.
        addresses: by listener, in the broker's order.
        fenced: it has not caught up, or sends no heartbeats.
        in_controlled_shutdown: it hands over its leaderships before it stops.
        directories: ids of its data directories.
        cordoned_directories: those that take no new partitions (KIP-1066); None until the broker reports them.
    """

    node_id: int
    epoch: int
    incarnation: UUID
    addresses: Mapping[str, Address]
    rack: str | None
    fenced: bool
    directories: tuple[UUID, ...]
    features: Mapping[str, tuple[int, int]]
    in_controlled_shutdown: bool = False
    cordoned_directories: tuple[UUID, ...] | None = None

    @property
    def active(self) -> bool:
        """Whether it may lead partitions and join their ISRs."""
        return not (self.fenced or self.in_controlled_shutdown)


def _empty() -> SortedMap[Any, Any]:
    return SortedMap()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterImage:
    """All topics, brokers, settings and counters.

    Attributes:
        names: of topics, by id.
        configs: settings by (resource type, resource name).
        metric_names: topics with a dot or an underscore, by their names in metrics.
        places: partitions by broker; derived from `topics` by `Delta`, and empty in an image that was built by hand.
    """

    topics: SortedMap[str, TopicImage] = field(default_factory=_empty)
    names: SortedMap[UUID, str] = field(default_factory=_empty)
    metric_names: SortedMap[str, str] = field(default_factory=_empty)
    configs: SortedMap[tuple[int, str], Mapping[str, str]] = field(default_factory=_empty)
    brokers: SortedMap[int, BrokerImage] = field(default_factory=_empty)
    features: SortedMap[str, int] = field(default_factory=_empty)
    next_producer_id: int = 0
    places: Places = field(default_factory=_empty, compare=False, repr=False)

    def topic_configs(self, name: str) -> Mapping[str, str]:
        return self.configs.get((TOPIC_RESOURCE, name), {})

    def broker_configs(self, name: str) -> Mapping[str, str]:
        """The dynamic settings of a broker id; the cluster's default for ""."""
        return self.configs.get((BROKER_RESOURCE, name), {})

    def group_configs(self, group_id: str) -> Mapping[str, str]:
        return self.configs.get((GROUP_RESOURCE, group_id), {})

    def partition(self, topic: str, partition: int) -> PartitionImage | None:
        image = self.topics.get(topic)
        return image.partitions[partition] if image is not None and 0 <= partition < len(image.partitions) else None

    def partition_by_id(self, topic_id: UUID, partition: int) -> PartitionImage | None:
        return self.partition(self.names.get(topic_id, ""), partition)

    def usable_brokers(self) -> Iterator[BrokerImage]:
        return (broker for broker in self.brokers.values() if not broker.fenced)

    def is_active(self, node_id: int) -> bool:
        broker = self.brokers.get(node_id)
        return broker is not None and broker.active

    def address(self, node_id: int, listener: str) -> Address | None:
        """A broker's address on a listener; None if fenced, or not on it."""
        broker = self.brokers.get(node_id)
        return None if broker is None or broker.fenced else broker.addresses.get(listener)

    def reachable_brokers(self, listener: str) -> Iterator[tuple[BrokerImage, Address]]:
        for broker in self.usable_brokers():
            address = broker.addresses.get(listener)
            if address is not None:
                yield broker, address

    def lacks(self, partition: PartitionImage, listener: str) -> list[int]:
        """The replicas that clients of a listener cannot reach."""
        return [
            replica
            for replica in partition.replicas
            if partition.lost_on(replica) or self.address(replica, listener) is None
        ]


def metric_name(topic: str) -> str | None:
    """Return a topic's name in metrics if another topic may have it."""
    return topic.replace(".", "_") if "." in topic or "_" in topic else None
