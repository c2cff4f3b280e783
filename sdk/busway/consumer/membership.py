"""Who a member is in its group, and what is its own there.

What lives here: `Membership`, as commits and listeners need it, the same in both group protocols. What does not: how a member comes by it
(`membership_classic`, `membership_modern`).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count

from busway.types import TopicPartition


@dataclass(slots=True, kw_only=True)
class Membership:
    """One member: generation -1 and no id before the first join. A group that its coordinator balances counts by the member's epoch."""

    instance_id: str | None
    member_id: str = ""
    generation: int = -1
    _tenures: dict[TopicPartition, int] = field(default_factory=dict)
    _numbers: "count[int]" = field(default_factory=lambda: count(1))

    @property
    def owned(self) -> tuple[TopicPartition, ...]:
        """The partitions that are this member's."""
        return tuple(self._tenures)

    def own(self, partitions: Iterable[TopicPartition]) -> None:
        """Make these its partitions; those kept keep their tenure."""
        self._tenures = {one: self._tenures.get(one) or next(self._numbers) for one in partitions}

    def tenure(self, partition: TopicPartition) -> int | None:
        """A number for as long as a partition stays this member's without a break; None while it is not."""
        return self._tenures.get(partition)

    def forget(self, *, identity: bool) -> None:
        """The group has moved on: the generation is gone, with `identity` the member id too."""
        self.generation = -1
        if identity:
            self.member_id = ""
