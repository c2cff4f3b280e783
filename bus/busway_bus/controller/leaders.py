"""Leaders and ISRs of partitions when brokers come and go.

Here: the partitions of a broker that is fenced, unfenced, unregistered or shuts down; replicas that fail or return;
new leader epochs. As `generateLeaderAndIsrUpdates` of Kafka's `ReplicationControlManager`. The records of the broker
itself are those of `brokers`.
Not here: the record of one partition (`partition_changes`), elections by request (`elections`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final
from uuid import UUID

from busway_bus.controller.controller import Surroundings
from busway_bus.controller.partition_changes import Election, PartitionChange
from busway_bus.controller.placement import directory_on
from busway_bus.controller.topic_settings import TopicSettings
from busway_bus.kernel.config import BrokerConfig
from busway_bus.kernel.decision import Decision
from busway_bus.kernel.limits import PARTITIONS_CHANGED_AT_ONCE_MAX
from busway_bus.metadata.features import has_elr
from busway_bus.metadata.image import LOST, NO_LEADER, UNASSIGNED, ClusterImage, PartitionImage
from busway_bus.metadata.partition_places import LEADERLESS, partitions_at
from busway_bus.metadata.records import PartitionChangeRecord
from busway_bus.metadata.sorted_map import SortedMap

_LAST_RESERVED: Final = 100
"""Directory ids up to this number are none of a broker's (KIP-858)."""
_NO_DIRECTORIES: Final[Mapping[int, UUID]] = {}


class PartitionChanges:
    """The changes of partitions in one decision, with what they have in common.

    Args:
        removed: a broker that may not lead, although the image has it active.
        added: a broker that may lead, although the image has it fenced.
    """

    def __init__(
        self, image: ClusterImage, config: BrokerConfig, *, removed: int | None = None, added: int | None = None
    ) -> None:
        self._image = image
        self._settings = TopicSettings(image, config)
        self._elr_enabled = has_elr(image.features)
        self._removed, self._added = removed, added

    @property
    def elr_enabled(self) -> bool:
        return self._elr_enabled

    def unclean_elections(self, topic: str) -> bool:
        return self._settings.unclean_elections(topic)

    def record(
        self,
        topic: str,
        partition_index: int,
        partition: PartitionImage,
        *,
        election: Election | None = None,
        directories: Mapping[int, UUID] = _NO_DIRECTORIES,
        **target: Any,
    ) -> PartitionChangeRecord | None:
        """Return the record of a change; None if the partition stays as it is.

        Args:
            election: None for the topic's: unclean if unclean.leader.election.enable is set.
            target: further fields of `PartitionChange`.
        """
        if election is None:
            election = Election.UNCLEAN if self._settings.unclean_elections(topic) else Election.ONLINE
        return PartitionChange(
            topic_id=self._image.topics[topic].topic_id,
            partition_index=partition_index,
            partition=partition,
            acceptable=self._acceptable(partition, directories),
            min_isr=self._settings.min_isr(topic),
            elr_enabled=self._elr_enabled,
            election=election,
            directories=directories,
            default_directory=lambda broker: directory_on(self._image, broker),
            **target,
        ).record()

    def _acceptable(self, partition: PartitionImage, directories: Mapping[int, UUID]) -> Callable[[int], bool]:
        """Return whether a replica may lead: its broker is active, and its directory online."""

        def acceptable(broker_id: int) -> bool:
            if broker_id == self._removed or not (broker_id == self._added or self._image.is_active(broker_id)):
                return False
            directory = directories.get(broker_id) or partition.directory_on(broker_id)
            return directory is not None and is_online(self._image, broker_id, directory)

        return acceptable


def is_online(image: ClusterImage, broker_id: int, directory: UUID) -> bool:
    """Whether a broker has a directory, as far as it has reported its own."""
    broker = image.brokers.get(broker_id)
    if broker is None or directory == LOST:
        return False
    return directory.int <= _LAST_RESERVED or not broker.directories or directory in broker.directories


def has_many(image: ClusterImage, key: int) -> bool:
    """Whether there are too many partitions at a key of `partition_places` for one decision."""
    count = 0
    for _, partitions in image.places.get(key, SortedMap()).pairs():
        count += len(partitions)
        if count >= PARTITIONS_CHANGED_AT_ONCE_MAX:
            return True
    return False


def is_full(changes: Sized) -> bool:
    """Whether limited changes are as many as a decision may have, so that more may be due."""
    return len(changes) >= PARTITIONS_CHANGED_AT_ONCE_MAX


def _most(limited: bool) -> int | None:
    return PARTITIONS_CHANGED_AT_ONCE_MAX if limited else None


def part_of(changes: list[PartitionChangeRecord]) -> Decision[bool]:
    """Return limited changes if more may be due; fewer are left for the decision of the command."""
    return Decision(records=tuple(changes), reply=True) if is_full(changes) else Decision(reply=False)


def without_broker(
    image: ClusterImage, broker_id: int, *, config: BrokerConfig, unclean: bool = False, limited: bool = False
) -> list[PartitionChangeRecord]:
    """Remove a broker from leadership and ISRs: it is fenced, or shuts down.

    The last replica in sync stays in the ISR, without a leader; with eligible leader replicas it becomes one.

    Args:
        unclean: its logs may have lost records, or it is unregistered: it is no eligible leader replica either.
        limited: return no more than a decision may have.
    """
    return list(islice(_without_broker(image, broker_id, config=config, unclean=unclean), _most(limited)))


def _without_broker(
    image: ClusterImage, broker_id: int, *, config: BrokerConfig, unclean: bool
) -> Iterator[PartitionChangeRecord]:
    changes = PartitionChanges(image, config, removed=broker_id)
    unclean = unclean and changes.elr_enabled
    for topic, index, partition in partitions_at(image, broker_id):
        if broker_id not in partition.isr and not unclean:
            continue
        if partition.leader == NO_LEADER and partition.isr == (broker_id,) and not changes.unclean_elections(topic):
            continue  # no other replica may lead
        record = changes.record(
            topic,
            index,
            partition,
            isr=[replica for replica in partition.isr if replica != broker_id],
            unclean_shutdown=(broker_id,) if unclean else (),
        )
        if record is not None:
            yield record


def with_broker(
    image: ClusterImage, broker_id: int, *, config: BrokerConfig, limited: bool = False
) -> list[PartitionChangeRecord]:
    """Elect leaders of leaderless partitions: a broker is unfenced, and may lead from now on. `limited` as above."""
    changes = PartitionChanges(image, config, added=broker_id)
    records = (changes.record(topic, index, partition) for topic, index, partition in partitions_at(image, LEADERLESS))
    return list(islice((record for record in records if record is not None), _most(limited)))


def leads_any(image: ClusterImage, broker_id: int) -> bool:
    """Whether a broker leads a partition: its controlled shutdown is not over."""
    return any(partition.leader == broker_id for _, _, partition in partitions_at(image, broker_id))


def begin_epochs(image: ClusterImage, partitions: Iterable[tuple[str, int]]) -> Decision[None]:
    """Start new leader epochs: new records must not be mistaken for lost ones.

    Args:
        partitions: (topic name, number); deleted ones are skipped.
    """
    records = []
    for name, partition in partitions:
        topic = image.topics.get(name)
        if topic is not None and partition < len(topic.partitions):
            leader = topic.partitions[partition].leader
            records.append(PartitionChangeRecord(partition_id=partition, topic_id=topic.topic_id, leader=leader))
    return Decision(records=tuple(records), reply=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginEpochs:
    """Start new epochs of partitions whose leaders may have lost records."""

    partitions: tuple[tuple[str, int], ...]

    def decide(self, image: ClusterImage, surroundings: Surroundings) -> Decision[None]:
        return begin_epochs(image, self.partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportReplicas:
    """Report partitions that a broker cannot serve, or can serve again."""

    node_id: int
    lost: tuple[tuple[str, int], ...] = ()
    restored: tuple[tuple[str, int], ...] = ()

    def decide(self, image: ClusterImage, surroundings: Surroundings) -> Decision[None]:
        """Remove a lost replica from leadership and from the ISR.

        The last one in sync stays in the ISR. A restored one in the ISR leads a leaderless partition.
        """
        changes = PartitionChanges(image, surroundings.config)
        records = []
        here = directory_on(image, self.node_id) if self.node_id in image.brokers else UNASSIGNED
        for keys, directory in ((self.lost, LOST), (self.restored, here)):
            for name, index in keys:
                partition = image.partition(name, index)
                if partition is None or self.node_id not in partition.replicas:
                    continue
                isr = [replica for replica in partition.isr if replica != self.node_id or directory != LOST]
                record = changes.record(name, index, partition, directories={self.node_id: directory}, isr=isr)
                if record is not None:
                    records.append(record)
        return Decision(records=tuple(records), reply=None)
