"""What an assignor gets to know of a member, and what it returns.

What lives here: `Subscription` and the shape of assignments. What does not: their bytes (`consumer_protocol`).
"""

from dataclasses import dataclass
from typing import Final, TypeAlias

TopicPartition: TypeAlias = tuple[str, int]
Assignment: TypeAlias = dict[str, list[TopicPartition]]
"""member id → partitions."""
NO_GENERATION: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A member's wishes: topics, and for sticky assignors what it owned in which generation (-1 unknown, KIP-792)."""

    topics: tuple[str, ...]
    owned_partitions: tuple[TopicPartition, ...] = ()
    generation_id: int = NO_GENERATION
    group_instance_id: str | None = None
    rack_id: str | None = None
    user_data: bytes | None = None


def member_order(member_id: str, subscription: Subscription) -> tuple[int, str, str]:
    """Sort key of members: static ones first, by instance id, so a restart under a new member id keeps its place."""
    instance = subscription.group_instance_id
    return (1, member_id, "") if instance is None else (0, instance, member_id)
