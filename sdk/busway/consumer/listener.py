"""Being told of partitions that come and go.

What lives here: `RebalanceListener`, which users override. What does not: when it is called (`group_classic`, `group_modern`).
"""

from busway.types import TopicPartition

Partitions = tuple[TopicPartition, ...]


class RebalanceListener:
    """Told when partitions come and go; override what you need."""

    async def on_partitions_revoked(self, revoked: Partitions) -> None:
        """Before partitions are given up: finish and commit now, they are still yours."""

    async def on_partitions_assigned(self, assigned: Partitions) -> None:
        """After partitions came: seek now if you keep offsets elsewhere."""

    async def on_partitions_lost(self, lost: Partitions) -> None:
        """Partitions are gone already; a commit would fail."""
