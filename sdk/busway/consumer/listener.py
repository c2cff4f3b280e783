"""Callbacks for rebalances.

Not here: when they are called (`group`).
"""

from busway.types import TopicPartition

Partitions = tuple[TopicPartition, ...]


class RebalanceListener:
    """Callbacks for rebalances; override what you need."""

    async def on_partitions_revoked(self, revoked: Partitions) -> None:
        """Finish and commit: the partitions are still yours until this returns."""

    async def on_partitions_assigned(self, assigned: Partitions) -> None:
        """Seek if you store offsets elsewhere; nothing was handed out yet."""

    async def on_partitions_lost(self, lost: Partitions) -> None:
        """Clean up: the partitions are already gone; a commit would fail."""
