"""Identity and partitions of a group member, common to both group protocols.

Not here: joining (`membership_classic`, `membership_modern`).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count

from busway.types import TopicPartition


@dataclass(slots=True, kw_only=True)
class Membership:
    """One member: generation (in KIP-848 the member epoch) -1 and no id before the first join."""

    instance_id: str | None
    member_id: str = ""
    generation: int = -1
    _tenures: dict[TopicPartition, int] = field(default_factory=dict)
    _numbers: "count[int]" = field(default_factory=lambda: count(1))

    @property
    def owned(self) -> tuple[TopicPartition, ...]:
        return tuple(self._tenures)

    def own(self, partitions: Iterable[TopicPartition]) -> None:
        self._tenures = {partition: self._tenures.get(partition) or next(self._numbers) for partition in partitions}

    def tenure(self, partition: TopicPartition) -> int | None:
        return self._tenures.get(partition)

    def forget(self, *, identity: bool) -> None:
        self.generation = -1
        if identity:
            self.member_id = ""
