"""Elections of leaders: by request, towards preferred replicas, and unclean ones.

Here: `ElectLeaders` (KIP-460), and the controller's periodic `BalanceLeaders` and `ElectMissingLeaders`, as Kafka's
`ReplicationControlManager`. Error texts are Kafka's.
Not here: elections when a broker comes or goes (`leaders`), who asks for them, and when.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from busway_bus.controller.controller import Surroundings
from busway_bus.controller.leaders import PartitionChanges
from busway_bus.controller.partition_changes import Election
from busway_bus.kernel.decision import Decision
from busway_bus.kernel.limits import ELECTIONS_AT_ONCE_MAX
from busway_bus.metadata.image import NO_LEADER, ClusterImage, PartitionImage
from busway_bus.metadata.partition_places import IMBALANCED, LEADERLESS, partitions_at
from busway_bus.metadata.records import PartitionChangeRecord
from busway_protocol.errors import ErrorCode, KafkaError

PREFERRED, UNCLEAN = 0, 1
"""Types of election (KIP-460)."""
_ELECTIONS: Final[Mapping[int, Election]] = {PREFERRED: Election.PREFERRED, UNCLEAN: Election.UNCLEAN}
_PLACES: Final[Mapping[int, int]] = {PREFERRED: IMBALANCED, UNCLEAN: LEADERLESS}
_NO_CANDIDATE: Final[Mapping[int, tuple[ErrorCode, str]]] = {
    PREFERRED: (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available."),
    UNCLEAN: (ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are not available."),
}
Elected = tuple[tuple[str, int], KafkaError | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectLeaders:
    """Elect leaders of partitions; without names, of all that need one. Replies each result, None for an election."""

    kind: int
    partitions: tuple[tuple[str, int], ...] | None

    def decide(self, image: ClusterImage, surroundings: Surroundings) -> Decision[tuple[Elected, ...]]:
        """Decide on each partition alone; one that is named twice needs no second election."""
        if self.kind not in _ELECTIONS:
            refusal = KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {self.kind}")
            return Decision(reply=tuple((key, refusal) for key in self.partitions or ()))
        changes = PartitionChanges(image, surroundings.config)
        records: list[PartitionChangeRecord] = []
        replies: list[Elected] = []
        elected: set[tuple[str, int]] = set()
        for key in _needing(image, self.kind) if self.partitions is None else self.partitions:
            try:
                if key in elected:
                    raise _not_needed()
                records.append(self._elect(image, changes, *key))
                elected.add(key)
                replies.append((key, None))
            except KafkaError as problem:
                replies.append((key, problem))
        return Decision(records=tuple(records), reply=tuple(replies))

    def _elect(
        self, image: ClusterImage, changes: PartitionChanges, topic: str, partition_index: int
    ) -> PartitionChangeRecord:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic not in image.topics:
            raise KafkaError(unknown, f"No such topic as {topic}")
        partition = image.partition(topic, partition_index)
        if partition is None:
            raise KafkaError(unknown, f"No such partition as {topic}-{partition_index}")
        if _led(partition, self.kind):
            raise _not_needed()
        record = changes.record(topic, partition_index, partition, election=_ELECTIONS[self.kind])
        if record is None:
            raise KafkaError(*_NO_CANDIDATE[self.kind])
        return record


def _needing(image: ClusterImage, kind: int) -> Iterator[tuple[str, int]]:
    """Iterate over the partitions whose election is needed."""
    return ((topic, index) for topic, index, _ in partitions_at(image, _PLACES[kind]))


def _led(partition: PartitionImage, kind: int) -> bool:
    return partition.leader == partition.replicas[0] if kind == PREFERRED else partition.leader != NO_LEADER


def _not_needed() -> KafkaError:
    return KafkaError(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")


@dataclass(frozen=True, slots=True, kw_only=True)
class BalanceLeaders:
    """Give partitions to their preferred replicas (auto.leader.rebalance.enable); reply whether more may be due."""

    most: int = ELECTIONS_AT_ONCE_MAX

    def decide(self, image: ClusterImage, surroundings: Surroundings) -> Decision[bool]:
        changes = PartitionChanges(image, surroundings.config)
        return _at_most(
            self.most,
            (
                changes.record(topic, index, partition, election=Election.PREFERRED)
                for topic, index, partition in partitions_at(image, IMBALANCED)
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectMissingLeaders:
    """Elect leaders of leaderless partitions; reply whether more may be due.

    Any live replica where unclean.leader.election.enable is set. Elsewhere one in sync, which a controller that ended
    while a broker was unfenced has left.
    """

    most: int = ELECTIONS_AT_ONCE_MAX

    def decide(self, image: ClusterImage, surroundings: Surroundings) -> Decision[bool]:
        changes = PartitionChanges(image, surroundings.config)
        return _at_most(
            self.most,
            (changes.record(topic, index, partition) for topic, index, partition in partitions_at(image, LEADERLESS)),
        )


def _at_most(most: int, changes: Iterable[PartitionChangeRecord | None]) -> Decision[bool]:
    records: list[PartitionChangeRecord] = []
    for record in changes:
        if record is not None:
            records.append(record)
            if len(records) == most:
                break
    return Decision(records=tuple(records), reply=len(records) == most)
