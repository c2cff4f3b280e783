"""Input and output of assignors."""

from dataclasses import dataclass
from typing import Final, TypeAlias

TopicPartition: TypeAlias = tuple[str, int]
Assignment: TypeAlias = dict[str, list[TopicPartition]]
NO_GENERATION: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """Topics of a member; for sticky assignors also owned partitions and their generation (-1 unknown, KIP-792)."""

    topics: tuple[str, ...]
    owned_partitions: tuple[TopicPartition, ...] = ()
    generation_id: int = NO_GENERATION
    group_instance_id: str | None = None
    rack_id: str | None = None
    user_data: bytes | None = None


def member_order(member_id: str, subscription: Subscription) -> tuple[int, str, str]:
    """Return a sort key: static members first, by instance id, so that order survives restarts."""
    instance = subscription.group_instance_id
    return (1, member_id, "") if instance is None else (0, instance, member_id)
